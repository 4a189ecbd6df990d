//! Examination of a change: the configuration after it, and the values and rows that differ.
//!
//! It needs no engine, and runs on a thread of its own, since the time for it grows with the request.

use std::sync::Arc;

use holdfast_base::Chain;
use holdfast_config::changes::changed_objects;
use holdfast_config::limits::excerpt;
use holdfast_config::rows::layer_rows_diff;
use holdfast_config::schema::Origin;
use holdfast_config::{
    Cancel, Configuration, InstancePath, Layers, Models, ObjectChange, parallel,
};
use holdfast_platform::objects::{ModelError, ObjectError, Profiles, Registry};
use holdfast_scheduler::{Key, PlanError, Registry as Kinds, SharedValue};
use holdfast_security::credentialz::Credentials;
use tokio::task::{JoinError, spawn_blocking};

use super::CommitError;
use super::commit::Input;
use super::intent::{Intent, Values};
use super::preview::{self, BoundedList, ConfigChange};
use super::task::{CoreTask, JobResult};

/// Translation of configuration into values.
#[derive(Debug)]
pub(super) struct Examiner {
    pub(super) models: Arc<Models>,
    pub(super) registry: Arc<Registry>,
}

/// Result of an examination: the configuration after a request, and the values and rows that differ.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) configuration: Configuration,
    pub(super) values: Vec<ValueChange>,
    pub(super) rows: Vec<holdfast_store::Change>,
    pub(super) credentials: CredentialValues,
    /// For a dry run: differences in the configuration that clients see.
    pub(super) differences: BoundedList<ConfigChange>,
}

/// One native object that a request changes.
#[derive(Clone, Debug)]
pub(super) struct ValueChange {
    pub(super) path: InstancePath,
    pub(super) key: Key,
    /// True when the object was configured before.
    pub(super) existed: bool,
    /// `None` removes the object.
    pub(super) value: Option<SharedValue>,
}

/// Credentials that differ, which no layer holds.
#[derive(Debug, Default)]
pub(super) struct CredentialValues {
    pub(super) values: Values,
    /// The credentials of credentialz from then on.
    pub(super) credentials: Option<Arc<Credentials>>,
}

impl CoreTask {
    /// Examines a change on another thread.
    pub(super) fn examine(&mut self, intent: Intent, is_dry_run: bool) {
        let (configuration, examiner) = (self.configuration.clone(), Arc::clone(&self.examiner));
        let (source, credentials) = (self.credential_source.clone(), Arc::clone(&self.credentials));
        let removed = match intent {
            Intent::FactoryReset { .. } => {
                self.credential_values.keys().map(|key| (key.clone(), None)).collect()
            }
            _ => Values::new(),
        };
        let cancel = intent.cancel();
        let examined = spawn_blocking(move || {
            let mut candidate = examiner.examine(&configuration, &intent, is_dry_run)?;
            let mut values = removed;
            if let Some(source) = source {
                let (old, new) = (&configuration, &candidate.configuration);
                values.extend(intent.credential_values(&*source, &credentials, old, new));
            }
            candidate.credentials = CredentialValues { values, credentials: intent.credentials() };
            Ok(Box::new(candidate))
        });
        self.jobs.push(async move {
            let examined = examined.await.unwrap_or_else(|error| Err(internal(&error)));
            JobResult::Commit(match examined {
                Ok(_) if cancel.is_cancelled() => Input::Cancel,
                examined => Input::Examined(examined),
            })
        });
    }
}

/// Error for an examination that did not come to its end.
fn internal(error: &JoinError) -> CommitError {
    let reason = if error.is_panic() { "its examination panicked" } else { "cancelled" };
    CommitError::Internal { reason: reason.to_owned() }
}

impl Examiner {
    pub(super) fn new(
        models: Arc<Models>,
        profiles: Option<Arc<dyn Profiles>>,
    ) -> Result<Self, ModelError> {
        let mut registry = Registry::new(&models.native)?;
        if let Some(profiles) = profiles {
            registry = registry.with_profiles(profiles);
        }
        Ok(Self { models, registry: Arc::new(registry) })
    }

    /// All values of a configuration.
    pub(super) fn values(&self, configuration: &Configuration) -> Vec<(Key, SharedValue)> {
        let empty = Configuration::new(Arc::clone(&self.models), Layers::new());
        self.values_since(&empty, configuration)
    }

    /// Values of `new` that differ from those of `old`. A value that cannot be made is logged and left out.
    pub(super) fn values_since(
        &self,
        old: &Configuration,
        new: &Configuration,
    ) -> Vec<(Key, SharedValue)> {
        let values = parallel::map(changed_objects(old, new), |change| {
            let branch = change.new.as_ref()?;
            let value = self.registry.value(&change.path, branch);
            // An earlier version has accepted it. The rest of the box must come up nevertheless.
            let refused = |error: &ObjectError| {
                tracing::error!(path = %self.display(&error.path, Origin::OpenConfig), error = %Chain(error), "stored configuration is not carried out");
            };
            value.inspect_err(refused).ok()
        });
        values.into_iter().flatten().collect()
    }

