//! Rotations of a service that keeps words by their place: `a=1` at version 1 of place `a`.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

type Versions = BTreeMap<char, u8>;

#[derive(Debug)]
struct LetterRules;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a letter")]
struct NotALetter(char);

impl RotationRules for LetterRules {
    type State = Versions;
    type Upload = (char, u8);
    type Reply = char;
    type Refusal = NotALetter;

    fn version_in_use(&self, state: &Versions, (place, version): &(char, u8)) -> Option<String> {
        state.get(place).filter(|it| *it == version).map(u8::to_string)
    }

    fn apply(
        &self,
        state: &Versions,
        (place, version): (char, u8),
    ) -> Result<(Versions, char), NotALetter> {
        if !place.is_alphabetic() {
            return Err(NotALetter(place));
        }
        let mut words = state.clone();
        words.insert(place, version);
        Ok((words, place))
    }
}

/// State that a driver holds: in force, and on disk.
#[derive(Debug, Default)]
struct RotationDriver {
    in_force: Versions,
    written: Versions,
    log: Vec<String>,
}

impl RotationDriver {
    /// Carries out the words of a client: `a1` uploads, `a1!` overwrites, `F` finalizes, `D` finds the disk full.
    fn run(&mut self, client: &str) {
        let mut rotation = Rotation::<LetterRules>::open(self.written.clone());
        for word in client.split_whitespace() {
            match self.step(rotation, word) {
                Some(next) => rotation = next,
                None => return,
            }
        }
        let roll_back = rotation.end();
        self.roll_back(roll_back);
    }

    fn step(
        &mut self,
        rotation: Rotation<LetterRules>,
        word: &str,
    ) -> Option<Rotation<LetterRules>> {
        if word == "F" || word == "D" {
            return match rotation.finalize() {
                Ok(finalizing) => self.finalize(finalizing, word == "D"),
                Err(broken) => self.broken(broken),
            };
        }
        let mut letters = word.chars();
        let place = letters.next().unwrap();
        let version = letters.next().unwrap();
        let version = u8::try_from(version.to_digit(10).unwrap()).unwrap();
        match rotation.upload(&LetterRules, (place, version), word.ends_with('!')) {
            Ok(trial) => {
                assert_eq!(trial.before, self.in_force);
                self.in_force = trial.now;
                self.log.push(trial.reply.to_string());
                Some(trial.rotation)
            }
            Err(broken) => self.broken(broken),
        }
    }

    fn finalize(
        &mut self,
        finalizing: FinalizeStep<LetterRules>,
        disk_is_full: bool,
    ) -> Option<Rotation<LetterRules>> {
        assert_eq!((finalizing.before(), finalizing.now()), (&self.written, &self.in_force));
        if disk_is_full {
            self.roll_back(Some(finalizing.failed()));
            return None;
        }
        self.written = finalizing.now().clone();
        Some(finalizing.written())
    }

    fn broken(&mut self, broken: RotationFailure<LetterRules>) -> Option<Rotation<LetterRules>> {
        self.log.push(broken.reason.to_string());
        self.roll_back(broken.roll_back);
        None
    }

    fn roll_back(&mut self, roll_back: Option<RollBack<Versions>>) {
        if let Some(RollBack { from, to }) = roll_back {
            assert_eq!(from, self.in_force);
            self.in_force = to;
            self.log.push("back".to_owned());
        }
    }
}

fn version_text(words: &Versions) -> String {
    words.iter().map(|(place, version)| format!("{place}{version}")).collect::<Vec<_>>().join(" ")
}

// proves 5.1, 5.2, 5.3, 5.8, 5.40
#[test]
fn a_tried_state_is_kept_only_when_finalized() {
    let in_use = "version `1` is in use already: upload another one, or set force_overwrite";
    let nothing = "there is nothing to finalize: upload first";
    // written before, what the client says, what it is told and what happens, written and in force at the end
    for (before, client, story, after) in [
        ("", "", "", ""),
        ("", "a1", "a, back", ""),
        ("", "a1 F", "a", "a1"),
        ("a1", "a2 a3", "a, a, back", "a1"),
        ("a1", "a2 b1 F", "a, b", "a2 b1"),
        ("a1", "b1 b2 F", "b, b", "a1 b2"),
        ("a1", "a1", in_use, "a1"),
        ("a1", "a1! F", "a", "a1"),
        ("", "a1 a1", &format!("a, {in_use}, back"), ""),
        ("a1", "a2 a1", &format!("a, {in_use}, back"), "a1"),
        ("a1", "a2 a1! F", "a, a", "a1"),
        ("a1", "a2 a2! a3", "a, a, a, back", "a1"),
        ("a1", "a2 -1", "a, `-` is not a letter, back", "a1"),
        ("a1", "-1", "`-` is not a letter", "a1"),
        ("a1", "F", nothing, "a1"),
        ("a1", "a2 D", "a, back", "a1"),
        // A stream that goes on: a checkpoint is what the next end comes back to.
        ("a1", "a2 F a3", "a, a, back", "a2"),
        (
            "a1",
            "a2 F a2",
            "a, version `2` is in use already: upload another one, or set force_overwrite",
            "a2",
        ),
        ("a1", "a2 F F", &format!("a, {nothing}"), "a2"),
        ("a1", "a2 F b1 F", "a, b", "a2 b1"),
    ] {
        let mut bench = RotationDriver::default();
        bench.run(&before.split_whitespace().map(|it| format!("{it} ")).collect::<String>());
        assert!(bench.written.is_empty(), "{before}");
        if !before.is_empty() {
            bench.run(&format!("{before} F"));
        }
        bench.log.clear();
        bench.run(client);
        assert_eq!(bench.log.join(", "), story, "{before} | {client}");
        assert_eq!(version_text(&bench.written), after, "{before} | {client}");
        assert_eq!(bench.in_force, bench.written, "{before} | {client}");
    }
}

proptest! {
    /// For any sequence of client messages, the last finalized state is in force at the end, and nothing else is
    /// on disk.
    #[test]
    fn a_rotation_ends_in_the_last_finalized_state(
        clients in vec(vec("[ab-][123]!?|F|D", 0..6), 1..5),
    ) {
        let mut bench = RotationDriver::default();
        for client in clients {
            let mut model = bench.written.clone();
            let mut tried = None::<Versions>;
            for word in &client {
                let mut letters = word.chars();
                let first = letters.next().unwrap();
                match (first, tried.take()) {
                    ('F', Some(now)) => model = now,
                    ('F' | 'D' | '-', _) => break,
                    (place, now) => {
                        let version = u8::try_from(letters.next().unwrap().to_digit(10).unwrap()).unwrap();
                        let mut next = now.unwrap_or_else(|| model.clone());
                        let clash = [&model, &next].iter().any(|it| it.get(&place) == Some(&version));
                        if clash && !word.ends_with('!') {
                            break;
                        }
                        next.insert(place, version);
                        tried = Some(next);
                    }
                }
            }
            bench.run(&client.join(" "));
            prop_assert_eq!(&bench.written, &model);
            prop_assert_eq!(&bench.in_force, &model);
        }
    }
}

// proves 5.9
#[test]
fn creation_times_are_converted_to_nanoseconds() {
    for (seconds, want) in [
        (0, Some(0)),
        (1_700_000_000, Some(1_700_000_000_000_000_000)),
        (18_446_744_073, Some(18_446_744_073_000_000_000)),
        (18_446_744_074, None), // more than the leaf can count
        (u64::MAX, None),
    ] {
        assert_eq!(created_on_ns(seconds), want, "{seconds}");
    }
}
