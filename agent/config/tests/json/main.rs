//! The JSON parser compared with libyang's, and its speed.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

mod oracle;
mod speed;
