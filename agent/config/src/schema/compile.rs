//! Conversion of libyang's compiled modules to [`Schema`].

use std::collections::HashMap;
use std::sync::Arc;

use smol_str::SmolStr;
use yang5::context::{Context, ContextFlags};
use yang5::schema::{SchemaModule, SchemaNode, SchemaNodeKind};

use super::append::YangModule;
use super::libyang::{self, ModuleError, RawType};
use super::pattern_checks::quick_check;
use super::types::{BuiltinType, Canonical, EnumMember, Identity, Pattern, Type};
use super::when::When;
use super::xsd;
use super::{LeafSchema, Module, ModuleId, Node, NodeId, NodeKind, Origin, Schema, SchemaError};
use crate::name::Name;
use crate::value::Value;

/// Module with our own extensions, see holdfast-extensions.yang.
const OWN_EXTENSIONS: &str = "holdfast-extensions";
const OPENCONFIG_EXTENSIONS: &str = "openconfig-extensions";

/// Modules by name and text.
pub(super) type Sources = &'static [(&'static str, &'static str)];

/// Loads `sources` into a new libyang context.
fn load(sources: Sources) -> Result<Context, yang5::Error> {
    let mut context =
        Context::new(ContextFlags::NO_YANGLIBRARY | ContextFlags::DISABLE_SEARCHDIRS)?;
    libyang::load_modules(&mut context, sources)?;
    Ok(context)
}

/// Adds a module that is not in the binary.
fn append(context: &Context, module: &YangModule) -> Result<(), ModuleError> {
    let refused = |reason| ModuleError { reason, line: None };
    if module.text.contains('\0') {
        return Err(refused("a module is text without zero bytes".to_owned())); // libyang's binding would panic
    }
    let parsed = libyang::parse_module(context, &module.text)?;
    if parsed.name() == module.name {
        Ok(())
    } else {
        Err(refused(format!("the module of `{}` is called `{}`", module.name, parsed.name())))
    }
}

/// A libyang context with `sources`, and `appended` modules which may import them.
pub(super) fn context(
    origin: Origin,
    sources: Sources,
    appended: &[YangModule],
) -> Result<Context, SchemaError> {
    let context = load(sources).map_err(|error| SchemaError {
        origin,
        reason: error.to_string(),
        place: None,
    })?;
    for module in appended {
        append(&context, module).map_err(|ModuleError { reason, line }| {
            let place = line.map(|line| (module.name.clone(), line));
            SchemaError { origin, reason, place }
        })?;
    }
    Ok(context)
}

/// Compiles `sources`, and `appended` modules which may import them. The libyang context is freed at the end.
pub(super) fn compile(
    origin: Origin,
    sources: Sources,
    appended: &[YangModule],
) -> Result<Schema, SchemaError> {
    let context = context(origin, sources, appended)?;
    let mut compiler = Compiler::new(origin);
    let modules: Vec<_> = context
        .modules(true)
        .filter(|m| {
            sources.iter().any(|(name, _)| *name == m.name())
                || appended.iter().any(|it| it.name == m.name())
        })
        .collect();
    compiler.schema.modules = modules.iter().map(module).collect();
    for module in &modules {
        for top in module.data() {
            compiler.add(&top, NodeId(0), None)?;
        }
    }
    compiler.finish(&context)
}

fn module(module: &SchemaModule<'_>) -> Module {
    let version = libyang::module_extensions(module)
        .into_iter()
        .find(|e| e.module == OPENCONFIG_EXTENSIONS && e.name == "openconfig-version")
        .and_then(|e| e.argument);
    Module {
        name: module.name().into(),
        namespace: module.namespace().into(),
        organization: module.organization().unwrap_or_default().into(),
        version: version.unwrap_or_else(|| module.revision().unwrap_or_default().into()),
        is_unlinked: false,
    }
}

struct Compiler {
    schema: Schema,
    /// Our nodes by the address of libyang's, to resolve leafrefs.
    known: HashMap<usize, NodeId>,
    leafrefs: Vec<(NodeId, usize)>,
    regexes: HashMap<SmolStr, Pattern>,
}

