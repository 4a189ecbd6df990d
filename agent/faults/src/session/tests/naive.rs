//! A session as a function of all that has happened, without timers and without rows.

use proptest::prelude::*;

use super::*;

/// Time for a resource to work again, and to be probed, in seconds.
const RESTORE: u64 = 30;
const PROBED: u64 = 10;

/// Something that happens.
#[derive(Clone, Copy, Debug)]
enum Act {
    Reply(bool, Option<ObjectAction>),
    Done,
    Drained { is_quiet: bool, is_left: bool },
    Fenced(bool),
    Health { is_good: bool, is_probed: bool },
    WorkDone,
    Cancel,
    Boot,
    Restart,
}

/// The one object of the session, of the consumer `a`.
const OBJECT: &str = "a1";

/// State of the model.
#[derive(Clone, Debug)]
struct Naive {
    kind: SessionKind,
    state: SessionState,
    /// When it has come to its state, and when it began to restore or went on with it.
    since: u64,
    action: Option<ObjectAction>,
    answer: Option<bool>,
    is_done: bool,
    drained: Option<(bool, bool)>,
    /// Fences that were asked for and not answered.
    is_unsettled: bool,
    wants: Wants,
    /// True while the resource was shut before it restores; 0 to 2 are the stages.
    was_shut: bool,
    stage: u8,
    outcome: SessionState,
    good_since: Option<u64>,
    is_probed: bool,
    booted: bool,
    keeps: bool,
}

impl Naive {
    /// The model after the acts of each second.
    fn of(kind: SessionKind, acts: &[Vec<Act>]) -> Self {
        let mut it = Self {
            kind,
            state: SessionState::Announced,
            since: 0,
            action: None,
            answer: None,
            is_done: false,
            drained: None,
            is_unsettled: false,
            wants: Wants::default(),
            was_shut: false,
            stage: 0,
            outcome: SessionState::Over,
            good_since: None,
            is_probed: false,
            booted: false,
            keeps: false,
        };
        for (second, acts) in (0..).zip(acts) {
            it.go(second);
            for act in acts {
                it.act(*act, second);
                it.go(second);
            }
        }
        it
    }

    fn act(&mut self, act: Act, second: u64) {
        use SessionState as S;
        let is_working = matches!(self.state, S::Draining | S::Ready | S::InMaintenance);
        match act {
            Act::Reply(agrees, action) if self.state == S::Announced => {
                let is_allowed =
                    self.kind == SessionKind::Restart || action != Some(ObjectAction::Leave);
                if is_allowed {
                    (self.answer, self.action) = (Some(agrees), action);
                }
            }
            Act::Done if self.state.is_open() && self.action == Some(ObjectAction::OwnAction) => {
                self.is_done = true;
            }
            Act::Drained { is_quiet, is_left } => self.drained = Some((is_quiet, is_left)),
            Act::Fenced(is_carried_out) => {
                self.is_unsettled = false;
                match is_carried_out {
                    false if is_working => self.restore(S::Failed, second),
                    false if self.state == S::Restoring => {
                        self.keeps = self.stage < 2;
                        self.enter(S::Failed, second);
                    }
                    _ => {}
                }
            }
            Act::Health { is_good, is_probed } => {
                let since = self.good_since.unwrap_or(second);
                self.good_since = is_good.then_some(since);
                self.is_probed = is_probed;
            }
            Act::WorkDone if self.state == S::InMaintenance => self.restore(S::Over, second),
            Act::Cancel if self.state == S::Restoring => self.outcome = S::Cancelled,
            Act::Cancel if self.state.is_open() => self.restore(S::Cancelled, second),
            Act::Boot => self.booted |= self.state == S::InMaintenance,
            Act::Restart => {
                (self.drained, self.good_since, self.is_probed) = (None, None, false);
                self.is_unsettled = true;
                if self.state == S::Restoring {
                    self.since = second;
                }
            }
            _ => {}
        }
    }

    fn enter(&mut self, state: SessionState, second: u64) {
        (self.state, self.since) = (state, second);
    }

    fn restore(&mut self, outcome: SessionState, second: u64) {
        self.was_shut = self.wants().shut;
        self.enter(SessionState::Restoring, second);
        (self.outcome, self.stage) = (outcome, 0);
        (self.good_since, self.is_probed) = (None, false);
    }

    fn wants(&self) -> Wants {
        use SessionState as S;
        let is_drained = match self.state {
            S::Draining | S::Ready | S::InMaintenance => true,
            S::Restoring => self.stage < 2,
            S::Failed => self.keeps,
            _ => false,
        };
        Wants {
            drain: is_drained && self.action == Some(ObjectAction::Move),
            shut: self.state == S::InMaintenance && self.kind == SessionKind::Full,
        }
    }

