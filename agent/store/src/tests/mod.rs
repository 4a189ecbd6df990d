mod blocks;
mod consents;
mod kills;
mod revisions;
mod scale;
mod side_by_side;
mod stops;
mod version_1;

use std::{
    env, fs,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    process,
};

use tempfile::TempDir;

use super::*;
use crate::faults::Fault;

/// Set in the child process of the crash test: the folder it works in.
const CRASH_FOLDER: &str = "HOLDFAST_TEST_CRASH_FOLDER";

#[test]
fn a_commit_that_fails_is_rolled_back_unless_it_was_made() {
    for (fault, unconfirmed, is_final) in [
        (Fault::Lost, Unconfirmed::Stays, false),
        (Fault::Lost, Unconfirmed::Begins, false),
        (Fault::Misreported, Unconfirmed::Stays, true),
    ] {
        let folder = TempDir::new().unwrap();
        let mut database = Database::open(folder.path()).unwrap();
        database.prepare(Ticket(1), &[change("a=1")]).unwrap();
        database.fault = Some(fault);
        let result = database.commit(Ticket(1), 1, unconfirmed);
        assert_eq!(result.is_ok(), is_final, "{fault:?}: {result:?}");
        database.note(&result);
        // The next transaction is possible.
        database.mend().unwrap();
        database.prepare(Ticket(2), &[change("b=1")]).unwrap();
        database.commit(Ticket(2), 2, Unconfirmed::Stays).unwrap();
        let want = if is_final { "a=1 b=1" } else { "b=1" };
        assert_eq!(layers(&database.load().unwrap()), want, "{fault:?}");
        drop(database);
        let mut database = Database::open(folder.path()).unwrap();
        assert_eq!(layers(&database.load().unwrap()), want, "{fault:?}");
    }
}

/// A disk that is full at a start keeps no box from its configuration.
#[test]
fn a_roll_back_that_the_disk_refuses_at_a_start_is_made_up_for() {
    for fault in [Fault::NotRolledBack, Fault::MisreportedRollBack] {
        let folder = TempDir::new().unwrap();
        let mut database = Database::open(folder.path()).unwrap();
        database.prepare(Ticket(1), &[change("a=1")]).unwrap();
        database.commit(Ticket(1), 1, Unconfirmed::Stays).unwrap();
        database.prepare(Ticket(2), &[change("a=2")]).unwrap();
        drop(database);

        let mut database = Database::open_as_it_is(folder.path()).unwrap();
        database.fault = Some(fault);
        let mut database = database.after_last_run(folder.path()).unwrap();
        let loaded = database.load().unwrap();
        assert_eq!(layers(&loaded), "a=1", "{fault:?}");
        assert!(matches!(Database::open(folder.path()), Err(StoreError::Locked { .. })));

        // The disk still refuses, then it does not.
        if fault == Fault::NotRolledBack {
            database.fault = Some(fault);
            assert!(matches!(database.mend(), Err(StoreError::Access { .. })));
            assert_eq!(layers(&database.load().unwrap()), "a=1");
        }
        database.mend().unwrap();
        database.prepare(Ticket(3), &[change("b=3")]).unwrap();
        database.commit(Ticket(3), 3, Unconfirmed::Stays).unwrap();
        assert_eq!(layers(&database.load().unwrap()), "a=1 b=3");
        drop(database);
        let mut database = Database::open(folder.path()).unwrap();
        assert_eq!(layers(&database.load().unwrap()), "a=1 b=3");
    }
}

