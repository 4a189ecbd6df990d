//! Whole bootstraps: what the client asks for, believes, reports and shows.

use holdfast_bootz::client::{
    BootstrapRecord, BootstrapSettings, BootstrapStage, Event, Flows, InstallResult,
    OperatorCommand, ServerDiscovery, State, Task, TaskOutcome,
};
use holdfast_bootz::uri::ServerUri;
use holdfast_proto::bootz::{CertzProfile, CertzProfiles, SoftwareImage};
use tonic::Code;

use crate::fixture::{ClientDriver, SERIAL, SimulatedServer, dhcp_record, refusal, started_record};

/// First status value: nothing was tried yet.
const NONE: &str = "BOOTZ_UNSPECIFIED";
const ALL_WELL: [&str; 5] =
    [NONE, "BOOTZ_SENT", "BOOTZ_RECEIVED", "BOOTZ_CONFIGURATION_APPLIED", "BOOTZ_OK"];

fn run(
    change: impl Fn(&mut SimulatedServer, &mut BootstrapSettings),
    waits: usize,
) -> (ClientDriver, SimulatedServer) {
    let mut world = SimulatedServer::new();
    let mut profile = world.profile();
    change(&mut world, &mut profile);
    let mut machine = ClientDriver::new(profile, dhcp_record());
    machine.run(&mut world, waits);
    (machine, world)
}

// proves 4.16, 4.17, 4.33, 4.34, 4.35, 4.36, 4.45, 4.61, 4.63, 4.64
#[test]
fn a_stream_ends_in_a_configured_box() {
    let (machine, world) = run(|_, _| {}, 0);
    let log = &world.log;
    assert_eq!(log.statuses, ALL_WELL);
    assert_eq!(
        log.tasks,
        ["lease", "connect", "open", "sign", "send", "apply", "connect", "open", "sign", "send"]
    );
    assert!(log.connects.iter().all(|connect| !connect.presents_idevid));
    assert_eq!(log.connects[0].trust_anchor, None);
    assert!(log.connects[1].trust_anchor.is_some());
    let request = &log.requests[0];
    let chassis = request.chassis_descriptor.as_ref().unwrap();
    let card = request.control_card_state.as_ref().unwrap();
    assert_eq!((chassis.serial_number.as_str(), chassis.control_cards.len()), (SERIAL, 0));
    assert_eq!((card.serial_number.as_str(), card.status), (SERIAL, 1));
    assert!(request.identity.is_some());
    let report = &log.reports[0];
    assert_eq!((report.status, report.status_message.as_str()), (1, "applied"));
    assert_eq!((report.states[0].serial_number.as_str(), report.states[0].status), (SERIAL, 2));
    assert!(report.identity.is_some());
    assert_eq!(machine.client.record().parameters, None);
}

// proves 4.14, 4.61, 4.64
#[test]
fn unary_flow_presents_the_idevid_in_every_handshake() {
    let (_, world) = run(|_, profile| profile.flows = Flows::Unary, 0);
    assert_eq!(world.log.statuses, ALL_WELL);
    assert_eq!(world.log.tasks, ["lease", "connect", "get", "apply", "connect", "report"]);
    assert!(world.log.connects.iter().all(|connect| connect.presents_idevid));
    assert!(world.log.connects[1].trust_anchor.is_some());
}

// proves 4.19, 4.31
#[test]
fn a_nonce_is_sent_and_fresh_unless_the_box_is_set_up_for_a_laboratory() {
    let fail_once = |world: &mut SimulatedServer, profile: &mut BootstrapSettings| {
        profile.flows = Flows::Unary;
        world.outcome_override = |task| match task {
            Task::Apply(_) => Some(TaskOutcome::Applied(Err("no".to_owned()))),
            _ => None,
        };
    };
    let (_, world) = run(fail_once, 1);
    let [first, second] = &world.log.requests[..] else { panic!("two attempts") };
    assert!(first.nonce.len() >= 32 && first.nonce != second.nonce);

    let laboratory = |_: &mut SimulatedServer, profile: &mut BootstrapSettings| {
        (profile.flows, profile.checks_ownership) = (Flows::Unary, false);
    };
    let (_, world) = run(laboratory, 0);
    assert_eq!((world.log.requests[0].nonce.as_str(), world.log.applied), ("", 1));
    assert!(world.log.messages.iter().any(|line| line.contains("laboratory")));
}

