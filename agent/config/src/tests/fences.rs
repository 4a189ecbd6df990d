//! The fence layer: what it may hold, on whose behalf, and what becomes of it beside the other layers.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::model::some_request;
use super::stack::{PORTS_DISABLED, check_lines, factory, with_layer};
use super::*;

const ETH0: &str = "/interfaces/interface[name=eth0]";
const STATIC: &str = "/network-instances/network-instance[name=DEFAULT]/static[name=s]";

fn policy(name: &str) -> FenceOwner {
    FenceOwner::Policy(name.into())
}

fn shut(interface: &str) -> FenceItem {
    FenceItem::Shut { interface: interface.into() }
}

fn detach(interface: &str) -> FenceItem {
    FenceItem::Detach { interface: interface.into() }
}

fn hop(prefix: &str, index: u32) -> String {
    format!("{STATIC}/route[prefix={prefix}]/next-hop[index={index}]")
}

fn raise(prefix: &str, index: u32, metric: u32) -> FenceItem {
    let next_hop = models().native.resolve_write(&hop(prefix, index).parse().unwrap()).unwrap();
    FenceItem::Raise { next_hop, metric }
}

fn set(owner: &FenceOwner, items: &[FenceItem]) -> FenceChange {
    FenceChange::Items { owner: owner.clone(), lift: Lift::Nothing, set: items.to_vec() }
}

fn lift(owner: &FenceOwner, lift: Lift) -> FenceChange {
    FenceChange::Items { owner: owner.clone(), lift, set: Vec::new() }
}

/// The configuration after a change of the fence layer, which is as from nothing.
#[track_caller]
fn fenced(configuration: &Configuration, change: &FenceChange) -> Configuration {
    let new = match configuration.fenced(change) {
        Ok(new) => new,
        Err(errors) => panic!("{change:?}: {errors}"),
    };
    check_scratch(&new);
    new
}

fn check_scratch(it: &Configuration) {
    let scratch = Configuration::new(models().clone(), it.layers().clone());
    assert_eq!(lines_effective(it), lines_effective(&scratch));
    assert_eq!(it.effective(), scratch.effective());
    assert_eq!(it.entries(), scratch.entries());
    for origin in [Origin::OpenConfig, Origin::Native] {
        assert_eq!(it.config_view(origin), scratch.config_view(origin), "{origin}");
    }
}

fn standings(configuration: &Configuration) -> Vec<FenceStanding> {
    configuration.fences().iter().map(|fence| fence.standing).collect()
}

#[track_caller]
fn check_enabled(configuration: &Configuration, want: &[&str]) {
    check_lines(&lines_effective(configuration), &format!("{ETH0}/enabled"), want);
}

#[test]
fn a_shut_port_stays_shut_whatever_clients_ask_for() {
    let start = after(&[&format!("update {ETH0}/config/mtu 1514")]);
    let shown = lines_view(&start, Origin::OpenConfig);
    assert!(shown.contains(&format!("{ETH0}/config/enabled=true default")), "{shown:?}");
    let fence = fenced(&start, &set(&policy("a"), &[shut("eth0")]));
    check_enabled(&fence, &["=false"]);
    assert_eq!(lines_view(&fence, Origin::OpenConfig), shown, "clients read what they wrote");
    for (path, origin) in [("config/enabled", Origin::OpenConfig), ("enabled", Origin::Native)] {
        let prefix = if origin == Origin::Native { "native:" } else { "" };
        let asked = then(&fence, &format!("update {prefix}{ETH0}/{path} true"));
        check_enabled(&asked, &["=false"]);
        check_lines(&lines_view(&asked, origin), &format!("{ETH0}/{path}"), &["=true"]);
        let deleted = then(&asked, "delete /; delete native:/");
        assert_eq!(lines_view(&deleted, origin), [""; 0]);
        check_enabled(&deleted, &["=false"]);
        let free = fenced(&deleted, &lift(&policy("a"), Lift::Everything));
        assert_eq!(lines_effective(&free), [""; 0]);
    }
    let free = fenced(&fence, &lift(&policy("a"), Lift::Items(vec![shut("eth0")])));
    assert_eq!(free.layers(), start.layers());
    assert_eq!(free.effective(), start.effective());
}

