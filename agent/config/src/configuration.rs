//! One immutable version of the configuration: all layers, and their union.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::claims::{Claims, ServiceTag};
use crate::growth::Growth;
use crate::images::{Images, Provenance};
use crate::instance::InstancePath;
use crate::layer::{LayerKey, Layers, LeafMark, Namespace, Owner};
use crate::limits::SERVICE_ACTIONS;
use crate::models::Models;
use crate::progress::CancelToken;
use crate::schema::Origin;
use crate::services::{
    Book, Ground, NeededCalls, Read, Reads, Services, Surroundings, Unanswered, WalkOutcome,
    WalkRequest,
};
use crate::tree::Tree;
use crate::union::{Problem, WorkCount, unite};
use crate::user_keys;

/// The layers with their union. A clone shares all memory.
#[derive(Clone, Debug)]
pub struct Configuration {
    models: Arc<Models>,
    layers: Layers,
    images: Images,
    /// Union of all layers but those of services; the same memory as `images` without claims.
    ground: Images,
    /// Types of services, which walk the instances that differ; `None` on a box without any.
    services: Option<Arc<dyn Services>>,
    /// State that walks see, for the time of an examination.
    surroundings: Surroundings,
    /// Instances that were walked for this version, with what they read.
    walks: Arc<BTreeMap<ServiceTag, Reads>>,
    /// Factory configuration, the base of union_replace. All of it is marked [`LeafMark::Factory`].
    factory: Tree<LeafMark>,
    /// Some leaf of client native may stem from the factory. Once true it stays true.
    has_factory: bool,
    /// Number of list entries in all layers but the lease and the fence.
    entries: usize,
    work: WorkCount,
}

impl Configuration {
    /// Computes the union from scratch, as after a restart. Contradictions between layers, which no request can
    /// cause, are resolved by the order of [`LayerKey::ALL`].
    pub fn new(models: Arc<Models>, layers: Layers) -> Self {
        let nothing = (&Layers::new(), &Images::default());
        let (images, _, work) = unite(&models, nothing, &layers, &CancelToken::default());
        let ground = ground_of(&models, nothing, &layers, &images);
        let entries = entries_after(0, nothing.0, &layers);
        let mut has_factory = false;
        layers.tree(LayerKey::CLIENT_NATIVE).walk(&mut |_, leaf| {
            has_factory |= leaf.meta == LeafMark::Factory;
        });
        Self {
            models,
            layers,
            images,
            ground,
            services: None,
            surroundings: Surroundings::default(),
            walks: Arc::default(),
            factory: Tree::new(),
            has_factory,
            entries,
            work,
        }
    }

    /// Sets the factory configuration. The layers stay as they are: the first start decides how much of it they
    /// contain.
    #[must_use]
    pub fn with_factory(self, factory: Tree<LeafMark>) -> Self {
        let has_factory = self.has_factory || !factory.is_empty();
        Self { factory, has_factory, ..self }
    }

    /// Computes the configuration with a service's layers switched on or off. This cannot fail, because the pair
    /// of client layers and the pair of boot layers are consistent by themselves at any rank.
    #[must_use]
    pub fn switched(&self, service: Namespace, on: bool) -> Self {
        let mut layers = self.layers.clone();
        layers.switch(service, on);
        self.advanced(layers, self.entries, &CancelToken::default()).0
    }

    /// Computes the configuration with a later version of the models, in which its nodes have their numbers. Nodes that
    /// come or go may bring or take defaults, so the union starts from scratch; what comes out the same shares memory.
    #[must_use]
    pub fn with_models(&self, models: Arc<Models>) -> Self {
        let new = Self::new(models, self.layers.clone());
        let images = new.images.sharing(&self.images);
        let ground = new.ground.sharing(&self.ground);
        Self { models: new.models, images, ground, work: new.work, ..self.clone() }
    }

    /// Computes the configuration with other layers, and the problems in it: the ground, the claims of the instances
    /// that differ in it, and the union of all. `entries` are those of the given layers. Where there is a problem with
    /// the ground or the claims, the claims stay as they were.
    fn advanced(
        &self,
        layers: Layers,
        entries: usize,
        cancel: &CancelToken,
    ) -> (Self, Vec<Problem>) {
        self.advanced_despite(&|_| false, layers, entries, cancel)
    }

