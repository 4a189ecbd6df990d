//! One leaf that any of the layers may set, against a plain transcription of UNION.md section 2.

use proptest::prelude::*;

use super::*;
use crate::tree::Leaf;

/// A layer's relation to the leaf `enabled` of one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LayerContent {
    /// The layer lacks the interface.
    Nothing,
    /// The layer has the interface without the leaf.
    Entry,
    Explicit(bool),
    Absent,
    Factory(bool),
}

type LayerContents = [(LayerKey, LayerContent); LayerKey::ALL.len()];

const ETH0: &str = "/interfaces/interface[name=eth0]";

fn layer_content(layer: LayerKey) -> BoxedStrategy<LayerContent> {
    let explicit = any::<bool>().prop_map(LayerContent::Explicit);
    let common = prop_oneof![Just(LayerContent::Nothing), Just(LayerContent::Entry), explicit];
    match layer {
        LayerKey::CLIENT_NATIVE => {
            prop_oneof![common, any::<bool>().prop_map(LayerContent::Factory)].boxed()
        }
        LayerKey::BOOT_NATIVE => prop_oneof![common, Just(LayerContent::Absent)].boxed(),
        _ => common.boxed(),
    }
}

fn stack() -> impl Strategy<Value = (LayerContents, bool)> {
    let layers: Vec<_> = LayerKey::ALL.iter().map(|layer| layer_content(*layer)).collect();
    (layers, any::<bool>()).prop_map(|(content, off)| {
        let mut stack = [(LayerKey::GNSI, LayerContent::Nothing); LayerKey::ALL.len()];
        for (at, layer) in LayerKey::ALL.into_iter().enumerate() {
            stack[at] = (layer, content[at]);
        }
        (stack, off)
    })
}

fn layers_of(stack: &LayerContents, off: bool) -> Layers {
    let mut layers = Layers::new();
    for (layer, content) in stack {
        let schema = models().schema(layer.origin);
        let leaf = if layer.origin == Origin::Native { "enabled" } else { "config/enabled" };
        let entry = schema.resolve_write(&ETH0.parse().unwrap()).unwrap();
        let path = schema.resolve_write(&format!("{ETH0}/{leaf}").parse().unwrap()).unwrap();
        let tree = layers.tree_mut(*layer);
        let (value, mark) = match content {
            LayerContent::Nothing => continue,
            LayerContent::Entry => {
                tree.branch_mut(schema, &entry.0, &LeafMark::Explicit).given = true;
                continue;
            }
            LayerContent::Explicit(value) => (Value::Bool(*value), LeafMark::Explicit),
            LayerContent::Absent => (Value::Empty, LeafMark::Absent),
            LayerContent::Factory(value) => (Value::Bool(*value), LeafMark::Factory),
        };
        tree.set_leaf(schema, &path, Leaf::new(value, mark));
    }
    if off {
        layers.off =
            LayerSet::of(LayerKey::BOOT_NATIVE).and(LayerSet::of(LayerKey::BOOT_OPENCONFIG));
    }
    layers
}

/// Value of `enabled` by the sentences of UNION.md 2, in their order; `None` when no layer has the interface.
fn naive(stack: &LayerContents, off: bool) -> Option<bool> {
    let content = |layer| stack.iter().find(|(it, _)| *it == layer).unwrap().1;
    let is_explicit = |layers: &[LayerKey]| {
        layers.iter().find_map(|layer| match content(*layer) {
            LayerContent::Explicit(value) => Some(Some(value)),
            LayerContent::Absent => Some(None),
            _ => None,
        })
    };
    // A bare entry of client OpenConfig is a shell, unless client native asks for a leaf of it.
    let is_shell = content(LayerKey::CLIENT_OPENCONFIG) == LayerContent::Entry
        && !matches!(content(LayerKey::CLIENT_NATIVE), LayerContent::Explicit(_));
    let nothing = |layer: LayerKey| is_shell && layer == LayerKey::CLIENT_OPENCONFIG;
    let openconfig_default = |layers: &[LayerKey]| {
        let asks = |layer: &LayerKey| content(*layer) == LayerContent::Entry && !nothing(*layer);
        layers.iter().any(asks).then_some(Some(true))
    };
    let boot = [LayerKey::BOOT_NATIVE, LayerKey::BOOT_OPENCONFIG];
    let when = |condition: bool, value: Option<Option<bool>>| value.filter(|_| condition);
    let factory = match content(LayerKey::CLIENT_NATIVE) {
        LayerContent::Factory(value) => Some(Some(value)),
        _ => None,
    };
    // An item that is to be absent does not create the interface, nor does one of the fence layer.
    let empty = |(layer, content): &(LayerKey, LayerContent)| {
        let waits = *layer == LayerKey::FENCE && matches!(content, LayerContent::Explicit(_));
        let is_absent = matches!(content, LayerContent::Nothing | LayerContent::Absent);
        nothing(*layer) || waits || is_absent
    };
    if stack.iter().all(empty) {
        return None;
    }
    let clients = [
        LayerKey::CLIENT_NATIVE,
        LayerKey::CLIENT_OPENCONFIG,
        LayerKey::SERVICE_NATIVE,
        LayerKey::SERVICE_OPENCONFIG,
    ];
    let found = is_explicit(&[LayerKey::GNSI])
        .or(when(!off, is_explicit(&boot)))
        .or(when(!off, openconfig_default(&boot[1..])))
        .or(is_explicit(&[LayerKey::FENCE]))
        .or(is_explicit(&clients))
        .or(openconfig_default(&[LayerKey::CLIENT_OPENCONFIG, LayerKey::SERVICE_OPENCONFIG]))
        .or(when(off, is_explicit(&boot)))
        .or(is_explicit(&[LayerKey::LEASE]))
        .or(factory);
    // The native default, also where boot makes the leaf absent.
    Some(found.flatten().unwrap_or(true))
}

fn effective(configuration: &Configuration) -> Option<bool> {
    let path = models().native.resolve_write(&format!("{ETH0}/enabled").parse().unwrap()).unwrap();
    match configuration.effective().find_leaf(&path)?.value {
        Value::Bool(value) => Some(value),
        _ => None,
    }
}

proptest! {
    // proves 2.21
    #[test]
    fn the_strongest_layer_wins((stack, off) in stack()) {
        let configuration = Configuration::new(models().clone(), layers_of(&stack, off));
        prop_assert_eq!(effective(&configuration), naive(&stack, off));
    }
}
