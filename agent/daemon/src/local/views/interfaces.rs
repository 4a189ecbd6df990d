//! `holdfast show interfaces`: what each link is, does and carries, and why it does not work.

use std::collections::BTreeMap;

use holdfast_base::Caller;
use holdfast_config::Step;
use holdfast_config::schema::Origin;
use holdfast_core::CoreView;
use holdfast_faults::{Alarm, Resource};
use holdfast_platform::kinds::entry::vlan_name;
use holdfast_platform::kinds::link;
use holdfast_platform::values::Link;
use serde_json::{Map, Value, json};
use tokio::time::{Duration, sleep};

use super::look::{Look, Readable};
use super::{list, word, words};
use crate::local::faults::time_text;
use crate::local::rights::LookError;
use crate::local::table::{Cell, Column, Ink, Table, Tone};

/// Time between the two readings that give rates: short for a person who waits, and long beside the age of a reading
/// that is shared.
const RATE_SPAN: Duration = Duration::from_millis(500);

/// Leaves of `state` that are shown as they are.
const SHOWN: &[&str] = &[
    "admin-status",
    "oper-status",
    "observed-status",
    "told-down-by",
    "effective-status",
    "type",
    "mtu",
    "mac-address",
    "description",
    "vlan-id",
    "master",
    "aggregate",
    "peer",
    "port-speed",
    "duplex-mode",
];

/// Facts of a link that the engine knows, and that state does not show.
#[derive(Debug, Default)]
struct LinkIntent {
    /// `enabled` of the configuration, with those that ask for it.
    enabled: Option<(bool, Vec<String>)>,
    waits_for: Vec<String>,
    error: Option<String>,
}

pub(super) async fn document(
    look: &Look,
    caller: &Caller,
    name: Option<&str>,
) -> Result<Value, LookError> {
    let before = look.readable(caller, &["/interfaces"]).await;
    sleep(RATE_SPAN).await;
    let now = look.readable(caller, &["/interfaces"]).await;
    let earlier = before.top("interfaces");
    let earlier: BTreeMap<String, &Value> = links(&earlier).into_iter().collect();
    let all = now.top("interfaces");
    let mut found = links(&all);
    found.retain(|(link, it)| name.is_none_or(|name| link == name || own_name(link, it) == name));
    if let (Some(name), true) = (name, found.is_empty()) {
        let text =
            format!("there is no interface `{name}`, neither on the box nor in the configuration");
        return Err(LookError::Missing(text));
    }
    let names: Vec<String> = found.iter().map(|(name, _)| name.clone()).collect();
    let intents = intents(look, names).await?;
    let mut alarms = look.alarms(&now).await?;
    alarms.retain(|alarm| !alarm.is_aside());
    let span_ns = now.time_ns.saturating_sub(before.time_ns).max(1);
    let entry = |(name, it): &(String, &Value)| {
        let alarms = alarms.iter().filter(|alarm| is_of(alarm, name));
        let mut entry = shown(name, it);
        entry.insert("why".into(), json!(reasons(it, intents.get(name), alarms)));
        if let Some(earlier) = earlier.get(name) {
            entry.insert("rates".into(), rates((earlier, it), span_ns));
        }
        Value::Object(entry)
    };
    Ok(json!({ "time-ns": now.time_ns, "interfaces": found.iter().map(entry).collect::<Vec<_>>() }))
}

/// Names and entries of the interfaces, each followed by its VLANs.
fn links(interfaces: &Value) -> Vec<(String, &Value)> {
    let mut all = Vec::new();
    for interface in list(interfaces, "interface") {
        let name = word(interface, "name");
        all.push((name.clone(), interface));
        all.extend(
            list(interface, "vlan")
                .filter_map(|vlan| Some((vlan_name(&name, vlan["index"].as_u64()?).into(), vlan))),
        );
    }
    all
}

/// Name of a link in the kernel, which differs from `PORT.INDEX` where a VLAN gives its link another one.
fn own_name<'v>(known_as: &'v str, link: &'v Value) -> &'v str {
    link["state"]["name"].as_str().unwrap_or(known_as)
}

fn is_of(alarm: &Alarm, name: &str) -> bool {
    matches!(&alarm.condition.resource, Resource::Interface(link) if link == name)
}

