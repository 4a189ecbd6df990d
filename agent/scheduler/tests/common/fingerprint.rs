//! Everything of a plan that decides what happens, as text.

use holdfast_scheduler::{Plan, PlanError};

/// Text that equal plans have in common.
pub fn fingerprint(plan: &Result<Plan, PlanError>) -> String {
    let plan = match plan {
        Ok(plan) => plan,
        Err(refusal) => return format!("{refusal:?}"),
    };
    let mut lines = vec![format!("{:016x} {:?}", plan.hash(), plan.restores())];
    for op in plan.operations() {
        let key = &op.key;
        let transport = op.transport;
        let cause = op.cause;
        lines.push(format!("{} {key:?} {transport:?} {cause:?} {:?}", op.action, op.after));
        lines.push(format!("  {:?} -> {:?}, {:?}", op.old, op.new, op.cascaded));
    }
    let waiting = plan.waiting();
    lines.extend(waiting.map(|(key, labels)| format!("{key:?} {:?}", labels.collect::<Vec<_>>())));
    lines.join("\n")
}
