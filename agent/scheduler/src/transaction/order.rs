//! Which operations of a transaction may be handed out: those that wait for nothing, whatever the others of their
//! transport wait for.

use crate::operation::TransportId;
use crate::overlay::to_u32;
use crate::plan::PlannedOperation;

/// Who waits for whom while a transaction is carried out. Operations are known by their seats in it.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// May be handed out, or have to be left out. May name one twice.
    ready: Vec<u32>,
    /// The same of what no transport carries, which has its turn when no transport could begin with anything.
    silent: Vec<u32>,
    /// How many others each one waits for. All empty when one transport carries everything: then the order of the plan
    /// is order enough.
    lacks: Vec<u32>,
    /// Who waits for the operation at a seat: `followers[first[seat]..first[seat + 1]]`.
    first: Vec<u32>,
    followers: Vec<u32>,
}

impl Order {
    pub(super) fn of(operations: &[PlannedOperation]) -> Self {
        let seats = 0..to_u32(operations.len());
        let transport = operations.first().map(|op| op.transport);
        if operations.iter().all(|op| Some(op.transport) == transport) {
            return Self { ready: seats.collect(), ..Self::default() };
        }
        let lacks: Vec<u32> = operations.iter().map(|op| to_u32(op.after.len())).collect();
        let ready = seats.filter(|&seat| lacks[seat as usize] == 0);
        let (silent, ready) = ready.partition(|&seat| is_silent(operations, seat));
        let (first, followers) = followers(operations);
        Self { ready, silent, lacks, first, followers }
    }

    /// The first of what may be handed out by now, ascending.
    pub(super) fn take_ready(&mut self, most: usize) -> Vec<u32> {
        let list = if self.ready.is_empty() { &mut self.silent } else { &mut self.ready };
        let mut ready = std::mem::take(list);
        ready.sort(); // what was left over is in order already
        ready.dedup();
        if ready.len() > most {
            *list = ready.split_off(most);
        }
        ready
    }

    pub(super) fn has_ready(&self) -> bool {
        !(self.ready.is_empty() && self.silent.is_empty())
    }

    fn enlist(&mut self, seat: u32, operations: &[PlannedOperation]) {
        match is_silent(operations, seat) {
            true => self.silent.push(seat),
            false => self.ready.push(seat),
        }
    }

    /// An operation is with its transport, which keeps order.
    pub(super) fn handed(&mut self, seat: usize, operations: &[PlannedOperation]) {
        let own = |follower: usize| operations[follower].transport == operations[seat].transport;
        self.free(seat, operations, own);
    }

    /// An operation is completed: what other transports carry may follow.
    pub(super) fn came_to_end(&mut self, seat: usize, operations: &[PlannedOperation]) {
        let other = |follower: usize| operations[follower].transport != operations[seat].transport;
        self.free(seat, operations, other);
    }

    /// An operation will not be done, or was done in vain: all that need it are to be left out.
    pub(super) fn broke(&mut self, seat: usize, operations: &[PlannedOperation]) {
        for at in self.range(seat) {
            self.enlist(self.followers[at], operations);
        }
    }

    fn free(
        &mut self,
        seat: usize,
        operations: &[PlannedOperation],
        concerns: impl Fn(usize) -> bool,
    ) {
        for at in self.range(seat) {
            let follower = self.followers[at];
            if concerns(follower as usize) {
                let lacks = &mut self.lacks[follower as usize];
                *lacks -= 1;
                if *lacks == 0 {
                    self.enlist(follower, operations);
                }
            }
        }
    }

    fn range(&self, seat: usize) -> std::ops::Range<usize> {
        match self.first.get(seat..seat + 2) {
            Some(ends) => ends[0] as usize..ends[1] as usize,
            None => 0..0,
        }
    }
}

fn is_silent(operations: &[PlannedOperation], seat: u32) -> bool {
    operations[seat as usize].transport == TransportId::NONE
}

/// The seats that wait for each seat, one list behind the other, and where each list begins.
fn followers(operations: &[PlannedOperation]) -> (Vec<u32>, Vec<u32>) {
    let mut first = vec![0u32; operations.len() + 1];
    for &before in operations.iter().flat_map(|op| &op.after) {
        first[before as usize + 1] += 1;
    }
    for seat in 1..first.len() {
        first[seat] += first[seat - 1];
    }
    let mut next = first.clone();
    let mut followers = vec![0; *first.last().unwrap_or(&0) as usize];
    for (seat, op) in (0..).zip(operations) {
        for &before in &op.after {
            let place = &mut next[before as usize];
            followers[*place as usize] = seat;
            *place += 1;
        }
    }
    (first, followers)
}
