//! Rows of what sessions come to, and a comparison with a model that keeps no time.

mod naive;

use holdfast_scheduler::Now;

use super::*;

/// When the clocks of these tests begin, in seconds since 1970.
const EPOCH: u64 = 1_000;
/// The start of the sessions, and the time for their drain, in seconds of the clock.
const START: u64 = 60;
const DRAIN: u64 = 20;

fn at(second: u64) -> Now {
    let unix_ns = (EPOCH + second) * NS_PER_S;
    Now { monotonic: Duration::from_secs(second), unix_ns }
}

/// Settings with a consumer `a`, whose user is `ann`, and `b`, who has to agree. Services of the type `x` are those of `a`.
fn settings() -> MaintenanceSettings {
    let consumer = |id: &str, identity: &str, service: &str| Consumer {
        id: id.into(),
        identity: Some(identity.into()),
        service_type: Some(service.into()),
        ..Consumer::default()
    };
    let b = Consumer {
        requires_agreement: true,
        default_action: Some(ObjectAction::Stop),
        ..consumer("b", "bob", "y")
    };
    MaintenanceSettings {
        drain_timeout: Duration::from_secs(DRAIN),
        consumers: vec![consumer("a", "ann", "x"), b],
        ..MaintenanceSettings::default()
    }
}

/// Objects by their names: those that begin with `a` and `b` are of these consumers, and those that end with `-part` are parts of
/// the resource.
fn contents(names: &[&str]) -> Contents {
    let object = |name: &&str| SessionObject {
        path: InstancePath::root(),
        name: (*name).into(),
        services: match name.as_bytes()[0] {
            b'a' => BTreeSet::from(["x".into()]),
            b'b' => BTreeSet::from(["y".into()]),
            _ => BTreeSet::new(),
        },
        has_other_way: true,
        is_of_resource: name.ends_with("-part"),
    };
    Contents {
        objects: names.iter().map(object).collect(),
        without: BTreeSet::new(),
        names: names.iter().map(|name| (*name).into()).collect(),
    }
}

fn plan(resource: &str, kind: SessionKind) -> SessionPlan {
    SessionPlan {
        resources: BTreeSet::from([resource.parse().unwrap()]),
        kind,
        starts_at_ns: (EPOCH + START) * NS_PER_S,
        ends_at_ns: None,
        allows_isolation: false,
        created_by: "admin".into(),
    }
}

fn ack(by: &str, action: ObjectAction) -> Reply {
    let answer = Some(Answer::Ack);
    let action = Some(action);
    Reply { answer, action, by: by.into(), ..Reply::default() }
}

fn nack(by: &str) -> Reply {
    Reply { answer: Some(Answer::Nack), by: by.into(), ..Reply::default() }
}

/// A session with a clock, and what was told of it.
struct Clocked {
    session: Session,
    second: u64,
    boot: &'static str,
    told: Vec<String>,
}

impl Clocked {
    fn new(kind: SessionKind, names: &[&str]) -> Self {
        let others = BTreeMap::new();
        let plan = plan(if kind == SessionKind::Full { "interface:eth1" } else { "box" }, kind);
        let mut session =
            Session::create(plan, &contents(names), &settings(), &others, at(0)).unwrap();
        session.announce(at(0));
        let mut clocked = Self { session, second: 0, boot: "one", told: Vec::new() };
        clocked.advance();
        clocked
    }

    fn advance(&mut self) {
        for step in self.session.advance(self.boot, at(self.second)) {
            let who = step.consumer.as_deref().unwrap_or("admins");
            self.told.push(match step.change {
                SessionChange::State => format!("{who} {}", step.state),
                SessionChange::ActionDone(object, action) => format!("{who} {object} {action}"),
                change => format!("{who} {}", change.name()),
            });
        }
    }

    /// Lets time pass, and lets the session go on when it is due.
    fn wait_until(&mut self, second: u64) {
        while let Some(due) = self.session.due().filter(|due| due.as_secs() <= second) {
            self.second = self.second.max(due.as_secs() + u64::from(due.subsec_nanos() > 0));
            self.advance();
        }
        self.second = second;
    }

    fn reply(&mut self, consumer: &str, reply: Reply) -> Result<(), SessionError> {
        let taken = self.session.reply(consumer, reply);
        self.advance();
        taken
    }

    fn drained(&mut self, left: &[&str]) {
        let left = left.iter().map(|name| (*name).into()).collect();
        self.session.take_drain(Drained { is_quiet: true, left });
        self.advance();
    }

    fn fenced(&mut self, result: Result<(), SmolStr>) {
        self.session.take_fences(self.session.wanted(), result, at(self.second));
        self.advance();
    }

