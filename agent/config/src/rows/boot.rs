//! A boot configuration as one row: its parts, each preceded by its length (`u32`, big endian).

use crate::layer::BootConfiguration;

pub(super) fn write(boot: &BootConfiguration) -> Vec<u8> {
    let mut row = Vec::new();
    for part in [&boot.vendor, &boot.openconfig, &boot.record] {
        // Parts are below 4 GiB, because messages are.
        let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
        row.extend(length.to_be_bytes());
        row.extend(part);
    }
    row
}

pub(super) fn read(mut row: &[u8]) -> Result<BootConfiguration, &'static str> {
    let mut part = || {
        let (length, rest) = row.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (part, rest) = rest.split_at_checked(length)?;
        row = rest;
        Some(part.to_vec())
    };
    let parts = (part(), part(), part());
    match parts {
        (Some(vendor), Some(openconfig), Some(record)) if row.is_empty() => {
            Ok(BootConfiguration { vendor, openconfig, record })
        }
        _ => Err("a boot configuration is cut off"),
    }
}
