//! Synchronisation of a handler that has just attached: it is told once it got all calls that waited for it.

use std::collections::BTreeSet;

use holdfast_config::ServiceTag;
use smol_str::SmolStr;

use super::Registry;
use crate::services::handlers::messages::AgentMessage;

/// Extent to which a handler got the calls that waited for it.
#[derive(Debug)]
pub(super) enum Sync {
    /// The instances of its types are to be walked.
    Due,
    /// Instances that wait for it are noted for the walks that are tried next.
    Noted,
    /// Instances whose walks have calls for it that were not sent yet.
    Awaiting(BTreeSet<ServiceTag>),
    Done,
}

impl Registry {
    /// Service types of the handlers that have attached since the last time: their instances are to be walked.
    pub(in super::super) fn take_due_services(&mut self) -> BTreeSet<SmolStr> {
        let mut services = BTreeSet::new();
        for session in self.sessions.values_mut().filter(|it| matches!(it.synced, Sync::Due)) {
            session.synced = Sync::Noted;
            services.extend(session.served.iter().map(|call| call.service.clone()));
        }
        services
    }

    /// Notes the walks that the handlers wait for whose instances were tried. A handler that has attached meanwhile
    /// did not take part in that.
    pub(in super::super) fn await_walks(&mut self, tags: &BTreeSet<ServiceTag>) {
        for session in self.sessions.values_mut() {
            if matches!(session.synced, Sync::Noted) {
                let is_of = |tag: &&ServiceTag| {
                    session.served.iter().any(|call| call.service == tag.service)
                };
                session.synced = Sync::Awaiting(tags.iter().filter(is_of).cloned().collect());
            }
        }
        self.note_walked([]);
    }

    /// Notes instances whose calls were sent, or whose walks have ended.
    pub(in super::super) fn note_walked<'t>(
        &mut self,
        tags: impl IntoIterator<Item = &'t ServiceTag>,
    ) {
        let tags: BTreeSet<_> = tags.into_iter().collect();
        let mut complete = Vec::new();
        for (id, session) in &mut self.sessions {
            if let Sync::Awaiting(awaited) = &mut session.synced {
                awaited.retain(|tag| !tags.contains(tag));
                if awaited.is_empty() && self.actions.is_complete() {
                    session.synced = Sync::Done;
                    complete.push(*id);
                }
            }
        }
        for id in complete {
            self.send(id, AgentMessage::Synced);
        }
    }
}