impl Compiler {
    fn new(origin: Origin) -> Self {
        let schema =
            Schema { origin, nodes: vec![root()], modules: Vec::new(), appended: Vec::new() };
        Self { schema, known: HashMap::new(), leafrefs: Vec::new(), regexes: HashMap::new() }
    }

    fn fail(&self, node: &SchemaNode<'_>, reason: impl std::fmt::Display) -> SchemaError {
        let path = node.path(yang5::schema::SchemaPathFormat::DATA);
        let reason = format!("{path}: {reason}");
        SchemaError { origin: self.schema.origin, reason, place: None }
    }

    /// Adds `from` and its descendants. A choice and its cases become no nodes, only attributes of the nodes
    /// within them.
    fn add(
        &mut self,
        from: &SchemaNode<'_>,
        parent: NodeId,
        choice: Option<(SmolStr, SmolStr)>,
    ) -> Result<(), SchemaError> {
        match from.kind() {
            SchemaNodeKind::Choice => {
                for case in from.children() {
                    for child in case.children() {
                        self.add(&child, parent, Some((from.name().into(), case.name().into())))?;
                    }
                }
                Ok(())
            }
            SchemaNodeKind::Container
            | SchemaNodeKind::List
            | SchemaNodeKind::Leaf
            | SchemaNodeKind::LeafList => {
                let id = self.add_data(from, parent, choice)?;
                from.children().try_for_each(|child| self.add(&child, id, None))
            }
            _ => Ok(()), // actions, notifications and anydata, which our models lack
        }
    }

    fn add_data(
        &mut self,
        from: &SchemaNode<'_>,
        parent: NodeId,
        choice: Option<(SmolStr, SmolStr)>,
    ) -> Result<NodeId, SchemaError> {
        let id = NodeId(u32::try_from(self.schema.nodes.len()).unwrap_or(u32::MAX));
        let mut node = Node { id, parent: Some(parent), choice, ..root() };
        node.name = from.name().into();
        node.module = self.module_id(from);
        node.config = from.is_config();
        node.user_ordered = from.is_user_ordered();
        node.kind = kind(from);
        node.whens =
            libyang::whens(from).into_iter().map(|xpath| When { xpath, test: None }).collect();
        for extension in libyang::node_extensions(from) {
            mark(&mut node, &extension);
        }
        if let Some(raw) = libyang::leaf_type(from) {
            node.leaf = Some(self.leaf(from, &raw)?);
        }
        if let Some(target) = libyang::leafref_target(from) {
            self.leafrefs.push((id, target));
        }
        self.known.insert(libyang::address(from), id);
        self.schema.nodes.push(node);
        self.schema.nodes[parent.0 as usize].children.push(id);
        if from.is_list_key()
            && let NodeKind::List { keys } = &mut self.schema.nodes[parent.0 as usize].kind
        {
            keys.push(id);
        }
        Ok(id)
    }

    fn module_id(&self, from: &SchemaNode<'_>) -> ModuleId {
        let module = from.module();
        let at = self.schema.modules.iter().position(|m| m.name == module.name());
        ModuleId(at.and_then(|at| u16::try_from(at).ok()).unwrap_or_default())
    }

    fn leaf(&mut self, from: &SchemaNode<'_>, raw: &RawType) -> Result<LeafSchema, SchemaError> {
        let canonical = libyang::node_extensions(from)
            .into_iter()
            .find(|e| e.module == OWN_EXTENSIONS && e.name == "canonical")
            .and_then(|e| Canonical::parse(e.argument.as_deref()?));
        let base = self.base(raw).map_err(|reason| self.fail(from, reason))?;
        let mut leaf = LeafSchema {
            ty: Arc::new(Type { base, canonical, name: raw.name() }),
            default: None,
            mandatory: from.is_mandatory(),
            units: from.units().map(SmolStr::new),
            leafref: None,
            identity_bases: identity_bases(raw),
        };
        leaf.default = self.default(from, &leaf.ty)?;
        Ok(leaf)
    }

