//! New sessions: their limits, and the consumers that they affect.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_scheduler::Now;
use smol_str::{SmolStr, format_smolstr};

use super::machine::Clock;
use super::{
    Contents, DEFAULT_CONSUMER, MAX_SESSIONS, MaintenanceSettings, NS_PER_S, ObjectProgress,
    Session, SessionConsumer, SessionError, SessionKind, SessionPlan, SessionState,
};
use crate::resource::Resource;

impl Session {
    /// A session that is announced, unless it must not be. `others` are all that there are.
    pub(crate) fn create(
        plan: SessionPlan,
        contents: &Contents,
        settings: &MaintenanceSettings,
        others: &BTreeMap<SmolStr, Self>,
        now: Now,
    ) -> Result<Self, SessionError> {
        check_plan(&plan)?;
        let drain_timeout = settings.drain_timeout;
        let mut session = Self {
            id: new_id(others, now),
            resources: plan.resources,
            kind: plan.kind,
            starts_at_ns: plan.starts_at_ns,
            ends_at_ns: plan.ends_at_ns,
            allows_isolation: plan.allows_isolation,
            created_by: plan.created_by,
            created_ns: now.unix_ns,
            state: SessionState::Announced,
            since_ns: now.unix_ns,
            reason: SmolStr::default(),
            reply_by_ns: plan.starts_at_ns.saturating_sub(nanoseconds(drain_timeout)),
            is_overdue: false,
            consumers: BTreeMap::new(),
            contents: contents.names.clone(),
            drain_timeout,
            boot: SmolStr::default(),
            restoring: None,
            keeps_drain: false,
            is_deleted: false,
            clock: Clock::default(),
            unsent: Vec::new(),
        };
        session.take_contents(contents, settings);
        session.check_time(settings, now)?;
        session.check_others(settings, others)?;
        Ok(session)
    }

    /// Takes in what stands on the resources, until they are emptied. Objects that are new have no reply; those that have gone
    /// are done.
    pub(crate) fn take_contents(&mut self, contents: &Contents, settings: &MaintenanceSettings) {
        if !matches!(self.state, SessionState::Announced | SessionState::Draining) {
            return;
        }
        self.contents.clone_from(&contents.names);
        let stuck = contents.objects.iter().filter(|it| !it.has_other_way);
        self.clock.stuck = Some(stuck.map(|it| it.name.clone()).collect());
        self.finish_objects(|name, _| !contents.names.contains(name));
        for object in &contents.objects {
            let is_known = self.consumers.values().any(|it| it.objects.contains_key(&object.name));
            if is_known {
                continue;
            }
            let found = settings.consumers.iter().find(|it| it.has(object));
            if found.is_none() && object.is_of_resource {
                continue;
            }
            let id = found.map_or(DEFAULT_CONSUMER, |it| &it.id);
            let default = found.and_then(|it| it.default_action);
            let default = default.unwrap_or(settings.default_action).in_kind(self.kind);
            let told = self.state;
            let consumer = self.consumers.entry(id.into()).or_insert_with(|| SessionConsumer {
                identity: found.and_then(|it| it.identity.clone()),
                requires_agreement: found.is_some_and(|it| it.requires_agreement),
                default_action: default,
                told,
                answer: None,
                answered_by: SmolStr::default(),
                text: SmolStr::default(),
                objects: BTreeMap::new(),
            });
            let mut progress = ObjectProgress {
                is_of_resource: object.is_of_resource,
                ..ObjectProgress::default()
            };
            if self.state == SessionState::Draining {
                progress.action = Some(progress.action_or(consumer.default_action));
            }
            consumer.objects.insert(object.name.clone(), progress);
        }
        if self.state == SessionState::Announced {
            for consumer in self.consumers.values_mut() {
                consumer.objects.retain(|name, _| contents.names.contains(name));
            }
            self.consumers.retain(|_, consumer| !consumer.objects.is_empty());
        }
    }

    /// Refuses a session that leaves consumers no time.
    fn check_time(&self, settings: &MaintenanceSettings, now: Now) -> Result<(), SessionError> {
        let affected = |id: &SmolStr| self.consumers.contains_key(id);
        let affected = settings.consumers.iter().filter(|it| affected(&it.id));
        let longest = affected.filter_map(|it| it.lead_time).max().unwrap_or_default();
        let least = settings.drain_timeout + longest.max(settings.minimum_lead_time);
        // A part of a second counts as a whole one: the request has been on its way for a while.
        let ahead = self.starts_at_ns.saturating_sub(now.unix_ns).div_ceil(NS_PER_S);
        if Duration::from_secs(ahead) < least {
            return Err(SessionError::TooSoon { least: least.as_secs(), ahead });
        }
        Ok(())
    }

    /// Refuses a session that has something of another one, or that affects too much of a consumer.
    fn check_others(
        &self,
        settings: &MaintenanceSettings,
        others: &BTreeMap<SmolStr, Self>,
    ) -> Result<(), SessionError> {
        let open: Vec<&Self> = others.values().filter(|it| it.state.is_open()).collect();
        if open.len() >= MAX_SESSIONS {
            return Err(SessionError::TooMany(MAX_SESSIONS));
        }
        for other in &open {
            if let Some(object) = self.common(other) {
                let session = other.id.clone();
                let state = other.state;
                return Err(SessionError::Overlap { object, session, state });
            }
        }
        for consumer in &settings.consumers {
            let Some(most) = consumer.max_impacted else { continue };
            let objects =
                |it: &Self| it.consumers.get(&consumer.id).map_or(0, |it| it.objects.len());
            let own = objects(self);
            let count = open.iter().map(|it| objects(it)).sum::<usize>() + own;
            if own > 0 && count > usize::try_from(most).unwrap_or(usize::MAX) {
                let consumer = consumer.id.clone();
                return Err(SessionError::MaxImpacted { consumer, count, most });
            }
        }
        Ok(())
    }

    /// Something that both sessions have.
    fn common(&self, other: &Self) -> Option<SmolStr> {
        let of_box =
            [&self.resources, &other.resources].iter().any(|it| it.contains(&Resource::Box));
        let resource = self.resources.iter().find(|it| of_box || other.resources.contains(*it));
        let resource = resource.map(|it| format_smolstr!("{it}"));
        resource.or_else(|| self.contents.intersection(&other.contents).next().cloned())
    }
}

fn check_plan(plan: &SessionPlan) -> Result<(), SessionError> {
    if plan.resources.is_empty() {
        return Err(SessionError::NoResource);
    }
    for resource in &plan.resources {
        match resource {
            Resource::Interface(_) => {}
            Resource::Box if plan.kind == SessionKind::Full => return Err(SessionError::FullBox),
            Resource::Box => {}
            other => return Err(SessionError::Resource(other.clone())),
        }
    }
    if plan.ends_at_ns.is_some_and(|ends| ends <= plan.starts_at_ns) {
        return Err(SessionError::Ends);
    }
    Ok(())
}

/// An id that no session had: the milliseconds since 1970, or more.
fn new_id(others: &BTreeMap<SmolStr, Session>, now: Now) -> SmolStr {
    let known = others.keys().filter_map(|id| id.parse::<u64>().ok()).max();
    let id = (now.unix_ns / 1_000_000).max(known.map_or(0, |id| id + 1));
    format_smolstr!("{id}")
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
