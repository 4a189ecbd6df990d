//! Examination of a change: computes the configuration after the change, and the entries and database rows that differ.
//!
//! A larger request takes longer to examine, so the examination runs on a thread of its own. It can do so because it
//! reads none of the engine's planes (intended, applied, observed).

mod box_state;
mod credentials;
mod handler_calls;
mod packages;
mod pending;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_base::ErrorChain;
use holdfast_common::parallel;
use holdfast_config::changes::{all_objects, changed_objects};
use holdfast_config::limits::excerpt;
use holdfast_config::rows::layer_rows_diff;
use holdfast_config::schema::Origin;
use holdfast_config::services::{Book, Surroundings};
use holdfast_config::tree::Child;
use holdfast_config::{
    Branch, CancelToken, Configuration, Footprint, InstancePath, LayerDifference, Models,
    ObjectChange, PackageChange, Provenance, ServiceTag, is_configuration_row,
};
use holdfast_platform::kinds;
use holdfast_platform::objects::{
    ModelError, ObjectError, ObjectKeys, ObjectValues, Profiles, Registry, Relations,
};
use holdfast_platform::values::Link;
use holdfast_scheduler::{Engine, IntentChange, Key, Owner, PlanError, SharedValue};
use holdfast_security::credentialz::Credentials;

use crate::request::{
    BoundedList, CommitError, ConfigChange, Intent, ServiceChange, Values, differences,
    service_preview,
};

pub use box_state::ObservedBox;
pub use credentials::CredentialSource;
pub use handler_calls::{HandlerCalls, HandlerQuestion, HandlerReply, HandlerTransaction};
pub(crate) use handler_calls::{HandlerRounds, UnansweredCalls, UnansweredChange};
pub use packages::package_row;
pub use pending::IncompleteEntry;
pub(crate) use pending::incomplete_entries;

/// A check of configuration that makes no object of the engine.
pub trait SettingsCheck: std::fmt::Debug + Send + Sync {
    /// A problem of the second configuration, if there is one in a part that differs from the first: its entry, and the reason.
    fn refusal(&self, old: &Configuration, new: &Configuration) -> Option<(InstancePath, String)>;
}

/// Translation of configuration into values.
#[derive(Debug)]
pub(crate) struct Examiner {
    settings_check: Option<Arc<dyn SettingsCheck>>,
    /// Models of the start, for the texts of paths to objects: modules that come later describe none.
    models: Arc<Models>,
    pub(crate) registry: Arc<Registry>,
}

/// Result of an examination: the configuration after a request, and the entries and rows that differ.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// The request, which is examined again if what it read has changed before its turn.
    pub(crate) intent: Box<Intent>,
    pub(crate) footprint: Arc<Footprint>,
    pub(crate) configuration: Configuration,
    pub(crate) changes: Vec<EntryChange>,
    pub(crate) rows: Vec<holdfast_store::Change>,
    pub(crate) credentials: CredentialValues,
    /// For a dry run: differences in the configuration that clients see.
    pub(crate) differences: BoundedList<ConfigChange>,
    /// Differences in service plans.
    pub(crate) services: BoundedList<ServiceChange>,
    /// Instances that may be ready once the objects of the change are verified.
    pub(crate) unready: BTreeSet<ServiceTag>,
    /// Packages of services that the database has to keep after that, or no longer.
    pub(crate) packages: Vec<PackageChange>,
    /// Instances that were walked, and whose plans or claims differ.
    pub(crate) touched: BTreeSet<ServiceTag>,
    /// The difference of the layers, for a change that is a configuration revision.
    pub(crate) difference: Option<Box<LayerDifference>>,
}

/// Change of the entry of one native object, with the values that it gives.
#[derive(Clone, Debug)]
pub(crate) struct EntryChange {
    pub(crate) path: InstancePath,
    /// Owner of its values, where other objects may ask for the same keys.
    pub(crate) owner: Option<Owner>,
    /// True when the object was configured before.
    pub(crate) existed: bool,
    /// Keys that it asked for before.
    pub(crate) before: ObjectKeys,
    /// Values that it asks for from now on.
    pub(crate) values: ObjectValues,
    /// Its content, unless it is removed, or not in force because a leaf is missing.
    pub(crate) entry: Option<Arc<Branch<Provenance>>>,
}

impl EntryChange {
    /// Keys that it gives up, then the values that it asks for.
    pub(crate) fn differences(&self) -> impl Iterator<Item = (&Key, Option<&SharedValue>)> {
        let stays = |key: &Key| self.values.iter().any(|(other, _)| other == key);
        let removed = self.before.iter().filter(move |key| !stays(key)).map(|key| (key, None));
        removed.chain(self.values.iter().map(|(key, value)| (key, Some(value))))
    }

