//! Probes of next hops: what is asked, and when the answers make a verdict.

use std::net::IpAddr;
use std::time::Duration;

use smol_str::SmolStr;

/// Probes that are run: more than a box has uplinks.
pub const MAX_PROBES: usize = 256;

/// Which targets of a probe have to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Require {
    Any,
    All,
}

/// How a probe asks its targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeMode {
    /// Echo requests.
    Icmp,
    /// The kernel is asked to solicit them as neighbours.
    Neighbor,
}

/// A probe of a next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    pub name: SmolStr,
    pub next_hop: IpAddr,
    /// Never empty.
    pub targets: Vec<IpAddr>,
    pub require: Require,
    pub mode: ProbeMode,
    /// Link that the packets leave by.
    pub interface: Option<SmolStr>,
    /// Pause between two rounds.
    pub interval: Duration,
    /// Rounds in a row without the answers after which the next hop counts as unreachable, and with them after which it counts as
    /// reachable again.
    pub down_after: u32,
    pub up_after: u32,
}

impl Probe {
    /// True when these answers, in the order of the targets, suffice.
    pub fn is_reached(&self, answers: &[bool]) -> bool {
        match self.require {
            Require::Any => answers.contains(&true),
            Require::All => !answers.contains(&false),
        }
    }

    /// Text of the alarm, for people.
    pub fn text(&self) -> SmolStr {
        let targets: Vec<String> = self.targets.iter().map(ToString::to_string).collect();
        let targets = targets.join(", ");
        let by = self.interface.as_ref().map(|link| format!(" by {link}")).unwrap_or_default();
        let text = match (self.targets.len(), self.require) {
            (1, _) => format!("{targets} does not answer{by}"),
            (_, Require::Any) => format!("none of {targets} answers{by}"),
            (_, Require::All) => format!("not all of {targets} answer{by}"),
        };
        text.into()
    }
}

/// The verdict of a probe, which follows its rounds with hysteresis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reachability {
    /// `None` until enough rounds have ended the same way.
    is_reachable: Option<bool>,
    /// Rounds in a row with the same result, and that result.
    in_a_row: u32,
    last: bool,
}

impl Reachability {
    /// Takes the result of a round in. Returns the verdict if it is a new one.
    pub fn take(&mut self, probe: &Probe, is_reached: bool) -> Option<bool> {
        let is_same = self.in_a_row > 0 && self.last == is_reached;
        self.in_a_row = if is_same { self.in_a_row.saturating_add(1) } else { 1 };
        self.last = is_reached;
        let enough = if is_reached { probe.up_after } else { probe.down_after };
        if self.in_a_row < enough || self.is_reachable == Some(is_reached) {
            return None;
        }
        self.is_reachable = Some(is_reached);
        self.is_reachable
    }

    /// The verdict so far.
    pub fn is_reachable(&self) -> Option<bool> {
        self.is_reachable
    }
}

#[cfg(test)]
mod tests {
    use holdfast_scheduler::Now;

    use super::*;
    use crate::{Condition, Faults, Report, Settings, Source};

    fn probe(name: &str, next_hop: &str, require: Require) -> Probe {
        let next_hop: IpAddr = next_hop.parse().unwrap();
        Probe {
            name: name.into(),
            next_hop,
            targets: vec![next_hop, "198.51.100.1".parse().unwrap()],
            require,
            mode: ProbeMode::Icmp,
            interface: None,
            interval: Duration::from_secs(1),
            down_after: 3,
            up_after: 2,
        }
    }

    /// Verdicts of rounds: `+` and `-` are rounds with and without answers; `U` and `D` are verdicts, `.` is none.
    fn verdicts(rounds: &str) -> String {
        let probe = probe("one", "192.0.2.1", Require::Any);
        let mut reachability = Reachability::default();
        let verdict = |round| match reachability.take(&probe, round == '+') {
            Some(true) => 'U',
            Some(false) => 'D',
            None => '.',
        };
        rounds.chars().map(verdict).collect()
    }

    #[test]
    fn a_verdict_takes_some_rounds_in_a_row() {
        for (rounds, wanted) in [
            ("+++", ".U."),
            ("---", "..D"),
            ("++--+---", ".U.....D"),
            ("---+-++-", "..D...U."),
            ("+-+-+-+-", "........"),
        ] {
            assert_eq!(verdicts(rounds), wanted, "{rounds}");
        }
    }

    #[test]
    fn any_or_all_targets_have_to_answer() {
        for (require, answers, wanted) in [
            (Require::Any, [true, false], true),
            (Require::Any, [false, false], false),
            (Require::All, [true, false], false),
            (Require::All, [true, true], true),
        ] {
            assert_eq!(probe("one", "192.0.2.1", require).is_reached(&answers), wanted);
        }
    }

    #[test]
    fn probes_of_one_next_hop_have_conditions_of_their_own() {
        let one = probe("one", "192.0.2.1", Require::Any);
        let two = probe("two", "192.0.2.1", Require::All);
        let three = probe("three", "2001:db8::1", Require::Any);
        let settings = Settings::default().with_probes(vec![two, three, one]);
        let names: Vec<String> = settings.probes().map(|(_, it)| it.to_string()).collect();
        let wanted = [
            "next-hop-unreachable.one@next-hop:192.0.2.1",
            "next-hop-unreachable@next-hop:2001:db8::1",
            "next-hop-unreachable.two@next-hop:192.0.2.1",
        ];
        assert_eq!(names, wanted);
        let texts: Vec<SmolStr> = settings.probes().map(|(probe, _)| probe.text()).collect();
        assert_eq!(texts[0], "none of 192.0.2.1, 198.51.100.1 answers");
        assert_eq!(texts[2], "not all of 192.0.2.1, 198.51.100.1 answer");
    }

    #[test]
    fn the_alarm_of_a_probe_goes_with_its_entry() {
        let settings = |probes| Settings::default().with_probes(probes).into();
        let now = Now { monotonic: Duration::ZERO, unix_ns: 1 };
        let mut faults = Faults::default();
        let one = probe("one", "192.0.2.1", Require::Any);
        faults.on(crate::Input::Settings(settings(vec![one])), now);
        let down = Condition::new("next-hop-unreachable", "next-hop:192.0.2.1".parse().unwrap());
        let report = Report::holding(down.clone(), "", 1);
        faults.on(crate::Input::Reports(Source::Probes, vec![report]), now);
        assert!(faults.alarm(&down).is_some());
        faults.on(crate::Input::Settings(settings(Vec::new())), now);
        assert!(faults.alarm(&down).is_none());
    }
}
