//! Schema nodes that values are made of, looked up once by their paths.

use std::net::IpAddr;

use holdfast_config::{NodeId, Schema};

use crate::values::Family;

/// The native model lacks a node that this platform needs.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("the native model has no node {0}")]
pub struct ModelError(pub String);

/// Declares a struct of nodes with the path of each below a common one.
macro_rules! nodes {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $path:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(crate) struct $name { $(pub(crate) $field: NodeId),* }

        impl $name {
            fn find(schema: &Schema, below: &str) -> Result<Self, ModelError> {
                $(let $field = find(schema, &format!("{below}{}", $path))?;)*
                Ok(Self { $($field),* })
            }
        }
    };
}

nodes!(
    /// `system`, of configuration and below `state`.
    SystemNodes {
        system: "",
        hostname: "/hostname",
        domain_name: "/domain-name",
        search_domain: "/search-domain",
        login_banner: "/login-banner",
        motd_banner: "/motd-banner",
        state: "/state",
        state_hostname: "/state/hostname",
        state_domain_name: "/state/domain-name",
        state_search_domain: "/state/search-domain",
        state_login_banner: "/state/login-banner",
        state_motd_banner: "/state/motd-banner",
        state_boot_time: "/state/boot-time",
        state_software_version: "/state/software-version",
    }
);

nodes!(
    /// `user` of the system.
    UserNodes {
        entry: "",
        role: "/role",
        state: "/state",
        state_name: "/state/username",
        state_role: "/state/role",
    }
);

nodes!(
    /// `grpc-server` of the system.
    ServerNodes {
        entry: "",
        certificate_id: "/certificate-id",
        state: "/state",
        state_name: "/state/name",
        state_services: "/state/services",
    }
);

nodes!(
    /// `reconciliation` and the policies below it.
    ReconciliationNodes {
        container: "",
        resync_interval: "/resync-interval",
        rule: "/drift-policy",
        action: "/drift-policy/action",
    }
);

nodes!(
    /// `interface` without the lists below it.
    LinkNodes {
        entry: "",
        kind: "/type",
        enabled: "/enabled",
        description: "/description",
        mtu: "/mtu",
        mac: "/mac-address",
        ignore_linkdown: "/ignore-routes-with-linkdown",
        port_speed: "/port-speed",
        duplex_mode: "/duplex-mode",
        auto_negotiate: "/auto-negotiate",
        master: "/master",
        forwarding_viable: "/forwarding-viable",
        hold_time: "/hold-time",
        hold_time_up: "/hold-time/up",
        hold_time_down: "/hold-time/down",
        penalty: "/penalty",
        penalty_half_life: "/penalty/half-life",
        penalty_flap: "/penalty/flap-penalty",
        penalty_suppress: "/penalty/suppress",
        penalty_reuse: "/penalty/reuse",
        penalty_max_suppress: "/penalty/max-suppress",
        subinterface: "/subinterface",
        subinterface_enabled: "/subinterface/enabled",
        subinterface_description: "/subinterface/description",
        veth: "/veth",
        veth_peer: "/veth/peer",
        vxlan: "/vxlan",
        vxlan_vni: "/vxlan/vni",
        vxlan_local: "/vxlan/local",
        vxlan_remote: "/vxlan/remote",
        vxlan_port: "/vxlan/port",
        vxlan_device: "/vxlan/device",
        vxlan_learning: "/vxlan/learning",
        bridge: "/bridge",
        bridge_stp: "/bridge/stp",
        bridge_vlan_filtering: "/bridge/vlan-filtering",
        bridge_ageing_time: "/bridge/ageing-time",
        state: "/state",
        state_name: "/state/name",
        state_kind: "/state/type",
        state_enabled: "/state/enabled",
        state_admin: "/state/admin-status",
        state_oper: "/state/oper-status",
        state_observed: "/state/observed-status",
        state_down_by: "/state/told-down-by",
        state_index: "/state/ifindex",
        state_mtu: "/state/mtu",
        state_mac: "/state/mac-address",
        state_port_speed: "/state/port-speed",
        state_negotiated_port_speed: "/state/negotiated-port-speed",
        state_duplex_mode: "/state/duplex-mode",
        state_auto_negotiate: "/state/auto-negotiate",
        state_hardware_mac: "/state/hardware-mac-address",
        state_description: "/state/description",
        state_master: "/state/master",
        state_peer: "/state/peer",
        state_last_change: "/state/last-change",
        state_subinterface_description: "/state/subinterface-description",
        state_ipv4_enabled: "/state/ipv4-enabled",
        state_ipv6_enabled: "/state/ipv6-enabled",
        state_ipv4_forwarding: "/state/ipv4-forwarding",
        state_ipv6_forwarding: "/state/ipv6-forwarding",
        state_ipv4_ignore_linkdown: "/state/ipv4-ignore-routes-with-linkdown",
        state_ipv6_ignore_linkdown: "/state/ipv6-ignore-routes-with-linkdown",
        state_effective_status: "/state/effective-status",
        state_forwarding_viable: "/state/forwarding-viable",
        state_hold_time: "/state/hold-time",
        state_hold_time_up: "/state/hold-time/up",
        state_hold_time_down: "/state/hold-time/down",
        state_penalty: "/state/penalty",
        state_penalty_half_life: "/state/penalty/half-life",
        state_penalty_flap: "/state/penalty/flap-penalty",
        state_penalty_suppress: "/state/penalty/suppress",
        state_penalty_reuse: "/state/penalty/reuse",
        state_penalty_max_suppress: "/state/penalty/max-suppress",
        state_counters: "/state/counters",
        state_carrier_transitions: "/state/counters/carrier-transitions",
    }
);

