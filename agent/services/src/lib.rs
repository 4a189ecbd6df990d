//! Service packages: what is in them, what their templates and conditions say, which components their trees make.
//!
//! Start at [`Package::read`] for the way from files to a checked package, at [`Package::render`] for what the work of a
//! state puts out, at [`package::tree`] for the components of an instance. Everything here is a function of its arguments: files
//! are read by the caller, and what templates ask of the box is answered by the caller's [`Facts`]. A package that is
//! refused is refused with its errors, each with file, line and column where there is one.
//!
//! [`ServiceTypes`] walks the instances that differ in a change of configuration.
//!
//! Trials of an author without an agent, up to `ready`, are in [`offline`].
//!
//! One walk of an instance, with gates and service plan, is in [`walk`]; what wakes an instance is in [`watch`].
//!
//! Absent on purpose: handlers are asked by the caller; a walk names the calls that it needs.

pub mod archive;
mod component;
mod convert;
mod engine;
pub mod error;
pub mod expression;
pub mod facts;
mod grants;
pub mod limits;
mod lint;
pub mod offline;
pub mod outline;
mod output;
pub mod package;
pub mod parameters;
mod reserved_names;
pub mod scope;
pub mod starter;
pub mod types;
mod versions;
mod walk;
pub mod watch;
pub mod work;
pub mod yang;

pub use archive::PackageFiles;
pub use component::Component;
pub use error::{PackageError, PackageErrors, Position};
pub use facts::{Facts, KnownAnswers, NoFacts};
pub use outline::Outline;
pub use output::Output;
pub use package::Package;
pub use parameters::{Parameters, ParametersError};
pub use scope::Scope;
pub use types::ServiceTypes;
pub use versions::{PackageSource, PackageVersion, is_signature_row, signature_row};
pub use watch::{TouchedReads, Watches};
pub use work::{WorkError, WorkErrorKind};

#[cfg(test)]
mod tests;