    fn health(&mut self, trouble: Option<&str>, is_probed: bool) {
        let health = Health { trouble: trouble.map(Into::into), is_probed };
        self.session.take_health(health, at(self.second));
        self.advance();
    }

    /// Begins anew from what is stored.
    fn restart(&mut self) {
        let row = serde_json::to_vec(&self.session).unwrap();
        self.session = serde_json::from_slice(&row).unwrap();
        self.session.resume(at(self.second));
        let names: Vec<String> = self.session.contents.iter().map(ToString::to_string).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.session.take_contents(&contents(&names), &settings());
        self.advance();
    }

    fn told(&mut self) -> String {
        std::mem::take(&mut self.told).join(", ")
    }

    fn is(&self, state: SessionState) -> bool {
        self.session.state == state
    }
}

// proves sv.C66, sv.C70, sv.C73, sv.C74, sv.C75, sv.C78
#[test]
fn a_full_session_empties_shuts_and_gives_back() {
    let mut it = Clocked::new(SessionKind::Full, &["a1", "b1", "other"]);
    assert_eq!(it.told(), "admins announced, a announced, b announced, default announced");
    it.reply("b", ack("bob", ObjectAction::Stop)).unwrap();
    assert!(it.is(SessionState::Announced), "ann has not replied");
    it.reply("a", ack("ann", ObjectAction::OwnAction)).unwrap();
    assert_eq!(
        it.told(),
        "admins replied, admins replied, admins draining, a draining, b draining, default draining, b b1 stop"
    );
    assert_eq!(it.session.wants(), Wants { drain: true, shut: false }, "`other` is to move");
    it.fenced(Ok(()));
    it.drained(&[]);
    assert_eq!(it.told(), "default other move");
    let done = Reply { done: BTreeSet::from(["a1".into()]), by: "ann".into(), ..Reply::default() };
    it.reply("a", done).unwrap();
    assert_eq!(it.told(), "a a1 own-action, admins ready, a ready, b ready, default ready");
    it.wait_until(START - 1);
    assert!(it.is(SessionState::Ready), "it waits for its start");
    it.wait_until(START);
    assert_eq!(it.told(), "admins in-maintenance, a over, b in-maintenance, default over");
    assert_eq!(it.session.wants(), Wants { drain: true, shut: true });
    it.fenced(Ok(()));
    it.session.work_done(at(it.second)).unwrap();
    it.advance();
    assert_eq!(it.told(), "admins restoring, b restoring");
    assert_eq!(it.session.wants(), Wants { drain: true, shut: false }, "the last fence goes first");
    assert!(!it.session.is_checking(), "it is not open yet");
    it.fenced(Ok(()));
    assert!(it.session.is_checking());
    it.health(None, true);
    it.wait_until(START + 5);
    assert!(it.is(SessionState::Restoring), "probes have to be answered for longer");
    it.wait_until(START + 10);
    it.health(None, true);
    assert_eq!(it.session.wants(), Wants::default());
    it.fenced(Ok(()));
    assert_eq!(it.told(), "b over, admins over");
}

// proves sv.C71
#[test]
fn who_has_to_agree_keeps_a_session_from_its_start() {
    let mut it = Clocked::new(SessionKind::Full, &["b1"]);
    it.wait_until(START - DRAIN);
    assert!(it.is(SessionState::Failed), "{:?}", it.session);
    assert!(it.session.reason.contains("b has to agree"), "{}", it.session.reason);
    assert_eq!(it.session.wants(), Wants::default(), "nothing is fenced");
    let mut it = Clocked::new(SessionKind::Full, &["b1"]);
    it.reply("b", nack("bob")).unwrap();
    assert!(it.is(SessionState::Failed));
    let mut it = Clocked::new(SessionKind::Full, &["a1", "b1"]);
    it.reply("b", nack("bob")).unwrap();
    it.reply("b", ack("bob", ObjectAction::Stop)).unwrap();
    it.reply("a", ack("ann", ObjectAction::Stop)).unwrap();
    assert!(it.is(SessionState::Ready), "the last reply counts");
}

// proves sv.C70, sv.C72
#[test]
fn silence_means_the_default_action() {
    let mut it = Clocked::new(SessionKind::Full, &["a1"]);
    it.wait_until(START - DRAIN);
    assert!(it.is(SessionState::Draining));
    assert_eq!(it.session.consumers["a"].objects["a1"].action, Some(ObjectAction::Move));
    it.fenced(Ok(()));
    it.drained(&["a1"]);
    it.wait_until(START);
    it.fenced(Ok(()));
    assert!(it.is(SessionState::Failed), "what has no other way does not move");
    assert!(it.session.reason.contains("a1"), "{}", it.session.reason);
}

