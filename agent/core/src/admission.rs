//! Judgement of changed objects by what is beside them: the kernel, and the other objects of the configuration.

use holdfast_config::schema::Origin;
use holdfast_platform::objects::state::Planes;
use holdfast_scheduler::{Key, SharedValue};

use super::CommitError;
use super::publish::seen;
use super::task::CoreTask;
use super::transaction::Changed;

impl CoreTask {
    /// Refuses changed values that the kernel contradicts, or that do not fit other objects.
    pub(super) fn admit_values(
        &self,
        changes: &[Changed],
        origin: Origin,
    ) -> Result<(), CommitError> {
        let registry = &self.objects.registry;
        let asked = changes.iter().map(|it| (&it.path, &it.key, it.value.as_ref()));
        // First, since what the kernel shows under the name of an end may be the far end of another one.
        let admitted = registry.admit_pairs(&self.pairs, asked);
        admitted.map_err(|error| self.objects.refused(&error, origin))?;
        for Changed { path, value, .. } in changes {
            if let Some(value) = value {
                let admitted = registry.admit(path, &**value, |key| self.planes(key));
                admitted.map_err(|error| self.objects.refused(&error, origin))?;
            }
        }
        Ok(())
    }

    /// The values of a key, without the observed one where that is the far end of a veth link of ours.
    fn planes(&self, key: &Key) -> Planes<'_> {
        let [intended, applied, observed] = self.engine.planes(key);
        seen([intended, applied, observed.filter(|it| !self.comes_along(key, it))])
    }

    /// True for the far end of a veth link that we made: it has no mark of ours, and goes when that link does.
    fn comes_along(&self, key: &Key, observed: &SharedValue) -> bool {
        let Some(near) = self.pairs.near_end(key, &**observed) else { return false };
        let [.., shown] = self.engine.planes(&near);
        let kind = self.engine.registry().descriptor(near.kind());
        kind.zip(shown).is_some_and(|(kind, shown)| kind.owned(&**shown))
    }
}
