//! Get: one snapshot, one notification for each path.
//!
//! A path that names one thing must find it. A path with wildcards or left-out keys gives one
//! update for each instance it finds, with its concrete path, and may find none.

use holdfast_config::edit::ANNOTATION;
use holdfast_config::schema::{Node, Origin};
use holdfast_config::tree::{Child, Found, Tree};
use holdfast_config::{InstancePath, Path, json};
use holdfast_proto::gnmi;
use holdfast_proto::gnmi::get_request::DataType;
use smol_str::SmolStr;

use super::datastore::Datastore;
use super::encoding::Encoding;
use super::extensions::ReadWishes;
use super::path::{elems_to_wire, to_wire};
use super::request::{ReadPath, Reader};
use super::show;
use super::status::Refusal;
use crate::gnsi::pathz::{Rights, visible};
use crate::telemetry::view::{now_ns, overlaid};
use crate::telemetry::{Class, Item, Kind, Selection, Stamp, Walk};

pub(super) async fn get<D: Datastore>(
    core: &D,
    rights: Option<&Rights>,
    request: gnmi::GetRequest,
) -> Result<gnmi::GetResponse, Refusal> {
    let wishes = ReadWishes::of_get(&request.extension)?;
    let (kind, prefix) = (read_kind(request.r#type)?, request.prefix.clone());
    let reader = Reader::new(core, rights, prefix, kind, &request.use_models, wishes.depth)?;
    let joined = reader.joined(request.path.iter().map(Some))?;
    if joined.iter().any(|path| path.cli) {
        return show::get(core, &reader, &joined, &request, kind);
    }
    let encoding = Encoding::read(request.encoding)?;
    let paths = reader.resolved(joined)?;
    let view = View::take(core, &reader, &paths).await;
    let answer = |path| Answer { reader: &reader, view: &view, encoding, path }.notification();
    let notification = paths.iter().map(answer).collect::<Result<_, _>>()?;
    Ok(gnmi::GetResponse { notification, ..Default::default() })
}

fn read_kind(number: i32) -> Result<Kind, Refusal> {
    Ok(match DataType::try_from(number) {
        Ok(DataType::All) => Kind::All,
        Ok(DataType::Config) => Kind::Config,
        Ok(DataType::State) => Kind::State,
        Ok(DataType::Operational) => Kind::Operational,
        Err(_) => return Err(Refusal::invalid(format!("there is no data type {number}"))),
    })
}

/// What all paths of the request are answered from.
#[derive(Debug)]
struct View {
    openconfig: Tree<Stamp>,
    native: Tree<Stamp>,
    annotation: Option<SmolStr>,
    time_ns: u64,
}

impl View {
    async fn take<D: Datastore>(core: &D, reader: &Reader<'_, D>, paths: &[ReadPath]) -> Self {
        let revision = core.current_revision().await;
        let mut view = Self {
            openconfig: revision.openconfig.clone(),
            native: revision.native.clone(),
            annotation: revision.annotation.clone(),
            time_ns: 0,
        };
        for origin in [Origin::OpenConfig, Origin::Native] {
            let here = |path: &&ReadPath| path.joined.origin == origin;
            let polled = |path: &ReadPath| reader.selection(path, Class::Polled).is_some();
            if paths.iter().filter(here).any(polled) {
                let leaves = core.polled(origin).await;
                let tree = overlaid(core.schema(origin), view.tree(origin), leaves, now_ns());
                *view.tree_mut(origin) = tree;
            }
        }
        view.time_ns = now_ns();
        view
    }

    fn tree(&self, origin: Origin) -> &Tree<Stamp> {
        match origin {
            Origin::OpenConfig => &self.openconfig,
            Origin::Native => &self.native,
        }
    }

    fn tree_mut(&mut self, origin: Origin) -> &mut Tree<Stamp> {
        match origin {
            Origin::OpenConfig => &mut self.openconfig,
            Origin::Native => &mut self.native,
        }
    }
}

/// One path about to be answered.
struct Answer<'a, D> {
    reader: &'a Reader<'a, D>,
    view: &'a View,
    encoding: Encoding,
    path: &'a ReadPath,
}

impl<D: Datastore> Answer<'_, D> {
    fn notification(&self) -> Result<gnmi::Notification, Refusal> {
        let update = match self.encoding {
            Encoding::Proto => self.leaves(),
            Encoding::Json | Encoding::JsonIetf => self.documents(),
        };
        let path = &self.path.joined.path;
        if update.is_empty()
            && self.path.is_concrete()
            && !path.elems.is_empty()
            && !self.is_cut_off()
        {
            return Err(Refusal::absent(path, "such data"));
        }
        let prefix = match self.prefix_len() {
            0 => self.reader.prefix.root(self.origin()),
            _ => self.reader.prefix.answer(self.origin()),
        };
        let timestamp = self.view.time_ns.cast_signed();
        Ok(gnmi::Notification { timestamp, prefix: Some(prefix), update, ..Default::default() })
    }

    /// There is something, but all of it is deeper than what is wanted.
    fn is_cut_off(&self) -> bool {
        let tree = self.view.tree(self.origin());
        let is_seen = |(path, found): (InstancePath, Found<'_, Stamp>)| {
            self.seen(&path, found, &mut None).is_some()
        };
        let is_there = |pattern| tree.select(pattern).into_iter().any(is_seen);
        self.reader.filter(self.origin()).depth.is_some() && self.path.patterns.iter().any(is_there)
    }

    /// One update for each leaf.
    fn leaves(&self) -> Vec<gnmi::Update> {
        let Some(selection) = self.reader.selection(self.path, Class::All) else {
            return Vec::new();
        };
        let schema = self.reader.schema(self.origin());
        let mut walk = Walk::whole(selection, self.view.tree(self.origin()));
        let mut updates = Vec::new();
        while let Some(item) = walk.next() {
            if let Item::Leaf { path, leaf, .. } = item
                && let Some(step) = path.last()
            {
                let value = self.encoding.leaf(schema, step.node, &leaf.value);
                let path = to_wire(schema, &path[self.prefix_len().min(path.len())..]);
                updates.push(update(path, value));
            }
        }
        updates
    }

    /// One update for each thing the path names, with all that is in it.
    fn documents(&self) -> Vec<gnmi::Update> {
        let tree = self.view.tree(self.origin());
        let mut updates = Vec::new();
        let selection = self.reader.full_selection(self.path, Class::All);
        for pattern in &self.path.patterns {
            for (path, found) in tree.select(pattern) {
                let mut room = None;
                let Some(found) = self.seen(&path, found, &mut room) else { continue };
                if let Some(value) = self.document(&path, found, &selection) {
                    updates.push(update(self.answer_path(&path), value));
                }
            }
        }
        // The root is there even when nothing is in it.
        if updates.is_empty() && self.path.joined.path.elems.is_empty() {
            let empty = self.encoding.document(self.annotated(b"{}".to_vec()));
            updates.push(update(gnmi::Path::default(), empty));
        }
        updates
    }

    /// What the caller may see of what stands at a path. What had to be cut out goes into `room`.
    fn seen<'f>(
        &self,
        path: &InstancePath,
        found: Found<'f, Stamp>,
        room: &'f mut Option<Child<Stamp>>,
    ) -> Option<Found<'f, Stamp>> {
        let Some(view) = self.reader.rights(self.origin()) else { return Some(found) };
        *room = visible(self.reader.schema(self.origin()), view, path, found);
        room.as_ref().map(Found::from)
    }

    /// The document of the root, with what the client noted on it: part of its configuration.
    fn annotated(&self, document: Vec<u8>) -> Vec<u8> {
        let kind = self.reader.filter(self.origin()).kind;
        let configuration = matches!(kind, Kind::All | Kind::Config);
        let annotation = self.view.annotation.as_ref();
        let here = configuration && self.origin() == Origin::OpenConfig;
        let Some(annotation) = annotation.filter(|_| here) else { return document };
        json::annotate(&document, ANNOTATION, annotation)
    }

    fn document(
        &self,
        path: &InstancePath,
        found: Found<'_, Stamp>,
        selection: &Selection,
    ) -> Option<gnmi::TypedValue> {
        let schema = self.reader.schema(self.origin());
        let filter = self.reader.filter(self.origin());
        let at = schema.node(path.last().map_or(schema.root(), |step| step.node));
        // The printer writes keys wherever it writes an entry; they are no reason to write one.
        let entry_is_configured = matches!(found, Found::Leaf(_)) && self.is_in_given_entry(path);
        let shown = |node: &Node| {
            selection.reaches(node.id)
                && filter.takes(node)
                && (!filter.is_config_key(schema, node) || entry_is_configured)
        };
        let text = json::print(schema, at.id, found, self.encoding.flavour(), &shown)?;
        let text = if path.is_root() { self.annotated(text) } else { text };
        Some(self.encoding.document(text))
    }

    fn is_in_given_entry(&self, leaf: &InstancePath) -> bool {
        let above = leaf.0.split_last().map(|(_, above)| InstancePath(above.to_vec()));
        let entry = above.and_then(|path| self.view.tree(self.origin()).branch(&path));
        entry.is_some_and(|entry| entry.given)
    }

    /// The path as the client wrote it, if it names this one thing.
    fn answer_path(&self, found: &InstancePath) -> gnmi::Path {
        let schema = self.reader.schema(self.origin());
        if self.path.is_concrete() {
            let below = &self.path.joined.path.elems[self.prefix_len()..];
            return elems_to_wire(&Path { elems: below.to_vec() });
        }
        to_wire(schema, &found.0[self.prefix_len().min(found.0.len())..])
    }

    fn origin(&self) -> Origin {
        self.path.joined.origin
    }

    /// How many elements of a path found are those of the request's prefix; 0 where the prefix has
    /// wildcards, since an answer has none.
    fn prefix_len(&self) -> usize {
        let len = self.reader.prefix.len();
        if self.path.is_concrete_up_to(len) { len } else { 0 }
    }
}

fn update(path: gnmi::Path, value: gnmi::TypedValue) -> gnmi::Update {
    gnmi::Update { path: Some(path), val: Some(value), ..Default::default() }
}
