//! Pure work on many items, done by all processors.

use rayon::prelude::*;

/// Items up to which one thread does it all: others are not worth waking for less.
pub const FEW: usize = 1000;

/// Items whose results are kept at a time until they are taken.
const PORTION: usize = 8192;

/// What `act` makes of each item, in the order of the items.
pub fn map<T: Send, R: Send>(items: Vec<T>, act: impl Fn(T) -> R + Sync + Send) -> Vec<R> {
    if items.len() <= FEW {
        return items.into_iter().map(act).collect();
    }
    items.into_par_iter().with_min_len(FEW).map(act).collect()
}

/// Has `act` make something of each item, and `take` take it, in the order of the items: what was made of one portion
/// is taken while the next one is made. Whoever acts on a row of items has a state for them from `begin`.
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
    let mut made = make(portion());
    while !made.is_empty() {
        let next = portion();
        ((), made) = rayon::join(|| made.into_iter().for_each(&mut take), || make(next));
    }
}

/// Does two things, side by side when there is `much` to do.
pub fn both<A: Send, B: Send>(
    much: bool,
    one: impl FnOnce() -> A + Send,
    other: impl FnOnce() -> B + Send,
) -> (A, B) {
    if much { rayon::join(one, other) } else { (one(), other()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_side_by_side_is_taken_in_order() {
        for count in [0, 1, FEW, FEW + 1, PORTION, PORTION + 1, 3 * PORTION + FEW] {
            let (mut taken, mut acted) = (Vec::new(), 0);
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
