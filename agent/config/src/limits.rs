//! Limits of one request, and of what a caller may make the agent hold; all are in these tables.
//!
//! Each limit is checked before the work that it bounds. An excess is refused with [`LimitExceeded`], which names
//! the limit and its figure; callers turn it into `RESOURCE_EXHAUSTED`. Long error texts do not cause a refusal:
//! [`error_text`] cuts them.

use holdfast_common::ERROR_TEXT_OCTETS;
pub use holdfast_common::{CUT_MARK, EXCERPT, error_text, excerpt};

/// Bound on the size or cost of one request.
#[derive(Debug, PartialEq, Eq)]
pub struct Limit {
    /// Name in refusals and in the user guide.
    pub name: &'static str,
    /// Largest accepted amount.
    pub figure: usize,
    /// Thing that is counted, in the plural.
    pub unit: &'static str,
    /// Reason for this figure.
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
    unit: "bytes in a message",
    reason: "a device with 100 000 routes is a Set of about 15 MB, and a root annotation adds one",
};

/// Limit for methods whose requests contain no document.
pub static READ_MESSAGE_SIZE: Limit = Limit {
    name: "read-message-size",
    figure: 1 << 20,
    unit: "bytes in a message of a reader",
    reason: "room for 10 000 subscriptions of 100 bytes; once decoded, a hostile one takes up to 80 times as much memory",
};

/// Limit for administrative requests that contain no whole configuration.
pub static PLAIN_MESSAGE_SIZE: Limit = Limit {
    name: "plain-message-size",
    figure: 4 << 20,
    unit: "bytes in a message that holds no configuration",
    reason: "what gRPC itself allows by default; a package comes in pieces of less",
};

pub static CLAIMED_LEAVES: Limit = Limit {
    name: "claimed-leaves",
    figure: 1_000_000,
    unit: "leaves of services",
    reason: "a thousand instances with a thousand leaves each",
};

pub static SERVICE_INSTANCES: Limit = Limit {
    name: "service-instances",
    figure: 10_000,
    unit: "service plans",
    reason: "ten times what the speed of services is measured with; an operator may walk all of them in one transaction",
};

pub static SERVICE_STATES: Limit = Limit {
    name: "service-states",
    figure: 100_000,
    unit: "states of services",
    reason: "ten for each instance; each has some ten leaves in the state of the box",
};

pub static FENCED_LEAVES: Limit = Limit {
    name: "fenced-leaves",
    figure: 20_000,
    unit: "items of fences",
    reason: "a drained link with more static routes is drained as far as this goes; each item is a route that is written anew",
};

pub static SERVICE_ACTIONS: Limit = Limit {
    name: "service-actions",
    figure: 10_000,
    unit: "actions in the queue",
    reason: "eight run at a time: with a second for each, these take twenty minutes",
};

