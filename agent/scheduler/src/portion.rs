//! Work on many items: it is done in portions, between which events get their turn.

use holdfast_common::parallel;

use crate::history::OPERATIONS_KEPT;

/// Operations submitted before the transports get them: they begin with the first ones of a large change while the
/// engine prepares the next. Also items of a large plan that are taken over, those of a large reading that are taken in, and
/// nodes of a large change that are released, before facts get their turn: some ten milliseconds of work.
pub(crate) const PORTION: usize = 4096;

/// Drops something with so many items; where these are many, on another thread, so that no event waits.
pub(crate) fn drop_beside<T: Send + 'static>(items: usize, dropped: T) {
    if items > OPERATIONS_KEPT {
        parallel::drop_aside(dropped);
    }
}
