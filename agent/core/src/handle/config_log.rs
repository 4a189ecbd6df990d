//! The log of configuration revisions: what a commit says in it, and the way back to an earlier one.
//!
//! The difference of the layers is made where a change is examined, and the store keeps it with the write that makes the
//! change final. A return is a change like a Set ([`Intent::Restore`]): examined, admitted, planned and verified, with a dry
//! run, the hash of a plan and commit-confirmed.

use holdfast_base::{Caller, now_ns};
use holdfast_config::{CancelToken, Layers};
use holdfast_store::{
    Checkpoint, CheckpointName, NewCheckpoint, RevisionList, RevisionRange, RevisionTarget,
    StoreError,
};
use tokio::task::spawn_blocking;
use tracing::warn;

use super::CoreHandle;
use super::datastore::Datastore;
use crate::request::{
    CancelOnDrop, Comment, CommitError, CommitOptions, CommitStamp, Intent, Preview, Restoration,
    RestoreRequest,
};

impl CoreHandle {
    /// The state of the log, and configuration revisions of it.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn revisions(&self, range: RevisionRange) -> Result<RevisionList, CommitError> {
        let listed = self.store.revisions(range).await;
        listed.map_err(CommitError::log("read the log of configuration revisions"))
    }

    /// Layers with the configuration of clients as of an earlier revision or a checkpoint, and nothing else.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub async fn client_layers_at(&self, target: &RevisionTarget) -> Result<Layers, CommitError> {
        const ATTEMPT: &str = "find the earlier configuration";
        let rows = self.store.rows_at(target.clone()).await;
        let rows = rows.map_err(CommitError::log(ATTEMPT))?;
        let models = self.models();
        let read = spawn_blocking(move || Layers::from_rows(&models, rows)).await;
        let (layers, unknown) = read
            .map_err(|error| CommitError::ended(&error))?
            .map_err(|error| CommitError::Internal { reason: error.to_string() })?;
        if unknown > 0 {
            warn!(%target, unknown, "an earlier configuration holds items that this version does not know; they are ignored");
        }
        Ok(layers)
    }

    /// Takes the configuration of clients back to an earlier revision or a checkpoint, as one transaction.
    ///
    /// # Errors
    /// When there is none, when the author may not write what differs, or the errors of a Set.
    pub async fn restore(
        &self,
        caller: &Caller,
        request: RestoreRequest,
        options: CommitOptions,
    ) -> Result<CommitStamp, CommitError> {
        let restoration = self.restoration(request).await?;
        let _waiting = CancelOnDrop(restoration.cancel.clone());
        self.change_with(caller, Intent::Restore(restoration), options).await
    }

    /// Plans a return to an earlier configuration of clients, without changing anything.
    ///
    /// # Errors
    /// The errors of [`CoreHandle::restore`].
    pub async fn preview_restore(
        &self,
        caller: &Caller,
        request: RestoreRequest,
        options: CommitOptions,
    ) -> Result<Preview, CommitError> {
        let restoration = self.restoration(request).await?;
        self.preview(caller, Intent::Restore(restoration), options).await
    }

    async fn restoration(&self, request: RestoreRequest) -> Result<Restoration, CommitError> {
        let RestoreRequest { target, authorization } = request;
        let layers = self.client_layers_at(&target).await?;
        Ok(Restoration { layers, target, authorization, cancel: CancelToken::default() })
    }

    /// Keeps the configuration of clients under a name, in place of what has the name already.
    ///
    /// # Errors
    /// When there are too many, or they take too many bytes, or the disk refuses.
    pub async fn set_checkpoint(
        &self,
        caller: &Caller,
        name: CheckpointName,
        comment: Option<Comment>,
    ) -> Result<Checkpoint, CommitError> {
        let comment = comment.map(|comment| comment.to_string());
        let author = caller.name.to_string();
        let checkpoint = NewCheckpoint { name, time_ns: now_ns(), author, comment };
        let made = self.store.set_checkpoint(checkpoint).await;
        made.map_err(CommitError::log("make the checkpoint"))
    }

    /// Removes a checkpoint.
    ///
    /// # Errors
    /// When there is none of the name, or the disk refuses.
    pub async fn delete_checkpoint(&self, name: &CheckpointName) -> Result<(), CommitError> {
        let failed = CommitError::log("remove the checkpoint");
        match self.store.delete_checkpoint(name.clone()).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(failed(StoreError::NoCheckpoint { name: name.clone() })),
            Err(error) => Err(failed(error)),
        }
    }

    /// All checkpoints, ascending by name.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn checkpoints(&self) -> Result<Vec<Checkpoint>, CommitError> {
        self.store.checkpoints().await.map_err(CommitError::log("read the checkpoints"))
    }
}

impl CommitError {
    fn log(attempt: &'static str) -> impl Fn(StoreError) -> Self {
        move |source| match source {
            StoreError::Stopped => Self::Stopped,
            StoreError::Overloaded => Self::Overloaded,
            source => Self::Log { attempt, source },
        }
    }
}
