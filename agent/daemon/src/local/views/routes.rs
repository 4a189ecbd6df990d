//! `holdfast show routes`: what the kernel has in its tables, whoever made it, and the configured routes that it lacks.

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdfast_base::Caller;
use holdfast_config::schema::Origin;
use holdfast_core::{CoreView, Statuses as _};
use holdfast_platform::kinds::{self, route};
use holdfast_platform::route_table::{ListedHop, ListedRoute, RouteSelection};
use holdfast_platform::values::{Hop, KernelRoute, RouteTarget};
use holdfast_scheduler::{Key, ValueState, ValueStatus};
use holdfast_security::pathz::Action;
use holdfast_security::pathz::nodes::position;
use ipnet::IpNet;
use serde_json::{Value, json};

use super::look::{Look, Readable};
use super::{list, word};
use crate::local::rights::LookError;
use crate::local::table::{Cell, Column, Ink, Table, Tone};

/// Number of the table that packets are routed by (`RT_TABLE_MAIN`); routes of others are marked with theirs.
const MAIN_TABLE: u32 = 254;

pub(super) async fn document(
    look: &Look,
    caller: &Caller,
    subject: Option<&str>,
) -> Result<Value, LookError> {
    let selection = selection(subject)?;
    let readable = look.readable(caller, &[]).await;
    require_all_routes(&readable, caller)?;
    let listing = look.routes.list(selection).await.map_err(LookError::failed)?;
    let lacking = look.core.statuses(true).await.map_err(LookError::Failed)?;
    let lacking = lacking.iter().filter(|it| it.key.kind() == kinds::ROUTE);
    let lacking: BTreeMap<&Key, &ValueStatus> = lacking.map(|it| (&it.key, it)).collect();
    let reasons = obstacles(look, lacking.keys().map(|key| (*key).clone()).collect()).await?;
    let mut routes: Vec<(RoutePlace, Value)> = Vec::new();
    for listed in &listing.routes {
        let key = route::key(listed.table, listed.prefix, listed.metric);
        let mut entry = kernel_entry(listed);
        if let Some(status) = lacking.get(&key).filter(|_| listed.is_ours) {
            entry["note"] = json!(note(status, &reasons));
        }
        routes.push((place(listed.table, listed.prefix, listed.metric), entry));
    }
    // Toward an address, a configured route that is missing counts with what it would take.
    let longest = listing.routes.iter().map(|it| it.prefix.prefix_len()).max().unwrap_or(0);
    let is_there = |key: &Key| {
        let of = |it: &&ListedRoute| route::key(it.table, it.prefix, it.metric) == *key;
        listing.routes.iter().find(of).is_some_and(|it| it.is_ours)
    };
    for (key, status) in &lacking {
        let intended = status.intended.as_ref();
        let Some(route) = intended.and_then(|it| it.as_any().downcast_ref::<KernelRoute>()) else {
            continue;
        };
        let is_as_specific = match selection {
            RouteSelection::Toward(_) => route.prefix.prefix_len() >= longest,
            RouteSelection::All | RouteSelection::Below(_) => true,
        };
        if selection.admits(&route.prefix) && is_as_specific && !is_there(key) {
            let mut entry = intended_entry(route);
            entry["state"] = json!(status.state.to_string());
            entry["note"] = json!(note(status, &reasons));
            routes.push((place(route.table, route.prefix, route.metric), entry));
        }
    }
    routes.sort_by_key(|(place, _)| *place);
    let routes: Vec<Value> = routes.into_iter().map(|(_, entry)| entry).collect();
    Ok(json!({ "routes": routes, "omitted": listing.omitted }))
}

/// Order of routes: table, family, prefix and metric.
type RoutePlace = (u32, bool, IpNet, u32);

fn place(table: u32, prefix: IpNet, metric: u32) -> RoutePlace {
    (table, prefix.addr().is_ipv6(), prefix, metric)
}

/// Parses an address or a prefix.
fn selection(subject: Option<&str>) -> Result<RouteSelection, LookError> {
    let Some(text) = subject else { return Ok(RouteSelection::All) };
    let address = text.parse::<IpAddr>().map(RouteSelection::Toward);
    let prefix = || text.parse::<IpNet>().map(|prefix| RouteSelection::Below(prefix.trunc()));
    address.ok().or_else(|| prefix().ok()).ok_or_else(|| {
        LookError::Invalid(format!(
            "`{text}` is neither an address nor a prefix, as in 192.0.2.0/24"
        ))
    })
}