#[test]
fn a_link_that_the_agent_makes_goes_with_its_entry_and_its_fence_waits() {
    let bridge = "update native:/interfaces/interface[name=br0]/type \"bridge\"";
    let start = fenced(&after(&[bridge]), &set(&policy("a"), &[shut("br0"), detach("br0")]));
    assert_eq!(standings(&start), [FenceStanding::InForce; 2]);
    let gone = then(&start, "delete native:/interfaces/interface[name=br0]");
    assert_eq!(lines_effective(&gone), [""; 0]);
    assert_eq!(standings(&gone), [FenceStanding::Waits; 2]);
    let back = then(&gone, bridge);
    assert_eq!(back.effective(), start.effective());
}

#[test]
fn an_item_goes_with_its_last_owner() {
    let a = policy("a");
    let b = FenceOwner::Session("7".into());
    let start = after(&[&format!("update {ETH0}/config/enabled true")]);
    let both = fenced(&fenced(&start, &set(&a, &[shut("eth0")])), &set(&b, &[shut("eth0")]));
    let text = show::show(&both, "show effective").unwrap();
    assert!(text.contains("fence of policy a, fence of session 7"), "{text}");
    let one = fenced(&both, &lift(&a, Lift::Everything));
    check_enabled(&one, &["=false"]);
    assert_eq!(one.fences()[0].owners, std::slice::from_ref(&b));
    // Who does not own it lifts nothing, and the same once more changes nothing.
    let same = fenced(&one, &lift(&a, Lift::Items(vec![shut("eth0")])));
    assert_eq!(same.layers(), one.layers());
    assert_eq!(fenced(&one, &set(&b, &[shut("eth0")])).work().entries, 0);
    check_enabled(&fenced(&one, &lift(&b, Lift::Everything)), &["=true"]);
    let living = FenceChange::Retain(BTreeSet::from([a.clone()]));
    assert_eq!(fenced(&both, &living).fences()[0].owners, [a]);
    check_enabled(&fenced(&both, &FenceChange::Retain(BTreeSet::new())), &["=true"]);
}

#[test]
fn a_port_leaves_its_bridge() {
    let start = after(&[
        "update native:/interfaces/interface[name=br0]/type \"bridge\"",
        &format!("update native:{ETH0}/master \"br0\""),
    ]);
    let master = |it: &Configuration| below(&lines_effective(it), &format!("{ETH0}/master"));
    assert_eq!(master(&start), ["=br0"]);
    let both = set(&policy("a"), &[detach("eth0"), shut("eth0")]);
    let fence = fenced(&start, &both);
    assert_eq!(master(&fence), [""; 0]);
    check_enabled(&fence, &["=false"]);
    check_lines(&lines_view(&fence, Origin::Native), &format!("{ETH0}/master"), &["=br0"]);
    let deleted = then(&fence, &format!("delete native:{ETH0}"));
    assert_eq!(master(&deleted), [""; 0]);
    check_enabled(&deleted, &["=false"]);
    let free = fenced(&fence, &lift(&policy("a"), Lift::Items(vec![shut("eth0")])));
    assert_eq!(master(&free), [""; 0]);
    assert_eq!(master(&fenced(&free, &lift(&policy("a"), Lift::Everything))), ["=br0"]);
}