    fn default(&self, from: &SchemaNode<'_>, ty: &Type) -> Result<Option<Value>, SchemaError> {
        let listed = libyang::leaf_list_defaults(from);
        if !listed.is_empty() {
            let values: Result<Arc<[Value]>, _> =
                listed.iter().map(|text| ty.parse_text(text)).collect();
            return values.map(|v| Some(Value::List(v))).map_err(|e| self.fail(from, e));
        }
        if !from.has_default() {
            return Ok(None);
        }
        let text = from.default_value_canonical().map_err(|e| self.fail(from, e))?;
        text.map(|text| ty.parse_text(&text)).transpose().map_err(|e| self.fail(from, e))
    }

    fn base(&mut self, raw: &RawType) -> Result<BuiltinType, String> {
        Ok(match raw {
            RawType::Bool => BuiltinType::Bool,
            RawType::Empty => BuiltinType::Empty,
            RawType::Int { bits, ranges } => {
                let whole = (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits));
                BuiltinType::Int {
                    bits: *bits,
                    ranges: ranges.clone().unwrap_or_else(|| vec![whole]).into(),
                }
            }
            RawType::Uint { bits, ranges } => {
                let whole = (0, u64::MAX >> (64 - bits));
                BuiltinType::Uint {
                    bits: *bits,
                    ranges: ranges.clone().unwrap_or_else(|| vec![whole]).into(),
                }
            }
            RawType::Decimal { scale, ranges } => {
                let whole = vec![(i64::MIN, i64::MAX)];
                BuiltinType::Decimal {
                    scale: *scale,
                    ranges: ranges.clone().unwrap_or(whole).into(),
                }
            }
            RawType::Str { lengths, patterns } => {
                let patterns = patterns.iter().map(|(xsd, inverted)| self.pattern(xsd, *inverted));
                BuiltinType::Str {
                    patterns: patterns.collect::<Result<_, _>>()?,
                    lengths: lengths_or_any(lengths),
                }
            }
            RawType::Binary { lengths } => BuiltinType::Binary { lengths: lengths_or_any(lengths) },
            RawType::Enum(members) => BuiltinType::Enum(
                members
                    .iter()
                    .map(|(name, value)| EnumMember { name: Name::of(name), value: *value })
                    .collect(),
            ),
            RawType::Identity { fitting, .. } => BuiltinType::Identity(
                fitting.iter().map(|name| Identity { qualified: Name::of(name) }).collect(),
            ),
            RawType::Bits(names) => BuiltinType::Bits(names.iter().cloned().collect()),
            RawType::Union(members) => {
                let member = |raw: &RawType| {
                    let base = self.base(raw)?;
                    Ok(Arc::new(Type { base, canonical: None, name: raw.name() }))
                };
                BuiltinType::Union(members.iter().map(member).collect::<Result<_, String>>()?)
            }
            RawType::Leafref(target) | RawType::Named(_, target) => self.base(target)?,
            RawType::Instance => {
                BuiltinType::Str { lengths: lengths_or_any(&None), patterns: Box::default() }
            }
        })
    }

    /// Compiles a pattern. Equal ones share one regular expression.
    fn pattern(&mut self, xsd: &SmolStr, inverted: bool) -> Result<Pattern, String> {
        let pattern = match self.regexes.get(xsd) {
            Some(compiled) => compiled.clone(),
            None => {
                let regex = Arc::new(xsd::compile(xsd).map_err(|e| e.to_string())?);
                let pattern =
                    Pattern { xsd: xsd.clone(), inverted: false, quick: quick_check(xsd), regex };
                self.regexes.insert(xsd.clone(), pattern.clone());
                pattern
            }
        };
        Ok(Pattern { inverted, ..pattern })
    }

    /// Completes the parts that need all nodes: leafrefs, conditions, and derived state.
    fn finish(mut self, _context: &Context) -> Result<Schema, SchemaError> {
        for (id, target) in std::mem::take(&mut self.leafrefs) {
            let target = self.known.get(&target).copied();
            if let Some(leaf) = &mut self.schema.nodes[id.0 as usize].leaf {
                leaf.leafref = target;
            }
        }
        self.canonical_leafrefs();
        for at in 0..self.schema.nodes.len() {
            self.schema.nodes[at].operational |=
                is_derived_state(&self.schema, &self.schema.nodes[at]);
            let whens = self.schema.nodes[at].whens.clone();
            let compiled =
                whens.into_iter().map(|w| w.compile(&self.schema, &self.schema.nodes[at]));
            self.schema.nodes[at].whens = compiled.collect();
        }
        Ok(self.schema)
    }

    /// Gives leafrefs the canonical form of their target's type.
    fn canonical_leafrefs(&mut self) {
        for at in 0..self.schema.nodes.len() {
            let mut end = None;
            let mut next = self.schema.nodes[at].leaf.as_ref().and_then(|l| l.leafref);
            while let Some(target) = next {
                end = Some(target);
                next = self.schema.leaf(target).leafref;
            }
            if let (Some(end), Some(canonical)) =
                (end, end.and_then(|e| self.schema.leaf(e).ty.canonical))
                && self.schema.nodes[at].leaf.is_some()
            {
                let ty = Arc::new(Type {
                    canonical: Some(canonical),
                    ..(*self.schema.leaf(end).ty).clone()
                });
                if let Some(leaf) = &mut self.schema.nodes[at].leaf {
                    leaf.ty = ty;
                }
            }
        }
    }
}

