//! Footprints of walks of service instances, and of their claims and plans.

use std::sync::Arc;

use super::Footprint;
use super::paths::Access;
use super::walk::Walk;
use crate::claims::{Claim, Claims, ServiceTag};
use crate::configuration::Configuration;
use crate::layer::Layers;
use crate::models::Models;
use crate::schema::Origin;
use crate::services::{Book, LeafRead, Plane, Read, switch_of};

impl Footprint {
    /// Adds the instances that were walked for the candidate, and what they read. State is not configuration.
    pub(super) fn add_walks(&mut self, candidate: &Configuration) {
        let models = candidate.models();
        for (tag, reads) in candidate.walks() {
            self.plans.add(tag.clone(), Access::Read);
            // Lasting output of its handler joins a claim that all instances of the type share.
            self.plans.add(ServiceTag::of_type(tag.service.clone()), Access::Read);
            // A type whose package is not loaded has no instances in the models.
            if let Ok(path) = models.native.resolve_write(&tag.path()) {
                self.native.add(&path.0, Access::Read);
            }
            if let Some(switch) = switch_of(models, &tag.service) {
                self.native.add(&switch.0, Access::Read);
            }
            for read in reads.keys() {
                match read {
                    Read::Service(tag) => self.plans.add(tag.clone(), Access::Read),
                    Read::Leaves(LeafRead { plane: Plane::Ground, origin, patterns }) => {
                        for pattern in patterns {
                            Walk::new(models, *origin, self).subtree(pattern);
                        }
                    }
                    Read::Leaves(LeafRead { plane: Plane::State, .. }) => {}
                }
            }
        }
    }

    /// Adds the service plans that differ, and what differs in claims: the joined layers do not show that an entry has one
    /// holder more or less.
    pub(super) fn add_claims(&mut self, models: &Models, old: &Layers, new: &Layers) {
        for (tag, ..) in Book::differences(&old.book, &new.book) {
            self.plans.add(tag.clone(), Access::Write);
        }
        let none = Claim::default();
        for (key, old, new) in Claims::differences(old.claims(), new.claims()) {
            self.plans.add(key.tag.clone(), Access::Write);
            let old = old.unwrap_or(&none);
            let new = new.unwrap_or(&none);
            for origin in [Origin::Native, Origin::OpenConfig] {
                let old = old.tree(origin).root();
                let new = new.tree(origin).root();
                if !Arc::ptr_eq(old, new) {
                    let mut walk = Walk::new(models, origin, self);
                    walk.differences(Some(old), Some(new));
                }
            }
        }
    }
}
