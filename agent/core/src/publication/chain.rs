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
//! its state is gone is not shown. Marks of entries ([`marks`](super::marks)) go with their entries, too, and come back with them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_base::now_ns;
use holdfast_config::schema::Origin;
use holdfast_config::{EffectiveStatus, InstancePath, Map, SharedPath, Tree, Value};
use holdfast_telemetry::{ConfigOrState, Draft, Mutation, Revision};
use imbl::OrdMap;
use tokio::sync::watch;

use super::marks::{Marks, TooManyMarks};
use super::service_plans::status_beside;
use super::state::{Others, in_both, remove_state, show_leaf};
use super::{ServiceState, marks};

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
    marks: Marks,
    /// Entries whose marks have changed since the core has begun to build what is not added yet, with the number of the
    /// revision that shows it.
    recent_marks: Vec<(u64, Vec<SharedPath>)>,
    /// Number of the revision that will show a commit in force.
    reserved: Option<u64>,
    /// The core builds a revision of state, which is not added yet.
    is_showing: bool,
}

impl Amendments {
    /// Notes marks that have changed, for revisions that the core builds meanwhile. Without such a revision, nobody needs them.
    fn note_marks(&mut self, number: u64, changed: Vec<SharedPath>) {
        if self.is_showing || self.reserved.is_some() {
            self.recent_marks.push((number, changed));
        }
    }

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
        let is_same =
            base.native.is_same(&newest.native) && base.openconfig.is_same(&newest.openconfig);
        if is_same && !self.has_marks_since(base) {
            return merged;
        }
        let models = Arc::clone(&merged.models);
        for path in self.recent.iter().filter(|path| lacks_state(&next, path)) {
            self.services.remove(path);
        }
        let mut draft = newest.resume(merged).after_removals();
        for path in &self.recent {
            in_both(&mut draft, false, |tree| {
                let origin = tree.origin();
                let revisions = [base, &next];
                let shown = shown_as(origin, &models.map, path);
                let lost = shown.iter().filter_map(|leaf| lost_entry(revisions, origin, leaf));
                lost.for_each(|entry| tree.apply(&entry, Mutation::Gone(ConfigOrState::Both)));
            });
        }
        self.lay_on([base, &next], &mut draft);
        draft.publish()
    }

    /// Marks that have changed since a revision, or with it.
    fn marks_since(&self, base: &Revision) -> impl Iterator<Item = &SharedPath> {
        let since = self.recent_marks.iter().filter(|(number, _)| *number >= base.number);
        since.flat_map(|(_, entries)| entries)
    }

    fn has_marks_since(&self, base: &Revision) -> bool {
        self.marks_since(base).next().is_some()
    }

    /// Brings the marks that have changed since `base` up to date, and shows what else was amended again: `draft` has `next`,
    /// which was made from it, with what was added meanwhile laid on it.
    fn lay_on(&self, [base, next]: [&Revision; 2], draft: &mut Draft<'_>) {
        let [_, tree] = draft.trees_mut();
        for marked in self.marks_since(base) {
            let entry = marked.to_path();
            match lost_entry([base, next], Origin::Native, &entry) {
                Some(lost) => tree.apply(&lost, Mutation::Gone(ConfigOrState::Both)),
                None => marks::show(tree, &entry, self.marks.get(marked)),
            }
        }
        let models = draft.models();
        for (path, value) in self.recent.iter().filter_map(|path| self.services.get_key_value(path))
        {
            in_both(draft, false, |tree| show_leaf(tree, &models.map, path, value));
        }
    }
}

/// Paths by which a tree has a native leaf.
fn shown_as(origin: Origin, map: &Map, leaf: &InstancePath) -> Vec<InstancePath> {
    match origin {
        Origin::Native => vec![leaf.clone()],
        Origin::OpenConfig => map.up_path(leaf),
    }
}

