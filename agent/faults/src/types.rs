//! The types of alarms that this version can raise.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Time for a value that could not be set to be tried again, or for the change that set it to be taken back.
const RETRY_TIME: Duration = Duration::from_secs(5);
/// Time in which a link that has just been configured is made.
const CREATION_TIME: Duration = Duration::from_secs(1);

/// Time in which a handler comes back that is started anew.
const HANDLER_RETURN_TIME: Duration = Duration::from_secs(60);

/// Name of the type of alarm about a reporter that does not repeat in time.
pub(crate) const MONITOR_SILENT: &str = "monitor-silent";

/// Time in which repairs of an object are counted, and after which one that was not repaired again is quiet.
pub const DRIFT_WINDOW: Duration = Duration::from_secs(60);
/// Repairs within that time at which somebody else seems to manage the object, too.
const DRIFT_REPAIRS: u32 = 4;

/// How bad a fault is; the names are those of OpenConfig. The worst one is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Severity {
    Warning,
    Minor,
    Major,
    Critical,
}

impl Severity {
    pub const ALL: [Self; 4] = [Self::Warning, Self::Minor, Self::Major, Self::Critical];

    pub fn name(self) -> &'static str {
        match self {
            Self::Warning => "WARNING",
            Self::Minor => "MINOR",
            Self::Major => "MAJOR",
            Self::Critical => "CRITICAL",
        }
    }

    /// The severity of a name, in letters of either case.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a fault of a resource bears on the resource itself, and on what stands on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// The resource does not work, nor does what has nothing else to stand on.
    Down,
    /// The resource and all that stands on it work worse.
    Degrade,
    /// The alarm alone.
    Warn,
}

holdfast_config::enum_names!(Effect {
    Down = "down",
    Degrade = "degrade",
    Warn = "warn",
});

/// One type of alarm.
#[derive(Debug)]
pub struct AlarmType {
    pub name: &'static str,
    /// Severity, unless the report or a policy has another one.
    pub severity: Severity,
    /// Effect on the resource and what stands on it, unless a policy has another one.
    pub effect: Effect,
    /// How long its condition holds before an alarm is raised, unless a policy says otherwise.
    pub raise_after: Duration,
    /// How often its condition begins within `window` before an alarm is raised, unless a policy says otherwise.
    pub count: u32,
    pub window: Duration,
    /// For the guide: when the condition holds.
    pub description: &'static str,
    /// The type that is raised when this one comes and goes too often.
    pub flapping: Option<&'static str>,
}

/// A type without a delay that comes and goes without further consequence.
const fn simple(name: &'static str, severity: Severity, description: &'static str) -> AlarmType {
    AlarmType {
        name,
        severity,
        effect: Effect::Warn,
        raise_after: Duration::ZERO,
        count: 1,
        window: Duration::ZERO,
        description,
        flapping: None,
    }
}

/// A type whose resource does not work.
const fn outage(name: &'static str, severity: Severity, description: &'static str) -> AlarmType {
    AlarmType { effect: Effect::Down, ..simple(name, severity, description) }
}

/// How the names of types begin that reporters have made up.
pub(crate) const REPORTED_TYPES: &str = "x-";

/// The row of types that reporters have made up.
pub(crate) static REPORTED: AlarmType = simple(
    "x-NAME",
    Severity::Warning,
    "A program that reports faults has made this type up. The severity is the one that it gives.",
);

