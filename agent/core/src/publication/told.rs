//! Reported status of links: the one place where `oper-status` is decided.
//!
//! ```text
//!  the kernel's status --> held back for `hold-time` --> down while the penalty suppresses it --> down while forced --> told
//! ```
//!
//! Start at [`ToldLinks::observe`]. A change that is held back, and one back within that time, is told to nobody. It
//! is held back by level: the time counts since the kernel's status differs from the one before. Actions of the
//! operator are told at once: a link that is administratively down, and one that comes or goes.
//!
//! Nothing here has a clock, and nothing is kept over a restart: the first status of a link is told as it is.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_platform::objects::{DownBy, LinkStatus, LinkStatusSettings, PenaltySettings};
use holdfast_platform::values::{OperState, carrier_losses};
use holdfast_scheduler::{Key, Now};
use imbl::{OrdMap, OrdSet};

/// Added to the moment at which a penalty has decayed, so that rounding brings nobody there too early.
const PENALTY_MARGIN: Duration = Duration::from_millis(1);

/// Links by their keys. A clone costs nothing, and goes on independently.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToldLinks {
    links: OrdMap<Key, ToldLink>,
    /// Moments at which something of a link falls due.
    timers: OrdSet<(Duration, Key)>,
}

/// The kernel's word on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkObservation {
    pub(super) status: OperState,
    /// Administratively up.
    pub(super) is_enabled: bool,
    /// Losses and returns of the carrier since the link was made.
    pub(super) carrier_changes: u32,
    /// When the status changed, in nanoseconds since 1970.
    pub(super) changed_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct ToldLink {
    settings: LinkStatusSettings,
    is_forced_down: bool,
    seen: Option<SeenLink>,
    timer: Option<Duration>,
}

/// A link that is there, or configured.
#[derive(Clone, Debug)]
struct SeenLink {
    observed: LinkObservation,
    /// Status after what is held back.
    held: OperState,
    /// Since when the observed status is held back.
    held_back_since: Option<Duration>,
    penalty: Penalty,
    told: OperState,
    told_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Penalty {
    /// Penalty at the last loss.
    value: f64,
    last_loss: Duration,
    is_suppressing: bool,
}

/// A penalty whose settings have an effect.
#[derive(Clone, Copy, Debug)]
struct PenaltyRule {
    half_life: Duration,
    flap_penalty: u32,
    suppress: u32,
    reuse: u32,
    max_suppress: Option<Duration>,
}

impl PenaltyRule {
    /// `None` while any figure without which it has no effect is missing or 0.
    fn of(settings: &PenaltySettings) -> Option<Self> {
        let number = |number: Option<u32>| number.filter(|number| *number > 0);
        let time = |time: Option<Duration>| time.filter(|time| !time.is_zero());
        Some(Self {
            half_life: time(settings.half_life)?,
            flap_penalty: number(settings.flap_penalty)?,
            suppress: number(settings.suppress)?,
            reuse: number(settings.reuse)?,
            max_suppress: time(settings.max_suppress),
        })
    }
}

impl Penalty {
    fn at(&self, rule: PenaltyRule, now: Duration) -> f64 {
        let half_lives =
            now.saturating_sub(self.last_loss).as_secs_f64() / rule.half_life.as_secs_f64();
        self.value * (-half_lives).exp2()
    }

    fn add(&mut self, losses: u64, rule: PenaltyRule, now: Duration) {
        if losses == 0 {
            return;
        }
        self.value = self.at(rule, now) + losses as f64 * f64::from(rule.flap_penalty);
        self.last_loss = now;
        self.is_suppressing |= self.value >= f64::from(rule.suppress);
    }