#[test]
fn a_metric_is_in_force_while_it_is_higher() {
    use FenceStanding::{InForce, Lower, Waits};
    let v4 = "10.0.0.0/8";
    let route = |prefix: &str, leaf: &str| format!("update native:{}/{leaf}", hop(prefix, 0));
    let metric = |it: &Configuration, prefix: &str| {
        below(&lines_effective(it), &format!("{}/metric", hop(prefix, 0)))
    };
    // It waits for the route.
    let waiting = fenced(&empty(), &set(&policy("a"), &[raise(v4, 0, 1000)]));
    assert_eq!(lines_effective(&waiting), [""; 0]);
    assert_eq!(standings(&waiting), [Waits]);
    let unset = then(&waiting, &route(v4, "next-hop \"192.0.2.1\""));
    assert_eq!((metric(&unset, v4), standings(&unset)), (vec!["=1000".to_owned()], vec![InForce]));
    let higher = then(&unset, &route(v4, "metric 2000"));
    assert_eq!((metric(&higher, v4), standings(&higher)), (vec!["=2000".to_owned()], vec![Lower]));
    let lower = then(&higher, &route(v4, "metric 5"));
    assert_eq!(metric(&lower, v4), ["=1000"]);
    check_lines(&lines_view(&lower, Origin::Native), &format!("{}/metric", hop(v4, 0)), &["=5"]);
    assert_eq!(metric(&fenced(&lower, &lift(&policy("a"), Lift::Everything)), v4), ["=5"]);
    let gone = then(&lower, &format!("delete native:{STATIC}"));
    assert_eq!((lines_effective(&gone).len(), standings(&gone)), (0, vec![Waits]));
    // The kernel's own metric counts where none is configured: 20, and 1024 in IPv6.
    for (prefix, gateway, unset) in [(v4, "192.0.2.1", 20), ("2001:db8::/32", "fe80::1", 1024)] {
        let start = after(&[&route(prefix, &format!("next-hop \"{gateway}\""))]);
        let equal = fenced(&start, &set(&policy("a"), &[raise(prefix, 0, unset)]));
        assert_eq!((metric(&equal, prefix), standings(&equal)), (vec![], vec![Lower]));
        // Of two owners the higher one counts.
        let more = fenced(&equal, &set(&policy("b"), &[raise(prefix, 0, unset + 1)]));
        assert_eq!(metric(&more, prefix), [format!("={}", unset + 1)]);
    }
}

#[test]
fn only_next_hops_of_static_routes_have_a_metric() {
    let address = format!("{ETH0}/ipv4/address[ip=10.0.0.1]");
    for path in [ETH0, &address, "/", &format!("{STATIC}/route[prefix=10.0.0.0/8]")] {
        let next_hop = models().native.resolve_write(&path.parse().unwrap()).unwrap();
        let change = set(&policy("a"), &[FenceItem::Raise { next_hop, metric: 1 }]);
        let refused = empty().fenced(&change).unwrap_err().to_string();
        assert!(refused.contains("the path is not a next hop of a static route"), "{refused}");
    }
}

// proves sv.J1
#[test]
fn what_boot_or_gnsi_holds_wins() {
    let fence = set(&policy("a"), &[shut("eth0"), shut("eth1")]);
    let cases = [
        (LayerKey::BOOT_NATIVE, "native:/interfaces/interface[name=eth0]/enabled"),
        (LayerKey::BOOT_OPENCONFIG, "/interfaces/interface[name=eth0]/config/enabled"),
        (LayerKey::GNSI, "native:/interfaces/interface[name=eth0]/enabled"),
    ];
    for (layer, path) in cases {
        let held = with_layer(&empty(), layer, &format!("update {path} true"));
        let refused = held.fenced(&fence).unwrap_err();
        assert_eq!(refused.first().cause, EditCause::Overruled { owner: layer.name().into() });
        assert_eq!(
            refused.to_string(),
            format!(
                "cannot fence `{ETH0}/enabled`: the layer `{}` holds another value, which wins over a fence",
                layer.name()
            )
        );
        let equal = with_layer(&empty(), layer, &format!("update {path} false"));
        check_enabled(&fenced(&equal, &fence), &["=false"]);
        if layer != LayerKey::GNSI {
            let off = held.switched(Namespace::Bootz, false);
            let fence = fenced(&off, &fence);
            check_enabled(&fence, &["=false"]);
            let on = fence.switched(Namespace::Bootz, true);
            check_enabled(&on, &["=true"]);
            assert_eq!(standings(&on), [FenceStanding::Overruled, FenceStanding::InForce]);
        }
    }
    // The OpenConfig default under an entry that boot holds is boot's, too.
    let held =
        with_layer(&empty(), LayerKey::BOOT_OPENCONFIG, &format!("update {ETH0}/config/mtu 1514"));
    let refused = held.fenced(&fence).unwrap_err();
    assert_eq!(refused.first().cause, EditCause::Overruled { owner: "boot openconfig".into() });
}