    /// The changes that the engine is asked for.
    pub(crate) fn intent(&self) -> impl Iterator<Item = IntentChange> {
        self.differences().map(|(key, value)| IntentChange {
            key: key.clone(),
            owner: self.owner.clone(),
            value: value.cloned(),
        })
    }
}

/// All differences, each with the path of its entry.
pub(crate) fn located_differences(
    changes: &[EntryChange],
) -> impl Iterator<Item = (&InstancePath, &Key, Option<&SharedValue>)> {
    changes.iter().flat_map(|it| it.differences().map(|(key, value)| (&it.path, key, value)))
}

/// Credentials that differ, which no layer holds.
#[derive(Debug, Default)]
pub(crate) struct CredentialValues {
    pub(crate) values: Values,
    /// The states of credentialz between which they differ.
    pub(crate) states: Option<[Arc<Credentials>; 2]>,
    /// The credentials of credentialz after that.
    pub(crate) credentials: Option<Arc<Credentials>>,
}

/// True when an object asks for the same as before.
fn are_same(before: &ObjectValues, after: &ObjectValues) -> bool {
    let same = |((key, value), (other, new)): (&(Key, SharedValue), &(Key, SharedValue))| {
        key == other && value.same(&**new)
    };
    before.len() == after.len() && before.iter().zip(after).all(same)
}

/// Instances that a change has walked and that are not ready.
fn unready(old: &Configuration, new: &Configuration) -> BTreeSet<ServiceTag> {
    let walked = Book::differences(&old.layers().book, &new.layers().book);
    let unready = walked.filter(|(.., plan)| plan.is_some_and(|plan| !plan.is_ready()));
    unready.map(|(tag, ..)| tag.clone()).collect()
}

impl Examiner {
    pub(crate) fn new(
        models: Arc<Models>,
        profiles: Option<Arc<dyn Profiles>>,
        settings_check: Option<Arc<dyn SettingsCheck>>,
    ) -> Result<Self, ModelError> {
        let mut registry = Registry::new(&models.native)?;
        if let Some(profiles) = profiles {
            registry = registry.with_profiles(profiles);
        }
        Ok(Self { settings_check, models, registry: Arc::new(registry) })
    }

    /// All entries of a configuration, as changes of an empty one. An object that cannot be made is logged and left out.
    pub(crate) fn first_changes(&self, configuration: &Configuration) -> Vec<EntryChange> {
        let changed = self.with_owners(all_objects(configuration));
        let changes = parallel::map(changed, |(change, owner)| {
            let path = change.path;
            let branch = change.new?;
            let values = self.registry.values_in(configuration.effective(), &path, &branch);
            // An earlier version has accepted it. The rest of the box must come up nevertheless.
            let refused = |error: &ObjectError| {
                tracing::error!(path = %self.display(&error.path, Origin::OpenConfig), error = %ErrorChain(error), "stored configuration is not carried out");
            };
            let values = values.inspect_err(refused).ok()?;
            let before = ObjectKeys::new();
            Some(EntryChange { path, owner, existed: false, before, values, entry: Some(branch) })
        });
        changes.into_iter().flatten().collect()
    }

    /// Links that differ between two configurations. The kernel may have either of them: those of `new`, with the attributes
    /// of `old` that they leave alone. The kernel keeps attributes that are open for these values alone.
    pub(crate) fn links_of_either(
        &self,
        old: &Configuration,
        new: &Configuration,
    ) -> Vec<(Key, SharedValue)> {
        let links = |[from, to]: [&Configuration; 2]| {
            let changes = self.entry_changes(from, to, true).unwrap_or_default();
            let values = changes.into_iter().flat_map(|change| change.values);
            values.filter(|(key, _)| key.kind() == kinds::LINK)
        };
        let before: BTreeMap<Key, SharedValue> = links([new, old]).collect();
        let of_either = |(key, link): (Key, SharedValue)| {
            let other = before.get(&key).and_then(|it| it.as_any().downcast_ref::<Link>());
            let own = link.as_any().downcast_ref::<Link>();
            let both = own.zip(other).map(|(own, other)| own.or_attributes_of(other));
            let link = both.map_or(link, |both| Arc::new(both));
            (key, link)
        };
        links([old, new]).map(of_either).collect()
    }