    /// The moment at which the link is told as it is again, unless it loses its carrier before.
    fn ends_at(&self, rule: PenaltyRule) -> Duration {
        let half_lives = (self.value / f64::from(rule.reuse)).log2().max(0.0);
        let decays = Duration::try_from_secs_f64(half_lives * rule.half_life.as_secs_f64());
        let decays = decays.unwrap_or(Duration::MAX).saturating_add(PENALTY_MARGIN);
        let longest = rule.max_suppress.unwrap_or(Duration::MAX);
        self.last_loss.saturating_add(decays.min(longest))
    }
}

impl SeenLink {
    fn new(observed: LinkObservation) -> Self {
        Self {
            observed,
            held: observed.status,
            held_back_since: None,
            penalty: Penalty::default(),
            told: observed.status,
            told_ns: observed.changed_ns,
        }
    }

    /// Takes a new observation. Earlier due changes are settled.
    fn observe(&mut self, observed: LinkObservation, settings: &LinkStatusSettings, now: Now) {
        let before = std::mem::replace(&mut self.observed, observed);
        let changes = observed.carrier_changes.saturating_sub(before.carrier_changes);
        if let Some(rule) = PenaltyRule::of(&settings.penalty).filter(|_| observed.is_enabled) {
            let [was_down, is_down] = [before, observed].map(|it| it.status.is_down());
            let losses = carrier_losses(changes.into(), was_down, is_down);
            self.penalty.add(losses, rule, now.monotonic);
        }
    }

    /// True for a status that is told at once, since it does not depend on the carrier.
    fn is_told_at_once(&self) -> bool {
        let is_absent = |status| status == OperState::NotPresent;
        !self.observed.is_enabled || is_absent(self.observed.status) || is_absent(self.held)
    }

    /// How long the observed status has to hold before it is told.
    fn hold_time(&self, settings: &LinkStatusSettings) -> Duration {
        let is_down = self.observed.status.is_down();
        if self.is_told_at_once() || is_down == self.held.is_down() {
            return Duration::ZERO;
        }
        let hold = if is_down { settings.hold_down } else { settings.hold_up };
        hold.unwrap_or_default()
    }

    /// Brings what is told to what holds now. A change is one of `changed_ns`.
    fn settle(
        &mut self,
        settings: &LinkStatusSettings,
        is_forced_down: bool,
        now: Duration,
        changed_ns: u64,
    ) {
        let hold = self.hold_time(settings);
        let since = *self.held_back_since.get_or_insert(now);
        if now >= since.saturating_add(hold) {
            self.held = self.observed.status;
            self.held_back_since = None;
        }
        let rule = PenaltyRule::of(&settings.penalty);
        self.penalty.is_suppressing &= rule.is_some_and(|rule| now < self.penalty.ends_at(rule));
        let is_down = self.down_by(is_forced_down).is_some();
        let told = if is_down { OperState::Down } else { self.held };
        if told != self.told {
            self.told = told;
            self.told_ns = changed_ns;
        }
    }

    /// Reason for which the link is told as down, whatever is observed.
    fn down_by(&self, is_forced_down: bool) -> Option<DownBy> {
        let is_suppressed = self.penalty.is_suppressing && self.held != OperState::NotPresent;
        let forced = is_forced_down.then_some(DownBy::Forced);
        forced.or(is_suppressed.then_some(DownBy::Penalty))
    }

    /// The next moment at which the reported status may change without an event.
    fn due(&self, settings: &LinkStatusSettings) -> Option<Duration> {
        let held = self.held_back_since;
        let held = held.map(|since| since.saturating_add(self.hold_time(settings)));
        let rule = PenaltyRule::of(&settings.penalty).filter(|_| self.penalty.is_suppressing);
        let penalty = rule.map(|rule| self.penalty.ends_at(rule));
        held.into_iter().chain(penalty).min()
    }
}

impl ToldLink {
    fn settle(&mut self, now: Duration, changed_ns: u64) {
        if let Some(seen) = &mut self.seen {
            seen.settle(&self.settings, self.is_forced_down, now, changed_ns);
        }
    }

