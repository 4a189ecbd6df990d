//! The time of day, as records and telemetry have it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970, as gNMI counts time.
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
