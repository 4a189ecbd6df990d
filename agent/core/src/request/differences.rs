//! Differences of two configurations, in lists that are bounded.

use holdfast_config::schema::Origin;
use holdfast_config::tree::{Change, NodeRef, Tree};
use holdfast_config::{Configuration, InstancePath, LeafMark, Models, json};

/// Differences, objects and waiting objects that are listed, of each; the totals count all. An answer with more would
/// exceed what clients take in one message.
pub const MAX_LISTED: usize = 10_000;

/// The first [`MAX_LISTED`] items, and the number of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundedList<T> {
    pub first: Vec<T>,
    pub total: usize,
}

/// A node that Get CONFIG shows with another value: a leaf, or an entry or container that comes or goes as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    pub origin: Origin,
    pub path: String,
    /// JSON after RFC 7951.
    pub before: Option<String>,
    pub after: Option<String>,
}

impl<T> Default for BoundedList<T> {
    fn default() -> Self {
        Self { first: Vec::new(), total: 0 }
    }
}

impl<T> BoundedList<T> {
    pub(crate) fn push(&mut self, item: impl FnOnce() -> T) {
        if self.first.len() < MAX_LISTED {
            self.first.push(item());
        }
        self.total += 1;
    }
}

/// Differences of the configuration that clients see, in both origins.
pub(crate) fn differences(
    models: &Models,
    old: &Configuration,
    new: &Configuration,
) -> BoundedList<ConfigChange> {
    let mut listed = BoundedList::default();
    let trees = |origin| [old, new].map(|it| it.config_view(origin));
    list_differences(models, trees, &mut listed);
    listed
}

/// Differences of two trees in each origin.
pub(crate) fn list_differences<'t>(
    models: &Models,
    trees: impl Fn(Origin) -> [&'t Tree<LeafMark>; 2],
    listed: &mut BoundedList<ConfigChange>,
) {
    for origin in [Origin::OpenConfig, Origin::Native] {
        let [old, new] = trees(origin);
        Tree::diff(old, new, &mut |path, change| {
            let text = |found: NodeRef<'_, _>| {
                let schema = models.schema(origin);
                let at = path.last().map_or(schema.root(), |step| step.node);
                let document = json::print(schema, at, found, json::Flavour::Ietf, &|_| true);
                String::from_utf8_lossy(&document.unwrap_or_default()).into_owned()
            };
            let (before, after) = match change {
                Change::Added(found) => (None, Some(text(found))),
                Change::Removed(found) => (Some(text(found)), None),
                Change::Leaf { old, new } if old.value == new.value => return, // its mark differs
                Change::Leaf { old, new } => {
                    (Some(text(NodeRef::Leaf(old))), Some(text(NodeRef::Leaf(new))))
                }
                Change::Given(_) => return, // its leaves say so
            };
            listed.push(|| changed(models, origin, path, before, after));
        });
    }
}

fn changed(
    models: &Models,
    origin: Origin,
    path: &InstancePath,
    before: Option<String>,
    after: Option<String>,
) -> ConfigChange {
    let path = path.to_path(models.schema(origin)).to_string();
    ConfigChange { origin, path, before, after }
}
