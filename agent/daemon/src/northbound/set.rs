//! Set: the operations of one request, as one edit, and the answer to each.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_base::{Caller, beside_others, now_ns};
use holdfast_common::parallel;
use holdfast_config::Models;
use holdfast_config::edit::{
    Edit, EditAuthorization, EditAuthorizer, EditCause, EditOperation, EditTarget, Payload,
};
use holdfast_config::limits::{JOINED_PATHS, SET_OPERATIONS};
use holdfast_core::{Comment, CommitError, Datastore, FollowUp, Intent};
use holdfast_proto::gnmi;
use holdfast_proto::gnmi::update_result;
use smol_str::SmolStr;
use tokio::time::Instant;

use super::encoding::{self, SetValue};
use super::extensions::{SetExtensions, plan, wait};
use super::path::{Access, JoinedPath, Prefix, in_current_form};
use super::status::Refusal;
use crate::gnsi::pathz::PathPermissions;

/// Context of a request, beside its message.
#[derive(Debug, Default)]
pub(super) struct RequestOptions {
    /// Rights on paths; `None` where no policy restricts them.
    pub(super) rights: Option<Arc<PathPermissions>>,
    pub(super) trace: Option<SmolStr>,
    /// Text for the log of configuration revisions.
    pub(super) comment: Option<Comment>,
    /// Time until which the client waits.
    pub(super) deadline: Option<Instant>,
}

pub(super) async fn set(
    core: &impl Datastore,
    caller: &Caller,
    RequestOptions { rights, trace, comment, deadline }: RequestOptions,
    request: gnmi::SetRequest,
) -> Result<gnmi::SetResponse, Refusal> {
    let wishes = SetExtensions::read(&request.extension)?;
    let prefix = Prefix::read(request.prefix.clone(), Access::Write)?;
    let much = count(&request) > parallel::FEW;
    let (mut edit, origins) = beside_others(much, || read_edit(&core.models(), &prefix, &request))?;
    let SetExtensions { mut options, dry_run, wait } = wishes;
    (options.trace, options.deadline, options.comment) = (trace, deadline, comment);
    if let Some(rights) = &rights {
        admit(rights, dry_run, wait.is_some())?;
        edit.authorization = EditAuthorization::new(Arc::clone(rights) as Arc<dyn EditAuthorizer>);
    }
    if dry_run {
        let preview = core.preview(caller, Intent::edit(edit), options).await?;
        // The preview may show nodes that were appended meanwhile.
        if let Some(rights) = &rights {
            admit(&rights.for_models(&core.models()), dry_run, false)?;
        }
        let answer = answer(&prefix, request, &origins, now_ns());
        return Ok(gnmi::SetResponse { extension: vec![plan::answer(preview)], ..answer });
    }
    let wait = wait.map(|wait| (wait, FollowUp::new(wait.within)));
    options.follow_up = wait.as_ref().map(|(_, follow_up)| follow_up.clone());
    let committed = core.commit(caller, edit, options).await;
    if let Some(rights) = &rights {
        let error = committed.as_ref().err();
        beside_others(much, || note_decisions(core, rights, &request, &origins, error));
    }
    let committed = committed?;
    let answer = beside_others(much, || answer(&prefix, request, &origins, committed.time_ns));
    let Some((wait, follow_up)) = wait else { return Ok(answer) };
    let outcome = wait::outcome(core, wait, &follow_up).await;
    Ok(gnmi::SetResponse { extension: vec![wait.answer(outcome)], ..answer })
}

/// The operations of a request.
fn count(request: &gnmi::SetRequest) -> usize {
    let gnmi::SetRequest { delete, replace, update, union_replace, .. } = request;
    delete.len() + replace.len() + update.len() + union_replace.len()
}

/// Counts the decisions of the pathz policy: the refused operations if there are any, otherwise all operations as
/// permitted.
fn note_decisions(
    core: &impl Datastore,
    rights: &Arc<PathPermissions>,
    request: &gnmi::SetRequest,
    joined: &[JoinedPath],
    error: Option<&CommitError>,
) {
    let deletes = request.delete.len();
    let replaces = request.replace.len();
    let place = |operation: EditOperation| match operation {
        EditOperation::Delete(at) | EditOperation::UnionReplace(at) => Some(at),
        EditOperation::Replace(at) => Some(deletes + at),
        EditOperation::Update(at) => Some(deletes + replaces + at),
        EditOperation::Factory
        | EditOperation::Lease
        | EditOperation::Walk
        | EditOperation::Fence
        | EditOperation::Restore
        | EditOperation::Boot(_)
        | EditOperation::InitialConfiguration(_) => None,
    };
    let errors = match error {
        Some(CommitError::Edit(errors)) => errors.iter(),
        _ => [].iter(),
    };
    let denied = errors.filter(|error| error.cause == EditCause::Denied);
    let denied: BTreeSet<usize> = denied.filter_map(|error| place(error.operation)).collect();
    let models = core.models();
    // A node that was appended meanwhile has a name in the permissions for the newest models alone.
    let rights = rights.for_models(&models);
    for (at, path) in joined.iter().enumerate() {
        let refused = denied.contains(&at);
        let node = path.node(models.schema(path.origin));
        if let Some(node) = node.filter(|_| refused || denied.is_empty()) {
            rights.count_write(path.scope(), node, !refused);
        }
    }
}

