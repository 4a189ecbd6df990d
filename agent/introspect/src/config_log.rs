//! The log of configuration revisions: `config-log`.

use axum::extract::State;
use axum::response::Response;
use holdfast_store::RevisionRange;

use super::arguments::Arguments;
use super::http_error::HttpError;
use super::{Introspect, MAX_PAGE, PAGE, page};

/// `GET config-log`: the last revisions that are kept, ascending by number; `last` bounds them.
pub(super) async fn config_log(
    State(introspect): State<Introspect>,
    arguments: Arguments,
) -> Result<Response, HttpError> {
    let arguments = arguments.allow_only(&["last"], &[])?;
    let last = arguments.count("last", PAGE, MAX_PAGE)?;
    let list = introspect.core.revisions(RevisionRange::newest(last)).await?;
    Ok(page::list(&list.revisions, None))
}
