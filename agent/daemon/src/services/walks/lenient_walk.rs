//! Walks that end with failed states instead of a refusal.

use std::sync::Arc;

use holdfast_base::ErrorChain;
use holdfast_config::ServiceTag;
use holdfast_core::{CommitError, Datastore, Intent, Walks};

use crate::services::requester::Requester;

/// Has one instance walk. Where what it makes is refused, it walks again, and the states that would change fail with the
/// reason.
///
/// # Errors
/// When the core has no time for it, or cannot record it.
pub(in crate::services) async fn walk(
    core: &impl Datastore,
    by: &Requester,
    tag: &ServiceTag,
    walks: Walks,
) -> Result<(), CommitError> {
    let walks = Walks { is_lenient: true, ..walks };
    let error = match by.change(core, Intent::Walk(walks.clone())).await {
        Err(error) => error,
        Ok(_) => return Ok(()),
    };
    let is_refused = matches!(
        error,
        CommitError::Edit(_) | CommitError::Object { .. } | CommitError::Failed { .. }
    );
    if !is_refused {
        return Err(error);
    }
    let reason: Arc<str> = ErrorChain(&error).to_string().into();
    let refused = [(tag.clone(), reason)].into();
    by.change(core, Intent::Walk(Walks { refused, ..walks })).await.map(drop)
}
