//! Input of any kind: no reader panics, a refusal says why, and what is accepted means what it says.
//!
//! Each target runs for `BOLERO_RANDOM_TEST_TIME_MS` (a second when it is not set) after the seeds in
//! `__fuzz__/NAME/corpus`. Half of the inputs are bytes as they come, half are seeds with edits.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

#[path = "../../../config/tests/fuzz/corpus.rs"]
mod corpus;
mod keys;
mod policies;
