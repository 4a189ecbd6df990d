//! The steps of a session.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_scheduler::Now;
use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};

use super::create::nanoseconds;
use super::{
    Answer, Drained, Health, ObjectAction, Reply, Session, SessionChange, SessionConsumer,
    SessionError, SessionKind, SessionState, Wants,
};

/// A start that was missed by more than this is none: whoever was to do the work has gone home.
const MISSED_START: Duration = Duration::from_secs(300);
/// Time for a resource to work again: copper ports negotiate for some seconds, and bridges listen for up to 15.
const RESTORE_TIME: Duration = Duration::from_secs(30);
/// How long probes by a resource have to be answered before it counts as working.
const PROBED_TIME: Duration = Duration::from_secs(10);

/// The way back of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Restoring {
    outcome: Outcome,
    stage: Stage,
    /// The resource was shut, so it has to work before it is given back.
    is_checked: bool,
}

/// The end that a session that is restoring comes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Over,
    Cancelled(SmolStr),
    Failed(SmolStr),
}

/// The condition that a session that is restoring waits for. Fences go in the reverse of the order in which they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Stage {
    /// The resource is not shut any more.
    Opened,
    /// The resource works.
    Works,
    /// Traffic may come back.
    Undrained,
}

/// An event that is told once all steps of now are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsent {
    pub(crate) consumer: Option<SmolStr>,
    pub(crate) change: SessionChange,
    pub(crate) state: SessionState,
}

/// Knowledge of this run alone, and times by the monotonic clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock {
    /// When it is to be looked at next.
    timer: Option<Duration>,
    /// The end of the time for its state.
    deadline: Option<Duration>,
    good_since: Option<Duration>,
    health: Health,
    /// How far the drain has come, as it was told last.
    drained: Option<Drained>,
    /// Objects that do not work without the resources; `None` until somebody has looked.
    pub(super) stuck: Option<BTreeSet<SmolStr>>,
    wants: Wants,
    /// Number of changes of what it wants, and the last one that was carried out.
    wanted: u32,
    settled: u32,
}