    /// Computes the configuration with other layers, and the problems in it, without those that `is_passed_over` names: see
    /// [`Configuration::advanced`].
    pub(crate) fn advanced_despite(
        &self,
        is_passed_over: &dyn Fn(&Problem) -> bool,
        mut layers: Layers,
        mut entries: usize,
        cancel: &CancelToken,
    ) -> (Self, Vec<Problem>) {
        if !self.has_services() && layers.claims().is_empty() {
            let old = (&self.layers, &self.images);
            let (images, mut problems, work) = unite(&self.models, old, &layers, cancel);
            problems.retain(|problem| !is_passed_over(problem));
            let ground = images.clone();
            let walks = Arc::default();
            return (
                Self { layers, images, ground, walks, entries, work, ..self.clone() },
                problems,
            );
        }
        let old = (&self.layers.without_claims(), &self.ground);
        let without = layers.without_claims();
        let (mut ground, mut problems, mut work) = unite(&self.models, old, &without, cancel);
        problems.retain(|problem| !is_passed_over(problem));
        let mut walks = BTreeMap::new();
        if problems.is_empty() && !cancel.is_cancelled() {
            let before = layers.clone();
            (walks, problems) = self.walk(&ground, &mut layers);
            entries = entries_after(entries, &before, &layers);
        }
        let mut images = ground.clone();
        if !self.layers.claims().is_empty() || !layers.claims().is_empty() {
            let old = (&self.layers, &self.images);
            let (united, found, more) = unite(&self.models, old, &layers, cancel);
            images = united;
            work.entries += more.entries;
            if problems.is_empty() {
                problems = found;
                problems.retain(|problem| !is_passed_over(problem));
                problems.extend(user_keys::conflicts(&self.models, &self.layers, &layers));
            }
        }
        if layers.claims().is_empty() {
            ground = images.clone();
        }
        let walks = Arc::new(walks);
        (Self { layers, images, ground, walks, entries, work, ..self.clone() }, problems)
    }

    /// True when there are types of services, or claims of instances.
    pub fn has_services(&self) -> bool {
        self.services.is_some() || !self.layers.claims().is_empty()
    }

    /// Walks instances as a change would, without its effects.
    pub fn trial(&self, surroundings: &Surroundings) -> WalkOutcome {
        let Some(services) = &self.services else { return WalkOutcome::default() };
        let ground = Ground(self.ground.clone());
        let claims = self.layers.claims();
        let book = &self.layers.book;
        services.walk(&WalkRequest { old: &ground, new: &ground, claims, book, surroundings })
    }

    /// The configuration in which `ready` of the instances that are due is judged again, by the state of their
    /// objects. Only service plans differ in it. A part that depends on configuration which the walks for this
    /// version have not read is left as it is: a change beside this one may be about to change that. So is everything
    /// where more actions would be queued than each of the changes beside this one has room for.
    #[must_use]
    pub fn with_ready_judged(&self, surroundings: &Surroundings) -> Self {
        let Some(services) = &self.services else { return self.clone() };
        let ground = Ground(self.ground.clone());
        let claims = self.layers.claims();
        let book = &self.layers.book;
        let request = WalkRequest { old: &ground, new: &ground, claims, book, surroundings };
        let outcome = services.judge_ready(&request);
        let has_read = |tag: &ServiceTag, read: &Read| {
            self.walks.get(tag).is_some_and(|reads| reads.contains_key(read))
        };
        let mut judged = self.clone();
        for (tag, plan) in outcome.plans {
            let mut reads = outcome.reads.get(&tag).into_iter().flat_map(BTreeMap::keys);
            if reads.all(|read| !read.is_of_configuration() || has_read(&tag, read)) {
                judged.layers.book.set((tag, plan));
            }
        }
        let queued = [self, &judged].map(|it| it.layers.book.totals().actions);
        if Growth::of(queued, &SERVICE_ACTIONS).is_small() { judged } else { self.clone() }
    }

