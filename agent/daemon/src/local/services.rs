//! Text of `holdfast show services`.

use std::fmt::Write as _;

use holdfast_config::services::{
    ActionPlan, ActionProgress, Book, CallRef, SELF, ServicePlan, StatePlan,
};
use holdfast_config::{ClaimKey, ServiceTag};

/// A line of the table: component, state, status, and what it waits for or failed with.
type Line = [String; 4];

/// Line of an instance without any output, old or new.
pub(super) fn undeployed_line(tag: &ServiceTag) -> String {
    format!("{tag}  not deployed: `holdfast service resurrect` deploys it again\n")
}

/// The service plan of each instance, ascending by name, and the queue of their actions. `action_wait` is text for what
/// the action of a state waits for.
pub(super) fn table(book: &Book, action_wait: impl Fn(&ClaimKey) -> Option<String>) -> String {
    let plans: String =
        book.iter().map(|(tag, plan)| plan_table(tag, plan, &action_wait)).collect();
    let calls = book.iter().flat_map(|(tag, plan)| plan.calls().map(move |call| (tag, call)));
    let listed = calls.filter(|(_, call)| call.action.progress != ActionProgress::Succeeded);
    let line = |(tag, call): (&ServiceTag, CallRef<'_>)| {
        let state = call.key(tag);
        queue_line(&state, call.action, action_wait(&state))
    };
    let lines: String = listed.map(line).collect();
    if lines.is_empty() { plans } else { format!("{plans}queue of actions\n{lines}") }
}

/// An entry of the queue: its id, state, action and status, and what it waits for.
pub(super) fn queue_line(state: &ClaimKey, action: &ActionPlan, wait: Option<String>) -> String {
    let ActionPlan { id, phase, progress, attempts, call, .. } = action;
    let wait = wait.map(|it| format!("  (waits for {it})"));
    let reason = progress.failure().map(|it| format!("  ({it})")).or(wait).unwrap_or_default();
    let phase = phase.name();
    let name = progress.name();
    let action = call.target.name();
    format!("  {id}  {state}  {phase} {action}  {name}, attempts {attempts}{reason}\n")
}

