//! The plan of a candidate, and validation of its values by what is beside them: the kernel, and the other objects of
//! the configuration.

use holdfast_base::ErrorChain;
use holdfast_config::Configuration;
use holdfast_config::limits::excerpt;
use holdfast_config::schema::Origin;
use holdfast_platform::objects::state::Planes;
use holdfast_scheduler::{Delta, IntentChange, Key, Plan, PlanError, SharedValue};
use holdfast_store::{Answer, Consent};
use tracing::error;

use super::CommitError;
use super::commit::{CommitInFlight, CommitKind, Input, PlannedChange};
use super::examination::{Candidate, EntryChange};
use super::options::PlanHash;
use super::preview::{BoundedList, ConfigChange};
use super::publication::as_planes;
use super::task::CoreTask;

/// A plan, and everything that was made ready for its commit meanwhile.
#[derive(Debug)]
pub(super) struct CommitPlan {
    pub(super) plan: Plan,
    /// Rows that the store has laid out, and writes once there is consent; `None` if nothing is recorded.
    pub(super) rows: Option<(Answer<()>, Consent)>,
    pub(super) change: Box<PlannedChange>,
    /// For a dry run: differences in the configuration that clients see.
    pub(super) differences: BoundedList<ConfigChange>,
}

impl CoreTask {
    /// Plans a candidate while the store lays its rows out. Fails if the plan is not the one that the client expects.
    pub(super) fn plan(
        &self,
        candidate: Candidate,
        commit: &CommitInFlight,
    ) -> Result<CommitPlan, CommitError> {
        let Candidate { configuration, changes, rows: differing, credentials, differences } =
            candidate;
        let mut rows = None;
        let is_recorded = commit.machine.kind() == CommitKind::Recorded;
        let lay_out = || {
            rows = is_recorded.then(|| self.store.prepare_ahead(commit.ticket, differing));
        };
        if !commit.is_admitted {
            self.validate_values(&changes, commit.origin)?;
        }
        let credential_intent = credentials.values.iter().cloned().map(IntentChange::from);
        let delta = Delta::new(engine_intent(&changes).chain(credential_intent).collect());
        let delta = delta.described(commit.reply.name()).by(commit.reply.author());
        let delta = if commit.is_best_effort { delta.best_effort() } else { delta };
        let expected = commit.options.expected_plan;
        let has_hash = expected.is_some() || commit.reply.is_dry_run();
        let delta =
            if has_hash { delta.with_beside(self.examiner.beside(&changes)) } else { delta };
        let delta = match expected {
            Some(PlanHash(hash)) => delta.expecting_plan(hash),
            None => delta,
        };
        // The rows are laid out once the values are found valid, before the plan is complete.
        let plan = self.engine.plan_with(delta, lay_out);
        let plan = plan.map_err(|error| {
            self.examiner.plan_error(&error, (&self.engine, &changes), commit.origin)
        })?;
        let change = Box::new(PlannedChange { configuration, changes, credentials });
        Ok(CommitPlan { plan, rows, change, differences })
    }

    /// Has the engine take back a change that the kernel has and that the store could not make final. No revision shows
    /// it meanwhile.
    pub(super) fn undo(&mut self, change: &PlannedChange, origin: Origin) {
        match self.plan_undo(change, origin) {
            Ok(plan) => {
                let (txn, step) = self.engine.start(plan, self.now());
                self.inputs.push_back(Input::UndoStarted(Some(txn)));
                self.follow(step);
            }
            Err(fault) => {
                error!(error = %ErrorChain(&fault), "cannot plan the rollback");
                self.inputs.push_back(Input::UndoStarted(None));
            }
        }
    }

    fn plan_undo(&self, change: &PlannedChange, origin: Origin) -> Result<Plan, CommitError> {
        let PlannedChange { configuration, changes: _, credentials } = change;
        let changes = self.undone_changes(configuration, origin)?;
        let before = |(key, _): &(Key, _)| (key.clone(), self.credential_values.get(key).cloned());
        let credential_intent = credentials.values.iter().map(before).map(IntentChange::from);
        let delta = Delta::new(engine_intent(&changes).chain(credential_intent).collect());
        let delta = delta.best_effort().described("not recorded");
        self.engine.plan(delta).map_err(|error| CommitError::planning(&error))
    }

    /// Entries of the configuration in force that differ from those of another one.
    fn undone_changes(
        &self,
        from: &Configuration,
        origin: Origin,
    ) -> Result<Vec<EntryChange>, CommitError> {
        let changes = self.examiner.entry_changes(from, &self.configuration, true);
        changes.map_err(|error| self.examiner.object_error(&error, origin))
    }

    /// Refuses changed values that the kernel contradicts, or that do not fit other objects.
    fn validate_values(&self, changes: &[EntryChange], origin: Origin) -> Result<(), CommitError> {
        let registry = &self.examiner.registry;
        let asked = changes
            .iter()
            .flat_map(|it| it.differences().map(|(key, value)| (&it.path, key, value)));
        // First, since what the kernel shows under the name of an end may be the far end of another one.
        let admitted = registry.admit_pairs(&self.pairs, asked);
        admitted.map_err(|error| self.examiner.object_error(&error, origin))?;
        for EntryChange { path, values, .. } in changes {
            for (_, value) in values {
                let admitted = registry.admit(path, &**value, |key| self.planes(key));
                admitted.map_err(|error| self.examiner.object_error(&error, origin))?;
            }
        }
        Ok(())
    }

    /// The values of a key, without the observed one where that is the far end of a veth link of ours.
    fn planes(&self, key: &Key) -> Planes<'_> {
        let [intended, applied, observed] = self.engine.planes(key);
        as_planes([intended, applied, observed.filter(|it| !self.is_far_end_of_ours(key, it))])
    }

    /// True for the far end of a veth link that we made: it has no mark of ours, and goes when that link does.
    fn is_far_end_of_ours(&self, key: &Key, observed: &SharedValue) -> bool {
        let Some(near) = self.pairs.near_end(key, &**observed) else { return false };
        let [.., shown] = self.engine.planes(&near);
        let kind = self.engine.registry().descriptor(near.kind());
        kind.zip(shown).is_some_and(|(kind, shown)| kind.owned(&**shown))
    }
}

impl CommitError {
    pub(super) fn planning(error: &PlanError) -> Self {
        let object = match error {
            PlanError::Differs { expected, found } => {
                let (expected, found) = (PlanHash(*expected), PlanHash(*found));
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
