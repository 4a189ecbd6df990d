//! A type of services for tests of the agent on the simulated kernel.

use std::path::Path;
use std::sync::Arc;

use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::schema::Origin;
use holdfast_config::services::ServicePlan;
use holdfast_config::{Layers, ServiceTag};
use holdfast_core::{CommitError, CommitOptions, CommitStamp, Datastore};
use holdfast_platform::transport::SimulatedKernel;
use holdfast_telemetry::Revision;
use tokio::time::timeout;

pub(super) use super::LINK_UP;
use super::{Agent, LIMIT, TestType, caller};

/// An agent with a type that attaches a port, and gives it a size in a second state, to which the lines belong.
pub(super) async fn start(kernel: &SimulatedKernel, folder: &Path, lines: &str) -> Agent {
    let attach = "interface {{ params.bridge }}\n  type bridge\ninterface {{ params.port }}\n  master {{ params.bridge }}\n";
    // The instance `addressed` has an address, too.
    let size = "interface {{ params.port }}
  mtu 1400
{% if params.name == 'addressed' %}  ipv4
    address 192.0.2.1
      prefix-length 24
{% endif %}";
    let types = TestType::new()
        .component("port")
        .state("attached", r#"work = "attach.cli""#)
        .state("sized", &format!("work = \"size.cli\"\n{lines}"))
        .template("attach.cli", attach)
        .template("size.cli", size)
        .types();
    Agent::start_with(kernel, folder, types).await
}

pub(super) fn tag(name: &str) -> ServiceTag {
    format!("access[name='{name}']").parse().unwrap()
}

fn target(name: &str) -> EditTarget {
    let path = format!("/services/access[name={name}]").parse().unwrap();
    EditTarget { origin: Origin::Native, path }
}

/// The Set of an instance on a port.
pub(super) fn instance(name: &str, port: &str) -> Edit {
    let text = format!(r#"{{"port": "{port}", "bridge": "br0"}}"#);
    let payload = Payload::Json { text: text.into_bytes().into(), ietf: true };
    Edit { updates: vec![(target(name), payload)], ..Edit::default() }
}

/// The deletion of an instance.
pub(super) fn removal(name: &str) -> Edit {
    Edit { deletes: vec![target(name)], ..Edit::default() }
}

pub(super) async fn commit(agent: &Agent, edit: Edit) -> Result<CommitStamp, CommitError> {
    agent.handle.commit(&caller(), edit, CommitOptions::default()).await
}

/// The service plan of an instance, in the newest configuration.
pub(super) fn plan(agent: &Agent, name: &str) -> Option<Arc<ServicePlan>> {
    agent.handle.configuration().layers().book.get(&tag(name)).cloned()
}

/// Status of each state of an instance in a revision: `attached reached, ...`.
pub(super) fn shown(revision: &Revision, name: &str) -> String {
    let schema = revision.schema(Origin::Native);
    let path = format!(
        "/service-state/plan[service=access[name='{name}'\\]]/component/state[name=*]/status"
    );
    let patterns = schema.resolve_read(&path.parse().unwrap()).unwrap();
    let leaves = patterns.iter().flat_map(|it| revision.tree(Origin::Native).leaves(it));
    let text = leaves.map(|(path, value)| {
        let state = path.0.iter().rev().find_map(|step| step.keys.as_ref()).unwrap();
        format!("{} {value}", state.last().unwrap())
    });
    text.collect::<Vec<_>>().join(", ")
}

/// Waits until the layers are what is wanted.
pub(super) async fn until_layers(agent: &Agent, is_wanted: impl Fn(&Layers) -> bool) {
    let mut revisions = agent.handle.watch();
    let waiting = async {
        while !is_wanted(agent.handle.configuration().layers()) {
            revisions.changed().await.unwrap();
        }
    };
    timeout(LIMIT, waiting).await.expect("it comes in time");
}

/// Waits until the service plan of an instance is one that is wanted.
pub(super) async fn until(agent: &Agent, name: &str, is_wanted: impl Fn(&ServicePlan) -> bool) {
    let tag = tag(name);
    until_layers(agent, |layers| layers.book.get(&tag).is_some_and(|plan| is_wanted(plan))).await;
}
