//! Extensions of requests, read and checked.
//!
//! An unknown extension, registered or not, is ignored: it may not change the meaning of the request, so doing the
//! request is right. A known one that has no meaning in its request is refused by name: a client that limits the depth
//! of a Set has a mistake to find. So is one that is given twice.

pub(super) mod plan;
pub(super) mod wait;

use std::num::NonZeroU32;
use std::time::Duration;

use holdfast_core::{CommitOptions, ConfirmAction, Confirmation, Election};
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::gnmi_ext::extension::Ext;
use holdfast_proto::gnmi_ext::{self, Extension, commit, config_subscription, history};

use self::plan::PlanOption;
use self::wait::WaitOption;
use super::status::Refusal;

/// Time in which a commit must be confirmed if the client names none.
const DEFAULT_ROLLBACK: Duration = Duration::from_secs(600);
/// The longest time in which a commit must be confirmed. A client that needs more does not watch, and the layers before
/// the commit take memory.
const MAX_ROLLBACK: Duration = Duration::from_secs(30 * 24 * 3600);
/// Bytes of an id that a client gives to a commit or a role.
const MAX_ID: usize = 256;

/// Options of a Set, from its extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SetExtensions {
    pub(super) options: CommitOptions,
    /// True when the effects are to be reported, and nothing is to be changed.
    pub(super) dry_run: bool,
    /// Condition that the answer waits for, beside the commit.
    pub(super) wait: Option<WaitOption>,
}

/// Options of a Get or Subscribe, from its extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReadExtensions {
    /// Levels below each path that are wanted; all for `None`.
    pub(super) depth: Option<NonZeroU32>,
    /// True when configuration alone is wanted, with a mark after each commit.
    pub(super) configuration: bool,
    history: Option<gnmi_ext::History>,
}

impl SetExtensions {
    pub(super) fn read(extensions: &[Extension]) -> Result<Self, Refusal> {
        let mut wishes = Self::default();
        for ext in known_extensions(extensions)? {
            match ext {
                KnownExtension::Commit(commit) => {
                    wishes.options.confirmation = Some(confirmation(commit)?);
                }
                KnownExtension::Arbitration(arbitration) => {
                    wishes.options.election = Some(election(arbitration)?);
                }
                KnownExtension::Plan(PlanOption::DryRun) => wishes.dry_run = true,
                KnownExtension::Plan(PlanOption::Expected(hash)) => {
                    wishes.options.expected_plan = Some(hash)
                }
                KnownExtension::Wait(wait) => wishes.wait = Some(wait),
                other => return Err(other.misplaced("a Set")),
            }
        }
        if wishes.dry_run && wishes.wait.is_some() {
            let text = "a dry run commits nothing that `holdfast.Services` could wait for";
            return Err(Refusal::invalid(text));
        }
        Ok(wishes)
    }
}

impl ReadExtensions {
    pub(super) fn of_get(extensions: &[Extension]) -> Result<Self, Refusal> {
        let wishes = Self::read(extensions, "a Get")?;
        match (&wishes.history, wishes.configuration) {
            (Some(_), _) => Err(Refusal::invalid("`history` has no meaning in a Get")),
            (_, true) => Err(Refusal::invalid("`config_subscription` has no meaning in a Get")),
            _ => Ok(wishes),
        }
    }

    pub(super) fn of_subscribe(extensions: &[Extension], mode: Mode) -> Result<Self, Refusal> {
        let wishes = Self::read(extensions, "a Subscribe")?;
        match &wishes.history {
            Some(history) => Err(refuse_history(history, mode)),
            None => Ok(wishes),
        }
    }

    fn read(extensions: &[Extension], rpc: &'static str) -> Result<Self, Refusal> {
        let mut wishes = Self::default();
        for ext in known_extensions(extensions)? {
            match ext {
                KnownExtension::Depth(depth) => wishes.depth = NonZeroU32::new(depth.level),
                KnownExtension::ConfigSubscription(subscription) => match subscription.action {
                    Some(config_subscription::Action::Start(_)) => wishes.configuration = true,
                    _ => {
                        let text =
                            "`config_subscription` of a request must have the action `start`";
                        return Err(Refusal::invalid(text));
                    }
                },
                KnownExtension::History(history) => wishes.history = Some(*history),
                // A reader need not be the master, and a master may read.
                KnownExtension::Arbitration(_) => {}
                other => return Err(other.misplaced(rpc)),
            }
        }
        Ok(wishes)
    }
}

/// Refuses extensions of Capabilities, which has nothing to limit or to commit.
pub(super) fn check_none(extensions: &[Extension]) -> Result<(), Refusal> {
    match known_extensions(extensions)?.first() {
        None | Some(KnownExtension::Arbitration(_)) => Ok(()),
        Some(other) => Err(other.misplaced("Capabilities")),
    }
}

