//! Packages of services, and what clients read and set of their instances.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::agent::{AgentProcess, binary};
use crate::clients::Gnmic;
use crate::eventually::eventually_async;

/// Arguments of gnmic for a Get of all service plans, with what they wait for.
pub const READ_PLANS: [&str; 5] =
    ["-e", "json_ietf", "get", "--path", "holdfast_native:/service-state"];

/// A folder with the archive of an example package.
///
/// # Panics
/// When the example cannot be packed.
#[must_use]
pub fn packed(example: &str) -> TempDir {
    let folder = TempDir::with_prefix("services-").expect("a folder for the archive");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/services");
    pack(&examples.join(example), folder.path());
    folder
}

/// Writes the archive of the package in the folder `package`.
///
/// # Panics
/// When the package is refused.
pub fn pack(package: &Path, output: &Path) {
    let mut pack = Command::new(binary());
    pack.args(["service", "pack"]).arg(package).arg("--output").arg(output);
    assert!(pack.status().expect("the agent's binary starts").success());
}

/// A package of the type `sized-port`, which sets the MTU of a port once its link is up, with lines for that state.
///
/// # Panics
/// When the package is refused.
#[must_use]
pub fn sized_port(lines: &str) -> TempDir {
    port_package(&SIZED_PORT.replace("LINES", lines))
}

/// A package of the type `sized-port` with this outline.
///
/// # Panics
/// When the package is refused.
#[must_use]
pub fn port_package(outline: &str) -> TempDir {
    port_package_with(outline, "interface {{ params.port }}\n  mtu 1400\n")
}

/// A package of the type `sized-port` with this outline, and this template for the size.
///
/// # Panics
/// When the package is refused.
#[must_use]
pub fn port_package_with(outline: &str, size: &str) -> TempDir {
    let sources = TempDir::new().expect("a folder for the package");
    let folder = TempDir::with_prefix("services-").expect("a folder for the archive");
    fs::create_dir(sources.path().join("templates")).expect("a folder of our own");
    for (file, content) in [
        ("service.toml", outline),
        ("sized-port@2026-11-24.yang", MODULE),
        (
            "templates/port.cli",
            "interface {{ params.bridge }}\n  type bridge\ninterface {{ params.port }}\n  enabled true\n  master {{ params.bridge }}\n",
        ),
        ("templates/size.cli", size),
    ] {
        fs::write(sources.path().join(file), content).expect("a file in our own folder");
    }
    pack(sources.path(), folder.path());
    folder
}

/// Outline of the package of [`sized_port`]; `LINES` stands for lines of its second state.
pub const SIZED_PORT: &str = r#"[service]
name = "sized-port"
version = "1.0.0"
[grants]
write = ["/interfaces/interface"]
read = ["/interfaces/interface/state/oper-status"]
[[component]]
type = "port"
  [[component.state]]
  name = "attached"
  work = "port.cli"
  [[component.state]]
  name = "sized"
  when = "state('/interfaces/interface[name={}]/state/oper-status', params.port) == 'UP'"
  LINES
  work = "size.cli"
[[tree]]
create = { type = "port", name = "params.port" }
"#;

const MODULE: &str = r#"module sized-port { yang-version 1.1; namespace "urn:sized-port"; prefix s;
  import holdfast-services { prefix svc; } import holdfast { prefix hf; }
  revision 2026-11-24 { description "First."; }
  augment "/svc:services" { list sized-port { key name; uses svc:service-instance;
    leaf name { type string; } leaf port { type hf:interface-name; mandatory true; }
    leaf bridge { type hf:interface-name; mandatory true; }
    leaf far-end { type string; config false; } } } }"#;

/// Path of an instance of `sized-port`.
pub fn sized_port_path(name: &str) -> String {
    format!("holdfast_native:/services/sized-port[name={name}]")
}

/// Runs `holdfast service ARGUMENTS`.
///
/// # Errors
/// The error text, when it fails.
///
/// # Panics
/// When the command cannot be started.
pub fn operate(agent: &AgentProcess, arguments: &[&str]) -> Result<String, String> {
    let output = agent.command("service").args(arguments).output().expect("the binary starts");
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// The service plans, as a client reads them.
pub async fn plans(gnmic: &Gnmic) -> String {
    gnmic.json(&READ_PLANS).await.to_string()
}

/// True when `/service-state` holds something of an instance, beside the types that are loaded.
pub fn has_instances(state: &str) -> bool {
    let parts = ["plan", "wait", "queue", "ownership"];
    parts.iter().any(|part| state.contains(&format!("services:{part}\"")))
}

/// Checks that no service plan is left, as after a change that undoes all in its own transaction, and waits until nothing
/// is left of any instance.
///
/// # Panics
/// When a plan is left.
pub async fn no_plans(gnmic: &Gnmic) {
    let state = gnmic.outcome(&READ_PLANS).await.unwrap_or_default();
    assert!(!state.contains("\"component\""), "a plan is left: {state}");
    nothing_left(gnmic).await;
}

/// Waits until nothing is left of any instance, as where an action has to end before.
pub async fn nothing_left(gnmic: &Gnmic) {
    let is_empty = async || match gnmic.outcome(&READ_PLANS).await {
        Ok(state) => !has_instances(&state),
        Err(refusal) => refusal.contains("NotFound"),
    };
    eventually_async("nothing is left of any instance", is_empty).await;
}

/// Waits until the service plans have all of these parts.
pub async fn plans_with(gnmic: &Gnmic, parts: &[&str]) {
    answer_with(gnmic, &READ_PLANS, parts).await;
}

/// Waits until the answer to a request has all of these parts.
pub async fn answer_with(gnmic: &Gnmic, request: &[&str], parts: &[&str]) {
    let has_parts = async || {
        let answer = gnmic.json(request).await.to_string();
        parts.iter().all(|part| answer.contains(part))
    };
    eventually_async(&format!("the answer has {parts:?}"), has_parts).await;
}

/// Updates the node at a path with a JSON value.
pub async fn update(gnmic: &Gnmic, path: &str, value: &str) {
    gnmic.run(&set(path, value)).await;
}

/// Arguments of gnmic for an update of the node at a path.
#[must_use]
pub fn set<'a>(path: &'a str, value: &'a str) -> [&'a str; 7] {
    ["-e", "json_ietf", "set", "--update-path", path, "--update-value", value]
}
