//! Get: one snapshot, one notification for each path.
//!
//! A path that names one thing must find it. A path with wildcards or left-out keys gives one
//! update for each instance it finds, with its concrete path, and may find none.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use holdfast_base::now_ns;
use holdfast_config::edit::ANNOTATION;
use holdfast_config::limits::{ANSWER_SIZE, LimitExceeded, MESSAGE_SIZE, REQUEST_PATHS};
use holdfast_config::schema::{Node, Origin};
use holdfast_config::tree::{Child, NodeRef, SelectVisitor, Tree};
use holdfast_config::{InstancePath, Models, Path, json};
use holdfast_core::{Datastore, PolledSources};
use holdfast_proto::gnmi;
use holdfast_proto::gnmi::get_request::DataType;
use holdfast_telemetry::polled::with_polled_leaves;
use holdfast_telemetry::{
    ChangeDetection, LeafSetCache, LeafVersion, PolledReading, ReadType, Selection, TreeUpdate,
    Walk, WalkProgress,
};
use prost::Message;
use smol_str::SmolStr;

use super::cli_get;
use super::encoding::Encoding;
use super::extensions::ReadExtensions;
use super::path::{elems_to_wire, to_wire};
use super::read_request::{AdmittedPath, ReadPath, ReadRequest};
use super::reads::{PORTION, ReadBudget, ReadPool, ReadStop};
use super::status::Refusal;
use super::unknown_path::{OrUnknown, all_known};
use crate::budget::CallerBudget;
use crate::gnsi::pathz::{PathPermissions, visible_while};