#[test]
fn a_consumer_is_asked_about_the_parts_of_a_resource_that_are_its_own() {
    let mut it = Clocked::new(SessionKind::Full, &["a1", "a-part", "c-part"]);
    let consumers: Vec<_> = it.session.consumers.keys().cloned().collect();
    assert_eq!(consumers, ["a"], "nobody is asked about a part that no consumer has");
    it.wait_until(START - DRAIN);
    let objects = &it.session.consumers["a"].objects;
    assert_eq!(objects["a1"].action, Some(ObjectAction::Move));
    assert_eq!(objects["a-part"].action, Some(ObjectAction::Stop), "it cannot move");
    it.fenced(Ok(()));
    it.drained(&[]);
    assert!(it.is(SessionState::Ready), "{:?}", it.session);
}

#[test]
fn replies_are_refused_that_nobody_may_give() {
    let mut it = Clocked::new(SessionKind::Full, &["a1", "b1"]);
    let refused = |it: &mut Clocked, consumer: &str, reply| it.reply(consumer, reply).unwrap_err();
    let error = refused(&mut it, "a", ack("bob", ObjectAction::Stop));
    assert!(matches!(error, SessionError::Identity { .. }), "{error}");
    let error = refused(&mut it, "a", ack("ann", ObjectAction::Leave));
    assert_eq!(error, SessionError::Leave);
    let error = refused(&mut it, "c", ack("ann", ObjectAction::Stop));
    assert!(matches!(error, SessionError::UnknownConsumer { .. }), "{error}");
    let actions = BTreeMap::from([("b1".into(), ObjectAction::Stop)]);
    let error = refused(&mut it, "a", Reply { actions, ..ack("ann", ObjectAction::Stop) });
    assert!(matches!(error, SessionError::NotItsObject { .. }), "{error}");
    let by_admin = Reply { is_by_admin: true, ..ack("root", ObjectAction::Stop) };
    it.reply("a", by_admin.clone()).unwrap();
    it.reply("b", by_admin.clone()).unwrap();
    let error = refused(&mut it, "b", by_admin);
    assert!(matches!(error, SessionError::Late { .. }), "{error}");
}

// proves sv.C66
#[test]
fn what_may_stay_stays_in_a_restart_and_another_boot_ends_it() {
    let mut it = Clocked::new(SessionKind::Restart, &["a1", "other"]);
    it.reply("a", ack("ann", ObjectAction::Leave)).unwrap();
    assert!(it.is(SessionState::Draining));
    it.drained(&["other"]);
    it.wait_until(START - 1);
    assert!(it.is(SessionState::Ready), "a restart goes on when its drain is over");
    it.told();
    it.wait_until(START);
    assert_eq!(it.told(), "admins in-maintenance, a in-maintenance, default in-maintenance");
    it.restart();
    assert!(it.is(SessionState::InMaintenance), "the agent alone was restarted");
    it.boot = "two";
    it.restart();
    assert!(it.is(SessionState::Restoring));
    it.fenced(Ok(()));
    it.fenced(Ok(()));
    assert_eq!(
        it.told(),
        "admins restoring, a restoring, default restoring, a over, default over, admins over"
    );
}

// proves sv.C76, sv.C81
#[test]
fn cancelling_takes_back_what_was_done() {
    let mut it = Clocked::new(SessionKind::Full, &["a1"]);
    it.session.cancel("admin has cancelled it".into(), at(1)).unwrap();
    it.advance();
    assert!(it.is(SessionState::Cancelled), "nothing was done");
    it.session.cancel("again".into(), at(1)).unwrap_err();
    let mut it = Clocked::new(SessionKind::Full, &["a1"]);
    it.reply("a", ack("ann", ObjectAction::Move)).unwrap();
    it.fenced(Ok(()));
    it.session.cancel("admin has cancelled it".into(), at(1)).unwrap();
    it.advance();
    assert!(it.is(SessionState::Restoring), "the drain has to be taken off");
    it.fenced(Ok(()));
    assert!(it.is(SessionState::Cancelled));
    assert_eq!(it.session.reason, "admin has cancelled it");
    it.session.work_done(at(1)).unwrap_err();
}

#[test]
fn a_start_that_was_missed_is_cancelled() {
    let mut it = Clocked::new(SessionKind::Full, &["a1"]);
    it.second = START + 301;
    it.restart();
    it.fenced(Ok(()));
    assert!(it.is(SessionState::Cancelled), "{:?}", it.session);
    let mut it = Clocked::new(SessionKind::Full, &["a1"]);
    it.reply("a", ack("ann", ObjectAction::Stop)).unwrap();
    it.second = START + 299;
    it.restart();
    assert!(it.is(SessionState::InMaintenance));
}

