//! Texts for `holdfast show`.

use std::{error::Error, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use holdfast_base::{ErrorChain, now_ns};
use holdfast_config::{
    ClaimKey,
    json::{Flavour, print},
    schema::{Node, Origin},
    tree::NodeRef,
};
use holdfast_core::{Datastore, IncompleteEntry, Remark, Statuses, UnconfirmedCommit};
use holdfast_platform::kinds::registry;
use holdfast_scheduler::{Registry, ValueState, ValueStatus};
use holdfast_telemetry::polled::with_polled_leaves;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::table::aligned;
use super::{AnswerFormat, failure, service_waits, services};
use crate::services::{action_wait, is_undeployed};
use crate::{northbound::boot_document, settings::ShowContent};

type Failure = Box<dyn Error + Send + Sync>;

/// Source of the texts.
#[tonic::async_trait]
pub trait Inspect: Send + Sync + 'static {
    /// Text of one `holdfast show` command, or its content as JSON.
    async fn show(&self, what: ShowContent, json: bool) -> Result<String, Failure>;
}

/// Address of the boot configuration.
pub(super) const BOOT: &str = "/show/boot";

/// Routes of the texts, for [`super::start`].
pub fn inspect_routes(inspect: Arc<dyn Inspect>) -> Router {
    let mut routes = Router::new();
    for content in ShowContent::ALL {
        let answer = async move |inspect: State<Arc<dyn Inspect>>, format: Query<AnswerFormat>| {
            show(&**inspect, content, &format).await
        };
        routes = routes.route(&content.path(), get(answer));
    }
    routes.with_state(inspect)
}

async fn show(inspect: &dyn Inspect, content: ShowContent, format: &AnswerFormat) -> Response {
    match inspect.show(content, format.is_json()).await {
        Ok(text) => text.into_response(),
        Err(error) => failure(StatusCode::INTERNAL_SERVER_ERROR, ErrorChain(&*error).to_string()),
    }
}

/// Formats the newest revision, and the values of the engine.
#[derive(Clone, Debug)]
pub struct Inspector<C>(pub C);

#[tonic::async_trait]
impl<C: Datastore + Statuses> Inspect for Inspector<C> {
    async fn show(&self, what: ShowContent, json: bool) -> Result<String, Failure> {
        match what {
            ShowContent::Config => document(&self.0, true).await,
            ShowContent::State => document(&self.0, false).await,
            ShowContent::Boot => boot_document(&self.0.configuration()),
            ShowContent::Services => {
                let revision = self.0.current_revision().await;
                let wait = |state: &ClaimKey| action_wait(&revision, state);
                let configuration = self.0.configuration();
                let tags = configuration.instances().into_iter();
                let undeployed = tags.filter(|tag| is_undeployed(&configuration, tag));
                let undeployed: String =
                    undeployed.map(|it| services::undeployed_line(&it)).collect();
                Ok(services::table(&configuration.layers().book, wait) + &undeployed)
            }
            ShowContent::ServiceWaits => {
                let revision = self.0.current_revision().await;
                service_waits::text(&revision, json)
            }
            ShowContent::Values => {
                let values = self.0.statuses(false).await?;
                let lines = lines(&values, &[], &[], &registry(), self.0.monotonic_now().await?);
                if json { document_of(&lines) } else { Ok(text_of(&lines)) }
            }
            ShowContent::Pending => {
                let pending = self.0.statuses(true).await?;
                let entries = self.0.incomplete_entries().await?;
                let remarks = self.0.remarks().await?;
                let now = self.0.monotonic_now().await?;
                let lines = lines(&pending, &entries, &remarks, &registry(), now);
                if json {
                    return document_of(&lines);
                }
                let revision = self.0.current_revision().await;
                let waiting = UnconfirmedCommit::of(&revision);
                let waiting = waiting.map(|it| format!("{}\n", it.text(now_ns())));
                Ok(waiting.unwrap_or_default() + &text_of(&lines))
            }
        }
    }
}

/// A JSON document with a member for each origin, in RFC 7951 encoding.
async fn document<C: Datastore>(core: &C, config: bool) -> Result<String, Failure> {
    let revision = core.current_revision().await;
    let mut whole = Map::new();
    for (name, origin) in [("openconfig", Origin::OpenConfig), ("holdfast_native", Origin::Native)]
    {
        let schema = revision.schema(origin);
        let sources = core.polled_catalog().below(schema, if config { &[] } else { &["/"] });
        let polled = core.polled(origin, &sources).await;
        // Keys are printed with their entry. Alone they are not configuration, since a port without any has them
        // too.
        let is_shown = |node: &Node| node.config == config && !schema.is_list_key(node.id);
        let tree = with_polled_leaves(schema, revision.tree(origin), polled, now_ns());
        let printed =
            print(schema, schema.root(), NodeRef::Branch(tree.root()), Flavour::Ietf, &is_shown);
        let value =
            printed.map_or(Ok(Value::Object(Map::new())), |text| serde_json::from_slice(&text))?;
        whole.insert(name.to_owned(), value);
    }
    Ok(serde_json::to_string_pretty(&Value::Object(whole))? + "\n")
}

/// A value with its state: a line of a table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ValueLine {
    pub state: String,
    pub key: String,
    pub label: String,
    /// Reason for which the value is not configured, or has no effect.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

fn text_of(lines: &[ValueLine]) -> String {
    aligned(lines.iter().map(|line| {
        let ValueLine { state, key, label, reason } = line;
        let reason = if reason.is_empty() { String::new() } else { format!("  ({reason})") };
        [state.clone(), key.clone(), format!("{label}{reason}")]
    }))
}

