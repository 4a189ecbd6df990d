//! A disk that stops at a write, as it does for an agent that is killed there.

use super::*;
use crate::faults::WriteKind::{self, Commit, Prepare, Rows};

/// Writes in a row, each once the one before is answered. Counts the answers.
async fn write(store: Store, answered: Arc<AtomicU64>) {
    let count = || answered.fetch_add(1, Ordering::Relaxed);
    for number in 1..=2 {
        let ticket = store.new_ticket();
        store.prepare(ticket, vec![change(&format!("a={number}"))]).await.unwrap();
        count();
        store.commit(ticket, number, Unconfirmed::Stays).await.unwrap();
        count();
        store.write(vec![change(&format!("b={number}"))]).await.unwrap();
        count();
    }
}

#[tokio::test]
async fn a_disk_that_stops_at_a_write_answers_nothing_and_has_what_was_made() {
    const STOPS: [(WriteKind, bool, usize, &str); 12] = [
        (Prepare, false, 0, ""),
        (Prepare, true, 0, ""),
        (Commit, false, 0, ""),
        (Commit, true, 1, "a=1"),
        (Rows, false, 1, "a=1"),
        (Rows, true, 1, "a=1 b=1"),
        (Prepare, false, 1, "a=1 b=1"),
        (Prepare, true, 1, "a=1 b=1"),
        (Commit, false, 1, "a=1 b=1"),
        (Commit, true, 2, "a=2 b=1"),
        (Rows, false, 2, "a=2 b=1"),
        (Rows, true, 2, "a=2 b=2"),
    ];
    for (number, (kind, is_made, commits, want)) in STOPS.into_iter().enumerate() {
        let folder = TempDir::new().unwrap();
        let (store, _) = Store::open(folder.path()).unwrap();
        let nth = number / 2 + 1;
        let stopped_rx = store.stop_at(nth, is_made).await.unwrap();
        let answered = Arc::new(AtomicU64::new(0));
        let writes = tokio::spawn(write(store.clone(), Arc::clone(&answered)));
        let stopped = stopped_rx.await.unwrap();
        assert_eq!((stopped.kind, stopped.is_made, stopped.commits), (kind, is_made, commits));
        // Nothing is answered after an answer that does not come.
        assert!(!writes.is_finished());
        assert_eq!(answered.load(Ordering::Relaxed), nth as u64 - 1, "{kind:?}");
        writes.abort();
        store.close().await.unwrap();
        let loaded = Database::open(folder.path()).unwrap().load().unwrap();
        assert_eq!(layers(&loaded), want, "{kind:?}, made: {is_made}");
    }
}
