//! The common part of Get and Subscribe requests: paths to read, in an origin, under a filter.
//!
//! Of several mistakes, the first in this order is reported: a limit ([`Prefix::join`]), syntax, the pathz policy
//! ([`ReadRequest::admitted`]), the models ([`ReadRequest::resolve_paths`]), the data.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use holdfast_config::limits::{JOINED_PATHS, NAMED_NODES};
use holdfast_config::path::{ANY, ANY_DEPTH};
use holdfast_config::resolve::Literal;
use holdfast_config::schema::{Origin, Schema};
use holdfast_config::{Elem, Models, Path, PathError, PathPattern};
use holdfast_core::{Datastore, PolledCatalog, PolledSources};
use holdfast_proto::gnmi;
use holdfast_security::pathz::NodeView;
use holdfast_telemetry::{ChangeDetection, Filter, LeafSetCache, ReadType, Selection};
use tokio::task::yield_now;

use super::capabilities;
use super::path::{Access, JoinedPath, Prefix};
use super::reads::{PORTION, ReadBudget, ReadStop};
use super::status::Refusal;
use super::unknown_path::{OrUnknown, UnknownPath};
use crate::gnsi::pathz::{PathPermissions, PermittedExpansion};
use crate::settings::UnknownPaths;

/// Prefix and filter of a request, for reading its paths.
#[derive(Clone, Debug)]
pub(super) struct ReadRequest {
    /// Models that the paths are looked up in.
    models: Arc<Models>,
    catalog: Arc<PolledCatalog>,
    /// Permissions of the caller; `None` without a pathz policy.
    rights: Option<Arc<PathPermissions>>,
    pub(super) prefix: Prefix,
    unknown: UnknownPaths,
    openconfig: Filter,
    native: Filter,
}

/// One path of a request that the caller may ask for.
#[derive(Clone, Debug)]
pub(super) struct AdmittedPath {
    joined: JoinedPath,
    literal: Literal,
}

/// One path of a request: its text for messages, its nodes.
#[derive(Clone, Debug)]
pub(super) struct ReadPath {
    pub(super) joined: JoinedPath,
    pub(super) patterns: Arc<[PathPattern]>,
}

impl ReadRequest {
    pub(super) fn new(
        core: &impl Datastore,
        rights: Option<&Arc<PathPermissions>>,
        prefix: Option<gnmi::Path>,
        kind: ReadType,
        models: &[gnmi::ModelData],
        depth: Option<NonZeroU32>,
    ) -> Result<Self, Refusal> {
        let core_models = core.models();
        let schemas = [&core_models.openconfig, &core_models.native];
        let [openconfig, native] = match capabilities::use_models(schemas, models)? {
            None => [None, None],
            Some(models) => models.map(Some),
        };
        Ok(Self {
            rights: rights.map(|rights| rights.for_models(&core_models)),
            models: core_models,
            catalog: core.polled_catalog(),
            prefix: Prefix::read(prefix, Access::Read)?,
            unknown: UnknownPaths::Refuse,
            openconfig: Filter { read_type: kind, models: openconfig, depth },
            native: Filter { read_type: kind, models: native, depth },
        })
    }

    /// Sets the answer to paths that no model has: a new reader refuses them.
    pub(super) fn with(self, unknown: UnknownPaths) -> Self {
        Self { unknown, ..self }
    }

    /// Makes the request for data of other models. Paths that were admitted are still admitted.
    pub(super) fn for_models(&self, core: &impl Datastore, models: &Arc<Models>) -> Self {
        let rights = self.rights.as_ref().map(|rights| rights.for_models(models));
        let catalog = core.polled_catalog();
        Self { models: Arc::clone(models), catalog, rights, ..self.clone() }
    }

    pub(super) fn models(&self) -> &Arc<Models> {
        &self.models
    }