#[test]
fn rows_follow_prepare_commit_and_abort() {
    // what happens, layer rows afterwards
    check(&[], "");
    check(&["p1 a=1 b=2", "c1"], "a=1 b=2");
    check(&["p1 a=1", "c1", "p2 a=2 b=3", "a2"], "a=1");
    check(&["p1 a=1 b=2", "c1", "p2 a= c=4", "c2"], "b=2 c=4");
    check(&["p1 a=1 b=2", "c1", "p2 a= c=4", "a2"], "a=1 b=2");
    check(&["p1 a=1", "c1", "p2 a=2 a=3 a=", "a2"], "a=1");
    check(&["w a=1 b=1", "w b="], "a=1");
    // a reopening rolls back what was prepared, and nothing else
    check(&["p1 a=1", "c1", "p2 a=2 b=3", "reopen"], "a=1");
    check(&["p1 a=1", "reopen", "p2 b=1", "c2", "reopen"], "b=1");
    check(&["p1", "reopen", "p2 b=1", "c2"], "b=1");
    check(&["p7", "c7", "reopen", "p8 a=1", "a8", "reopen"], "");
    // transactions side by side end in any order, each alone; a ticket may come again after an opening
    check(&["p1 a=1 c=1", "p2 b=2", "c2:1", "c1:2"], "a=1 b=2 c=1");
    check(&["p1 a=1 c=1", "p2 b=2", "a1", "c2"], "b=2");
    check(&["p1 a=1 c=1", "p2 b=2", "c1", "reopen", "p2 b=3", "c2"], "a=1 b=3 c=1");
    check(&["p1 a=1 c=1", "p2 b=2", "reopen"], "");
    check(&["p1 a=1", "p2 b=2", "a1", "p3 a=3", "c3", "a2"], "a=3");
}

#[test]
fn a_commit_may_write_its_rows_once_more() {
    check(&["p1 a=1 b=1", "c1 a=2"], "a=2 b=1");
    check(&["p1 a=1 b=1", "c1 a=2", "reopen"], "a=2 b=1");
    check(&["p1 a=1", "c1", "p2 a=2 b=2", "c2 a= b=3"], "b=3");
    // what was there before the transaction comes back
    check(&["p1 a=1", "c1", "p2 a=2", "u2 a=3"], "a=3");
    check(&["p1 a=1", "c1", "p2 a=2", "u2 a=3", "reopen"], "a=1");
    check(&["p1 a=1", "c1", "p2 a=2", "u2 a=3", "k", "reopen"], "a=3");
}

// proves 1.135
#[test]
fn an_unconfirmed_commit_is_rolled_back_at_the_next_opening() {
    check(&["p1 a=1", "c1", "p2 a=2 b=3", "u2"], "a=2 b=3");
    check(&["p1 a=1", "c1", "p2 a=2 b=3", "u2", "reopen"], "a=1");
    check(&["p1 a=1", "c1", "p2 a=2 b=3", "u2", "reopen", "reopen"], "a=1");
    check(&["p1 a=1", "c1", "p2 a=2", "u2", "k", "reopen"], "a=2");
    check(&["p1 a=1", "c1", "p2 a=2", "u2", "p3 a=1", "e3", "p4 a=4", "c4", "reopen"], "a=4");
    // a restart before the roll-back is final
    check(&["p1 a=1", "c1", "p2 a=2", "u2", "p3 a=1", "reopen"], "a=1");
    check(&["p1 a=1", "c1", "p2 a=2", "u2", "p3 a=1", "a3"], "a=2");
    // changes by others meanwhile stay, unless they were not answered either
    check(&["p1 a=1", "c1", "p2 a=2", "u2", "p3 z=1", "c3", "reopen"], "a=1 z=1");
    check(&["p1 a=1", "c1", "p2 a=2", "u2", "p3 z=1", "reopen"], "a=1");
    // a commit that waits to be confirmed can be ended twice, and a new one can begin
    check(&["p1 a=1", "u1", "k", "k", "p2 b=1", "u2", "reopen"], "a=1");
    check(&["p1 a=1 a=2 a=3", "u1", "reopen"], "");
    // while it waits, others run side by side
    check(&["p1 a=1", "u1", "p2 y=1", "p3 z=1", "c3:2", "c2:3", "reopen"], "y=1 z=1");
    check(&["p1 a=1", "u1", "p2 y=1", "p3 z=1", "k", "c3:2", "reopen"], "a=1 z=1");
}