pub(super) async fn get<D: Datastore>(
    core: &D,
    reads: &ReadPool,
    budget: CallerBudget,
    rights: Option<&Arc<PathPermissions>>,
    request: gnmi::GetRequest,
) -> Result<gnmi::GetResponse, Refusal> {
    REQUEST_PATHS.check(request.path.len())?;
    let wishes = ReadExtensions::of_get(&request.extension)?;
    let kind = read_kind(request.r#type)?;
    let prefix = request.prefix.clone();
    let reader = ReadRequest::new(core, rights, prefix, kind, &request.use_models, wishes.depth)?;
    let joined = reader.joined(request.path.iter().map(Some))?;
    if joined.iter().flatten().any(|path| path.cli) {
        return cli_get::get(core, reads, reader, all_known(joined)?, &request, kind).await;
    }
    let encoding = Encoding::read(request.encoding)?;
    let admitted = Arc::new(reader.admitted(joined).await?);
    let mut reader = Arc::new(reader);
    let (paths, view) = loop {
        let asking = Arc::clone(&reader);
        let admitted = Arc::clone(&admitted);
        let resolved = reads.run(move |work| ResolvedPaths::read(&asking, &admitted, work)).await?;
        let view = GetSnapshot::take(core, resolved.polled).await;
        if reader.models().includes(&view.models) {
            break (resolved.paths, view);
        }
        // Nodes were appended meanwhile.
        reader = Arc::new(reader.for_models(core, &view.models));
    };
    let answer = move |work: &ReadBudget| {
        budget.check_answers()?; // others may have been made while this one waited for its turn
        let making = AnswerContext { work, room: AnswerSize::default(), cache: RefCell::default() };
        let view = view.complete(work)?;
        let notification = |path| {
            let reader = &*reader;
            PathAnswer { reader, view: &view, encoding, path, context: &making }.notification()
        };
        let notification = paths.iter().map(notification).collect::<Result<_, ReadStop>>()?;
        Ok(gnmi::GetResponse { notification, ..Default::default() })
    };
    reads.run(answer).await
}

/// The paths of a request, looked up.
#[derive(Debug)]
struct ResolvedPaths {
    paths: Vec<ReadPath>,
    /// Sources that have to be read for this request, by origin.
    polled: BTreeMap<Origin, PolledSources>,
}

impl ResolvedPaths {
    fn read(
        reader: &ReadRequest,
        admitted: &[OrUnknown<AdmittedPath>],
        work: &ReadBudget,
    ) -> Result<Self, ReadStop> {
        let paths = all_known(reader.resolve_paths(admitted, work)?)?;
        let mut polled: BTreeMap<Origin, PolledSources> = BTreeMap::new();
        let mut cache = LeafSetCache::default();
        for path in &paths {
            work.spend(path.patterns.len())?;
            if let Some(selection) = reader.selection(&mut cache, path, ChangeDetection::Polled) {
                polled.entry(path.joined.origin).or_default().extend(&reader.sources(&selection));
            }
        }
        Ok(Self { paths, polled })
    }
}

fn read_kind(number: i32) -> Result<ReadType, Refusal> {
    Ok(match DataType::try_from(number) {
        Ok(DataType::All) => ReadType::All,
        Ok(DataType::Config) => ReadType::Config,
        Ok(DataType::State) => ReadType::State,
        Ok(DataType::Operational) => ReadType::Operational,
        Err(_) => return Err(Refusal::invalid(format!("there is no data type {number}"))),
    })
}

/// Nodes to count for a leaf that is laid over a tree: the nodes above it are copied.
const OVERLAY: usize = 4;

/// Snapshot from which all paths of the request are answered.
#[derive(Clone, Debug)]
struct GetSnapshot {
    models: Arc<Models>,
    openconfig: Tree<LeafVersion>,
    native: Tree<LeafVersion>,
    annotation: Option<SmolStr>,
    /// Leaves that were read for this request and are yet to be laid over the trees.
    polled: Vec<(Origin, PolledReading)>,
    time_ns: u64,
}

impl GetSnapshot {
    async fn take<D: Datastore>(core: &D, sources: BTreeMap<Origin, PolledSources>) -> Self {
        let revision = core.current_revision().await;
        let mut polled = Vec::with_capacity(sources.len());
        for (origin, sources) in sources {
            polled.push((origin, core.polled(origin, &sources).await));
        }
        Self {
            models: Arc::clone(&revision.models),
            openconfig: revision.openconfig.clone(),
            native: revision.native.clone(),
            annotation: revision.annotation.clone(),
            polled,
            time_ns: now_ns(),
        }
    }

    /// Lays the leaves that were read over the trees.
    fn complete(&self, work: &ReadBudget) -> Result<Self, ReadStop> {
        let mut view = Self { polled: Vec::new(), ..self.clone() };
        for (origin, reading) in &self.polled {
            work.spend(reading.size() * OVERLAY)?;
            let schema = self.models.schema(*origin);
            let tree = view.tree(*origin);
            let tree = with_polled_leaves(schema, tree, reading.clone(), self.time_ns);
            *view.tree_mut(*origin) = tree;
        }
        Ok(view)
    }

    fn tree(&self, origin: Origin) -> &Tree<LeafVersion> {
        match origin {
            Origin::OpenConfig => &self.openconfig,
            Origin::Native => &self.native,
        }
    }

    fn tree_mut(&mut self, origin: Origin) -> &mut Tree<LeafVersion> {
        match origin {
            Origin::OpenConfig => &mut self.openconfig,
            Origin::Native => &mut self.native,
        }
    }
}

/// The size of an answer while it is made, in all its notifications: in memory, and as it will be sent.
#[derive(Debug, Default)]
struct AnswerSize {
    memory: Cell<usize>,
    message: Cell<usize>,
}

impl AnswerSize {
    fn add(&self, update: &gnmi::Update) -> Result<(), LimitExceeded> {
        self.memory.set(self.memory.get() + memory_of(update));
        self.message.set(self.message.get() + update.encoded_len());
        self.check(0)
    }

    /// Checks the answer, together with the bytes of a document that is being printed.
    fn check(&self, document: usize) -> Result<(), LimitExceeded> {
        MESSAGE_SIZE.check(self.message.get() + document)?;
        ANSWER_SIZE.check(self.memory.get() + document)
    }
}

/// Estimate of the bytes that an update takes in memory.
fn memory_of(update: &gnmi::Update) -> usize {
    /// A BTreeMap that is not empty has a node with room for eleven entries.
    const MAP_NODE: usize = 11 * 2 * size_of::<String>();
    let elem = |elem: &gnmi::PathElem| {
        let keys = elem.key.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        let node = if elem.key.is_empty() { 0 } else { MAP_NODE };
        size_of::<gnmi::PathElem>() + elem.name.len() + node + keys
    };
    let path = update.path.iter().flat_map(|path| &path.elem).map(elem).sum::<usize>();
    let value = update.val.as_ref().map_or(0, Message::encoded_len);
    size_of::<gnmi::Update>() + path + value
}

/// One path about to be answered.
struct PathAnswer<'a> {
    reader: &'a ReadRequest,
    view: &'a GetSnapshot,
    encoding: Encoding,
    path: &'a ReadPath,
    context: &'a AnswerContext<'a>,
}

/// The parts that all notifications of an answer share while they are made.
struct AnswerContext<'a> {
    work: &'a ReadBudget,
    room: AnswerSize,
    cache: RefCell<LeafSetCache>,
}

