//! Permission to read alarms, by the pathz policy, and maintenance sessions.

use std::sync::Arc;

use holdfast_base::Caller;
use holdfast_config::schema::{Origin, Schema};
use holdfast_config::{InstancePath, MissingNode, Models, Value};
use holdfast_faults::{
    Alarm, Resource, Session, SessionChange, SessionConsumer, SessionEvent, Transition,
};
use holdfast_security::pathz::Action;
use holdfast_security::pathz::nodes::position;

use smol_str::SmolStr;

use super::filter::AlarmFilter;
use crate::gnsi::Pathz;
use crate::gnsi::pathz::{PathPermissions, Scope};

/// The paths of an alarm and of what it may be about.
#[derive(Debug)]
pub struct AlarmPlaces {
    alarm: InstancePath,
    interface: InstancePath,
}

impl AlarmPlaces {
    /// # Errors
    /// When the native model lacks a node, which the first test finds.
    pub fn find(native: &Schema) -> Result<Self, MissingNode> {
        let alarm = ("alarm", &[("id", "any")][..]);
        let interface = ("interface", &[("name", "any")][..]);
        Ok(Self {
            alarm: native.instance_path(&[("fault-state", &[][..]), alarm])?,
            interface: native.instance_path(&[("interfaces", &[][..]), interface])?,
        })
    }

    /// True when a user with these rights may read the alarm, and what it is about. `None` when nothing is restricted.
    pub fn permits(&self, rights: Option<&PathPermissions>, alarm: &Alarm) -> bool {
        let Some(rights) = rights else { return true };
        let may_read = |path: &InstancePath, key: &str| {
            let path = path.clone().with_last_key(Value::Str(key.into()));
            permits(rights, Origin::Native, &path)
        };
        may_read(&self.alarm, &alarm.condition.to_string())
            && match &alarm.condition.resource {
                Resource::Interface(name) => may_read(&self.interface, name),
                _ => true,
            }
    }
}

/// The alarms that one reader sees: those of a filter that the pathz policy permits.
#[derive(Debug)]
pub struct AlarmView {
    pub filter: AlarmFilter,
    pub rights: Option<Arc<PathPermissions>>,
    pub places: Arc<AlarmPlaces>,
}

impl AlarmView {
    pub fn shows(&self, alarm: &Alarm) -> bool {
        self.filter.matches(alarm) && self.places.permits(self.rights.as_deref(), alarm)
    }

    pub fn shows_transition(&self, transition: &Transition) -> bool {
        let is_permitted = self.places.permits(self.rights.as_deref(), &transition.alarm);
        is_permitted && self.filter.matches_transition(transition)
    }
}

/// The sessions that one reader sees: administrators see everything, others what affects their consumers.
#[derive(Clone, Debug)]
pub struct SessionView {
    user: SmolStr,
    sees_all: bool,
}

impl SessionView {
    pub fn of(caller: &Caller) -> Self {
        Self { user: caller.name.clone(), sees_all: caller.may_write() }
    }

    fn shows(&self, consumer: &SessionConsumer) -> bool {
        self.sees_all || consumer.identity.as_ref() == Some(&self.user)
    }

    /// A session with the consumers that the reader sees; `None` where it affects none of them.
    pub fn session(&self, session: &Session) -> Option<Session> {
        let mut seen = session.clone();
        if self.sees_all {
            return Some(seen);
        }
        seen.consumers.retain(|_, consumer| self.shows(consumer));
        // These name what is not the consumer's.
        seen.resources.clear();
        seen.created_by = SmolStr::default();
        seen.reason = SmolStr::default();
        (!seen.consumers.is_empty()).then_some(seen)
    }

    /// True for an event that the reader is told.
    pub fn shows_event(&self, event: &SessionEvent) -> bool {
        let is_own = |id: &SmolStr| {
            event.session.consumers.get(id).is_some_and(|consumer| self.shows(consumer))
        };
        // A session that is forgotten is so for everyone who has seen it.
        match &event.step.consumer {
            Some(id) => is_own(id),
            None if self.sees_all => true,
            None => {
                event.step.change == SessionChange::Forgotten
                    && event.session.consumers.values().any(|consumer| self.shows(consumer))
            }
        }
    }

    /// An event with what the reader sees of its session.
    pub fn event(&self, event: &SessionEvent) -> Option<SessionEvent> {
        if !self.shows_event(event) {
            return None;
        }
        let session = self.session(&event.session)?;
        Some(SessionEvent { step: Arc::clone(&event.step), session: session.into() })
    }
}

/// The rights of users who own alarm rules.
#[derive(Clone, Debug)]
pub(super) struct RuleOwners {
    pub(super) pathz: Arc<Pathz>,
    pub(super) places: Arc<AlarmPlaces>,
    /// Models that the agent began with: modules that come later have nothing to do with alarms.
    pub(super) models: Arc<Models>,
}

impl RuleOwners {
    /// True when the owner may read the alarm, and what it is about.
    pub(super) fn permit_alarm(&self, owner: &str, alarm: &Alarm) -> bool {
        let rights = self.pathz.rights(owner, &self.models);
        self.places.permits(rights.as_deref(), alarm)
    }
}

/// True when a user with these rights may read a node.
pub fn permits(rights: &PathPermissions, origin: Origin, path: &InstancePath) -> bool {
    position(rights.read(Scope::from(origin)), &path.0).action() == Action::Permit
}
