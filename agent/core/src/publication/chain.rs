//! The chain of revisions: the newest one, which readers follow.
//!
//! Revisions are added in one place, under a short lock. The core works out the next one beside it; when others have
//! added some meanwhile, their differences are kept, since all of them descend from the one that the core began with:
//!
//! ```text
//!  base ---------------------------- built by the core ----------+
//!    |                                                           | laid on top
//!    +--> amended --> amended (newest so far) -------------------+--> newest
//! ```
//!
//! Numbers are given when a revision is added. The number of the revision that shows a commit is reserved when the commit
//! is in force, because its answer names it; revisions that come between have smaller ones. So no reader sees a number
//! go back, and one that sees the number of an answer, or a larger one, sees the change.
//!
//! List entries that the core takes away are gone, also where others have changed leaves in them meanwhile: of such an
//! entry these leaves are left. Leaves that others show of the states of service plans go with these; one that comes when
//! its state is gone is not shown.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_base::now_ns;
use holdfast_config::schema::Origin;
use holdfast_config::{InstancePath, Map, Tree, Value};
use holdfast_telemetry::{ConfigOrState, Draft, LeafVersion, Mutation, Revision};
use imbl::OrdMap;
use tokio::sync::watch;

use super::service_plans::status_beside;
use super::state::{in_both, remove_state, show_leaf};
use crate::ServiceState;

/// Numbers kept free for revisions between the answer to a large commit and the revision that shows it: more than there
/// are events in that second. Further ones share the last number, and subscribers see them with the commit.
const REVISIONS_BETWEEN: u64 = 1 << 16;

/// The newest revision, and what others than the core have shown in it. Clones of its `Arc` share it.
#[derive(Debug)]
pub(crate) struct RevisionChain {
    amended: Mutex<Amendments>,
    revision_tx: watch::Sender<Arc<Revision>>,
}

#[derive(Clone, Debug, Default)]
struct Amendments {
    /// State leaves of services, by native path; no key of the engine has them.
    services: OrdMap<InstancePath, Value>,
    /// Paths of those that have changed since the last commit was shown.
    recent: BTreeSet<InstancePath>,
    /// Number of the revision that will show a commit in force.
    reserved: Option<u64>,
}

impl Amendments {
    /// Number of the revision after this one.
    fn number_after(&self, newest: &Revision) -> u64 {
        let next = newest.number + 1;
        self.reserved.map_or(next, |reserved| next.min(reserved - 1))
    }

    /// Shows one leaf, or takes it away.
    fn amend(&mut self, draft: &mut Draft<'_>, path: InstancePath, value: Option<Value>) {
        let models = draft.models();
        let map = &models.map;
        match value {
            Some(value) => {
                in_both(draft, false, |tree| show_leaf(tree, map, &path, &value));
                self.services.insert(path.clone(), value);
            }
            None => {
                in_both(draft, false, |tree| remove_state(tree, map, &path));
                self.services.remove(&path);
            }
        }
        self.recent.insert(path);
    }

    /// The revision `next` of a commit, which was made from `base`, with what was amended since laid on it.
    fn laid_on(&mut self, [base, newest]: [&Revision; 2], next: Revision) -> Revision {
        let merged = rebased(base, newest, next.clone());
        if base.native.is_same(&newest.native) && base.openconfig.is_same(&newest.openconfig) {
            return merged;
        }
        let models = Arc::clone(&merged.models);
        for path in self.recent.iter().filter(|path| lacks_state(&next, path)) {
            self.services.remove(path);
        }
        let mut draft = newest.resume(merged).after_removals();
        for path in &self.recent {
            in_both(&mut draft, false, |tree| {
                let trees = [base, &next].map(|revision| revision.tree(tree.origin()));
                let shown = shown_as(tree.origin(), &models.map, path);
                shown.iter().filter_map(|leaf| lost_entry(trees, leaf)).for_each(|entry| {
                    tree.apply(&entry, Mutation::Gone(ConfigOrState::Both));
                });
            });
        }
        for (path, value) in self.recent.iter().filter_map(|path| self.services.get_key_value(path))
        {
            in_both(&mut draft, false, |tree| show_leaf(tree, &models.map, path, value));
        }
        draft.publish()
    }
}