/// All types, by name.
pub static TYPES: &[AlarmType] = &[
    simple(
        "action-in-doubt",
        Severity::Minor,
        "An action of a service was begun, and nobody knows whether it was done. `holdfast service resolve` says so.",
    ),
    simple(
        "address-duplicate",
        Severity::Minor,
        "Another host on the link has this IPv6 address, so the kernel does not use it.",
    ),
    simple(
        "certificate-expiring",
        Severity::Warning,
        "The certificate that clients are shown expires within 14 days. MAJOR once it has expired.",
    ),
    AlarmType {
        count: DRIFT_REPAIRS,
        window: DRIFT_WINDOW,
        ..simple(
            "config-drift",
            Severity::Warning,
            "An object was repaired more than 3 times within 60 s: something else changes it again and again.",
        )
    },
    outage(
        "data-plane-down",
        Severity::Major,
        "A reporter says that the resource forwards nothing. Its operational status stays as the kernel has it.",
    ),
    simple(
        "fault-overflow",
        Severity::Minor,
        "More conditions hold than the agent keeps; further ones are only counted.",
    ),
    simple(
        "fence-failed",
        Severity::Major,
        "Something is to be shut or drained because of an alarm, and that is refused, for instance because something would lose its last way.",
    ),
    outage(
        "forced-down",
        Severity::Major,
        "A reporter or an operator says that the resource is down, and it is shown as down until that is lifted.",
    ),
    AlarmType {
        raise_after: HANDLER_RETURN_TIME,
        ..simple(
            "handler-lost",
            Severity::Minor,
            "A handler of services was attached and is gone, and no other one does its work.",
        )
    },
    simple(
        "image-fell-back",
        Severity::Major,
        "The version of the software that was activated last does not run, or not with its configuration.",
    ),
    simple(
        "lease-lost",
        Severity::Major,
        "A lease of the port for DHCP has ended, and no server has granted another one. The address and routes that came with it are gone.",
    ),
    AlarmType {
        flapping: Some("link-flapping"),
        ..outage(
            "link-down",
            Severity::Major,
            "A configured link that is administratively up does not work, for instance because it has no carrier.",
        )
    },
    simple(
        "link-flapping",
        Severity::Minor,
        "A link lost its carrier more than 5 times in 10 s. Its `link-down` stays until the link has been quiet for 10 s.",
    ),
    AlarmType {
        raise_after: CREATION_TIME,
        ..outage("link-missing", Severity::Major, "A configured link is not there.")
    },
    AlarmType {
        raise_after: RETRY_TIME,
        ..simple(
            "listener-unavailable",
            Severity::Minor,
            "The agent cannot listen on an address that it was told to listen on.",
        )
    },
    simple(
        "monitor-lost",
        Severity::Warning,
        "Faults were not looked for, because of a bug in the agent. The alarm stays for 10 minutes after they are looked for again.",
    ),
    simple(
        MONITOR_SILENT,
        Severity::Minor,
        "A reporter has not repeated within its ttl what it had reported, so nobody knows whether that still holds.",
    ),
    outage("next-hop-unreachable", Severity::Major, "The targets of a probe do not answer."),
    AlarmType {
        raise_after: RETRY_TIME,
        ..simple(
            "package-invalid",
            Severity::Major,
            "A package of services could not be loaded when the agent started, so nothing is done about its instances.",
        )
    },
    simple(
        "plan-failed",
        Severity::Major,
        "A state of a service instance has failed, or nothing of the instance can be evaluated.",
    ),
    simple(
        "queue-overflow",
        Severity::Warning,
        "A reporter sends more than its rate permits, so that some of its reports are refused.",
    ),
    simple(
        "rule-matched",
        Severity::Major,
        "An alarm is open that an alarm rule fits. The severity is that of the rule.",
    ),
    simple(
        "session-failed",
        Severity::Major,
        "A maintenance session has failed, or goes on beyond its planned end. The alarm ends when the session is deleted, or when its work is done.",
    ),
    simple(
        "storage-low",
        Severity::Major,
        "Less than 5 % of the disk with the state folder is free.",
    ),
    simple(
        "store-failed",
        Severity::Critical,
        "The disk refuses the database: changes are refused until it takes them again.",
    ),
    outage(
        "uplinks-down",
        Severity::Major,
        "Fewer members of an uplink group are left than it needs, so its dependents do not work.",
    ),
    AlarmType {
        raise_after: RETRY_TIME,
        ..simple(
            "value-failed",
            Severity::Minor,
            "An object of the configuration is not in the system because its last operation failed.",
        )
    },
    simple(
        "zombie-stuck",
        Severity::Minor,
        "A service instance that is deleted or not deployed cannot take back what it made.",
    ),
];

impl AlarmType {
    pub fn by_name(name: &str) -> Option<&'static Self> {
        TYPES.iter().find(|kind| kind.name == name)
    }
}
