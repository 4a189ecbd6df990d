//! Pure work on many items, done by all processors.

use rayon::prelude::*;

/// Items up to which one thread does it all: others are not worth waking for less.
pub const FEW: usize = 1000;

/// What `act` makes of each item, in the order of the items.
pub fn map<T: Send, R: Send>(items: Vec<T>, act: impl Fn(T) -> R + Sync + Send) -> Vec<R> {
    if items.len() <= FEW {
        return items.into_iter().map(act).collect();
    }
    items.into_par_iter().with_min_len(FEW).map(act).collect()
}

/// Does two things, side by side when there is `much` to do.
pub fn both<A: Send, B: Send>(
    much: bool,
    one: impl FnOnce() -> A + Send,
    other: impl FnOnce() -> B + Send,
) -> (A, B) {
    if much { rayon::join(one, other) } else { (one(), other()) }
}