/// Paths by which a tree has a native leaf.
fn shown_as(origin: Origin, map: &Map, leaf: &InstancePath) -> Vec<InstancePath> {
    match origin {
        Origin::Native => vec![leaf.clone()],
        Origin::OpenConfig => map.up_path(leaf),
    }
}

/// The outermost list entry on a path that the first tree has, and the second one has not.
fn lost_entry(
    [before, after]: [&Tree<LeafVersion>; 2],
    leaf: &InstancePath,
) -> Option<InstancePath> {
    let entries = (1..leaf.0.len()).filter(|at| leaf.0[at - 1].keys.is_some());
    let mut entries = entries.map(|at| InstancePath(leaf.0[..at].to_vec()));
    entries.find(|entry| !after.contains(entry)).filter(|entry| before.contains(entry))
}

/// True for a leaf of a state of a service plan that a revision does not have.
fn lacks_state(revision: &Revision, leaf: &InstancePath) -> bool {
    let status = status_beside(&revision.models.native, leaf);
    status.is_some_and(|status| !revision.native.contains(&status))
}

impl RevisionChain {
    pub(super) fn new(first: Revision) -> Self {
        let (revision_tx, _) = watch::channel(Arc::new(first));
        Self { amended: Mutex::default(), revision_tx }
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Revision>> {
        self.revision_tx.subscribe()
    }

    pub(crate) fn newest(&self) -> Arc<Revision> {
        Arc::clone(&self.revision_tx.borrow())
    }

    /// State leaves of services that are shown.
    pub(super) fn services(&self) -> OrdMap<InstancePath, Value> {
        self.lock().services.clone()
    }

    /// Reserves the number of the revision that will show a commit; with `is_large`, others may come before it.
    pub(crate) fn reserve(&self, is_large: bool) -> u64 {
        let mut amended = self.lock();
        let between = if is_large { REVISIONS_BETWEEN } else { 0 };
        let number = self.revision_tx.borrow().number + 1 + between;
        amended.reserved = Some(number);
        number
    }

    /// Shows state leaves of services, from any thread: `None` takes a leaf away. Nothing happens if none differs.
    pub(crate) fn amend(&self, leaves: ServiceState) {
        let mut amended = self.lock();
        let newest = self.newest();
        let differs = |(path, value): &(InstancePath, Option<Value>)| {
            amended.services.get(path) != value.as_ref()
                && (value.is_none() || !lacks_state(&newest, path))
        };
        let leaves: ServiceState = leaves.into_iter().filter(differs).collect();
        if leaves.is_empty() {
            return;
        }
        let number = amended.number_after(&newest);
        let next = Revision { number, time_ns: now_ns(), ..(*newest).clone() };
        let mut draft = newest.resume(next);
        for (path, value) in leaves {
            amended.amend(&mut draft, path, value);
        }
        self.revision_tx.send_replace(Arc::new(draft.publish()));
    }

    /// Adds a revision of state, which was made from `base`.
    pub(super) fn advance(&self, base: &Revision, next: Revision) -> Arc<Revision> {
        let amended = self.lock();
        let newest = self.newest();
        let number = amended.number_after(&newest);
        self.add(rebased(base, &newest, Revision { number, ..next }))
    }

    /// The newest revision, and that of a commit, which was made from `base`, with what was added since laid on it. The chain
    /// goes on meanwhile.
    pub(super) fn rebase(&self, base: &Revision, next: Revision) -> (Arc<Revision>, Revision) {
        let (mut amended, newest) = {
            let amended = self.lock();
            (amended.clone(), self.newest())
        };
        let next = amended.laid_on([base, &newest], next);
        (newest, next)
    }

    /// Adds the revision that shows the commit whose number is reserved.
    pub(super) fn advance_to_boundary(&self, base: &Revision, next: Revision) -> Arc<Revision> {
        let mut amended = self.lock();
        let reserved = amended.reserved.take();
        let newest = self.newest();
        let number = reserved.unwrap_or_else(|| amended.number_after(&newest));
        let next = amended.laid_on([base, &newest], Revision { number, ..next });
        amended.recent.clear();
        self.add(next)
    }

    /// Makes a revision the newest one. Called under the lock.
    fn add(&self, next: Revision) -> Arc<Revision> {
        let added = Arc::new(next);
        self.revision_tx.send_replace(Arc::clone(&added));
        added
    }

    fn lock(&self) -> MutexGuard<'_, Amendments> {
        self.amended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The revision `next`, which was made from `base`, with the differences between `base` and `newest` laid on it. The cost
/// is in proportion to these.
fn rebased(base: &Revision, newest: &Revision, next: Revision) -> Revision {
    let tree = |base: &Tree<_>, newest: &Tree<_>, next: Tree<_>| {
        if base.is_same(newest) { next } else { Tree::merged(base, newest, &next).0 }
    };
    Revision {
        openconfig: tree(&base.openconfig, &newest.openconfig, next.openconfig),
        native: tree(&base.native, &newest.native, next.native),
        ..next
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::LazyLock;

    use holdfast_config::Models;
    use holdfast_telemetry::{DerivedLists, LeafVersion};
    use proptest::prelude::*;

    use super::*;

    static MODELS: LazyLock<Arc<Models>> = LazyLock::new(|| Arc::new(Models::load().unwrap()));

    /// State leaves: those of services, which any thread amends, and those that the core shows with a commit.
    const LEAVES: [&str; 4] = [
        "ssh-server/host-key-version",
        "ssh-server/host-certificate-version",
        "glome/key-version",
        "ssh-server/trusted-user-ca-keys-version",
    ];
    /// Number of leaves of services.
    const AMENDED: usize = 2;

    fn path(leaf: usize) -> InstancePath {
        MODELS.native.resolve_write(&format!("/system/{}", LEAVES[leaf]).parse().unwrap()).unwrap()
    }

    fn text(value: u8) -> Value {
        Value::Str(value.to_string().into())
    }

    /// A revision made from another one, at a time that no other has.
    fn with_leaf(base: &Revision, time_ns: u64, leaf: usize, value: u8) -> Revision {
        let next = Revision { time_ns, ..base.clone() };
        let mut draft = base.resume(next);
        in_both(&mut draft, false, |tree| show_leaf(tree, &MODELS.map, &path(leaf), &text(value)));
        draft.publish()
    }

    #[test]
    fn an_entry_that_a_commit_takes_away_keeps_what_was_amended_meanwhile_alone() {
        let at = |text: &str| MODELS.native.resolve_write(&text.parse().unwrap()).unwrap();
        let entry = at("/interfaces/interface[name=eth1]");
        let [mtu, description] = ["mtu", "description"]
            .map(|leaf| at(&format!("/interfaces/interface[name=eth1]/{leaf}")));
        let chain = RevisionChain::new(Revision::new(Arc::clone(&MODELS), DerivedLists::default()));
        let amend = |text: &str| {
            chain.amend(vec![(description.clone(), Some(Value::Str(text.into())))]);
        };
        let first = chain.newest();
        let mut draft = first.draft(&MODELS, 1);
        in_both(&mut draft, false, |tree| show_leaf(tree, &MODELS.map, &mtu, &Value::Uint(1400)));
        chain.advance(&first, draft.publish());
        amend("before");
        let base = chain.newest();
        let number = chain.reserve(true);
        let mut draft = base.resume(Revision { time_ns: 7, ..(*base).clone() });
        in_both(&mut draft, false, |tree| {
            for path in shown_as(tree.origin(), &MODELS.map, &mtu) {
                let length = path.0.iter().rposition(|step| step.keys.is_some()).unwrap() + 1;
                let entry = InstancePath(path.0[..length].to_vec());
                tree.apply(&entry, Mutation::Gone(ConfigOrState::Both));
            }
        });
        let next = draft.publish();
        amend("while it is built");
        let (newest, next) = chain.rebase(&base, next);
        amend("while that is laid on it");
        let (newest, next) = chain.rebase(&newest, next);
        amend("before it is shown");
        let shown = chain.advance_to_boundary(&newest, next);
        assert_eq!(shown.number, number);
        assert!(shown.native.contains(&entry) && !shown.native.contains(&mtu));
        let left = shown.native.find_leaf(&description).map(|leaf| leaf.value.clone());
        assert_eq!(left, Some(Value::Str("before it is shown".into())));
        for path in shown_as(Origin::OpenConfig, &MODELS.map, &mtu) {
            assert!(!shown.openconfig.contains(&path), "{path:?}");
        }
    }

    #[derive(Clone, Debug)]
    enum Event {
        Amend(usize, Option<u8>),
        /// The core begins to build the revision of a commit.
        Build {
            is_large: bool,
            leaf: usize,
            value: u8,
        },
        /// The core shows state of its own beside the commit.
        Advance(u8),
        /// A thread lays what was shown meanwhile on the revision of the commit.
        Rebase,
        Complete,
    }

    fn event() -> impl Strategy<Value = Event> {
        let value = prop::option::weighted(0.8, 0..4_u8);
        prop_oneof![
            (0..AMENDED, value).prop_map(|(leaf, value)| Event::Amend(leaf, value)),
            (any::<bool>(), 0..4_u8).prop_map(|(is_large, value)| Event::Build {
                is_large,
                leaf: AMENDED,
                value
            }),
            (0..4_u8).prop_map(Event::Advance),
            Just(Event::Rebase),
            Just(Event::Complete),
        ]
    }

    /// Value and version of each leaf that a revision shows.
    fn leaf_versions(revision: &Revision) -> BTreeMap<usize, (Value, LeafVersion)> {
        let leaf =
            |leaf| revision.native.find_leaf(&path(leaf)).map(|it| (it.value.clone(), it.meta));
        (0..LEAVES.len()).filter_map(|it| Some((it, leaf(it)?))).collect()
    }

    proptest! {
        #[test]
        fn state_that_is_amended_while_a_commit_is_built_stays(events in prop::collection::vec(event(), 1..30)) {
            let chain = RevisionChain::new(Revision::new(Arc::clone(&MODELS), DerivedLists::default()));
            let mut watched = chain.watch();
            let mut building: Option<(Arc<Revision>, Revision, u64, usize, u8)> = None;
            let mut expected: BTreeMap<usize, Value> = BTreeMap::new();
            let (mut last, mut clock) = (chain.newest(), 0);
            for event in events {
                clock += 1;
                let mut is_boundary = None;
                match event {
                    Event::Amend(leaf, value) => {
                        chain.amend(vec![(path(leaf), value.map(text))]);
                        match value {
                            Some(value) => expected.insert(leaf, text(value)),
                            None => expected.remove(&leaf),
                        };
                    }
                    Event::Build { is_large, leaf, value } if building.is_none() => {
                        let (base, number) = (chain.newest(), chain.reserve(is_large));
                        let next = with_leaf(&base, clock, leaf, value);
                        building = Some((base, next, number, leaf, value));
                    }
                    Event::Build { .. } => {}
                    Event::Advance(value) => {
                        let base = chain.newest();
                        let next = with_leaf(&base, clock, LEAVES.len() - 1, value);
                        chain.advance(&base, next);
                        expected.insert(LEAVES.len() - 1, text(value));
                    }
                    Event::Rebase => {
                        building = building.map(|(base, next, number, leaf, value)| {
                            let (newest, next) = chain.rebase(&base, next);
                            (newest, next, number, leaf, value)
                        });
                    }
                    Event::Complete => {
                        let Some((base, next, number, leaf, value)) = building.take() else { continue };
                        let (newest, next) = chain.rebase(&base, next);
                        prop_assert!(newest.number < number, "no revision before has the number of the answer");
                        let added = chain.advance_to_boundary(&newest, next);
                        is_boundary = Some((number, leaf));
                        prop_assert_eq!(added.number, number);
                        expected.insert(leaf, text(value));
                    }
                }
                let now = chain.newest();
                prop_assert!(Arc::ptr_eq(&now, &watched.borrow_and_update()));
                prop_assert!(now.number >= last.number, "a number goes back");
                let (was, is) = (leaf_versions(&last), leaf_versions(&now));
                let values: BTreeMap<_, _> =
                    is.iter().map(|(leaf, (value, _))| (*leaf, value.clone())).collect();
                prop_assert_eq!(&values, &expected);
                // What this event has not changed keeps its time and its count.
                for (leaf, (value, version)) in &is {
                    if let Some((old, before)) = was.get(leaf)
                        && old == value
                        && is_boundary.is_none_or(|(_, shown)| shown != *leaf)
                    {
                        prop_assert_eq!(before, version);
                    }
                }
                last = now;
            }
        }
    }
}