/// Refuses a caller who may not read all routes of the configuration: those of the kernel have no paths of their own by
/// which the policy could judge them.
fn require_all_routes(readable: &Readable, caller: &Caller) -> Result<(), LookError> {
    let Some(rights) = &readable.rights else { return Ok(()) };
    let schema = readable.models.schema(Origin::Native);
    let all = schema.instance_path(&[("network-instances", &[][..])]);
    let is_permitted = all.is_ok_and(|path| {
        let at = position(rights.read(Origin::Native.into()), &path.0);
        at.action() == Action::Permit && at.has_no_rule_below()
    });
    if is_permitted {
        return Ok(());
    }
    Err(LookError::Denied(format!(
        "the pathz policy does not let `{}` read all of /network-instances, so the routes of the kernel are not shown",
        caller.name
    )))
}

/// Ends of the chains from routes that wait to what is missing.
async fn obstacles(look: &Look, keys: Vec<Key>) -> Result<BTreeMap<Key, Vec<String>>, LookError> {
    let question = move |view: &CoreView<'_>| {
        let chain = |key: Key| {
            let chain = holdfast_introspect::waits::chain(view, &key);
            let links = chain.iter().filter(|link| link.key != key);
            let texts = links.filter_map(|link| link.text()).collect();
            (key, texts)
        };
        keys.into_iter().map(chain).collect()
    };
    look.core.inspect(question).await.map_err(LookError::failed)
}

/// Why a configured route is not as it should be, to the end of the chain.
fn note(status: &ValueStatus, reasons: &BTreeMap<Key, Vec<String>>) -> String {
    let detail = &status.detail;
    let mut notes = Vec::new();
    if !detail.unmet.is_empty() {
        let is_there = status.state == ValueState::Configured;
        let verb = if is_there { "does without" } else { "waits for" };
        notes.push(format!("{verb} {}", detail.unmet.join(", ")));
    }
    notes.extend(reasons.get(&status.key).into_iter().flatten().cloned());
    notes.extend(detail.invalid.iter().chain(&detail.drift).map(ToString::to_string));
    notes.extend(detail.error.as_ref().map(ToString::to_string));
    notes.join("; ")
}

fn kernel_entry(route: &ListedRoute) -> Value {
    let hop = |hop: &ListedHop| {
        let link = hop.link.as_deref().unwrap_or_default();
        json!({
            "gateway": hop.gateway.map(|ip| ip.to_string()),
            "interface": hop.link,
            "unusable": hop.fault.map(|fault| fault.text(link)),
        })
    };
    json!({
        "prefix": route.prefix.to_string(),
        "table": route.table,
        "metric": route.metric,
        "protocol": route.protocol,
        "ours": route.is_ours,
        "treatment": route.treatment,
        "state": "IN KERNEL",
        "next-hops": route.hops.iter().map(hop).collect::<Vec<_>>(),
    })
}

fn intended_entry(route: &KernelRoute) -> Value {
    let hop = |hop: &Hop| json!({ "gateway": hop.gateway.map(|ip| ip.to_string()), "interface": hop.link, "unusable": null });
    let (treatment, hops) = match &route.target {
        RouteTarget::Hops(hops) => ("unicast", hops.iter().map(hop).collect()),
        RouteTarget::Blackhole => ("blackhole", Vec::new()),
    };
    json!({
        "prefix": route.prefix.to_string(),
        "table": route.table,
        "metric": route.metric,
        "protocol": "holdfast",
        "ours": true,
        "treatment": treatment,
        "next-hops": hops,
    })
}

const COLUMNS: &[Column] = &[
    Column::left(""),
    Column::left("PREFIX"),
    Column::left("NEXT HOP"),
    Column::left("INTERFACE"),
    Column::right("METRIC"),
    Column::left("PROTOCOL"),
    Column::left("STATE"),
    Column::left("NOTE"),
];