    /// Joins all paths of the request with the prefix. A missing path means the prefix itself.
    pub(super) fn joined<'p>(
        &'p self,
        wire: impl ExactSizeIterator<Item = Option<&'p gnmi::Path>>,
    ) -> Result<Vec<OrUnknown<JoinedPath>>, Refusal> {
        JOINED_PATHS.check(self.prefix.size().saturating_mul(wire.len()))?;
        let mut joined = Vec::new();
        let mut origins = Vec::new();
        let mut foreign = Vec::new();
        for path in wire {
            let named = self.prefix.named(path)?;
            let origin = named.origin;
            match named.in_known_origin(&self.models) {
                Ok(path) => {
                    origins.push(path.origin_name());
                    joined.push(Ok(path));
                }
                Err(other) => {
                    joined.push(Err(self.ignored(UnknownPath::of_origin(&other))?));
                    origins.push(origin);
                    foreign.push(other.path);
                }
            }
        }
        self.prefix.check_shared(origins)?;
        // No later step sees these any more. Their form is bad or good in any schema.
        foreign.iter().try_for_each(|path| self.check_form(Origin::OpenConfig, path))?;
        Ok(joined)
    }

    /// Checks each path against the pathz policy, before wildcards are expanded.
    pub(super) async fn admitted(
        &self,
        joined: Vec<OrUnknown<JoinedPath>>,
    ) -> Result<Vec<OrUnknown<AdmittedPath>>, Refusal> {
        for path in joined.iter().flatten().filter(|path| !path.cli) {
            self.check_form(path.origin, &path.path)?;
        }
        let mut admitted = Vec::with_capacity(joined.len());
        for (at, joined) in joined.into_iter().enumerate() {
            if at % PORTION == PORTION - 1 {
                yield_now().await;
            }
            admitted.push(match joined {
                Ok(joined) => self.admit(joined)?,
                Err(unknown) => Err(unknown),
            });
        }
        Ok(admitted)
    }

    fn check_form(&self, origin: Origin, path: &Path) -> Result<(), Refusal> {
        let form = self.schema(origin).check_form(path);
        form.map_err(|error| Refusal::path(&error, Access::Read))
    }

    /// Passes a path on that is ignored.
    ///
    /// # Errors
    /// When such paths are refused.
    fn ignored(&self, unknown: UnknownPath) -> Result<UnknownPath, Refusal> {
        match self.unknown {
            UnknownPaths::Refuse => Err(unknown.into()),
            UnknownPaths::Ignore => Ok(unknown),
        }
    }

    /// Refuses a path that the caller has no permit for, on it or above. Nodes below it that are denied are left out
    /// later.
    fn admit(&self, joined: JoinedPath) -> Result<OrUnknown<AdmittedPath>, Refusal> {
        if joined.cli {
            return Ok(Err(self.ignored(UnknownPath::command(&joined))?));
        }
        // A wildcard is covered by the permissions above it, and so is an unknown name: a caller who may not read a
        // path must not learn whether the models have it.
        let literal = self.schema(joined.origin).literal(&joined.path);
        let permitted = |rights: &PathPermissions| match &literal.error {
            None => rights.may_request(joined.origin.into(), &literal.steps),
            Some(_) => rights.may_request_below(joined.origin.into(), &literal.steps),
        };
        if self.rights.as_deref().is_none_or(permitted) {
            Ok(Ok(AdmittedPath { joined, literal }))
        } else {
            Err(Refusal::unreadable(&joined.path))
        }
    }

    /// Looks up paths in the models. Equal paths share their patterns.
    pub(super) fn resolve_paths(
        &self,
        admitted: &[OrUnknown<AdmittedPath>],
        work: &ReadBudget,
    ) -> Result<Vec<OrUnknown<ReadPath>>, ReadStop> {
        let mut resolved: HashMap<(Origin, &Path), OrUnknown<Arc<[PathPattern]>>> = HashMap::new();
        let mut nodes = 0;
        let mut paths = Vec::with_capacity(admitted.len());
        for path in admitted {
            work.spend(1)?;
            let AdmittedPath { joined, literal } = match path {
                Ok(path) => path,
                Err(unknown) => {
                    paths.push(Err(unknown.clone()));
                    continue;
                }
            };
            let patterns = match resolved.get(&(joined.origin, &joined.path)) {
                Some(patterns) => patterns.clone(),
                None => {
                    let patterns = self.expand(joined, literal, work)?;
                    nodes += patterns.as_ref().map_or(0, |patterns| patterns.len());
                    NAMED_NODES.check(nodes)?;
                    resolved.insert((joined.origin, &joined.path), patterns.clone());
                    patterns
                }
            };
            paths.push(patterns.map(|patterns| ReadPath { joined: joined.clone(), patterns }));
        }
        Ok(paths)
    }

    fn expand(
        &self,
        joined: &JoinedPath,
        literal: &Literal,
        work: &ReadBudget,
    ) -> Result<OrUnknown<Arc<[PathPattern]>>, ReadStop> {
        let schema = self.schema(joined.origin);
        let steps = literal.steps.clone();
        let unknown = |error: &PathError| Ok(Err(self.ignored(UnknownPath::node(joined, error)?)?));
        if let Some(error) = &literal.error {
            return unknown(error);
        }
        let sight = PermittedExpansion(self.rights(joined.origin).map(Arc::as_ref));
        match schema.expand(&joined.path, steps, &sight) {
            Ok(found) => {
                work.spend(found.visited)?;
                Ok(Ok(found.patterns.into()))
            }
            Err(error) => {
                // The walk entered each node once at most.
                work.spend(schema.nodes().len())?;
                unknown(&error)
            }
        }
    }

    /// Nodes of an origin that the caller may read; `None` without a pathz policy.
    pub(super) fn rights(&self, origin: Origin) -> Option<&Arc<NodeView>> {
        Some(self.rights.as_ref()?.read(origin.into()))
    }

    /// Refuses CLI text to a caller who may not read all of it, since it is shown as a whole or not at all.
    pub(super) fn admit_text(&self, path: &Path) -> Result<(), Refusal> {
        match &self.rights {
            Some(rights) if !rights.may_request_text() => Err(Refusal::unreadable(path)),
            _ => Ok(()),
        }
    }

    pub(super) fn schema(&self, origin: Origin) -> &Schema {
        self.models.schema(origin)
    }

    pub(super) fn filter(&self, origin: Origin) -> &Filter {
        match origin {
            Origin::OpenConfig => &self.openconfig,
            Origin::Native => &self.native,
        }
    }

    /// The leaves of one class below a path; `None` when the models have no such leaf there.
    pub(super) fn selection(
        &self,
        cache: &mut LeafSetCache,
        path: &ReadPath,
        class: ChangeDetection,
    ) -> Option<Arc<Selection>> {
        let selection = self.full_selection(cache, path, class);
        (!selection.is_empty(self.schema(path.joined.origin))).then(|| Arc::new(selection))
    }

    /// The sources of polled leaves that a selection needs.
    pub(super) fn sources(&self, selection: &Selection) -> PolledSources {
        let origin = selection.origin;
        self.catalog.sources(origin, selection.leaf_filter(self.schema(origin)))
    }

    /// The leaves of one class below a path, which may be none.
    pub(super) fn full_selection(
        &self,
        cache: &mut LeafSetCache,
        path: &ReadPath,
        class: ChangeDetection,
    ) -> Selection {
        let origin = path.joined.origin;
        let schema = self.schema(origin);
        let patterns = Arc::clone(&path.patterns);
        Selection::with(cache, schema, patterns, self.filter(origin), class)
            .with_permissions(self.rights(origin).cloned())
    }
}

impl ReadPath {
    /// True when the path names one thing: it has no wildcard and no list without its keys.
    pub(super) fn is_concrete(&self) -> bool {
        self.is_concrete_up_to(self.joined.path.elems.len())
    }

    /// True when the first `count` elements have no wildcard and no list without its keys.
    pub(super) fn is_concrete_up_to(&self, count: usize) -> bool {
        let wildcard = |elem: &Elem| elem.name == ANY || elem.name == ANY_DEPTH;
        let Some(pattern) = self.patterns.first() else { return false };
        !self.joined.path.elems.iter().take(count).any(wildcard)
            && pattern
                .0
                .iter()
                .take(count)
                .all(|step| step.keys.as_ref().is_none_or(|keys| keys.concrete().is_some()))
    }
}