// proves 4.43
#[test]
fn every_stream_has_a_key_of_its_own() {
    let (_, world) = run(
        |world, _| {
            world.outcome_override = |task| match task {
                Task::Apply(_) => Some(TaskOutcome::Applied(Err("no".to_owned()))),
                _ => None,
            }
        },
        2,
    );
    let keys: std::collections::BTreeSet<_> =
        world.log.keys.iter().map(|key| key.public_key.clone()).collect();
    assert_eq!((keys.len(), world.log.keys.len()), (6, 6)); // data and report of three attempts
}

// proves 4.20, 4.21, 4.23, 4.28, 4.30, 4.31, 4.42, 4.44, 4.62
#[test]
fn data_without_valid_ownership_is_never_applied() {
    type Change = fn(&mut SimulatedServer, &mut BootstrapSettings);
    let invalid = "BOOTZ_OV_INVALID";
    let rows: [(&str, Change, &str, &str, usize); 9] = [
        (
            "no voucher on a stream",
            |world, _| world.tamper_stream = |answer| answer.ownership_voucher.clear(),
            invalid,
            "no ownership voucher",
            0,
        ),
        (
            "no voucher without a stream",
            |world, profile| {
                profile.flows = Flows::Unary;
                world.tamper_unary = |answer| answer.ownership_voucher.clear();
            },
            invalid,
            "no ownership voucher",
            0,
        ),
        (
            "changed data",
            |world, profile| {
                profile.flows = Flows::Unary;
                world.tamper_unary = |answer| {
                    let mut data = answer.serialized_bootstrap_data.to_vec();
                    data.push(0);
                    answer.serialized_bootstrap_data = data.into();
                };
            },
            invalid,
            "signature of the bootstrap data",
            0,
        ),
        (
            "changed ciphertext: the signature is looked at before anything is opened",
            |world, _| {
                world.tamper_stream =
                    |answer| answer.encrypted_serialized_bootstrap_data = b"x".to_vec().into();
            },
            invalid,
            "signature of the bootstrap data",
            0,
        ),
        (
            "another encapsulated key",
            |world, _| world.tamper_stream = |answer| answer.encapsulated_key = vec![9; 32].into(),
            invalid,
            "not encrypted for this stream",
            0,
        ),
        (
            "a replay",
            |world, _| world.tamper_data = |data| data.nonce = "of yesterday".to_owned(),
            invalid,
            "does not carry the nonce",
            0,
        ),
        (
            "for another box",
            |world, _| world.tamper_data = |data| data.responses[0].serial_num = "HF-2".to_owned(),
            "BOOTZ_CONFIGURATION_INVALID",
            "no response for serial number",
            0,
        ),
        (
            "a refused challenge",
            |world, _| {
                world.outcome_override = |task| match task {
                    Task::Send(_) => {
                        Some(TaskOutcome::Message(Err(refusal(Code::InvalidArgument))))
                    }
                    _ => None,
                }
            },
            NONE,
            "InvalidArgument",
            0,
        ),
        (
            "refused by the box itself",
            |world, _| {
                world.outcome_override = |task| match task {
                    Task::Apply(_) => {
                        Some(TaskOutcome::Applied(Err("path /x is unknown".to_owned())))
                    }
                    _ => None,
                }
            },
            "BOOTZ_CONFIGURATION_INVALID",
            "path /x is unknown",
            2,
        ),
    ];
    for (name, change, status, why, reports) in rows {
        let (machine, world) = run(change, 1); // and the next attempt, from the first step
        let telemetry = &machine.client.record().telemetry;
        assert_eq!((telemetry.status.name(), telemetry.error_count), (status, 2), "{name}");
        assert!(
            world.log.messages.iter().any(|line| line.contains(why)),
            "{name}: {:?}",
            world.log.messages
        );
        assert_eq!(world.log.tasks.iter().filter(|task| **task == "lease").count(), 2, "{name}");
        assert_eq!(world.log.applied, reports, "{name}");
        let log_reports = &world.log.reports;
        assert_eq!(log_reports.len(), reports, "{name}");
        assert!(
            log_reports.iter().all(|it| it.status == 2 && it.status_message.contains(why)),
            "{name}"
        );
    }
}

// proves 4.66, 4.67, 4.68
#[test]
fn unreachable_server_is_retried_with_backoff() {
    let (machine, world) = run(
        |world, _| {
            world.outcome_override = |task| match task {
                Task::Connect(_) => {
                    Some(TaskOutcome::Connected(Err("connection refused".to_owned())))
                }
                _ => None,
            }
        },
        30,
    );
    let telemetry = &machine.client.record().telemetry;
    assert_eq!(world.log.statuses, [NONE]);
    assert_eq!(telemetry.error_count, 31);
    assert_eq!(telemetry.last_attempt, Some(1_767_225_600_000_000_000));
    assert_eq!(world.log.waits.len(), 31);
    assert!(world.log.waits.iter().all(|wait| (10..=450).contains(&wait.as_secs())));
    assert!(matches!(machine.client.state(), State::Waiting));
}

