//! Random requests on few names, and boxes to begin with.

use proptest::prelude::*;

use super::super::model::some_request;
use super::super::secrets::edit_with;
use super::super::stack::{PORTS_DISABLED, factory, with_layer};
use super::super::union_model::some_union;
use super::*;

const OC_ROUTES: &str = "/protocols/protocol[identifier=STATIC][name=s]/static-routes";
const USERS: &str = "/system/aaa/authentication/users";

/// Requests beside those of [`some_request`], on few names, so that they meet.
fn other_request() -> impl Strategy<Value = String> {
    let route =
        || prop::sample::select(vec!["10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8", "13.0.0.0/8"]);
    let port = || prop::sample::select(vec!["a", "b", "eth0", "eth1", "c"]);
    let ip = || prop::sample::select(vec!["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let native_route = |prefix: &str| format!("native:{NI}/static[name=s]/route[prefix={prefix}]");
    let openconfig_route = |prefix: &str| format!("{NI}{OC_ROUTES}/static[prefix={prefix}]");
    let address = |port: &str, ip: &str| {
        format!(
            "/interfaces/interface[name={port}]/subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip={ip}]"
        )
    };
    let native_address = |port: &str, ip: &str| {
        format!("native:/interfaces/interface[name={port}]/ipv4/address[ip={ip}]")
    };
    prop_oneof![
        4 => (route(), 0..3u32).prop_map(move |(prefix, n)| format!(
            "update {}/description \"d{n}\"", native_route(prefix)
        )),
        3 => route().prop_map(move |prefix| format!("delete {}", native_route(prefix))),
        2 => (route(), 0..3u32).prop_map(move |(prefix, n)| format!(
            "update {}/config/description \"d{n}\"", openconfig_route(prefix)
        )),
        2 => (route(), route(), 0..2u32).prop_map(move |(one, other, n)| format!(
            "update {NI} {{\"protocols\":{{\"protocol\":[{{\"identifier\":\"STATIC\",\"name\":\"s\",\
             \"config\":{{\"identifier\":\"STATIC\",\"name\":\"s\"}},\
             \"static-routes\":{{\"static\":[{{\"prefix\":\"{one}\",\"config\":{{\"prefix\":\"{one}\",\
             \"description\":\"e{n}\"}}}}{}]}}}}]}}}}",
            if one == other { String::new() } else {
                format!(",{{\"prefix\":\"{other}\",\"config\":{{\"prefix\":\"{other}\"}}}}")
            }
        )),
        2 => route().prop_map(move |prefix| format!("delete {}", openconfig_route(prefix))),
        3 => (port(), ip(), 24..26u32).prop_map(move |(port, ip, n)| format!(
            "update {}/config/prefix-length {n}", address(port, ip)
        )),
        3 => (port(), ip()).prop_map(move |(port, ip)| format!("delete {}", address(port, ip))),
        3 => (port(), ip(), 24..26u32).prop_map(move |(port, ip, n)| format!(
            "update {}/prefix-length {n}", native_address(port, ip)
        )),
        2 => (port(), ip()).prop_map(move |(port, ip)| format!("delete {}", native_address(port, ip))),
        1 => (port(), ip()).prop_map(move |(port, ip)| format!(
            "update {}/config/ip \"{ip}\"", address(port, ip)
        )),
        2 => port().prop_map(|port| format!("delete /interfaces/interface[name={port}]")),
        2 => port().prop_map(|port| format!("replace native:/interfaces/interface[name={port}] {{\"mtu\":1400}}")),
        1 => (port(), 1500..1502u32).prop_map(|(port, mtu)| format!(
            "replace /interfaces/interface[name={port}] \
             {{\"name\":\"{port}\",\"config\":{{\"name\":\"{port}\",\"mtu\":{mtu}}}}}"
        )),
        1 => Just("delete /interfaces/interface[name=*]/config/description".to_owned()),
        1 => Just("delete native:/network-instances".to_owned()),
        1 => Just("replace /system {}".to_owned()),
        2 => (0..3u32).prop_map(|n| format!("update /system/config/hostname \"h{n}\"")),
        2 => (0..3u32).prop_map(|n| format!("update native:/system/motd-banner \"m{n}\"")),
        1 => Just("delete native:/system/hostname".to_owned()),
        2 => (10..13u32).prop_map(|n| format!("update native:/reconciliation/resync-interval {n}")),
        1 => Just("delete native:/reconciliation/resync-interval".to_owned()),
        1 => prop::sample::select(vec!["report", "repair"]).prop_map(|action| format!(
            "update native:/reconciliation/drift-policy[object=link]/action \"{action}\""
        )),
        1 => Just("delete native:/reconciliation".to_owned()),
        1 => (0..3u32).prop_map(|n| format!(
            "update / {{\"system\":{{\"config\":{{\"login-banner\":\"l{n}\"}}}}}}"
        )),
        1 => prop::sample::select(vec!["u", "v"]).prop_map(|name| format!(
            "update native:/system/user[username={name}]/role \"admin\""
        )),
        1 => prop::sample::select(vec!["u", "v"]).prop_map(|name| format!(
            "delete /system/aaa/authentication/users/user[username={name}]"
        )),
        2 => some_union(),
    ]
}

/// Requests by CLI text.
fn text_request() -> impl Strategy<Value = String> {
    let route = || prop::sample::select(vec!["10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8"]);
    let port = || prop::sample::select(vec!["a", "b", "eth0", "eth1", "c"]);
    let ip = || prop::sample::select(vec!["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let in_port = |port: &str, lines: &str| format!("interface {port}\n  {lines}");
    let lines = prop_oneof![
        3 => (port(), 0..2u32).prop_map(move |(port, n)| in_port(port, &format!("mtu {}", 1400 + n))),
        2 => port().prop_map(move |port| in_port(port, "description cli\n  enabled true")),
        2 => port().prop_map(move |port| in_port(port, "no mtu")),
        1 => port().prop_map(move |port| in_port(port, "no description\n  no enabled")),
        2 => port().prop_map(|port| format!("no interface {port}")),
        2 => port().prop_map(|port| format!("interface {port}")),
        3 => (port(), ip(), 24..26u32).prop_map(move |(port, ip, n)| {
            in_port(port, &format!("ipv4 address {ip}\n    prefix-length {n}"))
        }),
        2 => (port(), ip()).prop_map(move |(port, ip)| in_port(port, &format!("no ipv4 address {ip}"))),
        3 => (route(), 0..2u32).prop_map(|(prefix, n)| {
            format!("network-instance DEFAULT static s route {prefix}\n  description d{n}")
        }),
        2 => route().prop_map(|prefix| format!("no network-instance DEFAULT static s route {prefix}")),
        1 => Just("no network-instance DEFAULT static s".to_owned()),
        1 => (0..3u32).prop_map(|n| format!("system motd-banner m{n}")),
        1 => Just("no system hostname".to_owned()),
        1 => prop::sample::select(vec!["x", "y", "x y"]).prop_map(|it| format!("system search-domain {it}")),
        1 => prop::sample::select(vec!["u", "v"]).prop_map(|user| format!("no system user {user}")),
        1 => prop::sample::select(vec!["u", "v"])
            .prop_map(|user| format!("system user {user}\n  role admin")),
    ];
    let text = prop::collection::vec(lines, 1..3).prop_map(|lines| lines.join("\n"));
    let kind = prop_oneof![15 => Just("update"), 1 => Just("replace"), 1 => Just("union")];
    (kind, text).prop_map(|(kind, text)| format!("{kind} cli: {text}"))
}

/// Requests with what is in no tree: secrets of users, and the annotation of the root.
fn hidden_request() -> impl Strategy<Value = String> {
    let user = || prop::sample::select(vec!["u", "v"]);
    let config = |user: &str| format!("{USERS}/user[username={user}]/config");
    let root = |text: &str| format!("{{\"@\":{{\"{}\":\"{text}\"}}}}", crate::edit::ANNOTATION);
    prop_oneof![
        5 => (user(), 8..10usize).prop_map(move |(user, length)| format!(
            "update {} {{\"role\":\"read-only\",\"password\":\"{}\"}}", config(user), "x".repeat(length)
        )),
        2 => (user(), 8..10usize).prop_map(move |(user, length)| format!(
            "update {}/password \"{}\"", config(user), "x".repeat(length)
        )),
        2 => user().prop_map(move |user| format!("update {}/ssh-key \"key\"", config(user))),
        1 => user().prop_map(move |user| format!("delete {}/password", config(user))),
        1 => user().prop_map(move |user| format!("delete {}/role", config(user))),
        2 => user().prop_map(move |user| format!("delete {USERS}/user[username={user}]")),
        1 => Just(format!("delete {USERS}/user[username=*]/config/role")),
        1 => prop::sample::select(vec!["YQ==", "AAAA"]).prop_map(move |it| format!("update / {}", root(it))),
    ]
}

/// Changes of the boot configuration, and switches, with the same names.
fn box_request() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        3 => (prop::sample::select(vec!["a", "b", "c"]), 0..2u32)
            .prop_map(|(port, n)| format!("interface {port}\n  mtu {}", 1300 + n)),
        2 => prop::sample::select(vec!["a", "b", "eth0"]).prop_map(|port| format!("no interface {port}")),
        1 => Just("interface b\n  no description".to_owned()),
        2 => prop::sample::select(vec!["10.0.0.1", "10.0.0.2"]).prop_map(|ip| format!(
            "interface a\n  ipv4 address {ip}\n    prefix-length 24"
        )),
        1 => Just("network-instance DEFAULT static s route 10.0.0.0/8\n  description boot".to_owned()),
        1 => Just("system motd-banner boot".to_owned()),
        1 => Just("system user u\n  role admin".to_owned()),
    ];
    let text = prop::collection::vec(line, 0..3).prop_map(|lines| lines.join("\n"));
    prop_oneof![
        6 => text.clone().prop_map(|text| format!("boot: {text}")),
        2 => text.prop_map(|text| format!("try: {text}")),
        1 => Just("confirm: ".to_owned()),
        1 => Just("back: ".to_owned()),
        3 => (prop::sample::select(vec!["gnsi", "bootz"]), any::<bool>())
            .prop_map(|(service, on)| format!("switch: {service} {on}")),
    ]
}

/// The configuration after a request, with what it named.
pub(super) fn apply(
    base: &Configuration,
    request: &str,
) -> Result<(Configuration, EditScope), EditErrors> {
    let (kind, rest) = request.split_once(": ").unwrap_or_default();
    let boot = || {
        let vendor = rest.as_bytes().to_vec();
        Arc::new(BootConfiguration { vendor, ..BootConfiguration::default() })
    };
    let change = match kind {
        "boot" if rest.is_empty() => BootChange::Set(None),
        "boot" => BootChange::Set(Some(boot())),
        "try" => BootChange::Try(boot()),
        "confirm" => BootChange::Confirm,
        "back" => BootChange::GoBack,
        "switch" => {
            let service =
                Namespace::ALL.into_iter().find(|it| rest.starts_with(it.name())).unwrap();
            return Ok((base.switched(service, rest.ends_with("true")), EditScope::of_box()));
        }
        _ => return base.examined(&edit_with(request)),
    };
    Ok((base.boot_changed(&change)?, EditScope::of_box()))
}

/// A request of a client, or a change of the box.
pub(super) fn any_request() -> impl Strategy<Value = String> {
    let one = || {
        prop_oneof![
            2 => some_request(),
            6 => other_request(),
            3 => text_request(),
            3 => hidden_request(),
        ]
    };
    prop_oneof![
        8 => one(),
        3 => (one(), one()).prop_map(|(one, other)| format!("{one}; {other}")),
        2 => box_request(),
    ]
}

/// Parts of a configuration beside those that clients' requests make.
#[derive(Clone, Debug)]
pub(super) struct Start {
    /// Clients give users their secrets.
    is_gnsi_off: bool,
    factory: bool,
    boot: bool,
    lease: bool,
    requests: Vec<String>,
}

pub(super) fn some_box() -> impl Strategy<Value = Start> {
    let requests = prop::collection::vec(any_request(), 0..12);
    (prop::bool::weighted(0.8), any::<bool>(), any::<bool>(), any::<bool>(), requests).prop_map(
        |(is_gnsi_off, factory, boot, lease, requests)| Start {
            is_gnsi_off,
            factory,
            boot,
            lease,
            requests,
        },
    )
}

impl Start {
    pub(super) fn configuration(&self) -> Configuration {
        let mut start = if self.factory { factory(PORTS_DISABLED) } else { empty() };
        if self.boot {
            let text = "update native:/system/domain-name \"boot\"; \
                        update native:/interfaces/interface[name=c]/mtu 1300";
            start = with_layer(&start, LayerKey::BOOT_NATIVE, text);
            let mut layers = start.layers().clone();
            let tree = layers.tree_mut(LayerKey::BOOT_NATIVE);
            let absent = |path: &str, tree: &mut Tree<LeafMark>| {
                let path = models().native.resolve_write(&path.parse().unwrap()).unwrap();
                let value = crate::value::Value::Str("".into());
                tree.set_leaf(
                    &models().native,
                    &path,
                    crate::tree::Leaf::new(value, LeafMark::Absent),
                );
            };
            absent("/interfaces/interface[name=b]/description", tree);
            absent("/system/login-banner", tree);
            start =
                Configuration::new(models().clone(), layers).with_factory(start.factory().clone());
        }
        if self.lease {
            let lease = "update native:/interfaces/interface[name=eth0]/ipv4/address[ip=192.0.2.9]/prefix-length 24; \
                 update native:/interfaces/interface[name=eth0]/enabled true; \
                 update native:/network-instances/network-instance[name=DEFAULT]/static[name=lease]/\
                 route[prefix=0.0.0.0/0]/next-hop[index=0]/interface \"eth0\"";
            start = with_layer(&start, LayerKey::LEASE, lease);
        }
        let start = start.switched(Namespace::Gnsi, !self.is_gnsi_off);
        self.requests.iter().fold(start, |configuration, request| {
            apply(&configuration, request).map_or(configuration, |(after, _)| after)
        })
    }
}
