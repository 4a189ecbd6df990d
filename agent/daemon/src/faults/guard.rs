//! The guard of shutting: what would lose its last way if an interface were shut.
//!
//! The core knows what stands on the interface ([`CoreHandle::last_way`]); here is what it does not know: to which addresses
//! administrators are connected or logged in over SSH, and how many members uplink groups have left.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_config::FenceOwner;
use holdfast_core::{CommitError, CoreHandle, Datastore as _, LastWay};
use holdfast_faults::{GroupStanding, Resource};
use holdfast_platform::netns::Netns;
use smol_str::SmolStr;

use super::fencer::shut_by;
use crate::connections::OpenConnections;
use crate::ssh_logins;

/// Reason for which something is not fenced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    #[error("{interface} is not shut: {last_way}")]
    LastWay { interface: SmolStr, last_way: LastWay },
    #[error(
        "{interface} is not shut: the uplink group or bond `{group}` needs {least} members, and has no more"
    )]
    Group { interface: SmolStr, group: SmolStr, least: usize },
    #[error("{0} cannot be shut: only interfaces can")]
    NoInterface(Resource),
    #[error("{0} cannot be drained: only interfaces and next hops can")]
    NoWay(Resource),
    #[error(transparent)]
    Refused(#[from] CommitError),
}

/// Refuses to shut an interface that is the last way of something.
#[derive(Debug)]
pub(super) struct Guard {
    core: CoreHandle,
    groups: Mutex<Arc<[GroupStanding]>>,
    connections: OpenConnections,
    /// The network namespace that the agent manages.
    netns: Arc<Netns>,
}

impl Guard {
    pub(super) fn new(core: CoreHandle, connections: OpenConnections, netns: Arc<Netns>) -> Self {
        Self { core, groups: Mutex::default(), connections, netns }
    }

    /// Takes in which members uplink groups have left.
    pub(super) fn set_groups(&self, groups: Vec<GroupStanding>) {
        *self.groups.lock().unwrap_or_else(PoisonError::into_inner) = groups.into();
    }

    /// Refuses to shut an interface on behalf of an owner where something would lose its last way. An interface that
    /// the owner has shut already takes no way.
    ///
    /// # Errors
    /// With what would lose its way, or when the core does not know.
    pub(super) async fn check(
        &self,
        owner: &FenceOwner,
        interface: &SmolStr,
    ) -> Result<(), FenceError> {
        let mut shut = BTreeSet::new();
        for (item, owners) in self.core.configuration().fence_items() {
            let Some(name) = shut_by(item) else { continue };
            if name == *interface && owners.contains(owner) {
                return Ok(());
            }
            shut.insert(name);
        }
        if let Some(group) = self.group_without(interface, &shut) {
            let GroupStanding { name, least, .. } = group;
            return Err(FenceError::Group { interface: interface.clone(), group: name, least });
        }
        let mut sessions = self.connections.of_admins();
        sessions.extend(ssh_logins::addresses(&self.netns).await);
        match self.core.last_way(interface, &sessions).await? {
            Some(last_way) => Err(FenceError::LastWay { interface: interface.clone(), last_way }),
            None => Ok(()),
        }
    }

    /// An uplink group that has enough members now, and would not have without this one. Groups that are shut do not
    /// count.
    fn group_without(
        &self,
        interface: &SmolStr,
        shut: &BTreeSet<SmolStr>,
    ) -> Option<GroupStanding> {
        let groups = Arc::clone(&self.groups.lock().unwrap_or_else(PoisonError::into_inner));
        let needs = |group: &&GroupStanding| {
            let left: BTreeSet<&SmolStr> = group.left.difference(shut).collect();
            left.contains(interface) && left.len() == group.least
        };
        groups.iter().find(needs).cloned()
    }
}
