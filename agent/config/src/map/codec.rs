//! Conversions of values between OpenConfig and the native model.

use holdfast_common::{MAX_ROLE_NAME, is_role_name};
use smol_str::SmolStr;

use crate::name::Name;
use crate::value::{Value, bare_identity};

/// Bytes of the Ethernet header, which OpenConfig's `mtu` of a port includes and the kernel's does not.
pub const ETHERNET_HEADER: u64 = 14;
/// Smallest layer-3 MTU that the kernel accepts on an Ethernet port (RFC 791).
const MIN_MTU: u64 = 68;
/// Smallest layer-3 MTU of a link with IPv6 (RFC 8200, section 5).
const MIN_IPV6_MTU: u64 = 1280;
/// Largest layer-3 MTU in the native model.
const MAX_MTU: u64 = 65_535;

/// Conversion of one leaf's value in both directions.
#[derive(Debug)]
pub struct Codec {
    pub name: &'static str,
    /// OpenConfig to native; the error says why this box does not support the value.
    pub down: fn(&Value) -> Result<Value, String>,
    /// Native to OpenConfig; `None` when OpenConfig cannot express the value.
    pub up: fn(&Value) -> Option<Value>,
}

/// Every codec that a map row may name.
static CODECS: &[Codec] = &[
    Codec { name: "same", down: |value| Ok(value.clone()), up: |value| Some(value.clone()) },
    Codec { name: "int32", down: int32_to_native, up: |value| Some(value.clone()) },
    Codec { name: "ethernet-mtu", down: mtu_to_native, up: mtu_to_openconfig },
    Codec {
        name: "ipv4-mtu",
        down: family_mtu_to_native,
        up: |value| family_mtu_to_openconfig(value, MIN_MTU),
    },
    Codec {
        name: "ipv6-mtu",
        down: family_mtu_to_native,
        up: |value| family_mtu_to_openconfig(value, MIN_IPV6_MTU),
    },
    Codec { name: "ethernet-speed", down: speed_to_native, up: speed_to_openconfig },
    Codec { name: "interface-type", down: type_to_native, up: type_to_openconfig },
    Codec { name: "lag-type", down: lag_type_to_native, up: lag_type_to_openconfig },
    Codec { name: "lacp-activity", down: activity_to_native, up: activity_to_openconfig },
    Codec { name: "instance-type", down: instance_to_native, up: instance_to_openconfig },
    Codec { name: "next-hop", down: next_hop_to_native, up: next_hop_to_openconfig },
    Codec { name: "vlan-id-union", down: vlan_id_to_native, up: |value| Some(value.clone()) },
    Codec { name: "role", down: role_to_native, up: role_to_openconfig },
    Codec {
        name: "grpc-services",
        down: |_| Err("it is state".to_owned()),
        up: services_to_openconfig,
    },
    Codec { name: "logical", down: |_| Err("it is state".to_owned()), up: logical_to_openconfig },
    Codec {
        name: "component-type",
        down: |_| Err("it is state".to_owned()),
        up: |value| identity_of(value, &COMPONENT_TYPES),
    },
    Codec {
        name: "component-status",
        down: |_| Err("it is state".to_owned()),
        up: |value| identity_of(value, &COMPONENT_STATUSES),
    },
    Codec {
        name: "route-origin",
        down: |_| Err("it is state".to_owned()),
        up: |value| identity_of(value, &ROUTE_ORIGINS),
    },
    Codec {
        name: "alarm-resource",
        down: |_| Err("it is state".to_owned()),
        up: alarm_resource_to_openconfig,
    },
    Codec {
        name: "alarm-severity",
        down: |_| Err("it is state".to_owned()),
        up: |value| identity_of(value, &ALARM_SEVERITIES),
    },
    Codec {
        name: "alarm-type",
        down: |_| Err("it is state".to_owned()),
        up: alarm_type_to_openconfig,
    },
];

impl Codec {
    pub fn by_name(name: &str) -> Option<&'static Codec> {
        CODECS.iter().find(|codec| codec.name == name)
    }
}

/// A number that the kernel keeps in 32 bits with a sign.
fn int32_to_native(value: &Value) -> Result<Value, String> {
    match value {
        Value::Uint(number) if i32::try_from(*number).is_err() => {
            Err(format!("{number} is too large: the kernel takes {} at most", i32::MAX))
        }
        number => Ok(number.clone()),
    }
}

fn mtu_to_native(value: &Value) -> Result<Value, String> {
    match value {
        Value::Uint(octets) if *octets >= ETHERNET_HEADER + MIN_MTU => {
            Ok(Value::Uint(octets - ETHERNET_HEADER))
        }
        Value::Uint(octets) => Err(format!(
            "an MTU of {octets} bytes is too small: with the {ETHERNET_HEADER} bytes of the Ethernet \
             header it must be {} at least",
            ETHERNET_HEADER + MIN_MTU
        )),
        _ => Err("not a number of bytes".to_owned()),
    }
}