/// A line for each next hop; routes of ours have a star.
pub(super) fn table(document: &Value, ink: Ink) -> String {
    let mut table = Table::new(COLUMNS);
    for it in list(document, "routes") {
        let ours = if it["ours"] == true { "*" } else { "" };
        let hops: Vec<&Value> = list(it, "next-hops").collect();
        let first = hops.first().copied().unwrap_or(&Value::Null);
        let is_in_kernel = it["state"] == "IN KERNEL";
        let state = match word(it, "state") {
            _ if is_in_kernel => Cell::toned("in kernel", Tone::Neutral),
            other => Cell::toned(other, Tone::Waiting),
        };
        let target = match first {
            Value::Null => word(it, "treatment"),
            hop => gateway(hop),
        };
        let mut row = vec![
            Cell::toned(ours, Tone::Good),
            word(it, "prefix").into(),
            target.into(),
            word(first, "interface").into(),
            word(it, "metric").into(),
            word(it, "protocol").into(),
            state,
        ];
        row.push(first_note(it, first));
        table.rows.push(row);
        for hop in hops.iter().skip(1) {
            let mut row = vec![Cell::default(), Cell::default(), gateway(hop).into()];
            row.push(word(hop, "interface").into());
            row.extend(vec![Cell::default(); 3]);
            row.push(Cell::toned(word(hop, "unusable"), Tone::Bad));
            table.rows.push(row);
        }
    }
    let mut text = table.text(ink);
    if let Some(omitted) = document["omitted"].as_u64().filter(|count| *count > 0) {
        text += &format!("and {omitted} more: name a prefix to see some of them\n");
    }
    text
}

fn gateway(hop: &Value) -> String {
    let gateway = word(hop, "gateway");
    if gateway.is_empty() { "on link".to_owned() } else { gateway }
}

/// The fault of the first next hop, the table if it is not the usual one, and why the route is not as configured.
fn first_note(route: &Value, hop: &Value) -> Cell {
    let table = route["table"].as_u64().filter(|table| *table != u64::from(MAIN_TABLE));
    let table = table.map(|table| format!("table {table}")).unwrap_or_default();
    let notes = [word(hop, "unusable"), word(route, "note"), table];
    let notes: Vec<String> = notes.into_iter().filter(|it| !it.is_empty()).collect();
    let tone = if hop["unusable"].is_string() { Tone::Bad } else { Tone::Waiting };
    Cell::toned(notes.join("; "), tone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_a_table_with_a_line_for_each_next_hop() {
        let hop = |gateway: &str, interface: &str, unusable: Option<&str>| json!({ "gateway": gateway, "interface": interface, "unusable": unusable });
        let document = json!({ "omitted": 3, "routes": [
            { "prefix": "10.0.0.0/8", "metric": 20, "protocol": "bgp", "ours": false, "table": 254,
              "state": "IN KERNEL", "treatment": "unicast", "next-hops": [
                hop("192.0.2.2", "eth0", None), hop("192.0.2.3", "eth1", Some("eth1 has no carrier"))] },
            { "prefix": "10.2.0.0/16", "metric": 0, "protocol": "static", "ours": false, "table": 77,
              "state": "IN KERNEL", "treatment": "blackhole", "next-hops": [] },
            { "prefix": "10.9.0.0/16", "metric": 1, "protocol": "holdfast", "ours": true, "table": 254,
              "state": "PENDING", "note": "waits for gateway 10.7.0.2", "treatment": "unicast",
              "next-hops": [hop("10.7.0.2", "", None)] },
        ] });
        let want = "   \
   PREFIX       NEXT HOP   INTERFACE  METRIC  PROTOCOL  STATE      NOTE
   10.0.0.0/8   192.0.2.2  eth0           20  bgp       in kernel
                192.0.2.3  eth1                                    eth1 has no carrier
   10.2.0.0/16  blackhole                  0  static    in kernel  table 77
*  10.9.0.0/16  10.7.0.2                   1  holdfast  PENDING    waits for gateway 10.7.0.2
and 3 more: name a prefix to see some of them
";
        assert_eq!(
            table(&document, Ink::Plain),
            want.trim_start_matches(' ').replacen("PREFIX", "   PREFIX", 1)
        );
    }

    #[test]
    fn a_subject_is_an_address_or_a_prefix() {
        assert_eq!(selection(None).unwrap(), RouteSelection::All);
        let toward = RouteSelection::Toward("192.0.2.1".parse().unwrap());
        assert_eq!(selection(Some("192.0.2.1")).unwrap(), toward);
        let below = RouteSelection::Below("192.0.2.0/24".parse().unwrap());
        assert_eq!(selection(Some("192.0.2.9/24")).unwrap(), below);
        let refused = selection(Some("eth0")).unwrap_err().to_string();
        assert_eq!(refused, "`eth0` is neither an address nor a prefix, as in 192.0.2.0/24");
    }
}
