//! Property: a configuration results in the same box, whatever came before.

use proptest::prelude::*;
use proptest::sample::subsequence;

use super::harness::SimulatedBox;
use super::tests::{assert_same, change, commit};

/// Groups of alternatives; one of each can be configured at a time.
const LINES: [&[&str]; 12] = [
    &[
        "port eth0",
        "port eth0 down",
        "port eth0 mtu 1400 alias x",
        "port eth0 master br0",
        "port eth0 aggregate b0",
    ],
    &[
        "port eth1 v4-forwarding",
        "port eth1 mtu 1300 master br0",
        "port eth1 down aggregate b0",
        "port eth9 mtu 1400",
    ],
    &["bridge br0", "bridge br0 stp alias y", "dummy br0"],
    &["bond b0", "bond b0 down mtu 1400", "bond b0 mode balance-xor", "bond b0 master br0"],
    &["lacp b0", "lacp b0 fast", "lacp b0 passive priority 7"],
    &["veth v0 v1", "veth v0 v1 mtu 1400", "veth v0 v2"],
    &["vxlan vx 7 dev v0", "vxlan vx 8", "vxlan vx 7 dev br0"],
    &["address eth0 192.0.2.1/24", "address eth0 192.0.2.1/25"],
    &["address eth0 2001:db8::1/64", "address v0 2001:db8::1/64", "address br0 2001:db8::1/64"],
    &["neighbor eth0 192.0.2.7 02:00:00:00:00:07", "neighbor br0 192.0.2.7 02:00:00:00:00:08"],
    &[
        "route 10.0.0.0/8 via 192.0.2.2",
        "route 10.0.0.0/8 via 192.0.2.2 via 192.0.2.3",
        "route 10.0.0.0/8 metric 5 dev eth0",
        "route 10.0.0.0/8 drop",
    ],
    &["route 2001:db8:1::/48 via 2001:db8::2", "route 2001:db8:1::/48 dev v0"],
];

/// Some of the groups, with one alternative of each.
fn config() -> impl Strategy<Value = String> {
    let groups = subsequence(LINES.to_vec(), 0..=LINES.len());
    groups
        .prop_flat_map(|groups| {
            groups
                .into_iter()
                .map(|group| proptest::sample::select(group.to_vec()))
                .collect::<Vec<_>>()
        })
        .prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_box_does_not_depend_on_earlier_configurations(configs in proptest::collection::vec(config(), 1..4)) {
        let mut agent = SimulatedBox::new(&["eth0", "eth1"]);
        let before = agent.contents();
        let mut from = String::new();
        for to in configs {
            commit(&mut agent, &from, &to);
            prop_assert_eq!(agent.plan(change("", &to)).unwrap(), "", "{} => {}", from, to);
            let mut direct = SimulatedBox::new(&["eth0", "eth1"]);
            commit(&mut direct, "", &to);
            assert_same(&agent.contents(), &direct.contents(), &format!("{from}\n=>\n{to}"));
            from = to;
        }
        commit(&mut agent, &from, "");
        assert_same(&agent.contents(), &before, &format!("{from}\n=> nothing"));
    }
}