impl PathAnswer<'_> {
    fn notification(&self) -> Result<gnmi::Notification, ReadStop> {
        self.context.work.spend(1)?;
        let update = match self.encoding {
            Encoding::Proto => self.leaves()?,
            Encoding::Json | Encoding::JsonIetf => self.documents()?,
        };
        let path = &self.path.joined.path;
        if update.is_empty()
            && self.path.is_concrete()
            && !path.elems.is_empty()
            && !self.is_cut_off()?
        {
            return Err(Refusal::absent(path, "such data").into());
        }
        let prefix = match self.prefix_len() {
            0 => self.reader.prefix.root(self.origin()),
            _ => self.reader.prefix.answer(self.origin()),
        };
        let timestamp = self.view.time_ns.cast_signed();
        Ok(gnmi::Notification { timestamp, prefix: Some(prefix), update, ..Default::default() })
    }

    /// True when the path has data, and all of it is below the wanted depth.
    fn is_cut_off(&self) -> Result<bool, ReadStop> {
        if self.reader.filter(self.origin()).depth.is_none() {
            return Ok(false);
        }
        let mut found = VisibilityCheck { answer: self, is_there: false };
        for pattern in self.path.patterns.iter() {
            let flow = self.view.tree(self.origin()).select_into(pattern, &mut found);
            match (flow, found.is_there) {
                (_, true) => return Ok(true),
                (ControlFlow::Break(()), false) => return Err(self.context.work.stopped()),
                (ControlFlow::Continue(()), false) => {}
            }
        }
        Ok(false)
    }

    /// One update for each leaf.
    fn leaves(&self) -> Result<Vec<gnmi::Update>, ReadStop> {
        let cache = &mut self.context.cache.borrow_mut();
        let Some(selection) = self.reader.selection(cache, self.path, ChangeDetection::All) else {
            return Ok(Vec::new());
        };
        let schema = self.view.models.schema(self.origin());
        let mut walk = Walk::whole(selection, self.view.tree(self.origin()));
        let mut updates = Vec::new();
        loop {
            let before = walk.visited();
            let update = match walk.next_within(before + PORTION) {
                WalkProgress::Update(TreeUpdate::Leaf { path, leaf, .. }) => {
                    path.last().map(|step| {
                        let value = self.encoding.leaf(schema, step.node, &leaf.value);
                        update(to_wire(schema, &path[self.prefix_len().min(path.len())..]), value)
                    })
                }
                WalkProgress::Update(_) | WalkProgress::Paused => None,
                WalkProgress::Ended => return Ok(updates),
            };
            self.context.work.spend(walk.visited() - before)?;
            if let Some(update) = update {
                self.context.room.add(&update)?;
                updates.push(update);
            }
        }
    }

    /// One update for each thing the path names, with all that is in it.
    fn documents(&self) -> Result<Vec<gnmi::Update>, ReadStop> {
        let cache = &mut self.context.cache.borrow_mut();
        let selection = self.reader.full_selection(cache, self.path, ChangeDetection::All);
        let mut documents = Documents { answer: self, selection, updates: Vec::new() };
        for pattern in self.path.patterns.iter() {
            if self.view.tree(self.origin()).select_into(pattern, &mut documents).is_break() {
                return Err(self.context.work.stopped());
            }
        }
        let mut updates = documents.updates;
        // The root is there even when nothing is in it.
        if updates.is_empty() && self.path.joined.path.elems.is_empty() {
            let empty = self.encoding.document(self.annotated(b"{}".to_vec()));
            updates.push(update(gnmi::Path::default(), empty));
        }
        Ok(updates)
    }

    /// The part of the found data that the caller may see. `room` holds the copy, if something had to be cut out.
    fn visible<'f>(
        &self,
        path: &InstancePath,
        found: NodeRef<'f, LeafVersion>,
        room: &'f mut Option<Child<LeafVersion>>,
    ) -> ControlFlow<(), Option<NodeRef<'f, LeafVersion>>> {
        let Some(view) = self.reader.rights(self.origin()) else {
            return ControlFlow::Continue(Some(found));
        };
        let schema = self.view.models.schema(self.origin());
        *room = visible_while(schema, view, path, found, &|| self.context.work.check())?;
        ControlFlow::Continue(room.as_ref().map(NodeRef::from))
    }

    /// Adds the annotation of the root, which is configuration of the client, to the document of the root.
    fn annotated(&self, document: Vec<u8>) -> Vec<u8> {
        let kind = self.reader.filter(self.origin()).read_type;
        let configuration = matches!(kind, ReadType::All | ReadType::Config);
        let annotation = self.view.annotation.as_ref();
        let here = configuration && self.origin() == Origin::OpenConfig;
        let Some(annotation) = annotation.filter(|_| here) else { return document };
        json::annotate(&document, ANNOTATION, annotation)
    }

    fn document(
        &self,
        path: &InstancePath,
        found: NodeRef<'_, LeafVersion>,
        selection: &Selection,
    ) -> ControlFlow<(), Option<gnmi::TypedValue>> {
        let schema = self.view.models.schema(self.origin());
        let filter = self.reader.filter(self.origin());
        let at = schema.node(path.last().map_or(schema.root(), |step| step.node));
        // The printer writes keys wherever it writes an entry; they do not make it write one.
        let entry_is_configured = matches!(found, NodeRef::Leaf(_)) && self.is_in_given_entry(path);
        let is_shown = |node: &Node| {
            selection.is_within_depth(node.id)
                && filter.matches(node)
                && (!filter.is_config_key(schema, node) || entry_is_configured)
        };
        let go_on = |octets| {
            let fits = self.context.room.check(octets).map_err(ReadStop::from);
            self.context.work.flow(fits.and_then(|()| self.context.work.spend(1)))
        };
        let flavour = self.encoding.flavour();
        let text = json::print_while(schema, at.id, found, flavour, &is_shown, &go_on)?;
        let text = text.map(|text| if path.is_root() { self.annotated(text) } else { text });
        ControlFlow::Continue(text.map(|text| self.encoding.document(text)))
    }

    fn is_in_given_entry(&self, leaf: &InstancePath) -> bool {
        let above = leaf.0.split_last().map(|(_, above)| above);
        let entry = above.and_then(|steps| self.view.tree(self.origin()).find_branch(steps));
        entry.is_some_and(|entry| entry.given)
    }

    /// The path as the client wrote it, if it names this one thing.
    fn answer_path(&self, found: &InstancePath) -> gnmi::Path {
        let schema = self.view.models.schema(self.origin());
        if self.path.is_concrete() {
            let below = &self.path.joined.path.elems[self.prefix_len()..];
            return elems_to_wire(&Path { elems: below.to_vec() });
        }
        to_wire(schema, &found.0[self.prefix_len().min(found.0.len())..])
    }

    fn origin(&self) -> Origin {
        self.path.joined.origin
    }

    /// Number of elements of a found path that belong to the prefix of the answer; 0 if the request's prefix has
    /// wildcards, since an answer has none.
    fn prefix_len(&self) -> usize {
        let len = self.reader.prefix.len();
        if self.path.is_concrete_up_to(len) { len } else { 0 }
    }
}

