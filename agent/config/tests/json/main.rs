//! The JSON reader against libyang's, and how fast it is.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

mod oracle;
mod speed;
