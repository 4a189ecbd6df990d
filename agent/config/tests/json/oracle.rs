//! The reader accepts and refuses what libyang's own parser of data does, on documents grown at random
//! from the schema, right ones and wrong ones.

use std::fmt::Write;

use holdfast_config::json::{DocumentContent, Flavour, parse, print};
use holdfast_config::schema::types::{BuiltinType, Type};
use holdfast_config::schema::{Node, NodeKind, Origin};
use holdfast_config::tree::{NodeRef, Tree};
use holdfast_config::{InstancePath, Schema};
use proptest::prelude::*;
use yang5::context::{Context, ContextFlags};
use yang5::data::{DataFormat, DataParserFlags, DataTree, DataValidationFlags};

/// Texts and numbers that one type or another takes. Left out is what libyang takes and RFC 7950
/// does not: numbers in strings with spaces around them, or in hexadecimal. Left out is also what the
/// reader takes and libyang does not: an integer with a fraction of zero, such as `1.0`, which has a
/// test of its own.
const VALUES: [&str; 47] = [
    "\"::ffff:102:304\"",
    "\"2001:DB8:0::1/64\"",
    "1e3",
    "1e-1",
    "15e-1",
    "-0",
    "\"+1\"",
    "\"-0\"",
    "\"01\"",
    "\"\\u007f\"",
    "\"\\u0001\"",
    "\"\\ufffe\"",
    "\"\u{1f600} \u{e9}\"",
    "\"\\n\\t\"",
    "true",
    "false",
    "null",
    "[null]",
    "[]",
    "{}",
    "-1",
    "0",
    "1",
    "32",
    "68",
    "128",
    "129",
    "255",
    "256",
    "1500",
    "65535",
    "65536",
    "4294967295",
    "4294967296",
    "1.5",
    "\"\"",
    "\"0\"",
    "\"1\"",
    "\"18446744073709551615\"",
    "\"18446744073709551616\"",
    "\"eth0\"",
    "\"10.0.0.1\"",
    "\"10.0.0.300\"",
    "\"2001:db8::1\"",
    "\"10.0.0.0/8\"",
    "\"2001:db8::/129\"",
    "\"02:00:00:00:00:01\"",
];
/// One step in this many is wrong, so that most documents have one or none.
const WRONG: u8 = 100;

/// Source of the random choices; zeros when exhausted, which makes small documents.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self) -> u8 {
        let (first, rest) =
            self.0.split_first().map_or((0, &[][..]), |(first, rest)| (*first, rest));
        self.0 = rest;
        first
    }

    fn below(&mut self, count: usize) -> usize {
        usize::from(self.next()) % count
    }

    fn one_in(&mut self, count: u8) -> bool {
        self.next() % count == count - 1
    }
}

struct DocumentGenerator<'a> {
    schema: &'a Schema,
    choices: Choices<'a>,
    out: String,
}

impl DocumentGenerator<'_> {
    fn object(&mut self, node: &Node) {
        self.out.push('{');
        let mut first = true;
        for id in &node.children {
            let child = self.schema.node(*id);
            let key = matches!(&node.kind, NodeKind::List { keys } if keys.contains(id));
            let taken = match child.kind {
                _ if key => !self.choices.one_in(WRONG),
                NodeKind::Leaf | NodeKind::LeafList => self.choices.one_in(4),
                _ => self.choices.one_in(2),
            };
            if !taken {
                continue;
            }
            if !first {
                self.out.push(',');
            }
            first = false;
            self.name(node, child);
            self.content(child);
        }
        if self.choices.one_in(WRONG) {
            let _ = write!(self.out, "{}\"bogus\":1", if first { "" } else { "," });
        }
        self.out.push('}');
    }

    fn name(&mut self, parent: &Node, child: &Node) {
        let change = parent.kind == NodeKind::Root || parent.module != child.module;
        let module = &self.schema.module(child.module).name;
        let _ = match (change, self.choices.one_in(WRONG)) {
            (true, false) | (false, true) => write!(self.out, "\"{module}:{}\":", child.name),
            (false, false) | (true, true) => write!(self.out, "\"{}\":", child.name),
        };
    }

    fn content(&mut self, node: &Node) {
        if self.choices.one_in(WRONG) {
            self.out += VALUES[self.choices.below(VALUES.len())];
            return;
        }
        match &node.kind {
            NodeKind::Root | NodeKind::Container { .. } => self.object(node),
            NodeKind::List { .. } => {
                self.out.push('[');
                for i in 0..=self.choices.next() % 3 {
                    self.out += if i == 0 { "" } else { "," };
                    self.object(node);
                }
                self.out.push(']');
            }
            NodeKind::Leaf => self.value(&node.leaf.as_ref().unwrap().ty),
            NodeKind::LeafList => {
                self.out.push('[');
                self.value(&node.leaf.as_ref().unwrap().ty);
                self.out.push(']');
            }
        }
    }

    /// Mostly a value that the type takes, as far as `VALUES` has one.
    fn value(&mut self, ty: &Type) {
        let mut fitting: Vec<String> = names(ty).iter().map(|name| format!("\"{name}\"")).collect();
        let fits = |text: &&&str| {
            text.starts_with('"') == is_quoted(ty) && ty.parse_text(text.trim_matches('"')).is_ok()
        };
        fitting.extend(VALUES.iter().filter(fits).map(|text| text.to_string()));
        if fitting.is_empty() || self.choices.one_in(WRONG) {
            fitting = VALUES.map(str::to_owned).into();
        }
        self.out += &fitting[self.choices.below(fitting.len())];
    }
}

