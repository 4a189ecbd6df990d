//! A policy with its compiled form for the newest models.

use std::sync::{Arc, PoisonError, RwLock};

use holdfast_config::Models;

use super::CompiledPolicy;

/// A policy that is compiled again when data of later models is read or edited. Only the last form is kept: the
/// nodes of earlier models have the same numbers in it.
#[derive(Debug)]
pub(crate) struct PolicyForms {
    newest: RwLock<Arc<CompiledPolicy>>,
}

impl PolicyForms {
    pub(crate) fn new(compiled: Arc<CompiledPolicy>) -> Self {
        Self { newest: RwLock::new(compiled) }
    }

    /// The form that judges data of these models.
    pub(crate) fn compiled(&self, models: &Arc<Models>) -> Arc<CompiledPolicy> {
        let newest = Arc::clone(&self.newest.read().unwrap_or_else(PoisonError::into_inner));
        if newest.models().includes(models) {
            return newest;
        }
        let mut form = self.newest.write().unwrap_or_else(PoisonError::into_inner);
        // Another reader may have compiled it meanwhile.
        if !form.models().includes(models) {
            *form = Arc::new(form.for_models(models));
        }
        Arc::clone(&form)
    }
}
