//! Permission to read alarms, by the pathz policy.

use std::sync::Arc;

use holdfast_config::schema::{Origin, Schema};
use holdfast_config::{InstancePath, MissingNode, Models, Value};
use holdfast_faults::{Alarm, Resource};
use holdfast_security::pathz::Action;
use holdfast_security::pathz::nodes::position;

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

    /// True when a user with these rights may read the alarm, and what it is about.
    pub fn permits(&self, rights: &PathPermissions, alarm: &Alarm) -> bool {
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
        rights.is_none_or(|rights| self.places.permits(&rights, alarm))
    }
}

/// True when a user with these rights may read a node.
pub fn permits(rights: &PathPermissions, origin: Origin, path: &InstancePath) -> bool {
    position(rights.read(Scope::from(origin)), &path.0).action() == Action::Permit
}
