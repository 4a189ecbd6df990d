//! Native objects that a claim has to do with.

use std::collections::BTreeSet;

use super::Claim;
use crate::instance::InstancePath;
use crate::models::Models;
use crate::schema::Origin;

impl Claim {
    /// Paths of the native objects whose leaves the claim asks for. An OpenConfig leaf without a native one has none.
    pub fn objects(&self, models: &Models) -> BTreeSet<InstancePath> {
        let mut objects = BTreeSet::new();
        let object_above = |path: &InstancePath| {
            let object = models.native.innermost_object(&path.0)?;
            Some(InstancePath(object.to_vec()))
        };
        self.tree(Origin::Native).walk(&mut |path, _| objects.extend(object_above(path)));
        self.tree(Origin::OpenConfig).walk(&mut |path, _| {
            let native = models.map.path_to_native(path);
            objects.extend(native.and_then(|path| object_above(&path)));
        });
        objects
    }
}
