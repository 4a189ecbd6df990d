//! The place of services in a configuration: what their instances are walked with, and what comes of it.
//!
//! The configuration makes the *ground*, the union of everything but services, then has the instances walked whose
//! parameters differ in it and those that are due, joins their claims, and makes the effective tree of all layers.

mod archive;
mod conditions;
mod handlers;
mod switch;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

pub use self::archive::PackageArchive;
pub use self::conditions::{Conditions, GateJudgement, Touched, WalkWork};
pub use self::handlers::{
    Answers, CallPlace, EditContent, HandlerAnswer, HandlerCall, HandlerOutline, HandlerRefusal,
    HandlerWork, KeptAnswer, NeededCalls, ServedCall, TypeVersion, Unanswered, digest_of,
};
pub(crate) use self::switch::path_of as switch_of;
use smol_str::SmolStr;

use crate::claims::{ClaimChange, ClaimKey, Claims, GrowingClaim, PersistedOutput, ServiceTag};
use crate::images::{Images, Provenance};
use crate::instance::InstancePath;
use crate::layer::LeafMark;
use crate::models::Models;
use crate::resolve::PathPattern;
use crate::schema::Origin;
pub use crate::service_plan::{
    ActionCall, ActionCause, ActionEvent, ActionPhase, ActionPlan, ActionProgress, ActionTarget,
    ActionUpdate, AnswerInput, BackTrack, Book, CallPhase, CallRef, CauseKind, ChangeAuthor,
    ChangeOrigin, ComponentPlan, FailureOrigin, InstanceRecord, InstanceStatus, KEPT_TRANSACTIONS,
    LOG_LINES, LogLine, ModificationPlan, NAMED_INSTANCES, PlanChange, PlanTotals, Plane, READY,
    ReadInput, SELF, ServicePlan, ServiceTransaction, StatePlan, StateStatus, TransactionFailure,
    WalkCause, WalkedInstance,
};
use crate::tree::Tree;
use crate::value::Value;

/// The union of everything but services. A clone shares all memory.
#[derive(Clone, Debug)]
pub struct Ground(pub(crate) Images);

impl Ground {
    /// Effective native configuration without what services make.
    pub fn effective(&self) -> &Tree<Provenance> {
        &self.0.effective
    }

    /// Configuration of clients with the defaults in use.
    pub fn config_view(&self, origin: Origin) -> &Tree<LeafMark> {
        self.0.view(origin)
    }
}

/// State of the box at one moment, as walks see it.
pub trait BoxState: Debug + Send + Sync {
    /// Values of the leaves of state that a pattern leads to, in the order of their paths.
    fn leaves(&self, origin: Origin, pattern: &PathPattern) -> Vec<Value>;

    /// Extent to which the objects of a claim are in the kernel.
    fn applied(&self, claim: &ClaimKey) -> Applied;
}

/// Extent to which the objects of a claim are in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Applied {
    Done,
    /// An object waits; the text names it.
    Pending(Arc<str>),
    /// An object was refused; the text names it with the reason.
    Failed(Arc<str>),
}

