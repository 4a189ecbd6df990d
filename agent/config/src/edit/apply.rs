//! Configurations with an edit or with other layers applied: each problem becomes an error of the operation behind it.

use super::{Attribution, Edit, EditCause, EditErrors, EditOperation, EditSession};
use crate::claims::ClaimKey;
use crate::configuration::{Configuration, entries_after};
use crate::footprint::EditScope;
use crate::layer::Layers;
use crate::limits::LIST_ENTRIES;
use crate::progress::CancelToken;
use crate::union::Problem;

impl Configuration {
    /// Computes the configuration after a Set. The cost is proportional to the changes.
    ///
    /// # Errors
    /// All operations that are invalid, and all conflicts between the origins; or a limit that is exceeded; or the
    /// cancellation of the request.
    pub fn edit(&self, edit: &Edit) -> Result<Self, EditErrors> {
        self.examined(edit).map(|(after, _)| after)
    }

    /// Computes the configuration after a Set, and the nodes that it named, for its
    /// [`Footprint`](crate::Footprint).
    ///
    /// # Errors
    /// As for [`Configuration::edit`].
    pub fn examined(&self, edit: &Edit) -> Result<(Self, EditScope), EditErrors> {
        let (layers, attribution, scope) = EditSession::new(self).run(edit)?;
        Ok((self.with_layers(layers, &attribution, &edit.cancel)?, scope))
    }

    /// Computes the configuration with other layers; `attribution` names the operations behind the changes.
    pub(crate) fn with_layers(
        &self,
        layers: Layers,
        attribution: &Attribution<'_>,
        cancel: &CancelToken,
    ) -> Result<Self, EditErrors> {
        self.with_layers_despite(&|_| false, layers, attribution, cancel)
    }

    /// Computes the configuration with other layers, whatever problems of these kinds it has: see
    /// [`Configuration::with_layers`].
    pub(crate) fn with_layers_despite(
        &self,
        is_passed_over: &dyn Fn(&Problem) -> bool,
        layers: Layers,
        attribution: &Attribution<'_>,
        cancel: &CancelToken,
    ) -> Result<Self, EditErrors> {
        let refused = |cause: EditCause| EditErrors::from(attribution.last_operation_error(cause));
        let entries = entries_after(self.entries(), self.layers(), &layers);
        if entries > self.entries() {
            LIST_ENTRIES.check(entries).map_err(|error| refused(error.into()))?;
        }
        let (after, problems) = self.advanced_despite(is_passed_over, layers, entries, cancel);
        cancel.check().map_err(|stop| refused(stop.into()))?;
        if !problems.is_empty() {
            let mut errors = attribution.errors(problems, after.layers().claims());
            errors.walked = after.walks().keys().cloned().collect();
            return Err(errors);
        }
        Ok(after)
    }

    /// Computes the configuration after walks of the instances that are due in the surroundings.
    ///
    /// # Errors
    /// When claims disagree with one another or with other layers, or are more than a limit allows.
    pub fn walked(&self) -> Result<Self, EditErrors> {
        let attribution = Attribution::of_trees(self.models(), |_| EditOperation::Walk);
        self.with_layers(self.layers().clone(), &attribution, &CancelToken::default())
    }

    /// Computes the configuration without a claim that no instance owns any more.
    ///
    /// # Errors
    /// When what is left contradicts itself.
    pub fn purged(&self, claim: &ClaimKey) -> Result<Self, EditErrors> {
        let attribution = Attribution::of_trees(self.models(), |_| EditOperation::Walk);
        let mut layers = self.layers().clone();
        let claims = layers.claims().replaced(self.models(), [(claim.clone(), None)]);
        let claims = claims
            .map_err(|error| attribution.errors(Problem::of_claims(error), layers.claims()))?;
        layers.set_claims(claims);
        self.with_layers(layers, &attribution, &CancelToken::default())
    }
}