// proves sv.J17
#[test]
fn rows_of_services_join_the_commit_that_waits() {
    let begun = ["p1 a=1 ~x=1", "c1", "p2 a=2 ~y=2", "u2"];
    let after = |steps: &[&'static str], want| check(&[&begun[..], steps].concat(), want);
    after(&["p3 ~x=3 ~z=3", "j3"], "~x=3 ~y=2 ~z=3 a=2");
    after(&["p3 ~x=3 ~z=3", "j3", "reopen"], "~x=1 a=1");
    // of each row the oldest content comes back, also of those that the waiting commit has written itself
    after(&["p3 ~x=3 ~y=", "j3", "p4 ~x= ~y=4", "j4", "reopen"], "~x=1 a=1");
    after(&["p3 ~x=3", "j3 ~x=4", "p4 ~x=5", "j4", "reopen", "reopen"], "~x=1 a=1");
    // rows of other layers stay, and so does all that is confirmed
    after(&["p3 ~x=3 b=3", "j3", "reopen"], "~x=1 a=1 b=3");
    after(&["p3 ~x=3 b=3", "j3", "k", "reopen"], "~x=3 ~y=2 a=2 b=3");
    // what has not joined before a kill is rolled back first
    after(&["p3 ~x=3", "j3", "p4 ~x=4 b=4", "reopen"], "~x=1 a=1");
    after(&["p3 ~x=3", "j3", "p4 ~x=4", "a4", "reopen"], "~x=1 a=1");
    // those that join run side by side, and a later wait begins anew
    after(&["p3 ~x=3", "p4 ~z=4", "j4:3", "j3:4", "reopen"], "~x=1 a=1");
    after(&["p3 ~x=3", "j3", "k", "p4 b=4", "u4", "p5 ~x=5", "j5", "reopen"], "~x=3 ~y=2 a=2");
    after(&["p3 ~x=3", "j3", "p4 a=1 ~x=1 ~y=", "e4", "p5 ~x=5", "c5", "reopen"], "~x=5 a=1");
}

#[test]
fn steps_out_of_order_are_refused() {
    for (steps, want) in [
        (&["c1"][..], "cannot commit the transaction of ticket 1: it is not prepared"),
        (&["p1 a=1", "a2"], "cannot abort the transaction of ticket 2: it is not prepared"),
        (
            &["p1 a=1", "p1 b=2"],
            "cannot prepare the transaction of ticket 1: it is prepared already",
        ),
        (
            &["p1 a=1", "p2 b=2 a=2"],
            "cannot prepare a transaction: the row `a` was written by the transaction of ticket 1, which is not final",
        ),
        (
            &["p1 a=1", "w a=2"],
            "cannot write rows: the row `a` was written by the transaction of ticket 1, which is not final",
        ),
        (
            &["p2 a=1", "c2", "p3 a=2", "c3:2"],
            "cannot commit the transaction of ticket 3: its number 2 is not above 2, the last one",
        ),
        (
            &["p2 a=1", "c2", "reopen", "p1 a=2", "c1"],
            "cannot commit the transaction of ticket 1: its number 1 is not above 2, the last one",
        ),
        (
            &["p1 a=1", "p2 b=2", "u2"],
            "cannot commit the transaction of ticket 2: ticket 1 is prepared, and what begins or ends a wait for confirmation is alone",
        ),
        (
            &["p1 a=1", "u1", "p2 b=2", "p3 c=2", "e2"],
            "cannot commit the transaction of ticket 2: ticket 3 is prepared, and what begins or ends a wait for confirmation is alone",
        ),
        (
            &["p1 ~x=1", "j1"],
            "cannot commit the transaction of ticket 1: no commit waits to be confirmed that it could join",
        ),
        (
            &["p1 a=1", "u1", "p2 b=2", "u2"],
            "cannot commit the transaction of ticket 2: commit 1 waits to be confirmed",
        ),
        (
            &["p1 a=1", "p2 b=2", "c1 a=2 b=3"],
            "cannot commit the transaction of ticket 1: it has not prepared the row `b` of its last write",
        ),
    ] {
        let folder = TempDir::new().unwrap();
        let (last, before) = steps.split_last().unwrap();
        let mut database = Some(Database::open(folder.path()).unwrap());
        before.iter().for_each(|step| run(&folder, &mut database, step).unwrap());
        assert_eq!(run(&folder, &mut database, last).unwrap_err().to_string(), want);
    }
}

#[track_caller]
fn check(steps: &[&str], want: &str) {
    let folder = TempDir::new().unwrap();
    let mut database = Some(Database::open(folder.path()).unwrap());
    steps.iter().for_each(|step| run(&folder, &mut database, step).unwrap());
    let loaded = database.as_mut().unwrap().load().unwrap();
    assert_eq!(layers(&loaded), want, "after {steps:?}");
}

fn run(folder: &TempDir, database: &mut Option<Database>, step: &str) -> Result<(), StoreError> {
    let mut words = step.split(' ');
    let verb = words.next().unwrap();
    let changes: Vec<_> = words.map(change).collect();
    if verb == "reopen" {
        *database = None;
        *database = Some(Database::open(folder.path())?);
        return Ok(());
    }
    let open = database.as_mut().unwrap();
    match verb.split_at(1) {
        ("p", ticket) => open.prepare(Ticket(ticket.parse().unwrap()), &changes),
        ("c", numbers) => commit(open, (numbers, changes), Unconfirmed::Stays),
        ("u", numbers) => commit(open, (numbers, changes), Unconfirmed::Begins),
        ("j", numbers) => commit(open, (numbers, changes), Unconfirmed::Joins),
        ("e", numbers) => commit(open, (numbers, changes), Unconfirmed::Ends),
        ("k", "") => open.confirm(),
        ("a", ticket) => open.abort(Ticket(ticket.parse().unwrap())),
        _ => open.write(&changes),
    }
}

/// Commits a ticket with rows of its last write, under the number behind the colon or its own.
fn commit(
    database: &mut Database,
    (numbers, rows): (&str, Vec<Change>),
    unconfirmed: Unconfirmed,
) -> Result<(), StoreError> {
    let (ticket, number) = numbers.split_once(':').unwrap_or((numbers, numbers));
    let ticket = Ticket(ticket.parse().unwrap());
    let number = number.parse().unwrap();
    let content = FinalContent { rows, ..FinalContent::default() };
    database.commit_with(ticket, number, unconfirmed, &content)
}

/// A change of a row; that of a service plan has a `~` for the first byte of its key.
fn change(text: &str) -> Change {
    let (key, value) = text.split_once('=').unwrap();
    let key = key.replace('~', "\u{c}").into_bytes();
    Change::layer(key, (!value.is_empty()).then(|| value.into()))
}

fn layers(loaded: &StoredState) -> String {
    let mut rows = Vec::new();
    let take = |key: &[u8], value: &[u8]| -> Result<(), StoreError> {
        rows.push((key.to_vec(), value.to_vec()));
        Ok(())
    };
    loaded.layers.visit(take).unwrap();
    text(&rows)
}

fn text(rows: &[Row]) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(|(key, value)| {
            let key = String::from_utf8_lossy(key).replace('\u{c}', "~");
            format!("{key}={}", String::from_utf8_lossy(value))
        })
        .collect();
    rows.join(" ")
}

