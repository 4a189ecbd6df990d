//! A measurement of the database with 100 000 routes: bytes written and time.

use std::{
    env, fs,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{Change, Database, FILE_NAME, Ticket, Unconfirmed};

const ROUTES: u32 = 100_000;

/// Rows of one static route and its next hop, in the form of `holdfast_config::rows`.
pub(super) fn route(number: u32, value: bool) -> [Change; 2] {
    let [_, a, b, c] = number.to_be_bytes();
    let prefix = format!("10.{a}.{b}.{c}/32");
    let of_protocol = b"\x05\x07DEFAULT\x08\x06STATIC\x05\x06STATIC";
    let text = |text: &str| [&[5, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let entry = [&[6, 0x1c, 0x9d, 0xc5, 0x11], &of_protocol[..], &text(&prefix)].concat();
    let hop = [&[6, 0x81, 0x1c, 0x9d, 0xc5], &of_protocol[..], &text(&prefix), &text("0")].concat();
    let next_hop = [&[0x80, 0x42, 0x43, 0x44, 0x45, 0], &text("192.0.2.2")[..]].concat();
    [Change::layer(entry, value.then(|| vec![0x80])), Change::layer(hop, value.then_some(next_hop))]
}

pub(super) fn routes(value: bool) -> Vec<Change> {
    (0..ROUTES).flat_map(|number| route(number, value)).collect()
}

/// Bytes that this process has written so far.
fn written() -> u64 {
    let io = fs::read_to_string("/proc/self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
    line.parse().unwrap()
}

/// Time for which this thread has had a processor.
fn processor_time() -> Duration {
    let figures = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(figures.split(' ').next().unwrap().parse().unwrap())
}

/// `cargo test --workspace --lib --locked -- --ignored --nocapture routes_at_scale`
#[test]
#[ignore = "a measurement, not a claim"]
fn routes_at_scale() {
    let folder =
        TempDir::new_in(env::var("HOLDFAST_TEST_FOLDER").unwrap_or("/tmp".to_owned())).unwrap();
    let path = folder.path().join(FILE_NAME);
    let mut database = Database::open(folder.path()).unwrap();
    let rows = routes(true);
    let none = routes(false);
    let mut before = (Instant::now(), processor_time(), written());
    let mut lap = |what: &str| {
        let now = (Instant::now(), processor_time(), written());
        eprintln!(
            "{what:<24} {:>5} ms {:>5} ms CPU {:>9} bytes written",
            (now.0 - before.0).as_millis(),
            (now.1 - before.1).as_millis(),
            now.2 - before.2
        );
        before = (Instant::now(), processor_time(), written());
    };
    database.prepare(Ticket(1), &rows).unwrap();
    lap("prepare 100 k routes");
    database.commit(Ticket(1), 1, Unconfirmed::Stays).unwrap();
    lap("commit");
    eprintln!("file: {} KiB", fs::metadata(&path).unwrap().len() / 1024);
    database.prepare(Ticket(2), &rows[100_001..100_002]).unwrap();
    lap("prepare one route");
    database.commit(Ticket(2), 2, Unconfirmed::Stays).unwrap();
    lap("commit");
    drop(database);
    lap("close");
    let mut database = Database::open(folder.path()).unwrap();
    lap("open");
    assert_eq!(database.load().unwrap().layers.len(), rows.len());
    lap("load");
    database.prepare(Ticket(3), &none).unwrap();
    lap("prepare the deletion");
    database.abort(Ticket(3)).unwrap();
    lap("abort");
    database.prepare(Ticket(4), &none).unwrap();
    lap("prepare the deletion");
    database.commit(Ticket(4), 4, Unconfirmed::Stays).unwrap();
    lap("commit");
    eprintln!("file: {} KiB", fs::metadata(&path).unwrap().len() / 1024);
}