impl Session {
    /// When [`Self::advance`] is to be called next.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.clock.timer
    }

    /// The fences that it wants now.
    pub fn wants(&self) -> Wants {
        let is_drained = match self.state {
            SessionState::Draining | SessionState::Ready | SessionState::InMaintenance => true,
            SessionState::Restoring => self.stage() != Some(Stage::Undrained),
            SessionState::Failed => self.keeps_drain,
            SessionState::Announced | SessionState::Over | SessionState::Cancelled => false,
        };
        let moves = |it: &SessionConsumer| {
            it.objects.values().any(|object| object.action == Some(ObjectAction::Move))
        };
        Wants {
            drain: is_drained && self.consumers.values().any(moves),
            shut: self.state == SessionState::InMaintenance && self.kind == SessionKind::Full,
        }
    }

    /// Number of the last change of what it wants. An answer about an earlier one does not count.
    pub(crate) fn wanted(&self) -> u32 {
        self.clock.wanted
    }

    /// True while nothing new is placed on its resources.
    pub fn is_placement_off(&self) -> bool {
        self.state.is_open()
    }

    /// True while faults of its resources are nobody's business.
    pub fn suppresses(&self) -> bool {
        match &self.restoring {
            Some(restoring) if self.state == SessionState::Restoring => {
                restoring.is_checked || !self.boot.is_empty()
            }
            _ => self.state == SessionState::InMaintenance,
        }
    }

    /// True while somebody has to look whether its resources work.
    pub fn is_checking(&self) -> bool {
        let is_checked = self.restoring.as_ref().is_some_and(|it| it.is_checked);
        is_checked && self.stage() == Some(Stage::Works)
    }

    /// True while what stands on its resources is looked for again and again.
    pub fn is_emptying(&self) -> bool {
        matches!(self.state, SessionState::Announced | SessionState::Draining)
    }

    /// The alarm about it, if there is one: the text.
    pub(crate) fn trouble(&self) -> Option<SmolStr> {
        match self.state {
            SessionState::Failed => {
                Some(format_smolstr!("the session {} failed: {}", self.id, self.reason))
            }
            SessionState::InMaintenance if self.is_overdue => Some(format_smolstr!(
                "the session {} is in maintenance beyond its planned end",
                self.id
            )),
            _ => None,
        }
    }

    /// True when it is to be forgotten.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_deleted && !self.state.is_open()
    }

    fn stage(&self) -> Option<Stage> {
        let restoring = self.restoring.as_ref().filter(|_| self.state == SessionState::Restoring);
        restoring.map(|restoring| restoring.stage)
    }

    /// Goes on after a restart: what it wants is asked for again, and waiting goes on where the state lasts for a time.
    pub(crate) fn resume(&mut self, now: Now) {
        let elapsed = Duration::from_nanos(now.unix_ns.saturating_sub(self.since_ns));
        self.clock = Clock { wants: self.wants(), wanted: 1, ..Clock::default() };
        match self.state {
            SessionState::Draining => {
                let left = self.drain_timeout.saturating_sub(elapsed);
                self.clock.deadline = Some(now.monotonic + left);
            }
            // The box may just have been started, so the whole time counts.
            SessionState::Restoring => self.clock.deadline = Some(now.monotonic + RESTORE_TIME),
            _ => {}
        }
    }

    /// Goes as far as it can. `boot` is the id of this boot of the box. Somebody is told of the steps that it returns.
    pub(crate) fn advance(&mut self, boot: &str, now: Now) -> Vec<Unsent> {
        while self.step(boot, now) {}
        self.clock.timer = self.next_look(now);
        std::mem::take(&mut self.unsent)
    }

    /// Makes one step; false when there is nothing to do now.
    fn step(&mut self, boot: &str, now: Now) -> bool {
        self.notice_wants();
        let is_late = self.clock.deadline.is_some_and(|at| at <= now.monotonic);
        let missed = now.unix_ns.saturating_sub(self.starts_at_ns) > nanoseconds(MISSED_START);
        match self.state {
            SessionState::Announced | SessionState::Ready if missed => {
                let reason = "its start was missed by more than five minutes".into();
                self.restore(Outcome::Cancelled(reason), now);
            }
            SessionState::Announced => {
                if !self.is_answered() && now.unix_ns < self.reply_by_ns {
                    return false;
                }
                match self.objection() {
                    Some(reason) => self.restore(Outcome::Failed(reason), now),
                    None => self.drain(now),
                }
            }
            SessionState::Draining => {
                self.take_drained(is_late);
                match (self.left(), is_late) {
                    (None, _) if self.is_quiet() || is_late => self.enter(SessionState::Ready, now),
                    (Some(_), true) if self.kind == SessionKind::Restart => {
                        self.enter(SessionState::Ready, now);
                    }
                    (Some(object), true) => {
                        let seconds = self.drain_timeout.as_secs();
                        let reason = format_smolstr!("`{object}` has not moved within {seconds} s");
                        self.restore(Outcome::Failed(reason), now);
                    }
                    _ => return false,
                }
            }
            SessionState::Ready => {
                if now.unix_ns < self.starts_at_ns {
                    return false;
                }
                self.boot = boot.into();
                self.enter(SessionState::InMaintenance, now);
            }
            SessionState::InMaintenance => {
                let is_booted = self.kind == SessionKind::Restart && self.boot != boot;
                if is_booted {
                    self.restore(Outcome::Over, now);
                } else if !self.is_overdue && self.ends_at_ns.is_some_and(|it| it <= now.unix_ns) {
                    self.is_overdue = true;
                    self.note(None, SessionChange::Overdue);
                } else {
                    return false;
                }
            }
            SessionState::Restoring => return self.step_back(is_late, now),
            SessionState::Over | SessionState::Cancelled | SessionState::Failed => return false,
        }
        true
    }

    /// Makes one step of the way back.
    fn step_back(&mut self, is_late: bool, now: Now) -> bool {
        let Some(restoring) = self.restoring.clone() else { return false };
        let is_settled = self.clock.settled == self.clock.wanted;
        let next = match restoring.stage {
            Stage::Opened | Stage::Undrained if !is_settled => return false,
            Stage::Opened => Stage::Works,
            Stage::Works if !restoring.is_checked || self.is_good(now) => Stage::Undrained,
            Stage::Works if is_late => {
                let trouble = self.clock.health.trouble.clone();
                let trouble = trouble.unwrap_or_else(|| "it does not work for long enough".into());
                self.fail_restoring(
                    format_smolstr!("the resource is not given back: {trouble}"),
                    now,
                );
                return true;
            }
            Stage::Works => return false,
            Stage::Undrained => {
                self.finish(restoring.outcome, now);
                return true;
            }
        };
        self.restoring = Some(Restoring { stage: next, ..restoring });
        true
    }

    /// Counts a change of what it wants.
    fn notice_wants(&mut self) {
        let wants = self.wants();
        if wants != self.clock.wants {
            self.clock.wants = wants;
            self.clock.wanted += 1;
        }
    }

    fn next_look(&self, now: Now) -> Option<Duration> {
        let wall = |at_ns: u64| {
            (at_ns > now.unix_ns).then(|| now.monotonic + Duration::from_nanos(at_ns - now.unix_ns))
        };
        match self.state {
            SessionState::Announced => wall(self.reply_by_ns),
            SessionState::Draining => self.clock.deadline,
            SessionState::Ready => wall(self.starts_at_ns),
            SessionState::InMaintenance => self.ends_at_ns.and_then(wall),
            SessionState::Restoring => {
                let good = self.clock.good_since.map(|since| since + PROBED_TIME);
                self.clock.deadline.into_iter().chain(good).filter(|at| *at > now.monotonic).min()
            }
            SessionState::Over | SessionState::Cancelled | SessionState::Failed => None,
        }
    }

    /// True when nobody is left who may reply. An administrator may for those without an identity, but nobody waits for that
    /// unless their agreement is required.
    fn is_answered(&self) -> bool {
        let is_asked = |it: &SessionConsumer| it.identity.is_some() || it.requires_agreement;
        self.consumers.values().filter(|it| is_asked(it)).all(|it| it.answer.is_some())
    }

    /// Reason for which the replies permit no maintenance.
    fn objection(&self) -> Option<SmolStr> {
        self.consumers.iter().find_map(|(id, consumer)| match consumer.answer {
            Some(Answer::Nack) => Some(format_smolstr!("the consumer {id} does not agree")),
            None if consumer.requires_agreement => {
                Some(format_smolstr!("the consumer {id} has to agree, and has not replied"))
            }
            _ => None,
        })
    }

    /// Begins to empty the resources. Objects that stay or stop need no work.
    fn drain(&mut self, now: Now) {
        for consumer in self.consumers.values_mut() {
            let default = consumer.default_action;
            for object in consumer.objects.values_mut() {
                object.action = Some(object.action_or(default));
            }
        }
        self.enter(SessionState::Draining, now);
        self.clock.deadline = Some(now.monotonic + self.drain_timeout);
        self.finish_objects(|_, action| !action.empties());
    }

    /// Takes objects as moved once their traffic is, or when it had time enough to move.
    fn take_drained(&mut self, is_late: bool) {
        let Some(drained) = self.clock.drained.clone() else { return };
        let Some(stuck) = self.clock.stuck.clone() else { return };
        if drained.is_quiet || is_late {
            self.finish_objects(|name, action| {
                let stays = drained.left.contains(name) || stuck.contains(name);
                action == ObjectAction::Move && !stays
            });
        }
    }

    /// True when nothing was to be drained, or nothing is carried any more.
    fn is_quiet(&self) -> bool {
        !self.wants().drain || self.clock.drained.as_ref().is_some_and(|it| it.is_quiet)
    }

    /// The first object that has not gone.
    fn left(&self) -> Option<SmolStr> {
        let objects = self.consumers.values().flat_map(|it| &it.objects);
        let mut left = objects.filter(|(_, it)| !it.is_done);
        left.next().map(|(name, _)| name.clone())
    }

    /// Takes the actions of these objects as done.
    pub(super) fn finish_objects(&mut self, is_done: impl Fn(&SmolStr, ObjectAction) -> bool) {
        let state = self.state;
        let mut finished = Vec::new();
        for (id, consumer) in &mut self.consumers {
            for (name, object) in &mut consumer.objects {
                let Some(action) = object.action.filter(|_| !object.is_done) else { continue };
                if is_done(name, action) {
                    object.is_done = true;
                    let change = SessionChange::ActionDone(name.clone(), action);
                    finished.push(Unsent { consumer: Some(id.clone()), change, state });
                }
            }
        }
        self.unsent.extend(finished);
    }

    /// Begins the way back, to an end.
    fn restore(&mut self, outcome: Outcome, now: Now) {
        let is_checked =
            self.wants().shut || self.restoring.as_ref().is_some_and(|it| it.is_checked);
        self.reason = match &outcome {
            Outcome::Over => SmolStr::default(),
            Outcome::Cancelled(reason) | Outcome::Failed(reason) => reason.clone(),
        };
        self.restoring = Some(Restoring { outcome, stage: Stage::Opened, is_checked });
        self.clock.good_since = None;
        self.clock.health = Health::default();
        if self.state != SessionState::Restoring {
            self.enter(SessionState::Restoring, now);
        }
        self.clock.deadline = Some(now.monotonic + RESTORE_TIME);
    }

    fn finish(&mut self, outcome: Outcome, now: Now) {
        self.restoring = None;
        self.enter(
            match outcome {
                Outcome::Over => SessionState::Over,
                Outcome::Cancelled(_) => SessionState::Cancelled,
                Outcome::Failed(_) => SessionState::Failed,
            },
            now,
        );
    }

    /// Ends the way back where it is: traffic does not come back to a resource that does not work.
    fn fail_restoring(&mut self, reason: SmolStr, now: Now) {
        self.keeps_drain = self.stage() != Some(Stage::Undrained);
        self.reason = reason.clone();
        self.finish(Outcome::Failed(reason), now);
    }

    /// Comes to a state, and tells so. Consumers hear of the beginning of maintenance after administrators, and of the end
    /// before them.
    fn enter(&mut self, state: SessionState, now: Now) {
        self.state = state;
        self.since_ns = now.unix_ns;
        self.clock.deadline = None;
        let mut told = Vec::new();
        for (id, consumer) in &mut self.consumers {
            let has_left = consumer.has_left();
            let to_tell = match state {
                SessionState::InMaintenance if has_left => SessionState::Over,
                state => state,
            };
            // Who was told that it is over hears no more of it.
            if consumer.told != SessionState::Over {
                consumer.told = to_tell;
                let change = SessionChange::State;
                told.push(Unsent { consumer: Some(id.clone()), change, state: to_tell });
            }
        }
        let admins = Unsent { consumer: None, change: SessionChange::State, state };
        match state {
            SessionState::Over => told.push(admins),
            _ => told.insert(0, admins),
        }
        self.unsent.extend(told);
    }

    /// Tells that it was announced, once its beginning is known.
    pub(crate) fn announce(&mut self, now: Now) {
        self.enter(SessionState::Announced, now);
    }

    fn note(&mut self, consumer: Option<SmolStr>, change: SessionChange) {
        self.unsent.push(Unsent { consumer, change, state: self.state });
    }

    /// Takes the reply of a consumer.
    pub(crate) fn reply(&mut self, id: &str, reply: Reply) -> Result<(), SessionError> {
        let session = self.id.clone();
        let state = self.state;
        let kind = self.kind;
        let unknown =
            || SessionError::UnknownConsumer { session: session.clone(), consumer: id.into() };
        let consumer = self.consumers.get_mut(id).ok_or_else(unknown)?;
        let is_own = consumer.identity.as_ref() == Some(&reply.by);
        if !is_own && !reply.is_by_admin {
            return Err(SessionError::Identity { consumer: id.into(), by: reply.by });
        }
        let named = reply.actions.keys().chain(&reply.done);
        for object in named {
            if !consumer.objects.contains_key(object) {
                let object = object.clone();
                return Err(SessionError::NotItsObject { consumer: id.into(), object });
            }
        }
        let mut actions = reply.actions.values().copied().chain(reply.action);
        if actions.any(|action| !ObjectAction::allowed(kind).contains(&action)) {
            return Err(SessionError::Leave);
        }
        if let Some(answer) = reply.answer {
            if state != SessionState::Announced {
                return Err(SessionError::Late { session, state });
            }
            for (name, object) in &mut consumer.objects {
                object.action = reply.actions.get(name).copied().or(reply.action);
            }
            consumer.answer = Some(answer);
            consumer.answered_by = reply.by;
            consumer.text = reply.text;
            self.note(None, SessionChange::Replied(id.into()));
        } else if !state.is_open() {
            return Err(SessionError::Ended { session, state });
        }
        self.finish_objects(|name, action| {
            action == ObjectAction::OwnAction && reply.done.contains(name)
        });
        Ok(())
    }

    /// Takes in that the work is done.
    pub(crate) fn work_done(&mut self, now: Now) -> Result<(), SessionError> {
        if self.state != SessionState::InMaintenance {
            let session = self.id.clone();
            let state = self.state;
            return Err(SessionError::NotInMaintenance { session, state });
        }
        self.restore(Outcome::Over, now);
        Ok(())
    }

    /// Goes back, to be cancelled.
    pub(crate) fn cancel(&mut self, reason: SmolStr, now: Now) -> Result<(), SessionError> {
        match (self.state, &mut self.restoring) {
            (state, _) if !state.is_open() => {
                Err(SessionError::Ended { session: self.id.clone(), state })
            }
            (SessionState::Restoring, Some(restoring)) => {
                self.reason = reason.clone();
                restoring.outcome = Outcome::Cancelled(reason);
                Ok(())
            }
            _ => {
                self.restore(Outcome::Cancelled(reason), now);
                Ok(())
            }
        }
    }

    /// Goes back as when it is cancelled, and is then forgotten. A session that has ended is forgotten at once, with
    /// all that it still wants.
    pub(crate) fn delete(&mut self, reason: SmolStr, now: Now) {
        self.is_deleted = true;
        if self.state.is_open() {
            // It is open, so it can be cancelled.
            let _ = self.cancel(reason, now);
        }
    }

    /// Takes in whether the change of fences with this number was carried out.
    pub(crate) fn take_fences(&mut self, number: u32, result: Result<(), SmolStr>, now: Now) {
        if number != self.clock.wanted {
            return;
        }
        self.clock.settled = number;
        let Err(reason) = result else { return };
        match self.state {
            SessionState::Draining | SessionState::Ready | SessionState::InMaintenance => {
                self.restore(Outcome::Failed(reason), now);
            }
            SessionState::Restoring => self.fail_restoring(reason, now),
            _ => {}
        }
    }

    pub(crate) fn take_drain(&mut self, drained: Drained) {
        self.clock.drained = Some(drained);
    }

    /// Takes in whether the resources work.
    pub(crate) fn take_health(&mut self, health: Health, now: Now) {
        match health.trouble {
            None => drop(self.clock.good_since.get_or_insert(now.monotonic)),
            Some(_) => self.clock.good_since = None,
        }
        self.clock.health = health;
    }

    /// True when the resources have worked for long enough.
    fn is_good(&self, now: Now) -> bool {
        let time = if self.clock.health.is_probed { PROBED_TIME } else { Duration::ZERO };
        self.clock.good_since.is_some_and(|since| now.monotonic >= since + time)
    }
}

impl SessionConsumer {
    /// True when nothing of it is on the resource any more.
    fn has_left(&self) -> bool {
        self.objects.values().all(|it| it.is_done && it.action.is_some_and(ObjectAction::empties))
    }
}