async fn intents(
    look: &Look,
    names: Vec<String>,
) -> Result<BTreeMap<String, LinkIntent>, LookError> {
    let question = move |view: &CoreView<'_>| {
        let with_intent = |name: String| {
            let intent = intent_of(view, &name);
            (name, intent)
        };
        names.into_iter().map(with_intent).collect()
    };
    look.core.inspect(question).await.map_err(LookError::failed)
}

fn intent_of(view: &CoreView<'_>, name: &str) -> LinkIntent {
    let Some(status) = view.engine.status(&link::key(name)) else { return LinkIntent::default() };
    let intended = status.intended.as_ref().and_then(|it| it.as_any().downcast_ref::<Link>());
    let native = view.models().schema(Origin::Native);
    let owners = || {
        let entry = view.objects().link_path(&name.into());
        let path = entry.join(Step::node(native.child(entry.last()?.node, None, "enabled")?));
        let leaf = view.configuration.effective().find_leaf(&path)?;
        Some(view.configuration.owner_names(&path, &leaf.meta))
    };
    LinkIntent {
        enabled: intended.map(|link| (link.enabled, owners().unwrap_or_default())),
        waits_for: status.detail.unmet.clone(),
        error: status.detail.error_text(view.now.monotonic),
    }
}

/// State of one interface, without its reasons and rates.
fn shown(name: &str, of: &Value) -> Map<String, Value> {
    let state = &of["state"];
    let mut entry = Map::new();
    entry.insert("name".into(), json!(own_name(name, of)));
    for leaf in SHOWN {
        if !state[*leaf].is_null() {
            entry.insert((*leaf).to_owned(), state[*leaf].clone());
        }
    }
    let changed = state["last-change"].as_u64().filter(|ns| *ns > 0);
    entry.insert("last-change".into(), json!(changed.map(time_text)));
    let addresses = ["ipv4", "ipv6"].into_iter().flat_map(|family| list(&of[family], "address"));
    let addresses = addresses.filter(|it| it["state"].is_object()).map(|it| {
        let state = &it["state"];
        format!("{}/{}", word(state, "ip"), word(state, "prefix-length"))
    });
    entry.insert("addresses".into(), json!(addresses.collect::<Vec<_>>()));
    if state["counters"].is_object() {
        entry.insert("counters".into(), state["counters"].clone());
    }
    entry
}

/// Reasons for which a link does not work, the most telling ones first.
fn reasons<'a>(
    of: &Value,
    intent: Option<&LinkIntent>,
    alarms: impl Iterator<Item = &'a Alarm>,
) -> Vec<String> {
    let state = &of["state"];
    let mut reasons = Vec::new();
    match state["told-down-by"].as_str() {
        Some("PENALTY") => reasons.push("told as down: it lost its carrier too often".to_owned()),
        Some("FORCED") => reasons.push("told as down: somebody holds it down".to_owned()),
        _ => {}
    }
    let enabled = intent.and_then(|it| it.enabled.as_ref());
    let is_admin_down = state["admin-status"] == "DOWN";
    if is_admin_down {
        reasons.push(match enabled {
            Some((false, owners)) if owners.is_empty() => "configured as down".to_owned(),
            Some((false, owners)) => format!("configured as down by {}", owners.join(", ")),
            Some((true, _)) => "somebody else has set it down".to_owned(),
            None => "nobody has set it up".to_owned(),
        });
    }
    let waits = intent.map(|it| it.waits_for.as_slice()).unwrap_or_default();
    if !waits.is_empty() {
        reasons.push(format!("waits for {}", waits.join(", ")));
    }
    reasons.extend(intent.and_then(|it| it.error.clone()));
    let before = reasons.len();
    reasons.extend(alarms.map(|alarm| match alarm.text.as_str() {
        "" => format!("alarm {}", alarm.condition),
        text => text.to_owned(),
    }));
    if reasons.len() == before && waits.is_empty() && !is_admin_down {
        match state["oper-status"].as_str() {
            Some("DOWN") => reasons.push("no carrier".to_owned()),
            Some("LOWER_LAYER_DOWN") => reasons.push("the link below it is down".to_owned()),
            Some("NOT_PRESENT") => reasons.push("the box has no such port".to_owned()),
            Some("DORMANT") => reasons.push("it waits for an event outside of the box".to_owned()),
            _ => {}
        }
    }
    reasons
}