    /// Objects that differ, and those around them whose values differ by it.
    fn changed_objects(&self, old: &Configuration, new: &Configuration) -> Vec<ObjectChange> {
        let mut changed = changed_objects(old, new);
        let came_or_went = changed.iter().filter(|it| it.old.is_some() != it.new.is_some());
        let mut around: BTreeSet<InstancePath> =
            came_or_went.filter_map(|it| self.registry.object_around(&it.path)).collect();
        for change in &changed {
            around.extend(self.registry.objects_below(new.effective(), &change.path));
        }
        for change in &changed {
            around.remove(&change.path);
        }
        for path in around {
            let [before, after] = [old, new].map(|it| it.effective().branch(&path).cloned());
            let Some((before, after)) = before.zip(after) else { continue };
            let values = |of: &Configuration, branch| {
                self.registry.values_in(of.effective(), &path, branch).unwrap_or_default()
            };
            if !are_same(&values(old, &before), &values(new, &after)) {
                let object = path.last().map(|step| step.node);
                changed.extend(object.map(|object| ObjectChange {
                    object,
                    path: path.clone(),
                    old: Some(before),
                    new: Some(after),
                }));
            }
        }
        changed
    }

    /// Changed objects, each with the owner of its values.
    fn with_owners(&self, changed: Vec<ObjectChange>) -> Vec<(ObjectChange, Option<Owner>)> {
        let owners = self.registry.owners(changed.iter().map(|change| &change.path));
        changed.into_iter().zip(owners).collect()
    }

    /// Lists the entries and rows that differ after a change; for a dry run, also the differences that clients see.
    /// `applied` is the configuration after it, with what it wrote and read.
    pub(crate) fn examine(
        &self,
        old: &Configuration,
        (configuration, mut footprint): (Configuration, Footprint),
        relations: &Relations,
        intent: Box<Intent>,
        is_dry_run: bool,
    ) -> Result<Candidate, CommitError> {
        let configuration = configuration.with_surroundings(Surroundings::default());
        // Values that were accepted earlier come back as they were.
        let check = self.settings_check.as_ref().filter(|_| !intent.is_admitted());
        if let Some((path, reason)) = check.and_then(|it| it.refusal(old, &configuration)) {
            let path = self.display(&path, Origin::Native);
            return Err(CommitError::Object { path, reason: excerpt(&reason) });
        }
        let cancel = intent.cancel();
        let (changes, (rows, difference)) = parallel::both(
            configuration.work().entries > parallel::FEW,
            || self.entry_changes_until(&cancel, old, &configuration, intent.is_admitted()),
            || {
                let models = configuration.models();
                let rows = layer_rows_diff(models, old.layers(), configuration.layers());
                let is_of_layers = rows.iter().any(|row| is_configuration_row(&row.key));
                let difference = (is_of_layers && !is_dry_run)
                    .then(|| Box::new(LayerDifference::of(old, &configuration)));
                (rows, difference)
            },
        );
        let changes = changes.ok_or(CommitError::Abandoned)?;
        let changes = changes.map_err(|error| self.object_error(&error, intent.origin()))?;
        let rows =
            rows.into_iter().map(holdfast_store::Change::from).chain(intent.rows()).collect();
        let differences = if is_dry_run {
            differences(configuration.models(), old, &configuration)
        } else {
            BoundedList::default()
        };
        let services = service_preview::changes(old, &configuration, is_dry_run);
        // Values that were accepted earlier come back as they were.
        let unready = match intent.is_admitted() {
            true => BTreeSet::new(),
            false => unready(old, &configuration),
        };
        let packages = old.package_changes(&configuration);
        // Whether a type is used by others depends on all of its instances.
        if !packages.is_empty() {
            footprint = Footprint::everything();
        }
        let touched = configuration.touched_instances(old);
        let credentials = CredentialValues::default();
        footprint.add_entries(relations.entries_beside(located_differences(&changes)));
        // Two changes that each leave an address to a link may leave none together.
        let around = changes.iter().filter_map(|it| self.registry.object_around(&it.path));
        footprint.add_entries(around.collect::<BTreeSet<_>>());
        // Another change may set what the values of this one follow from.
        let above = changes.iter().filter_map(|it| self.registry.leaf_above(&it.path));
        footprint.add_read(above.collect::<BTreeSet<_>>());
        let footprint = Arc::new(footprint);
        Ok(Candidate {
            intent,
            footprint,
            configuration,
            changes,
            rows,
            credentials,
            differences,
            services,
            unready,
            packages,
            touched,
            difference,
        })
    }

