//! Rows of what maintenance sessions bring to alarms, marks and rows.

use std::collections::BTreeSet;

use holdfast_config::{EffectiveStatus, FenceOwner, InstancePath, Keys, NodeId, Step, Value};
use smol_str::SmolStr;

use super::*;

/// Objects: one for each interface.
#[derive(Debug)]
struct Links;

fn entry(name: &str) -> InstancePath {
    let keys = Keys::single(Value::Str(name.into()));
    InstancePath(vec![Step { node: NodeId(1), keys: Some(keys) }])
}

impl Objects for Links {
    fn of(&self, resource: &Resource) -> BTreeSet<InstancePath> {
        match resource {
            Resource::Interface(name) => BTreeSet::from([entry(name)]),
            _ => BTreeSet::new(),
        }
    }
}

impl Clocked {
    fn request(&mut self, request: SessionRequest) -> Result<(SmolStr, Vec<String>), SessionError> {
        let (id, effects) = self.faults.request_session(request, self.now())?;
        Ok((id, self.take(effects)))
    }

    /// Makes a session of eth1 that starts when the drain and the lead time of the defaults are over.
    fn session(&mut self, kind: SessionKind) -> SmolStr {
        let starts_at_ns = self.now().unix_ns + 40_000_000_000;
        let plan = SessionPlan {
            resources: BTreeSet::from(["interface:eth1".parse().unwrap()]),
            kind,
            starts_at_ns,
            ends_at_ns: None,
            allows_isolation: false,
            created_by: "admin".into(),
        };
        let without = BTreeSet::from([entry("route")]);
        let contents = Contents { without, ..Contents::default() };
        self.request(SessionRequest::Create { plan, contents }).unwrap().0
    }

    fn fenced(&mut self, id: &SmolStr, result: Result<(), SmolStr>) -> Vec<String> {
        let number = self.faults.session_wants(id).0;
        self.on(Input::Session(id.clone(), SessionInput::Fenced { number, result }))
    }

    fn state(&self, id: &str) -> SessionState {
        self.faults.session(id).unwrap().state
    }
}

fn clocked() -> Clocked {
    let mut it = Clocked::of(Faults::new(Box::new(Links)));
    it.on(Input::Booted("one".into()));
    it
}

// proves sv.C74
#[test]
fn what_begins_in_maintenance_is_raised_at_its_end_if_it_is_still_true() {
    let mut it = clocked();
    let id = it.session(SessionKind::Restart);
    it.wait(40 * SECOND);
    assert_eq!(it.state(&id), SessionState::InMaintenance);
    let began = it.now().unix_ns;
    assert_eq!(it.holds(DOWN), [""; 0], "nobody is told");
    let alarm = it.alarm(DOWN).unwrap();
    assert_eq!(alarm.suppressed_by.as_ref(), Some(&id), "the record has the session");
    let elsewhere = "link-down@interface:eth2";
    assert_eq!(
        it.holds(elsewhere),
        [format!("raised {elsewhere}")],
        "another link is another matter"
    );
    it.wait(60 * SECOND);
    let (_, told) = it.request(SessionRequest::WorkDone { session: id.clone() }).unwrap();
    assert_eq!(told, [format!("raised {DOWN}")]);
    assert_eq!(it.alarm(DOWN).unwrap().created_ns, began, "it has its own time");
    assert_eq!(it.state(&id), SessionState::Over);
}

// proves sv.C74
#[test]
fn the_end_of_what_was_told_before_is_told_in_maintenance_too() {
    let mut it = clocked();
    let id = it.session(SessionKind::Restart);
    it.wait(39 * SECOND);
    assert_eq!(it.holds(DOWN), [format!("raised {DOWN}")]);
    assert_eq!(it.wait(SECOND), [format!("suppressed {DOWN}")]);
    assert_eq!((it.faults.open(Severity::Major), it.faults.shelved()), (0, 1));
    assert_eq!(it.ends(DOWN), [format!("cleared {DOWN}")]);
    let (_, told) = it.request(SessionRequest::WorkDone { session: id }).unwrap();
    assert_eq!(told, [""; 0]);
}

