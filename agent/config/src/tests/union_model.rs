//! Random union_replaces: their order has no effect, other owners' items stay, repetition changes nothing.

use proptest::prelude::*;

use super::model::some_request;
use super::stack::{PORTS_DISABLED, factory, with_layer};
use super::*;

/// One entry of a union: an origin and leaves of one of two interfaces.
fn entry(text: bool) -> impl Strategy<Value = String> {
    let openconfig = prop_oneof![
        (0..3u32).prop_map(|n| format!("/interfaces/interface[name=NAME]/config/mtu {}", 1514 + n)),
        any::<bool>()
            .prop_map(|it| format!("/interfaces/interface[name=NAME]/config/enabled {it}")),
        Just("/interfaces/interface[name=NAME] {\"config\":{\"description\":\"d\"}}".to_owned()),
        Just("/interfaces {\"interface\":[{\"name\":\"NAME\"}]}".to_owned()),
        Just("/ {}".to_owned()),
    ];
    let paths = prop_oneof![
        (0..3u32).prop_map(|n| format!("native:/interfaces/interface[name=NAME]/mtu {}", 1500 + n)),
        Just("native:/interfaces/interface[name=NAME] {\"master\":\"br0\"}".to_owned()),
        Just("native:/ {\"system\":{\"hostname\":\"box\"}}".to_owned()),
    ];
    let lines = prop_oneof![
        (0..3u32).prop_map(|n| format!("cli: interface NAME\n  mtu {}", 1500 + n)),
        Just("cli: interface NAME\n  master br0".to_owned()),
        Just("cli: no interface NAME".to_owned()),
    ];
    let native = if text { lines.boxed() } else { paths.boxed() };
    (prop_oneof![openconfig, native], prop::sample::select(vec!["eth0", "eth1"]))
        .prop_map(|(entry, name)| format!("union {}", entry.replace("NAME", name)))
}

/// A union_replace as text, for the other tests.
pub(super) fn some_union() -> impl Strategy<Value = String> {
    union().prop_map(|(entries, _)| entries.join("; "))
}

/// Entries in one order and in another.
fn union() -> impl Strategy<Value = (Vec<String>, Vec<String>)> {
    any::<bool>()
        .prop_flat_map(|text| prop::collection::vec(entry(text), 1..5))
        .prop_flat_map(|entries| (Just(entries.clone()), Just(entries).prop_shuffle()))
}

fn start(requests: &[String]) -> Configuration {
    let boot = with_layer(
        &factory(PORTS_DISABLED),
        LayerKey::BOOT_NATIVE,
        "update native:/system/domain-name \"boot\"",
    );
    let full = with_layer(&boot, LayerKey::LEASE, "update native:/system/motd-banner \"leased\"");
    requests.iter().fold(full, |start, request| start.edit(&edit(request)).unwrap_or(start))
}

const OTHERS: [LayerKey; 2] = [LayerKey::BOOT_NATIVE, LayerKey::LEASE];

proptest! {
    // proves 2.9, 2.24
    #[test]
    fn order_of_union_entries_has_no_effect(
        before in prop::collection::vec(some_request(), 0..4),
        (one, other) in union(),
    ) {
        let start = start(&before);
        let ends = [one.join("; "), other.join("; ")].map(|request| (start.edit(&edit(&request)), request));
        let [(Ok(one), request), (Ok(other), _)] = ends else {
            let refused = ends.iter().filter(|(end, _)| end.is_err()).count();
            prop_assert_eq!(refused, 2, "{:#?}", ends.map(|(_, request)| request));
            return Ok(());
        };
        prop_assert_eq!(one.layers(), other.layers(), "{}", &request);
        prop_assert_eq!(one.effective(), other.effective(), "{}", &request);
        let scratch = Configuration::new(models().clone(), one.layers().clone());
        prop_assert_eq!(one.effective(), scratch.effective(), "{}", &request);
        for layer in OTHERS {
            prop_assert!(one.layers().tree(layer).is_same(start.layers().tree(layer)));
        }
        let again = one.edit(&edit(&request)).unwrap();
        for layer in [LayerKey::CLIENT_NATIVE, LayerKey::CLIENT_OPENCONFIG] {
            prop_assert!(again.layers().tree(layer).is_same(one.layers().tree(layer)), "{}: {}", layer, &request);
        }
        prop_assert_eq!(again.work().entries, 0);
    }

    /// Plain requests of one origin write that origin's layer; only factory leaves go with OpenConfig.
    // proves 1.84
    #[test]
    fn requests_write_only_the_layer_of_their_origin(requests in prop::collection::vec(some_request(), 1..6)) {
        let mut configuration = start(&[]);
        for request in requests {
            let Ok(end) = configuration.edit(&edit(&request)) else { continue };
            for layer in OTHERS {
                prop_assert!(end.layers().tree(layer).is_same(configuration.layers().tree(layer)), "{}", &request);
            }
            let (from, other) = if request.contains("native:") {
                (LayerKey::CLIENT_NATIVE, LayerKey::CLIENT_OPENCONFIG)
            } else {
                (LayerKey::CLIENT_OPENCONFIG, LayerKey::CLIENT_NATIVE)
            };
            prop_assert_eq!(
                explicit(&end, other), explicit(&configuration, other), "{} writes {}: {}", from, other, &request
            );
            configuration = end;
        }
    }
}

fn explicit(configuration: &Configuration, layer: LayerKey) -> Vec<String> {
    let schema = models().schema(layer.origin);
    let mut found = Vec::new();
    configuration.layers().tree(layer).walk(&mut |path, leaf| {
        if leaf.meta == LeafMark::Explicit && !is_key_or_copy(schema, path.last().unwrap().node) {
            found.push(format!("{}={}", path.to_path(schema), leaf.value));
        }
    });
    found
}
