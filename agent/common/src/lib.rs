//! Shared by the crates of configuration and those of the process: parallel processing of many items, error texts of bounded
//! length, guesses at misspelt words, and names of roles.
//!
//! Start at [`parallel`], the one place of the workspace that knows rayon. Nothing here knows configuration, requests or the box: each function depends on its
//! arguments alone.

mod error_text;
mod nearest;
pub mod parallel;
mod role_name;

pub use self::error_text::{CUT_MARK, ERROR_TEXT_OCTETS, EXCERPT, error_text, excerpt};
pub use self::nearest::nearest;
pub use self::role_name::{MAX_ROLE_NAME, is_role_name};