/// Refuses a dry run to a caller who may not read everything, because its answer shows effects and former values
/// anywhere on the box; and an answer that waits, because what services wait for can be anywhere, too.
fn admit(rights: &PathPermissions, dry_run: bool, waits: bool) -> Result<(), Refusal> {
    let all = rights.reads_everything();
    if dry_run && !all {
        let reason = "a dry run shows the whole configuration: the pathz policy must permit reading all of it";
        return Err(Refusal::denied(reason));
    }
    if waits && !all {
        let reason = "`holdfast.Services` shows what services wait for anywhere on the box: the pathz policy must permit reading all of it";
        return Err(Refusal::denied(reason));
    }
    Ok(())
}

/// The edit, and the whole path of each operation in the order of the answer.
fn read_edit(
    models: &Models,
    prefix: &Prefix,
    request: &gnmi::SetRequest,
) -> Result<(Edit, Vec<JoinedPath>), Refusal> {
    let count = count(request);
    SET_OPERATIONS.check(count)?;
    JOINED_PATHS.check(prefix.size().saturating_mul(count))?;
    let mut edit = Edit::default();
    let mut joined = Vec::with_capacity(count);
    let mut target = |path: Option<&gnmi::Path>| {
        let path = prefix.join(models, path)?;
        joined.push(path.clone());
        Ok::<_, Refusal>((EditTarget { origin: path.origin, path: path.path }, path.cli))
    };
    for path in &request.delete {
        let (target, cli) = target(Some(path))?;
        if cli {
            let reason = "CLI text cannot be deleted: send `no` in an update";
            return Err(Refusal::invalid(reason));
        }
        edit.deletes.push(target);
    }
    for (updates, read) in [
        (&request.replace, &mut edit.replaces),
        (&request.update, &mut edit.updates),
        (&request.union_replace, &mut edit.union_replace),
    ] {
        for update in updates {
            let (target, cli) = target(update.path.as_ref())?;
            let payload = payload(update, cli).map_err(|refusal| refusal.at(&target.path))?;
            read.push((target, payload));
        }
    }
    prefix.check_shared(joined.iter().map(JoinedPath::origin_name))?;
    Ok((edit, joined))
}

fn payload(update: &gnmi::Update, cli: bool) -> Result<Payload, Refusal> {
    match (SetValue::read(update)?, cli) {
        (SetValue::Text(text), true) => Ok(Payload::Cli { text }),
        (SetValue::Json { text, ietf }, false) => Ok(Payload::Json { text, ietf }),
        (SetValue::Scalar(scalar), false) => Ok(Payload::Scalar(scalar)),
        (_, true) => Err(Refusal::unimplemented(
            "the encoding is not supported here: send CLI text as ascii_val",
        )),
        (SetValue::Text(_), false) => Err(encoding::unsupported("ASCII")),
    }
}

/// One result for each operation: deletes, replaces, updates and union_replaces in the order of the request. The origin
/// is in the prefix, or in each path if there are several.
fn answer(
    prefix: &Prefix,
    request: gnmi::SetRequest,
    joined: &[JoinedPath],
    time_ns: u64,
) -> gnmi::SetResponse {
    let common = joined.first().map(JoinedPath::origin_name);
    let common = common.filter(|name| joined.iter().all(|path| path.origin_name() == *name));
    let deletes =
        request.delete.into_iter().map(|path| (Some(path), update_result::Operation::Delete));
    let replaces =
        request.replace.into_iter().map(|it| (it.path, update_result::Operation::Replace));
    let updates = request.update.into_iter().map(|it| (it.path, update_result::Operation::Update));
    let unions = request
        .union_replace
        .into_iter()
        .map(|it| (it.path, update_result::Operation::UnionReplace));
    let operations = deletes.chain(replaces).chain(updates).chain(unions);
    let result =
        |((path, op), joined): ((Option<gnmi::Path>, update_result::Operation), &JoinedPath)| {
            let origin = if common.is_some() { "" } else { joined.origin_name() };
            let path = path.map(in_current_form).unwrap_or_default();
            let path = gnmi::Path { origin: origin.to_owned(), ..path };
            gnmi::UpdateResult { path: Some(path), op: op as i32, ..Default::default() }
        };
    gnmi::SetResponse {
        prefix: prefix.echo(common),
        response: operations.zip(joined).map(result).collect(),
        timestamp: time_ns.cast_signed(),
        ..Default::default()
    }
}
