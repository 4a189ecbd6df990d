//! Parallel processing of many items by pure functions.

use rayon::prelude::*;

/// Items up to which a single thread is faster than waking others.
pub const FEW: usize = 1000;

/// Most items whose results wait to be consumed.
const PORTION: usize = 8192;

/// Applies `act` to each item. The results are in the order of the items.
pub fn map<T: Send, R: Send>(items: Vec<T>, act: impl Fn(T) -> R + Sync + Send) -> Vec<R> {
    if items.len() <= FEW {
        return items.into_iter().map(act).collect();
    }
    items.into_par_iter().with_min_len(FEW).map(act).collect()
}

/// Applies `act` to each item and passes the results to `take`, in order: the results of one portion are consumed
/// while the next one is computed. `begin` makes the state that `act` has for a run of items.
pub fn in_order<T: Send, S, R: Send>(
    items: Vec<T>,
    begin: impl Fn() -> S + Sync,
    act: impl Fn(&mut S, T) -> R + Sync,
    mut take: impl FnMut(R) + Send,
) {
    if items.len() <= FEW {
        let mut state = begin();
        return items.into_iter().for_each(|item| take(act(&mut state, item)));
    }
    let mut items = items.into_iter();
    let mut portion = || items.by_ref().take(PORTION).collect::<Vec<_>>();
    let make = |portion: Vec<T>| -> Vec<R> {
        portion.into_par_iter().with_min_len(FEW).map_init(&begin, &act).collect()
    };
    let mut results = make(portion());
    while !results.is_empty() {
        let next = portion();
        ((), results) = rayon::join(|| results.into_iter().for_each(&mut take), || make(next));
    }
}

/// Runs two functions, in parallel when there is `much` to do.
pub fn both<A: Send, B: Send>(
    much: bool,
    one: impl FnOnce() -> A + Send,
    other: impl FnOnce() -> B + Send,
) -> (A, B) {
    if much { rayon::join(one, other) } else { (one(), other()) }
}

/// Applies `act` to each item of a slice, in shares of at least `share`. The results are in the order of the items.
pub fn map_slice<T: Sync, R: Send>(
    items: &[T],
    share: usize,
    act: impl Fn(&T) -> R + Sync + Send,
) -> Vec<R> {
    items.par_iter().with_min_len(share).map(act).collect()
}

/// Runs `here` on the thread of the caller, and `aside` on another one meanwhile. Returns when both have ended.
pub fn beside<R>(aside: impl FnOnce() + Send, here: impl FnOnce() -> R) -> R {
    rayon::in_place_scope(|scope| {
        scope.spawn(|_| aside());
        here()
    })
}

/// Drops a large value on another thread, so that the caller goes on at once.
pub fn drop_aside(large: impl Send + 'static) {
    rayon::spawn(|| drop(large));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_results_arrive_in_item_order() {
        for count in [0, 1, FEW, FEW + 1, PORTION, PORTION + 1, 3 * PORTION + FEW] {
            let mut taken = Vec::new();
            let mut acted = 0;
            let act = |before: &mut usize, item: usize| {
                *before += 1;
                (item, *before)
            };
            let take = |(item, nth)| {
                taken.push(item);
                acted = acted.max(nth);
            };
            in_order((0..count).collect(), || 0, act, take);
            assert_eq!(taken, (0..count).collect::<Vec<_>>());
            assert!(acted <= PORTION, "a state was kept for {acted} items of {count}");
        }
    }
}
