//! The status of entries that are not UP.

/// How well the object of an entry works that does not work as configured: `state/effective-status` of the native model. Of
/// several that apply, the greatest one is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EffectiveStatus {
    /// Some of it works.
    Degraded,
    /// Its reporter has not repeated its word in time.
    Unknown,
    /// Nothing of it works.
    Down,
    /// A maintenance session has it.
    Maintenance,
}

// Name in the native model.
crate::enum_names!(EffectiveStatus {
    Degraded = "DEGRADED",
    Unknown = "UNKNOWN",
    Down = "DOWN",
    Maintenance = "MAINTENANCE",
});
