//! Rows of what becomes of a link's status, and a comparison with a model that looks at every millisecond.

use holdfast_platform::kinds::link;
use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);
const NS_PER_MS: u64 = 1_000_000;

fn now(ms: u64) -> Now {
    Now { monotonic: Duration::from_millis(ms), unix_ns: ms * NS_PER_MS }
}

fn hold(up: u64, down: u64) -> LinkStatusSettings {
    let time = |ms| Some(Duration::from_millis(ms));
    LinkStatusSettings { hold_up: time(up), hold_down: time(down), ..Default::default() }
}

/// A penalty of 1000 a loss that halves each second, suppresses from 2500 on and down to 700.
fn penalty(max_suppress: Option<Duration>) -> LinkStatusSettings {
    let penalty = PenaltySettings {
        half_life: Some(1000 * MS),
        flap_penalty: Some(1000),
        suppress: Some(2500),
        reuse: Some(700),
        max_suppress,
    };
    LinkStatusSettings { penalty, ..Default::default() }
}

/// One link, and its time. Time passes from one due moment to the next, as in the core.
struct Rig {
    links: ToldLinks,
    key: Key,
    observed: LinkObservation,
    ms: u64,
}

impl Rig {
    fn new(settings: LinkStatusSettings) -> Self {
        let observed = LinkObservation {
            status: OperState::Up,
            is_enabled: true,
            carrier_changes: 1,
            changed_ns: 0,
        };
        let links = ToldLinks::default();
        let key = link::key("eth0");
        let mut rig = Self { links, key, observed, ms: 0 };
        rig.links.configure(&rig.key, settings, now(0));
        rig.observe();
        rig
    }

    fn observe(&mut self) {
        self.links.observe(&self.key, Some(self.observed), now(self.ms));
    }

    /// The carrier goes or comes so many times; the status is that after the last.
    fn toggle(&mut self, times: u32) {
        self.observed.carrier_changes += times;
        self.observed.changed_ns = self.ms * NS_PER_MS;
        if times % 2 == 1 {
            self.observed.status = match self.observed.status {
                OperState::Up => OperState::Down,
                _ => OperState::Up,
            };
        }
        self.observe();
    }

    /// Lets time pass, and returns each told change with its moment.
    fn pass_to(&mut self, ms: u64) -> Vec<(u64, OperState)> {
        let mut told = Vec::new();
        while let Some(due) = self.links.due().filter(|due| *due <= now(ms).monotonic) {
            self.ms = u64::try_from(due.as_nanos().div_ceil(MS.as_nanos())).unwrap();
            let before = self.told();
            let links = self.links.tell_due(now(self.ms));
            assert!(links.iter().eq([&self.key]), "{links:?}");
            assert!(self.links.due().is_none_or(|next| next > due), "time goes on");
            if self.told() != before {
                told.push((self.ms, self.told()));
            }
        }
        self.ms = ms;
        told
    }

    fn status(&self) -> LinkStatus {
        self.links.status(&self.key).unwrap()
    }

    fn told(&self) -> OperState {
        self.status().told
    }

    fn changed_ms(&self) -> u64 {
        self.status().changed_ns / NS_PER_MS
    }
}

#[test]
fn without_settings_each_change_is_told_at_once() {
    let mut rig = Rig::new(LinkStatusSettings::default());
    rig.pass_to(10);
    rig.toggle(1);
    assert_eq!((rig.told(), rig.changed_ms(), rig.status().observed), (OperState::Down, 10, None));
    assert_eq!(rig.links.due(), None);
    rig.pass_to(20);
    rig.toggle(1);
    assert_eq!((rig.told(), rig.changed_ms()), (OperState::Up, 20));
    rig.pass_to(30);
    rig.toggle(2);
    assert_eq!(rig.changed_ms(), 30, "a loss and return that were seen as one");
}

/// The cases of RT-5.5 of featureprofiles, with its figures.
#[test]
fn a_change_is_told_once_it_has_held_for_its_time() {
    let mut rig = Rig::new(hold(5000, 300));
    rig.pass_to(100);
    rig.toggle(1);
    assert_eq!((rig.told(), rig.status().observed), (OperState::Up, Some(OperState::Down)));
    assert_eq!(rig.pass_to(399), []);
    assert_eq!(rig.pass_to(600), [(400, OperState::Down)], "TC2: long down");
    assert_eq!((rig.changed_ms(), rig.status().observed), (400, None));
    rig.toggle(1);
    assert_eq!(rig.pass_to(4600), []);
    rig.toggle(1);
    assert_eq!(rig.pass_to(20_000), []);
    assert_eq!((rig.told(), rig.changed_ms()), (OperState::Down, 400), "TC3: short up");
    rig.toggle(1);
    assert_eq!(rig.pass_to(26_000), [(25_000, OperState::Up)], "TC4: long up");
    assert_eq!(rig.changed_ms(), 25_000);
    rig.links.configure(&rig.key, hold(5000, 5000), now(26_000));
    rig.toggle(1);
    rig.pass_to(26_200);
    rig.toggle(1);
    assert_eq!(rig.pass_to(40_000), []);
    assert_eq!((rig.told(), rig.changed_ms()), (OperState::Up, 25_000), "TC5: short down");
}

