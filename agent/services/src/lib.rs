//! Service packages: what is in them, what their templates and conditions say, which components their trees make.
//!
//! Start at `Package::read` for the way from octets to a checked package, at `render` for what the work of a state puts
//! out, at `tree` for the components of an instance. Everything here is a function of its arguments: files are read by
//! the caller, and what templates ask of the box is answered by the caller's `Facts`. A package that is refused is
//! refused with all its errors, each with file, line and column.
//!
//! Absent on purpose: the walk, the service plan and its rows, handlers and actions. The agent does not load packages
//! yet; the commands `holdfast service` are the only user.

pub mod archive;
pub mod error;
pub mod limits;
pub mod outline;
pub mod scope;
pub mod yang;

pub use archive::PackageFiles;
pub use error::{PackageError, PackageErrors, Position};
pub use outline::Outline;