/// An extension that this agent knows.
#[derive(Debug)]
enum KnownExtension<'a> {
    Arbitration(&'a gnmi_ext::MasterArbitration),
    History(&'a gnmi_ext::History),
    Commit(&'a gnmi_ext::Commit),
    Depth(&'a gnmi_ext::Depth),
    ConfigSubscription(&'a gnmi_ext::ConfigSubscription),
    Plan(PlanOption),
    Wait(WaitOption),
}

fn known_extensions(extensions: &[Extension]) -> Result<Vec<KnownExtension<'_>>, Refusal> {
    let mut all: Vec<KnownExtension<'_>> = Vec::new();
    for ext in extensions.iter().filter_map(|extension| extension.ext.as_ref()) {
        let recognized = match ext {
            Ext::RegisteredExt(registered) if registered.id == plan::ID => {
                KnownExtension::Plan(PlanOption::read(&registered.msg)?)
            }
            Ext::RegisteredExt(registered) if registered.id == wait::ID => {
                KnownExtension::Wait(WaitOption::read(&registered.msg)?)
            }
            Ext::RegisteredExt(_) => continue,
            Ext::MasterArbitration(arbitration) => KnownExtension::Arbitration(arbitration),
            Ext::History(history) => KnownExtension::History(history),
            Ext::Commit(commit) => KnownExtension::Commit(commit),
            Ext::Depth(depth) => KnownExtension::Depth(depth),
            Ext::ConfigSubscription(subscription) => {
                KnownExtension::ConfigSubscription(subscription)
            }
        };
        if all.iter().any(|other| other.name() == recognized.name()) {
            let text = format!("the extension `{}` is given twice", recognized.name());
            return Err(Refusal::invalid(text));
        }
        all.push(recognized);
    }
    Ok(all)
}

impl KnownExtension<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::Arbitration(_) => "master_arbitration",
            Self::History(_) => "history",
            Self::Commit(_) => "commit",
            Self::Depth(_) => "depth",
            Self::ConfigSubscription(_) => "config_subscription",
            Self::Plan(_) => "holdfast.Plan",
            Self::Wait(_) => "holdfast.Services",
        }
    }

    fn misplaced(&self, rpc: &str) -> Refusal {
        Refusal::invalid(format!("the extension `{}` has no meaning in {rpc}", self.name()))
    }
}

fn confirmation(commit: &gnmi_ext::Commit) -> Result<Confirmation, Refusal> {
    let action = match &commit.action {
        Some(commit::Action::Commit(begin)) => {
            // Common clients send a duration of zero when they name none.
            let duration = rollback(begin.rollback_duration.as_ref())?;
            ConfirmAction::Begin { rollback_after: duration.unwrap_or(DEFAULT_ROLLBACK) }
        }
        Some(commit::Action::Confirm(_)) => ConfirmAction::Confirm,
        Some(commit::Action::Cancel(_)) => ConfirmAction::Cancel,
        Some(commit::Action::SetRollbackDuration(extend)) => {
            let duration = rollback(extend.rollback_duration.as_ref())?;
            let missing = || Refusal::invalid("a new rollback_duration must be greater than zero");
            ConfirmAction::Extend { rollback_after: duration.ok_or_else(missing)? }
        }
        None => return Err(Refusal::invalid("the extension `commit` has no action")),
    };
    if commit.id.is_empty() {
        return Err(Refusal::invalid("the extension `commit` must have an id"));
    }
    check_id("commit", &commit.id)?;
    Ok(Confirmation { id: commit.id.as_str().into(), action })
}

/// Reads a duration; zero counts as absent.
fn rollback(duration: Option<&prost_types::Duration>) -> Result<Option<Duration>, Refusal> {
    let Some(duration) = duration else { return Ok(None) };
    let length = Duration::try_from(*duration);
    match length {
        Ok(length) if length.is_zero() => Ok(None),
        Ok(length) if length <= MAX_ROLLBACK => Ok(Some(length)),
        _ => Err(Refusal::invalid(format!(
            "a rollback_duration of {duration} is out of range: at most {MAX_ROLLBACK:?}"
        ))),
    }
}

fn election(arbitration: &gnmi_ext::MasterArbitration) -> Result<Election, Refusal> {
    let Some(id) = arbitration.election_id else {
        return Err(Refusal::invalid(
            "the extension `master_arbitration` must have an election_id",
        ));
    };
    let role = arbitration.role.as_ref().map_or("", |role| role.id.as_str());
    check_id("role", role)?;
    let id = (u128::from(id.high) << u64::BITS) | u128::from(id.low);
    Ok(Election { role: role.into(), id })
}

fn check_id(what: &str, id: &str) -> Result<(), Refusal> {
    match id.len() {
        0..=MAX_ID => Ok(()),
        long => Err(Refusal::invalid(format!(
            "the id of the {what} has {long} bytes, and may have {MAX_ID} at most"
        ))),
    }
}

/// Refusal of `history`: the mistake in it, or else that past values are not kept.
fn refuse_history(requested: &gnmi_ext::History, mode: Mode) -> Refusal {
    match &requested.request {
        None => Refusal::invalid("the extension `history` has no time"),
        Some(history::Request::SnapshotTime(_)) if mode != Mode::Once => {
            Refusal::invalid("a snapshot of the past can only be read in mode ONCE")
        }
        Some(history::Request::Range(_)) if mode != Mode::Stream => {
            Refusal::invalid("a range of the past can only be read in mode STREAM")
        }
        Some(history::Request::Range(range)) if range.start > range.end => {
            Refusal::invalid("the range of the past ends before it starts")
        }
        Some(_) => Refusal::unimplemented("past values are not kept"),
    }
}
