//! Paths that no model of this agent has, and the decision to refuse or to ignore them.
//!
//! A read of such a path is refused as UNIMPLEMENTED (3.3.4 of the gNMI specification), except for a subscription while
//! the box is set to ignore it. Other mistakes in a path are refused in any case.

use holdfast_config::limits::excerpt;
use holdfast_config::schema::Origin;
use holdfast_config::{Path, PathError};
use smol_str::SmolStr;

use super::path::{Access, JoinedPath, NamedPath};
use super::status::Refusal;

/// A path that no model of this agent has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnknownPath {
    /// The path as the client has sent it, after its origin unless that is OpenConfig. It is shortened, and has U+FFFD
    /// for control characters, which a YANG string cannot hold and a log must not.
    pub(super) name: SmolStr,
    /// The refusal for a reader.
    reason: String,
}

/// A path of a request at some stage of reading, or one that no model has.
pub(super) type OrUnknown<T> = Result<T, UnknownPath>;

impl UnknownPath {
    /// A path in an origin that this agent does not have.
    pub(super) fn of_origin(path: &NamedPath<'_>) -> Self {
        let name = name_in(path.origin, &path.path);
        Self { name, reason: path.unknown_origin() }
    }

    /// A CLI command, which is not a node of a model and which only Get answers.
    pub(super) fn command(path: &JoinedPath) -> Self {
        let origin = path.origin_name();
        let reason = format!("origin `{origin}` cannot be subscribed to: send its commands by Get");
        Self { name: name(path), reason }
    }

    /// A path for which the schema has no node, by the error of looking it up. Other errors come back as refusals.
    pub(super) fn node(path: &JoinedPath, error: &PathError) -> Result<Self, Refusal> {
        if error.is_unknown() {
            Ok(Self { name: name(path), reason: error.to_string() })
        } else {
            Err(Refusal::path(error, Access::Read))
        }
    }
}

impl From<UnknownPath> for Refusal {
    fn from(unknown: UnknownPath) -> Self {
        Self::unimplemented(unknown.reason)
    }
}

/// Unwraps the paths of a request that has to know all of them.
///
/// # Errors
/// When no model has one of them.
pub(super) fn all_known<T>(paths: Vec<OrUnknown<T>>) -> Result<Vec<T>, Refusal> {
    Ok(paths.into_iter().collect::<OrUnknown<Vec<T>>>()?)
}

fn name(path: &JoinedPath) -> SmolStr {
    match (path.cli, path.origin) {
        (false, Origin::OpenConfig) => name_in("", &path.path),
        _ => name_in(path.origin_name(), &path.path),
    }
}

fn name_in(origin: &str, path: &Path) -> SmolStr {
    let colon = if origin.is_empty() { "" } else { ":" };
    let text = excerpt(&format_args!("{origin}{colon}{path}"));
    text.replace(char::is_control, "\u{fffd}").into()
}
