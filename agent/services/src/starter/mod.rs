//! A package to start from: one component, one state, a template, and comments that say what else there is.

use std::sync::Arc;

use smol_str::SmolStr;

use crate::archive::PackageFiles;
use crate::error::PackageErrors;
use crate::outline::{OUTLINE, TEMPLATES};

const SERVICE_TOML: &str = include_str!("service.toml");
const MODULE: &str = include_str!("module.yang");
const TEMPLATE: &str = include_str!("port.cli");
/// Words in these files that become the name of the type and the date of its module.
const NAME: &str = "TYPE";
const DATE: &str = "DATE";

/// The files of a new package of this type; the date is that of its module, as YANG writes it.
///
/// # Errors
/// When the name cannot be part of a path.
pub fn files(name: &str, date: &str) -> Result<PackageFiles, PackageErrors> {
    let fill = |text: &str| -> Arc<[u8]> {
        text.replace(NAME, name).replace(DATE, date).into_bytes().into()
    };
    let files: [(SmolStr, Arc<[u8]>); 3] = [
        (OUTLINE.into(), fill(SERVICE_TOML)),
        (smol_str::format_smolstr!("{name}@{date}.yang"), fill(MODULE)),
        (smol_str::format_smolstr!("{TEMPLATES}/port.cli"), fill(TEMPLATE)),
    ];
    PackageFiles::new(files)
}