/// Converts a link's MTU. The 65536 bytes of a loopback exceed OpenConfig's uint16.
fn mtu_to_openconfig(value: &Value) -> Option<Value> {
    match value {
        Value::Uint(octets) => {
            let octets = octets.checked_add(ETHERNET_HEADER)?;
            u16::try_from(octets).is_ok().then_some(Value::Uint(octets))
        }
        _ => None,
    }
}

fn family_mtu_to_native(value: &Value) -> Result<Value, String> {
    match value {
        Value::Uint(octets) if *octets > MAX_MTU => {
            Err(format!("an MTU of {octets} bytes is too large: the limit is {MAX_MTU}"))
        }
        Value::Uint(_) => Ok(value.clone()),
        _ => Err("not a number of bytes".to_owned()),
    }
}

/// MTU of a link, if the family can use it.
fn family_mtu_to_openconfig(value: &Value, least: u64) -> Option<Value> {
    let fits = |octets| (least..=MAX_MTU).contains(octets);
    matches!(value, Value::Uint(octets) if fits(octets)).then(|| value.clone())
}

/// `(Mbit/s, OpenConfig identity)`.
const SPEEDS: &[(u64, &str)] = &[
    (10, "openconfig-if-ethernet:SPEED_10MB"),
    (100, "openconfig-if-ethernet:SPEED_100MB"),
    (1_000, "openconfig-if-ethernet:SPEED_1GB"),
    (2_500, "openconfig-if-ethernet:SPEED_2500MB"),
    (5_000, "openconfig-if-ethernet:SPEED_5GB"),
    (10_000, "openconfig-if-ethernet:SPEED_10GB"),
    (25_000, "openconfig-if-ethernet:SPEED_25GB"),
    (40_000, "openconfig-if-ethernet:SPEED_40GB"),
    (50_000, "openconfig-if-ethernet:SPEED_50GB"),
    (100_000, "openconfig-if-ethernet:SPEED_100GB"),
    (200_000, "openconfig-if-ethernet:SPEED_200GB"),
    (400_000, "openconfig-if-ethernet:SPEED_400GB"),
    (600_000, "openconfig-if-ethernet:SPEED_600GB"),
    (800_000, "openconfig-if-ethernet:SPEED_800GB"),
    (1_600_000, "openconfig-if-ethernet:SPEED_1600GB"),
];

fn speed_to_native(value: &Value) -> Result<Value, String> {
    let Value::Identity(identity) = value else { return Err("not a port speed".to_owned()) };
    match SPEEDS.iter().find(|(_, other)| identity == other) {
        Some((mbps, _)) => Ok(Value::Uint(*mbps)),
        None => Err(format!("`{identity}` is not a speed that a port can be configured with")),
    }
}

/// Converts a speed. One without an OpenConfig identity becomes the identity for unknown.
fn speed_to_openconfig(value: &Value) -> Option<Value> {
    let Value::Uint(speed) = value else { return None };
    let entry = SPEEDS.iter().find(|(mbps, _)| mbps == speed);
    let identity = entry.map_or("openconfig-if-ethernet:SPEED_UNKNOWN", |(_, identity)| identity);
    Some(Value::Identity(Name::constant(identity)))
}

/// `(OpenConfig identity, native enum)`. Of several rows with one identity, the first is used towards native.
const TYPES: &[(&str, &str)] = &[
    ("iana-if-type:ethernetCsmacd", "physical"),
    ("iana-if-type:softwareLoopback", "loopback"),
    ("iana-if-type:bridge", "bridge"),
    ("iana-if-type:ethernetCsmacd", "veth"),
    ("iana-if-type:softwareLoopback", "dummy"),
    ("iana-if-type:ethernetCsmacd", "macvlan"),
    ("iana-if-type:ethernetCsmacd", "ipvlan"),
    ("iana-if-type:l2vlan", "vlan"),
    ("iana-if-type:tunnel", "vxlan"),
    ("iana-if-type:ieee8023adLag", "bond"),
];

fn type_to_native(value: &Value) -> Result<Value, String> {
    let Value::Identity(identity) = value else { return Err("not an interface type".to_owned()) };
    match TYPES.iter().find(|(oc, native)| identity == oc && *native != "vxlan") {
        Some((_, native)) => Ok(Value::Enum(Name::constant(native))),
        None => Err(format!("interfaces of type `{identity}` are not supported")),
    }
}

