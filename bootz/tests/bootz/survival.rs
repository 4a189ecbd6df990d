//! Properties: no sequence of events brings the client to a halt, and a client cut off anywhere completes after a
//! restart.

use holdfast_bootz::client::{
    BootstrapRecord, Event, OperatorCommand, ServerDiscovery, Task, TaskOutcome,
};
use proptest::prelude::*;
use tonic::Code;

use crate::fixture::{ClientDriver, RequestLog, SimulatedServer, dhcp_record, refusal};

/// One random step of the server or the operator.
#[derive(Clone, Copy, Debug)]
enum RandomStep {
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

fn random_step() -> impl Strategy<Value = RandomStep> {
    prop_oneof![
        8 => Just(RandomStep::Answer),
        2 => Just(RandomStep::Fail),
        1 => Just(RandomStep::Confuse),
        1 => Just(RandomStep::Silence),
        1 => Just(RandomStep::Repeat),
        1 => Just(RandomStep::Terminate),
        1 => Just(RandomStep::Start),
    ]
}

fn failure(task: &Task) -> TaskOutcome {
    let why = || "it failed".to_owned();
    match task {
        Task::Lease => TaskOutcome::Leased(Err(why())),
        Task::Connect(_) => TaskOutcome::Connected(Err(why())),
        Task::GetData(_) => TaskOutcome::Data(Err(refusal(Code::Unavailable))),
        Task::OpenStream(_) => TaskOutcome::Message(Err(refusal(Code::Unimplemented))),
        Task::Send(_) => TaskOutcome::Message(Err(refusal(Code::InvalidArgument))),
        Task::Sign(_) => TaskOutcome::Signed(Err(why())),
        Task::Install(_) => TaskOutcome::Installed(Err(why())),
        Task::Apply(_) => TaskOutcome::Applied(Err(why())),
        Task::Report(_) => TaskOutcome::Reported(Err(refusal(Code::Internal))),
    }
}

/// Event for a turn. `None` when the client has no work that the turn could be about.
fn event(
    turn: RandomStep,
    machine: &mut ClientDriver,
    world: &mut SimulatedServer,
) -> Option<Event> {
    match turn {
        RandomStep::Terminate => return Some(Event::Command(OperatorCommand::Terminate)),
        RandomStep::Start => {
            return Some(Event::Command(OperatorCommand::Start(ServerDiscovery::Dhcp)));
        }
        RandomStep::Silence => return Some(Event::TimerDue(machine.pending_timer?)),
        RandomStep::Answer | RandomStep::Fail | RandomStep::Confuse | RandomStep::Repeat => {}
    }
    let Some((work, task)) = machine.pending_tasks.pop_front() else {
        return Some(Event::TimerDue(machine.pending_timer?));
    };
    Some(match turn {
        RandomStep::Fail => Event::Done(work, failure(&task)),
        RandomStep::Confuse => {
            Event::Done(work, TaskOutcome::Installed(Err("of what?".to_owned())))
        }
        RandomStep::Repeat => {
            machine.step(Event::Done(work, failure(&task)), &mut world.log);
            Event::Done(work, world.answer(task))
        }
        _ => Event::Done(work, world.answer(task)),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// `ClientDriver::step` checks after every step that there is a deadline, or nothing to do.
    // proves 4.8, 4.68
    #[test]
    fn random_events_never_stall_the_client(turns in proptest::collection::vec(random_step(), 0..80)) {
        let mut world = SimulatedServer::new();
        let mut machine = ClientDriver::new(world.profile(), dhcp_record());
        machine.step(Event::Started { factory_new: false }, &mut world.log);
        for turn in turns {
            if let Some(event) = event(turn, &mut machine, &mut world) {
                machine.step(event, &mut world.log);
            }
        }
        // From any state, a correct server leads to the end.
        if machine.client.record().parameters.is_none() {
            machine.step(Event::Command(OperatorCommand::Start(ServerDiscovery::Dhcp)), &mut world.log);
        }
        machine.pending_tasks.clear();
        machine.run(&mut world, 3);
        prop_assert_eq!(machine.client.record().telemetry.status.name(), "BOOTZ_OK");
        prop_assert!(machine.client.record().parameters.is_none());
    }
}

// proves 4.22, 4.69
#[test]
fn client_resumes_from_every_saved_record() {
    let mut whole = SimulatedServer::new();
    let mut machine = ClientDriver::new(whole.profile(), dhcp_record());
    machine.run(&mut whole, 0);
    for cut in 0..=whole.log.saved.len() {
        let record = match cut {
            0 => dhcp_record(),
            _ => whole.log.saved[cut - 1].clone(),
        };
        let json = serde_json::to_string(&record).unwrap();
        let record: BootstrapRecord = serde_json::from_str(&json).unwrap();
        let was_applied = record.telemetry.status.name() == "BOOTZ_CONFIGURATION_APPLIED";
        let was_done = record.parameters.is_none();
        whole.log = RequestLog::default();
        let mut again = ClientDriver::new(whole.profile(), record.clone());
        again.run(&mut whole, 0);
        let ended = again.client.record();
        assert_eq!(ended.telemetry.status.name(), "BOOTZ_OK", "{cut}");
        assert_eq!(ended.telemetry.checksum.len(), 128, "{cut}");
        assert_eq!(whole.log.applied, usize::from(!was_applied && !was_done), "{cut}");
        assert_eq!(whole.log.reports.len(), usize::from(!was_done), "{cut}");
        if was_done {
            assert_eq!(ended, &record);
        }
        whole.log.saved = undisturbed_records(&mut whole);
    }
}

/// Records of an undisturbed bootstrap.
fn undisturbed_records(world: &mut SimulatedServer) -> Vec<BootstrapRecord> {
    let mut machine = ClientDriver::new(world.profile(), dhcp_record());
    world.log = RequestLog::default();
    machine.run(world, 0);
    std::mem::take(&mut world.log.saved)
}
