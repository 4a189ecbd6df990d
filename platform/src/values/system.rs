//! The box itself: host name, and text files with names and banners.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// The name in the UTS namespace of the managed kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hostname {
    /// The name.
    pub name: SmolStr,
}

/// The text of one file below the settings' `--root`.
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
    /// The block of the hosts file that gives a domain to the name that the box has, whoever gave it that name.
    OwnHost {
        /// Domain of the box.
        domain: SmolStr,
        /// Name of the box in an observed block; `None` in a request, where the name at that moment is meant.
        host: Option<SmolStr>,
    },
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