fn type_to_openconfig(value: &Value) -> Option<Value> {
    let Value::Enum(word) = value else { return None };
    let (identity, _) = TYPES.iter().find(|(_, native)| word == native)?;
    Some(Value::Identity(Name::constant(identity)))
}

/// `(OpenConfig enum, native enum)`. OpenConfig has no word for the other modes of bonds.
const LAG_TYPES: [(&str, &str); 2] = [("LACP", "802.3ad"), ("STATIC", "balance-xor")];

fn lag_type_to_native(value: &Value) -> Result<Value, String> {
    let Value::Enum(word) = value else { return Err("not a lag-type".to_owned()) };
    let known = LAG_TYPES.iter().find(|(lag_type, _)| word == lag_type);
    let known = known.map(|(_, mode)| Value::Enum(Name::constant(mode)));
    known.ok_or_else(|| format!("lag-type `{word}` is not supported"))
}

fn lag_type_to_openconfig(value: &Value) -> Option<Value> {
    let Value::Enum(word) = value else { return None };
    let (lag_type, _) = LAG_TYPES.iter().find(|(_, mode)| word == mode)?;
    Some(Value::Enum(Name::constant(lag_type)))
}

/// Converts whether an end of LACP sends first (ACTIVE), or waits for the other end (PASSIVE).
fn activity_to_native(value: &Value) -> Result<Value, String> {
    match value {
        Value::Enum(word) => Ok(Value::Bool(*word == "ACTIVE")),
        _ => Err("not an activity of LACP".to_owned()),
    }
}

fn activity_to_openconfig(value: &Value) -> Option<Value> {
    match value {
        Value::Bool(true) => Some(Value::Enum(Name::constant("ACTIVE"))),
        Value::Bool(false) => Some(Value::Enum(Name::constant("PASSIVE"))),
        _ => None,
    }
}

/// True for a link that exists in software only.
fn logical_to_openconfig(value: &Value) -> Option<Value> {
    match value {
        Value::Enum(word) => Some(Value::Bool(*word != "physical")),
        _ => None,
    }
}

const DEFAULT_INSTANCE: &str = "openconfig-network-instance-types:DEFAULT_INSTANCE";

fn instance_to_native(value: &Value) -> Result<Value, String> {
    match value {
        Value::Identity(identity) if *identity == DEFAULT_INSTANCE => {
            Ok(Value::Enum(Name::constant("default-instance")))
        }
        Value::Identity(identity) => {
            Err(format!("network instances of type `{identity}` are not supported"))
        }
        _ => Err("not a network instance type".to_owned()),
    }
}

fn instance_to_openconfig(_: &Value) -> Option<Value> {
    Some(Value::Identity(Name::constant(DEFAULT_INSTANCE)))
}

/// Accepts the id of one tag. The leaf is a union with a text of two ids, for two tags.
fn vlan_id_to_native(value: &Value) -> Result<Value, String> {
    match value {
        Value::Uint(_) => Ok(value.clone()),
        other => Err(format!("`{other}` has two VLAN tags, and one is supported")),
    }
}

const ADMIN_ROLE: &str = "openconfig-aaa-types:SYSTEM_ROLE_ADMIN";

/// Accepts the roles of this agent by their own names, and the role with an OpenConfig identity by that as well. Any
/// other name is a role without rights of its own.
/// The leaf is a union with a string first, so identities arrive as text (RFC 7950 9.12).
fn role_to_native(value: &Value) -> Result<Value, String> {
    let text = value.to_string();
    let word = match bare_identity(&text) {
        "SYSTEM_ROLE_ADMIN" | "admin" => "admin",
        "read-only" => "read-only",
        _ if is_role_name(&text) => return Ok(Value::Str(text.into())),
        _ => {
            return Err(format!(
                "`{text}` is not a role: use SYSTEM_ROLE_ADMIN, admin, read-only, or a name of at most {MAX_ROLE_NAME} letters, \
                 digits, `.`, `_` and `-`"
            ));
        }
    };
    Ok(Value::Enum(Name::constant(word)))
}

fn role_to_openconfig(value: &Value) -> Option<Value> {
    match value {
        Value::Enum(word) if word.as_str() == "admin" => {
            Some(Value::Str(SmolStr::new_static(ADMIN_ROLE)))
        }
        Value::Enum(word) => Some(Value::Str((*word).into())),
        Value::Str(_) => Some(value.clone()),
        _ => None,
    }
}

/// Converts the services that OpenConfig has identities for.
fn services_to_openconfig(value: &Value) -> Option<Value> {
    let Value::List(words) = value else { return None };
    let identity = |word: &Value| match word {
        Value::Str(word) if word == "gnmi" => {
            Some(Value::Identity(Name::constant("openconfig-system-grpc:GNMI")))
        }
        _ => None,
    };
    let identities: Vec<Value> = words.iter().filter_map(identity).collect();
    (!identities.is_empty()).then(|| Value::List(identities.into()))
}

