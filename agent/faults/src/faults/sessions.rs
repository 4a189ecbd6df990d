//! All maintenance sessions, and what they bring to alarms, marks and fences.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_config::{EffectiveStatus, FenceOwner, InstancePath, SharedPath};
use holdfast_scheduler::Now;
use smol_str::{SmolStr, format_smolstr};

use super::{Effects, Faults};
use crate::condition::Condition;
use crate::log::{LogEntry, Resume};
use crate::report::{Report, Source};
use crate::resource::Resource;
use crate::session::{
    KEPT_SESSIONS, Session, SessionChange, SessionError, SessionEvent, SessionInput,
    SessionRequest, SessionState, SessionStep, Unsent, Wants,
};
use crate::stored::Row;

/// All sessions, those that have ended lately among them.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    all: BTreeMap<SmolStr, Session>,
    /// Rows as they were written last.
    rows: BTreeMap<SmolStr, Row>,
    /// Number of the fences that each session has asked for last.
    wanted: BTreeMap<SmolStr, u32>,
    /// Entries that do not work without the resources of a session.
    without: BTreeMap<SmolStr, BTreeSet<InstancePath>>,
    /// Id of this boot of the box.
    boot: SmolStr,
    /// Sessions that suppress alarms.
    suppressing: BTreeSet<SmolStr>,
    /// Entries that are shown to be in maintenance.
    marked: BTreeSet<SharedPath>,
}

impl Sessions {
    /// Takes in a session of an earlier run.
    pub(crate) fn restore(&mut self, mut session: Session, now: Now) {
        session.resume(now);
        self.rows.insert(session.id.clone(), Row::of_session(&session));
        self.all.insert(session.id.clone(), session);
    }

    pub(crate) fn due(&self) -> Option<Duration> {
        self.all.values().filter_map(Session::due).min()
    }

    fn ids(&self, is_meant: impl Fn(&Session) -> bool) -> Vec<SmolStr> {
        self.all.values().filter(|it| is_meant(it)).map(|it| it.id.clone()).collect()
    }

    fn find(&mut self, id: &SmolStr) -> Result<&mut Session, SessionError> {
        self.all.get_mut(id).ok_or_else(|| SessionError::Unknown(id.clone()))
    }

    /// Sessions that have ended and are not kept any more: the deleted ones, and the oldest of too many.
    fn forgotten(&self) -> Vec<SmolStr> {
        let mut forgotten = self.ids(Session::is_gone);
        let is_kept = |it: &&Session| !it.state.is_open() && !it.is_gone();
        let mut ended: Vec<&Session> = self.all.values().filter(is_kept).collect();
        ended.sort_by_key(|it| it.since_ns);
        let surplus = ended.len().saturating_sub(KEPT_SESSIONS);
        let idle = ended[..surplus].iter().filter(|it| it.wants() == Wants::default());
        forgotten.extend(idle.map(|it| it.id.clone()));
        forgotten
    }
}

