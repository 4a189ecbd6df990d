//! Queue of events from the transports to the core.
//!
//! No event is lost, and no writer waits: when the reader is [`DEPTH`] events behind, completions are joined and
//! facts are merged by key, where the last one counts. So memory is bounded by the operations in flight and the
//! objects that exist.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_scheduler::{Fact, Key};
use tokio::sync::Notify;

use super::Event;

/// Events that are kept separate. Up to this number a reader sees every transition of an object.
const DEPTH: usize = 64;

/// Writing end; each transport has a clone.
#[derive(Debug)]
pub(crate) struct Mailbox(Arc<Shared>);

/// Reading end: reports of all transports, in order.
#[derive(Debug)]
pub struct Events(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    /// Number of events taken out so far.
    popped: usize,
    latest: LastFacts,
    writers: usize,
    /// A transport has panicked, so its operations will never be answered.
    is_broken: bool,
    reader_gone: bool,
}

/// The last event with facts.
#[derive(Debug, Default)]
struct LastFacts {
    /// Number of the event, counted from the first one ever.
    number: usize,
    /// Positions of its facts by key, once other facts were merged into it.
    places: Option<HashMap<Key, usize>>,
}

/// Makes a mailbox with its reader.
pub(crate) fn mailbox() -> (Mailbox, Events) {
    let shared = Arc::new(Shared::default());
    shared.lock().writers = 1;
    (Mailbox(Arc::clone(&shared)), Events(shared))
}

impl Mailbox {
    /// Posts an event. Empty ones are dropped, except for an empty retrieve, which says that nothing exists.
    pub(crate) fn post(&self, event: Event) {
        match &event {
            Event::Completed(list) if list.is_empty() => return,
            Event::Observed(list) if list.is_empty() => return,
            _ => {}
        }
        let mut queue = self.0.lock();
        if !queue.reader_gone {
            queue.push(event);
            drop(queue);
            self.0.filled.notify_one();
        }
    }
}

impl Clone for Mailbox {
    fn clone(&self) -> Self {
        self.0.lock().writers += 1;
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.writers -= 1;
        queue.is_broken |= std::thread::panicking();
        drop(queue);
        self.0.filled.notify_one();
    }
}

impl Events {
    /// Waits for the next event; `None` when all transports have ended, or one has panicked. Cancel-safe.
    pub async fn recv(&mut self) -> Option<Event> {
        loop {
            let filled = self.0.filled.notified();
            {
                let mut queue = self.0.lock();
                if let Some(event) = queue.pop() {
                    return Some(event);
                }
                if queue.writers == 0 || queue.is_broken {
                    return None;
                }
            }
            filled.await;
        }
    }

    /// The next event, if there is one.
    pub fn try_recv(&mut self) -> Option<Event> {
        self.0.lock().pop()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.reader_gone = true;
        queue.events.clear();
    }
}

impl Shared {
    /// Recovers from a poisoned lock: every change of the queue is complete before a panic could happen.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn push(&mut self, event: Event) {
        match event {
            event if self.events.len() < DEPTH => self.append(event),
            Event::Completed(more) => match self.events.back_mut() {
                Some(Event::Completed(last)) => last.extend(more),
                _ => self.append(Event::Completed(more)),
            },
            Event::Observed(facts) => self.push_facts(facts),
            event @ Event::Retrieved { .. } => self.append(event),
        }
    }

    /// Merges facts into the last ones. Facts may thus overtake completions of an earlier window, but never an
    /// earlier fact of the same key.
    fn push_facts(&mut self, facts: Vec<Fact>) {
        let length = self.events.len();
        let Some(at) = self.latest.number.checked_sub(self.popped) else {
            return self.append(Event::Observed(facts));
        };
        let completions_follow =
            at + 2 == length && matches!(self.events.back(), Some(Event::Completed(_)));
        let Some(Event::Observed(last)) = self.events.get_mut(at) else {
            return self.append(Event::Observed(facts));
        };
        let places = self.latest.places.get_or_insert_with(|| places_of(last));
        let is_placed = |fact: &Fact| places.contains_key(&fact.key);
        if at + 1 == length || completions_follow && !facts.iter().any(is_placed) {
            merge(last, places, facts);
        } else {
            self.append(Event::Observed(facts));
        }
    }

    fn append(&mut self, event: Event) {
        if matches!(event, Event::Observed(_)) {
            let number = self.popped + self.events.len();
            self.latest = LastFacts { number, places: None };
        }
        self.events.push_back(event);
    }

    fn pop(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.popped += 1;
        if self.events.is_empty() {
            self.latest.places = None;
        }
        Some(event)
    }
}