#[test]
fn a_hundred_losses_a_second_are_told_to_nobody() {
    let mut rig = Rig::new(hold(0, 200));
    for at in 0..1000 {
        assert_eq!(rig.pass_to(100 + 5 * at), []);
        rig.toggle(1);
    }
    assert_eq!((rig.told(), rig.status().observed), (OperState::Up, None));
    rig.toggle(1);
    let from = rig.ms;
    assert_eq!(rig.pass_to(from + 1000), [(from + 200, OperState::Down)]);
}

#[test]
fn what_is_no_matter_of_the_carrier_is_told_at_once() {
    let mut rig = Rig::new(hold(1000, 1000));
    rig.observed = LinkObservation {
        status: OperState::Down,
        is_enabled: false,
        carrier_changes: 2,
        changed_ns: 5 * NS_PER_MS,
    };
    rig.ms = 5;
    rig.observe();
    assert_eq!((rig.told(), rig.changed_ms()), (OperState::Down, 5), "administratively down");
    rig.observed.is_enabled = true;
    rig.toggle(1);
    assert_eq!(rig.pass_to(2000), [(1005, OperState::Up)], "then its carrier has to hold");
    rig.observed.status = OperState::NotPresent;
    rig.observe();
    assert_eq!(rig.told(), OperState::NotPresent);
    rig.observed.status = OperState::Up;
    rig.observe();
    assert_eq!((rig.told(), rig.links.due()), (OperState::Up, None));
    // Two ways of being down are one.
    rig.observed.status = OperState::LowerLayerDown;
    rig.observe();
    rig.pass_to(2500);
    rig.observed.status = OperState::Down;
    rig.observe();
    assert_eq!(rig.pass_to(4000), [(3000, OperState::Down)]);
    rig.observed.status = OperState::LowerLayerDown;
    rig.observe();
    assert_eq!(rig.told(), OperState::LowerLayerDown);
    rig.links.observe(&rig.key, None, now(5000));
    assert_eq!(rig.links.status(&rig.key), None);
    rig.links.configure(&rig.key, LinkStatusSettings::default(), now(5000));
    assert!(rig.links.links.is_empty() && rig.links.timers.is_empty());
}

#[test]
fn a_link_without_settings_any_more_is_told_as_it_is() {
    let mut rig = Rig::new(hold(1000, 60_000));
    rig.pass_to(100);
    rig.toggle(1);
    rig.pass_to(200);
    rig.links.configure(&rig.key, hold(1000, 50), now(200));
    assert_eq!((rig.told(), rig.changed_ms()), (OperState::Down, 200), "it is over already");
    rig.toggle(1);
    assert!(rig.links.configure(&rig.key, LinkStatusSettings::default(), now(300)));
    assert!(!rig.links.configure(&rig.key, LinkStatusSettings::default(), now(300)));
    assert_eq!((rig.told(), rig.links.due()), (OperState::Up, None));
}

#[test]
fn a_penalty_tells_a_link_as_down_until_it_has_decayed() {
    let mut rig = Rig::new(penalty(None));
    rig.toggle(4);
    assert_eq!(rig.told(), OperState::Up, "two losses cost 2000");
    rig.toggle(2);
    assert_eq!((rig.told(), rig.status().observed), (OperState::Down, Some(OperState::Up)));
    assert_eq!(rig.status().down_by, Some(DownBy::Penalty));
    // 3000 are 700 after log2(3000 / 700) = 2.0996 half-lives, a millisecond of margin not counted.
    assert_eq!(rig.pass_to(60_000), [(2101, OperState::Up)]);
    assert_eq!((rig.changed_ms(), rig.status().observed), (2101, None));
    rig.toggle(1);
    assert_eq!(rig.told(), OperState::Down, "one loss is told");
    rig.toggle(5);
    assert_eq!(rig.told(), OperState::Down);
    rig.pass_to(61_000);
    rig.toggle(1);
    assert_eq!(rig.told(), OperState::Down, "it has lost its carrier once more");
    assert_eq!(rig.pass_to(120_000), []);
    rig.toggle(1);
    assert_eq!(rig.told(), OperState::Up);
}

