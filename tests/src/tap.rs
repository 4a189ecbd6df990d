//! A tap link, which has carrier for as long as a process holds it, unless the process takes it away.
#![allow(
    unsafe_code,
    reason = "the kernel attaches a process to a tap by an ioctl, for which nix has no safe function"
)]

use std::ffi::c_int;
use std::fs::{File, OpenOptions};

use anyhow::{Context, Result, ensure};
use rustix::ioctl;

/// The way to the driver, see `Documentation/networking/tuntap.rst` of the kernel.
const DEVICE: &str = "/dev/net/tun";
/// `IFF_TAP` and `IFF_NO_PI`: frames of Ethernet, without a header of the driver.
const TAP: u16 = 0x0002 | 0x1000;
/// Bytes of a name in `struct ifreq`, with the zero at its end.
const NAME_OCTETS: usize = 16;

/// `struct ifreq`, as far as this request reads it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; NAME_OCTETS],
    flags: u16,
    rest: [u8; 22],
}

/// Number of the request `TUNSETIFF`: `_IOW('T', 202, int)`.
const SET_INTERFACE: ioctl::Opcode = ioctl::opcode::write::<c_int>(b'T', 202);

/// Number of the request `TUNSETCARRIER`: `_IOW('T', 226, int)`.
const SET_CARRIER: ioctl::Opcode = ioctl::opcode::write::<c_int>(b'T', 226);

/// Makes this process the one that holds the tap with this name, until the file is closed. The tap has a carrier meanwhile.
///
/// # Errors
/// When there is no such tap, or another process holds it.
pub fn hold(name: &str) -> Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(DEVICE).context(DEVICE)?;
    ensure!(name.len() < NAME_OCTETS, "the name `{name}` is too long");
    let mut request = InterfaceRequest { name: [0; NAME_OCTETS], flags: TAP, rest: [0; 22] };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the kernel reads and writes a `struct ifreq` for this request, which the type equals in size and layout.
    let held = unsafe {
        let request = ioctl::Updater::<SET_INTERFACE, InterfaceRequest>::new(&mut request);
        ioctl::ioctl(&file, request)
    };
    held.with_context(|| format!("cannot hold the tap {name}"))?;
    Ok(file)
}

/// Gives a tap that this process holds its carrier, or takes it away.
///
/// # Errors
/// When the file is none of a tap.
pub fn set_carrier(tap: &File, has_carrier: bool) -> Result<()> {
    // SAFETY: the kernel reads an `int` for this request, which the type is.
    let set = unsafe {
        let request = ioctl::Setter::<SET_CARRIER, c_int>::new(c_int::from(has_carrier));
        ioctl::ioctl(tap, request)
    };
    set.context("cannot set the carrier of a tap")
}