    fn observe(&mut self, observed: Option<LinkObservation>, now: Now) {
        self.settle(now.monotonic, now.unix_ns);
        let Some(observed) = observed else {
            self.seen = None;
            return;
        };
        let shows_all = !self.is_forced_down && self.settings == LinkStatusSettings::default();
        let seen = self.seen.get_or_insert_with(|| SeenLink::new(observed));
        // Where nothing is held back, a loss and return that were seen as one are a change, too.
        if shows_all && seen.observed.changed_ns != observed.changed_ns {
            seen.told_ns = observed.changed_ns;
        }
        seen.observe(observed, &self.settings, now);
        self.settle(now.monotonic, observed.changed_ns);
    }

    fn due(&self) -> Option<Duration> {
        self.seen.as_ref()?.due(&self.settings)
    }

    fn status(&self) -> Option<LinkStatus> {
        let seen = self.seen.as_ref()?;
        let observed = Some(seen.observed.status).filter(|status| *status != seen.told);
        Some(LinkStatus {
            told: seen.told,
            changed_ns: seen.told_ns,
            observed,
            down_by: seen.down_by(self.is_forced_down),
            settings: self.settings,
        })
    }

    /// True when nothing is known of the link, and nothing asked for.
    fn is_forgotten(&self) -> bool {
        self.seen.is_none()
            && !self.is_forced_down
            && self.settings == LinkStatusSettings::default()
    }
}

impl ToldLinks {
    /// Takes what the kernel shows of a link; `None` for one that is neither there nor configured.
    pub(super) fn observe(&mut self, link: &Key, observed: Option<LinkObservation>, now: Now) {
        self.change(link, |it| it.observe(observed, now));
    }

    /// Takes new settings of a link. True when anything that is shown of it differs.
    pub(super) fn configure(&mut self, link: &Key, settings: LinkStatusSettings, now: Now) -> bool {
        if self.links.get(link).map(|it| it.settings).unwrap_or_default() == settings {
            return false;
        }
        self.change(link, |it| {
            it.settle(now.monotonic, now.unix_ns);
            it.settings = settings;
            it.settle(now.monotonic, now.unix_ns);
        });
        true
    }

    /// Takes the links that are told as down whatever the kernel shows: all of them. Returns the links whose hold is
    /// new, or over.
    pub(super) fn force_down(&mut self, links: &BTreeSet<Key>, now: Now) -> Vec<Key> {
        let forced = self.links.iter().filter(|(_, link)| link.is_forced_down).map(|(key, _)| key);
        let forced: BTreeSet<Key> = forced.cloned().collect();
        let changed: Vec<Key> = forced.symmetric_difference(links).cloned().collect();
        for key in &changed {
            self.change(key, |it| {
                it.settle(now.monotonic, now.unix_ns);
                it.is_forced_down = links.contains(key);
                it.settle(now.monotonic, now.unix_ns);
            });
        }
        changed
    }

    /// Settles what has fallen due. Returns the links with any change.
    pub(super) fn tell_due(&mut self, now: Now) -> Vec<Key> {
        let mut links = Vec::new();
        while let Some((_, link)) = self.timers.get_min().filter(|(at, _)| *at <= now.monotonic) {
            let link = link.clone();
            self.change(&link, |it| it.settle(now.monotonic, now.unix_ns));
            links.push(link);
        }
        links
    }

    /// The next moment at which [`Self::tell_due`] has work.
    pub(super) fn due(&self) -> Option<Duration> {
        self.timers.get_min().map(|(at, _)| *at)
    }

    /// Status of a link that was observed.
    pub(super) fn status(&self, link: &Key) -> Option<LinkStatus> {
        self.links.get(link)?.status()
    }

    fn change(&mut self, key: &Key, change: impl FnOnce(&mut ToldLink)) {
        let mut link = self.links.get(key).cloned().unwrap_or_default();
        let timer = link.timer;
        change(&mut link);
        link.timer = link.due();
        if timer != link.timer {
            if let Some(at) = timer {
                self.timers.remove(&(at, key.clone()));
            }
            if let Some(at) = link.timer {
                self.timers.insert((at, key.clone()));
            }
        }
        if link.is_forgotten() {
            self.links.remove(key);
        } else {
            self.links.insert(key.clone(), link);
        }
    }
}

#[cfg(test)]
mod tests;
