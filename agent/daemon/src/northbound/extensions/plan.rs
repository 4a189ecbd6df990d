//! The extension of this agent for dry runs, and for Sets that are carried out with the expected plan only.
//!
//! `holdfast.Plan`, in `proto/protos/holdfast/plan.proto`.

use holdfast_proto::gnmi_ext::extension::Ext;
use holdfast_proto::gnmi_ext::{Extension, RegisteredExtension};
use holdfast_proto::holdfast::plan::Content;
use holdfast_proto::holdfast::{self as wire, Plan};
use holdfast_scheduler::Cause;
use prost::Message;

use super::super::status::Refusal;
use crate::core::{ConfigChange, Listed, ObjectChange, ObjectEffect, PlanHash, Preview, Waiting};

/// Number of the extension. Upstream assigns numbers from below; this one is private to this agent.
pub(in super::super) const ID: i32 = 26150;

/// Request of a client in the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    DryRun,
    Expected(PlanHash),
}

impl Wish {
    pub(super) fn read(message: &[u8]) -> Result<Self, Refusal> {
        let plan = Plan::decode(message).map_err(|error| {
            Refusal::invalid(format!("the extension {ID} is not a holdfast.Plan: {error}"))
        })?;
        match plan.content {
            Some(Content::DryRun(_)) => Ok(Self::DryRun),
            Some(Content::Expected(expected)) => {
                let hash = expected.hash.parse().map_err(|error| {
                    let given = &expected.hash;
                    Refusal::invalid(format!("`{given}` is not the hash of a plan: {error}"))
                })?;
                Ok(Self::Expected(hash))
            }
            Some(Content::Preview(_)) => {
                Err(Refusal::invalid("a preview is an answer; a request has none"))
            }
            None => Err(Refusal::invalid("holdfast.Plan must have `dry_run` or `expected`")),
        }
    }
}

/// The answer to a dry run.
pub(in super::super) fn answer(preview: Preview) -> Extension {
    let content = Some(Content::Preview(preview.into()));
    let msg = Plan { content }.encode_to_vec().into();
    Extension { ext: Some(Ext::RegisteredExt(RegisteredExtension { id: ID, msg })) }
}

impl From<Preview> for wire::Preview {
    fn from(preview: Preview) -> Self {
        let Preview { hash, configuration, operations, pending } = preview;
        let total = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let totals = wire::Totals {
            configuration: total(configuration.total),
            operations: total(operations.total),
            pending: total(pending.total),
        };
        Self {
            hash: hash.to_string(),
            configuration: listed(configuration),
            operations: listed(operations),
            pending: listed(pending),
            totals: Some(totals),
        }
    }
}

fn listed<T, W: From<T>>(listed: Listed<T>) -> Vec<W> {
    listed.first.into_iter().map(W::from).collect()
}

impl From<ConfigChange> for wire::ConfigurationChange {
    fn from(change: ConfigChange) -> Self {
        let ConfigChange { origin, path, before, after } = change;
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        Self { origin: origin.as_str().to_owned(), path, before, after }
    }
}

impl From<Waiting> for wire::Pending {
    fn from(waiting: Waiting) -> Self {
        let Waiting { object, waits_for } = waiting;
        Self { object, waits_for }
    }
}

impl From<ObjectChange> for wire::Operation {
    fn from(change: ObjectChange) -> Self {
        let ObjectChange { object, effect, cause, interrupts } = change;
        let effect = match effect {
            ObjectEffect::Created => wire::Effect::Created,
            ObjectEffect::ChangedInPlace => wire::Effect::ChangedInPlace,
            ObjectEffect::Recreated => wire::Effect::Recreated,
            ObjectEffect::Removed => wire::Effect::Removed,
            ObjectEffect::Adopted => wire::Effect::Adopted,
            ObjectEffect::GivenBack => wire::Effect::GivenBack,
        };
        let cause = match cause {
            Cause::Asked => wire::Cause::Asked,
            Cause::Parked | Cause::Returned => wire::Cause::DependsOnWhatGoes,
            Cause::Woken => wire::Cause::Woken,
            Cause::Drift => wire::Cause::Drift,
            Cause::Orphan => wire::Cause::Orphan,
        };
        Self { object, effect: effect as i32, cause: cause as i32, interrupts }
    }
}
