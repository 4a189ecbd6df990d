//! Fences, as faults and maintenance ask for them.
//!
//! A fence is a change like any other ([`Intent::Fence`]): durable with its owners when it is answered, and carried out and
//! verified in the kernel. It passes while a commit waits to be confirmed, and waits only for changes of the same entries.
//! Whether it may be made at all is asked of [`CoreHandle::last_way`].

use std::collections::BTreeSet;

use holdfast_base::Caller;
use holdfast_config::{Fence, FenceChange, FenceItem, FenceOwner, Lift};
use smol_str::SmolStr;

use super::CoreHandle;
use super::datastore::Datastore;
use crate::request::{CommitError, CommitOptions, CommitStamp, Intent};

/// Author of changes that take fences off whose owners are gone.
const RETAINING: &str = "faults";

/// Items that one owner gives up, and those that it has fenced after that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceRequest {
    /// The author of the change, too.
    pub owner: FenceOwner,
    /// Items that it gives up, unless it asks for them again.
    pub lift: Lift,
    pub set: Vec<FenceItem>,
    /// Name of the change in logs and histories, such as `fault/12`.
    pub trace: SmolStr,
}

impl CoreHandle {
    /// Changes what is fenced on behalf of one owner.
    ///
    /// # Errors
    /// When a stronger layer holds another value, and as for any change. Nothing is changed then.
    pub async fn fence(&self, request: FenceRequest) -> Result<CommitStamp, CommitError> {
        let FenceRequest { owner, lift, set, trace } = request;
        let caller = Caller::own(owner.to_string());
        let change = FenceChange::Items { owner, lift, set };
        let options = CommitOptions { trace: Some(trace), ..CommitOptions::default() };
        self.change_with(&caller, Intent::Fence(change), options).await
    }

    /// Takes off the fences of all owners but these. Without any, nothing happens.
    ///
    /// # Errors
    /// As for any change.
    pub async fn retain_fence_owners(
        &self,
        living: BTreeSet<FenceOwner>,
    ) -> Result<(), CommitError> {
        let is_living = |fence: &Fence| fence.owners.iter().all(|owner| living.contains(owner));
        if self.fences().iter().all(is_living) {
            return Ok(());
        }
        let change = Intent::Fence(FenceChange::Retain(living));
        self.change(&Caller::own(RETAINING), change).await.map(|_| ())
    }

    /// All that is fenced, with the owners of each, ascending by path.
    pub fn fences(&self) -> Vec<Fence> {
        let configuration = self.configuration_rx.borrow().clone();
        configuration.fences()
    }
}