// proves 4.5
#[test]
fn all_servers_of_a_list_are_tried() {
    let unreachable_first = |world: &mut SimulatedServer, _: &mut BootstrapSettings| {
        world.offered = vec!["bootz://a:1", "bootz://b:2"];
        world.outcome_override = |task| match task {
            Task::Connect(connect) if connect.server.port == 1 => {
                Some(TaskOutcome::Connected(Err("refused".to_owned())))
            }
            _ => None,
        };
    };
    let (_, world) = run(unreachable_first, 0);
    assert_eq!(world.log.statuses, ALL_WELL);
    let ports: Vec<u16> = world.log.connects.iter().map(|it| it.server.port).collect();
    assert_eq!(ports, [1, 2, 2]);

    // A server whose data is refused goes to the end of the list, and the box starts over.
    let refused = |world: &mut SimulatedServer, _: &mut BootstrapSettings| {
        world.offered = vec!["bootz://a:1", "bootz://b:2"];
        world.tamper_data = |data| data.nonce.clear();
    };
    let (_, world) = run(refused, 2);
    let ports: Vec<u16> = world.log.connects.iter().map(|it| it.server.port).collect();
    assert_eq!(ports, [1, 2, 1]);
}

// proves 4.47
#[test]
fn unimplemented_stream_falls_back_to_the_unary_rpc() {
    // code of the stream, whether the unary rpc is tried, tasks until the first wait
    let rows: [(Flows, Code, &[&str]); 4] = [
        (
            Flows::Either,
            Code::Unimplemented,
            &["lease", "connect", "open", "connect", "get", "apply", "connect", "report"],
        ),
        (Flows::Stream, Code::Unimplemented, &["lease", "connect", "open"]),
        (Flows::Either, Code::NotFound, &["lease", "connect", "open"]),
        (Flows::Either, Code::FailedPrecondition, &["lease", "connect", "open"]),
    ];
    for (flows, code, tasks) in rows {
        let mut world = SimulatedServer::new();
        world.outcome_override = match code {
            Code::Unimplemented => |task| refuse_stream(task, Code::Unimplemented),
            Code::NotFound => |task| refuse_stream(task, Code::NotFound),
            _ => |task| refuse_stream(task, Code::FailedPrecondition),
        };
        let mut machine =
            ClientDriver::new(BootstrapSettings { flows, ..world.profile() }, dhcp_record());
        machine.run(&mut world, 0);
        assert_eq!(world.log.tasks, tasks, "{flows:?} {code:?}");
        let unary: Vec<bool> = world.log.connects.iter().map(|it| it.presents_idevid).collect();
        assert_eq!(unary, (0..unary.len()).map(|at| at > 0).collect::<Vec<_>>());
    }
}

fn refuse_stream(task: &Task, code: Code) -> Option<TaskOutcome> {
    matches!(task, Task::OpenStream(_)).then(|| TaskOutcome::Message(Err(refusal(code))))
}

fn with_image(data: &mut holdfast_proto::bootz::BootstrapDataSigned) {
    data.responses[0].intended_image = Some(SoftwareImage {
        name: "os".to_owned(),
        version: "2".to_owned(),
        url: "http://h/i".to_owned(),
        os_image_hash: "ab".repeat(32),
        hash_algorithm: "ietf-sztp-conveyed-info:sha-256".to_owned(),
    });
}