/// Search for anything that the caller may see.
struct VisibilityCheck<'a, 'b> {
    answer: &'b PathAnswer<'a>,
    is_there: bool,
}

impl SelectVisitor<LeafVersion> for VisibilityCheck<'_, '_> {
    fn visit(&mut self) -> ControlFlow<()> {
        self.answer.context.work.check()
    }

    fn found(&mut self, path: &InstancePath, found: NodeRef<'_, LeafVersion>) -> ControlFlow<()> {
        self.is_there = self.answer.visible(path, found, &mut None)?.is_some();
        if self.is_there { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Collector of one update for each node that is found.
struct Documents<'a, 'b> {
    answer: &'b PathAnswer<'a>,
    selection: Selection,
    updates: Vec<gnmi::Update>,
}

impl SelectVisitor<LeafVersion> for Documents<'_, '_> {
    fn visit(&mut self) -> ControlFlow<()> {
        self.answer.context.work.check()
    }

    fn found(&mut self, path: &InstancePath, found: NodeRef<'_, LeafVersion>) -> ControlFlow<()> {
        let mut room = None;
        let Some(found) = self.answer.visible(path, found, &mut room)? else {
            return ControlFlow::Continue(());
        };
        if let Some(value) = self.answer.document(path, found, &self.selection)? {
            let update = update(self.answer.answer_path(path), value);
            let fits = self.answer.context.room.add(&update).map_err(ReadStop::from);
            self.answer.context.work.flow(fits)?;
            self.updates.push(update);
        }
        ControlFlow::Continue(())
    }
}

fn update(path: gnmi::Path, value: gnmi::TypedValue) -> gnmi::Update {
    gnmi::Update { path: Some(path), val: Some(value), ..Default::default() }
}
