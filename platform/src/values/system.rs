//! The box itself: host name and the text files that carry names and banners.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// What is configured of the box as a whole. Carried out by its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct System {
    /// Host name, at most 64 octets (`HOST_NAME_MAX`).
    pub hostname: Option<SmolStr>,
    /// Domain name.
    pub domain_name: Option<SmolStr>,
    /// Domains in which short names are looked up, in this order.
    #[serde(default)]
    pub search_domains: Vec<SmolStr>,
    /// Shown before login.
    pub login_banner: Option<SmolStr>,
    /// Shown after login.
    pub motd_banner: Option<SmolStr>,
}

/// Part of the system: the name in the UTS namespace of the managed kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hostname {
    /// The name.
    pub name: SmolStr,
}

/// Part of the system: the text of one file below the settings' `--root`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextFile {
    /// Path without a leading slash, `etc/motd`.
    pub path: SmolStr,
    /// What we hold of it.
    pub content: Content,
}

/// How much of a file is ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// The whole file.
    Whole(String),
    /// The lines between our marker lines; the rest of the file is never touched.
    Block(String),
    /// Observed only: the file is not there (whole), or holds no block of ours.
    Absent,
    /// Observed only: in the place of the file is a symbolic link, which comes back when the file is given up.
    Link {
        /// Where it leads.
        target: String,
        /// What the file there holds.
        text: String,
    },
}