// proves sv.J12
#[test]
fn no_request_of_a_client_touches_fences() {
    let start = factory(PORTS_DISABLED);
    let fence = fenced(&start, &set(&policy("a"), &[shut("eth0"), raise("10.0.0.0/8", 0, 9)]));
    for request in [
        "replace / {}",
        "replace native:/ {}",
        "replace cli:interface eth0\n  enabled true",
        "union / {\"interfaces\":{\"interface\":[{\"name\":\"eth0\",\"config\":{\"name\":\"eth0\"}}]}}",
        "union native:/ {}",
    ] {
        let new = then(&fence, request);
        assert!(new.layers().fences().is_same(fence.layers().fences()), "{request}");
        assert_eq!(
            new.layers().tree(LayerKey::FENCE),
            fence.layers().tree(LayerKey::FENCE),
            "{request}"
        );
        check_enabled(&new, &["=false"]);
        let back = new.with_client_of(start.layers());
        assert_eq!(back.layers(), fence.layers(), "{request}");
    }
    assert_eq!(fence.factory_reset().layers().fences().len(), 0);
}

#[test]
fn fences_are_kept_in_rows_of_their_own() {
    let owners = [
        policy("a b"),
        FenceOwner::Group("g".into()),
        FenceOwner::Latch("r".into()),
        FenceOwner::Session("7".into()),
        FenceOwner::Client,
    ];
    for owner in &owners {
        assert_eq!(owner.to_string().parse().as_ref(), Ok(owner));
    }
    assert!("nobody".parse::<FenceOwner>().is_err());
    let items = [shut("eth0"), detach("eth0"), raise("10.0.0.0/8", 0, 9)];
    let full = owners.iter().fold(empty(), |it, owner| fenced(&it, &set(owner, &items)));
    let rows = layer_rows_diff(models(), &Layers::new(), full.layers());
    assert_eq!(rows.len(), items.len());
    let stored: BTreeMap<_, _> = rows.into_iter().map(|it| (it.key, it.value.unwrap())).collect();
    let (read, unknown) = Layers::from_rows(models(), stored.clone()).unwrap();
    assert_eq!((&read, unknown), (full.layers(), 0));
    // An item, or an owner, that this version does not know is counted, and is not in force.
    let mut stranger = stored.clone();
    let (mut key, value) = stored.first_key_value().map(|(k, v)| (k.clone(), v.clone())).unwrap();
    key.truncate(1);
    key.extend(b"/system/hostname");
    stranger.insert(key, value);
    let (read, unknown) = Layers::from_rows(models(), stranger).unwrap();
    assert_eq!((&read, unknown), (full.layers(), 1));
    // A change of the owners alone is a row.
    let fewer = fenced(&full, &lift(&FenceOwner::Client, Lift::Items(vec![shut("eth0")])));
    let changes = layer_rows_diff(models(), full.layers(), fewer.layers());
    assert_eq!(changes.len(), 1);
    assert!(changes[0].value.is_some());
}