    /// Names of the service instances whose parameters differ in another version.
    pub fn changed_instances(&self, new: &Self) -> Vec<ServiceTag> {
        let services = self.services.as_ref().or(new.services.as_ref());
        let [old, new] = [self, new].map(|it| Ground(it.ground.clone()));
        services.map(|services| services.changed(&old, &new)).unwrap_or_default()
    }

    /// Names of all service instances.
    pub fn instances(&self) -> Vec<ServiceTag> {
        let none = Ground(Images::default());
        let services = self.services.as_ref();
        services.map(|it| it.changed(&none, &self.ground())).unwrap_or_default()
    }

    /// False for a type of services that is switched off.
    pub fn is_switched_on(&self, service: &str) -> bool {
        self.ground().is_switched_on(&self.models, service)
    }

    /// The union of everything but services.
    pub fn ground(&self) -> Ground {
        Ground(self.ground.clone())
    }

    /// Sets the state that walks see from now on.
    #[must_use]
    pub fn with_surroundings(self, surroundings: Surroundings) -> Self {
        Self { surroundings, ..self }
    }

    /// The state that walks see.
    pub(crate) fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    /// Sets layers and factory configuration with instances that were read anew. The union is left for new models to
    /// compute.
    pub(crate) fn with_read_instances(&self, layers: Layers, factory: Tree<LeafMark>) -> Self {
        let entries = entries_after(self.entries, &self.layers, &layers);
        Self { layers, factory, entries, ..self.clone() }
    }

    /// Names of the instances that were walked on the way from an earlier version, or whose plans or claims differ.
    pub fn touched_instances(&self, old: &Self) -> BTreeSet<ServiceTag> {
        let walked = self.reads_since(old).map(|(tag, _)| tag);
        let plans = Book::differences(&old.layers.book, &self.layers.book).map(|(tag, ..)| tag);
        let claims = Claims::differences(old.layers.claims(), self.layers.claims());
        walked.chain(plans).chain(claims.map(|(key, ..)| &key.tag)).cloned().collect()
    }

    /// Reads of the instances that were walked on the way from an earlier version; none of walks of versions between.
    pub fn reads_since(&self, old: &Self) -> impl Iterator<Item = (&ServiceTag, &Reads)> {
        let walks = Some(&self.walks).filter(|walks| !Arc::ptr_eq(walks, &old.walks));
        walks.into_iter().flat_map(|walks| walks.iter())
    }

    /// Instances that were walked for this version, each with what it read.
    pub(crate) fn walks(&self) -> &BTreeMap<ServiceTag, Reads> {
        &self.walks
    }

    /// Has the instances walked that differ in a new ground, and joins their claims, unless there is a problem. Returns
    /// what they read.
    fn walk(
        &self,
        ground: &Images,
        layers: &mut Layers,
    ) -> (BTreeMap<ServiceTag, Reads>, Vec<Problem>) {
        let Some(services) = &self.services else { return Default::default() };
        let mut outcome = services.walk(&WalkRequest {
            old: &Ground(self.ground.clone()),
            new: &Ground(ground.clone()),
            claims: layers.claims(),
            book: &layers.book,
            surroundings: &self.surroundings,
        });
        let reads = std::mem::take(&mut outcome.reads);
        let problems = self.join(outcome, ground, layers).err();
        (reads, problems.unwrap_or_default())
    }

    /// Joins the claims and plans of walks, unless there is a problem.
    fn join(
        &self,
        outcome: WalkOutcome,
        ground: &Images,
        layers: &mut Layers,
    ) -> Result<(), Vec<Problem>> {
        if !outcome.failures.is_empty() {
            return Err(outcome.failures.into_iter().map(Problem::Work).collect());
        }
        if !outcome.calls.is_empty() {
            let calls = outcome.calls;
            let ground = Ground(ground.clone());
            let needed = Arc::new(NeededCalls { calls, ground });
            return Err(vec![Problem::Unanswered(Unanswered(needed))]);
        }
        let mut changes = outcome.claims;
        let persisted = layers.claims().persisted(&self.models, outcome.persisted);
        changes.extend(persisted.map_err(Problem::of_claims)?);
        if !changes.is_empty() {
            let claims = layers.claims().replaced(&self.models, changes);
            layers.set_claims(claims.map_err(Problem::of_claims)?);
        }
        outcome.plans.into_iter().for_each(|change| layers.book.set(change));
        Ok(())
    }