/// The bare item that has the fault: `eth1` of `interface:eth1`.
fn alarm_resource_to_openconfig(value: &Value) -> Option<Value> {
    let Value::Str(resource) = value else { return None };
    let item = resource.split_once(':').map_or(resource.as_str(), |(_, item)| item);
    Some(Value::Str(item.into()))
}

/// Identities of `OPENCONFIG_ALARM_SEVERITY`, each with its native word.
const ALARM_SEVERITIES: [(&str, &str); 4] = [
    ("openconfig-alarm-types:WARNING", "WARNING"),
    ("openconfig-alarm-types:MINOR", "MINOR"),
    ("openconfig-alarm-types:MAJOR", "MAJOR"),
    ("openconfig-alarm-types:CRITICAL", "CRITICAL"),
];

/// Identities of components, each with its native word.
const COMPONENT_TYPES: [(&str, &str); 7] = [
    ("openconfig-platform-types:CHASSIS", "CHASSIS"),
    ("openconfig-platform-types:CPU", "CPU"),
    ("openconfig-platform-types:OPERATING_SYSTEM", "OPERATING_SYSTEM"),
    ("openconfig-platform-types:PORT", "PORT"),
    ("openconfig-platform-types:STORAGE", "STORAGE"),
    ("openconfig-platform-types:SENSOR", "SENSOR"),
    ("openconfig-platform-types:FAN", "FAN"),
];

/// Identities of `COMPONENT_OPER_STATUS`, each with its native word.
const COMPONENT_STATUSES: [(&str, &str); 2] = [
    ("openconfig-platform-types:ACTIVE", "ACTIVE"),
    ("openconfig-platform-types:DISABLED", "DISABLED"),
];

/// Identities of `INSTALL_PROTOCOL_TYPE` that routes of the kernel may have, each with its native word.
const ROUTE_ORIGINS: [(&str, &str); 6] = [
    ("openconfig-policy-types:BGP", "BGP"),
    ("openconfig-policy-types:DIRECTLY_CONNECTED", "DIRECTLY_CONNECTED"),
    ("openconfig-policy-types:ISIS", "ISIS"),
    ("openconfig-policy-types:OSPF", "OSPF"),
    ("openconfig-policy-types:OSPF3", "OSPF3"),
    ("openconfig-policy-types:STATIC", "STATIC"),
];

/// The identity of a native word.
fn identity_of(value: &Value, identities: &[(&'static str, &str)]) -> Option<Value> {
    let Value::Enum(word) = value else { return None };
    let known = identities.iter().find(|(_, known)| *word == *known);
    known.map(|(identity, _)| Value::Identity(Name::constant(identity)))
}

/// Types of alarms that OpenConfig has an identity for, each with it. The leaf is a union with a string first, so identities
/// are text (RFC 7950 9.12).
const ALARM_TYPES: [(&str, &str); 2] =
    [("link-down", "openconfig-alarm-types:LOS"), ("link-flapping", "openconfig-alarm-types:LOS")];

/// The identity of a type, or the native name of one that OpenConfig has no identity for.
fn alarm_type_to_openconfig(value: &Value) -> Option<Value> {
    let Value::Str(name) = value else { return None };
    let identity = ALARM_TYPES.iter().find(|(known, _)| name == known);
    let text = identity.map_or_else(|| name.clone(), |(_, identity)| SmolStr::new_static(identity));
    Some(Value::Str(text))
}

/// Identities of `LOCAL_DEFINED_NEXT_HOP`, each with its native word.
const LOCAL_NEXT_HOPS: [(&str, &str); 2] = [
    ("openconfig-local-routing:DROP", "drop"),
    ("openconfig-local-routing:LOCAL_LINK", "local-link"),
];

fn next_hop_to_native(value: &Value) -> Result<Value, String> {
    match value {
        Value::Identity(identity) => {
            let known = LOCAL_NEXT_HOPS.iter().find(|(name, _)| *identity == *name);
            let known = known.map(|(_, word)| Value::Enum(Name::constant(word)));
            known.ok_or_else(|| format!("next hop `{identity}` is not supported"))
        }
        Value::Str(_) => Ok(value.clone()),
        _ => Err("not an address".to_owned()),
    }
}

fn next_hop_to_openconfig(value: &Value) -> Option<Value> {
    match value {
        Value::Enum(_) => identity_of(value, &LOCAL_NEXT_HOPS),
        _ => Some(value.clone()),
    }
}
