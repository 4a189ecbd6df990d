//! `holdfast show neighbors`: hosts on the links, with their link-layer addresses.

use holdfast_base::Caller;
use serde_json::{Value, json};

use super::look::Look;
use super::{list, word};
use crate::local::rights::LookError;
use crate::local::table::{Cell, Column, Ink, Table, Tone};

/// The neighbours of all links, or of the named one.
pub(super) async fn document(
    look: &Look,
    caller: &Caller,
    link: Option<&str>,
) -> Result<Value, LookError> {
    let readable = look.readable(caller, &[]).await;
    let interfaces = readable.top("interfaces");
    let mut neighbors = Vec::new();
    let mut is_known = link.is_none();
    for interface in list(&interfaces, "interface") {
        if link.is_some_and(|link| interface["name"] != link) {
            continue;
        }
        is_known = true;
        for family in ["ipv4", "ipv6"] {
            let there = list(&interface[family], "neighbor").map(|it| &it["state"]);
            neighbors.extend(there.filter(|it| it.is_object()).map(|state| {
                json!({
                    "interface": interface["name"],
                    "ip": state["ip"],
                    "link-layer-address": state["link-layer-address"],
                    "state": state["neighbor-state"],
                    "origin": state["origin"],
                })
            }));
        }
    }
    if !is_known {
        let name = link.unwrap_or_default();
        return Err(LookError::Missing(format!("there is no interface `{name}`")));
    }
    Ok(json!({ "neighbors": neighbors }))
}

pub(super) fn table(document: &Value, ink: Ink) -> String {
    let mut table = Table::new(&[
        Column::left("ADDRESS"),
        Column::left("LINK-LAYER ADDRESS"),
        Column::left("INTERFACE"),
        Column::left("STATE"),
        Column::left("ORIGIN"),
    ]);
    for it in list(document, "neighbors") {
        let state = word(it, "state");
        let tone = match state.as_str() {
            "REACHABLE" | "PERMANENT" => Tone::Good,
            "FAILED" | "INCOMPLETE" => Tone::Bad,
            _ => Tone::Neutral,
        };
        table.rows.push(vec![
            word(it, "ip").into(),
            word(it, "link-layer-address").into(),
            word(it, "interface").into(),
            Cell::toned(state, tone),
            word(it, "origin").into(),
        ]);
    }
    table.text(ink)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbors_are_a_table() {
        let document = json!({ "neighbors": [
            { "interface": "eth0", "ip": "192.0.2.2", "link-layer-address": "02:00:00:00:00:01",
              "state": "REACHABLE", "origin": "DYNAMIC" },
            { "interface": "eth1", "ip": "2001:db8::2", "link-layer-address": null, "state": "FAILED",
              "origin": "DYNAMIC" },
        ] });
        let want = "\
ADDRESS      LINK-LAYER ADDRESS  INTERFACE  STATE      ORIGIN
192.0.2.2    02:00:00:00:00:01   eth0       REACHABLE  DYNAMIC
2001:db8::2                      eth1       FAILED     DYNAMIC
";
        assert_eq!(table(&document, Ink::Plain), want);
    }
}
