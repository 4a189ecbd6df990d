//! State of pathz: leaves for policy versions and counters in the native model.

use holdfast_config::schema::Schema;
use holdfast_config::{InstancePath, Keys, MissingNode, NodeId, Step, Value};
use holdfast_core::ServiceState;
use holdfast_platform::objects::GRPC_SERVER;
use holdfast_security::rotation::created_on_ns;

use super::InstalledPolicy;
use super::counters::{Counts, Tally};

const ACTIVE: &str = "ACTIVE";
const SANDBOX: &str = "SANDBOX";

/// Schema nodes, looked up once.
#[derive(Debug)]
pub(super) struct Leaves {
    system: NodeId,
    /// The list of the two policy instances, and in an entry: name, version, creation time.
    policy: NodeId,
    instance: Vec<Step>,
    version: Vec<Step>,
    created_on: Vec<Step>,
    server: NodeId,
    /// In the entry of the server: version and creation time of the policy in force.
    server_version: Vec<Step>,
    server_created_on: Vec<Step>,
    /// The list of counters, and in an entry: path, counters of reads, counters of writes.
    path: NodeId,
    name: Vec<Step>,
    reads: [Vec<Step>; 4],
    writes: [Vec<Step>; 4],
}

impl Leaves {
    pub(super) fn find(native: &Schema) -> Result<Self, MissingNode> {
        let find = |path: &str| native.require(path);
        let below = |top: &str, path: &str| {
            let mut at = top.to_owned();
            let step = |name: &str| {
                at = format!("{at}/{name}");
                find(&at).map(Step::node)
            };
            path.split('/').map(step).collect::<Result<Vec<Step>, MissingNode>>()
        };
        let policy = "/system/pathz-policy";
        let server = "/system/grpc-server";
        let path = "/system/grpc-server/pathz-path";
        let tally = |mode: &str| {
            Ok([
                below(path, &format!("state/{mode}/access-accepts"))?,
                below(path, &format!("state/{mode}/access-rejects"))?,
                below(path, &format!("state/{mode}/last-access-accept"))?,
                below(path, &format!("state/{mode}/last-access-reject"))?,
            ])
        };
        Ok(Self {
            system: find("/system")?,
            policy: find(policy)?,
            instance: below(policy, "state/instance")?,
            version: below(policy, "state/version")?,
            created_on: below(policy, "state/created-on")?,
            server: find(server)?,
            server_version: below(server, "state/pathz-policy-version")?,
            server_created_on: below(server, "state/pathz-policy-created-on")?,
            path: find(path)?,
            name: below(path, "state/name")?,
            reads: tally("reads")?,
            writes: tally("writes")?,
        })
    }

    /// Leaves for the policy being tried, or for none.
    pub(super) fn sandbox(&self, installed: Option<&InstalledPolicy>) -> ServiceState {
        self.of_instance(SANDBOX, installed)
    }

    /// Leaves for the policy in force, which is shown in two places.
    pub(super) fn active(&self, installed: Option<&InstalledPolicy>) -> ServiceState {
        let mut state = self.of_instance(ACTIVE, installed);
        let server = self.server();
        state.push((joined(&server, &self.server_version), version(installed)));
        state.push((joined(&server, &self.server_created_on), created_on(installed)));
        state
    }

    /// Leaf for a path that was counted for the first time.
    pub(super) fn counted(&self, path: &str) -> (InstancePath, Option<Value>) {
        (joined(&self.entry(path), &self.name), Some(Value::Str(path.into())))
    }

    pub(super) fn counters(&self, path: &str, counts: &Counts) -> Vec<(InstancePath, Value)> {
        let entry = self.entry(path);
        let mut leaves = Vec::new();
        for (nodes, tally) in [(&self.reads, counts.reads), (&self.writes, counts.writes)] {
            let Tally { accepts, rejects, last_accept_ns, last_reject_ns } = tally;
            let values = [Some(accepts), Some(rejects), ever(last_accept_ns), ever(last_reject_ns)];
            let present = nodes.iter().zip(values).filter_map(|(node, value)| Some((node, value?)));
            leaves.extend(present.map(|(node, value)| (joined(&entry, node), Value::Uint(value))));
        }
        leaves
    }

    /// The nodes of the counters.
    pub(super) fn counter_nodes(&self) -> Vec<NodeId> {
        let ways = self.reads.iter().chain(&self.writes);
        ways.filter_map(|way| Some(way.last()?.node)).collect()
    }

    fn of_instance(
        &self,
        instance: &'static str,
        installed: Option<&InstalledPolicy>,
    ) -> ServiceState {
        let keys = Keys::single(Value::Enum(instance.into()));
        let entry = [Step::node(self.system), Step::entry(self.policy, keys)];
        let name = installed.map(|_| Value::Enum(instance.into()));
        vec![
            (joined(&entry, &self.instance), name),
            (joined(&entry, &self.version), version(installed)),
            (joined(&entry, &self.created_on), created_on(installed)),
        ]
    }

    fn server(&self) -> Vec<Step> {
        let keys = Keys::single(Value::Str(GRPC_SERVER.into()));
        vec![Step::node(self.system), Step::entry(self.server, keys)]
    }

    fn entry(&self, path: &str) -> Vec<Step> {
        let mut entry = self.server();
        entry.push(Step::entry(self.path, Keys::single(Value::Str(path.into()))));
        entry
    }
}

fn version(installed: Option<&InstalledPolicy>) -> Option<Value> {
    installed.map(|it| Value::Str(it.version.as_str().into()))
}

fn created_on(installed: Option<&InstalledPolicy>) -> Option<Value> {
    installed.and_then(|it| created_on_ns(it.created_on)).map(Value::Uint)
}

fn ever(time_ns: u64) -> Option<u64> {
    (time_ns != 0).then_some(time_ns)
}

fn joined(entry: &[Step], below: &[Step]) -> InstancePath {
    InstancePath(entry.iter().chain(below).cloned().collect())
}