/// The service plan of one instance.
pub(super) fn plan_table(
    tag: &ServiceTag,
    plan: &ServicePlan,
    action_wait: impl Fn(&ClaimKey) -> Option<String>,
) -> String {
    let mut text = String::new();
    let status = plan.status().name();
    // Waits of other components are in their lines; for `self` they have none.
    let waits = || plan.waits_for().map(|it| format!("waits for {it}"));
    let reason = plan.failure.as_ref().map(ToString::to_string).or_else(waits);
    let reason = reason.map(|it| format!("  ({it})")).unwrap_or_default();
    let _never_fails = writeln!(text, "{tag}  {}  {status}{reason}", plan.version);
    let lines = lines(tag, plan, action_wait);
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let [component, state, status] = [0, 1, 2].map(width);
    for [of, name, how, why] in &lines {
        let line = format!("  {of:component$}  {name:state$}  {how:status$}{why}");
        let _never_fails = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// A line for each state, except those of `self` that say no more than the heading.
fn lines(
    tag: &ServiceTag,
    plan: &ServicePlan,
    action_wait: impl Fn(&ClaimKey) -> Option<String>,
) -> Vec<Line> {
    let mut lines = Vec::new();
    for component in &plan.components {
        let key = |state: &StatePlan| {
            let component = [component.component_type.clone(), component.name.clone()];
            ClaimKey { tag: tag.clone(), component, state: state.name.clone() }
        };
        let of = match component.component_type == SELF {
            true if plan.components.len() > 1 => continue,
            true => SELF.to_owned(),
            false => format!("{} {}", component.component_type, component.name),
        };
        for state in &component.states {
            let waits_for = state.waits_for.as_ref().map(|it| format!("waits for {it}"));
            let action = state.action.as_ref().map(|action| {
                let wait = || action_wait(&key(state)).map(|it| format!(" waits for {it}"));
                match action.failure() {
                    Some(failure) => format!("action failed: {failure}"),
                    None => format!("action {}{}", action.status(), wait().unwrap_or_default()),
                }
            });
            let reasons = [state.failure.as_ref().map(ToString::to_string), waits_for, action];
            let reasons: Vec<String> = reasons.into_iter().flatten().collect();
            let why = if reasons.is_empty() {
                String::new()
            } else {
                format!("  ({})", reasons.join(", "))
            };
            let how = if component.back_track.is_some() && state.is_reached {
                "backs out"
            } else {
                component.status_of(state).name()
            };
            lines.push([of.clone(), state.name.to_string(), how.to_owned(), why]);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use holdfast_config::services::{
        ActionCall, ActionPhase, ActionTarget, BackTrack, ComponentPlan,
    };

    use super::*;

    fn component(kind: &str, name: &str, states: &[(&str, bool, Option<&str>)]) -> ComponentPlan {
        let state = |(name, is_reached, waits_for): &(&str, bool, Option<&str>)| StatePlan {
            is_reached: *is_reached,
            waits_for: waits_for.map(Into::into),
            ..StatePlan::new((*name).into(), 1)
        };
        ComponentPlan {
            component_type: kind.into(),
            name: name.into(),
            vars: "".into(),
            back_track: None,
            states: states.iter().map(state).collect(),
        }
    }

    #[test]
    fn each_instance_has_its_states_and_what_they_wait_for() {
        let own = component(SELF, SELF, &[("init", true, None), ("ready", false, None)]);
        let port =
            [("init", true, None), ("sized", false, Some("gate `up`")), ("ready", false, None)];
        let components = vec![own.clone(), component("port", "eth1", &port)];
        let staged = ServicePlan { version: "1.0.0".into(), components, ..ServicePlan::default() };
        let leaving = Some("{}".into());
        let mut zombie = ServicePlan { leaving, components: vec![own], ..staged.clone() };
        zombie.components[0].back_track = Some(BackTrack::Whole);
        let mut book = Book::default();
        book.set(("access[name='acme']".parse().unwrap(), Some(staged)));
        book.set(("access[name='bolt']".parse().unwrap(), Some(zombie)));
        let want = "access[name='acme']  1.0.0  not-reached
  port eth1  init   reached
  port eth1  sized  not-reached  (waits for gate `up`)
  port eth1  ready  not-reached
access[name='bolt']  1.0.0  zombie
  self  init   backs out
  self  ready  not-reached
";
        assert_eq!(table(&book, |_| None), want);
        assert_eq!(table(&Book::default(), |_| None), "");
    }

    #[test]
    fn an_instance_whose_type_is_switched_off_is_not_ready() {
        let mut ready = component(SELF, SELF, &[("init", true, None), ("ready", true, None)]);
        let port = component("port", "eth1", &[("init", true, None), ("ready", true, None)]);
        let plan = |own: &ComponentPlan| {
            let components = vec![own.clone(), port.clone()];
            ServicePlan { version: "1.0.0".into(), components, ..ServicePlan::default() }
        };
        let tag = "access[name='acme']".parse().unwrap();
        let table = |own: &ComponentPlan| plan_table(&tag, &plan(own), |_| None);
        assert!(table(&ready).starts_with("access[name='acme']  1.0.0  ready\n"));
        ready.states[1].waits_for = Some("its type to be switched on".into());
        let want =
            "access[name='acme']  1.0.0  not-reached  (waits for its type to be switched on)\n";
        assert!(table(&ready).starts_with(want), "{}", table(&ready));
    }

    #[test]
    fn a_state_says_that_its_action_waits_for_a_handler() {
        let mut port = component("port", "eth1", &[("init", true, None), ("made", true, None)]);
        let params = "{}".into();
        let serial = "".into();
        let timeout_s = 1;
        let target = ActionTarget::Handler("create".into());
        port.states[1].action = Some(ActionPlan {
            id: 7,
            phase: ActionPhase::Create,
            progress: ActionProgress::Queued,
            attempts: 0,
            since_ns: 1,
            call: ActionCall { target, params, serial, timeout_s },
            cause: None,
        });
        let own = component(SELF, SELF, &[("init", true, None), ("ready", false, None)]);
        let plan = ServicePlan { components: vec![own, port], ..ServicePlan::default() };
        let mut book = Book::default();
        book.set(("guest[name='web']".parse().unwrap(), Some(plan)));
        let wait = |state: &ClaimKey| (state.state == "made").then(|| "a handler".to_owned());
        let alone = table(&book, |_| None);
        let waiting = table(&book, wait);
        assert!(alone.contains("made  reached  (action create-init)"), "{alone}");
        for line in [
            "  port eth1  made  reached  (action create-init waits for a handler)\n",
            "  7  guest[name='web'] (port eth1, made)  create create  queued, attempts 0  (waits for a handler)\n",
        ] {
            assert!(waiting.contains(line), "{waiting}");
        }
    }
}
