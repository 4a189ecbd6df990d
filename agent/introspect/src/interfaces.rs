//! `GET interfaces`: links of the box with their state, addresses and counters, from `/interfaces` of the newest revision.
//!
//! Counters are read at the request, all at the same moment, which `Time` tells: a reader has rates from two answers.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract;
use axum::response::{IntoResponse, Response};
use holdfast_base::now_ns;
use holdfast_config::Value;
use holdfast_config::schema::Origin;
use holdfast_core::Datastore;
use serde_json::json;

use super::Introspect;
use super::arguments::{Arguments, format_time};
use super::http_error::HttpError;
use super::named_branch::NamedBranch;

/// Counters of one link, by their names in the model.
type Counters = BTreeMap<String, u64>;

/// `GET interfaces`: no arguments.
pub(super) async fn interfaces(
    extract::State(introspect): extract::State<Introspect>,
    arguments: Arguments,
) -> Result<Response, HttpError> {
    arguments.allow_only(&[], &[])?;
    let counters = introspect.counters().await;
    let now = now_ns();
    let revision = introspect.core.revision();
    let shown = NamedBranch::native(&revision).container("interfaces");
    let entries = shown.map(|it| it.entries("interface")).unwrap_or_default();
    let links: Vec<_> = entries.iter().filter_map(|it| document(it, &counters)).collect();
    Ok(Json(json!({ "TimeNs": now, "Time": format_time(now), "Interfaces": links }))
        .into_response())
}

impl Introspect {
    /// Counters of all links, by their names.
    async fn counters(&self) -> BTreeMap<String, Counters> {
        let models = self.core.models();
        let native = &models.native;
        let counters = "/interfaces/interface/state/counters";
        let sources = self.core.polled_catalog().below(native, &[counters]);
        let polled = self.core.polled(Origin::Native, &sources).await.leaves;
        let child = |node, name| native.child(node, None, name);
        let interface = child(native.root(), "interfaces").and_then(|it| child(it, "interface"));
        let state = interface.and_then(|it| child(it, "state"));
        let parent = state.and_then(|it| child(it, "counters"));
        let mut found = BTreeMap::<String, Counters>::new();
        for (path, value) in &polled {
            let [_, link, _, counters, leaf] = path.0.as_slice() else { continue };
            let Value::Uint(count) = value else { continue };
            let Some(name) = link.keys.as_ref().and_then(|keys| keys.first()) else { continue };
            if Some(counters.node) == parent {
                let of_link = found.entry(name.to_string()).or_default();
                of_link.insert(native.node(leaf.node).name.to_string(), *count);
            }
        }
        found
    }
}

/// A link. An entry without state is configured, and not on the box.
fn document(
    entry: &NamedBranch<'_>,
    counters: &BTreeMap<String, Counters>,
) -> Option<serde_json::Value> {
    let name = entry.text("name")?;
    let state = entry.container("state");
    let text = |leaf| state.as_ref().and_then(|state| state.text(leaf));
    let number = |leaf| state.as_ref().and_then(|state| state.number(leaf));
    let families = ["ipv4", "ipv6"].map(|family| entry.container(family));
    let addresses = families.iter().flatten().flat_map(|family| family.entries("address"));
    let address = |it: NamedBranch<'_>| {
        let state = it.container("state");
        let length = state.as_ref().and_then(|state| state.number("prefix-length"));
        let length = length.or_else(|| it.number("prefix-length"))?;
        Some(json!({
            "Prefix": format!("{}/{length}", it.text("ip")?),
            "IsThere": state.is_some_and(|state| state.number("prefix-length").is_some()),
        }))
    };
    let of_counters = state.as_ref().and_then(|state| state.container("counters"));
    let transitions = of_counters.and_then(|it| it.number("carrier-transitions"));
    Some(json!({
        "Name": name,
        "Type": text("type").or_else(|| entry.text("type")),
        "Description": text("description"),
        "AdminStatus": text("admin-status"),
        "OperStatus": text("oper-status"),
        "ObservedStatus": text("observed-status"),
        "ToldDownBy": text("told-down-by"),
        "EffectiveStatus": text("effective-status"),
        "LastChange": number("last-change").map(format_time),
        "Mtu": number("mtu"),
        "SpeedMbps": number("negotiated-port-speed").or_else(|| number("port-speed")),
        "Master": text("master"),
        "Addresses": addresses.filter_map(address).collect::<Vec<_>>(),
        "CarrierTransitions": transitions,
        "Counters": counters.get(&name),
    }))
}
