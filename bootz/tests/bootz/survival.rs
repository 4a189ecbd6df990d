//! Properties: no sequence of events brings the client to a halt, and a client cut off anywhere completes after a
//! restart.

use holdfast_bootz::client::{Command, Entry, Event, Outcome, Record, Task};
use proptest::prelude::*;
use tonic::Code;

use crate::scene::{Machine, Seen, World, dhcp, refusal};

/// One turn of a hostile world.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// The right answer.
    Answer,
    /// The task fails.
    Fail,
    /// An outcome of another task.
    Confuse,
    /// No answer comes before the deadline.
    Silence,
    /// An earlier answer comes again.
    Repeat,
    Terminate,
    Start,
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        8 => Just(Turn::Answer),
        2 => Just(Turn::Fail),
        1 => Just(Turn::Confuse),
        1 => Just(Turn::Silence),
        1 => Just(Turn::Repeat),
        1 => Just(Turn::Terminate),
        1 => Just(Turn::Start),
    ]
}

fn failure(task: &Task) -> Outcome {
    let why = || "it failed".to_owned();
    match task {
        Task::Lease => Outcome::Leased(Err(why())),
        Task::Connect(_) => Outcome::Connected(Err(why())),
        Task::GetData(_) => Outcome::Data(Err(refusal(Code::Unavailable))),
        Task::OpenStream(_) => Outcome::Message(Err(refusal(Code::Unimplemented))),
        Task::Send(_) => Outcome::Message(Err(refusal(Code::InvalidArgument))),
        Task::Sign(_) => Outcome::Signed(Err(why())),
        Task::Install(_) => Outcome::Installed(Err(why())),
        Task::Apply(_) => Outcome::Applied(Err(why())),
        Task::Report(_) => Outcome::Reported(Err(refusal(Code::Internal))),
    }
}

/// Event for a turn. `None` when the client has no work that the turn could be about.
fn event(turn: Turn, machine: &mut Machine, world: &mut World) -> Option<Event> {
    match turn {
        Turn::Terminate => return Some(Event::Command(Command::Terminate)),
        Turn::Start => return Some(Event::Command(Command::Start(Entry::Dhcp))),
        Turn::Silence => return Some(Event::TimerDue(machine.waiting?)),
        Turn::Answer | Turn::Fail | Turn::Confuse | Turn::Repeat => {}
    }
    let Some((work, task)) = machine.begun.pop_front() else {
        return Some(Event::TimerDue(machine.waiting?));
    };
    Some(match turn {
        Turn::Fail => Event::Done(work, failure(&task)),
        Turn::Confuse => Event::Done(work, Outcome::Installed(Err("of what?".to_owned()))),
        Turn::Repeat => {
            machine.step(Event::Done(work, failure(&task)), &mut world.seen);
            Event::Done(work, world.answer(task))
        }
        _ => Event::Done(work, world.answer(task)),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// `Machine::step` checks after every step that there is a deadline, or nothing to do.
    // proves 4.8, 4.68
    #[test]
    fn the_client_never_comes_to_a_halt(turns in proptest::collection::vec(turn(), 0..80)) {
        let mut world = World::new();
        let mut machine = Machine::new(world.profile(), dhcp());
        machine.step(Event::Started { factory_new: false }, &mut world.seen);
        for turn in turns {
            if let Some(event) = event(turn, &mut machine, &mut world) {
                machine.step(event, &mut world.seen);
            }
        }
        // From any state, a cooperative world leads to the end.
        if machine.client.record().parameters.is_none() {
            machine.step(Event::Command(Command::Start(Entry::Dhcp)), &mut world.seen);
        }
        machine.begun.clear();
        machine.run(&mut world, 3);
        prop_assert_eq!(machine.client.record().telemetry.status.name(), "BOOTZ_OK");
        prop_assert!(machine.client.record().parameters.is_none());
    }
}

// proves 4.22, 4.69
#[test]
fn a_client_that_is_cut_off_at_any_step_ends_well_after_a_restart() {
    let mut whole = World::new();
    let mut machine = Machine::new(whole.profile(), dhcp());
    machine.run(&mut whole, 0);
    for cut in 0..=whole.seen.saved.len() {
        let record = match cut {
            0 => dhcp(),
            _ => whole.seen.saved[cut - 1].clone(),
        };
        let kept = serde_json::to_string(&record).unwrap();
        let record: Record = serde_json::from_str(&kept).unwrap();
        let was_applied = record.telemetry.status.name() == "BOOTZ_CONFIGURATION_APPLIED";
        let was_done = record.parameters.is_none();
        whole.seen = Seen::default();
        let mut again = Machine::new(whole.profile(), record.clone());
        again.run(&mut whole, 0);
        let ended = again.client.record();
        assert_eq!(ended.telemetry.status.name(), "BOOTZ_OK", "{cut}");
        assert_eq!(ended.telemetry.checksum.len(), 128, "{cut}");
        assert_eq!(whole.seen.applied, usize::from(!was_applied && !was_done), "{cut}");
        assert_eq!(whole.seen.reports.len(), usize::from(!was_done), "{cut}");
        if was_done {
            assert_eq!(ended, &record);
        }
        whole.seen.saved = rerun(&mut whole);
    }
}

/// Records of an undisturbed bootstrap.
fn rerun(world: &mut World) -> Vec<Record> {
    let mut machine = Machine::new(world.profile(), dhcp());
    world.seen = Seen::default();
    machine.run(world, 0);
    std::mem::take(&mut world.seen.saved)
}