    /// Sets the types of services. The claims of their instances stay as they are until the instances differ.
    #[must_use]
    pub fn with_services(self, services: Option<Arc<dyn Services>>) -> Self {
        Self { services, ..self }
    }

    /// The types of services, where there are any.
    pub fn services(&self) -> Option<&Arc<dyn Services>> {
        self.services.as_ref()
    }

    /// Computes the configuration with the changes that lead from `base` to this version, a candidate, made to
    /// `current`, which also stems from `base`. The result is the one that the candidate's request would have had in
    /// `current`, provided that the two changes keep clear of one another ([`Footprint`](crate::Footprint)). The cost
    /// is in proportion to the smaller change, and nothing is checked again.
    #[must_use]
    pub fn rebased(&self, base: &Self, current: &Self) -> Self {
        if current.is_same(base) {
            return self.clone();
        }
        if self.is_same(base) {
            return current.clone();
        }
        let (mut layers, collisions) = self.layers.merged(&base.layers, &current.layers);
        debug_assert_eq!(collisions, 0, "the changes do not keep clear of one another");
        let has_new_models = |it: &Self| !Arc::ptr_eq(&it.models, &base.models);
        let from = match (has_new_models(self), has_new_models(current)) {
            (true, _) => self,
            (false, true) => current,
            (false, false) if base.layers.is_nearer(&self.layers, &current.layers) => current,
            (false, false) => self,
        };
        if let Some(claims) = self.rebased_claims(base, current, &from.models) {
            layers.set_claims(claims);
        }
        let old = (&from.layers, &from.images);
        let (images, _, work) = unite(&from.models, old, &layers, &CancelToken::default());
        let ground = ground_of(&from.models, (&from.layers, &from.ground), &layers, &images);
        let entries = entries_after(from.entries, &from.layers, &layers);
        let changed = if self.factory.is_same(&base.factory) { current } else { self };
        Self {
            models: from.models.clone(),
            services: from.services.clone(),
            surroundings: from.surroundings.clone(),
            walks: Arc::default(),
            layers,
            images,
            ground,
            factory: changed.factory.clone(),
            has_factory: self.has_factory || current.has_factory,
            entries,
            work,
        }
    }

    /// Claims with the changes of both sides, where both have some. Changes that keep clear of one another agree.
    fn rebased_claims(&self, base: &Self, current: &Self, models: &Models) -> Option<Claims> {
        let [base, ours, theirs] = [base, self, current].map(|it| it.layers.claims());
        if base.is_same(ours) || base.is_same(theirs) {
            return None;
        }
        let rebased = theirs.replaced(models, base.changes_to(ours));
        debug_assert!(rebased.is_ok(), "the changes do not keep clear of one another: {rebased:?}");
        rebased.ok()
    }

    /// True when both are known to be equal, by their memory.
    pub fn is_same(&self, other: &Self) -> bool {
        self.layers.is_same(&other.layers)
            && self.factory.is_same(&other.factory)
            && Arc::ptr_eq(&self.models, &other.models)
    }

    pub(crate) fn layers_mut(&mut self) -> &mut Layers {
        &mut self.layers
    }

    /// The models, shared.
    pub fn shared_models(&self) -> &Arc<Models> {
        &self.models
    }

    /// Computes the configuration with the client's layers, the annotation of the root, and the claims and plans of
    /// services, from another version. There are no checks and no walks: a configuration that was accepted once must be
    /// restorable as it was, whatever has changed in other layers.
    #[must_use]
    pub fn with_client_of(&self, other: &Layers) -> Self {
        let mut layers = self.layers.clone();
        for origin in [Origin::OpenConfig, Origin::Native] {
            let client = LayerKey::client(origin);
            *layers.tree_mut(client) = other.tree(client).clone();
        }
        layers.annotation = other.annotation.clone();
        layers.secrets = other.secrets.clone();
        layers.set_claims(other.claims().clone());
        layers.book = other.book.clone();
        let unwalked = Self { services: None, ..self.clone() };
        unwalked.unchecked(layers).with_services(self.services.clone())
    }

