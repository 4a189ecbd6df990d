//! Limits of one request: the only table of them.
//!
//! Each limit is checked before the work that it bounds is begun. A request over one is refused by
//! [`LimitExceeded`], which names the limit and its figure; callers turn that into `RESOURCE_EXHAUSTED`.

/// A bound on what one request may ask for, or cost.
#[derive(Debug, PartialEq, Eq)]
pub struct Limit {
    /// The name that refusals and the user guide use.
    pub name: &'static str,
    /// The largest amount that is accepted.
    pub figure: usize,
    /// What is counted, in the plural.
    pub unit: &'static str,
    /// Why it is this figure.
    pub reason: &'static str,
}

/// A request that asks for more than a limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {} {} (limit `{}`)", limit.figure, limit.unit, limit.name)]
pub struct LimitExceeded {
    pub limit: &'static Limit,
}

impl Limit {
    /// Accepts an amount up to the figure.
    ///
    /// # Errors
    /// When the amount is larger.
    pub fn check(&'static self, amount: usize) -> Result<(), LimitExceeded> {
        if amount <= self.figure { Ok(()) } else { Err(LimitExceeded { limit: self }) }
    }
}

pub static MESSAGE_SIZE: Limit = Limit {
    name: "message-size",
    figure: 64 << 20,
    unit: "octets in a message",
    reason: "a device with 100 000 routes is a Set of about 15 MB, and a root annotation adds one",
};

pub static PATH_ELEMENTS: Limit = Limit {
    name: "path-elements",
    figure: 64,
    unit: "elements in a path",
    reason: "the deepest path of the models has fewer than 20",
};

pub static PATH_DEPTH_WILDCARDS: Limit = Limit {
    name: "path-depth-wildcards",
    figure: 4,
    unit: "`...` in a path",
    reason: "a collector needs one, two at most; the cost of a walk grows with each",
};

pub static ELEMENT_KEYS: Limit = Limit {
    name: "element-keys",
    figure: 16,
    unit: "keys of a path element",
    reason: "the list with the most keys in the published models has fewer than 10",
};

pub static REQUEST_PATHS: Limit = Limit {
    name: "request-paths",
    figure: 4096,
    unit: "paths in a request",
    reason: "a controller that names more leaves than this asks for what is above them",
};

pub static SUBSCRIPTIONS: Limit = Limit {
    name: "subscriptions",
    figure: 10_000,
    unit: "subscriptions in a list",
    reason: "a collector that watches every port of a large box by name has a few thousand",
};

pub static LEAF_LIST_ENTRIES: Limit = Limit {
    name: "leaf-list-entries",
    figure: 10_000,
    unit: "entries in a leaf-list",
    reason: "the longest leaf-lists in use have some hundred; each is one value, copied at each change",
};

pub static LIST_ENTRIES: Limit = Limit {
    name: "list-entries",
    figure: 2_000_000,
    unit: "list entries in a configuration",
    reason: "ten full tables of today's largest static configurations; each entry takes about 1 KiB",
};

pub static ANSWER_SIZE: Limit = Limit {
    name: "answer-size",
    figure: 256 << 20,
    unit: "octets in an answer",
    reason: "a box with 100 000 routes is a document of about 15 MB, and few readers ask at a time",
};

pub static ERROR_TEXT: Limit = Limit {
    name: "error-text",
    figure: 4096,
    unit: "octets in an error text",
    reason: "an error travels in HTTP/2 trailers, of which clients accept 8 KiB by default",
};

/// Every limit of a request.
pub static REQUEST_LIMITS: [&Limit; 10] = [
    &MESSAGE_SIZE,
    &PATH_ELEMENTS,
    &PATH_DEPTH_WILDCARDS,
    &ELEMENT_KEYS,
    &REQUEST_PATHS,
    &SUBSCRIPTIONS,
    &LEAF_LIST_ENTRIES,
    &LIST_ENTRIES,
    &ANSWER_SIZE,
    &ERROR_TEXT,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_figure_itself_is_accepted() {
        for limit in REQUEST_LIMITS {
            limit.check(limit.figure).unwrap();
            let error = limit.check(limit.figure + 1).unwrap_err().to_string();
            assert!(
                error.contains(limit.name) && error.contains(&limit.figure.to_string()),
                "{error}"
            );
        }
    }

    #[test]
    fn names_are_unique_and_reasons_given() {
        let names: BTreeSet<_> = REQUEST_LIMITS.iter().map(|limit| limit.name).collect();
        assert_eq!(names.len(), REQUEST_LIMITS.len());
        assert!(
            REQUEST_LIMITS.iter().all(|limit| !limit.reason.is_empty() && !limit.unit.is_empty())
        );
    }
}