impl Faults {
    /// All sessions, by id.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.all.values()
    }

    pub fn session(&self, id: &str) -> Option<&Session> {
        self.sessions.all.get(id)
    }

    /// The number of the last wish of a session, and what it wants fenced by it.
    pub fn session_wants(&self, id: &str) -> (u32, Wants) {
        self.session(id).map_or_else(Default::default, |it| (it.wanted(), it.wants()))
    }

    /// Sessions for which somebody has to find the objects that stand on their resources.
    pub fn sessions_to_look_at(&self) -> Vec<&Session> {
        let is_unknown = |it: &Session| !self.sessions.without.contains_key(&it.id);
        let sessions = self.sessions().filter(|it| {
            it.is_emptying() || it.state == SessionState::InMaintenance && is_unknown(it)
        });
        sessions.collect()
    }

    /// Carries out a request about a session, and names it.
    ///
    /// # Errors
    /// When the session is not there, or is not in a state for it; and when a new one must not be.
    pub fn request_session(
        &mut self,
        request: SessionRequest,
        now: Now,
    ) -> Result<(SmolStr, Effects), SessionError> {
        let id = match request {
            SessionRequest::Create { plan, contents } => {
                let settings = &self.settings.maintenance;
                let others = &self.sessions.all;
                let mut session = Session::create(plan, &contents, settings, others, now)?;
                session.announce(now);
                let id = session.id.clone();
                self.sessions.without.insert(id.clone(), contents.without);
                self.sessions.all.insert(id.clone(), session);
                id
            }
            SessionRequest::Reply { session, consumer, reply } => {
                self.sessions.find(&session)?.reply(&consumer, reply)?;
                session
            }
            SessionRequest::WorkDone { session } => {
                self.sessions.find(&session)?.work_done(now)?;
                session
            }
            SessionRequest::Cancel { session, by } => {
                let reason = format_smolstr!("{by} has cancelled it");
                self.sessions.find(&session)?.cancel(reason, now)?;
                session
            }
            SessionRequest::Delete { session, by } => {
                let reason = format_smolstr!("{by} has deleted it");
                self.sessions.find(&session)?.delete(reason, now);
                session
            }
        };
        self.advance_sessions(vec![id.clone()], now);
        Ok((id, self.take_effects(now)))
    }

    pub(crate) fn take_session_input(&mut self, id: &SmolStr, input: SessionInput, now: Now) {
        // It may have been deleted meanwhile.
        let Some(session) = self.sessions.all.get_mut(id) else { return };
        match input {
            SessionInput::Contents(contents) => {
                session.take_contents(&contents, &self.settings.maintenance);
                self.sessions.without.insert(id.clone(), contents.without);
            }
            SessionInput::Fenced { number, result } => session.take_fences(number, result, now),
            SessionInput::Drained(drained) => session.take_drain(drained),
            SessionInput::Health(health) => session.take_health(health, now),
        }
        self.advance_sessions(vec![id.clone()], now);
    }

    pub(crate) fn take_boot(&mut self, boot: SmolStr, now: Now) {
        self.sessions.boot = boot;
        self.advance_sessions(self.sessions.ids(|_| true), now);
    }

    pub(crate) fn look_at_due_sessions(&mut self, now: Now) {
        let is_due = |it: &Session| it.due().is_some_and(|at| at <= now.monotonic);
        self.advance_sessions(self.sessions.ids(is_due), now);
    }

    /// Has sessions of an earlier run shown. They go on when the boot is known.
    pub(crate) fn begin_sessions(&mut self) {
        let ids = self.sessions.ids(|_| true);
        for id in &ids {
            let wanted = self.sessions.all.get(id).map(Session::wanted);
            self.sessions.wanted.extend(wanted.map(|wanted| (id.clone(), wanted)));
        }
        self.effects.is_maintenance_changed |= !ids.is_empty();
        self.effects.shown_sessions.extend(ids);
        // The rows of alarms have what is suppressed.
        self.sessions.suppressing = self.sessions.ids(Session::suppresses).into_iter().collect();
    }

    /// Lets sessions go as far as they can, and takes in what comes of that.
    fn advance_sessions(&mut self, ids: Vec<SmolStr>, now: Now) {
        if ids.is_empty() {
            return;
        }
        for id in &ids {
            let Some(session) = self.sessions.all.get_mut(id) else { continue };
            let steps = session.advance(&self.sessions.boot, now);
            let row = Row::of_session(session);
            let wanted = session.wanted();
            if !steps.is_empty() {
                let session = Arc::new(session.clone());
                steps.into_iter().for_each(|step| self.log_step(step, &session, now));
            }
            if self.sessions.rows.get(id) != Some(&row) {
                self.sessions.rows.insert(id.clone(), row.clone());
                self.effects.rows.push(row);
                self.effects.shown_sessions.insert(id.clone());
                self.effects.is_maintenance_changed = true;
            }
            if self.sessions.wanted.insert(id.clone(), wanted) != Some(wanted) && wanted > 0 {
                self.effects.changed_fences.insert(FenceOwner::Session(id.clone()));
            }
            self.report_trouble(id, now);
        }
        for id in self.sessions.forgotten() {
            self.forget_session(&id, now);
        }
        self.suppress(now);
    }

    fn forget_session(&mut self, id: &SmolStr, now: Now) {
        let Some(session) = self.sessions.all.remove(id) else { return };
        self.sessions.rows.remove(id);
        self.sessions.without.remove(id);
        if self.sessions.wanted.remove(id).is_some_and(|wanted| wanted > 0) {
            self.effects.changed_fences.insert(FenceOwner::Session(id.clone()));
        }
        self.effects.rows.push(Row::without_session(id));
        self.effects.shown_sessions.insert(id.clone());
        let change = SessionChange::Forgotten;
        let step = Unsent { consumer: None, change, state: session.state };
        self.log_step(step, &session.into(), now);
        self.report_trouble(id, now);
    }

    /// Gives a step its id, and tells it.
    fn log_step(&mut self, step: Unsent, session: &Arc<Session>, now: Now) {
        let Unsent { consumer, change, state } = step;
        let step = self.log.add_step(|id| SessionStep {
            id,
            time_ns: now.unix_ns,
            session: session.id.clone(),
            consumer,
            change,
            state,
        });
        self.reserve_ids();
        let session = Arc::clone(session);
        self.effects.session_events.push(SessionEvent { step, session });
    }

    /// Steps of sessions in the log, except those of sessions that are not kept any more.
    pub fn session_events(&self) -> Vec<SessionEvent> {
        self.events_of(self.log.entries()).flatten().collect()
    }

    /// Steps of sessions after this entry of the log; `None` where the log does not have all of them, or where a session is
    /// not kept any more.
    pub fn session_events_since(&self, id: u64) -> Option<Vec<SessionEvent>> {
        let Resume::Entries(entries) = self.log.since(id) else { return None };
        self.events_of(entries.iter()).collect()
    }

    /// The steps among entries of the log, each with its session as it is now; `None` for one of a session that is not kept any
    /// more. The steps of a session share it.
    fn events_of<'e>(
        &self,
        entries: impl Iterator<Item = &'e LogEntry>,
    ) -> impl Iterator<Item = Option<SessionEvent>> {
        let mut shared: BTreeMap<&SmolStr, Arc<Session>> = BTreeMap::new();
        entries.filter_map(LogEntry::step).map(move |step| {
            let kept = self.session(&step.session)?;
            let session = shared.entry(&kept.id).or_insert_with(|| Arc::new(kept.clone()));
            Some(SessionEvent { step: Arc::clone(step), session: Arc::clone(session) })
        })
    }

    /// Raises or ends the alarm about a session.
    fn report_trouble(&mut self, id: &SmolStr, now: Now) {
        let condition = Condition::new("session-failed", Resource::Agent).qualified(id);
        let report = match self.session(id).and_then(Session::trouble) {
            Some(text) => Report::holding(condition, text, now.unix_ns),
            None if self.holds(&condition) || self.alarm(&condition).is_some() => {
                Report::ended(condition, now.unix_ns)
            }
            None => return,
        };
        self.report(Source::Sessions, report, now);
    }

    /// Judges all conditions again where other sessions suppress alarms than before.
    fn suppress(&mut self, now: Now) {
        let suppressing: BTreeSet<SmolStr> =
            self.sessions.ids(Session::suppresses).into_iter().collect();
        if suppressing != self.sessions.suppressing {
            self.sessions.suppressing = suppressing;
            self.judge_all(now);
        }
    }

    /// The session that has what a condition is about in maintenance.
    pub(crate) fn suppressor(&self, condition: &Condition) -> Option<SmolStr> {
        let resource = &condition.resource;
        let suppressing = self.sessions.suppressing.iter();
        let mut sessions = suppressing.filter_map(|id| self.sessions.all.get(id));
        let session = sessions.find(|session| {
            session.resources.iter().any(|maintained| match (maintained, resource) {
                (_, Resource::Agent) => false,
                (Resource::Box, _) => true,
                (_, Resource::NextHop(_)) => self.is_below(resource, maintained),
                (maintained, resource) => maintained == resource,
            })
        });
        session.map(|session| session.id.clone())
    }

    /// True when a resource consists of parts of another one.
    fn is_below(&self, resource: &Resource, whole: &Resource) -> bool {
        let parts = self.objects.of(resource);
        let wholes = self.objects.of(whole);
        let is_part = |part: &InstancePath| wholes.iter().any(|whole| part.starts_with(whole));
        !parts.is_empty() && parts.iter().all(is_part)
    }

    /// Takes in what is in maintenance now. Members of uplink groups count as lost then.
    pub(crate) fn note_maintained(&mut self) {
        let mut marked: BTreeSet<SharedPath> = BTreeSet::new();
        for session in self.sessions.all.values() {
            if session.state == SessionState::InMaintenance {
                let own = session.resources.iter().flat_map(|it| self.objects.of(it));
                let without = self.sessions.without.get(&session.id).into_iter().flatten();
                marked.extend(own.chain(without.cloned()).map(SharedPath::from));
            }
        }
        let before = std::mem::replace(&mut self.sessions.marked, marked);
        for path in before.difference(&self.sessions.marked) {
            let status = self.impacts.status(path);
            self.effects.marks.insert(path.clone(), status);
            self.groups.outdate(&path.to_path());
        }
        for path in self.sessions.marked.difference(&before) {
            self.effects.marks.insert(path.clone(), Some(EffectiveStatus::Maintenance));
            self.groups.outdate(&path.to_path());
        }
    }

    /// True for an interface that is in maintenance.
    pub(crate) fn is_maintained(&self, interface: &SmolStr) -> bool {
        let resource = Resource::Interface(interface.clone());
        let sessions = self.sessions.all.values();
        sessions.filter(|it| it.state == SessionState::InMaintenance).any(|session| {
            session.resources.contains(&resource) || session.resources.contains(&Resource::Box)
        })
    }

    /// Shows what is in maintenance as such, whatever alarms say of it.
    pub(crate) fn mark_maintained(&mut self) {
        for (path, status) in &mut self.effects.marks {
            if self.sessions.marked.contains(path) {
                *status = Some(EffectiveStatus::Maintenance);
            }
        }
    }
}
