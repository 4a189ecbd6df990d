//! Names that no value of a package may take.

/// Names with a meaning in every expression, which no value of a package may take.
pub const RESERVED_NAMES: [&str; 23] = [
    "params",
    "service",
    "component",
    "item",
    "result",
    "config",
    "state",
    "gone",
    "reached",
    "action",
    "ready",
    "service_ready",
    "true",
    "false",
    "none",
    "and",
    "or",
    "not",
    "in",
    "is",
    "if",
    "else",
    "loop",
];
