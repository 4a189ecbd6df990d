//! Native objects that a claim has to do with.

use std::collections::{BTreeMap, BTreeSet};

use smol_str::SmolStr;

use super::{Claim, ClaimKey, Claims};
use crate::instance::InstancePath;
use crate::models::Models;
use crate::schema::Origin;

impl Claims {
    /// The objects of one claim, each with the names of others that hold an entry or leaf of it that the claim holds.
    pub fn shared_objects(
        &self,
        models: &Models,
        key: &ClaimKey,
    ) -> BTreeMap<InstancePath, BTreeSet<SmolStr>> {
        let mut objects = BTreeMap::<_, BTreeSet<_>>::new();
        let own = key.owner();
        let Some(claim) = self.get(key) else { return objects };
        for origin in [Origin::Native, Origin::OpenConfig] {
            claim.tree(origin).walk(&mut |path, _| {
                let native = match origin {
                    Origin::Native => Some(path.clone()),
                    Origin::OpenConfig => models.map.path_to_native(path),
                };
                let native = native.unwrap_or_default();
                let Some(object) = models.native.innermost_object(&native.0) else { return };
                let holders = self.holders(origin, path).into_iter();
                let others = holders.map(ClaimKey::owner).filter(|owner| *owner != own);
                objects.entry(InstancePath(object.to_vec())).or_default().extend(others);
            });
        }
        objects
    }

    /// Names of the instances that ask for leaves of a native object, and of the claims without an owner that do.
    pub fn owners(&self, models: &Models, object: &InstancePath) -> BTreeSet<SmolStr> {
        let mut owners: BTreeSet<_> =
            self.below(Origin::Native, object).map(ClaimKey::owner).collect();
        for path in models.map.up_path(object) {
            owners.extend(self.below(Origin::OpenConfig, &path).map(ClaimKey::owner));
        }
        owners
    }
}

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