#[test]
fn a_penalty_ends_with_its_longest_time_since_the_last_loss() {
    let mut rig = Rig::new(penalty(Some(500 * MS)));
    rig.toggle(20);
    assert_eq!(rig.told(), OperState::Down);
    rig.pass_to(400);
    rig.toggle(2);
    assert_eq!(rig.pass_to(60_000), [(900, OperState::Up)]);
    for missing in 0..4 {
        let mut settings = penalty(None);
        let it = &mut settings.penalty;
        match missing {
            0 => it.half_life = Some(Duration::ZERO),
            1 => it.flap_penalty = None,
            2 => it.suppress = Some(0),
            _ => it.reuse = Some(0),
        }
        let mut rig = Rig::new(settings);
        rig.toggle(1000);
        assert_eq!(rig.told(), OperState::Up, "{settings:?}");
    }
    // Actions of the operator cost nothing.
    let mut rig = Rig::new(penalty(None));
    rig.observed.is_enabled = false;
    rig.toggle(1001);
    rig.observed.is_enabled = true;
    rig.toggle(1);
    assert_eq!(rig.told(), OperState::Up);
}

#[test]
fn a_link_that_is_forced_down_is_down_whatever_its_settings() {
    let eth0 = BTreeSet::from([link::key("eth0")]);
    for settings in [LinkStatusSettings::default(), hold(1000, 1000), penalty(None)] {
        let mut rig = Rig::new(settings);
        rig.pass_to(10);
        assert_eq!(rig.links.force_down(&eth0, now(10)), [rig.key.clone()]);
        assert_eq!(rig.links.force_down(&eth0, now(10)), []);
        let status = rig.status();
        assert_eq!((status.told, status.observed), (OperState::Down, Some(OperState::Up)));
        assert_eq!((rig.changed_ms(), status.down_by), (10, Some(DownBy::Forced)));
        rig.pass_to(20);
        rig.observed.status = OperState::LowerLayerDown;
        rig.observed.changed_ns = 20 * NS_PER_MS;
        rig.observe();
        rig.pass_to(5000);
        let status = rig.status();
        assert_eq!((status.told, rig.changed_ms()), (OperState::Down, 10), "{settings:?}");
        assert_eq!(status.observed, Some(OperState::LowerLayerDown));
        rig.observed.status = OperState::Up;
        rig.observe();
        rig.pass_to(10_000);
        assert_eq!(rig.links.force_down(&BTreeSet::new(), now(10_000)), [rig.key.clone()]);
        assert_eq!((rig.told(), rig.changed_ms()), (OperState::Up, 10_000));
        assert_eq!(rig.status().down_by, None);
    }
    // A link that is not there yet is down when it comes.
    let mut links = ToldLinks::default();
    links.force_down(&eth0, now(0));
    assert_eq!(links.status(&link::key("eth0")), None);
    links.observe(&link::key("eth0"), Some(Rig::new(hold(0, 0)).observed), now(1));
    assert_eq!(links.status(&link::key("eth0")).map(|it| it.told), Some(OperState::Down));
}

/// An event of a link.
#[derive(Clone, Debug)]
enum LinkEvent {
    Toggle(u32),
    Force(bool),
    Configure(LinkStatusSettings),
}

fn settings() -> impl Strategy<Value = LinkStatusSettings> {
    let time = || prop::option::of((0..80_u64).prop_map(Duration::from_millis));
    let penalty = (1..60_u64, 900..1100_u32, 1000..4000_u32, prop::option::of(1..90_u64));
    let penalty = penalty.prop_map(|(half_life, flap, suppress, longest)| PenaltySettings {
        half_life: Some(Duration::from_millis(half_life)),
        flap_penalty: Some(flap),
        suppress: Some(suppress),
        reuse: Some(701),
        max_suppress: longest.map(Duration::from_millis),
    });
    (time(), time(), prop::option::of(penalty)).prop_map(|(hold_up, hold_down, penalty)| {
        LinkStatusSettings {
            hold_up,
            hold_down,
            penalty: penalty.unwrap_or_default(),
            is_drained: false,
        }
    })
}

fn link_event() -> impl Strategy<Value = LinkEvent> {
    prop_oneof![
        8 => (1..4_u32).prop_map(LinkEvent::Toggle),
        1 => any::<bool>().prop_map(LinkEvent::Force),
        1 => settings().prop_map(LinkEvent::Configure),
    ]
}

/// The reported status, worked out at every millisecond from all that was, without timers.
#[derive(Debug, Default)]
struct NaiveLink {
    settings: LinkStatusSettings,
    is_forced: bool,
    is_down: bool,
    is_held_down: bool,
    /// Since when the one is not the other.
    differs_since: Option<u64>,
    /// Moments of losses while a penalty was in use, each with its cost then, undecayed.
    losses: Vec<(u64, f64)>,
    is_suppressed: bool,
}