#[test]
fn a_change_beside_many_fences_visits_none_of_them() {
    const ITEMS: u32 = 1000;
    let routes = |it: &Configuration| {
        let route = |n: u32| {
            format!(
                "{{\"prefix\":\"10.{}.{}.0/24\",\"next-hop\":[{{\"index\":\"0\",\"next-hop\":\"192.0.2.1\"}}]}}",
                n / 256,
                n % 256
            )
        };
        let all: Vec<String> = (0..ITEMS).map(route).collect();
        then(it, &format!("update native:{STATIC} {{\"route\":[{}]}}", all.join(",")))
    };
    let items: Vec<_> =
        (0..ITEMS).map(|n| raise(&format!("10.{}.{}.0/24", n / 256, n % 256), 0, 1000)).collect();
    let start = routes(&empty());
    let fence = fenced(&start, &set(&policy("a"), &items));
    assert!(standings(&fence).iter().all(|it| *it == FenceStanding::InForce));
    for request in [
        format!("update {ETH0}/config/mtu 1514"),
        format!("update native:{}/metric 7", hop("10.0.0.0/24", 0)),
        format!("update native:{}/next-hop \"192.0.2.9\"", hop("11.0.0.0/24", 0)),
    ] {
        let [plain, beside] = [&start, &fence].map(|it| it.edit(&edit(&request)).unwrap().work());
        assert_eq!(plain, beside, "{request}");
        assert!(beside.entries < 10, "{request}: {beside:?}");
    }
}

#[test]
fn there_are_at_most_so_many_items() {
    let most = u32::try_from(crate::limits::FENCED_LEAVES.figure).unwrap();
    let items: Vec<_> = (0..=most).map(|n| shut(&format!("p{n}"))).collect();
    let (last, others) = items.split_last().unwrap();
    let full = empty().fenced(&set(&policy("a"), others)).unwrap();
    assert_eq!(full.layers().fences().len(), others.len());
    let refused = full.fenced(&set(&policy("a"), std::slice::from_ref(last))).unwrap_err();
    assert!(matches!(refused.first().cause, EditCause::Limit(_)), "{refused}");
    // One more owner of what is fenced already is no more.
    full.fenced(&set(&policy("b"), &others[..1])).unwrap();
}

#[test]
fn changes_of_other_entries_keep_clear_of_a_fence() {
    let start = after(&[
        &format!("update {ETH0}/config/mtu 1514"),
        "update /interfaces/interface[name=eth1]/config/mtu 1514",
    ]);
    let of_fence = |change: &FenceChange| {
        let new = start.fenced(change).unwrap();
        Footprint::of(&start, &new, &EditScope::of_fence())
    };
    let of_set = |request: &str| {
        let (new, scope) = start.examined(&edit(request)).unwrap();
        Footprint::of(&start, &new, &scope)
    };
    let fence = of_fence(&set(&policy("a"), &[shut("eth0")]));
    for (other, is_clear) in [
        (of_fence(&set(&policy("b"), &[shut("eth0")])), false),
        (of_fence(&set(&policy("b"), &[shut("eth1")])), true),
        (of_set(&format!("update {ETH0}/config/description \"d\"")), false),
        (of_set("update /interfaces/interface[name=eth1]/config/description \"d\""), true),
    ] {
        assert_eq!(fence.keeps_clear_of(&other), is_clear, "{other:?}");
        assert_eq!(other.keeps_clear_of(&fence), is_clear, "{other:?}");
    }
}

/// An item of one of few things; [`some_request`] is about some of them.
fn some_item() -> impl Strategy<Value = FenceItem> {
    let name = || prop::sample::select(vec!["eth0", "eth1", "br0"]);
    prop_oneof![
        name().prop_map(shut),
        name().prop_map(detach),
        (0..2u32, 0..3u32).prop_map(|(index, step)| raise("10.0.0.0/8", index, 10 + 20 * step)),
    ]
}

