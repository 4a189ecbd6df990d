//! Sizes of the parts of a tree; a tree has millions of them.

use std::sync::Arc;

use crate::*;

/// A failing row has grown by accident, or shows that its bound can be tightened.
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
        // As a text of up to 23 bytes in place.
        Value = 24;
        Option<Value> = 24;
        // As the one value that nearly all are.
        Keys = 24;
        Option<Keys> = 24;
        Step = 32;
        // One entry in the nodes of a list.
        (Keys, Arc<()>) = 32;
        // One child of a branch: a leaf is the largest, and its value has the tag of all three.
        (NodeId, Child<LeafMark>) = 40;
        (NodeId, Child<Provenance>) = 40;
        List<LeafMark> = 24;
        // With the two counts of its `Arc` just what the allocator has a size for.
        Branch<LeafMark> = 32;
    }
}