nodes!(
    /// One family of an interface with its lists.
    FamilyNodes {
        container: "",
        enabled: "/enabled",
        mtu: "/mtu",
        forwarding: "/forwarding",
        address: "/address",
        prefix_len: "/address/prefix-length",
        address_type: "/address/type",
        address_state: "/address/state",
        address_state_type: "/address/state/type",
        address_state_ip: "/address/state/ip",
        address_state_prefix_len: "/address/state/prefix-length",
        address_state_origin: "/address/state/origin",
        address_state_effective_status: "/address/state/effective-status",
        neighbor: "/neighbor",
        mac: "/neighbor/link-layer-address",
        neighbor_state: "/neighbor/state",
        neighbor_state_ip: "/neighbor/state/ip",
        neighbor_state_mac: "/neighbor/state/link-layer-address",
        neighbor_state_origin: "/neighbor/state/origin",
        neighbor_state_state: "/neighbor/state/neighbor-state",
        neighbor_state_effective_status: "/neighbor/state/effective-status",
    }
);

nodes!(
    /// `network-instance` and the static routes below it.
    RouteNodes {
        instance: "",
        instance_state: "/state",
        instance_state_name: "/state/name",
        instance_state_kind: "/state/type",
        protocol: "/static",
        protocol_state: "/static/state",
        protocol_state_name: "/static/state/name",
        route: "/static/route",
        description: "/static/route/description",
        route_state: "/static/route/state",
        route_state_prefix: "/static/route/state/prefix",
        route_state_description: "/static/route/state/description",
        route_state_effective_status: "/static/route/state/effective-status",
        hop: "/static/route/next-hop",
        hop_target: "/static/route/next-hop/next-hop",
        hop_interface: "/static/route/next-hop/interface",
        hop_metric: "/static/route/next-hop/metric",
        hop_state: "/static/route/next-hop/state",
        hop_state_index: "/static/route/next-hop/state/index",
        hop_state_target: "/static/route/next-hop/state/next-hop",
        hop_state_interface: "/static/route/next-hop/state/interface",
        hop_state_metric: "/static/route/next-hop/state/metric",
        hop_state_unusable: "/static/route/next-hop/state/unusable",
    }
);

/// All nodes this platform reads and writes.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    pub(crate) interfaces: NodeId,
    pub(crate) instances: NodeId,
    pub(crate) system: SystemNodes,
    pub(crate) user: UserNodes,
    pub(crate) server: ServerNodes,
    pub(crate) reconciliation: ReconciliationNodes,
    pub(crate) link: LinkNodes,
    pub(crate) v4: FamilyNodes,
    pub(crate) v6: FamilyNodes,
    /// `status` below the `state` of an IPv6 address; IPv4 has none.
    v6_address_status: NodeId,
    pub(crate) route: RouteNodes,
}

impl Nodes {
    pub(crate) fn find(schema: &Schema) -> Result<Self, ModelError> {
        const INTERFACE: &str = "/interfaces/interface";
        Ok(Self {
            interfaces: find(schema, "/interfaces")?,
            instances: find(schema, "/network-instances")?,
            system: SystemNodes::find(schema, "/system")?,
            user: UserNodes::find(schema, "/system/user")?,
            server: ServerNodes::find(schema, "/system/grpc-server")?,
            reconciliation: ReconciliationNodes::find(schema, "/reconciliation")?,
            link: LinkNodes::find(schema, INTERFACE)?,
            v4: FamilyNodes::find(schema, &format!("{INTERFACE}/ipv4"))?,
            v6: FamilyNodes::find(schema, &format!("{INTERFACE}/ipv6"))?,
            v6_address_status: find(schema, &format!("{INTERFACE}/ipv6/address/state/status"))?,
            route: RouteNodes::find(schema, "/network-instances/network-instance")?,
        })
    }

    /// Leaf for the status of an address, of the family that has it.
    pub(crate) fn v6_address_status(&self, ip: IpAddr) -> Option<NodeId> {
        ip.is_ipv6().then_some(self.v6_address_status)
    }

    pub(crate) fn family(&self, family: Family) -> &FamilyNodes {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }
}

fn find(schema: &Schema, path: &str) -> Result<NodeId, ModelError> {
    schema.find(path).ok_or_else(|| ModelError(path.to_owned()))
}