fn some_change() -> impl Strategy<Value = FenceChange> {
    let owner = || prop::sample::select(vec![policy("a"), policy("b"), FenceOwner::Client]);
    let items = || prop::collection::vec(some_item(), 0..4);
    let lifted =
        prop_oneof![Just(Lift::Nothing), items().prop_map(Lift::Items), Just(Lift::Everything)];
    prop_oneof![
        8 => (owner(), lifted, items())
            .prop_map(|(owner, lift, set)| FenceChange::Items { owner, lift, set }),
        1 => prop::collection::btree_set(owner(), 0..3).prop_map(FenceChange::Retain),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Request(String),
    Fence(FenceChange),
    /// The boot configuration is switched off, or on.
    Switch(bool),
}

fn some_step() -> impl Strategy<Value = Step> {
    let of_route = prop_oneof![
        (0..2u32, 0..60u32).prop_map(|(index, metric)| format!(
            "update native:{} {{\"next-hop\":\"192.0.2.1\",\"metric\":{metric}}}",
            hop("10.0.0.0/8", index)
        )),
        (0..2u32).prop_map(|index| format!("delete native:{}", hop("10.0.0.0/8", index))),
        Just(format!("delete native:{STATIC}")),
        Just("update native:/interfaces/interface[name=br0]/type \"bridge\"".to_owned()),
        Just("delete native:/interfaces/interface[name=br0]".to_owned()),
        Just(format!("update native:{ETH0}/master \"br0\"")),
        Just("replace / {}".to_owned()),
        Just("union / {}".to_owned()),
    ];
    prop_oneof![
        4 => some_request().prop_map(Step::Request),
        3 => of_route.prop_map(Step::Request),
        4 => some_change().prop_map(Step::Fence),
        1 => any::<bool>().prop_map(Step::Switch),
    ]
}

proptest! {
    /// In whatever order requests and fences come, the union is that from nothing, and rows restore it. Clients read
    /// their configuration as it would be without fences.
    #[test]
    fn the_union_with_fences_is_that_from_nothing(
        steps in prop::collection::vec(some_step(), 1..12),
        boots in any::<bool>(),
    ) {
        let mut it = factory(PORTS_DISABLED);
        if boots {
            let held = format!("update native:{ETH0} {{\"mtu\":1400,\"enabled\":true}}");
            it = with_layer(&it, LayerKey::BOOT_NATIVE, &held);
        }
        for step in steps {
            let new = match &step {
                Step::Request(request) => it.edit(&edit(request)).ok(),
                Step::Fence(change) => it.fenced(change).ok(),
                Step::Switch(on) => Some(it.switched(Namespace::Bootz, *on)),
            };
            let Some(new) = new else { continue };
            check_scratch(&new);
            let rows = layer_rows_diff(models(), &Layers::new(), new.layers());
            let rows = rows.into_iter().map(|row| (row.key, row.value.unwrap()));
            let (read, _) = Layers::from_rows(models(), rows).unwrap();
            prop_assert_eq!(&read, new.layers());
            let mut bare = new.layers().clone();
            bare.set_fences(models(), Fences::default());
            prop_assert!(bare.tree(LayerKey::FENCE).is_empty());
            let bare = Configuration::new(models().clone(), bare);
            for origin in [Origin::OpenConfig, Origin::Native] {
                prop_assert_eq!(new.config_view(origin), bare.config_view(origin), "{}", origin);
            }
            it = new;
        }
    }

    /// The order in which owners ask for items has no effect.
    #[test]
    fn owners_come_in_any_order(
        (one, other) in prop::collection::vec(some_item(), 0..4)
            .prop_flat_map(|items| (Just(items), prop::collection::vec(some_item(), 0..4))),
    ) {
        let start = after(&[
            &format!("update {ETH0}/config/mtu 1514"),
            &format!("update native:{} {{\"next-hop\":\"192.0.2.1\",\"metric\":25}}", hop("10.0.0.0/8", 0)),
        ]);
        let changes = [set(&policy("a"), &one), set(&FenceOwner::Client, &other)];
        let [forth, back] = [[0, 1], [1, 0]].map(|order| {
            order.into_iter().fold(start.clone(), |it, at| it.fenced(&changes[at]).unwrap())
        });
        prop_assert_eq!(forth.layers(), back.layers());
        prop_assert_eq!(forth.effective(), back.effective());
    }
}
