//! State leaves that handlers publish: nodes of the instances of their types that are `config false`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_config::json::{self, DocumentContent, Flavour};
use holdfast_config::{Configuration, InstancePath, LeafMark, Path, Value};
use holdfast_core::{CoreHandle, Datastore};
use smol_str::SmolStr;
use tokio::time::sleep;

use super::messages::{HandlerError, HandlerErrorKind};
use super::registry::SessionId;

/// Time for which published leaves outlast their handler: a restart of it withdraws nothing.
pub(super) const WITHDRAWAL_DELAY: Duration = Duration::from_secs(60);
/// Leaves that all handlers together may publish.
const MAX_PUBLISHED: usize = 100_000;

/// Published leaves, each with the session that published it last.
#[derive(Debug, Default)]
pub(super) struct PublishedLeaves(Mutex<BTreeMap<InstancePath, SessionId>>);

impl PublishedLeaves {
    fn owners(&self) -> MutexGuard<'_, BTreeMap<InstancePath, SessionId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a leaf of state, or withdraws it when there is no value.
    pub(super) async fn publish(
        &self,
        core: &CoreHandle,
        (id, served): (SessionId, &BTreeSet<SmolStr>),
        path: &str,
        json: &str,
    ) -> Result<(), HandlerError> {
        let (path, value) = leaf(&core.configuration(), served, path, json)?;
        {
            let mut owners = self.owners();
            if value.is_none() {
                owners.remove(&path);
            } else if owners.len() >= MAX_PUBLISHED && !owners.contains_key(&path) {
                let text = format!("{MAX_PUBLISHED} leaves are published already");
                return Err(HandlerError::new(HandlerErrorKind::Exhausted, text));
            } else {
                owners.insert(path.clone(), id);
            }
        }
        core.show_state(vec![(path, value)]).await;
        Ok(())
    }

    /// Withdraws the leaves of a session that has ended, unless another one publishes them meanwhile.
    pub(super) async fn withdraw_late(&self, core: &CoreHandle, id: SessionId) {
        if !self.owners().values().any(|owner| *owner == id) {
            return;
        }
        sleep(WITHDRAWAL_DELAY).await;
        let leaves: Vec<_> = {
            let mut owners = self.owners();
            owners.extract_if(.., |_, owner| *owner == id).map(|(path, _)| (path, None)).collect()
        };
        core.show_state(leaves).await;
    }
}

/// A leaf of state below an instance of one of the types, with its value.
fn leaf(
    configuration: &Configuration,
    served: &BTreeSet<SmolStr>,
    text: &str,
    json: &str,
) -> Result<(InstancePath, Option<Value>), HandlerError> {
    let invalid = |reason: String| {
        HandlerError::new(HandlerErrorKind::Invalid, format!("`{text}`: {reason}"))
    };
    let schema = &configuration.models().native;
    let path: Path = text.parse().map_err(|error| invalid(format!("{error}")))?;
    let path = schema.resolve_write(&path).map_err(|error| invalid(error.to_string()))?;
    let (Some(instance), Some(last)) = (path.0.get(1), path.last()) else {
        return Err(invalid("it is no leaf of an instance".to_owned()));
    };
    let module = |node| &schema.module(schema.node(node).module).name;
    let service = &schema.node(instance.node).name;
    let is_served = served.iter().any(|it| it == &**service && it == module(instance.node));
    let is_own = module(last.node) == module(instance.node) && !schema.node(last.node).config;
    if !is_served || !is_own {
        let reason =
            format!("`{text}` is no state of an instance of a type that the handler serves");
        return Err(HandlerError::new(HandlerErrorKind::Denied, reason));
    }
    if json.is_empty() {
        return Ok((path, None));
    }
    let read =
        json::parse(schema, &path, json.as_bytes(), Flavour::Ietf, false, LeafMark::Explicit);
    match read.map_err(|error| invalid(error.to_string()))?.content {
        DocumentContent::Leaf(value) => Ok((path, Some(value))),
        DocumentContent::Branch(_) | DocumentContent::List(_) => {
            Err(invalid("one leaf is published at a time".to_owned()))
        }
    }
}