// proves 4.49, 4.51, 4.64
#[test]
fn an_image_comes_before_the_configuration() {
    let installed =
        |world: &mut SimulatedServer, _: &mut BootstrapSettings| world.tamper_data = with_image;
    let (_, world) = run(installed, 0);
    assert_eq!((world.log.installs, world.log.applied), (1, 1));
    assert_eq!(
        world.log.statuses,
        [
            NONE,
            "BOOTZ_SENT",
            "BOOTZ_RECEIVED",
            "BOOTZ_OS_UPGRADE_IN_PROGRESS",
            "BOOTZ_OS_UPGRADE_COMPLETE",
            "BOOTZ_CONFIGURATION_APPLIED",
            "BOOTZ_OK"
        ]
    );

    let without_slot = |world: &mut SimulatedServer, profile: &mut BootstrapSettings| {
        world.tamper_data = with_image;
        profile.software.can_install = false;
    };
    let (machine, world) = run(without_slot, 0);
    assert_eq!(machine.client.record().telemetry.status.name(), "BOOTZ_OS_INVALID_IMAGE");
    assert_eq!((world.log.installs, world.log.applied), (0, 0));
    let report = &world.log.reports[0];
    assert_eq!((report.status, report.states[0].status), (2, 1)); // FAILURE, NOT_INITIALIZED
    assert!(report.status_message.contains("no slot for images"), "{report:?}");
    assert!(matches!(machine.client.state(), State::Waiting));

    let broken = |world: &mut SimulatedServer, _: &mut BootstrapSettings| {
        world.tamper_data = with_image;
        world.outcome_override = |task| match task {
            Task::Install(_) => Some(TaskOutcome::Installed(Err("another hash".to_owned()))),
            _ => None,
        };
    };
    let (machine, world) = run(broken, 0);
    assert_eq!(machine.client.record().telemetry.status.name(), "BOOTZ_OS_INVALID_IMAGE");
    assert_eq!((world.log.applied, world.log.reports[0].status), (0, 2));
    assert!(matches!(machine.client.state(), State::Waiting));
}

// proves 4.49
#[test]
fn bootstrap_resumes_after_reboot_into_the_image() {
    let mut world = SimulatedServer::new();
    world.tamper_data = with_image;
    world.outcome_override = |task| match task {
        Task::Install(_) => Some(TaskOutcome::Installed(Ok(InstallResult::AtReboot))),
        _ => None,
    };
    let mut machine = ClientDriver::new(world.profile(), dhcp_record());
    machine.run(&mut world, 0);
    assert_eq!((world.log.reboots, world.log.applied), (1, 0));

    let mut profile = world.profile();
    profile.software.running = "2".to_owned();
    let mut machine = ClientDriver::new(profile, world.log.saved.last().unwrap().clone());
    machine.run(&mut world, 0);
    assert_eq!((world.log.installs, world.log.applied), (1, 1));
    assert_eq!(machine.client.record().telemetry.status.name(), "BOOTZ_OK");
}

// proves 4.56, 4.57
#[test]
fn profiles_that_are_not_allowed_are_refused_before_anything_is_applied() {
    let (machine, world) = run(
        |world, _| {
            world.tamper_data = |data| {
                let profile = CertzProfile {
                    ssl_profile_id: "system_default_profile".to_owned(),
                    ..CertzProfile::default()
                };
                data.responses[0].certz_profiles = Some(CertzProfiles { profiles: vec![profile] });
            };
        },
        0,
    );
    assert_eq!(machine.client.record().telemetry.status.name(), "BOOTZ_CONFIGURATION_INVALID");
    assert_eq!(world.log.applied, 0);
}

// proves 4.12, 4.53
#[test]
fn success_report_is_repeated_until_acknowledged() {
    let mut world = SimulatedServer::new();
    world.outcome_override = |task| match task {
        Task::Connect(connect) if connect.trust_anchor.is_some() => {
            Some(TaskOutcome::Connected(Err("its certificate leads elsewhere".to_owned())))
        }
        _ => None,
    };
    let mut machine = ClientDriver::new(world.profile(), dhcp_record());
    machine.run(&mut world, 3);
    let record = machine.client.record();
    assert_eq!(record.telemetry.status.name(), "BOOTZ_CONFIGURATION_APPLIED");
    assert_eq!((world.log.applied, world.log.reports.len()), (1, 0));
    assert!(matches!(record.parameters.as_ref().unwrap().stage, BootstrapStage::Reporting { .. }));

    world.outcome_override = |_| None;
    machine.step(Event::TimerDue(machine.pending_timer.unwrap()), &mut world.log);
    while let Some((work, task)) = machine.pending_tasks.pop_front() {
        let outcome = world.answer(task);
        machine.step(Event::Done(work, outcome), &mut world.log);
    }
    assert_eq!((world.log.applied, world.log.reports.len()), (1, 1));
    assert_eq!(machine.client.record().telemetry.status.name(), "BOOTZ_OK");
}