/// The outermost list entry on a path that the first revision has, and the second one has not.
fn lost_entry(
    [before, after]: [&Revision; 2],
    origin: Origin,
    path: &InstancePath,
) -> Option<InstancePath> {
    let entries = (1..=path.0.len()).filter(|at| path.0[at - 1].keys.is_some());
    let mut entries = entries.map(|at| InstancePath(path.0[..at].to_vec()));
    let lost = entries.find(|entry| !after.has_entry(origin, entry));
    lost.filter(|entry| before.has_entry(origin, entry))
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

    /// The newest revision, from which a revision of state is built. [`Self::advance`] adds that.
    pub(super) fn begin(&self) -> Arc<Revision> {
        let mut amended = self.lock();
        amended.is_showing = true;
        self.newest()
    }

    /// Marks of entries as they are now.
    pub(crate) fn marks(&self) -> Marks {
        self.lock().marks.clone()
    }

    /// State that others than the core show.
    pub(super) fn others(&self) -> Others {
        let amended = self.lock();
        Others { services: amended.services.clone(), marks: amended.marks.clone() }
    }

    /// Reserves the number of the revision that will show a commit; with `is_large`, others may come before it.
    pub(crate) fn reserve(&self, is_large: bool) -> u64 {
        let mut amended = self.lock();
        let between = if is_large { REVISIONS_BETWEEN } else { 0 };
        let number = self.revision_tx.borrow().number + 1 + between;
        amended.reserved = Some(number);
        number
    }

    /// Shows state leaves of services and marks of entries, from any thread, in one revision: `None` takes them away. Nothing
    /// happens if none differs. The number of marks that were one too many, and are not kept.
    pub(crate) fn amend(
        &self,
        leaves: ServiceState,
        marks: Vec<(SharedPath, Option<EffectiveStatus>)>,
    ) -> usize {
        let mut amended = self.lock();
        let newest = self.newest();
        let differs = |(path, value): &(InstancePath, Option<Value>)| {
            amended.services.get(path) != value.as_ref()
                && (value.is_none() || !lacks_state(&newest, path))
        };
        let leaves: ServiceState = leaves.into_iter().filter(differs).collect();
        let mut changed = Vec::new();
        let mut left_out = 0;
        for (entry, mark) in marks {
            match amended.marks.set(&entry, mark) {
                Ok(is_change) => changed.extend(is_change.then_some(entry)),
                Err(TooManyMarks) => left_out += 1,
            }
        }
        if leaves.is_empty() && changed.is_empty() {
            return left_out;
        }
        let number = amended.number_after(&newest);
        let next = Revision { number, time_ns: now_ns(), ..(*newest).clone() };
        let mut draft = newest.resume(next);
        let paths = changed.iter().map(|marked| (marked, marked.to_path()));
        let shown: Vec<(&SharedPath, InstancePath)> =
            paths.filter(|(_, entry)| newest.has_entry(Origin::Native, entry)).collect();
        if leaves.is_empty() && shown.is_empty() {
            amended.note_marks(number, changed);
            return left_out;
        }
        for (path, value) in leaves {
            amended.amend(&mut draft, path, value);
        }
        let [_, native] = draft.trees_mut();
        for (marked, entry) in &shown {
            marks::show(native, entry, amended.marks.get(marked));
        }
        drop(shown);
        amended.note_marks(number, changed);
        self.revision_tx.send_replace(Arc::new(draft.publish()));
        left_out
    }

    /// Adds a revision of state, which was made from `base` ([`Self::begin`]).
    pub(super) fn advance(&self, base: &Revision, next: Revision) -> Arc<Revision> {
        let mut amended = self.lock();
        let newest = self.newest();
        let number = amended.number_after(&newest);
        let mut merged = rebased(base, &newest, Revision { number, ..next.clone() });
        if amended.has_marks_since(base) {
            let mut draft = newest.resume(merged).after_removals();
            amended.lay_on([base, &next], &mut draft);
            merged = draft.publish();
        }
        amended.is_showing = false;
        if amended.reserved.is_none() {
            amended.recent_marks.clear(); // nothing else is being built
        }
        self.add(merged)
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
        amended.recent_marks.clear();
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

    use allocation_counter::measure;
    use holdfast_config::{LeafMark, Models};
    use holdfast_platform::objects::Registry;
    use holdfast_telemetry::{DerivedLists, LeafVersion, ViewEntry};
    use proptest::prelude::*;

    use super::super::derived::derived_lists;
    use super::super::state::clear;
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
            chain.amend(vec![(description.clone(), Some(Value::Str(text.into())))], Vec::new());
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
            let mut last = chain.newest();
            let mut clock = 0;
            for event in events {
                clock += 1;
                let mut is_boundary = None;
                match event {
                    Event::Amend(leaf, value) => {
                        chain.amend(vec![(path(leaf), value.map(text))], Vec::new());
                        match value {
                            Some(value) => expected.insert(leaf, text(value)),
                            None => expected.remove(&leaf),
                        };
                    }
                    Event::Build { is_large, leaf, value } if building.is_none() => {
                        let base = chain.newest();
                        let number = chain.reserve(is_large);
                        let next = with_leaf(&base, clock, leaf, value);
                        building = Some((base, next, number, leaf, value));
                    }
                    Event::Build { .. } => {}
                    Event::Advance(value) => {
                        let base = chain.begin();
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
                let was = leaf_versions(&last);
                let is = leaf_versions(&now);
                let values: BTreeMap<_, _> =
                    is.iter().map(|(leaf, (value, _))| (*leaf, value.clone())).collect();
                prop_assert_eq!(&values, &expected);
                // State that this event has not changed keeps its time and its count.
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

    /// Entries that are marked: routes, which are derived, and links, which are stored.
    const MARKED: [&str; 4] = [
        "/network-instances/network-instance[name=DEFAULT]/static[name=s]/route[prefix=10.0.0.0/8]",
        "/network-instances/network-instance[name=DEFAULT]/static[name=s]/route[prefix=11.0.0.0/8]",
        "/interfaces/interface[name=eth1]",
        "/interfaces/interface[name=eth2]",
    ];
    /// A leaf of state of each.
    const STATE: &str = "state/description";

    static REGISTRY: LazyLock<Registry> = LazyLock::new(|| Registry::new(&MODELS.native).unwrap());

    fn native(text: &str) -> InstancePath {
        MODELS.native.resolve_write(&text.parse().unwrap()).unwrap()
    }

    #[derive(Clone, Debug)]
    enum MarkEvent {
        EffectiveStatus(usize, Option<bool>),
        /// The core begins to build the revision of a commit, with entries that the commit configures or removes.
        Build {
            is_large: bool,
            changes: Vec<(usize, bool)>,
        },
        Rebase,
        Complete,
        /// The core shows or clears the state of an entry; another one is marked before the revision is added.
        State {
            entry: usize,
            is_there: bool,
            mark: Option<(usize, Option<bool>)>,
        },
    }

    fn mark_event() -> impl Strategy<Value = MarkEvent> {
        let entry = || 0..MARKED.len();
        let mark = || (entry(), prop::option::weighted(0.7, any::<bool>()));
        let changes = prop::collection::vec((entry(), any::<bool>()), 1..4);
        prop_oneof![
            3 => mark().prop_map(|(entry, mark)| MarkEvent::EffectiveStatus(entry, mark)),
            2 => (any::<bool>(), changes).prop_map(|(is_large, changes)| MarkEvent::Build { is_large, changes }),
            1 => Just(MarkEvent::Rebase),
            2 => Just(MarkEvent::Complete),
            2 => (entry(), any::<bool>(), prop::option::of(mark()))
                .prop_map(|(entry, is_there, mark)| MarkEvent::State { entry, is_there, mark }),
        ]
    }

    fn tree_of(configured: &BTreeSet<usize>, before: &Tree<LeafMark>) -> Tree<LeafMark> {
        let mut tree = Tree::new();
        for entry in configured {
            let path = native(MARKED[*entry]);
            tree.branch_mut(&MODELS.native, &path.0, &LeafMark::Explicit).given = true;
        }
        tree.sharing(before)
    }

    /// Marks that a revision shows, by entry, and entries that it has.
    fn shown_marks(revision: &Revision) -> [BTreeMap<usize, String>; 2] {
        let mark = |entry: usize| {
            let leaf = native(&format!("{}/state/effective-status", MARKED[entry]));
            Some((entry, format!("{:?}", revision.native.find_leaf(&leaf)?.value)))
        };
        let there = |entry: usize| revision.native.contains(&native(MARKED[entry]));
        let all = || 0..MARKED.len();
        [
            all().filter_map(mark).collect(),
            all().filter(|it| there(*it)).map(|it| (it, String::new())).collect(),
        ]
    }

    fn mark_of(is_down: bool) -> EffectiveStatus {
        if is_down { EffectiveStatus::Down } else { EffectiveStatus::Degraded }
    }

    proptest! {
        #[test]
        fn marks_are_those_of_the_entries_that_there_are(events in prop::collection::vec(mark_event(), 1..40)) {
            let lists = derived_lists(&REGISTRY, &MODELS);
            let chain = RevisionChain::new(Revision::new(Arc::clone(&MODELS), lists));
            let mut marks: BTreeMap<usize, EffectiveStatus> = BTreeMap::new();
            let mut configured: BTreeSet<usize> = BTreeSet::new();
            let mut stated: BTreeSet<usize> = BTreeSet::new();
            let mut shown_tree: Tree<LeafMark> = Tree::new();
            let mut building: Option<(Arc<Revision>, Revision, BTreeSet<usize>)> = None;
            let mut amend = |entry: usize, mark: Option<bool>, chain: &RevisionChain| {
                let mark = mark.map(mark_of);
                chain.amend(Vec::new(), vec![(native(MARKED[entry]).into(), mark)]);
                match mark {
                    Some(mark) => marks.insert(entry, mark),
                    None => marks.remove(&entry),
                };
                marks.clone()
            };
            let mut kept: BTreeMap<usize, EffectiveStatus> = BTreeMap::new();
            let mut clock = 0;
            for event in events {
                clock += 1;
                match event {
                    MarkEvent::EffectiveStatus(entry, mark) => kept = amend(entry, mark, &chain),
                    MarkEvent::Build { is_large, changes } if building.is_none() => {
                        let mut next_configured = configured.clone();
                        for (entry, is_there) in changes {
                            if is_there {
                                next_configured.insert(entry);
                            } else {
                                next_configured.remove(&entry);
                            }
                        }
                        chain.reserve(is_large);
                        let base = chain.newest();
                        let others = chain.others();
                        let tree = tree_of(&next_configured, &shown_tree);
                        let mut draft = base.resume(Revision { time_ns: clock, ..(*base).clone() });
                        let [_, native_tree] = draft.trees_mut();
                        native_tree.follow([&shown_tree, &tree], None);
                        for entry in next_configured.difference(&configured) {
                            others.marks.show_again(native_tree, &native(MARKED[*entry]));
                        }
                        shown_tree = tree;
                        let next = draft.publish();
                        building = Some((base, next, next_configured));
                    }
                    MarkEvent::Build { .. } => {}
                    MarkEvent::Rebase => {
                        building = building.map(|(base, next, configured)| {
                            let (newest, next) = chain.rebase(&base, next);
                            (newest, next, configured)
                        });
                    }
                    MarkEvent::Complete => {
                        let Some((base, next, now)) = building.take() else { continue };
                        let (newest, next) = chain.rebase(&base, next);
                        chain.advance_to_boundary(&newest, next);
                        configured = now;
                    }
                    // State of what a commit builds is shown after it.
                    MarkEvent::State { entry, is_there, mark } if building.is_none() => {
                        let base = chain.begin();
                        let mut draft = base.draft(&MODELS, clock);
                        let others = chain.others();
                        let path = native(MARKED[entry]);
                        let [_, tree] = draft.trees_mut();
                        if is_there {
                            let leaf = native(&format!("{}/{}", MARKED[entry], STATE));
                            show_leaf(tree, &MODELS.map, &leaf, &text(1));
                            others.marks.show_again(tree, &path);
                            stated.insert(entry);
                        } else {
                            clear(tree, &MODELS.map, &others, &path);
                            stated.remove(&entry);
                        }
                        let next = draft.publish();
                        if let Some((entry, mark)) = mark {
                            kept = amend(entry, mark, &chain);
                        }
                        chain.advance(&base, next);
                    }
                    MarkEvent::State { .. } => {}
                }
                let there: BTreeSet<usize> = configured.union(&stated).copied().collect();
                let [shown, entries] = shown_marks(&chain.newest());
                let entries: BTreeSet<usize> = entries.into_keys().collect();
                prop_assert_eq!(&entries, &there);
                let marked = kept.iter().filter(|(entry, _)| there.contains(entry));
                let expected: BTreeMap<usize, String> =
                    marked.map(|(entry, mark)| (*entry, format!("{:?}", Value::Enum(mark.name().into())))).collect();
                prop_assert_eq!(shown, expected);
            }
        }
    }

    #[test]
    fn marks_of_many_routes_take_some_hundred_octets_each() {
        const ROUTES: usize = 10_000;
        /// Objects of an amendment.
        const PORTION: usize = 1024;
        /// Bytes of all marks, the target of L17 in `agent/faults/FAULTS.md`.
        const MOST: i64 = 2_000_000;
        let route = |number: usize| {
            let high = number / 256;
            let low = number % 256;
            native(&MARKED[0].replace("10.0.0.0/8", &format!("10.{high}.{low}.0/24")))
        };
        let chain = RevisionChain::new(Revision::new(
            Arc::clone(&MODELS),
            derived_lists(&REGISTRY, &MODELS),
        ));
        let mut tree: Tree<LeafMark> = Tree::new();
        for number in 0..ROUTES {
            let path = route(number);
            tree.branch_mut(&MODELS.native, &path.0, &LeafMark::Explicit).given = true;
        }
        let first = chain.newest();
        let mut draft = first.draft(&MODELS, 1);
        draft.apply_diff(Origin::Native, &Tree::new(), &tree);
        chain.advance(&first, draft.publish());
        drop(first);
        let portions: Vec<Vec<(SharedPath, Option<EffectiveStatus>)>> = (0..ROUTES
            .div_ceil(PORTION))
            .map(|portion| {
                let numbers = portion * PORTION..ROUTES.min((portion + 1) * PORTION);
                numbers.map(|number| (route(number).into(), Some(EffectiveStatus::Down))).collect()
            })
            .collect();
        let info = measure(|| {
            for portion in &portions {
                chain.amend(Vec::new(), portion.clone());
            }
        });
        assert!(info.bytes_current < MOST, "{} bytes", info.bytes_current);
        assert!(chain.lock().recent_marks.is_empty(), "nothing is built that would need them");
        let next = chain.begin();
        chain.amend(Vec::new(), vec![(route(7).into(), Some(EffectiveStatus::Degraded))]);
        assert_eq!(chain.lock().recent_marks.len(), 1, "they are kept while something is built");
        let mut draft = next.draft(&MODELS, 2);
        draft.annotate(None);
        let next = chain.advance(&next, draft.publish());
        assert!(chain.lock().recent_marks.is_empty());
        let path = route(7);
        let list = next.native.find_branch(&path.0[..path.0.len() - 1]).unwrap();
        let list = list.list(path.last().unwrap().node).unwrap();
        let is_derived = |entry: &ViewEntry| matches!(entry, ViewEntry::Derived(_));
        assert_eq!(list.iter().filter(|(_, entry)| is_derived(entry)).count(), ROUTES);
    }
}
