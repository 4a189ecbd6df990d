//! Settings of what is told of a link's status, which the core takes as they are: no kernel object stands for them.

use std::time::Duration;

use holdfast_config::{NodeId, Value};

use super::OperState;
use super::native::{LinkStateNodes, NativeLink};
use crate::kinds::entry::{Entry, ObjectError};
use crate::kinds::state::Leaves;

/// Settings of one link. The default holds nothing back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatusSettings {
    /// How long the link has to work before that is told.
    pub hold_up: Option<Duration>,
    /// How long it has to be down before that is told.
    pub hold_down: Option<Duration>,
    /// Penalties for losses of the carrier.
    pub penalty: PenaltySettings,
    /// Traffic is to leave the link where it has another way: its `forwarding-viable` is false.
    pub is_drained: bool,
}

/// Cost of the losses of a link, as it is configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PenaltySettings {
    /// Time in which half of the penalty goes.
    pub half_life: Option<Duration>,
    /// Penalty of one loss.
    pub flap_penalty: Option<u32>,
    /// Penalty from which on the link is told as down.
    pub suppress: Option<u32>,
    /// Penalty down to which it is.
    pub reuse: Option<u32>,
    /// Longest time since the last loss for which it is.
    pub max_suppress: Option<Duration>,
}

/// Reason for which a link is told as down, whatever the kernel shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownBy {
    /// It lost its carrier too often.
    Penalty,
    /// Somebody holds it down.
    Forced,
}

// The enum name of the native model.
holdfast_config::enum_names!(DownBy {
    Penalty = "PENALTY",
    Forced = "FORCED",
});

/// Status of a link, as it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// The status that is told.
    pub told: OperState,
    /// When that changed, in nanoseconds since 1970.
    pub changed_ns: u64,
    /// Status that the kernel shows, if it is another one.
    pub observed: Option<OperState>,
    /// Reason for which it is told as down in any case.
    pub down_by: Option<DownBy>,
    /// Settings that it follows from.
    pub settings: LinkStatusSettings,
}

impl NativeLink {
    /// Settings of what is told of the status of the link that an entry configures.
    pub(crate) fn link_status_settings(&self, entry: &Entry<'_>) -> LinkStatusSettings {
        let nodes = &self.nodes;
        let hold = entry.container(nodes.hold_time);
        let hold = |leaf| milliseconds(hold.as_ref(), leaf);
        let penalty = entry.container(nodes.penalty);
        let number = |leaf| penalty.as_ref().and_then(|it| it.number(leaf));
        LinkStatusSettings {
            hold_up: hold(nodes.hold_time_up),
            hold_down: hold(nodes.hold_time_down),
            penalty: PenaltySettings {
                half_life: milliseconds(penalty.as_ref(), nodes.penalty_half_life),
                flap_penalty: number(nodes.penalty_flap),
                suppress: number(nodes.penalty_suppress),
                reuse: number(nodes.penalty_reuse),
                max_suppress: milliseconds(penalty.as_ref(), nodes.penalty_max_suppress),
            },
            is_drained: entry.bool(nodes.forwarding_viable) == Some(false),
        }
    }

    /// Refuses a penalty that would end above the figure from which on it counts.
    pub(crate) fn check_penalty(&self, entry: &Entry<'_>) -> Result<(), ObjectError> {
        let nodes = &self.nodes;
        let PenaltySettings { suppress, reuse, .. } = self.link_status_settings(entry).penalty;
        let (Some(suppress), Some(reuse)) = (suppress, reuse) else { return Ok(()) };
        if suppress == 0 || reuse <= suppress {
            return Ok(());
        }
        let reason = format!(
            "the penalty {reuse} at which the link is reported again must not exceed the penalty {suppress} at which it is suppressed"
        );
        Err(entry.inner_error(nodes.penalty, nodes.penalty_reuse, reason))
    }
}

impl LinkStatusSettings {
    /// Puts the configured settings where state shows them.
    pub(crate) fn show(&self, nodes: &LinkStateNodes, leaves: &mut Leaves) {
        let milliseconds = |time: Option<Duration>| {
            time.map(|time| Value::Uint(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
        };
        leaves.put(nodes.state_forwarding_viable, Value::Bool(!self.is_drained));
        let number = |number: Option<u32>| number.map(|number| Value::Uint(number.into()));
        let penalty = &self.penalty;
        for (container, leaf, value) in [
            (nodes.state_hold_time, nodes.state_hold_time_up, milliseconds(self.hold_up)),
            (nodes.state_hold_time, nodes.state_hold_time_down, milliseconds(self.hold_down)),
            (nodes.state_penalty, nodes.state_penalty_half_life, milliseconds(penalty.half_life)),
            (nodes.state_penalty, nodes.state_penalty_flap, number(penalty.flap_penalty)),
            (nodes.state_penalty, nodes.state_penalty_suppress, number(penalty.suppress)),
            (nodes.state_penalty, nodes.state_penalty_reuse, number(penalty.reuse)),
            (
                nodes.state_penalty,
                nodes.state_penalty_max_suppress,
                milliseconds(penalty.max_suppress),
            ),
        ] {
            if let Some(value) = value {
                leaves.put_below(container, leaf, value);
            }
        }
    }
}

fn milliseconds(entry: Option<&Entry<'_>>, leaf: NodeId) -> Option<Duration> {
    entry?.number(leaf).map(Duration::from_millis)
}
