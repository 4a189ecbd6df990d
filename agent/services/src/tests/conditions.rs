//! Rows: conditions, what they read, and how they fail.

use std::sync::Mutex;

use holdfast_config::Value;
use holdfast_config::schema::Origin;
use smol_str::SmolStr;

use super::*;
use crate::facts::{Plane, Read};

/// A box with two ports, which records what it is asked.
#[derive(Debug, Default)]
struct Recorder {
    asked: Mutex<Vec<String>>,
}

impl Facts for Recorder {
    fn read(&self, read: &Read) -> Vec<Value> {
        let schema = if read.origin == Origin::Native { "native" } else { "openconfig" };
        let keys: Vec<String> = read
            .patterns
            .iter()
            .flat_map(|it| &it.0)
            .filter_map(|step| step.keys.as_ref())
            .flat_map(|keys| &keys.0)
            .map(|key| key.as_ref().map_or("*".to_owned(), Value::to_string))
            .collect();
        let plane = if read.plane == Plane::Ground { "config" } else { "state" };
        self.asked.lock().unwrap().push(format!("{plane} {schema} {}", keys.join(",")));
        match keys.join(",").as_str() {
            "eth1" => vec![Value::Enum("UP".into())],
            "*" => vec![Value::Enum("DOWN".into()), Value::Enum("UP".into())],
            _ => Vec::new(),
        }
    }

    fn gone(&self, _: &Read) -> bool {
        true
    }

    fn reached(&self, component_type: &str, name: &str, state: &str) -> bool {
        (component_type, name, state) == ("c", "main", "made")
    }

    fn action(&self, _: &str, _: &str, state: &str) -> Option<SmolStr> {
        (state == "made").then(|| "create-reached".into())
    }

    fn ready(&self, component_type: &str) -> bool {
        component_type == "c"
    }

    fn service_ready(&self, tag: &str) -> bool {
        tag == "t[name='x']"
    }
}

fn evaluated(condition: &str) -> (Result<bool, WorkError>, Vec<String>) {
    let package = plain("main.cli", "").unwrap();
    let scope = scope(&package, r#"{"name":"a","port":"eth1"}"#);
    let recorder = Arc::new(Recorder::default());
    let facts: Arc<dyn Facts> = recorder.clone();
    let result = package.condition(&located(condition), &scope, &facts);
    (result, recorder.asked.lock().unwrap().clone())
}

const STATUS: &str = "/interfaces/interface[name={}]/state/oper-status";

#[track_caller]
fn check(condition: &str, want: bool, asked: &[&str]) {
    let (result, reads) = evaluated(&condition.replace("STATUS", STATUS));
    assert_eq!(result, Ok(want), "{condition}");
    assert_eq!(reads, asked, "{condition}");
}

#[track_caller]
fn fails(condition: &str, want: &str) {
    let error = evaluated(&condition.replace("STATUS", STATUS)).0.unwrap_err().to_string();
    assert!(error.starts_with("service.toml line 7: ") && error.contains(want), "{error}");
}

// proves sv.B21
#[test]
fn conditions_combine_values_of_the_ground_and_of_state() {
    check("state('STATUS', params.port) == 'UP'", true, &["state native eth1"]);
    check("state('STATUS', 'eth2') == 'UP'", false, &["state native eth2"]);
    check("state('STATUS', 'eth2') is none", true, &["state native eth2"]);
    check(
        "'UP' in state('/interfaces/interface[name=*]/state/oper-status')",
        true,
        &["state native *"],
    );
    check("'UP' in state('/interfaces/interface/state/oper-status')", true, &["state native *"]);
    check(
        "'TESTING' in state('/interfaces/interface[name=*]/state/oper-status')",
        false,
        &["state native *"],
    );
    check("params.test_passed and state('STATUS', 'eth1') == 'UP'", false, &[]);
    check("params.test_passed or state('STATUS', 'eth1') == 'UP'", true, &["state native eth1"]);
    check(
        "config('/interfaces/interface[name={}]/mtu', 'eth2') is none",
        true,
        &["config native eth2"],
    );
    check(
        "config('openconfig:/interfaces/interface[name={}]/config/mtu', 'eth2') is none",
        true,
        &["config openconfig eth2"],
    );
    check("gone('STATUS', params.port)", true, &[]);
}

#[test]
fn conditions_read_other_states_components_and_services() {
    check("reached('c', 'main', 'made')", true, &[]);
    check("reached('c', 'main', 'ready')", false, &[]);
    check("action('c', 'main', 'made') == 'create-reached'", true, &[]);
    check("action('c', 'main', 'ready') is none", true, &[]);
    check("ready('c') and not ready('d')", true, &[]);
    check("service_ready(\"t[name='x']\")", true, &[]);
}

#[test]
fn a_condition_that_is_no_boolean_fails() {
    fails("params.name", "`params.name`: a condition is true or false, and this is string");
    fails("1", "this is number");
    fails("none", "this is none");
    fails("state('STATUS', 'eth2')", "this is none");
    fails("params.port is defined and params.port", "this is string");
    fails("params.colour", "undefined value");
    fails("params.colour == 'red'", "undefined value");
    fails("colour", "undefined value");
    fails("params.name | ip == ''", "`a` is neither an address");
}

#[test]
fn a_key_value_stays_one() {
    let odd = |text: &str| format!("state('STATUS', \"{text}\") is none");
    check(&odd("eth1][y=z"), true, &["state native eth1][y=z"]);
    check(&odd("a\\\\b"), true, &["state native a\\b"]);
    fails(&odd("eth1]/x[y=z"), "bad value of key `name`");
    fails(&odd("a\\nb"), "bad value of key `name`");
    fails(&odd("*"), "`*` is not a value of a key");
    fails("state('STATUS', ['eth1']) is none", "is not a value of a key");
    fails("state('STATUS', none) is none", "is not a value of a key");
    fails(
        "state('/interfaces/{}/state/oper-status', 'x') is none",
        "`{}` stands for a value of a key",
    );
    fails("state('STATUS') is none", "more `{}` than arguments");
    fails("state('STATUS', 'a', 'b') is none", "fewer `{}` than arguments");
}

#[test]
fn reads_are_held_against_models_and_grants() {
    fails("state('interfaces') is none", "a path begins with `/`");
    fails("state('/interfaces/interface[name=x]/state/colour') is none", "the model has no");
    fails("state('/interfaces/interface[name=x]/state') is none", "is not a leaf");
    fails("state('/') is none", "is the root, and no leaf");
    fails("config('/system/hostname') is none", "`/system/hostname` is not in the grants to read");
    fails("config('/interfaces/interface[name=x]/state/mtu') is none", "is state: ask `state`");
    fails("state('/interfaces/interface[name=x]/mtu') is none", "is configuration: ask `config`");
    fails("state('/interfaces/interface[name=x]/state/counters/in-octets') is none", "is polled");
    fails("config('/services/s[name=x]/port') is none", "services do not see services");
    fails("state('/...') is none", "`/...`");
}

#[test]
fn one_evaluation_reads_a_bounded_number_of_times() {
    let reads = |count: usize| {
        let text = format!(
            "{{% for i in range({count}) %}}{{% set x = config('/interfaces/interface[name=x]/mtu') %}}{{% endfor %}}"
        );
        put_out("main.cli", &text, r#"{"name":"a"}"#)
    };
    assert!(reads(1000).is_ok());
    let error = reads(1001).unwrap_err();
    assert_eq!(error.kind, crate::WorkErrorKind::Limit);
    assert!(error.to_string().contains("more than 1000 reads of one evaluation"), "{error}");
}