    /// Applies a change to the configuration, and lists the values and rows that differ; for a dry run, also the
    /// differences that clients see.
    fn examine(
        &self,
        old: &Configuration,
        intent: &Intent,
        is_dry_run: bool,
    ) -> Result<Candidate, CommitError> {
        let configuration = intent.apply(old).map_err(CommitError::Edit)?;
        let cancel = intent.cancel();
        let (values, rows) = parallel::both(
            configuration.work().entries > parallel::FEW,
            || self.value_changes_until(&cancel, old, &configuration, intent.is_admitted()),
            || layer_rows_diff(&self.models, old.layers(), configuration.layers()),
        );
        let values = values.ok_or(CommitError::Abandoned)?;
        let values = values.map_err(|error| self.object_error(&error, intent.origin()))?;
        let rows =
            rows.into_iter().map(holdfast_store::Change::from).chain(intent.rows()).collect();
        let differences = if is_dry_run {
            preview::differences(&self.models, old, &configuration)
        } else {
            BoundedList::default()
        };
        let credentials = CredentialValues::default();
        Ok(Candidate { configuration, values, rows, credentials, differences })
    }

    /// Values that differ; `None` if the request was cancelled meanwhile.
    fn value_changes_until(
        &self,
        cancel: &Cancel,
        old: &Configuration,
        new: &Configuration,
        admitted: bool,
    ) -> Option<Result<Vec<ValueChange>, ObjectError>> {
        let changed = changed_objects(old, new);
        let changed = parallel::map(changed, |change| {
            (!cancel.is_cancelled()).then(|| self.value_change(change, admitted))
        });
        changed.into_iter().collect()
    }

    /// The values that differ. With `admitted`, one that cannot be made any more is left out instead of refused.
    pub(super) fn value_changes(
        &self,
        old: &Configuration,
        new: &Configuration,
        admitted: bool,
    ) -> Result<Vec<ValueChange>, ObjectError> {
        let changed = self.value_changes_until(&Cancel::default(), old, new, admitted);
        changed.unwrap_or_else(|| Ok(Vec::new())) // this token is never cancelled
    }

    fn value_change(
        &self,
        change: ObjectChange,
        admitted: bool,
    ) -> Result<ValueChange, ObjectError> {
        let (key, value) = match &change.new {
            None => (self.registry.key(&change.path)?, None),
            Some(branch) => match self.registry.value(&change.path, branch) {
                Ok((key, value)) => (key, Some(value)),
                // Another origin has the missing leaf, or may supply it later: the object waits, and the request is
                // accepted.
                Err(error) if error.incomplete || admitted => {
                    (self.registry.key(&change.path)?, None)
                }
                Err(error) => return Err(error),
            },
        };
        Ok(ValueChange { path: change.path, key, existed: change.old.is_some(), value })
    }

    /// Error for an object that cannot be made, with its path in the model of the request.
    pub(super) fn object_error(&self, error: &ObjectError, origin: Origin) -> CommitError {
        let (path, reason) = (self.display(&error.path, origin), excerpt(&error.reason));
        CommitError::Object { path, reason }
    }

    /// Error for a plan that cannot be made. For two values that exclude one another, it names the entry of one of
    /// them.
    pub(super) fn plan_error(
        &self,
        error: &PlanError,
        (kinds, changes): (&Kinds, &[ValueChange]),
        origin: Origin,
    ) -> CommitError {
        let refused = CommitError::planning(error);
        let PlanError::Conflict { key, .. } = error else { return refused };
        let brings = |change: &&ValueChange| {
            let kind = kinds.descriptor(change.key.kind());
            let parts = kind.zip(change.value.as_ref()).map(|(kind, value)| kind.parts(&**value));
            change.key == *key || parts.into_iter().flatten().any(|(part, _)| part == *key)
        };
        match changes.iter().find(brings) {
            Some(change) => {
                let path = self.display(&change.path, origin);
                CommitError::Object { path, reason: excerpt(error) }
            }
            None => refused,
        }
    }

    /// A native path, shortened for messages; for an OpenConfig request, its counterpart in that model if there is one.
    fn display(&self, native: &InstancePath, origin: Origin) -> String {
        let models = &self.models;
        match models.map.up_path(native).first().filter(|_| origin == Origin::OpenConfig) {
            Some(path) => excerpt(&path.to_path(models.schema(Origin::OpenConfig))),
            None => excerpt(&native.to_path(models.schema(Origin::Native))),
        }
    }
}
