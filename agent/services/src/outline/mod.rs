//! The outline of a service type: what `service.toml` says of states, tree, grants and handler.
//!
//! [`Outline::read`] takes the document, and gives all errors of a document that is TOML. Templates, grants and the module
//! are checked elsewhere, with the rest of the package.

mod check;
mod raw;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use smol_str::SmolStr;

use crate::error::{PackageError, PackageErrors, Position};

pub use holdfast_config::services::{ActionTarget, READY, SELF};
pub use raw::{Converge, MissingHandler};

/// File with the outline.
pub const OUTLINE: &str = "service.toml";
/// Folder of the templates.
pub const TEMPLATES: &str = "templates";
/// Extension of the name of an archive.
pub const ARCHIVE_EXTENSION: &str = "hfs";
/// First state of every component.
pub const INIT: &str = "init";
/// Builtin action: the probe of gNOI Ping.
const PING: &str = "ping";
/// Parameters of that action, the one that it needs first.
pub const PING_PARAMETERS: [&str; 6] =
    ["destination", "source", "count", "interval", "wait", "size"];

/// All that an outline says.
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    pub name: LocatedText,
    pub version: Version,
    pub converge: Converge,
    pub missing_handler: MissingHandler,
    pub write: Vec<LocatedText>,
    pub read: Vec<LocatedText>,
    pub handler: Option<Handler>,
    /// The component types; of a plain type, `self` alone.
    pub components: Vec<ComponentType>,
    pub tree: Vec<TreeNode>,
}

/// A text of the outline, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedText {
    pub text: SmolStr,
    pub position: Position,
}

/// Version of a package: three numbers, compared one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub [u32; 3]);

/// A process that serves states of the type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handler {
    pub user: Option<SmolStr>,
    pub identities: Vec<SmolStr>,
    /// Asked before and after each walk.
    pub modification: bool,
}

/// A kind of component, with its states in their order: `init` is the first, `ready` the last.
#[derive(Clone, Debug, PartialEq)]
pub struct ComponentType {
    pub name: SmolStr,
    pub states: Vec<StateOutline>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StateOutline {
    pub name: SmolStr,
    pub position: Position,
    /// Gate of the state.
    pub when: Option<LocatedText>,
    /// The gate is not asked again once the state is reached.
    pub sticky: bool,
    /// Time before this state after which it is failed.
    pub timeout: Option<Duration>,
    pub work: Option<Work>,
    /// Later states belong into a transaction of their own.
    pub commit_after: bool,
    pub action: Option<Action>,
    pub delete: DeleteOutline,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeleteOutline {
    pub when: Option<LocatedText>,
    pub commit_after: bool,
    /// The handler is called.
    pub handler: bool,
    pub action: Option<Action>,
}

/// Source of what a state puts out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Path of a template in the package.
    Template(LocatedText),
    Handler,
}

/// Work outside of the configuration, done once when a state is reached or left.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    pub target: ActionTarget,
    /// Expressions, by the name of the parameter.
    pub params: BTreeMap<SmolStr, LocatedText>,
    /// The component goes no further before the end of it.
    pub sync: bool,
    /// Condition on `result` that decides success.
    pub result: Option<LocatedText>,
    /// Actions with equal values run one after the other.
    pub serial: Option<LocatedText>,
    /// Expressions on `result`, by the name of the opaque value that each becomes.
    pub save: BTreeMap<SmolStr, LocatedText>,
    pub timeout: Duration,
}

/// A node of the tree from which components are made.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeNode {
    pub position: Position,
    pub condition: Option<LocatedText>,
    pub observe: Vec<LocatedText>,
    /// The items, and the name that each is bound to.
    pub foreach: Option<(LocatedText, SmolStr)>,
    pub vars: Vec<(SmolStr, LocatedText)>,
    pub content: NodeContent,
}

#[derive(Clone, Debug, PartialEq)]
pub enum NodeContent {
    Create {
        component_type: SmolStr,
        name: LocatedText,
        /// Types and names of the components whose claims it takes over.
        replaces: Vec<(SmolStr, LocatedText)>,
    },
    Nodes(Vec<TreeNode>),
}

/// Name of the archive of a package.
pub fn archive_name(name: &str, version: Version) -> String {
    format!("{name}-{version}.{ARCHIVE_EXTENSION}")
}

impl Outline {
    /// Reads an outline. The second value has what an author is warned of.
    ///
    /// # Errors
    /// The first error of a text that is not TOML or has unknown names, else all errors.
    pub fn read(text: &str) -> Result<(Self, Vec<PackageError>), PackageErrors> {
        let document: raw::Document = toml::from_str(text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            PackageError::at(OUTLINE, text, &span, error.message())
        })?;
        check::outline(text, document)
    }

    /// Name of the archive of the package.
    pub fn archive_name(&self) -> String {
        archive_name(&self.name.text, self.version)
    }

    pub fn component(&self, name: &str) -> Option<&ComponentType> {
        self.components.iter().find(|component| component.name == name)
    }

    /// The actions of all states.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        let states = self.components.iter().flat_map(|component| &component.states);
        states.flat_map(|state| state.action.iter().chain(&state.delete.action))
    }

    /// True for a type without components, whose work is that of `self`.
    pub fn is_plain(&self) -> bool {
        self.tree.is_empty()
    }

    /// The templates that states name.
    pub fn templates(&self) -> impl Iterator<Item = &LocatedText> {
        let states = self.components.iter().flat_map(|component| &component.states);
        states.filter_map(|state| match &state.work {
            Some(Work::Template(path)) => Some(path),
            Some(Work::Handler) | None => None,
        })
    }

    /// Every expression of the outline.
    pub fn expressions(&self) -> Vec<&LocatedText> {
        let mut found = Vec::new();
        for state in self.components.iter().flat_map(|component| &component.states) {
            found.extend(state.when.iter().chain(&state.delete.when));
        }
        for action in self.actions() {
            found.extend(action.params.values().chain(action.save.values()));
            found.extend(action.result.iter().chain(&action.serial));
        }
        self.tree.iter().for_each(|node| node.add_expressions(&mut found));
        found
    }
}

impl ComponentType {
    pub fn state(&self, name: &str) -> Option<&StateOutline> {
        self.states.iter().find(|state| state.name == name)
    }
}

impl TreeNode {
    fn add_expressions<'a>(&'a self, found: &mut Vec<&'a LocatedText>) {
        found.extend(self.condition.iter().chain(&self.observe));
        found.extend(self.foreach.iter().map(|(items, _)| items));
        found.extend(self.vars.iter().map(|(_, value)| value));
        match &self.content {
            NodeContent::Create { name, replaces, .. } => {
                found.push(name);
                found.extend(replaces.iter().map(|(_, name)| name));
            }
            NodeContent::Nodes(nodes) => nodes.iter().for_each(|node| node.add_expressions(found)),
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl std::str::FromStr for Version {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "a version is three numbers with dots, such as 1.2.0";
        let mut numbers = text.split('.').map(|part| match part.starts_with(['+', '0']) {
            true if part != "0" => Err(FORM),
            _ => part.parse::<u32>().map_err(|_| FORM),
        });
        let mut next = || numbers.next().unwrap_or(Err(FORM));
        let version = Self([next()?, next()?, next()?]);
        if numbers.next().is_some() { Err(FORM) } else { Ok(version) }
    }
}
