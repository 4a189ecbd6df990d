//! A small language of values, a descriptor for them, and a simulated system that carries out operations.
//!
//! `a =1 <b <?f +g` is the value `a` with content 1, which needs `b` and any value with facet `f`, and offers facet
//! `g`. The whole language is in `tests/README.md`.

#![allow(dead_code, reason = "each test binary uses a part of this")]
#![allow(unreachable_pub, reason = "shared by test binaries as a module")]
#![allow(clippy::unwrap_used, reason = "a failing fixture fails its test")]
mod fingerprint;
mod lab;
mod reference;
mod thing;
pub mod world;

#[allow(unused_imports, reason = "only plans in the making are compared")]
pub use fingerprint::*;
pub use lab::*;
#[allow(unused_imports, reason = "rows do not need it, properties do")]
pub use reference::*;
pub use thing::*;