fn identity_bases(raw: &RawType) -> Vec<SmolStr> {
    match raw {
        RawType::Identity { bases, .. } => bases.clone(),
        RawType::Union(members) => members.iter().flat_map(identity_bases).collect(),
        RawType::Named(_, raw) => identity_bases(raw),
        _ => Vec::new(),
    }
}

fn lengths_or_any(lengths: &Option<Vec<(u64, u64)>>) -> Box<[(u64, u64)]> {
    lengths.clone().unwrap_or_else(|| vec![(0, u64::MAX)]).into()
}

fn root() -> Node {
    Node {
        id: NodeId(0),
        parent: None,
        name: SmolStr::default(),
        module: ModuleId(0),
        kind: NodeKind::Root,
        config: true,
        children: Vec::new(),
        leaf: None,
        whens: Vec::new(),
        choice: None,
        user_ordered: false,
        on_change: false,
        operational: false,
        atomic: false,
        hashed: false,
        object: None,
        one_of: Vec::new(),
        keys_suffice: false,
        polled: false,
        is_unlinked: false,
    }
}

fn kind(from: &SchemaNode<'_>) -> NodeKind {
    match from.kind() {
        SchemaNodeKind::Container => NodeKind::Container { presence: !from.is_np_container() },
        SchemaNodeKind::List => NodeKind::List { keys: Vec::new() }, // added by `add_data`
        SchemaNodeKind::LeafList => NodeKind::LeafList,
        _ => NodeKind::Leaf,
    }
}

fn mark(node: &mut Node, extension: &libyang::RawExtension) {
    match (extension.module.as_str(), extension.name.as_str()) {
        (OWN_EXTENSIONS, "object") => node.object.clone_from(&extension.argument),
        (OWN_EXTENSIONS, "one-of") => {
            let leaves = extension.argument.iter().flat_map(|it| it.split_whitespace());
            node.one_of = leaves.map(SmolStr::new).collect();
        }
        (OWN_EXTENSIONS, "keys-suffice") => node.keys_suffice = true,
        (OWN_EXTENSIONS, "polled") => node.polled = true,
        (OPENCONFIG_EXTENSIONS, "telemetry-on-change") => node.on_change = true,
        (OPENCONFIG_EXTENSIONS, "telemetry-atomic") => node.atomic = true,
        (OPENCONFIG_EXTENSIONS, "openconfig-hashed-value") => node.hashed = true,
        (OPENCONFIG_EXTENSIONS, "operational") => node.operational = true,
        _ => {}
    }
}

/// True for state that repeats no configuration leaf, which the models hardly mark. OpenConfig has the configured leaf in
/// `config` next to `state`, the native model next to the `state` container itself.
fn is_derived_state(schema: &Schema, node: &Node) -> bool {
    if node.config || !matches!(node.kind, NodeKind::Leaf | NodeKind::LeafList) {
        return false;
    }
    let Some(state) = node.parent.map(|id| schema.node(id)).filter(|s| s.name == "state") else {
        return true;
    };
    let Some(above) = state.parent else { return true };
    let beside = schema.child(above, None, "config").unwrap_or(above);
    !schema.child(beside, None, &node.name).is_some_and(|mirrored| schema.node(mirrored).config)
}