    fn go(&mut self, second: u64) {
        use SessionState as S;
        loop {
            if self.wants() != self.wants {
                (self.wants, self.is_unsettled) = (self.wants(), true);
            }
            let is_late = |time: u64| second >= self.since + time;
            match self.state {
                S::Announced | S::Ready if second > START + 300 => {
                    self.restore(S::Cancelled, second);
                }
                S::Announced if self.answer.is_some() || second >= START - DRAIN => {
                    if self.answer == Some(false) {
                        self.restore(S::Failed, second);
                        continue;
                    }
                    let action = *self.action.get_or_insert(ObjectAction::Move);
                    self.is_done |= matches!(action, ObjectAction::Leave | ObjectAction::Stop);
                    self.enter(S::Draining, second);
                }
                S::Draining => {
                    let (is_quiet, is_left) = self.drained.unwrap_or((false, true));
                    let is_moved = (is_quiet || is_late(DRAIN)) && !is_left;
                    self.is_done |= is_moved && self.action == Some(ObjectAction::Move);
                    if self.is_done && (is_quiet || !self.wants().drain || is_late(DRAIN)) {
                        self.enter(S::Ready, second);
                    } else if !is_late(DRAIN) {
                        return;
                    } else if self.kind == SessionKind::Restart {
                        self.enter(S::Ready, second);
                    } else {
                        self.restore(S::Failed, second);
                    }
                }
                S::Ready if second >= START => self.enter(S::InMaintenance, second),
                S::InMaintenance if self.kind == SessionKind::Restart && self.booted => {
                    self.restore(S::Over, second);
                }
                S::Restoring => {
                    let time = if self.is_probed { PROBED } else { 0 };
                    let is_good = self.good_since.is_some_and(|since| second >= since + time);
                    match self.stage {
                        0 if !self.is_unsettled => self.stage = 1,
                        1 if !self.was_shut || is_good => self.stage = 2,
                        1 if is_late(RESTORE) => {
                            self.keeps = true;
                            self.enter(S::Failed, second);
                        }
                        2 if !self.is_unsettled => self.enter(self.outcome, second),
                        _ => return,
                    }
                }
                _ => return,
            }
        }
    }
}

fn act() -> impl Strategy<Value = Act> {
    let action =
        prop_oneof![Just(None), prop::sample::select(ObjectAction::ALL.to_vec()).prop_map(Some)];
    prop_oneof![
        (prop::bool::weighted(0.9), action).prop_map(|(agrees, it)| Act::Reply(agrees, it)),
        Just(Act::Done),
        any::<(bool, bool)>().prop_map(|(is_quiet, is_left)| Act::Drained { is_quiet, is_left }),
        prop::bool::weighted(0.9).prop_map(Act::Fenced),
        Just(Act::Fenced(true)),
        any::<(bool, bool)>().prop_map(|(is_good, is_probed)| Act::Health { is_good, is_probed }),
        Just(Act::WorkDone),
        Just(Act::Boot),
        Just(Act::Restart),
        prop::sample::select(vec![Act::Cancel, Act::WorkDone, Act::Fenced(true), Act::Restart]),
    ]
}

/// Acts of each second: most have none.
fn acts() -> impl Strategy<Value = Vec<Vec<Act>>> {
    let quiet = prop::collection::vec(act(), 0..1);
    let busy = prop::collection::vec(act(), 1..3);
    prop::collection::vec(prop_oneof![4 => quiet, 1 => busy], 30..130)
}

fn carry_out(it: &mut Clocked, act: Act) {
    let now = at(it.second);
    match act {
        Act::Reply(agrees, action) => {
            let answer = if agrees { Answer::Ack } else { Answer::Nack };
            let reply =
                Reply { answer: Some(answer), action, by: "ann".into(), ..Reply::default() };
            drop(it.reply("a", reply));
        }
        Act::Done => {
            let done = BTreeSet::from([OBJECT.into()]);
            drop(it.reply("a", Reply { done, by: "ann".into(), ..Reply::default() }));
        }
        Act::Drained { is_quiet, is_left } => {
            let left = is_left.then(|| OBJECT.into()).into_iter().collect();
            it.session.take_drain(Drained { is_quiet, left });
        }
        Act::Fenced(true) => it.fenced(Ok(())),
        Act::Fenced(false) => it.fenced(Err("refused".into())),
        Act::Health { is_good, is_probed } => it.health((!is_good).then_some("down"), is_probed),
        Act::WorkDone => drop(it.session.work_done(now)),
        Act::Cancel => drop(it.session.cancel("cancelled".into(), now)),
        Act::Boot => {
            if it.is(SessionState::InMaintenance) {
                it.boot = "two";
            }
        }
        Act::Restart => it.restart(),
    }
    it.advance();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_session_equals_one_without_timers_and_rows(
        is_full in any::<bool>(),
        acts in acts(),
    ) {
        let kind = if is_full { SessionKind::Full } else { SessionKind::Restart };
        let mut it = Clocked::new(kind, &[OBJECT]);
        for (second, now) in (0..).zip(&acts) {
            it.wait_until(second);
            for act in now {
                carry_out(&mut it, *act);
            }
            let naive = Naive::of(kind, &acts[..=usize::try_from(second).unwrap()]);
            prop_assert_eq!(it.session.state, naive.state, "second {}: {:?}", second, it.session);
            prop_assert_eq!(it.session.wants(), naive.wants());
        }
    }

    #[test]
    fn a_restart_at_any_step_changes_nothing_that_is_told(acts in acts(), is_full in any::<bool>()) {
        let kind = if is_full { SessionKind::Full } else { SessionKind::Restart };
        let [mut plain, mut restarted] = [(); 2].map(|()| Clocked::new(kind, &[OBJECT]));
        for (second, now) in (0..).zip(&acts) {
            for it in [&mut plain, &mut restarted] {
                it.wait_until(second);
            }
            for act in now.iter().filter(|act| !matches!(act, Act::Restart)) {
                carry_out(&mut plain, *act);
                carry_out(&mut restarted, *act);
                let row = serde_json::to_vec(&restarted.session).unwrap();
                let mut stored: Session = serde_json::from_slice(&row).unwrap();
                stored.clock = restarted.session.clock.clone();
                restarted.session = stored;
            }
            prop_assert_eq!(plain.told(), restarted.told());
        }
    }
}
