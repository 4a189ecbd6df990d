//! Leases that are hidden because another layer has an address on the link.

use std::borrow::Cow;

use super::list::{has_explicit_leaf, native_list, openconfig_list};
use crate::instance::{InstancePath, Keys, Step};
use crate::layer::{LayerKey, Layers, LeafMark};
use crate::models::Models;
use crate::schema::Origin;
use crate::tree::Tree;
use crate::value::Value;

/// Kinds of objects in the native model.
const LINK: &str = "link";
const ADDRESS: &str = "address";
const ROUTE: &str = "static-route";
/// Leaf of a next hop that names its link.
const OUTGOING_INTERFACE: &str = "interface";

/// The layers without hidden leases: addresses and routes of a family are hidden when another layer has an address
/// of that family on their link. The lease layer keeps them, so they return once that address is gone.
pub(super) fn without_hidden_leases<'l>(models: &Models, layers: &'l Layers) -> Cow<'l, Layers> {
    let lease = layers.tree(LayerKey::LEASE);
    let mut leaves: Vec<(InstancePath, Value)> = Vec::new();
    lease.walk(&mut |path, leaf| leaves.push((path.clone(), leaf.value.clone())));
    let given_up = hidden_families(models, layers, &leaves);
    if given_up.is_empty() {
        return Cow::Borrowed(layers);
    }
    let mut visible = layers.clone();
    let tree = visible.tree_mut(LayerKey::LEASE);
    for (path, value) in &leaves {
        if let Some(object) = hidden_object(models, &given_up, path, value) {
            tree.remove(&models.native, &object);
        }
    }
    Cow::Owned(visible)
}

/// Links in a lease layer.
pub(crate) fn leased_links(models: &Models, lease: &Tree<LeafMark>) -> Vec<InstancePath> {
    let mut links = Vec::new();
    lease.walk(&mut |path, _| {
        let link = object(models, path, LINK);
        links.extend(link.filter(|link| links.last() != Some(link)));
    });
    links
}

/// Links on which leased addresses of a family are hidden.
fn hidden_families(
    models: &Models,
    layers: &Layers,
    leaves: &[(InstancePath, Value)],
) -> Vec<(Value, Family)> {
    let mut found = Vec::new();
    for (path, _) in leaves {
        let (Some(link), Some(address)) =
            (object(models, path, LINK), object(models, path, ADDRESS))
        else {
            continue;
        };
        let given_up = key(&link).zip(key(&address).map(Family::of));
        let given_up = given_up.filter(|it| !found.contains(it));
        found.extend(given_up.filter(|_| has_configured_address(models, layers, &link, &address)));
    }
    found
}

/// Path of the leased object of a leaf, if it is hidden.
fn hidden_object(
    models: &Models,
    given_up: &[(Value, Family)],
    path: &InstancePath,
    value: &Value,
) -> Option<InstancePath> {
    if let Some(address) = object(models, path, ADDRESS) {
        let link = object(models, path, LINK).and_then(|link| key(&link))?;
        let family = Family::of(key(&address)?);
        return given_up.contains(&(link, family)).then_some(address);
    }
    let route = object(models, path, ROUTE)?;
    let by =
        path.last().is_some_and(|leaf| models.native.node(leaf.node).name == OUTGOING_INTERFACE);
    let family = Family::of(key(&route)?);
    (by && given_up.contains(&(value.clone(), family))).then_some(route)
}

/// True when another layer has an address on this link, of the family of `address`.
fn has_configured_address(
    models: &Models,
    layers: &Layers,
    link: &InstancePath,
    address: &InstancePath,
) -> bool {
    let map = &models.map;
    let (Some(list), Some(keys)) = (address.last(), link.last().and_then(|it| it.keys.as_ref()))
    else {
        return false;
    };
    let Some(anchor) = map.anchors.iter().find(|anchor| anchor.list() == Some(list.node)) else {
        return false;
    };
    let openconfig = anchor.parent.and_then(|parent| map.openconfig_entry(parent, &[keys]));
    LayerKey::ALL.into_iter().filter(|layer| *layer != LayerKey::LEASE).any(|layer| {
        let tree = layers.tree(layer);
        let entries = match layer.origin {
            Origin::Native => tree.branch(link).and_then(|it| native_list(it, &anchor.native)),
            Origin::OpenConfig => {
                let entry = openconfig.as_ref().and_then(|path| tree.branch(path));
                entry.and_then(|it| openconfig_list(it, anchor))
            }
        };
        let is_shell = |entry| layer == LayerKey::CLIENT_OPENCONFIG && map.is_shell(entry);
        let asks = |entry| has_explicit_leaf(entry) && !is_shell(entry);
        entries.is_some_and(|list| list.iter().any(|(_, entry)| asks(entry)))
    })
}

/// Path of the object of this kind that contains `path`, or that `path` names.
fn object(models: &Models, path: &InstancePath, kind: &str) -> Option<InstancePath> {
    let is = |step: &Step| models.native.node(step.node).object.as_deref() == Some(kind);
    let at = path.0.iter().position(is)?;
    Some(InstancePath(path.0[..=at].to_vec()))
}

/// The only key of the entry at the end of a path.
fn key(path: &InstancePath) -> Option<Value> {
    let keys: &Keys = path.last()?.keys.as_ref()?;
    keys.first().cloned()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    /// Family of an address or prefix in text form.
    fn of(text: Value) -> Self {
        if text.to_string().contains(':') { Self::V6 } else { Self::V4 }
    }
}
