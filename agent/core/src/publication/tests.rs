//! Rows for the work of one turn.

use holdfast_config::Models;
use holdfast_platform::kinds::{self, route};
use holdfast_store::Store;

use super::*;

/// `RT_TABLE_MAIN`.
const MAIN_TABLE: u32 = 254;

/// A publisher of a box without configuration.
fn publisher() -> Publisher {
    let models = Arc::new(Models::load().unwrap());
    let registry = Arc::new(Registry::new(&models.native).unwrap());
    let configuration = Configuration::new(models, Layers::new());
    let history = HistoryChange::default();
    let mut publisher = Publisher::new(registry, &configuration, &[], history, &[], "test");
    publisher.begin_showing(Vec::new());
    publisher
}

#[test]
fn what_changed_while_a_revision_was_built_is_shown_in_portions() {
    const PORTIONS: usize = 3;
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(folder.path()).unwrap();
    let engine = Engine::new(kinds::registry());
    let mut publisher = publisher();
    let many = u32::try_from(PORTIONS * TURN_KEYS).unwrap();
    let prefix = |number: u32| format!("10.{}.{}.0/24", number / 256, number % 256);
    let mut keys: Vec<Key> = (0..many)
        .map(|number| route::key(MAIN_TABLE, prefix(number).parse().unwrap(), 0))
        .collect();
    sort_keys(&mut keys);
    let ticket = store.new_ticket();
    publisher.defer(ticket, Arc::new(keys.clone()));
    let built_keys = publisher.deferrals.take_all(ticket);
    publisher.mark_dirty(keys);
    assert!(!publisher.has_work(), "deferred while the revision is built");
    let base = publisher.chain.newest();
    let next = Revision { time_ns: 7, ..(*base).clone() };
    let shown = HashMap::new();
    let left = Vec::new();
    let boundary = publisher.complete(
        ticket,
        &engine,
        BuiltRevision { base, next, keys: built_keys, shown, left },
    );
    let mut portions = 0;
    while publisher.has_work() {
        publisher.show_portion(&engine);
        portions += 1;
        assert_eq!(publisher.chain.newest().number, boundary.number + portions);
    }
    assert_eq!(portions, PORTIONS as u64 - 1, "one of them came with the commit");
}
