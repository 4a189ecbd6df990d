//! State of bonds that the kernel does not announce: LACPDUs and ports of members, and speeds of bonds.

use holdfast_config::{InstancePath, Keys, NodeId, Schema, Step, Value};
use smol_str::SmolStr;
use tokio::sync::oneshot;

use crate::kinds::native::{INTERFACE, InterfaceNodes, nodes};
use crate::transport::rtnetlink::bond_readings::{LacpPort, LagSpeed};
use crate::transport::rtnetlink::{Command, CommandSender};

/// Reader of the LACPDUs that members of bonds have sent and received, and of the numbers of their ports.
#[derive(Debug)]
pub struct LacpPorts {
    line: CommandSender,
    /// `None` where the schema lacks a node.
    nodes: Option<PortNodes>,
}

/// Reader of the speeds of bonds.
#[derive(Debug)]
pub struct LagSpeeds {
    line: CommandSender,
    /// `None` where the schema lacks a node.
    nodes: Option<(InterfaceNodes, SpeedNodes)>,
}

nodes!(
    /// Members of bonds with LACP.
    PortNodes {
        lacp: "",
        bond: "/interface",
        member: "/interface/member",
        state: "/interface/member/state",
        port_num: "/interface/member/state/port-num",
        port_priority: "/interface/member/state/port-priority",
        partner_port_num: "/interface/member/state/partner-port-num",
        partner_port_priority: "/interface/member/state/partner-port-priority",
        counters: "/interface/member/state/counters",
        in_pkts: "/interface/member/state/counters/in-pkts",
        out_pkts: "/interface/member/state/counters/out-pkts",
        unknown_errors: "/interface/member/state/counters/unknown-errors",
        errors: "/interface/member/state/counters/errors",
    }
);

nodes!(
    /// Speed of a bond.
    SpeedNodes {
        state: "/state",
        bond: "/state/bond",
        lag_speed: "/state/bond/lag-speed",
    }
);

impl LacpPorts {
    pub(crate) fn new(native: &Schema, line: CommandSender) -> Self {
        Self { line, nodes: PortNodes::find(native, "/lacp").ok() }
    }

    /// The leaves that a reading may have.
    pub fn nodes(&self) -> Vec<NodeId> {
        let leaves = self.nodes.as_ref().map(|nodes| {
            [
                nodes.port_num,
                nodes.port_priority,
                nodes.partner_port_num,
                nodes.partner_port_priority,
                nodes.in_pkts,
                nodes.out_pkts,
                nodes.unknown_errors,
                nodes.errors,
            ]
        });
        leaves.into_iter().flatten().collect()
    }

    /// Counters and numbers of all members of bonds with LACP. A leaf that the kernel has no value for is absent.
    pub async fn read(&self) -> Vec<(InstancePath, Value)> {
        let (answer_tx, answer) = oneshot::channel();
        self.line.command(Command::LacpPorts(answer_tx));
        let ports = answer.await.unwrap_or_default(); // empty when the transport has ended
        let leaves = |nodes: &PortNodes| ports.iter().flat_map(|port| nodes.leaves(port)).collect();
        self.nodes.as_ref().map(leaves).unwrap_or_default()
    }
}

impl PortNodes {
    fn leaves(&self, port: &LacpPort) -> Vec<(InstancePath, Value)> {
        let entry =
            |list, name: &SmolStr| Step::entry(list, Keys::single(Value::Str(name.clone())));
        let steps = [
            Step::node(self.lacp),
            entry(self.bond, &port.bond),
            entry(self.member, &port.link),
            Step::node(self.state),
        ];
        let state = InstancePath(steps.to_vec());
        let counters = state.join(Step::node(self.counters));
        let LacpPort { own, partner, counters: counts, .. } = port;
        let mut found = Vec::new();
        for (ports, number, priority) in [
            (own, self.port_num, self.port_priority),
            (partner, self.partner_port_num, self.partner_port_priority),
        ] {
            let Some(port) = ports else { continue };
            found.push((state.join(Step::node(number)), Value::Uint(port.number.into())));
            found.push((state.join(Step::node(priority)), Value::Uint(port.priority.into())));
        }
        for (leaf, count) in [
            (self.in_pkts, counts.received),
            (self.out_pkts, counts.sent),
            (self.unknown_errors, counts.unknown),
            (self.errors, counts.illegal),
        ] {
            found.extend(count.map(|count| (counters.join(Step::node(leaf)), Value::Uint(count))));
        }
        found
    }
}

impl LagSpeeds {
    pub(crate) fn new(native: &Schema, line: CommandSender) -> Self {
        let nodes = InterfaceNodes::bind(native).ok();
        Self { line, nodes: nodes.zip(SpeedNodes::find(native, INTERFACE).ok()) }
    }

    /// The leaf that a reading may have.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.nodes.iter().map(|(_, nodes)| nodes.lag_speed).collect()
    }

    /// The speeds of all bonds that send through some member.
    pub async fn read(&self) -> Vec<(InstancePath, Value)> {
        let (answer_tx, answer) = oneshot::channel();
        self.line.command(Command::LagSpeeds(answer_tx));
        let speeds = answer.await.unwrap_or_default(); // empty when the transport has ended
        let Some((interfaces, nodes)) = &self.nodes else { return Vec::new() };
        let leaf = |LagSpeed { bond, mbps }: &LagSpeed| {
            let containers = [nodes.state, nodes.bond, nodes.lag_speed].map(Step::node);
            let path = containers.into_iter().fold(interfaces.link(bond), |path, it| path.join(it));
            (path, Value::Uint((*mbps).into()))
        };
        speeds.iter().map(leaf).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::rtnetlink::bond_readings::{LacpduCounters, PortNumber};

    #[test]
    fn leaves_without_a_value_are_absent() {
        let native = Schema::native().unwrap();
        let nodes = PortNodes::find(&native, "/lacp").unwrap();
        let check = |port: &LacpPort, want: &[&str]| {
            let line = |(path, value): (InstancePath, Value)| {
                let path = path.to_path(&native).to_string();
                let below = path.strip_prefix("/lacp/interface[name=bond0]/member[interface=eth1]");
                format!("{} = {value}", below.unwrap())
            };
            let lines: Vec<String> = nodes.leaves(port).into_iter().map(line).collect();
            assert_eq!(lines, want);
        };
        let silent = LacpPort {
            bond: "bond0".into(),
            link: "eth1".into(),
            counters: LacpduCounters::default(),
            own: None,
            partner: None,
        };
        check(&silent, &[]);
        let own = Some(PortNumber { number: 1, priority: 255 });
        let counters =
            LacpduCounters { received: Some(0), sent: Some(5), ..LacpduCounters::default() };
        check(
            &LacpPort { own, counters, ..silent.clone() },
            &[
                "/state/port-num = 1",
                "/state/port-priority = 255",
                "/state/counters/in-pkts = 0",
                "/state/counters/out-pkts = 5",
            ],
        );
        let partner = Some(PortNumber { number: 7, priority: 3 });
        let counters = LacpduCounters { unknown: Some(1), illegal: Some(2), ..counters };
        let whole = LacpPort { own, partner, counters, ..silent };
        let leaves = nodes.leaves(&whole);
        assert_eq!(leaves.len(), 8, "each leaf of the source");
    }
}