/// Bits a second between two readings.
fn rates((before, now): (&Value, &Value), span_ns: u64) -> Value {
    let rate = |leaf: &str| {
        let octets = |it: &Value| it["state"]["counters"][leaf].as_u64();
        // A link that was made anew counts from zero.
        let more = octets(now)?.checked_sub(octets(before)?)?;
        let bits = u128::from(more) * 8 * 1_000_000_000 / u128::from(span_ns);
        u64::try_from(bits).ok()
    };
    json!({ "in-bits-per-second": rate("in-octets"), "out-bits-per-second": rate("out-octets") })
}

const COLUMNS: &[Column] = &[
    Column::left("INTERFACE"),
    Column::left("ADMIN"),
    Column::left("OPER"),
    Column::right("MTU"),
    Column::left("ADDRESS"),
    Column::right("IN BIT/S"),
    Column::right("OUT BIT/S"),
    Column::right("ERRORS"),
    Column::left("LAST CHANGE"),
    Column::left("WHY"),
];

pub(super) fn table(document: &Value, ink: Ink) -> String {
    let mut table = Table::new(COLUMNS);
    for it in list(document, "interfaces") {
        let mut addresses = words(it, "addresses");
        let why = words(it, "why").collect::<Vec<_>>().join("; ");
        table.rows.push(vec![
            word(it, "name").into(),
            status_cell(it, "admin-status"),
            status_cell(it, "oper-status"),
            word(it, "mtu").into(),
            addresses.next().unwrap_or_default().into(),
            rate_text(&it["rates"]["in-bits-per-second"]).into(),
            rate_text(&it["rates"]["out-bits-per-second"]).into(),
            errors(it).into(),
            word(it, "last-change").into(),
            why.into(),
        ]);
        for more in addresses {
            let mut row = vec![Cell::default(); 4];
            row.push(more.into());
            table.rows.push(row);
        }
    }
    table.text(ink)
}

/// All that is known of each interface, a line for each member.
pub(super) fn details(document: &Value, ink: Ink) -> String {
    let mut text = String::new();
    for it in list(document, "interfaces") {
        let mut table = Table::new(&[Column::left(""), Column::left("")]);
        let mut row = |name: &str, cell: Cell| table.rows.push(vec![name.into(), cell]);
        row("name", word(it, "name").into());
        for leaf in SHOWN.iter().filter(|leaf| !it[**leaf].is_null()) {
            row(leaf, status_cell(it, leaf));
        }
        row("last-change", word(it, "last-change").into());
        words(it, "addresses").for_each(|address| row("address", address.into()));
        words(it, "why").for_each(|reason| row("why", Cell::toned(reason, Tone::Bad)));
        for (name, member) in [("in", "in-bits-per-second"), ("out", "out-bits-per-second")] {
            let rate = rate_text(&it["rates"][member]);
            if !rate.is_empty() {
                row(&format!("{name}-rate"), format!("{rate}bit/s").into());
            }
        }
        for (name, value) in it["counters"].as_object().into_iter().flatten() {
            row(name, value.to_string().into());
        }
        text += &table.text(ink);
    }
    text
}

fn status_cell(it: &Value, leaf: &str) -> Cell {
    let text = word(it, leaf);
    let tone = match (leaf, text.as_str()) {
        ("admin-status" | "oper-status", "UP") => Tone::Good,
        ("admin-status", "DOWN") => Tone::Waiting,
        ("oper-status", "DOWN" | "LOWER_LAYER_DOWN" | "NOT_PRESENT") => Tone::Bad,
        _ => Tone::Neutral,
    };
    Cell::toned(text, tone)
}

fn errors(it: &Value) -> String {
    let counter = |name: &str| it["counters"][name].as_u64();
    match (counter("in-errors"), counter("out-errors")) {
        (None, None) => String::new(),
        (received, sent) => (received.unwrap_or(0) + sent.unwrap_or(0)).to_string(),
    }
}

/// A rate with three digits and the letter of its unit.
fn rate_text(bits: &Value) -> String {
    let Some(bits) = bits.as_u64() else { return String::new() };
    for (unit, letter) in [(1_000_000_000, 'G'), (1_000_000, 'M'), (1_000, 'k')] {
        if bits >= unit {
            let tenths = bits / (unit / 10);
            return format!("{}.{} {letter}", tenths / 10, tenths % 10);
        }
    }
    format!("{bits} ")
}

