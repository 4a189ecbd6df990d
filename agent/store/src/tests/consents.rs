//! Transactions that are prepared ahead, and decided in another order than they came in.

use super::*;

/// A thread of the database that is driven by the test, with `count` undecided transactions.
fn undecided(
    folder: &TempDir,
    count: u64,
) -> (DatabaseThread, Vec<oneshot::Receiver<Result<(), StoreError>>>) {
    let (_, command_rx) = mpsc::channel(1);
    let mut thread = DatabaseThread::new(Database::open(folder.path()).unwrap(), command_rx);
    let prepare = |ticket| {
        let (answer, answered) = oneshot::channel();
        let changes = vec![change(&format!("row{ticket}=1"))];
        thread.execute(Command::Prepare { ticket: Ticket(ticket), changes, answer });
        answered
    };
    let answers = (1..=count).map(prepare).collect();
    (thread, answers)
}

fn decide(thread: &mut DatabaseThread, ticket: u64, is_wanted: bool) {
    thread.execute(Command::Decide { ticket: Ticket(ticket), is_wanted });
}

#[test]
fn a_decision_does_not_wait_for_that_of_another_transaction() {
    let folder = TempDir::new().unwrap();
    let (mut thread, mut answers) = undecided(&folder, 3);
    assert!(thread.lay_out_ahead(), "the first is laid out");
    assert!(!thread.lay_out_ahead(), "one at a time");
    decide(&mut thread, 2, true);
    answers[1].try_recv().unwrap().unwrap();
    assert!(answers[0].try_recv().is_err(), "it is undecided still");
    assert!(thread.lay_out_ahead(), "the third is laid out");
    let (answer, mut written) = oneshot::channel();
    thread.execute(Command::Write { changes: vec![change("other=1")], answer });
    written.try_recv().unwrap().unwrap();
    assert!(!thread.lay_out_ahead(), "once for each");
    decide(&mut thread, 3, false);
    let withdrawn = answers[2].try_recv().unwrap();
    assert!(matches!(withdrawn, Err(StoreError::Withdrawn { ticket: Ticket(3) })));
    decide(&mut thread, 1, true);
    answers[0].try_recv().unwrap().unwrap();
    for (ticket, number) in [(2, 1), (1, 2)] {
        let (answer, mut decided) = oneshot::channel();
        let unconfirmed = Unconfirmed::Stays;
        let content = FinalContent::default();
        let ticket = Ticket(ticket);
        thread.execute(Command::Commit { ticket, number, unconfirmed, content, answer });
        decided.try_recv().unwrap().unwrap();
    }
    drop(thread);
    let loaded = Database::open(folder.path()).unwrap().load().unwrap();
    assert_eq!((layers(&loaded).as_str(), loaded.rolled_back), ("other=1 row1=1 row2=1", 0));
}

#[test]
fn a_layout_is_written_as_it_is_unless_something_came_between() {
    for (between, laid_out) in [(false, 1), (true, 2)] {
        let folder = TempDir::new().unwrap();
        let (mut thread, _answers) = undecided(&folder, 1);
        assert!(thread.lay_out_ahead());
        if between {
            let (answer, _) = oneshot::channel();
            thread.execute(Command::SetUser { user: user("ada"), answer });
        }
        decide(&mut thread, 1, true);
        assert_eq!(thread.block_work().written, laid_out);
    }
}

/// Four commits whose consents come in every order, with other commands between: none of them waits for another one.
#[tokio::test]
async fn consents_come_in_any_order() {
    let folder = TempDir::new().unwrap();
    let (store, _) = Store::open(folder.path()).unwrap();
    let mut number = 0;
    for order in 0..24_usize {
        let mut waiting = Vec::new();
        for slot in 0..4 {
            let ticket = store.new_ticket();
            let changes = vec![change(&format!("row{slot}={order}"))];
            waiting.push((ticket, store.prepare_ahead(ticket, changes)));
        }
        for places in [order / 6, order % 6 / 2, order % 2, 0] {
            // The thread has nothing else to do, so it has laid rows out, or does so at any time from here on.
            store.write(vec![change(&format!("other={number}"))]).await.unwrap();
            let (ticket, (answer, consent)) = waiting.remove(places);
            number += 1;
            if number % 5 == 0 {
                drop(consent);
                assert!(matches!(answer.await, Err(StoreError::Withdrawn { .. })));
                continue;
            }
            consent.give();
            answer.await.unwrap();
            store.commit(ticket, number, Unconfirmed::Stays).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_full_queue_loses_no_decision() {
    let folder = TempDir::new().unwrap();
    let (store, _) = Store::open(folder.path()).unwrap();
    let (answer, consent) = store.prepare_ahead(store.new_ticket(), vec![change("a=1")]);
    let mut others = Vec::new();
    let refused = loop {
        let (answer, consent) = store.prepare_ahead(store.new_ticket(), vec![change("b=1")]);
        match answer.0 {
            Ok(_) => others.push((answer, consent)),
            Err(_) => break answer.await,
        }
    };
    assert!(matches!(refused, Err(StoreError::Overloaded)));
    consent.give();
    answer.await.unwrap();
    drop(others);
}
