//! Rows for the terms of a change: what it expects, whose intent it is, how often it is tried, when it counts as done.

#![allow(clippy::unwrap_used, reason = "a failing fixture fails its test")]

#[path = "../common/mod.rs"]
mod common;

mod expectations;
mod retries;
mod sources;
