//! Examination of the change of a commit, on another thread.

use std::sync::Arc;

use holdfast_base::now_ns;
use holdfast_config::{Configuration, EditErrors};
use tokio::task::spawn_blocking;

use super::CoreTask;
use crate::commit::{CommitInFlight, ExaminationBase, Input};
use crate::examination::{
    Candidate, CredentialValues, ObservedBox, UnansweredCalls, UnansweredChange,
};
use crate::request::{CommitError, Intent, Values};
use crate::state::JobResult;

/// Result of an examination.
enum Examined {
    Candidate(Box<Candidate>),
    /// The change cannot be examined further until handlers of services have answered.
    Unanswered(Box<UnansweredChange>),
}

impl CoreTask {
    /// Examines a change on another thread.
    pub(crate) fn examine(&mut self, intent: Box<Intent>, commit: &mut CommitInFlight) {
        let configuration = self.in_force.configuration().clone();
        let examiner = Arc::clone(&self.examiner);
        let base = configuration.clone();
        let applied = self.commits.applied();
        commit.base = Some(ExaminationBase { configuration: base, applied });
        let ticket = commit.ticket;
        let is_dry_run = commit.reply.is_dry_run();
        let source = self.credential_source.clone();
        let credentials = Arc::clone(self.in_force.credentials());
        let removed = match *intent {
            Intent::FactoryReset { .. } => self.in_force.removal_of_credentials(),
            _ => Values::new(),
        };
        let relations = Arc::clone(self.in_force.relations());
        let cancel = intent.cancel();
        let (surrounded, state) = self.with_surroundings(&intent, commit);
        let examined = spawn_blocking(move || {
            let (intent, applied) = {
                let applied = intent.apply(&surrounded);
                let needed = applied.as_ref().err().and_then(EditErrors::needed_calls).cloned();
                if let (Some(needed), Some(state)) = (needed, state) {
                    let calls = UnansweredCalls { needed, state };
                    return Ok(Examined::Unanswered(Box::new(UnansweredChange { intent, calls })));
                }
                (intent, applied.map_err(CommitError::Edit)?)
            };
            let mut candidate =
                examiner.examine(&configuration, applied, &relations, intent, is_dry_run)?;
            let mut values = removed;
            let states = candidate.intent.credential_states(&credentials);
            if let (Some(source), Some([from, to])) = (source, &states) {
                let new = &candidate.configuration;
                values.extend(source.difference((from, &configuration), (to, new)));
            }
            let credentials = candidate.intent.credentials();
            candidate.credentials = CredentialValues { values, states, credentials };
            Ok(Examined::Candidate(Box::new(candidate)))
        });
        self.jobs.push(async move {
            let examined = examined.await.unwrap_or_else(|error| Err(CommitError::ended(&error)));
            let input = match examined {
                Ok(_) if cancel.is_cancelled() => Input::Cancel,
                Ok(Examined::Unanswered(unanswered)) => Input::Unanswered(unanswered),
                Ok(Examined::Candidate(candidate)) => Input::Examined(Ok(candidate)),
                Err(error) => Input::Examined(Err(error)),
            };
            JobResult::Commit(ticket, input)
        });
    }

    /// The configuration with the state of the box for walks of instances, where there are any.
    fn with_surroundings(
        &self,
        intent: &Intent,
        commit: &CommitInFlight,
    ) -> (Configuration, Option<Arc<ObservedBox>>) {
        let configuration = self.in_force.configuration().clone();
        if !configuration.has_services() {
            return (configuration, None);
        }
        let state = Arc::new(ObservedBox {
            revision: self.publisher.chain().newest(),
            configuration: configuration.clone(),
            engine: self.engine.clone(),
            registry: Arc::clone(&self.examiner.registry),
        });
        let answers = self.answers(intent, &commit.rounds);
        let observed = Arc::<ObservedBox>::clone(&state);
        let surroundings = intent.surroundings(observed, answers, commit.origin(), now_ns());
        (configuration.with_surroundings(surroundings), Some(state))
    }
}
