//! Walks of the instances of a type with one version of its package.

use std::sync::Arc;

use holdfast_config::services::{
    ComponentPlan, Reads, ServicePlan, Touched, WalkWork, WorkFailure, WorkFailureKind,
};
use holdfast_config::{InstancePath, ServiceTag};

use super::{Change, Entry, ServiceType, failure_kind};
use crate::outline::{Converge, SELF};
use crate::parameters::{Parameters, ParametersError};
use crate::versions::PackageVersion;
use crate::walk::{self, Instance, WalkResult, conditions, record};
use crate::work::WorkError;

/// Walk of one instance, with one version of its package.
pub(crate) struct InstanceWalk<'a> {
    pub(crate) of: &'a ServiceType,
    pub(crate) version: &'a PackageVersion,
    pub(crate) change: &'a Change<'a>,
    pub(crate) tag: &'a ServiceTag,
    pub(crate) path: InstancePath,
}

impl InstanceWalk<'_> {
    /// Walks the instance, whose entry was `old` and is `new`.
    pub(crate) fn walk(
        &self,
        old: Option<&Entry>,
        new: Option<&Entry>,
    ) -> Result<WalkResult, WorkFailure> {
        let surroundings = self.change.request.surroundings;
        let before = self.before();
        if let Some(reason) = surroundings.left_behind.get(self.tag) {
            return Ok(self.failed_plan(new.or(old), Arc::clone(reason)));
        }
        let deployed = new.filter(|entry| self.of.is_deployed(entry));
        let comes_back = surroundings.resurrected.as_ref() == Some(self.tag);
        let leaving = before.filter(|_| !comes_back).and_then(|plan| plan.leaving.clone());
        let Some(entry) = deployed.filter(|_| leaving.is_none()) else {
            if let (Some(_), Some(plan), false) = (deployed, before, surroundings.is_lenient) {
                return Err(in_the_way(self.tag, &self.path, plan));
            }
            if !self.is_switched_on() {
                return self.keep(old, leaving);
            }
            return self.leave(old, leaving);
        };
        if before.is_none()
            && let Err(reason) = self.change.totals.check_new(self.tag)
        {
            return self.over_limit(reason);
        }
        let parameters = match self.parameters(entry) {
            Ok(parameters) => parameters,
            Err(errors) if surroundings.is_lenient => {
                return Ok(self.failed_plan(Some(entry), self.refused(&errors).text.into()));
            }
            Err(errors) => return Err(self.refused(&errors)),
        };
        if !self.is_switched_on() {
            return self.rest(parameters, None);
        }
        let package = &self.version.package;
        let is_stored_alone = package.outline.converge == Converge::After
            && !surroundings.is_lenient
            && !surroundings.due.contains(self.tag)
            && !comes_back;
        if is_stored_alone {
            let plan = Some(before.cloned().unwrap_or_else(|| self.stored_plan()));
            return Ok(WalkResult { plan, ..WalkResult::default() });
        }
        self.walked(parameters, None)
    }

    /// The service plan of an instance that is not walked yet.
    fn stored_plan(&self) -> ServicePlan {
        walk::stored_plan(&self.version.package, self.change.request.surroundings.now_ns)
    }

    /// The service plan with `ready` as the box has it now, if it differs.
    pub(crate) fn judge_ready(&self, entry: &Entry) -> Option<WalkResult> {
        let before = self.before()?;
        if !self.is_switched_on() || before.leaving.is_some() || before.failure.is_some() {
            return None;
        }
        // The walk that follows handles what cannot be read or judged now.
        let instance = self.instance(self.parameters(entry).ok()?, None);
        let mut judged = walk::judge_ready(&instance, self.change.request).ok()?;
        record::note(&mut judged, Some(before), self.change.request.surroundings);
        (judged.plan.as_ref() != Some(before)).then_some(judged)
    }

    /// Reads of touched conditions, if all of them have the results that they had in the last walk.
    pub(crate) fn judge_conditions(
        &self,
        entry: Option<&Entry>,
        touched: &Touched,
    ) -> (Option<Reads>, WalkWork) {
        let request = self.change.request;
        let Some(state) = &request.surroundings.state else { return Default::default() };
        let applied = || conditions::applied_digest(request, self.tag, |key| state.applied(key));
        if touched.has_moved && applied() != touched.conditions.applied {
            return Default::default();
        }
        if touched.places.is_empty() {
            return (Some(Reads::new()), WalkWork::default());
        }
        let Some(instance) = self.accepted_instance(entry) else { return Default::default() };
        conditions::judge(&instance, request, touched)
    }

    /// The instance with the parameters of its last walk, which were checked then.
    fn accepted_instance(&self, entry: Option<&Entry>) -> Option<Instance<'_>> {
        if let Some(document) = &self.before()?.leaving {
            let parameters = self.version.package.parameters(document.as_bytes()).ok()?;
            return Some(self.instance(parameters, Some(Arc::clone(document))));
        }
        let entry = entry?;
        let parameters = if self.is_newest() {
            let package = &self.version.package;
            package.accepted_parameters(&self.tag.key, entry)
        } else {
            self.parameters(entry).ok()?
        };
        Some(self.instance(parameters, None))
    }

    /// False while the type is switched off: what was made stays as it is.
    fn is_switched_on(&self) -> bool {
        self.of.is_switched_on(self.change.request.new)
    }

    fn before(&self) -> Option<&ServicePlan> {
        self.change.request.book.get(self.tag).map(|plan| &**plan)
    }

    fn is_newest(&self) -> bool {
        std::ptr::eq(self.version, &*self.of.newest)
    }

    /// The parameters of an instance. Another version than the newest one reads them by the names of their leaves.
    fn parameters(&self, entry: &Entry) -> Result<Parameters, Vec<ParametersError>> {
        if self.is_newest() {
            let package = &self.version.package;
            return package.parameters_of(&self.tag.key, &self.path, entry);
        }
        let document = self.of.newest.package.document_of(entry).unwrap_or_default();
        self.version.package.parameters(document.as_bytes())
    }

    /// The entry of the instance in the configuration of clients.
    fn walked(
        &self,
        parameters: Parameters,
        leaving: Option<Arc<str>>,
    ) -> Result<WalkResult, WorkFailure> {
        let instance = self.instance(parameters, leaving);
        walk::walk(&instance, self.change.request).map_err(|error| self.failed(&error))
    }

    fn instance(&self, parameters: Parameters, leaving: Option<Arc<str>>) -> Instance<'_> {
        let is_left_behind = !self.is_newest() && leaving.is_none();
        Instance {
            package: &self.version.package,
            tag: self.tag,
            calls: &self.change.calls,
            totals: &self.change.totals,
            parameters,
            leaving,
            is_left_behind,
        }
    }

    /// An instance that there is no place for, and that has no plan.
    fn over_limit(&self, reason: String) -> Result<WalkResult, WorkFailure> {
        if self.change.request.surroundings.is_lenient {
            return Ok(WalkResult { is_over_limit: true, ..WalkResult::default() });
        }
        let instance = self.path.clone();
        let kind = WorkFailureKind::Limit;
        Err(WorkFailure { instance, kind, text: reason })
    }

    /// Backs out an instance that is deleted or un-deployed: at once, unless it may have to do so in stages.
    fn leave(
        &self,
        old: Option<&Entry>,
        leaving: Option<Arc<str>>,
    ) -> Result<WalkResult, WorkFailure> {
        let is_staged = self.version.has_staged_deletes && self.before().is_some();
        let document = leaving.or_else(|| self.of.newest.package.document_of(old?));
        if let Some(document) = document.filter(|_| is_staged)
            && let Ok(parameters) = self.version.package.parameters(document.as_bytes())
        {
            return self.walked(parameters, Some(document));
        }
        let claims = self.change.request.claims.of_instance(self.tag);
        let claims = claims.map(|(key, _)| (key.clone(), None)).collect();
        Ok(WalkResult { claims, ..WalkResult::default() })
    }

    /// Keeps what a deleted or un-deployed instance made, of a type that is switched off.
    fn keep(
        &self,
        old: Option<&Entry>,
        leaving: Option<Arc<str>>,
    ) -> Result<WalkResult, WorkFailure> {
        let Some(before) = self.before().filter(|it| it.has_begun()) else {
            return Ok(WalkResult::default());
        };
        let document = || self.of.newest.package.document_of(old?);
        let leaving = leaving.or_else(document);
        let parameters = leaving.as_ref().map(|it| self.version.package.parameters(it.as_bytes()));
        match parameters {
            Some(Ok(parameters)) => self.rest(parameters, leaving),
            // Nothing of it can be evaluated: it goes when the type is switched on.
            Some(Err(_)) | None => {
                let mut plan = ServicePlan { leaving, ..before.clone() };
                self.note_switched_off(&mut plan);
                Ok(WalkResult { plan: Some(plan), ..WalkResult::default() })
            }
        }
    }

    fn note_switched_off(&self, plan: &mut ServicePlan) {
        walk::note_switch(plan, false, self.change.request.surroundings.now_ns);
    }

    /// The service plan of an instance whose type is switched off. Its claims stay.
    fn rest(
        &self,
        parameters: Parameters,
        leaving: Option<Arc<str>>,
    ) -> Result<WalkResult, WorkFailure> {
        let mut plan = match self.before() {
            Some(_) => {
                let instance = self.instance(parameters, leaving.clone());
                walk::rest(&instance, self.change.request).map_err(|error| self.failed(&error))?
            }
            None => self.stored_plan(),
        };
        plan.leaving = leaving;
        self.note_switched_off(&mut plan);
        Ok(WalkResult { plan: Some(plan), ..WalkResult::default() })
    }

    /// The plan as it was, with the reason for which the instance is not walked, and what came of its actions. Expressions see
    /// the parameters as they are.
    fn failed_plan(&self, entry: Option<&Entry>, reason: Arc<str>) -> WalkResult {
        let none = Arc::default();
        let newest = &self.of.newest.package;
        let parameters = newest.accepted_parameters(&self.tag.key, entry.unwrap_or(&none));
        let instance = self.instance(parameters, None);
        let plan = Some(walk::failed_plan(&instance, self.change.request, reason));
        WalkResult { plan, ..WalkResult::default() }
    }

    fn refused(&self, errors: &[ParametersError]) -> WorkFailure {
        let reasons: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let text = format!("{}: {}", self.tag, reasons.join("; "));
        WorkFailure { instance: self.path.clone(), kind: WorkFailureKind::Parameters, text }
    }

    fn failed(&self, error: &WorkError) -> WorkFailure {
        let package = &self.version.package;
        let name = &package.outline.name.text;
        let version = package.version();
        let text = format!("failed in {name} {version}: {error}");
        WorkFailure { instance: self.path.clone(), kind: failure_kind(error.kind), text }
    }
}

/// Failure of a change that makes an instance again which still backs out.
fn in_the_way(tag: &ServiceTag, path: &InstancePath, plan: &ServicePlan) -> WorkFailure {
    let is_self = |component: &&ComponentPlan| component.component_type == SELF;
    // While the type is switched off, nothing else that a state waits for is looked at.
    let is_switched_off = walk::is_switched_off(plan);
    let components = plan.components.iter().rev();
    let components = components.filter(|it| !is_switched_off || is_self(it));
    let states = components
        .flat_map(|component| component.states.iter().rev().map(move |state| (component, state)));
    let waiting = states.filter_map(|(component, state)| {
        let waits_for = state.waits_for.as_ref()?;
        Some(format!(
            "{} {}, {} waits for {waits_for}",
            component.component_type, component.name, state.name
        ))
    });
    let reason = waiting.into_iter().next().unwrap_or_else(|| "it still backs out".to_owned());
    let text = format!("zombie of {tag}: {reason}");
    WorkFailure { instance: path.clone(), kind: WorkFailureKind::Leaving, text }
}