pub static CLAIM_LEAVES: Limit = Limit {
    name: "claim-leaves",
    figure: 10_000,
    unit: "leaves of one claim",
    reason: "the work is done again in every walk of its instance, in the thread that examines",
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

pub static SET_OPERATIONS: Limit = Limit {
    name: "set-operations",
    figure: 1_000_000,
    unit: "operations in a Set",
    reason: "controllers send a box leaf by leaf; this many small updates take 2 s, and each is answered on its own",
};

pub static JOINED_PATHS: Limit = Limit {
    name: "joined-paths",
    figure: 256 << 20,
    unit: "bytes of copies of the prefix",
    reason: "each path is looked up with the prefix before it; 100 000 of them with the longest of the models are 50 MiB",
};

pub static WILDCARD_DELETES: Limit = Limit {
    name: "wildcard-deletes",
    figure: 256,
    unit: "deletes with a wildcard in a Set",
    reason: "each looks through all entries of a list, whatever the others have removed already",
};

pub static SUBSCRIPTIONS: Limit = Limit {
    name: "subscriptions",
    figure: 10_000,
    unit: "subscriptions in a list",
    reason: "a collector that watches every port of a large box by name has a few thousand",
};

pub static NAMED_NODES: Limit = Limit {
    name: "named-nodes",
    figure: 100_000,
    unit: "schema nodes named by the paths of a request",
    reason: "a path with wildcards names some hundred at most, and each is kept with its whole path",
};

pub static LEAF_LIST_ENTRIES: Limit = Limit {
    name: "leaf-list-entries",
    figure: 10_000,
    unit: "entries in a leaf-list",
    reason: "the longest leaf-lists in use have some hundred; each is one value, copied at each change",
};

pub static NEW_SECRETS: Limit = Limit {
    name: "new-secrets",
    figure: 100,
    unit: "passwords and keys of users in a Set",
    reason: "a password takes up to 0.2 s to compare and hash, and other changes wait for that",
};

pub static LIST_ENTRIES: Limit = Limit {
    name: "list-entries",
    figure: 2_500_000,
    unit: "list entries in a configuration",
    reason: "ten times the largest static configurations in use (100 000 routes have 200 000), for which a box needs 3 GB; an entry takes 1 to 2 KiB",
};

pub static ANSWER_SIZE: Limit = Limit {
    name: "answer-size",
    figure: 256 << 20,
    unit: "bytes of memory for an answer while it is made",
    reason: "a box with 100 000 routes is a document of about 15 MB; leaves one by one take ten times what is sent",
};

pub static ERROR_TEXT: Limit = Limit {
    name: "error-text",
    figure: ERROR_TEXT_OCTETS,
    unit: "bytes in an error text",
    reason: "an error travels in HTTP/2 trailers; clients accept 8 KiB of them by default",
};

pub static CALLER_ANSWERS: Limit = Limit {
    name: "caller-answers",
    figure: 128 << 20,
    unit: "bytes of answers that one caller has not taken",
    reason: "two answers of the greatest size, or one for each of a thousand streams with its buffers",
};

pub static UNTAKEN_ANSWERS: Limit = Limit {
    name: "untaken-answers",
    figure: 512 << 20,
    unit: "bytes of answers that nobody has taken",
    reason: "four callers at their limit; a quarter of what the unit lets the agent have",
};

pub static CALLER_SUBSCRIPTIONS: Limit = Limit {
    name: "caller-subscriptions",
    figure: 256,
    unit: "open Subscribe RPCs of one caller",
    reason: "a host with a hundred collectors of one user has room for each twice while they connect anew",
};

pub static OPEN_SUBSCRIPTIONS: Limit = Limit {
    name: "open-subscriptions",
    figure: 1200,
    unit: "open Subscribe RPCs",
    reason: "a thousand collectors, and as many connections as the listener has; each takes some 0.2 MB",
};

pub static CALLER_SYNCHRONISATIONS: Limit = Limit {
    name: "caller-synchronisations",
    figure: 16,
    unit: "Subscribe RPCs of one caller that send all values at the same time",
    reason: "others wait; one that is not read keeps its place for 60 s, and must not keep it from other callers",
};

pub static SYNCHRONISATIONS: Limit = Limit {
    name: "synchronisations",
    figure: 64,
    unit: "Subscribe RPCs that send all values at the same time",
    reason: "further ones wait for their turn. All of them are computed on one processor, so more at a time would not end sooner",
};

/// Every limit on what callers make the agent hold. A caller is a user and a source address.
pub static HELD_LIMITS: [&Limit; 6] = [
    &CALLER_ANSWERS,
    &UNTAKEN_ANSWERS,
    &CALLER_SUBSCRIPTIONS,
    &OPEN_SUBSCRIPTIONS,
    &CALLER_SYNCHRONISATIONS,
    &SYNCHRONISATIONS,
];

/// Every limit of a request.
pub static REQUEST_LIMITS: [&Limit; 17] = [
    &MESSAGE_SIZE,
    &READ_MESSAGE_SIZE,
    &PLAIN_MESSAGE_SIZE,
    &PATH_ELEMENTS,
    &PATH_DEPTH_WILDCARDS,
    &ELEMENT_KEYS,
    &REQUEST_PATHS,
    &SET_OPERATIONS,
    &JOINED_PATHS,
    &WILDCARD_DELETES,
    &SUBSCRIPTIONS,
    &NAMED_NODES,
    &LEAF_LIST_ENTRIES,
    &NEW_SECRETS,
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
        let all = || REQUEST_LIMITS.into_iter().chain(HELD_LIMITS);
        let names: BTreeSet<_> = all().map(|limit| limit.name).collect();
        assert_eq!(names.len(), REQUEST_LIMITS.len() + HELD_LIMITS.len());
        assert!(all().all(|limit| !limit.reason.is_empty() && !limit.unit.is_empty()));
    }
}