/// Everything beside the configuration that walks depend on, and the instances to be walked in any case.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// `None` where nothing is known of the box.
    pub state: Option<Arc<dyn BoxState>>,
    /// Time of the walks, in nanoseconds since 1970.
    pub now_ns: u64,
    /// A failure of work is a failed state, and no reason to refuse the change.
    pub is_lenient: bool,
    /// Instances that are walked although their parameters are the same.
    pub due: BTreeSet<ServiceTag>,
    /// Instances that are walked if one of their conditions has another result. Only trials have some.
    pub touched: BTreeMap<ServiceTag, Touched>,
    /// Instances whose last walk was refused, with the reason: states whose claims would change are failed instead.
    pub refused: BTreeMap<ServiceTag, Arc<str>>,
    /// Components that back out whatever their delete gates say.
    pub forced: BTreeMap<ServiceTag, ForcedBackTrack>,
    /// Deleted instance that is made again as it was, although it still backs out.
    pub resurrected: Option<ServiceTag>,
    /// Results of actions.
    pub actions: Vec<ActionUpdate>,
    /// Instances that are due and whose last walk was with another version of their package are walked with the newest one;
    /// else they keep theirs.
    pub upgrades: bool,
    /// Components whose type the newest version lacks are dropped without being undone; else they refuse the walk.
    pub drops_components: bool,
    /// Instances that keep another version of their package, with the reason.
    pub left_behind: BTreeMap<ServiceTag, Arc<str>>,
    pub origin: ChangeOrigin,
    /// Failed actions of the instances that are due are asked for again.
    pub retries_actions: bool,
    /// Answers of handlers at hand.
    pub answers: Answers,
    /// Handlers may be asked for answers that are not at hand. Else the states wait.
    pub may_ask: bool,
}

/// Component that an operator has back out by force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForcedBackTrack {
    /// Type and name.
    pub component: [SmolStr; 2],
    /// The first state that is left; `None` for all of them.
    pub state: Option<SmolStr>,
}

/// A change for which instances are walked.
#[derive(Debug)]
pub struct WalkRequest<'a> {
    pub old: &'a Ground,
    pub new: &'a Ground,
    /// Claims and service plans before.
    pub claims: &'a Claims,
    pub book: &'a Book,
    pub surroundings: &'a Surroundings,
}

/// Outcome of the walks of one change.
#[derive(Debug, Default)]
pub struct WalkOutcome {
    /// Claims that differ.
    pub claims: Vec<ClaimChange>,
    /// Outputs of handlers that outlast what they were asked for.
    pub persisted: Vec<PersistedOutput>,
    /// Service plans that differ.
    pub plans: Vec<PlanChange>,
    /// Instances that do not change, because their work failed. A request is refused then.
    pub failures: Vec<WorkFailure>,
    /// Calls of handlers without an answer at hand. The instances are walked again with the answers; what else there is of
    /// the outcome is preliminary.
    pub calls: Vec<HandlerCall>,
    /// Questions of the walks, by instance.
    pub reads: BTreeMap<ServiceTag, Reads>,
    /// Instances whose next walk may differ from this time on, in nanoseconds since 1970, though nothing else changes.
    pub wake_at_ns: BTreeMap<ServiceTag, u64>,
    /// Instances that a limit of the box keeps from going on, where nothing may be refused.
    pub over_limit: BTreeSet<ServiceTag>,
    /// Conditions of the instances that walks changed nothing of, and that failed nowhere.
    pub conditions: BTreeMap<ServiceTag, Conditions>,
    /// Touched instances whose conditions have the results they had, with what these have read now.
    pub unchanged: BTreeMap<ServiceTag, Reads>,
    pub work: WalkWork,
}

impl WalkOutcome {
    /// True when the walks change nothing.
    pub fn is_empty(&self) -> bool {
        let is_settled = self.failures.is_empty() && self.calls.is_empty();
        let makes_nothing = self.claims.is_empty() && self.persisted.is_empty();
        makes_nothing && self.plans.is_empty() && is_settled
    }
}

/// Leaves that an expression reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeafRead {
    pub plane: Plane,
    pub origin: Origin,
    /// All lead to leaves or leaf-lists.
    pub patterns: Vec<PathPattern>,
}

impl LeafRead {
    /// Text of its paths.
    pub fn to_text(&self, models: &Models) -> String {
        let schema = models.schema(self.origin);
        let paths = self.patterns.iter().map(|pattern| pattern.to_path(schema).to_string());
        let prefix = match self.origin {
            Origin::Native => "",
            Origin::OpenConfig => "openconfig:",
        };
        let paths: Vec<String> = paths.map(|path| format!("{prefix}{path}")).collect();
        paths.join(", ")
    }

