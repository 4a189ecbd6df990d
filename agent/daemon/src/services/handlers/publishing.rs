//! State leaves that handlers publish: nodes of the instances of their types that are `config false`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_config::json::{self, DocumentContent, Flavour};
use holdfast_config::{Configuration, InstancePath, LeafMark, Limit, Path, Value};
use holdfast_core::{CoreHandle, Datastore};
use smol_str::SmolStr;
use tokio::time::sleep;

use super::messages::{HandlerError, HandlerErrorKind};
use super::registry::SessionId;

/// Time for which published leaves outlast their handler: a restart of it withdraws nothing.
pub(super) const WITHDRAWAL_DELAY: Duration = Duration::from_secs(60);
/// Leaves that all handlers together may publish.
const MAX_PUBLISHED: usize = 100_000;

/// Bytes of published leaves, those of handlers that were lost among them: by user, so that a handler that comes back again
/// and again gets no more.
static PUBLISHED_BY_USER: Limit = Limit {
    name: "published-by-user",
    figure: 4 << 20,
    unit: "bytes in the leaves that the handlers of a user publish",
    reason: "thirty thousand leaves with a short value",
};
static PUBLISHED: Limit = Limit {
    name: "published",
    figure: 32 << 20,
    unit: "bytes in the leaves that handlers publish",
    reason: "eight users with as much as one may have, at little of the memory of a box",
};

/// Published leaves.
#[derive(Debug, Default)]
pub(super) struct PublishedLeaves(Mutex<Leaves>);

#[derive(Debug, Default)]
struct Leaves {
    by_path: BTreeMap<InstancePath, PublishedLeaf>,
    /// Sums of their bytes by user.
    octets: BTreeMap<SmolStr, usize>,
}

/// A published leaf, with the session that published it last.
#[derive(Debug)]
struct PublishedLeaf {
    owner: SessionId,
    /// Name of the caller of that session.
    user: SmolStr,
    /// Bytes of its path and of its value in JSON.
    octets: usize,
}

/// The handler that publishes.
#[derive(Clone, Debug)]
pub(super) struct Publisher {
    pub(super) id: SessionId,
    /// Name of its caller.
    pub(super) user: SmolStr,
    /// Types that it serves.
    pub(super) served: BTreeSet<SmolStr>,
}

impl PublishedLeaves {
    fn leaves(&self) -> MutexGuard<'_, Leaves> {
        // Each change of them is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a leaf of state, or withdraws it when there is no value.
    pub(super) async fn publish(
        &self,
        core: &CoreHandle,
        by: Publisher,
        text: &str,
        json: &str,
    ) -> Result<(), HandlerError> {
        let (path, value) = leaf(&core.configuration(), &by.served, text, json)?;
        if value.is_none() {
            self.leaves().remove(&path);
        } else {
            let Publisher { id: owner, user, .. } = by;
            let octets = text.len() + json.len();
            self.leaves().put(&path, PublishedLeaf { owner, user, octets })?;
        }
        core.show_state(vec![(path, value)]).await;
        Ok(())
    }

    /// Withdraws the leaves of a session that has ended, unless another one publishes them meanwhile.
    pub(super) async fn withdraw_late(&self, core: &CoreHandle, id: SessionId) {
        if !self.leaves().by_path.values().any(|leaf| leaf.owner == id) {
            return;
        }
        sleep(WITHDRAWAL_DELAY).await;
        let gone = self.leaves().remove_all_of(id);
        let leaves = gone.into_iter().map(|path| (path, None)).collect();
        core.show_state(leaves).await;
    }
}

impl Leaves {
    /// Notes a leaf in the place of the one at this path, if there is room for it.
    fn put(&mut self, path: &InstancePath, leaf: PublishedLeaf) -> Result<(), HandlerError> {
        let exhausted = |text| HandlerError::new(HandlerErrorKind::Exhausted, text);
        let replaced = self.by_path.get(path);
        if self.by_path.len() >= MAX_PUBLISHED && replaced.is_none() {
            return Err(exhausted(format!("{MAX_PUBLISHED} leaves are published already")));
        }
        let freed = replaced.map_or(0, |it| it.octets);
        let freed_of_user = replaced.filter(|it| it.user == leaf.user).map_or(0, |it| it.octets);
        let of_user = self.octets.get(&leaf.user).copied().unwrap_or_default();
        let room = PUBLISHED_BY_USER.check(of_user - freed_of_user + leaf.octets).and_then(|()| {
            PUBLISHED.check(self.octets.values().sum::<usize>() - freed + leaf.octets)
        });
        room.map_err(|error| exhausted(error.to_string()))?;
        self.remove(path);
        *self.octets.entry(leaf.user.clone()).or_default() += leaf.octets;
        self.by_path.insert(path.clone(), leaf);
        Ok(())
    }

    fn remove(&mut self, path: &InstancePath) {
        let Some(leaf) = self.by_path.remove(path) else { return };
        if let Some(octets) = self.octets.get_mut(&leaf.user) {
            *octets -= leaf.octets;
            if *octets == 0 {
                self.octets.remove(&leaf.user);
            }
        }
    }

    /// Removes the leaves of a session, and returns their paths.
    fn remove_all_of(&mut self, id: SessionId) -> Vec<InstancePath> {
        let own = self.by_path.iter().filter(|(_, leaf)| leaf.owner == id);
        let paths: Vec<_> = own.map(|(path, _)| path.clone()).collect();
        paths.iter().for_each(|path| self.remove(path));
        paths
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
        return Err(invalid("the path is not a leaf of an instance".to_owned()));
    };
    let module = |node| &schema.module(schema.node(node).module).name;
    let service = &schema.node(instance.node).name;
    let is_served = served.iter().any(|it| it == &**service && it == module(instance.node));
    let is_own = module(last.node) == module(instance.node) && !schema.node(last.node).config;
    if !is_served || !is_own {
        let reason =
            format!("`{text}` is not state of an instance of a type that the handler serves");
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
