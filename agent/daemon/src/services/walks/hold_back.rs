//! Pauses of instances that walk again and again without an end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use holdfast_config::ServiceTag;
use holdfast_config::services::ServicePlan;
use smol_str::SmolStr;
use tokio::time::Instant;

/// Walks of one instance within [`PERIOD`] that change something and reach no state for the first time, before it has to
/// pause.
const WALKS: usize = 10;
const PERIOD: Duration = Duration::from_secs(60);
/// First pause, which doubles up to [`LONGEST`].
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Walks of the instances in the last [`PERIOD`].
#[derive(Debug, Default)]
pub(in crate::services) struct HoldBack(BTreeMap<ServiceTag, Walks>);

/// Type and name of a component, and one of its states.
type PlanState = [SmolStr; 3];

#[derive(Debug, Default)]
struct Walks {
    /// Since a state was reached for the first time.
    times: VecDeque<Instant>,
    /// States that these walks, and those before them, have reached. A state that is left and reached again is not
    /// new.
    reached: BTreeSet<PlanState>,
    pause: Option<Duration>,
    until: Option<Instant>,
}

impl HoldBack {
    /// Notes that a walk has changed something, after which an instance has this plan. True when the instance has to pause
    /// from now on.
    pub(in crate::services) fn note(
        &mut self,
        tag: &ServiceTag,
        plan: Option<&ServicePlan>,
        now: Instant,
    ) -> bool {
        let walks = self.0.entry(tag.clone()).or_default();
        while walks.times.front().is_some_and(|at| now.duration_since(*at) > PERIOD) {
            walks.times.pop_front();
        }
        if walks.times.is_empty() {
            *walks = Walks::default();
        }
        if walks.has_reached_more(plan) {
            (walks.times, walks.pause) = (VecDeque::new(), None);
        }
        walks.times.push_back(now);
        if walks.times.len() <= WALKS {
            return false;
        }
        let pause = walks.pause.map_or(FIRST, |pause| (pause * 2).min(LONGEST));
        (walks.pause, walks.until) = (Some(pause), Some(now + pause));
        true
    }

    /// End of the pause of an instance, if it has one now.
    pub(in crate::services) fn until(&self, tag: &ServiceTag, now: Instant) -> Option<Instant> {
        self.0.get(tag)?.until.filter(|until| *until > now)
    }

    pub(in crate::services) fn forget(&mut self, tag: &ServiceTag) {
        self.0.remove(tag);
    }
}

impl Walks {
    /// Notes the states that a plan has reached. True if one of them is new.
    fn has_reached_more(&mut self, plan: Option<&ServicePlan>) -> bool {
        let before = self.reached.len();
        for component in plan.iter().flat_map(|plan| &plan.components) {
            let reached = component.states.iter().filter(|state| state.is_reached);
            self.reached.extend(reached.map(|state| {
                [&component.component_type, &component.name, &state.name].map(SmolStr::clone)
            }));
        }
        self.reached.len() > before
    }
}

#[cfg(test)]
mod tests {
    use holdfast_config::services::{ComponentPlan, StatePlan};

    use super::*;

    fn acme() -> ServiceTag {
        "access[name='acme']".parse().unwrap()
    }

    /// A plan whose only component has reached these states.
    fn reached(states: &[&str]) -> ServicePlan {
        let state =
            |name: &&str| StatePlan { is_reached: true, ..StatePlan::new((*name).into(), 0) };
        let component = ComponentPlan {
            component_type: "port".into(),
            name: "eth1".into(),
            vars: "".into(),
            back_track: None,
            states: states.iter().map(state).collect(),
        };
        ServicePlan { components: vec![component], ..ServicePlan::default() }
    }

    // proves sv.B28
    #[tokio::test(start_paused = true)]
    async fn an_instance_that_walks_without_an_end_pauses_for_longer_and_longer() {
        let tag = acme();
        let mut walks = HoldBack::default();
        for _ in 0..WALKS {
            assert!(!walks.note(&tag, None, Instant::now()));
        }
        for pause in [1, 2, 4, 8] {
            assert!(walks.note(&tag, None, Instant::now()));
            let until = walks.until(&tag, Instant::now()).unwrap();
            assert_eq!(until - Instant::now(), Duration::from_secs(pause));
            tokio::time::advance(until - Instant::now()).await;
            assert_eq!(walks.until(&tag, Instant::now()), None);
        }
        tokio::time::advance(PERIOD * 2).await;
        assert!(!walks.note(&tag, None, Instant::now()), "a minute without walks ends it");
    }

    // proves sv.B28
    #[test]
    fn walks_that_reach_new_states_do_not_count() {
        let tag = acme();
        let now = Instant::now();
        let names: Vec<String> = (0..3 * WALKS).map(|number| format!("s{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut walks = HoldBack::default();
        for end in 1..=names.len() {
            assert!(!walks.note(&tag, Some(&reached(&names[..end])), now), "state {end}");
        }
    }

    // proves sv.B28
    #[test]
    fn a_state_that_is_left_and_reached_again_is_not_new() {
        let tag = acme();
        let now = Instant::now();
        let [left, back] = [reached(&["init"]), reached(&["init", "routed"])];
        let mut walks = HoldBack::default();
        let turns = [back, left].into_iter().cycle().take(WALKS + 1);
        let held: Vec<bool> = turns.map(|plan| walks.note(&tag, Some(&plan), now)).collect();
        assert_eq!(held.iter().filter(|held| **held).count(), 1, "{held:?}");
        assert!(held[WALKS]);
    }
}
