//! Operations on the queue of actions.

use std::collections::BTreeSet;

use holdfast_config::services::{ActionEvent, ActionPlan, ActionUpdate};
use holdfast_config::{ClaimKey, Configuration};
use holdfast_core::{Datastore, Intent, Walks};
use tracing::warn;

use super::{OperationError, Operations, instance_path};
use crate::services::requester::Requester;

/// Entry of the queue of actions: the state that asked for the call, and how far it is.
#[derive(Clone, Debug)]
pub struct CallEntry {
    pub state: ClaimKey,
    pub action: ActionPlan,
}

impl<C: Datastore> Operations<C> {
    /// Asks again for an action that failed, was cancelled or is in doubt: another call takes its place.
    ///
    /// # Errors
    /// When there is no such call, or the call goes on without a request.
    pub async fn reschedule(&self, by: &Requester, id: u64) -> Result<CallEntry, OperationError> {
        self.intervene(by, id, ActionEvent::Rescheduled).await
    }

    /// Cancels a call that was not dispatched.
    ///
    /// # Errors
    /// When there is no such call, or it was dispatched.
    pub async fn cancel(&self, by: &Requester, id: u64) -> Result<CallEntry, OperationError> {
        let reason = format!("cancelled by {}", by.caller.name);
        self.intervene(by, id, ActionEvent::Cancelled(reason.into())).await
    }

    /// Notes what came of a call that failed, was cancelled or is in doubt, as the caller knows it.
    ///
    /// # Errors
    /// When there is no such call, or the call goes on without a request.
    pub async fn resolve(
        &self,
        by: &Requester,
        id: u64,
        is_done: bool,
    ) -> Result<CallEntry, OperationError> {
        let failed = || Err(format!("failed, as {} says", by.caller.name).into());
        let result = if is_done { Ok(()) } else { failed() };
        self.intervene(by, id, ActionEvent::Resolved(result)).await
    }

    /// Changes a call of the queue, if it is in a state for that.
    async fn intervene(
        &self,
        by: &Requester,
        id: u64,
        event: ActionEvent,
    ) -> Result<CallEntry, OperationError> {
        let CallEntry { state, action } = call_of(&self.0.configuration(), id)?;
        if !event.fits(&action.progress) {
            let progress = action.progress.name();
            let reason = format!("the call {id} of {state} is {progress}");
            return Err(OperationError::Precondition(reason));
        }
        instance_path(&self.0.configuration(), &state.tag)?;
        warn!(service = %state.tag, id, ?event, caller = %by.caller.name, "an operator changes the queue of actions");
        let is_again = event == ActionEvent::Rescheduled;
        let walks = Walks {
            due: BTreeSet::from([state.tag.clone()]),
            actions: vec![ActionUpdate { state: state.clone(), id, event }],
            ..Walks::default()
        };
        by.change(&self.0, Intent::Walk(walks)).await?;
        let now = self.0.configuration();
        let after = calls(&now).find(|it| it.state == state);
        // The walk may have gone on, and have left the state.
        let Some(after) = after else { return Ok(CallEntry { state, action }) };
        if is_again == (after.action.id == id)
            || after.action.progress == action.progress && !is_again
        {
            let reason = format!("the call {id} of {state} has gone on meanwhile");
            return Err(OperationError::Precondition(reason));
        }
        Ok(after)
    }
}

/// All calls of a box.
fn calls(configuration: &Configuration) -> impl Iterator<Item = CallEntry> {
    configuration.layers().book.iter().flat_map(|(tag, plan)| {
        plan.calls().map(|call| CallEntry { state: call.key(tag), action: call.action.clone() })
    })
}

fn call_of(configuration: &Configuration, id: u64) -> Result<CallEntry, OperationError> {
    let found = calls(configuration).find(|it| it.action.id == id);
    found.ok_or_else(|| OperationError::Missing(format!("there is no call {id} of an action")))
}
