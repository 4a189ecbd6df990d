//! Chains of waits: from a value that waits, along what it waits for, to what is missing in the end; and the way back, to all
//! that would come with a value.
//!
//! A need may have no value under its own name: a gateway needs any prefix that holds it. Its way is then an intended value that
//! would provide it, such as the address of a port that is not plugged in.

use std::collections::{BTreeMap, VecDeque};

use holdfast_core::CoreView;
use holdfast_scheduler::{DependencyStatus, Key, Target, ValueState};

/// Values visited while following waits.
const SEARCHED: usize = 1000;
/// Most ways that are followed from one need.
const WAYS: usize = 16;

/// One value of a chain, and what it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitLink {
    pub key: Key,
    pub label: String,
    pub state: ValueState,
    /// `None` for a value that waits for nothing more.
    pub waits_for: Option<String>,
}

impl WaitLink {
    /// Text for people; `None` for a value that waits for nothing more.
    pub fn text(&self) -> Option<String> {
        let wait = self.waits_for.as_ref()?;
        Some(format!("{} waits for {wait}", self.label))
    }
}

/// The shortest chain from a waiting value to one without a further explanation.
pub fn chain(view: &CoreView<'_>, start: &Key) -> Vec<WaitLink> {
    let engine = view.engine;
    let mut came_from: BTreeMap<Key, (Key, String)> = BTreeMap::new();
    let mut queue = VecDeque::from([start.clone()]);
    while let Some(key) = queue.pop_front() {
        let unmet: Vec<_> = engine.needs(&key).into_iter().filter(|need| !need.met).collect();
        let mut is_followed = false;
        for (next, label) in ways(view, &key, &unmet) {
            if next != *start && !came_from.contains_key(&next) {
                came_from.insert(next.clone(), (key.clone(), label));
                queue.push_back(next);
            }
            is_followed = true;
        }
        if !is_followed || came_from.len() > SEARCHED {
            return links(view, start, key, unmet.first(), &came_from);
        }
    }
    Vec::new()
}

/// Values by which the needs of a value would be met, each with the need.
fn ways(view: &CoreView<'_>, key: &Key, unmet: &[DependencyStatus]) -> Vec<(Key, String)> {
    let engine = view.engine;
    let mut found = Vec::new();
    let mut open: Vec<&DependencyStatus> = Vec::new();
    for need in unmet {
        match &need.target {
            Target::Exact(next) if engine.state(next) != ValueState::Nonexistent => {
                found.push((next.clone(), need.label.clone()));
            }
            // A part comes with the value that it is a part of.
            Target::Whole(part) => {
                let bases = engine.status(part).map(|it| it.part_of).unwrap_or_default();
                found.extend(bases.into_iter().map(|base| (base, need.label.clone())));
            }
            _ => open.push(need),
        }
    }
    let targets: Vec<Target> = open.iter().map(|need| need.target.clone()).collect();
    if !targets.is_empty() {
        for (need, keys) in open.iter().zip(engine.would_provide(&targets, WAYS)) {
            found.extend(keys.into_iter().map(|it| (it, need.label.clone())));
        }
    }
    found.retain(|(next, _)| next != key);
    found
}

/// The links from the start to a root, which may have a need without any way.
fn links(
    view: &CoreView<'_>,
    start: &Key,
    root: Key,
    need: Option<&DependencyStatus>,
    came_from: &BTreeMap<Key, (Key, String)>,
) -> Vec<WaitLink> {
    let mut links = Vec::new();
    let mut waits_for = need.map(|need| match &need.target {
        Target::Covering { .. } => format!("{}, and no configured prefix holds it", need.label),
        _ => need.label.clone(),
    });
    let mut key = root;
    loop {
        let label = view.engine.label(&key);
        let state = view.engine.state(&key);
        links.push(WaitLink { key: key.clone(), label, state, waits_for });
        match came_from.get(&key).filter(|_| key != *start) {
            Some((before, label)) => {
                waits_for = Some(label.clone());
                key = before.clone();
            }
            None => break,
        }
    }
    links.reverse();
    links
}

/// Values that need another one by way of a third, each with the one between; at most `most`. Values that need it
/// directly are not among them.
pub fn needed_in_turn(view: &CoreView<'_>, start: &Key, most: usize) -> Vec<(Key, Key)> {
    let engine = view.engine;
    let direct = engine.dependents(start, most);
    let parts = |key: &Key| engine.status(key).map(|it| it.parts).unwrap_or_default();
    let own = parts(start);
    let mut seen: Vec<Key> = [start.clone()].into_iter().chain(direct.clone()).collect();
    seen.extend(own.iter().cloned());
    seen.sort_unstable();
    let mut queue: VecDeque<Key> = own.into_iter().chain(direct).collect();
    let mut found = Vec::new();
    let mut searched = 0;
    while let Some(key) = queue.pop_front() {
        searched += 1;
        if searched > SEARCHED {
            break;
        }
        for next in engine.dependents(&key, most).into_iter().chain(parts(&key)) {
            let Err(place) = seen.binary_search(&next) else { continue };
            seen.insert(place, next.clone());
            queue.push_back(next.clone());
            // Properties and parts are on the way; nobody asked for them as objects.
            let is_part = engine.status(&next).is_none_or(|it| !it.part_of.is_empty());
            if !is_part && found.len() < most {
                found.push((next, key.clone()));
            }
        }
    }
    found
}
