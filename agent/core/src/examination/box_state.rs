//! State of the box at one moment, as walks of service instances see it.

use std::fmt;
use std::sync::Arc;

use holdfast_config::schema::Origin;
use holdfast_config::services::{Applied, BoxState};
use holdfast_config::{ClaimKey, Configuration, InstancePath, PathPattern, Value};
use holdfast_platform::kinds::credential;
use holdfast_platform::objects::Registry;
use holdfast_scheduler::{Engine, Key, ValueState};
use holdfast_telemetry::Revision;

use crate::shared_engine::SharedEngine;

/// The newest revision and configuration, and the engine. State of objects is that of the moment in which it is asked
/// for.
pub struct ObservedBox {
    pub(crate) revision: Arc<Revision>,
    pub(crate) configuration: Configuration,
    pub(crate) engine: SharedEngine,
    pub(crate) registry: Arc<Registry>,
}

impl fmt::Debug for ObservedBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObservedBox")
            .field("revision", &self.revision.number)
            .finish_non_exhaustive()
    }
}

impl BoxState for ObservedBox {
    fn leaves(&self, origin: Origin, pattern: &PathPattern) -> Vec<Value> {
        self.revision.tree(origin).leaf_values(pattern)
    }

    /// A value that waits counts more than a value that failed: nothing is known of what comes after it.
    fn applied(&self, claim: &ClaimKey) -> Applied {
        let objects = self.objects(claim);
        if let Some(reason) = objects.iter().find_map(|path| self.incomplete(path)) {
            return Applied::Pending(reason);
        }
        let keys: Vec<Key> = objects.iter().flat_map(|path| self.keys_of_object(path)).collect();
        let engine = self.engine.read();
        let mut failed = None;
        for key in keys {
            match applied(&engine, &key) {
                Applied::Done => {}
                Applied::Pending(text) => return Applied::Pending(text),
                Applied::Failed(text) => failed = failed.or(Some(text)),
            }
        }
        failed.map_or(Applied::Done, Applied::Failed)
    }
}

impl ObservedBox {
    /// Leaves of state that exist, with their paths.
    pub fn state(&self, origin: Origin, pattern: &PathPattern) -> Vec<(InstancePath, Value)> {
        self.revision.tree(origin).leaves(pattern)
    }

    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// True when the revision has the node at a native path.
    pub fn shows(&self, path: &InstancePath) -> bool {
        self.revision.native.contains(path)
    }

    /// The newest revision.
    pub fn revision(&self) -> &Revision {
        &self.revision
    }

    /// Keys of the values of all objects that a claim has to do with.
    pub fn keys(&self, claim: &ClaimKey) -> Vec<Key> {
        self.objects(claim).iter().flat_map(|path| self.keys_of_object(path)).collect()
    }

    /// True while an operation on one of these values is under way.
    pub fn is_any_in_progress<'k>(&self, keys: impl IntoIterator<Item = &'k Key>) -> bool {
        let engine = self.engine.read();
        keys.into_iter().any(|key| engine.state(key) == ValueState::InProgress)
    }

    fn objects(&self, claim: &ClaimKey) -> Vec<InstancePath> {
        let claim = self.configuration.layers().claims().get(claim);
        let objects = claim.map(|it| it.objects(self.configuration.models()));
        objects.into_iter().flatten().collect()
    }

    /// Keys of the values of the object at a native path. A user has one where it has a public key: the file with that.
    pub fn keys_of_object(&self, path: &InstancePath) -> Vec<Key> {
        let branch = self.configuration.effective().find_branch(&path.0);
        let keys = branch.and_then(|branch| self.registry.keys(path, &branch).ok());
        let file = self.configuration.user_with_key(path);
        let file = file.map(|user| credential::authorized_keys_key(user));
        keys.into_iter().flatten().chain(file).collect()
    }

    /// Reason for which an object asks for nothing, if a leaf of it is missing.
    fn incomplete(&self, path: &InstancePath) -> Option<Arc<str>> {
        let branch = self.configuration.effective().find_branch(&path.0)?;
        let error = self.registry.values(path, &branch).err()?;
        let path = path.to_path(&self.configuration.models().native);
        Some(format!("{path}: {}", error.reason).into())
    }
}

/// Extent to which one value is in the system. A value that nothing asks for is not an obstacle: the object has
/// values that depend on its leaves.
fn applied(engine: &Engine, key: &Key) -> Applied {
    use ValueState as State;
    let text = |reason: Option<String>| {
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        Arc::from(format!("{}{reason}", engine.label(key)))
    };
    let state = engine.state(key);
    match state {
        State::Configured | State::Nonexistent | State::Obtained => Applied::Done,
        State::Pending => {
            let unmet = engine.status(key).map(|it| it.detail.unmet).unwrap_or_default();
            Applied::Pending(if unmet.is_empty() { text(None) } else { unmet.join(", ").into() })
        }
        State::InProgress | State::Cyclic | State::Conflict | State::Missing | State::Drifted => {
            Applied::Pending(text(None))
        }
        State::Invalid | State::Unimplemented | State::Failed | State::Retrying => {
            let detail = engine.status(key).map(|it| it.detail);
            let reason = detail.and_then(|it| Some(it.error?.to_string()).or(it.invalid));
            Applied::Failed(text(reason))
        }
    }
}
