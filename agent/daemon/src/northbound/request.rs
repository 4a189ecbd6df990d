//! What Get and Subscribe requests have in common: paths to read, in an origin, under a filter.

use std::num::NonZeroU32;
use std::sync::Arc;

use holdfast_config::schema::{Origin, Schema};
use holdfast_config::{Elem, Path, Pattern};
use holdfast_proto::gnmi;

use super::capabilities;
use super::datastore::Datastore;
use super::path::{Access, Joined, Prefix};
use super::status::Refusal;
use crate::gnsi::pathz::{NodeView, Rights};
use crate::telemetry::{Class, Filter, Kind, Selection};

/// Prefix and filter of a request, for reading its paths.
#[derive(Debug)]
pub(super) struct Reader<'a, D> {
    core: &'a D,
    /// What the caller may read, where there are rules.
    rights: Option<&'a Rights>,
    pub(super) prefix: Prefix,
    openconfig: Filter,
    native: Filter,
}

/// One path of a request: its text for messages, its nodes.
#[derive(Clone, Debug)]
pub(super) struct ReadPath {
    pub(super) joined: Joined,
    pub(super) patterns: Vec<Pattern>,
}

impl<'a, D: Datastore> Reader<'a, D> {
    pub(super) fn new(
        core: &'a D,
        rights: Option<&'a Rights>,
        prefix: Option<gnmi::Path>,
        kind: Kind,
        models: &[gnmi::ModelData],
        depth: Option<NonZeroU32>,
    ) -> Result<Self, Refusal> {
        let schemas = [core.schema(Origin::OpenConfig), core.schema(Origin::Native)];
        let [openconfig, native] = match capabilities::use_models(schemas, models)? {
            None => [None, None],
            Some(models) => models.map(Some),
        };
        Ok(Self {
            core,
            rights,
            prefix: Prefix::read(prefix, Access::Read)?,
            openconfig: Filter { kind, models: openconfig, depth },
            native: Filter { kind, models: native, depth },
        })
    }

    /// All paths of the request, not looked up yet. Those that are missing mean the prefix itself.
    pub(super) fn joined<'p>(
        &self,
        wire: impl IntoIterator<Item = Option<&'p gnmi::Path>>,
    ) -> Result<Vec<Joined>, Refusal> {
        let joined =
            wire.into_iter().map(|path| self.prefix.join(path)).collect::<Result<Vec<_>, _>>()?;
        self.prefix.check_shared(&joined)?;
        Ok(joined)
    }

    /// Looks up paths of the models.
    pub(super) fn resolved(&self, joined: Vec<Joined>) -> Result<Vec<ReadPath>, Refusal> {
        joined.into_iter().map(|joined| self.resolve(joined)).collect()
    }

    fn resolve(&self, joined: Joined) -> Result<ReadPath, Refusal> {
        if joined.cli {
            let origin = joined.origin_name();
            let reason =
                format!("origin `{origin}` cannot be subscribed to: Get answers its commands");
            return Err(Refusal::unimplemented(reason));
        }
        let patterns = self
            .schema(joined.origin)
            .resolve_read(&joined.path)
            .map_err(|error| Refusal::path(&error, Access::Read))?;
        let path = ReadPath { joined, patterns };
        self.admit(&path)?;
        Ok(path)
    }

    /// Refuses a path that the caller has no permit for, on it or above. What is denied below it is left out later.
    fn admit(&self, path: &ReadPath) -> Result<(), Refusal> {
        let Some(rights) = self.rights else { return Ok(()) };
        // A name that is left open is covered by what may be read above it.
        let literal = path.joined.path.literal_len();
        let asked = path.patterns.first().map_or(&[][..], |pattern| &pattern.0);
        match rights.may_ask(path.joined.origin.into(), &asked[..literal.min(asked.len())]) {
            true => Ok(()),
            false => Err(Refusal::unreadable(&path.joined.path)),
        }
    }

    /// What of an origin the caller may read, where there are rules.
    pub(super) fn rights(&self, origin: Origin) -> Option<&'a Arc<NodeView>> {
        Some(self.rights?.read(origin.into()))
    }

    /// The same for text of the command line, which is shown as a whole or not at all.
    pub(super) fn admit_text(&self, path: &Path) -> Result<(), Refusal> {
        match self.rights {
            Some(rights) if !rights.may_ask_text() => Err(Refusal::unreadable(path)),
            _ => Ok(()),
        }
    }

    pub(super) fn schema(&self, origin: Origin) -> &'a Schema {
        self.core.schema(origin)
    }

    pub(super) fn filter(&self, origin: Origin) -> &Filter {
        match origin {
            Origin::OpenConfig => &self.openconfig,
            Origin::Native => &self.native,
        }
    }

    /// The leaves of one class below a path; none when the models have no such leaf there.
    pub(super) fn selection(&self, path: &ReadPath, class: Class) -> Option<Arc<Selection>> {
        let selection = self.full_selection(path, class);
        (!selection.is_empty(self.schema(path.joined.origin))).then(|| Arc::new(selection))
    }

    /// The same, also when it is empty.
    pub(super) fn full_selection(&self, path: &ReadPath, class: Class) -> Selection {
        let origin = path.joined.origin;
        Selection::new(self.schema(origin), path.patterns.clone(), self.filter(origin), class)
            .through(self.rights(origin).cloned())
    }
}

impl ReadPath {
    /// True when the path names one thing: it has no wildcard and no list without its keys.
    pub(super) fn is_concrete(&self) -> bool {
        self.is_concrete_up_to(self.joined.path.elems.len())
    }

    /// The same for the first `count` elements.
    pub(super) fn is_concrete_up_to(&self, count: usize) -> bool {
        let wildcard = |elem: &Elem| elem.name == "*" || elem.name == "...";
        let Some(pattern) = self.patterns.first() else { return false };
        !self.joined.path.elems.iter().take(count).any(wildcard)
            && pattern
                .0
                .iter()
                .take(count)
                .all(|step| step.keys.as_ref().is_none_or(|keys| keys.concrete().is_some()))
    }
}