fn places_of(facts: &[Fact]) -> HashMap<Key, usize> {
    facts.iter().enumerate().map(|(place, fact)| (fact.key.clone(), place)).collect()
}

fn merge(facts: &mut Vec<Fact>, places: &mut HashMap<Key, usize>, more: Vec<Fact>) {
    for fact in more {
        match places.get(&fact.key) {
            Some(place) => facts[*place] = fact,
            None => {
                places.insert(fact.key.clone(), facts.len());
                facts.push(fact);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use holdfast_scheduler::{Completion, KindId, OpId, SharedValue};

    use super::*;

    fn fact(key: u32, value: u32) -> Event {
        let key = Key::of(KindId(1)).u32(key);
        let value: SharedValue = Arc::new(value);
        Event::Observed(vec![Fact { key, value: Some(value), time_ns: 0 }])
    }

    fn completion(op: u64) -> Event {
        Event::Completed(vec![Completion { op: OpId(op), result: Ok(()), observed: None }])
    }

    /// `key=value` for facts, `#op` for completions, a space between events.
    fn text(events: &mut Events) -> String {
        let of_facts = |facts: &[Fact]| {
            let fact = |fact: &Fact| {
                let value = fact.value.as_ref().and_then(|it| it.as_any().downcast_ref());
                format!("{}={}", &fact.key.to_string()[2..], value.unwrap_or(&0u32))
            };
            facts.iter().map(fact).collect::<Vec<_>>().join(",")
        };
        let list = |event| match event {
            Event::Observed(facts) => of_facts(&facts),
            Event::Retrieved { facts, .. } => of_facts(&facts),
            Event::Completed(list) => {
                list.iter().map(|completion| format!("#{}", completion.op.0)).collect::<String>()
            }
        };
        std::iter::from_fn(|| events.try_recv()).map(list).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_reader_that_keeps_up_sees_every_transition() {
        let (mailbox, mut events) = mailbox();
        [fact(1, 1), completion(1), fact(1, 2), fact(1, 3)]
            .into_iter()
            .for_each(|it| mailbox.post(it));
        assert_eq!(text(&mut events), "1=1 #1 1=2 1=3");
    }

    // proves kv.X10
    #[test]
    fn a_reader_that_falls_behind_misses_no_object_and_no_completion() {
        let (mailbox, mut events) = mailbox();
        for value in 0..u32::try_from(DEPTH).unwrap() {
            mailbox.post(fact(0, value));
        }
        for value in 0..1000 {
            mailbox.post(fact(value % 3, value));
        }
        mailbox.post(completion(1));
        mailbox.post(completion(2));
        mailbox.post(fact(7, 7));
        let all = text(&mut events);
        assert_eq!(all.split(' ').count(), DEPTH + 1);
        assert!(all.ends_with(" 0=999,1=997,2=998,7=7 #1#2"), "{all}");
    }

    #[test]
    fn windows_of_a_reader_that_is_behind_become_one() {
        let (mailbox, mut events) = mailbox();
        for op in 0..DEPTH as u64 {
            mailbox.post(completion(op));
        }
        assert_eq!(text(&mut events).split(' ').count(), DEPTH);
        for _ in 0..DEPTH {
            mailbox.post(completion(0));
        }
        for op in 1..4 {
            mailbox.post(fact(u32::try_from(op).unwrap(), 1));
            mailbox.post(completion(op));
        }
        mailbox.post(fact(2, 0)); // arrives after its completion: what operation 2 made is gone again
        mailbox.post(completion(4));
        assert!(text(&mut events).ends_with("#0 1=1,2=1,3=1 #1#2#3 2=0 #4"));
    }

    #[test]
    fn a_reader_is_woken_by_events_and_by_the_end() {
        let (mailbox, mut events) = mailbox();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let writer = std::thread::spawn(move || mailbox.post(completion(1)));
        runtime.block_on(async {
            assert!(events.recv().await.is_some());
            assert!(events.recv().await.is_none());
        });
        writer.join().unwrap();
    }

    #[tokio::test]
    async fn one_transport_that_panics_ends_the_events_of_all() {
        let (mailbox, mut events) = mailbox();
        let other = mailbox.clone();
        let writer = std::thread::spawn(move || {
            mailbox.post(completion(1));
            panic!("as a bug would");
        });
        assert!(writer.join().is_err());
        assert!(events.recv().await.is_some(), "what it told before counts");
        assert!(events.recv().await.is_none());
        drop(other);
    }
}
