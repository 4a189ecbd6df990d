//! Rows in blocks against a plain map, and what a change costs.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::block::MAX_OCTETS;
use crate::layer_table::BlockWork;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Entries of each of the two lists.
const ENTRIES: u32 = 400;

/// Changes of one batch.
#[derive(Clone, Debug)]
enum Op {
    Put(u32, usize),
    PutRange(u32, u32, usize),
    Delete(u32),
    DeleteRange(u32, u32),
}

/// Ways in which a batch ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Commit,
    Abort,
    /// Without a transaction.
    Write,
    /// The file is opened again while the batch is prepared.
    Kill,
    /// Committed, to be confirmed, and opened again.
    Unconfirmed,
    Confirmed,
    /// Committed and opened again.
    Restart,
}

fn some_value() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0..40_usize, 2 => 100..1500_usize, 1 => Just(5000_usize), 1 => Just(70_000)]
}

fn some_op() -> impl Strategy<Value = Op> {
    let number = || 0..2 * ENTRIES;
    let range = || (number(), 1..300_u32);
    prop_oneof![
        4 => (number(), some_value()).prop_map(|(number, octets)| Op::Put(number, octets)),
        3 => number().prop_map(Op::Delete),
        2 => (range(), 0..60_usize).prop_map(|((from, count), octets)| Op::PutRange(from, count, octets)),
        2 => range().prop_map(|(from, count)| Op::DeleteRange(from, count)),
    ]
}

fn some_end() -> impl Strategy<Value = End> {
    prop_oneof![
        6 => Just(End::Commit),
        2 => Just(End::Abort),
        1 => Just(End::Write),
        1 => Just(End::Kill),
        1 => Just(End::Unconfirmed),
        1 => Just(End::Confirmed),
        1 => Just(End::Restart),
    ]
}

fn key(number: u32) -> Vec<u8> {
    let list = if number < ENTRIES { "one list" } else { "other list of entries with inner lists" };
    format!("{list}, {number:03}").into_bytes()
}

impl Op {
    fn changes(&self) -> Vec<Change> {
        let put = |number: u32, octets: usize| {
            let octet = number.to_le_bytes()[0];
            let value = (0..octets)
                .map(|place| if place % 7 == 0 { octet } else { place.to_le_bytes()[0] });
            Change::layer(key(number), Some(value.collect()))
        };
        let delete = |number| Change::layer(key(number), None);
        let range = |from: u32, count: u32| from..(from + count).min(2 * ENTRIES);
        match *self {
            Op::Put(number, octets) => vec![put(number, octets)],
            Op::PutRange(from, count, octets) => {
                range(from, count).map(|number| put(number, octets)).collect()
            }
            Op::Delete(number) => vec![delete(number)],
            Op::DeleteRange(from, count) => range(from, count).map(delete).collect(),
        }
    }
}

fn stored(database: &mut Database) -> Model {
    let mut rows = Vec::new();
    let take = |key: &[u8], value: &[u8]| -> Result<(), StoreError> {
        rows.push((key.to_vec(), value.to_vec()));
        Ok(())
    };
    database.load().unwrap().layers.visit(take).unwrap();
    assert!(rows.is_sorted_by(|one, other| one.0 < other.0));
    rows.into_iter().collect()
}

/// Blocks are bounded, and no two small ones are neighbours.
pub(super) fn check_sizes(database: &mut Database) {
    let sizes: Vec<_> = database.load().unwrap().layers.block_sizes().collect();
    for size in &sizes {
        let is_bounded = size.entries <= 127 && (size.octets <= MAX_OCTETS || size.entries == 1);
        assert!(size.entries > 0 && is_bounded, "{size:?}");
    }
    let small = sizes.windows(2).find(|pair| pair.iter().all(|size| size.is_small()));
    assert_eq!(small, None);
}

/// Carries out one batch; true when its changes stay.
fn execute(
    folder: &Path,
    database: &mut Option<Database>,
    number: u64,
    changes: &[Change],
    end: End,
) -> bool {
    let open = database.as_mut().unwrap();
    if matches!(end, End::Write) {
        open.write(changes).unwrap();
        return true;
    }
    let ticket = Ticket(number);
    open.prepare(ticket, changes).unwrap();
    match end {
        End::Commit | End::Restart => open.commit(ticket, number, Unconfirmed::Stays).unwrap(),
        End::Unconfirmed | End::Confirmed => {
            open.commit(ticket, number, Unconfirmed::Begins).unwrap()
        }
        End::Abort => open.abort(ticket).unwrap(),
        End::Kill | End::Write => {}
    }
    if matches!(end, End::Confirmed) {
        open.confirm().unwrap();
    }
    if matches!(end, End::Kill | End::Restart | End::Unconfirmed) {
        *database = None;
        *database = Some(Database::open(folder).unwrap());
    }
    !matches!(end, End::Abort | End::Kill | End::Unconfirmed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// After any batches, roll-backs and openings, the rows are those of a plain map.
    #[test]
    fn rows_are_those_of_a_map(
        batches in prop::collection::vec((prop::collection::vec(some_op(), 1..12), some_end()), 1..12),
    ) {
        let folder = TempDir::new().unwrap();
        let mut database = Some(Database::open(folder.path()).unwrap());
        let mut model = Model::new();
        for ((ops, end), number) in batches.into_iter().zip(1..) {
            let changes: Vec<_> = ops.iter().flat_map(Op::changes).collect();
            if execute(folder.path(), &mut database, number, &changes, end) {
                for change in changes {
                    match change.value {
                        Some(value) => drop(model.insert(change.key, value)),
                        None => drop(model.remove(&change.key)),
                    }
                }
            }
            let database = database.as_mut().unwrap();
            prop_assert_eq!(&stored(database), &model);
            check_sizes(database);
        }
    }
}

/// Work of one transaction.
fn work_of(database: &mut Database, number: u64, changes: &[Change]) -> BlockWork {
    let before = database.block_work();
    database.prepare(Ticket(number), changes).unwrap();
    database.commit(Ticket(number), number, Unconfirmed::Stays).unwrap();
    let after = database.block_work();
    BlockWork {
        read: after.read - before.read,
        written: after.written - before.written,
        removed: after.removed - before.removed,
    }
}

#[test]
fn one_leaf_beside_many_routes_rewrites_one_block() {
    const BLOCKS: u64 = 2 * 100_000 / 64;
    let folder = TempDir::new().unwrap();
    let mut database = Database::open(folder.path()).unwrap();
    let work = work_of(&mut database, 1, &scale::routes(true));
    assert_eq!(work, BlockWork { read: 0, written: BLOCKS, removed: 0 });
    let octets: usize = database.load().unwrap().layers.block_sizes().map(|it| it.octets).sum();
    assert!(octets < 100_000 * 23, "{octets}");

    let [_, next_hop] = scale::route(50_000, true);
    let changed = Change { value: Some(vec![1; 30]), ..next_hop };
    let one = BlockWork { read: 1, written: 1, removed: 0 };
    assert_eq!(work_of(&mut database, 2, &[changed]), one, "a leaf");
    let [entry, _] = scale::route(50_000, false);
    assert_eq!(work_of(&mut database, 3, &[entry]), one, "an entry less");
    assert_eq!(
        work_of(&mut database, 4, &scale::route(100_000, true)),
        BlockWork { read: 2, written: 2, removed: 0 }
    );

    let deletes: Vec<_> = (0..=100_000).flat_map(|number| scale::route(number, false)).collect();
    let work = work_of(&mut database, 5, &deletes);
    assert_eq!(work, BlockWork { read: BLOCKS, written: 0, removed: BLOCKS });
}
