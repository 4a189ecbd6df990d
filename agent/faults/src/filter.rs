//! Choice of alarms by type and resource.

use crate::condition::Condition;
use crate::glob::Glob;

/// Which alarms are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub kind: Glob,
    pub resource: Glob,
}

impl Filter {
    pub fn matches(&self, condition: &Condition) -> bool {
        self.kind.matches(&condition.kind.name)
            && self.resource.matches(&condition.resource.to_string())
    }
}
