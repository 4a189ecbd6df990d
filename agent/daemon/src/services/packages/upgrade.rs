//! Exchange of the package of a type: its dry run, and the walks of its instances with the new version.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use holdfast_base::ErrorChain;
use holdfast_config::services::WorkFailureKind;
use holdfast_config::{EditCause, EditError, ExchangeMode, ServiceTag, TypeExchange};
use holdfast_core::{
    CommitError, CommitOptions, CoreHandle, Datastore, Intent, PlanHash, Preview, Walks,
};
use holdfast_services::outline::Version;
use tracing::warn;

use crate::services::requester::Requester;

/// One exchange of a package.
pub(in crate::services) struct Upgrade<'a> {
    pub(in crate::services) core: &'a CoreHandle,
    pub(in crate::services) by: &'a Requester,
    pub(in crate::services) exchange: TypeExchange,
    pub(in crate::services) version: Version,
}

/// Effects of an exchange.
#[derive(Debug)]
pub(in crate::services) struct UpgradePreview {
    pub(in crate::services) preview: Preview,
    /// Parameters that the new version has no place for, which refuse the exchange.
    pub(in crate::services) unfit: Vec<String>,
}

fn is_of_parameters(error: &EditError) -> bool {
    matches!(&error.cause, EditCause::Work { kind: WorkFailureKind::Parameters, .. })
}

impl Upgrade<'_> {
    /// The effects of the exchange, with the parameters that refuse it; these are left out of the effects. Where each instance
    /// is walked alone, what fails is shown as failed.
    pub(in crate::services) async fn dry_run(
        &self,
        each: bool,
    ) -> Result<UpgradePreview, CommitError> {
        let unfit = match self.preview(each, false).await {
            Ok(preview) => return Ok(UpgradePreview { preview, unfit: Vec::new() }),
            Err(CommitError::Edit(errors)) if errors.iter().all(is_of_parameters) => errors,
            Err(error) => return Err(error),
        };
        let preview = self.preview(true, true).await?;
        let unfit = unfit.iter().map(|error| ErrorChain(error).to_string()).collect();
        Ok(UpgradePreview { preview, unfit })
    }

    async fn preview(&self, is_lenient: bool, drops_unfit: bool) -> Result<Preview, CommitError> {
        let exchange = TypeExchange { is_lenient, drops_unfit, ..self.exchange.clone() };
        let intent = Intent::Package(exchange);
        self.core.preview(&self.by.caller, intent, self.by.options()).await
    }

    /// Makes the exchange with the walks of all instances, in one change.
    pub(in crate::services) async fn together(
        &self,
        expected: Option<PlanHash>,
    ) -> Result<String, CommitError> {
        let options = CommitOptions { expected_plan: expected, ..self.by.options() };
        let intent = Intent::Package(self.exchange.clone());
        self.core.change_with(&self.by.caller, intent, options).await?;
        Ok(String::new())
    }

    /// Makes the exchange, then walks each instance in a change of its own. Instances that fail keep the version that they have.
    /// Returns a line for each of them.
    pub(in crate::services) async fn each(
        &self,
        expected: Option<PlanHash>,
    ) -> Result<String, CommitError> {
        let found = self.preview(true, false).await?.hash;
        if let Some(expected) = expected.filter(|it| *it != found) {
            return Err(CommitError::PlanDiffers { expected, found });
        }
        let exchange = TypeExchange { mode: ExchangeMode::Each, ..self.exchange.clone() };
        self.by.change(self.core, Intent::Package(exchange)).await?;
        let configuration = self.core.configuration();
        let plans = configuration.layers().book.of_type(&self.exchange.service);
        let due: Vec<ServiceTag> =
            plans.filter(|(_, plan)| plan.leaving.is_none()).map(|(tag, _)| tag.clone()).collect();
        let mut left = String::new();
        for tag in due {
            if let Err(error) = self.walk(&tag).await {
                let reason = ErrorChain(&error).to_string();
                warn!(service = %tag, error = reason, "an instance keeps the earlier version of its package");
                let _infallible = writeln!(left, "{tag} keeps its version: {reason}");
            }
        }
        Ok(left)
    }

    async fn walk(&self, tag: &ServiceTag) -> Result<(), CommitError> {
        let due = BTreeSet::from([tag.clone()]);
        let walks = Walks { due: due.clone(), is_redeployment: true, ..Walks::default() };
        let Err(error) = self.by.change(self.core, Intent::Walk(walks)).await else {
            return Ok(());
        };
        let reason: Arc<str> =
            format!("not upgraded to {}: {}", self.version, ErrorChain(&error)).into();
        let left_behind = [(tag.clone(), reason)].into();
        let walks = Walks { due, left_behind, is_lenient: true, ..Walks::default() };
        self.by.change(self.core, Intent::Walk(walks)).await?;
        Err(error)
    }
}
