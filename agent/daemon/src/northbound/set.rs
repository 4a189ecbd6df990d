//! Set: the operations of one request, as one edit, and the answer to each.

use holdfast_config::edit::{Edit, Payload, Target};
use holdfast_proto::gnmi;
use holdfast_proto::gnmi::update_result::Operation;

use super::datastore::Datastore;
use super::encoding::Supplied;
use super::extensions;
use super::path::{Access, Joined, Prefix};
use super::status::Refusal;
use crate::caller::Caller;
use crate::telemetry::view::now_ns;

pub(super) async fn set(
    core: &impl Datastore,
    caller: &Caller,
    request: gnmi::SetRequest,
) -> Result<gnmi::SetResponse, Refusal> {
    extensions::check(&request.extension)?;
    if !request.union_replace.is_empty() {
        return Err(Refusal::unimplemented("union_replace is not implemented yet"));
    }
    let prefix = Prefix::read(request.prefix.clone(), Access::Write)?;
    let (edit, origins) = read_edit(&prefix, &request)?;
    let time_ns = if edit.is_empty() {
        now_ns() // an extension may be all that a request is about
    } else {
        core.commit(caller, edit).await?.time_ns
    };
    Ok(answer(&prefix, request, &origins, time_ns))
}

/// The edit, and the whole path of each operation in the order of the answer.
fn read_edit(prefix: &Prefix, request: &gnmi::SetRequest) -> Result<(Edit, Vec<Joined>), Refusal> {
    let mut edit = Edit::default();
    let mut joined = Vec::new();
    let mut target = |path: Option<&gnmi::Path>| {
        let path = prefix.join(path)?;
        joined.push(path.clone());
        Ok::<_, Refusal>(Target { origin: path.origin, path: path.path })
    };
    for path in &request.delete {
        edit.deletes.push(target(Some(path))?);
    }
    for (updates, read) in
        [(&request.replace, &mut edit.replaces), (&request.update, &mut edit.updates)]
    {
        for update in updates {
            let target = target(update.path.as_ref())?;
            let payload = payload(update).map_err(|refusal| refusal.at(&target.path))?;
            read.push((target, payload));
        }
    }
    prefix.check_shared(&joined)?;
    Ok((edit, joined))
}

fn payload(update: &gnmi::Update) -> Result<Payload, Refusal> {
    Ok(match Supplied::read(update)? {
        Supplied::Json { text, ietf } => Payload::Json { text: text.into(), ietf },
        Supplied::Scalar(scalar) => Payload::Scalar(scalar),
    })
}

/// One result for each operation, deletes, replaces and updates in the order of the request. The
/// origin stands in the prefix, or in each path where there are several.
fn answer(
    prefix: &Prefix,
    request: gnmi::SetRequest,
    joined: &[Joined],
    time_ns: u64,
) -> gnmi::SetResponse {
    let common = joined.first().map(|first| first.origin);
    let common = common.filter(|origin| joined.iter().all(|path| path.origin == *origin));
    let deletes = request.delete.into_iter().map(|path| (Some(path), Operation::Delete));
    let replaces = request.replace.into_iter().map(|it| (it.path, Operation::Replace));
    let updates = request.update.into_iter().map(|it| (it.path, Operation::Update));
    let operations = deletes.chain(replaces).chain(updates);
    let result = |((path, op), joined): ((Option<gnmi::Path>, Operation), &Joined)| {
        let origin = if common.is_some() { "" } else { joined.origin.as_str() };
        let path = gnmi::Path { origin: origin.to_owned(), ..path.unwrap_or_default() };
        gnmi::UpdateResult { path: Some(path), op: op as i32, ..Default::default() }
    };
    gnmi::SetResponse {
        prefix: prefix.echo(common),
        response: operations.zip(joined).map(result).collect(),
        timestamp: time_ns.cast_signed(),
        ..Default::default()
    }
}