fn document_of(lines: &[ValueLine]) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(lines)? + "\n")
}

/// A table with a line for each value that waits or has failed. `now` is on the clock of the statuses.
pub(super) fn pending_table(statuses: &[ValueStatus], now: Duration) -> String {
    text_of(&pending_lines(statuses, now))
}

/// The lines of that table.
pub(super) fn pending_lines(statuses: &[ValueStatus], now: Duration) -> Vec<ValueLine> {
    lines(statuses, &[], &[], &registry(), now)
}

/// A line for each value, then for each entry that waits for a leaf, then for each value without its effect.
/// `now` is on the clock of the statuses.
fn lines(
    statuses: &[ValueStatus],
    entries: &[IncompleteEntry],
    remarks: &[Remark],
    registry: &Registry,
    now: Duration,
) -> Vec<ValueLine> {
    let value = |status: &ValueStatus| ValueLine {
        state: status.state.to_string(),
        key: registry.key_text(&status.key),
        label: status.label.clone(),
        reason: reason(status, statuses, registry, now),
    };
    let entry = |entry: &IncompleteEntry| {
        let key = entry.key.as_ref().map(|key| registry.key_text(key));
        ValueLine {
            state: ValueState::Pending.to_string(),
            key: key.unwrap_or_else(|| entry.native.clone()),
            label: entry.label.clone(),
            reason: format!("waits for {}", entry.missing),
        }
    };
    let remark = |remark: &Remark| ValueLine {
        state: ValueState::Configured.to_string(),
        key: registry.key_text(&remark.key),
        label: remark.label.clone(),
        reason: remark.reason.to_string(),
    };
    let values = statuses.iter().map(value);
    values.chain(entries.iter().map(entry)).chain(remarks.iter().map(remark)).collect()
}

fn reason(status: &ValueStatus, all: &[ValueStatus], registry: &Registry, now: Duration) -> String {
    let detail = &status.detail;
    let mut reasons = Vec::new();
    if !detail.unmet.is_empty() {
        let verb =
            if status.state == ValueState::Configured { "does without" } else { "waits for" };
        reasons.push(format!("{verb} {}", detail.unmet.join(", ")));
    }
    reasons.extend(detail.invalid.iter().chain(&detail.drift).map(ToString::to_string));
    reasons.extend(detail.repair_text(now));
    reasons.extend(detail.error_text(now));
    if let Some(holder) = &detail.conflict {
        let label = all.iter().find(|other| other.key == *holder).map(|other| other.label.clone());
        // A value that is in place is not in a list of those that wait.
        let name = label.unwrap_or_else(|| registry.key_text(holder));
        reasons.push(format!("{name} holds what it needs"));
    }
    if let Some(owner) = &detail.other_owner {
        reasons.push(format!("{owner} asks for another one"));
    }
    reasons.join("; ")
}

#[cfg(test)]
mod tests {
    use holdfast_platform::kinds::{address, link, route};
    use holdfast_scheduler::{Detail, Key, OperationError, Owner};

    use super::*;

    #[test]
    fn a_table_says_why() {
        let status = |key: Key, label: &str, state, detail| ValueStatus {
            key,
            label: label.to_owned(),
            state,
            detail,
            last: None,
            intended: None,
            applied: None,
            observed: None,
            part_of: Vec::new(),
            parts: Vec::new(),
        };
        let ip = [192, 0, 2, 1].into();
        let waiting = Detail {
            unmet: vec!["link eth9".to_owned(), "link br0".to_owned()],
            ..Detail::default()
        };
        let failed = Detail {
            error: Some(OperationError::message("no such device")),
            attempts: 2,
            retry_at: Some(Duration::from_secs(90)),
            ..Detail::default()
        };
        let holder = link::key("eth0");
        let conflict = Detail { conflict: Some(holder), ..Detail::default() };
        let statuses = [
            status(link::key("eth0"), "link eth0", ValueState::Configured, Detail::default()),
            status(address::key("eth0", ip), "address 192.0.2.1", ValueState::Pending, waiting),
            status(link::key("eth2"), "link eth2", ValueState::Failed, failed),
            status(link::key("eth1"), "link eth1", ValueState::Conflict, conflict),
        ];
        let prefix = "10.0.0.0/8".parse().unwrap();
        let now = Duration::from_secs(60);
        let other_owner = Some(Owner::new("protocol STATIC b of DEFAULT".into()));
        let contested = Detail { other_owner, ..Detail::default() };
        let route = status(route::key(254, prefix, 0), "route", ValueState::Configured, contested);
        let entry = IncompleteEntry {
            key: None,
            native: "/system/user[username=a]".to_owned(),
            label: "/system/aaa".to_owned(),
            missing: "role".to_owned(),
        };
        assert_eq!(
            text_of(&lines(&[route], &[entry], &[], &registry(), now)),
            "CONFIGURED  route/254/10.0.0.0/8/0    route  (protocol STATIC b of DEFAULT asks for another one)\n\
             PENDING     /system/user[username=a]  /system/aaa  (waits for role)\n"
        );
        assert_eq!(
            text_of(&lines(&statuses, &[], &[], &registry(), now)),
            "CONFIGURED  link/eth0               link eth0\n\
             PENDING     address/eth0/192.0.2.1  address 192.0.2.1  (waits for link eth9, link br0)\n\
             FAILED      link/eth2               link eth2  (no such device, tried again in 30 s, 3rd try)\n\
             CONFLICT    link/eth1               link eth1  (link eth0 holds what it needs)\n"
        );
    }
}
