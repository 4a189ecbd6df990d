//! The plan of a candidate, and validation of its values by what is beside them: the kernel, and the other objects of
//! the configuration.
//!
//! A thread of its own plans, beside the loop.

mod maintenance;
mod readiness;

use std::sync::Arc;
use std::time::Instant;

use holdfast_config::Configuration;
use holdfast_config::limits::excerpt;
use holdfast_config::schema::Origin;
use holdfast_platform::objects::Relations;
use holdfast_platform::objects::state::Planes;
use holdfast_scheduler::{
    Author, Delta, Engine, IntentChange, Key, Level, Plan, PlanError, Planning, SharedValue,
    sort_keys,
};
use holdfast_store::{Answer, Consent, Store, Ticket};

use crate::changes::PlannedChange;
use crate::examination::{
    Candidate, CredentialSource, CredentialValues, EntryChange, Examiner, located_differences,
};
use crate::publication::as_planes;
use crate::request::{
    BoundedList, CommitError, ConfigChange, FollowUp, PlanHash, ServiceChange, Values,
    service_preview,
};
use crate::shared_engine::{MAX_GUARD, SharedEngine};

pub use maintenance::MaintainedLinks;
pub(crate) use readiness::{JudgedChange, judged};

/// Entries that are validated before the core's thread gets its turn: some milliseconds of work.
const VALIDATED_UNDER_GUARD: usize = 4096;

/// A plan, and everything that was made ready for its commit meanwhile.
#[derive(Debug)]
pub(crate) struct CommitPlan {
    pub(crate) plan: Plan,
    /// Rows that the store has laid out, and writes once there is consent; `None` if nothing is recorded.
    pub(crate) rows: Option<(Answer<()>, Consent)>,
    pub(crate) change: Box<PlannedChange>,
    /// Keys that the plan changes, ascending: their state is not shown before the end of the commit.
    pub(crate) keys: Arc<Vec<Key>>,
    /// For a dry run: differences in the configuration that clients see.
    pub(crate) differences: BoundedList<ConfigChange>,
    pub(crate) services: BoundedList<ServiceChange>,
}

/// Planner of one candidate: shared parts of the core, and the terms of the commit.
#[derive(Debug)]
pub(crate) struct CandidatePlanner {
    pub(crate) engine: SharedEngine,
    pub(crate) examiner: Arc<Examiner>,
    pub(crate) relations: Arc<Relations>,
    pub(crate) store: Store,
    pub(crate) ticket: Ticket,
    pub(crate) author: Author,
    pub(crate) origin: Origin,
    pub(crate) is_recorded: bool,
    pub(crate) is_admitted: bool,
    pub(crate) is_best_effort: bool,
    pub(crate) is_dry_run: bool,
    pub(crate) expected_plan: Option<PlanHash>,
    pub(crate) follow_up: Option<FollowUp>,
    pub(crate) credential_source: Option<Arc<dyn CredentialSource>>,
    /// Configuration of the examination.
    pub(crate) base: Option<Configuration>,
    /// Links on which nothing new is placed.
    pub(crate) maintained: Arc<MaintainedLinks>,
}

/// Inversion of a change: a change to what was intended before. Takes as long as the change is large.
pub(crate) struct Inversion {
    pub(crate) examiner: Arc<Examiner>,
    pub(crate) origin: Origin,
    pub(crate) before: Configuration,
    /// Values of credentials before.
    pub(crate) credentials: Vec<(Key, Option<SharedValue>)>,
    pub(crate) change: Box<PlannedChange>,
}

impl Inversion {
    pub(crate) fn run(self) -> Result<Delta, CommitError> {
        let changes = self.examiner.entry_changes(&self.change.configuration, &self.before, true);
        let refused = |error| self.examiner.object_error(&error, self.origin);
        let changes = changes.map_err(refused)?;
        let credentials = self.credentials.into_iter().map(IntentChange::from);
        let delta = Delta::new(engine_intent(&changes).chain(credentials).collect());
        Ok(delta.best_effort().described("not recorded"))
    }
}