// proves sv.C74
#[test]
fn a_resource_that_does_not_work_is_not_given_back() {
    let mut it = Clocked::new(SessionKind::Full, &["a1"]);
    it.reply("a", ack("ann", ObjectAction::Move)).unwrap();
    it.drained(&[]);
    it.wait_until(START);
    it.session.work_done(at(it.second)).unwrap();
    it.advance();
    it.fenced(Ok(()));
    it.health(Some("eth1 has no carrier"), false);
    assert!(it.session.suppresses());
    it.wait_until(START + 30);
    assert!(it.is(SessionState::Failed));
    assert!(it.session.reason.contains("no carrier"), "{}", it.session.reason);
    assert_eq!(it.session.wants(), Wants { drain: true, shut: false }, "traffic stays away");
    assert!(!it.session.suppresses());
    assert!(it.session.trouble().is_some());
}

#[test]
fn a_fence_that_is_refused_fails_the_session() {
    let mut it = Clocked::new(SessionKind::Full, &["a1"]);
    it.reply("a", ack("ann", ObjectAction::Stop)).unwrap();
    it.wait_until(START);
    it.fenced(Err("it is the last way".into()));
    assert!(it.is(SessionState::Restoring));
    it.fenced(Ok(()));
    it.health(None, false);
    assert!(it.is(SessionState::Failed));
    assert_eq!(it.session.reason, "it is the last way");
}

// proves sv.C65, sv.C82
#[test]
fn a_session_must_leave_time_and_have_nothing_of_another() {
    let create = |plan: SessionPlan, names: &[&str], settings: &MaintenanceSettings| {
        let mut others = BTreeMap::new();
        let first = Session::create(
            self::plan("interface:eth1", SessionKind::Full),
            &contents(&["a1"]),
            &self::settings(),
            &others,
            at(0),
        );
        let first = first.unwrap();
        others.insert(first.id.clone(), first);
        Session::create(plan, &contents(names), settings, &others, at(0))
    };
    let full = |resource| plan(resource, SessionKind::Full);
    let settings = settings();
    let second = create(full("interface:eth2"), &["a2"], &settings).unwrap();
    assert_ne!(second.id, new_session_id(), "ids are their own");
    let error = create(full("interface:eth1"), &[], &settings).unwrap_err();
    assert!(matches!(error, SessionError::Overlap { .. }), "{error}");
    let error = create(full("interface:eth2"), &["a1"], &settings).unwrap_err();
    assert!(error.to_string().contains("`a1` is in the session"), "{error}");
    let error = create(plan("box", SessionKind::Restart), &[], &settings).unwrap_err();
    assert!(matches!(error, SessionError::Overlap { .. }), "{error}");
    assert_eq!(create(full("box"), &[], &settings).unwrap_err(), SessionError::FullBox);
    let error = create(full("group:uplinks"), &[], &settings).unwrap_err();
    assert!(matches!(error, SessionError::Resource(_)), "{error}");
    let soon = SessionPlan { starts_at_ns: (EPOCH + 29) * NS_PER_S, ..full("interface:eth2") };
    let error = create(soon, &[], &settings).unwrap_err();
    assert_eq!(error, SessionError::TooSoon { least: 30, ahead: 29 });
    let mut slow = settings.clone();
    slow.consumers[0].lead_time = Some(Duration::from_secs(50));
    let error = create(full("interface:eth2"), &["a2"], &slow).unwrap_err();
    assert_eq!(error, SessionError::TooSoon { least: 70, ahead: 60 });
    create(full("interface:eth2"), &["b2"], &slow).unwrap();
    let mut few = settings.clone();
    few.consumers[0].max_impacted = Some(1);
    let error = create(full("interface:eth2"), &["a2"], &few).unwrap_err();
    assert!(matches!(error, SessionError::MaxImpacted { count: 2, most: 1, .. }), "{error}");
}

/// The id of the first session of these tests.
fn new_session_id() -> SmolStr {
    format!("{}", EPOCH * 1000).into()
}

#[test]
fn contents_are_followed_until_they_are_emptied() {
    let mut it = Clocked::new(SessionKind::Full, &["a1"]);
    it.session.take_contents(&contents(&["a2", "other"]), &settings());
    it.advance();
    assert_eq!(it.session.consumers["a"].objects.keys().collect::<Vec<_>>(), ["a2"]);
    it.reply("a", ack("ann", ObjectAction::OwnAction)).unwrap();
    it.told();
    it.session.take_contents(&contents(&["other", "a3"]), &settings());
    it.advance();
    assert_eq!(it.told(), "a a2 own-action", "what has gone is done");
    let late = it.session.consumers["a"].objects["a3"];
    assert_eq!(late.action, Some(ObjectAction::Move), "what comes late has the default action");
}