#[test]
fn steps_of_sessions_are_in_the_log_until_the_session_is_forgotten() {
    let mut it = clocked();
    it.holds(DOWN);
    let id = it.session(SessionKind::Restart);
    it.wait(40 * SECOND);
    it.holds("link-down@interface:eth2");
    let ids: Vec<u64> = it.faults.log().entries().map(LogEntry::id).collect();
    assert_eq!(
        ids,
        (1..=ids.len() as u64).collect::<Vec<_>>(),
        "alarms and steps have one sequence"
    );
    for entry in it.faults.log().entries() {
        let read = LogEntry::from_stored(&entry.to_stored()).unwrap();
        assert_eq!((read.transition(), read.step()), (entry.transition(), entry.step()));
    }
    let told =
        |events: Vec<SessionEvent>| events.iter().map(|it| it.step.state).collect::<Vec<_>>();
    let all = it.faults.session_events_since(0).unwrap();
    let [first, .., last] = &all[..] else { panic!("{all:?}") };
    assert_eq!(
        (first.step.state, last.step.state),
        (SessionState::Announced, SessionState::InMaintenance)
    );
    assert_eq!(first.session.state, SessionState::InMaintenance, "the session as it is now");
    let last_id = last.step.id;
    assert_eq!(told(it.faults.session_events_since(last_id).unwrap()), []);
    it.request(SessionRequest::WorkDone { session: id.clone() }).unwrap();
    let missed = told(it.faults.session_events_since(last_id).unwrap());
    assert_eq!(missed.last(), Some(&SessionState::Over), "{missed:?}");
    it.request(SessionRequest::Delete { session: id, by: "ann".into() }).unwrap();
    assert_eq!(it.faults.session_events_since(last_id), None, "the session is not kept any more");
    assert_eq!(it.faults.session_events(), []);
}

#[test]
fn policies_and_rules_are_off_in_maintenance() {
    let mut it = clocked();
    let action = Some(Action::Shut);
    let shut = Policy { action, effect: Some(Effect::Warn), ..policy("shut", "*") };
    it.settings(vec![shut], Vec::new());
    let id = it.session(SessionKind::Restart);
    it.wait(40 * SECOND);
    it.holds(DOWN);
    assert!(it.faults.fences().is_empty());
    it.request(SessionRequest::WorkDone { session: id }).unwrap();
    assert!(it.faults.fences().contains_key(&FenceOwner::Policy("shut".into())));
}

#[test]
fn what_is_maintained_is_marked_above_all_else() {
    let mut it = clocked();
    it.holds(DOWN);
    let id = it.session(SessionKind::Restart);
    it.now += 40 * SECOND;
    let effects = it.faults.on(Input::Due, it.now());
    let maintained = Some(EffectiveStatus::Maintenance);
    assert_eq!(effects.marks[&entry("eth1").into()], maintained);
    assert_eq!(
        effects.marks[&entry("route").into()],
        maintained,
        "with what does not work without it"
    );
    let request = SessionRequest::WorkDone { session: id };
    let (_, effects) = it.faults.request_session(request, it.now()).unwrap();
    assert_eq!(
        effects.marks[&entry("eth1").into()],
        Some(EffectiveStatus::Down),
        "as the alarm says"
    );
    assert_eq!(effects.marks[&entry("route").into()], None);
}

#[test]
fn a_session_that_fails_is_an_alarm_until_it_is_deleted() {
    let mut it = clocked();
    let id = it.session(SessionKind::Full);
    it.wait(40 * SECOND);
    assert_eq!(it.faults.session_wants(&id).1, Wants { drain: false, shut: true });
    it.fenced(&id, Err("it is the last way".into()));
    let told = it.fenced(&id, Ok(()));
    assert_eq!(told, [""; 0], "the link has to work first");
    let good = Input::Session(id.clone(), SessionInput::Health(Health::default()));
    let failed = format!("session-failed.{id}@agent");
    assert_eq!(it.on(good), [format!("raised {failed}")]);
    assert!(it.alarm(&failed).unwrap().text.contains("it is the last way"));

    // The alarm and the session are those of before, after a restart.
    let rows = it.rows.clone();
    let (faults, unreadable) = Faults::restored(rows, Vec::new(), Box::new(Links), it.now());
    assert_eq!(unreadable, [""; 0]);
    it.faults = faults;
    it.on(Input::Booted("one".into()));
    it.on(Input::Level(Source::Revision, Vec::new()));
    assert_eq!(it.state(&id), SessionState::Failed);
    assert!(it.alarm(&failed).is_some());
    let request = SessionRequest::Delete { session: id.clone(), by: "admin".into() };
    let (_, told) = it.request(request).unwrap();
    assert_eq!(told, [format!("cleared {failed}")]);
    assert!(it.faults.session(&id).is_none());
    assert!(!it.rows.keys().any(|row| row.starts_with("session/")), "{:?}", it.rows.keys());
}

#[test]
fn a_hundred_sessions_are_kept_when_they_have_ended() {
    let mut it = clocked();
    let ids: Vec<SmolStr> = (0..102)
        .map(|_| {
            let id = it.session(SessionKind::Full);
            let by = "admin".into();
            it.request(SessionRequest::Cancel { session: id.clone(), by }).unwrap();
            it.wait(SECOND);
            id
        })
        .collect();
    assert_eq!(it.faults.sessions().count(), 100);
    assert!(it.faults.session(&ids[1]).is_none() && it.faults.session(&ids[2]).is_some());
    let rows = it.rows.keys().filter(|row| row.starts_with("session/"));
    assert_eq!(rows.count(), 100);
}