    /// Computes the configuration with other layers, whatever problems it has.
    pub(crate) fn unchecked(&self, layers: Layers) -> Self {
        let entries = entries_after(self.entries, &self.layers, &layers);
        self.advanced(layers, entries, &CancelToken::default()).0
    }

    pub fn models(&self) -> &Models {
        &self.models
    }

    pub fn layers(&self) -> &Layers {
        &self.layers
    }

    /// Factory configuration.
    pub fn factory(&self) -> &Tree<LeafMark> {
        &self.factory
    }

    /// Effective native configuration.
    pub fn effective(&self) -> &Tree<Provenance> {
        &self.images.effective
    }

    /// Names of the owners of an effective leaf or entry: of layers, in the layers of services of the claims that hold it,
    /// and in the fence layer of those on whose behalf it is fenced.
    pub fn owner_names(&self, native: &InstancePath, provenance: &Provenance) -> Vec<String> {
        let names = |layer: LayerKey| match layer.owner {
            Owner::Service => self.claim_names(layer.origin, native),
            Owner::Fence => self.fence_names(native),
            _ => vec![layer.name().to_owned()],
        };
        provenance.owners.iter().flat_map(names).collect()
    }

    /// Names of the owners of the fence at a leaf, or in an entry, of the native model.
    fn fence_names(&self, path: &InstancePath) -> Vec<String> {
        let fences = self.layers().fences();
        let mut owners = fences.owners_at(path);
        // The key of an entry is its own in no layer.
        if let Some((_, entry)) = path.0.split_last().filter(|_| owners.is_empty()) {
            owners = fences.owners_at(&InstancePath(entry.to_vec()));
        }
        owners.into_iter().map(|owner| format!("fence of {owner}")).collect()
    }

    fn claim_names(&self, origin: Origin, native: &InstancePath) -> Vec<String> {
        let claims = self.layers.claims();
        let holders = |path: &InstancePath| claims.holders(origin, path);
        let keys: Vec<_> = match origin {
            Origin::Native => holders(native),
            Origin::OpenConfig => {
                self.models.map.up_path(native).iter().flat_map(holders).collect()
            }
        };
        keys.into_iter().map(ToString::to_string).collect()
    }

    /// Tree for Get CONFIG of an origin: the client's layer, factory values, and the defaults in use.
    pub fn config_view(&self, origin: Origin) -> &Tree<LeafMark> {
        self.images.view(origin)
    }

    /// Work done to compute this version from the previous one.
    pub fn work(&self) -> WorkCount {
        self.work
    }

    /// Number of list entries in all layers but the lease and the fence.
    pub fn entries(&self) -> usize {
        self.entries
    }

    pub(crate) fn has_factory(&self) -> bool {
        self.has_factory
    }
}

/// Ground of `new`, which are layers with their union, given earlier layers with their ground.
fn ground_of(models: &Models, old: (&Layers, &Images), new: &Layers, images: &Images) -> Images {
    if new.claims().is_empty() {
        return images.clone();
    }
    let old = (&old.0.without_claims(), old.1);
    unite(models, old, &new.without_claims(), &CancelToken::default()).0
}

/// Number of list entries in `new`, given that of `old`. Leases and fences do not count, because no request causes them.
pub(crate) fn entries_after(entries: usize, old: &Layers, new: &Layers) -> usize {
    let is_counted = |layer: &LayerKey| !matches!(layer.owner, Owner::Lease | Owner::Fence);
    let counted = LayerKey::ALL.into_iter().filter(is_counted);
    counted.fold(entries, |entries, layer| {
        let (gained, lost) = Tree::entries_changed(old.tree(layer), new.tree(layer));
        entries + gained - lost
    })
}
