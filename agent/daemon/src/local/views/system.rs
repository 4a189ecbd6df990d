//! `holdfast show system`: names, version and times of the box, and the sockets by which it is managed.

use std::fs;

use holdfast_base::{Caller, now_ns};
use holdfast_core::{Datastore as _, UnconfirmedCommit};
use serde_json::{Value, json};

use super::look::Look;
use super::{list, word};
use crate::local::faults::time_text;
use crate::local::rights::LookError;
use crate::local::table::{Cell, Column, Ink, Table, Tone};

pub(super) async fn document(look: &Look, caller: &Caller) -> Result<Value, LookError> {
    let readable = look.readable(caller, &["/system/state", "/resources"]).await;
    let system = readable.top("system");
    let state = &system["state"];
    let sockets = look.listeners.document();
    let revision = look.core.current_revision().await;
    let now = now_ns();
    let waiting = UnconfirmedCommit::of(&revision).map(|commit| commit.text(now));
    Ok(json!({
        "hostname": state["hostname"],
        "domain-name": state["domain-name"],
        "version": look.version,
        "current-datetime": state["current-datetime"],
        "boot-time": state["boot-time"].as_u64().map(time_text),
        "up-time-seconds": state["up-time"].as_u64().map(|ns| ns / 1_000_000_000),
        "agent-start": time_text(look.started_ns),
        "agent-up-time-seconds": now.saturating_sub(look.started_ns) / 1_000_000_000,
        "load": load(),
        "memory": readable.top("resources")["memory"],
        "waiting-commit": waiting,
        "sockets": sockets,
    }))
}

/// The average number of processes that run or wait for a processor or disk, in the last 1, 5 and 15 minutes.
fn load() -> Option<Value> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let averages: Vec<f64> = text.split(' ').take(3).map_while(|it| it.parse().ok()).collect();
    (averages.len() == 3).then(|| json!(averages))
}

/// A size in MiB.
fn mebibytes(bytes: &Value) -> u64 {
    bytes.as_u64().unwrap_or_default() >> 20
}

pub(super) fn table(document: &Value, ink: Ink) -> String {
    let mut table = Table::new(&[Column::left(""), Column::left("")]);
    let up = |since: &str, seconds: &str| {
        let time = word(document, since);
        let seconds = document[seconds].as_u64();
        seconds.map(|seconds| format!("{time}, {} ago", span_text(seconds))).unwrap_or(time)
    };
    let clock = word(document, "current-datetime");
    let clock = clock.split_once('.').map_or(clock.clone(), |(seconds, _)| format!("{seconds}Z"));
    let load: Vec<String> = list(document, "load").map(Value::to_string).collect();
    let memory = match &document["memory"] {
        Value::Null => String::new(),
        memory => format!(
            "{} MiB of {} MiB available",
            mebibytes(&memory["available"]),
            mebibytes(&memory["physical"])
        ),
    };
    for (name, text) in [
        ("host name", word(document, "hostname")),
        ("domain", word(document, "domain-name")),
        ("version", word(document, "version")),
        ("time", clock),
        ("booted", up("boot-time", "up-time-seconds")),
        ("agent started", up("agent-start", "agent-up-time-seconds")),
        ("load", load.join(" ")),
        ("memory", memory),
    ] {
        if !text.is_empty() {
            table.rows.push(vec![name.into(), text.into()]);
        }
    }
    let waiting = word(document, "waiting-commit");
    if !waiting.is_empty() {
        table.rows.push(vec!["attention".into(), Cell::toned(waiting, Tone::Waiting)]);
    }
    let mut sockets = Table::new(&[
        Column::left("SOCKET"),
        Column::left("FOR"),
        Column::left("STATE"),
        Column::left("NOTE"),
    ]);
    for it in list(document, "sockets") {
        let state = word(it, "state");
        let tone = if state == "LISTENING" { Tone::Good } else { Tone::Bad };
        sockets.rows.push(vec![
            word(it, "name").into(),
            word(it, "kind").into(),
            Cell::toned(state, tone),
            word(it, "reason").into(),
        ]);
    }
    format!("{}\n{}", table.text(ink), sockets.text(ink))
}

/// A span of time in its two largest units.
fn span_text(seconds: u64) -> String {
    let minutes = seconds / 60;
    let hours = seconds / 3600;
    let days = seconds / 86_400;
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_box_is_two_tables() {
        let document = json!({
            "hostname": "r1", "domain-name": null, "version": "0.1.0",
            "current-datetime": "2026-11-27T11:00:00.123456789Z",
            "boot-time": "2026-11-27T09:58:00Z", "up-time-seconds": 3720,
            "agent-start": "2026-11-27T10:59:57Z", "agent-up-time-seconds": 3,
            "load": [0.25, 0.1, 0.0],
            "memory": { "physical": 2_147_483_648_u64, "available": 1_073_741_824 },
            "waiting-commit": null,
            "sockets": [
                { "kind": "gRPC", "name": "[::]:9339", "state": "LISTENING", "reason": null },
                { "kind": "introspection", "name": "127.0.0.1:9190", "state": "WAITING", "reason": "in use" },
            ],
        });
        let want = "\
host name      r1
version        0.1.0
time           2026-11-27T11:00:00Z
booted         2026-11-27T09:58:00Z, 1 h 2 min ago
agent started  2026-11-27T10:59:57Z, 3 s ago
load           0.25 0.1 0.0
memory         1024 MiB of 2048 MiB available

SOCKET          FOR            STATE      NOTE
[::]:9339       gRPC           LISTENING
127.0.0.1:9190  introspection  WAITING    in use
";
        assert_eq!(table(&document, Ink::Plain), want);
    }

    #[test]
    fn spans_have_their_two_largest_units() {
        for (seconds, want) in [
            (59, "59 s"),
            (60, "1 min 0 s"),
            (3_599, "59 min 59 s"),
            (7_260, "2 h 1 min"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(span_text(seconds), want);
        }
    }
}