#[test]
fn pre_image_of_an_adopted_port_survives_a_crash() {
    let folder = TempDir::new().unwrap();
    let mut database = Database::open(folder.path()).unwrap();
    database.write(&[Change::restore(b"eth0".into(), Some(b"mtu 1500".into()))]).unwrap();
    let adopt_and_release = [
        Change::restore(b"eth1".into(), Some(b"mtu 9000".into())),
        Change::restore(b"eth0".into(), None),
        Change::layer(b"entry".into(), Some(b"x".into())),
    ];
    database.prepare(Ticket(1), &adopt_and_release).unwrap();
    database.abort(Ticket(1)).unwrap();
    assert_eq!(text(&database.load().unwrap().restore), "eth0=mtu 1500");

    database.prepare(Ticket(2), &adopt_and_release).unwrap();
    drop(database);
    let loaded = Database::open(folder.path()).unwrap().load().unwrap();
    assert_eq!(text(&loaded.restore), "eth0=mtu 1500 eth1=mtu 9000");
    assert_eq!(layers(&loaded), "");
    assert_eq!((loaded.rolled_back, loaded.last_transaction), (1, 0));
}

#[tokio::test]
async fn a_process_killed_between_prepare_and_commit_leaves_the_state_before() {
    if let Ok(folder) = env::var(CRASH_FOLDER) {
        return crash_in(Path::new(&folder)).await;
    }
    let folder = TempDir::new().unwrap();
    let status = process::Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            "tests::a_process_killed_between_prepare_and_commit_leaves_the_state_before",
        ])
        .env(CRASH_FOLDER, folder.path())
        .stdout(process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.signal(), Some(9));

    let (store, loaded) = Store::open(folder.path()).unwrap();
    assert_eq!(layers(&loaded), "kept=1");
    assert_eq!((loaded.rolled_back, loaded.last_transaction), (1, 1));
    assert_eq!(loaded.users.len(), 1);
    store.prepare(Ticket(3), vec![change("next=1")]).await.unwrap();
    store.commit(Ticket(3), 3, Unconfirmed::Stays).await.unwrap();
}