    /// Values of the leaves that exist, in the order of their paths. Without state there are none of it.
    pub fn values(&self, ground: &Ground, state: Option<&dyn BoxState>) -> Vec<Value> {
        let values = |pattern: &PathPattern| match (self.plane, self.origin) {
            (Plane::Ground, Origin::Native) => ground.effective().leaf_values(pattern),
            (Plane::Ground, Origin::OpenConfig) => {
                ground.config_view(Origin::OpenConfig).leaf_values(pattern)
            }
            (Plane::State, origin) => {
                state.map(|state| state.leaves(origin, pattern)).unwrap_or_default()
            }
        };
        self.patterns.iter().flat_map(values).collect()
    }
}

/// A question of an expression about something outside of its instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Read {
    Leaves(LeafRead),
    /// Readiness of another instance.
    Service(ServiceTag),
}

impl Read {
    /// True for a question about the configuration or other instances, which changes side by side must not answer anew.
    pub(crate) fn is_of_configuration(&self) -> bool {
        !matches!(self, Self::Leaves(LeafRead { plane: Plane::State, .. }))
    }
}

/// Questions of one walk, each with the places in the package that ask it.
pub type Reads = BTreeMap<Read, BTreeSet<Arc<str>>>;

/// Failure of the work of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkFailure {
    /// Path of the instance in the native model.
    pub instance: InstancePath,
    pub kind: WorkFailureKind,
    /// Text with the package, and the place in it.
    pub text: String,
}

/// Class of a failure, by which a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkFailureKind {
    /// The parameters of the instance are not what its type asks for.
    Parameters,
    /// The template fails, or what it puts out cannot be read.
    Work,
    /// More than a limit allows.
    Limit,
    /// Output outside of the grants, or a reserved item.
    Denied,
    /// An instance of this name is still being deleted.
    Leaving,
    /// No handler does the work, or it was lost while it did.
    Unavailable,
    /// A handler did not answer in time.
    Late,
    /// A handler cannot be asked now, or a component is in the way.
    Precondition,
}

/// The types of services of a box.
pub trait Services: Debug + Send + Sync {
    /// Walks the instances that differ between two versions of the ground, and those that are due. A function of its
    /// arguments.
    fn walk(&self, request: &WalkRequest<'_>) -> WalkOutcome;

    /// Judges `ready` of the instances that are due, whose objects are verified now. The outcome has plans that differ and
    /// reads, no claims. A function of its arguments.
    fn judge_ready(&self, request: &WalkRequest<'_>) -> WalkOutcome;

    /// Names of the instances that differ between two versions of the ground, and of all of a type whose switch differs.
    fn changed(&self, old: &Ground, new: &Ground) -> Vec<ServiceTag>;

    /// The packages that the database has to keep, by the names of their rows: installed ones, and those that instances use.
    fn packages(&self, ground: &Ground, book: &Book) -> BTreeMap<SmolStr, Arc<PackageArchive>>;

    /// Handlers in the outline of a type; `None` for a type without handlers.
    fn handler(&self, service: &str) -> Option<HandlerOutline>;

    /// Text of the condition under which a state of a component type may be entered, or left.
    fn gate(&self, by: TypeVersion<'_>, state: [&str; 2], is_of_delete: bool) -> Option<SmolStr>;

    /// Adds an edit of a handler to the claim of a state.
    ///
    /// # Errors
    /// When it cannot be read, is not in the grants of this version, or makes the claim larger than one may be.
    fn add_edit(
        &self,
        by: TypeVersion<'_>,
        claim: &mut GrowingClaim,
        edit: EditContent<'_>,
    ) -> Result<(), HandlerRefusal>;

    /// The leaves at a path, which begins with `openconfig:` unless it is native.
    ///
    /// # Errors
    /// When it does not lead to leaves that the grants of this version let be read.
    fn readable(
        &self,
        by: TypeVersion<'_>,
        plane: Plane,
        path: &str,
    ) -> Result<LeafRead, HandlerRefusal>;
}