impl NaiveLink {
    /// Sum of all losses, each decayed alone. Exact only while the half-life stays.
    fn sum(&self, rule: PenaltyRule, ms: f64) -> f64 {
        let half_life = rule.half_life.as_secs_f64() * 1000.0;
        let decayed = |(at, cost): &(u64, f64)| cost * ((*at as f64 - ms) / half_life).exp2();
        self.losses.iter().map(decayed).sum()
    }

    fn step(&mut self, ms: u64) {
        if self.is_down == self.is_held_down {
            self.differs_since = None;
        } else {
            let since = *self.differs_since.get_or_insert(ms);
            let hold = if self.is_down { self.settings.hold_down } else { self.settings.hold_up };
            if u128::from(ms - since) >= hold.unwrap_or_default().as_millis() {
                self.is_held_down = self.is_down;
                self.differs_since = None;
            }
        }
        let Some(rule) = PenaltyRule::of(&self.settings.penalty) else {
            self.is_suppressed = false;
            return;
        };
        let last = self.losses.last().map_or(0, |(at, _)| *at);
        let quiet = u128::from(ms - last);
        let is_longest = rule.max_suppress.is_some_and(|longest| quiet >= longest.as_millis());
        // The margin is a millisecond.
        let has_decayed = quiet >= 1 && self.sum(rule, ms as f64 - 1.0) <= f64::from(rule.reuse);
        self.is_suppressed &= !is_longest && !has_decayed;
    }

    fn toggle(&mut self, times: u32, ms: u64) {
        for _ in 0..times {
            self.is_down = !self.is_down;
            if let (true, Some(rule)) = (self.is_down, PenaltyRule::of(&self.settings.penalty)) {
                self.losses.push((ms, f64::from(rule.flap_penalty)));
                self.is_suppressed |= self.sum(rule, ms as f64) >= f64::from(rule.suppress);
            }
        }
    }

    fn told(&self) -> OperState {
        match self.is_forced || self.is_suppressed || self.is_held_down {
            true => OperState::Down,
            false => OperState::Up,
        }
    }
}

proptest! {
    #[test]
    fn what_is_told_is_what_a_look_at_every_millisecond_tells(
        first in settings(),
        events in prop::collection::vec((0..120_u64, link_event()), 0..40),
    ) {
        let mut rig = Rig::new(first);
        let mut naive = NaiveLink { settings: first, ..NaiveLink::default() };
        let mut told = (OperState::Up, 0);
        let mut events = events.into_iter().peekable();
        let mut wait = events.peek().map_or(0, |(wait, _)| *wait);
        let mut quiet_ms = 0;
        while quiet_ms < 1000 {
            rig.ms += 1;
            let ms = rig.ms;
            naive.step(ms);
            if rig.links.due().is_some_and(|due| due <= now(ms).monotonic) {
                rig.links.tell_due(now(ms));
                if rig.told() != told.0 {
                    told = (rig.told(), ms);
                }
            }
            if wait > 0 || events.peek().is_none() {
                wait = wait.saturating_sub(1);
                quiet_ms += u64::from(events.peek().is_none());
            } else if let Some((_, event)) = events.next() {
                wait = events.peek().map_or(0, |(wait, _)| *wait);
                match event {
                    LinkEvent::Toggle(times) => {
                        naive.toggle(times, ms);
                        rig.toggle(times);
                    }
                    LinkEvent::Force(is_forced) => {
                        naive.is_forced = is_forced;
                        let links = is_forced.then(|| rig.key.clone()).into_iter().collect();
                        rig.links.force_down(&links, now(ms));
                    }
                    // Losses of other half-lives would decay by another rule.
                    LinkEvent::Configure(settings) => {
                        let settings = LinkStatusSettings { penalty: naive.settings.penalty, ..settings };
                        naive.settings = settings;
                        rig.links.configure(&rig.key, settings, now(ms));
                    }
                }
                naive.step(ms);
            }
            prop_assert_eq!(rig.told(), naive.told(), "at {} ms", ms);
            if rig.told() != told.0 {
                told = (rig.told(), ms);
            }
            let observed = rig.status().observed;
            prop_assert_eq!(observed.is_some(), rig.observed.status != rig.told());
            if rig.links.links[&rig.key].settings != LinkStatusSettings::default() {
                prop_assert_eq!(rig.changed_ms(), told.1, "at {} ms", ms);
            } else {
                told.1 = rig.changed_ms();
            }
        }
    }
}