/// Commits one transaction, prepares another with a thousand rows, and is killed.
async fn crash_in(folder: &Path) {
    let (store, _) = Store::open(folder).unwrap();
    store.prepare(Ticket(1), vec![change("kept=1")]).await.unwrap();
    store.commit(Ticket(1), 1, Unconfirmed::Stays).await.unwrap();
    store.set_user(user("eve")).await.unwrap();
    let mut changes: Vec<_> = (0..1000).map(|number| change(&format!("row{number}=2"))).collect();
    changes.push(change("kept="));
    store.prepare(Ticket(2), changes).await.unwrap();
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn abandoned_preparation_leaves_no_trace() {
    let folder = TempDir::new().unwrap();
    let (store, _) = Store::open(folder.path()).unwrap();
    let (answer, consent) = store.prepare_ahead(Ticket(1), vec![change("a=1")]);
    drop(consent);
    assert!(matches!(answer.await, Err(StoreError::Withdrawn { ticket: Ticket(1) })));
    let (answer, consent) = store.prepare_ahead(Ticket(2), vec![change("b=2")]);
    consent.give();
    answer.await.unwrap();
    store.commit(Ticket(2), 2, Unconfirmed::Stays).await.unwrap();
    store.close().await.unwrap();
    let loaded = Database::open(folder.path()).unwrap().load().unwrap();
    assert_eq!((layers(&loaded).as_str(), loaded.last_transaction), ("b=2", 2));
}

#[tokio::test]
async fn users_are_kept_and_a_closed_store_says_so() {
    let folder = TempDir::new().unwrap();
    let (store, loaded) = Store::open(folder.path()).unwrap();
    assert!(loaded.users.is_empty());
    store.set_user(user("ada")).await.unwrap();
    store.set_user(user("bob")).await.unwrap();
    assert!(store.delete_user("bob".into()).await.unwrap());
    assert!(!store.delete_user("bob".into()).await.unwrap());
    store.close().await.unwrap();
    assert!(matches!(
        store.commit(Ticket(1), 1, Unconfirmed::Stays).await,
        Err(StoreError::Stopped)
    ));
    assert_eq!(Database::open(folder.path()).unwrap().users().unwrap(), [user("ada")]);
}

fn user(name: &str) -> User {
    User { name: name.into(), role: Role::ReadOnly, password_hash: "$argon2id$secret".to_owned() }
}

#[test]
fn a_user_prints_no_hash() {
    assert!(!format!("{:?}", user("ada")).contains("secret"));
}

#[test]
fn a_second_agent_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let _first = Database::open(folder.path()).unwrap();
    let error = Database::open(folder.path()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    assert!(error.to_string().contains("in use by another holdfast"));
}

#[test]
fn folder_and_file_are_the_owners_alone() {
    let outer = TempDir::new().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = outer.path().join("made/below");
    drop(Database::open(&folder).unwrap());
    assert_eq!((mode(&folder), mode(&folder.join(FILE_NAME))), (0o700, 0o600));

    let open = outer.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    drop(Database::open(&open).unwrap());
    assert_eq!(mode(&open), 0o700);

    let others = outer.path().join("others");
    fs::create_dir(&others).unwrap();
    fs::write(others.join("theirs"), "").unwrap();
    fs::set_permissions(&others, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(Database::open(&others), Err(StoreError::FolderIsShared { mode: 0o755, .. })));
    assert_eq!(mode(&others), 0o755);
}

/// Opening the file completes a factory reset: data that the running agent needed is erased, including the
/// history.
#[test]
fn a_factory_reset_is_finished_by_the_next_opening() {
    for retain in [false, true] {
        let folder = TempDir::new().unwrap();
        let history = folder.path().join(JournalKind::Transactions.file_name());
        let identity = folder.path().join(IDENTITY_FOLDER);
        let mut database = Database::open(folder.path()).unwrap();
        database.prepare(Ticket(1), &[change("a=1")]).unwrap();
        database.commit(Ticket(1), 1, Unconfirmed::Begins).unwrap();
        database.set_user(&user("ada")).unwrap();
        fs::write(&history, "what was done").unwrap();
        let of_clients = [PACKAGES_FOLDER, FILES_FOLDER].map(|name| folder.path().join(name));
        create_private_folder(&identity).unwrap();
        of_clients.iter().for_each(|folder| create_private_folder(folder).unwrap());
        database.prepare(Ticket(2), &[change("a="), Change::factory_reset(retain)]).unwrap();
        database.commit(Ticket(2), 2, Unconfirmed::Ends).unwrap();
        assert!(history.exists(), "until then it is in use");
        drop(database);
        let mut database = Database::open(folder.path()).unwrap();
        let loaded = database.load().unwrap();
        assert_eq!((layers(&loaded), loaded.users, loaded.notes), (String::new(), vec![], vec![]));
        assert_eq!((history.exists(), identity.exists()), (false, retain));
        assert!(of_clients.iter().all(|folder| !folder.exists()));
    }
}

#[test]
fn a_refusal_of_the_disk_is_not_the_end() {
    let folder = TempDir::new().unwrap();
    let mut database = Database::open(folder.path()).unwrap();
    let refused = || -> Result<(), StoreError> {
        let source = Box::new(redb::Error::Io(io::Error::from(io::ErrorKind::StorageFull)));
        Err(StoreError::Access { attempt: "write a row", source })
    };
    database.prepare(Ticket(1), &[change("a=1")]).unwrap();
    database.note(&refused());
    database.mend().unwrap();
    database.abort(Ticket(1)).unwrap(); // it was still prepared
    database.prepare(Ticket(2), &[change("b=1")]).unwrap();
    database.commit(Ticket(2), 2, Unconfirmed::Stays).unwrap();
    assert_eq!(layers(&database.load().unwrap()), "b=1");
}

#[test]
fn a_file_of_a_newer_format_or_of_no_format_is_left_alone() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join(FILE_NAME), "not a database at all").unwrap();
    assert!(matches!(Database::open(folder.path()), Err(StoreError::Damaged { .. })));
}