// proves 4.6, 4.12, 4.13
#[test]
fn an_operator_can_name_the_server_and_the_interface() {
    let server: ServerUri = "bootz://[2001:db8::1]:15006".parse().unwrap();
    let entry = ServerDiscovery::Named { server: server.clone(), interface: "mgmt0".to_owned() };
    let mut world = SimulatedServer::new();
    let mut machine = ClientDriver::new(world.profile(), started_record(entry));
    machine.run(&mut world, 0);
    assert!(!world.log.tasks.contains(&"lease"));
    for connect in &world.log.connects {
        assert_eq!((&connect.server, connect.interface.as_deref()), (&server, Some("mgmt0")));
    }
    let applied = world.log.saved.iter().rposition(|it| it.parameters.is_some()).unwrap();
    assert_eq!(world.log.saved[applied].telemetry.status.name(), "BOOTZ_CONFIGURATION_APPLIED");
    assert_eq!(machine.client.record().parameters, None);
}

// proves 4.9, 4.10, 4.11, 4.67
#[test]
fn operators_start_terminate_and_reset() {
    let mut world = SimulatedServer::new();
    let mut machine = ClientDriver::new(world.profile(), dhcp_record());
    machine.step(Event::Started { factory_new: false }, &mut world.log);
    machine.step(Event::Command(OperatorCommand::Terminate), &mut world.log);
    assert!(matches!(machine.client.state(), State::Idle));
    assert_eq!(
        (machine.client.record().parameters.clone(), machine.pending_tasks.len()),
        (None, 0)
    );
    assert_eq!(machine.client.record().telemetry.status.name(), NONE);

    machine.step(Event::Command(OperatorCommand::Start(ServerDiscovery::Dhcp)), &mut world.log);
    assert_eq!(machine.pending_tasks.len(), 1);
    machine.step(Event::Command(OperatorCommand::Reset), &mut world.log);
    assert_eq!((world.log.resets, machine.pending_tasks.len()), (1, 0));
    for line in ["terminated", "starting to bootstrap by DHCP", "reset"] {
        assert!(world.log.messages.iter().any(|message| message.contains(line)), "{line}");
    }
}

// proves 4.2
#[test]
fn a_factory_new_box_with_a_port_begins_by_itself() {
    let rows = [
        (true, Some("mgmt0"), BootstrapRecord::default(), true),
        (false, Some("mgmt0"), BootstrapRecord::default(), false),
        (true, None, BootstrapRecord::default(), false),
        // A bootstrap in progress continues, even if the box was configured in the meantime.
        (false, Some("mgmt0"), dhcp_record(), true),
    ];
    for (factory_new, port, record, begins) in rows {
        let mut world = SimulatedServer::new();
        let profile = BootstrapSettings { port: port.map(ToOwned::to_owned), ..world.profile() };
        let mut machine = ClientDriver::new(profile, record);
        machine.step(Event::Started { factory_new }, &mut world.log);
        let want: &[&str] = if begins { &["lease"] } else { &[] };
        assert_eq!(world.log.tasks, want, "{factory_new} {port:?}");
        while let Some((work, task)) = machine.pending_tasks.pop_front() {
            let outcome = world.answer(task);
            machine.step(Event::Done(work, outcome), &mut world.log);
        }
        assert_eq!(machine.client.record().telemetry.status.name() == "BOOTZ_OK", begins);
        assert!(world.log.connects.iter().all(|it| it.interface.as_deref() == Some("mgmt0")));
    }
}

// proves 4.8
#[test]
fn operator_configuration_ends_the_bootstrap() {
    let mut world = SimulatedServer::new();
    let mut machine = ClientDriver::new(world.profile(), dhcp_record());
    world.outcome_override = |task| match task {
        Task::Connect(_) => Some(TaskOutcome::Connected(Err("nobody is there".to_owned()))),
        _ => None,
    };
    machine.run(&mut world, 2);
    assert!(matches!(machine.client.state(), State::Waiting));
    machine.step(Event::Configured, &mut world.log);
    assert!(matches!(machine.client.state(), State::Idle));
    assert_eq!((machine.client.record().parameters.clone(), machine.pending_timer), (None, None));
    assert_eq!(machine.client.record().telemetry.status.name(), NONE);

    // Changes made by the bootstrap itself do not end it.
    world.outcome_override = |_| None;
    machine.step(Event::Command(OperatorCommand::Start(ServerDiscovery::Dhcp)), &mut world.log);
    while let Some((work, task)) = machine.pending_tasks.pop_front() {
        if matches!(task, Task::Apply(_) | Task::Report(_) | Task::Send(_)) && world.log.applied > 0
        {
            machine.step(Event::Configured, &mut world.log);
        }
        let outcome = world.answer(task);
        machine.step(Event::Done(work, outcome), &mut world.log);
    }
    assert_eq!(machine.client.record().telemetry.status.name(), "BOOTZ_OK");
}