    /// Entries that differ; `None` if the request was cancelled meanwhile.
    fn entry_changes_until(
        &self,
        cancel: &CancelToken,
        old: &Configuration,
        new: &Configuration,
        admitted: bool,
    ) -> Option<Result<Vec<EntryChange>, ObjectError>> {
        let changed = self.with_owners(self.changed_objects(old, new));
        let changed = parallel::map(changed, |(change, owner)| {
            (!cancel.is_cancelled()).then(|| self.entry_change(change, owner, new, admitted))
        });
        changed.into_iter().collect()
    }

    /// The entries that differ. With `admitted`, the values of one that cannot be made any more are left out instead of
    /// refused.
    pub(crate) fn entry_changes(
        &self,
        old: &Configuration,
        new: &Configuration,
        admitted: bool,
    ) -> Result<Vec<EntryChange>, ObjectError> {
        let changed = self.entry_changes_until(&CancelToken::default(), old, new, admitted);
        changed.unwrap_or_else(|| Ok(Vec::new())) // this token is never cancelled
    }

    fn entry_change(
        &self,
        change: ObjectChange,
        owner: Option<Owner>,
        configuration: &Configuration,
        admitted: bool,
    ) -> Result<EntryChange, ObjectError> {
        let ObjectChange { path, old, new, .. } = change;
        let before = match &old {
            Some(branch) => self.registry.keys(&path, branch)?,
            None => ObjectKeys::new(),
        };
        let tree = configuration.effective();
        let converted = new.map(|branch| (self.registry.values_in(tree, &path, &branch), branch));
        let (values, entry) = match converted {
            None => (ObjectValues::new(), None),
            Some((Ok(values), branch)) => (values, Some(branch)),
            // Another origin has the missing leaf, or may supply it later: the object waits, and the request is accepted.
            Some((Err(error), _)) if error.incomplete || admitted => (ObjectValues::new(), None),
            Some((Err(error), _)) => return Err(error),
        };
        if !admitted
            && entry.is_some()
            && let Some(link) = self.registry.link_around(&path)
            && let Some(link) = configuration.effective().branch(&link)
        {
            self.registry.admit_on_link(&path, link)?;
        }
        Ok(EntryChange { path, owner, existed: old.is_some(), before, values, entry })
    }

    /// Text of changes of objects without values, such as users, and of leaves that go into no value.
    pub(crate) fn beside(&self, changes: &[EntryChange]) -> String {
        let is_beside = |change: &&EntryChange| {
            change.values.is_empty() || self.registry.has_configured_state(&change.path)
        };
        let text = |change: &EntryChange| {
            let native = change.path.to_path(&self.models.native);
            let children = change.entry.iter().flat_map(|entry| entry.children());
            let leaf = |(node, child): &(_, Child<_>)| match child {
                Child::Leaf(leaf) => Some(format!(" {node:?} {:?}", leaf.value)),
                Child::Container(_) | Child::List(_) => None,
            };
            format!("{native}{};", children.filter_map(leaf).collect::<String>())
        };
        changes.iter().filter(is_beside).map(text).collect()
    }

    /// Error for an object that cannot be made, with its path in the model of the request.
    pub(crate) fn object_error(&self, error: &ObjectError, origin: Origin) -> CommitError {
        let path = self.display(&error.path, origin);
        let reason = excerpt(&error.reason);
        CommitError::Object { path, reason }
    }

    /// Error for a plan that cannot be made. For two values that exclude one another, it names the entry of one of
    /// them.
    pub(crate) fn plan_error(
        &self,
        error: &PlanError,
        engine: &Engine,
        changes: &[EntryChange],
        origin: Origin,
    ) -> CommitError {
        let refused = CommitError::planning(error);
        let PlanError::Conflict { key, .. } = error else { return refused };
        // A value is in conflict itself, or by one of its parts.
        let is_of = |(of, value): &(Key, SharedValue)| {
            let descriptor = engine.registry().descriptor(of.kind());
            let parts = descriptor.map(|it| it.parts(&**value)).unwrap_or_default();
            of == key || parts.iter().any(|(part, _)| part == key)
        };
        let brings = |change: &&EntryChange| change.values.iter().any(is_of);
        match changes.iter().find(brings) {
            Some(change) => {
                let path = self.display(&change.path, origin);
                CommitError::Object { path, reason: excerpt(error) }
            }
            None => refused,
        }
    }

    /// A native path, shortened for messages; for an OpenConfig request, its counterpart in that model if there is one.
    pub(crate) fn display(&self, native: &InstancePath, origin: Origin) -> String {
        let models = &self.models;
        match models.map.up_path(native).first().filter(|_| origin == Origin::OpenConfig) {
            Some(path) => excerpt(&path.to_path(models.schema(Origin::OpenConfig))),
            None => excerpt(&native.to_path(models.schema(Origin::Native))),
        }
    }
}