/// True for types whose values RFC 7951 writes as strings.
fn is_quoted(ty: &Type) -> bool {
    match &ty.base {
        BuiltinType::Int { bits, .. } | BuiltinType::Uint { bits, .. } => *bits == 64,
        BuiltinType::Bool | BuiltinType::Empty => false,
        _ => true,
    }
}

fn names(ty: &Type) -> Vec<String> {
    match &ty.base {
        BuiltinType::Enum(members) => members.iter().map(|m| m.name.to_string()).collect(),
        BuiltinType::Identity(identities) => {
            identities.iter().map(|i| i.qualified.to_string()).collect()
        }
        BuiltinType::Union(members) => members.iter().flat_map(|m| names(m)).collect(),
        _ => Vec::new(),
    }
}

/// Each thread has its models once: loading them takes longer than a case.
fn with_models(origin: Origin, check: impl FnOnce(&Schema, &Context)) {
    thread_local! {
        static MODELS: [(Schema, Context); 2] =
            [Schema::openconfig(), Schema::native()].map(|schema| {
                let schema = schema.unwrap();
                let context = context(&schema);
                (schema, context)
            });
    }
    MODELS.with(|[openconfig, native]| {
        let (schema, context) = if origin == Origin::OpenConfig { openconfig } else { native };
        check(schema, context);
    });
}

/// A libyang context with the modules of a schema. libyang knows identities from loaded modules only.
fn context(schema: &Schema) -> Context {
    let mut context = Context::new(ContextFlags::NO_YANGLIBRARY).unwrap();
    context.set_searchdir(concat!(env!("CARGO_MANIFEST_DIR"), "/yang")).unwrap();
    for (_, module) in schema.modules() {
        context.load_module(&module.name, None, &[]).unwrap();
    }
    context
}

/// Result of libyang's parser, which checks the encoding of data but not its completeness.
fn oracle(context: &Context, text: &str) -> Result<(), String> {
    let flags = DataParserFlags::NO_VALIDATION | DataParserFlags::STRICT;
    DataTree::parse_string(context, text, DataFormat::JSON, flags, DataValidationFlags::empty())
        .map(|_| ())
        .map_err(|e| e.to_string())
}

fn check(origin: Origin, choices: &[u8]) {
    with_models(origin, |schema, context| {
        let mut grower =
            DocumentGenerator { schema, choices: Choices(choices), out: String::new() };
        grower.object(schema.node(schema.root()));
        let text = grower.out;
        let ours = parse(schema, &InstancePath::root(), text.as_bytes(), Flavour::Ietf, false, ());
        let theirs = oracle(context, &text);
        match (ours, theirs) {
            (Ok(document), Ok(())) => check_round_trip(schema, context, document.content),
            (Err(_), Err(_)) => {}
            (Err(error), Ok(())) if is_stricter(&error) => {}
            (Ok(_), Err(error)) => panic!("libyang refuses {text}: {error}"),
            (Err(error), Ok(())) => panic!("libyang accepts {text}, we say: {error}"),
        }
    });
}

/// True for errors that libyang leaves to its validation, and our parser finds at once.
fn is_stricter(error: &holdfast_config::json::JsonError) -> bool {
    use holdfast_config::json::JsonErrorKind;
    matches!(error.fault, JsonErrorKind::Duplicate | JsonErrorKind::KeyMismatch { .. })
}

/// Checks that printed documents are parsed back unchanged in both flavours, and that libyang accepts them.
fn check_round_trip(schema: &Schema, context: &Context, content: DocumentContent<()>) {
    let DocumentContent::Branch(branch) = content else { panic!("the root is a branch") };
    let tree = Tree::from_root(branch.into());
    for flavour in [Flavour::Ietf, Flavour::Plain] {
        let found = NodeRef::Branch(tree.root());
        let Some(printed) = print(schema, schema.root(), found, flavour, &|_| true) else {
            continue;
        };
        let text = String::from_utf8(printed).unwrap();
        let again = parse(schema, &InstancePath::root(), text.as_bytes(), flavour, false, ());
        let Ok(DocumentContent::Branch(again)) = again.map(|document| document.content) else {
            panic!("what was printed is refused: {text}");
        };
        assert_eq!(Tree::from_root(again.into()), tree, "{text}");
        if flavour == Flavour::Ietf {
            assert_eq!(oracle(context, &text), Ok(()), "{text}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn openconfig_documents(choices in proptest::collection::vec(any::<u8>(), 0..1000)) {
        check(Origin::OpenConfig, &choices);
    }

    #[test]
    fn native_documents(choices in proptest::collection::vec(any::<u8>(), 0..1000)) {
        check(Origin::Native, &choices);
    }
}
