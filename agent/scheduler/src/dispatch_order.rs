//! Order of submission: operations that wait for nothing may be submitted, whatever others of their transport wait for.

use crate::operation::TransportId;
use crate::overlay::to_u32;
use crate::planned_operation::PlannedOperation;

/// Dependencies between the operations of a transaction, by their indexes.
#[derive(Debug, Default)]
pub(crate) struct DispatchOrder {
    /// Operations to be submitted or skipped. May hold duplicates.
    ready: Vec<u32>,
    /// Ready operations without a transport, taken when no transport has a ready one.
    engine_ops: Vec<u32>,
    /// Number of operations that each one waits for. Empty with a single transport, where the order of the plan is
    /// enough.
    waits_for: Vec<u32>,
    /// Start of the followers of each operation: `followers[follower_starts[i]..follower_starts[i + 1]]` wait for `i`.
    follower_starts: Vec<u32>,
    followers: Vec<u32>,
}

impl DispatchOrder {
    pub(crate) fn of(operations: &[PlannedOperation]) -> Self {
        let op_indexes = 0..to_u32(operations.len());
        let transport = operations.first().map(|op| op.transport);
        if operations.iter().all(|op| Some(op.transport) == transport) {
            return Self { ready: op_indexes.collect(), ..Self::default() };
        }
        let waits_for: Vec<u32> = operations.iter().map(|op| to_u32(op.after.len())).collect();
        let ready = op_indexes.filter(|&op_index| waits_for[op_index as usize] == 0);
        let (engine_ops, ready) = ready.partition(|&op_index| is_engine_op(operations, op_index));
        let (follower_starts, followers) = followers(operations);
        Self { ready, engine_ops, waits_for, follower_starts, followers }
    }

    /// Takes the first ready operations, ascending.
    pub(super) fn take_ready(&mut self, most: usize) -> Vec<u32> {
        let list = if self.ready.is_empty() { &mut self.engine_ops } else { &mut self.ready };
        let mut ready = std::mem::take(list);
        ready.sort(); // mostly sorted: the rest of last time is in order
        ready.dedup();
        if ready.len() > most {
            *list = ready.split_off(most);
        }
        ready
    }

    pub(super) fn has_ready(&self) -> bool {
        !(self.ready.is_empty() && self.engine_ops.is_empty())
    }

    fn enlist(&mut self, op_index: u32, operations: &[PlannedOperation]) {
        if is_engine_op(operations, op_index) {
            self.engine_ops.push(op_index);
        } else {
            self.ready.push(op_index);
        }
    }

    /// Records a submission: followers on the same transport need not wait, since a transport keeps order.
    pub(super) fn submitted_op(&mut self, op_index: usize, operations: &[PlannedOperation]) {
        let own =
            |follower: usize| operations[follower].transport == operations[op_index].transport;
        self.free(op_index, operations, own);
    }

    /// Records a completion: followers on other transports need not wait any more.
    pub(super) fn completed_op(&mut self, op_index: usize, operations: &[PlannedOperation]) {
        let other =
            |follower: usize| operations[follower].transport != operations[op_index].transport;
        self.free(op_index, operations, other);
    }

    /// Records a failure: all followers are ready to be skipped.
    pub(super) fn failed_op(&mut self, op_index: usize, operations: &[PlannedOperation]) {
        for at in self.range(op_index) {
            self.enlist(self.followers[at], operations);
        }
    }

    fn free(
        &mut self,
        op_index: usize,
        operations: &[PlannedOperation],
        concerns: impl Fn(usize) -> bool,
    ) {
        for at in self.range(op_index) {
            let follower = self.followers[at];
            if concerns(follower as usize) {
                let waits_for = &mut self.waits_for[follower as usize];
                *waits_for -= 1;
                if *waits_for == 0 {
                    self.enlist(follower, operations);
                }
            }
        }
    }

    fn range(&self, op_index: usize) -> std::ops::Range<usize> {
        match self.follower_starts.get(op_index..op_index + 2) {
            Some(ends) => ends[0] as usize..ends[1] as usize,
            None => 0..0,
        }
    }
}

fn is_engine_op(operations: &[PlannedOperation], op_index: u32) -> bool {
    operations[op_index as usize].transport == TransportId::NONE
}

/// Start of the followers of each operation, and the followers of all operations in one list.
fn followers(operations: &[PlannedOperation]) -> (Vec<u32>, Vec<u32>) {
    let mut follower_starts = vec![0u32; operations.len() + 1];
    for &before in operations.iter().flat_map(|op| &op.after) {
        follower_starts[before as usize + 1] += 1;
    }
    for op_index in 1..follower_starts.len() {
        follower_starts[op_index] += follower_starts[op_index - 1];
    }
    let mut next = follower_starts.clone();
    let mut followers = vec![0; *follower_starts.last().unwrap_or(&0) as usize];
    for (op_index, op) in (0..).zip(operations) {
        for &before in &op.after {
            let place = &mut next[before as usize];
            followers[*place as usize] = op_index;
            *place += 1;
        }
    }
    (follower_starts, followers)
}