/// Names of the interfaces that a caller may read.
pub(in crate::local) fn names(readable: &Readable) -> Vec<String> {
    list(&readable.top("interfaces"), "interface").map(|it| word(it, "name")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(state: Value) -> Value {
        json!({ "name": "eth0", "state": state })
    }

    #[test]
    fn reasons_say_who_or_what_keeps_a_link_down() {
        let intent = |enabled: bool, owners: &[&str], waits: &[&str]| LinkIntent {
            enabled: Some((enabled, owners.iter().map(|&it| it.to_owned()).collect())),
            waits_for: waits.iter().map(|&it| it.to_owned()).collect(),
            error: None,
        };
        let of =
            |admin: &str, oper: &str| link(json!({"admin-status": admin, "oper-status": oper}));
        for (link, intent, want) in [
            (of("UP", "UP"), None, ""),
            (of("UP", "UNKNOWN"), None, ""),
            (of("UP", "DOWN"), None, "no carrier"),
            (of("DOWN", "DOWN"), None, "nobody has set it up"),
            (of("DOWN", "DOWN"), Some(intent(true, &[], &[])), "somebody else has set it down"),
            (
                of("DOWN", "DOWN"),
                Some(intent(false, &["client openconfig"], &[])),
                "configured as down by client openconfig",
            ),
            (
                of("UP", "NOT_PRESENT"),
                Some(intent(true, &[], &["port eth0"])),
                "waits for port eth0",
            ),
            (of("UP", "NOT_PRESENT"), None, "the box has no such port"),
            (of("UP", "LOWER_LAYER_DOWN"), None, "the link below it is down"),
            (
                link(
                    json!({"admin-status": "UP", "oper-status": "DOWN", "told-down-by": "FORCED"}),
                ),
                None,
                "told as down: somebody holds it down; no carrier",
            ),
        ] {
            assert_eq!(reasons(&link, intent.as_ref(), [].iter()).join("; "), want);
        }
    }

    #[test]
    fn rates_follow_from_two_readings() {
        let reading = |octets: u64| link(json!({"counters": {"in-octets": octets}}));
        let rate = |before, now| {
            rates((&reading(before), &reading(now)), 500_000_000)["in-bits-per-second"].clone()
        };
        assert_eq!(rate(1000, 2000), json!(16_000));
        assert_eq!(rate(1000, 10), Value::Null, "the link was made anew");
        for (bits, want) in [
            (json!(999), "999 "),
            (json!(16_000), "16.0 k"),
            (json!(9_999_999), "9.9 M"),
            (json!(123_456_000_000_u64), "123.4 G"),
            (Value::Null, ""),
        ] {
            assert_eq!(rate_text(&bits), want);
        }
    }

    #[test]
    fn interfaces_are_a_table_with_a_line_for_each_address() {
        let document = json!({ "interfaces": [
            { "name": "eth0", "admin-status": "UP", "oper-status": "UP", "mtu": 1500,
              "addresses": ["192.0.2.1/24", "2001:db8::1/64"], "why": [],
              "rates": {"in-bits-per-second": 1200, "out-bits-per-second": 0},
              "counters": {"in-errors": 1, "out-errors": 2}, "last-change": "2026-11-27T11:00:00Z" },
            { "name": "eth1", "admin-status": "UP", "oper-status": "DOWN", "mtu": 9000,
              "addresses": [], "why": ["no carrier"], "last-change": null },
        ] });
        let want = "\
INTERFACE  ADMIN  OPER   MTU  ADDRESS         IN BIT/S  OUT BIT/S  ERRORS  LAST CHANGE           WHY
eth0       UP     UP    1500  192.0.2.1/24       1.2 k         0        3  2026-11-27T11:00:00Z
                              2001:db8::1/64
eth1       UP     DOWN  9000                                                                     no carrier
";
        assert_eq!(table(&document, Ink::Plain), want);
        assert!(table(&document, Ink::Coloured).contains("\x1b[31mDOWN\x1b[0m"));
        assert!(details(&document, Ink::Plain).contains("why           no carrier\n"));
    }
}
