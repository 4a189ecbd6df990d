//! Settings of a new network namespace that do not depend on the host.
//!
//! The kernel gives each new namespace the IPv4 settings of the host's own network, and those of IPv6 as well where
//! `net.core.devconf_inherit_init_net` asks for it. A host with containers forwards, one with systemd filters reverse paths and promotes
//! secondary addresses, and every namespace that a test makes there does so too. The fixtures of all crates call [`restore`] in
//! a namespace that they have made, so a test may rely on the defaults of the kernel.

use std::fs;
use std::io::ErrorKind;

/// Settings below `net/ipv4/conf`, with the defaults of the kernel. Each counts for the whole namespace (`all`), for links that
/// come later (`default`), and for the loopback, which is there from the beginning.
const IPV4: [(&str, &str); 12] = [
    ("forwarding", "0"),
    ("rp_filter", "0"),
    ("accept_local", "0"),
    ("route_localnet", "0"),
    ("promote_secondaries", "0"),
    ("ignore_routes_with_linkdown", "0"),
    ("arp_ignore", "0"),
    ("arp_announce", "0"),
    ("arp_notify", "0"),
    ("proxy_arp", "0"),
    ("accept_redirects", "1"),
    ("send_redirects", "1"),
];

/// Settings below `net/ipv6/conf`, with the defaults of the kernel. A loopback has others of its own for some of them, which no host
/// changes.
const IPV6: [(&str, &str); 12] = [
    ("disable_ipv6", "0"),
    ("forwarding", "0"),
    ("accept_ra", "1"),
    ("accept_redirects", "1"),
    ("autoconf", "1"),
    ("dad_transmits", "1"),
    ("optimistic_dad", "0"),
    ("use_tempaddr", "0"),
    ("addr_gen_mode", "0"),
    ("keep_addr_on_down", "0"),
    ("proxy_ndp", "0"),
    ("ignore_routes_with_linkdown", "0"),
];

/// Duplicate address detection, below `net/ipv6/conf`: links that come later decide by themselves.
const IPV6_ACCEPT_DAD: [(&str, &str); 2] = [("all", "0"), ("default", "1")];

/// Gives the network namespace of the calling thread the settings that the kernel has without a host.
///
/// # Panics
/// Where a setting differs and cannot be written: `/proc/sys` is read-only, or the caller has no CAP_NET_ADMIN in the namespace.
pub(crate) fn restore() {
    for (path, value) in settings() {
        set(&path, value);
    }
}

/// Paths of all settings, with their values.
pub(crate) fn settings() -> impl Iterator<Item = (String, &'static str)> {
    let of = |family: &'static str, links: &'static [&str], settings: &'static [(&str, &str)]| {
        let path =
            move |link: &str, name: &str| format!("/proc/sys/net/{family}/conf/{link}/{name}");
        links.iter().flat_map(move |link| {
            settings.iter().map(move |&(name, value)| (path(link, name), value))
        })
    };
    let dad = IPV6_ACCEPT_DAD
        .iter()
        .map(|&(link, value)| (format!("/proc/sys/net/ipv6/conf/{link}/accept_dad"), value));
    of("ipv4", &["all", "default", "lo"], &IPV4)
        .chain(of("ipv6", &["all", "default"], &IPV6))
        .chain(dad)
}

/// Writes a setting that has another value; one that this kernel does not know is left out.
fn set(path: &str, value: &str) {
    match fs::read_to_string(path) {
        Ok(found) if found.trim() == value => {}
        Ok(found) => fs::write(path, value).unwrap_or_else(|error| {
            panic!(
                "{path} is {}, tests need {value}, and it cannot be written: {error}",
                found.trim()
            )
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => panic!("{path} cannot be read: {error}"),
    }
}