impl CandidatePlanner {
    /// Plans while the store lays the rows out.
    pub(crate) fn plan(self, candidate: Candidate) -> Result<CommitPlan, CommitError> {
        let Candidate { configuration, changes, rows: differing, credentials, .. } = candidate;
        let differences = candidate.differences;
        let services = candidate.services;
        let unready = candidate.unready;
        let instances = candidate.touched.len();
        let description = candidate.intent.description();
        let beside = candidate.intent.hash_text() + &service_preview::text(&services);
        if !self.is_admitted {
            self.validate_values(&changes)?;
        }
        if candidate.intent.places() && !self.maintained.closed.is_empty() {
            for portion in changes.chunks(VALIDATED_UNDER_GUARD) {
                let engine = self.engine.read();
                self.maintained.check(portion, &engine, &self.examiner, self.origin)?;
            }
        }
        if !self.is_dry_run {
            self.hold_secrets(&configuration, &credentials);
        }
        let mut planning =
            Planning::new(self.delta(&changes, &credentials.values, description, &beside));
        let mut differing = self.is_recorded.then_some(differing);
        let mut rows = None;
        let plan = loop {
            let engine = self.engine.read();
            let until = Instant::now() + MAX_GUARD;
            let planned = planning.advance(&engine, &mut || Instant::now() >= until);
            if planning.is_validated()
                && let Some(differing) = differing.take()
            {
                // The store lays the rows out once the values are found valid, before the plan is complete.
                rows = Some(self.store.prepare_ahead(self.ticket, differing));
            }
            if let Some(planned) = planned {
                break planned.map_err(|error| {
                    self.examiner.plan_error(&error, &engine, &changes, self.origin)
                })?;
            }
        };
        let changes = Arc::new(changes);
        let change =
            Box::new(PlannedChange { configuration, changes, credentials, unready, instances });
        let mut keys: Vec<Key> = plan.keys().cloned().collect();
        sort_keys(&mut keys);
        Ok(CommitPlan { plan, rows, change, keys: Arc::new(keys), differences, services })
    }

    /// Has transports find the secrets of a change. One with secrets is planned when no other one is under way.
    fn hold_secrets(&self, new: &Configuration, credentials: &CredentialValues) {
        let states = credentials.states.as_ref().filter(|_| !credentials.values.is_empty());
        if let (Some(source), Some([from, to]), Some(old)) =
            (&self.credential_source, states, &self.base)
        {
            source.hold((from, old), (to, new));
        }
    }

    /// The change that the engine is asked for. `beside` is text for its hash of what the engine does not see.
    fn delta(
        &self,
        changes: &[EntryChange],
        credentials: &Values,
        description: String,
        beside: &str,
    ) -> Delta {
        let credential_intent = credentials.iter().cloned().map(IntentChange::from);
        let delta = Delta::new(engine_intent(changes).chain(credential_intent).collect());
        let mut delta = delta.described(description).by(self.author.clone());
        if self.is_best_effort {
            delta = delta.best_effort();
        }
        if let Some(follow_up) = self.follow_up.as_ref().filter(|_| !self.is_dry_run) {
            delta = delta.waiting_for(Level::Converged, follow_up.within());
        }
        if self.expected_plan.is_some() || self.is_dry_run {
            delta = delta.with_beside(self.examiner.beside(changes) + beside);
        }
        match self.expected_plan {
            Some(PlanHash(hash)) => delta.expecting_plan(hash),
            None => delta,
        }
    }

    /// Refuses changed values that the kernel contradicts, or that do not fit other objects.
    fn validate_values(&self, changes: &[EntryChange]) -> Result<(), CommitError> {
        let registry = &self.examiner.registry;
        let refused = |error| self.examiner.object_error(&error, self.origin);
        // First, since what the kernel shows under the name of an end may be the far end of another one.
        self.relations.admit(located_differences(changes)).map_err(refused)?;
        for portion in changes.chunks(VALIDATED_UNDER_GUARD) {
            let engine = self.engine.read();
            for EntryChange { path, values, .. } in portion {
                for (_, value) in values {
                    let admitted = registry.admit(path, &**value, |key| self.planes(&engine, key));
                    admitted.map_err(refused)?;
                }
            }
        }
        Ok(())
    }

    /// The values of a key, without the observed one where the kernel made that together with an object of ours.
    fn planes<'e>(&self, engine: &'e Engine, key: &Key) -> Planes<'e> {
        let [intended, applied, observed] = engine.planes(key);
        let is_shown = |it: &&SharedValue| !self.is_made_with_ours(engine, key, it);
        as_planes([intended, applied, observed.filter(is_shown)])
    }

    /// True for an object that the kernel made with one of ours, such as the far end of a veth link: it has no mark of ours,
    /// and goes when that one does.
    fn is_made_with_ours(&self, engine: &Engine, key: &Key, observed: &SharedValue) -> bool {
        let Some(ours) = self.relations.made_with(key, &**observed) else { return false };
        let [.., observed_ours] = engine.planes(&ours);
        let kind = engine.registry().descriptor(ours.kind());
        kind.zip(observed_ours).is_some_and(|(kind, observed_ours)| kind.owned(&**observed_ours))
    }
}

impl CommitError {
    pub(crate) fn planning(error: &PlanError) -> Self {
        let object = match error {
            PlanError::Differs { expected, found } => {
                let expected = PlanHash(*expected);
                let found = PlanHash(*found);
                return Self::PlanDiffers { expected, found };
            }
            PlanError::Invalid { label, .. }
            | PlanError::Unimplemented { label, .. }
            | PlanError::Twice { label, .. }
            | PlanError::Conflict { label, .. } => excerpt(label),
            _ => "the change".to_owned(),
        };
        Self::Object { path: object, reason: excerpt(error) }
    }
}

fn engine_intent(changes: &[EntryChange]) -> impl Iterator<Item = IntentChange> {
    changes.iter().flat_map(EntryChange::intent)
}
