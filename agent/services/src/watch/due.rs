//! Instances that may have to walk, and what each was woken by.
//!
//! ```text
//! plan, parameters, handler, time, refusal --> as a whole ---+--> trial: changes something --> a walk
//! read with another answer, object --> its conditions alone -'         ` changes nothing --> its conditions are kept
//! ```
//!
//! An instance whose conditions are not known, because its last walk changed something or failed, is due as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_config::ServiceTag;
use holdfast_config::services::{Conditions, Read, Touched, WalkOutcome};

use super::{Answer, Places, Watches};

/// Instances that may have to walk.
#[derive(Debug, Default)]
pub struct DueInstances {
    due: BTreeMap<ServiceTag, Cause>,
    /// Conditions as the last walk without effects has judged them, of instances that it did not change.
    settled: BTreeMap<ServiceTag, Arc<Conditions>>,
}

#[derive(Debug)]
enum Cause {
    Any,
    /// Places of its package whose reads have other answers, and whether the status of one of its objects differs.
    Conditions(Places, bool),
}

/// Instances that are tried at one time.
#[derive(Clone, Debug, Default)]
pub struct DueRound {
    /// Instances that are walked.
    pub whole: BTreeSet<ServiceTag>,
    /// Instances that are walked if one of their conditions has another result.
    pub touched: BTreeMap<ServiceTag, Touched>,
}

impl DueRound {
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.touched.is_empty()
    }

    pub fn tags(&self) -> impl Iterator<Item = &ServiceTag> {
        self.whole.iter().chain(self.touched.keys())
    }
}

impl DueInstances {
    /// Adds an instance that may differ in anything.
    pub fn insert(&mut self, tag: ServiceTag) {
        self.settled.remove(&tag);
        self.due.insert(tag, Cause::Any);
    }

    /// Adds instances by the places of their packages whose reads have other answers.
    pub fn insert_woken(&mut self, woken: BTreeMap<ServiceTag, Places>) {
        woken.into_iter().for_each(|(tag, places)| self.touch(tag, places, false));
    }

    /// Adds an instance with a changed status of an object.
    pub fn insert_moved(&mut self, tag: ServiceTag) {
        self.touch(tag, Places::new(), true);
    }

    fn touch(&mut self, tag: ServiceTag, places: Places, has_moved: bool) {
        if !self.settled.contains_key(&tag) {
            return self.insert(tag);
        }
        let cause = self.due.entry(tag).or_insert(Cause::Conditions(Places::new(), false));
        if let Cause::Conditions(known, moved) = cause {
            known.extend(places);
            *moved |= has_moved;
        }
    }

    /// Takes the instances that can be tried now. The knowledge of their conditions goes with them.
    pub fn take(&mut self, is_free: impl Fn(&ServiceTag) -> bool) -> DueRound {
        let mut round = DueRound::default();
        for (tag, cause) in self.due.extract_if(.., |tag, _| is_free(tag)) {
            match (cause, self.settled.remove(&tag)) {
                (Cause::Conditions(places, has_moved), Some(conditions)) => {
                    round.touched.insert(tag, Touched { conditions, places, has_moved });
                }
                _ => drop(round.whole.insert(tag)),
            }
        }
        round
    }

    /// Keeps the results of a round: the conditions of instances that do not change, and what all of them wait for.
    /// Returns the instances that were walked.
    pub fn note(
        &mut self,
        round: DueRound,
        outcome: &mut WalkOutcome,
        watches: &mut Watches,
        answer: impl Fn(&Read) -> Answer,
    ) -> BTreeSet<ServiceTag> {
        let mut walked = round.whole;
        for (tag, Touched { conditions, places, .. }) in round.touched {
            let Some(reads) = outcome.unchanged.remove(&tag) else {
                walked.insert(tag);
                continue;
            };
            watches.replace_at(&tag, &places, reads, &answer);
            self.settled.insert(tag, conditions);
        }
        for tag in &walked {
            watches.replace(tag, outcome.reads.remove(tag).unwrap_or_default(), &answer);
            let conditions = outcome.conditions.remove(tag).map(Arc::new);
            self.settled.extend(conditions.map(|it| (tag.clone(), it)));
        }
        walked
    }
}