fn artefact(table: ArtefactTable, name: &str, content: Option<&str>) -> ArtefactChange {
    let artefact = content.map(|content| Artefact {
        version: format!("v-{content}"),
        created_on: 7,
        content: content.as_bytes().to_vec().into(),
    });
    ArtefactChange { table, name: name.to_owned(), artefact }
}

fn artefacts(database: &mut Database) -> String {
    let loaded = database.load().unwrap().artefacts;
    let line = |(table, name, it): (&ArtefactTable, &String, &Artefact)| {
        let content = String::from_utf8_lossy(&it.content).into_owned();
        format!("{table:?} {name} {} {} {content}", it.version, it.created_on)
    };
    let all =
        loaded.iter().flat_map(|(table, of)| of.iter().map(move |(name, it)| (table, name, it)));
    all.map(line).collect::<Vec<_>>().join("; ")
}

// proves 3.33, 3.36, 5.7
#[test]
fn artefacts_are_kept_together_and_go_with_a_factory_reset() {
    use ArtefactTable::{Authz, Certz};
    for (retain, want) in [(true, "Certz p v-c 7 c"), (false, "")] {
        let folder = TempDir::new().unwrap();
        let mut database = Database::open(folder.path()).unwrap();
        let both = [artefact(Authz, "policy", Some("a")), artefact(Certz, "p", Some("b"))];
        database.write_artefacts(&both).unwrap();
        database
            .write_artefacts(&[
                artefact(Certz, "p", Some("c")),
                artefact(Certz, "q", Some("d")),
                artefact(Certz, "q", None),
                artefact(Authz, "nothing", None),
            ])
            .unwrap();
        drop(database);
        let mut database = Database::open(folder.path()).unwrap();
        assert_eq!(artefacts(&mut database), "Authz policy v-a 7 a; Certz p v-c 7 c");
        let text = format!("{:?}", database.load().unwrap().artefacts);
        assert!(!text.contains("content") && text.contains("v-a"), "{text}");
        database.write(&[Change::factory_reset(retain)]).unwrap();
        assert_eq!(artefacts(&mut database), "Authz policy v-a 7 a; Certz p v-c 7 c");
        drop(database);
        let mut database = Database::open(folder.path()).unwrap();
        assert_eq!(artefacts(&mut database), want);
    }
}
