//! The JSON reader against libyang's, and how fast it is.

mod oracle;
mod speed;
