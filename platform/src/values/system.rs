//! The box itself: host name, and text files with names and banners.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// Configuration of the box as a whole. Its parts carry it out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct System {
    /// Host name, at most 64 octets (`HOST_NAME_MAX`).
    pub hostname: Option<SmolStr>,
    /// Domain name.
    pub domain_name: Option<SmolStr>,
    /// Search domains for short names, in this order.
    #[serde(default)]
    pub search_domains: Vec<SmolStr>,
    /// Banner shown before login.
    pub login_banner: Option<SmolStr>,
    /// Banner shown after login.
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
    /// Our content in the file.
    pub content: Content,
}

/// Extent of our content in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// The whole file.
    Whole(String),
    /// Lines between our markers; the rest of the file is left untouched.
    Block(String),
    /// Observed only: the file does not exist, or has no block of ours.
    Absent,
    /// Observed only: the path is a symbolic link, which is restored when the file is given up.
    Link {
        /// Target of the link.
        target: String,
        /// Content of the target.
        text: String,
    },
}
