//! What the parts of a tree take: there are millions of them beside each other.

use crate::*;

/// A row that fails has grown by a change that did not mean to, or shows that the table may be stricter now.
macro_rules! check {
    ($($type:ty = $octets:literal;)*) => {
        $(assert_eq!(size_of::<$type>(), $octets, stringify!($type));)*
    };
}

#[test]
fn parts_of_trees_do_not_grow() {
    check! {
        // A pointer and a length: its variants of a value must leave the tag of a text free.
        Name = 16;
        // As a text of up to 23 octets in place.
        Value = 24;
        Option<Value> = 24;
        // As the one value that nearly all are.
        Keys = 24;
        Option<Keys> = 24;
        Step = 32;
    }
}
