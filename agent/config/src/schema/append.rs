//! A schema with other modules beside those in the binary, in which every node keeps its number.
//!
//! All modules are compiled together, as libyang needs it for augments, types and identities, and the result is
//! renumbered: a node of the same path and kind keeps its number, and so does a module. The others follow, parents before
//! children, and last among the children of their parent. A node that no module has any more is *unlinked*: it keeps its
//! number and its name, for the readers of earlier trees, but its parent no longer lists it. When a node of that path and kind comes
//! back, it gets this number again. So modules that come and go take no more memory than the first time. Paths and selections of
//! the schema before mean the same in the new one, therefore.

use std::collections::HashMap;

use smol_str::SmolStr;

use super::{ModuleId, Node, NodeId, NodeKind, Schema, SchemaError, compile, sources};

/// The text of a YANG module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YangModule {
    pub name: SmolStr,
    pub text: SmolStr,
}

impl Schema {
    /// This schema with these modules: those that are new are appended, and those of a name that it has among the appended
    /// ones take their place.
    ///
    /// # Errors
    /// When the modules cannot be compiled together with those that the schema has, or take a node of the binary's away.
    pub fn with_modules(&self, modules: &[YangModule]) -> Result<Self, SchemaError> {
        let mut appended = self.appended.clone();
        for module in modules {
            match appended.iter_mut().find(|it| it.name == module.name) {
                Some(earlier) => *earlier = module.clone(),
                None => appended.push(module.clone()),
            }
        }
        self.recompiled(appended)
    }

    /// This schema without an appended module, whose nodes are unlinked.
    ///
    /// # Errors
    /// When the others cannot be compiled without it.
    pub fn without_module(&self, name: &str) -> Result<Self, SchemaError> {
        let appended = self.appended.iter().filter(|it| it.name != name).cloned().collect();
        self.recompiled(appended)
    }

    /// Text of a module that the schema has.
    pub fn module_text(&self, name: &str) -> Option<&str> {
        let appended = self.appended.iter().find(|it| it.name == name);
        let in_binary = || sources(self.origin).iter().find(|(known, _)| *known == name);
        appended.map(|it| &*it.text).or_else(|| in_binary().map(|(_, text)| *text))
    }

    fn recompiled(&self, appended: Vec<YangModule>) -> Result<Self, SchemaError> {
        let fresh = compile::compile(self.origin, sources(self.origin), &appended)?;
        let renumbering = Renumbering::of(self, &fresh);
        let mut schema = renumbering.schema(self, fresh);
        schema.appended = appended;
        match schema.nodes.iter().find(|node| node.is_unlinked && !self.is_appended(node)) {
            Some(node) => Err(SchemaError {
                origin: self.origin,
                place: None,
                reason: format!("`{}` is missing in the models with other modules", node.name),
            }),
            None => Ok(schema),
        }
    }

    /// True for a node of a module that is not in the binary.
    fn is_appended(&self, node: &Node) -> bool {
        let module = self.modules.get(usize::from(node.module.0));
        module.is_some_and(|it| {
            it.is_unlinked || self.appended.iter().any(|appended| appended.name == it.name)
        })
    }
}

/// Node and module numbers by those of the recompiled schema.
struct Renumbering {
    nodes: Vec<NodeId>,
    modules: Vec<ModuleId>,
}

impl Renumbering {
    fn of(before: &Schema, fresh: &Schema) -> Self {
        let known = |name: &str| {
            let found = before.modules.iter().position(|module| module.name == name);
            found.and_then(|at| u16::try_from(at).ok()).map(ModuleId)
        };
        let mut modules = Vec::new();
        let mut next = before.modules.len();
        for it in &fresh.modules {
            modules.push(known(&it.name).unwrap_or_else(|| {
                next += 1;
                ModuleId(u16::try_from(next - 1).unwrap_or(u16::MAX))
            }));
        }
        let unlinked = UnlinkedNodes::of(before);
        // Parents come before their children, so the number of a node's parent is known.
        let mut nodes = vec![before.root(); fresh.nodes.len()];
        let mut next = before.nodes.len();
        for node in &fresh.nodes[1..] {
            let parent = node.parent.map(|it| nodes[it.0 as usize]);
            let is_alike = |it: &NodeId| is_of_same_kind(before, before.node(*it), fresh, node);
            let parent = parent.filter(|it| (it.0 as usize) < before.nodes.len());
            let earlier = parent.and_then(|parent| {
                let module = &fresh.module(node.module).name;
                let linked = before.child(parent, Some(module), &node.name).filter(is_alike);
                linked.or_else(|| unlinked.named(parent, module, &node.name).find(is_alike))
            });
            nodes[node.id.0 as usize] = earlier.unwrap_or_else(|| {
                next += 1;
                NodeId(u32::try_from(next - 1).unwrap_or(u32::MAX))
            });
        }
        Self { nodes, modules }
    }

    fn schema(&self, before: &Schema, fresh: Schema) -> Schema {
        let mut nodes = unlinked(&before.nodes);
        let mut renumbered: Vec<Node> =
            fresh.nodes.into_iter().map(|node| self.node(node)).collect();
        renumbered.sort_by_key(|node| node.id);
        for node in renumbered {
            match nodes.get_mut(node.id.0 as usize) {
                Some(earlier) => *earlier = node,
                None => nodes.push(node),
            }
        }
        let mut modules = before.modules.clone();
        modules.iter_mut().for_each(|module| module.is_unlinked = true);
        let mut numbered: Vec<_> = self.modules.iter().zip(fresh.modules).collect();
        numbered.sort_by_key(|(number, _)| **number);
        for (number, module) in numbered {
            match modules.get_mut(usize::from(number.0)) {
                Some(earlier) => *earlier = module,
                None => modules.push(module),
            }
        }
        Schema { nodes, modules, ..fresh }
    }

    fn node(&self, mut node: Node) -> Node {
        let number = |id: &mut NodeId| *id = self.nodes[id.0 as usize];
        number(&mut node.id);
        node.parent.iter_mut().for_each(number);
        node.children.iter_mut().for_each(number);
        node.children.sort();
        if let NodeKind::List { keys } = &mut node.kind {
            keys.iter_mut().for_each(number);
        }
        node.leaf.iter_mut().filter_map(|leaf| leaf.leafref.as_mut()).for_each(number);
        let tests = node.whens.iter_mut().filter_map(|when| when.test.as_mut());
        tests.flat_map(|test| &mut test.down).for_each(number);
        node.module = self.modules[usize::from(node.module.0)];
        node
    }
}

/// Nodes that no module has, by their parent, module and name. There is one of each kind.
struct UnlinkedNodes<'a>(HashMap<(NodeId, &'a str, &'a str), Vec<NodeId>>);

impl<'a> UnlinkedNodes<'a> {
    fn of(schema: &'a Schema) -> Self {
        let mut found: HashMap<_, Vec<NodeId>> = HashMap::new();
        for node in schema.nodes.iter().filter(|node| node.is_unlinked) {
            if let Some(parent) = node.parent {
                let module = &schema.modules[usize::from(node.module.0)].name;
                found.entry((parent, &**module, &*node.name)).or_default().push(node.id);
            }
        }
        Self(found)
    }

    fn named<'s>(
        &'s self,
        parent: NodeId,
        module: &'s str,
        name: &'s str,
    ) -> impl Iterator<Item = NodeId> + 's {
        self.0.get(&(parent, module, name)).into_iter().flatten().copied()
    }
}

/// All nodes as those that no module has any more.
fn unlinked(nodes: &[Node]) -> Vec<Node> {
    nodes.iter().map(|node| Node { is_unlinked: true, ..node.clone() }).collect()
}

/// True when a value of one node can be a value of the other, except for its type: equal kind, and equal keys.
fn is_of_same_kind(before: &Schema, old: &Node, fresh: &Schema, new: &Node) -> bool {
    let keys = |schema: &Schema, keys: &[NodeId]| -> Vec<SmolStr> {
        keys.iter().map(|key| schema.node(*key).name.clone()).collect()
    };
    let is_alike = match (&old.kind, &new.kind) {
        (NodeKind::List { keys: old }, NodeKind::List { keys: new }) => {
            keys(before, old) == keys(fresh, new)
        }
        (old, new) => old == new,
    };
    is_alike && old.config == new.config
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    const MODULE: &str = r#"module extra { yang-version 1.1; namespace "urn:extra"; prefix x;
        import holdfast { prefix hf; }
        organization "us"; revision 2026-11-23 { description "First."; }
        augment "/hf:interfaces/hf:interface" {
            leaf colour { type string; default "red"; }
            leaf beside { when "../colour = 'blue'"; type leafref {
                path "/hf:interfaces/hf:interface/hf:name"; require-instance false; } } }
        augment "/hf:system" { container limits { leaf most { type uint8; } } }
        container things { list thing { key "name kind"; leaf name { type string; }
            leaf kind { type string; } leaf size { type uint32; } } } }"#;

    const OTHER: &str = r#"module other { yang-version 1.1; namespace "urn:other"; prefix o;
        import extra { prefix x; }
        augment "/x:things/x:thing" { leaf weight { type uint32; } } }"#;

    fn module(name: &str, text: &str) -> YangModule {
        YangModule { name: name.into(), text: text.into() }
    }

    fn check_kept(before: &Schema, after: &Schema) {
        for (old, new) in before.nodes.iter().zip(&after.nodes) {
            assert_eq!(
                (old.id, &old.name, old.parent, &old.kind),
                (new.id, &new.name, new.parent, &new.kind)
            );
            assert_eq!(old.module, new.module, "{}", old.name);
            assert!(new.children.starts_with(&old.children), "{}", old.name);
            assert_eq!(
                old.leaf.as_ref().map(|it| it.leafref),
                new.leaf.as_ref().map(|it| it.leafref)
            );
            assert_eq!(old.whens, new.whens);
        }
        let names = |schema: &Schema| -> Vec<SmolStr> {
            schema.modules.iter().map(|it| it.name.clone()).collect()
        };
        assert!(names(after).starts_with(&names(before)));
        for (at, node) in after.nodes.iter().enumerate() {
            assert_eq!(node.id.0 as usize, at);
            assert!(node.parent.is_none_or(|parent| parent < node.id), "{}", node.name);
            assert!(node.children.is_sorted());
            assert!(node.children.iter().all(|child| after.node(*child).parent == Some(node.id)));
        }
    }

    #[test]
    fn nodes_keep_their_numbers() {
        let before = Schema::native().unwrap();
        let after = before.with_modules(&[module("extra", MODULE)]).unwrap();
        check_kept(&before, &after);
        let find = |path: &str| after.find(path).unwrap();
        let thing = find("/things/thing");
        assert!(thing.0 as usize >= before.nodes.len());
        assert_eq!(after.keys(thing), [find("/things/thing/name"), find("/things/thing/kind")]);
        let beside = after.node(find("/interfaces/interface/extra:beside"));
        let leaf = beside.leaf.as_ref().unwrap();
        assert_eq!(leaf.leafref, before.find("/interfaces/interface/name"));
        let test = beside.whens[0].test.as_ref().unwrap();
        assert_eq!(test.down, [find("/interfaces/interface/colour")]);
        assert_eq!(after.module(beside.module).name, "extra");
        let more = after.with_modules(&[module("other", OTHER)]).unwrap();
        check_kept(&after, &more);
        assert!(more.find("/things/thing/other:weight").is_some());
    }

    /// Paths of the linked nodes below the root with their kinds, keys by name.
    fn linked(schema: &Schema) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut open = vec![(schema.root(), String::new())];
        while let Some((at, path)) = open.pop() {
            for child in &schema.node(at).children {
                let node = schema.node(*child);
                assert!(!node.is_unlinked && node.parent == Some(at), "{}", node.name);
                let path = format!("{path}/{}:{}", schema.module(node.module).name, node.name);
                let keys: Vec<_> =
                    schema.keys(*child).iter().map(|key| &schema.node(*key).name).collect();
                let kind = std::mem::discriminant(&node.kind);
                let ty = node.leaf.as_ref().map(|leaf| leaf.ty.to_string());
                found.insert(format!("{path} {kind:?} {keys:?} {} {ty:?}", node.config));
                open.push((*child, path));
            }
        }
        found
    }

    /// Numbers of the linked nodes by their paths, in which each node has its kind.
    fn numbered(schema: &Schema) -> BTreeMap<String, NodeId> {
        let mut found = BTreeMap::new();
        let mut open = vec![(schema.root(), String::new())];
        while let Some((at, path)) = open.pop() {
            for child in &schema.node(at).children {
                let node = schema.node(*child);
                let keys: Vec<_> =
                    schema.keys(*child).iter().map(|key| &schema.node(*key).name).collect();
                let kind = match &node.kind {
                    NodeKind::List { .. } => format!("list {keys:?}"),
                    other => format!("{other:?}"),
                };
                let module = &schema.module(node.module).name;
                let path = format!("{path}/{module}:{} {kind} {}", node.name, node.config);
                open.push((*child, path.clone()));
                found.insert(path, *child);
            }
        }
        found
    }

    #[test]
    fn modules_that_come_and_go_take_no_more_than_the_first_time() {
        let modules = [module("extra", MODULE), module("other", OTHER)];
        let base = Schema::native().unwrap();
        let first = base.with_modules(&modules).unwrap();
        let removed = |schema: &Schema| {
            schema.without_module("other").unwrap().without_module("extra").unwrap()
        };
        let size = first.nodes.len();
        let mut schema = removed(&first);
        for round in 0..1000 {
            assert_eq!(schema.nodes.len(), size);
            schema = schema.with_modules(&modules).unwrap();
            assert_eq!((schema.nodes.len(), schema.modules.len()), (size, first.modules.len()));
            // Walking both trees takes longer than making one.
            let is_walked = round % 100 == 99;
            assert!(!is_walked || numbered(&schema) == numbered(&first), "round {round}");
            schema = removed(&schema);
            assert!(!is_walked || linked(&schema) == linked(&base), "round {round}");
        }
    }

    /// A module with the chosen ones of these nodes.
    fn variant(nodes: &[usize]) -> YangModule {
        const NODES: [&str; 9] = [
            "leaf a { type string; }",
            "leaf a { type uint8; }",
            "container a { leaf x { type string; } }",
            "container b { leaf x { type string; } leaf y { type uint8; } }",
            "container b { presence p; leaf x { type string; } }",
            "list c { key k; leaf k { type string; } leaf v { type string; } }",
            "list c { key k; leaf k { type string; } leaf v { type leafref { path \"../k\"; } } }",
            "list c { key v; leaf k { type string; } leaf v { type string; } }",
            "leaf a { config false; type string; }",
        ];
        let mut names = BTreeSet::new();
        let chosen = nodes.iter().map(|at| NODES[at % NODES.len()]);
        let chosen = chosen.filter(|node| names.insert(node.split(' ').nth(1)));
        let body: Vec<&str> = chosen.collect();
        let text = format!(
            "module extra {{ yang-version 1.1; namespace \"urn:extra\"; prefix x; \
             revision 2026-11-23 {{ description \"\"; }} container top {{ {} }} }}",
            body.join(" ")
        );
        module("extra", &text)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// After any exchanges, the linked nodes are those of a schema that is compiled from scratch, a node that stays
        /// has its number, one that comes back has it again, and no number is that of two nodes.
        #[test]
        fn exchanged_modules_are_those_of_a_schema_from_scratch(
            versions in prop::collection::vec(prop::collection::vec(0usize..9, 0..4), 1..6),
            removed in prop::collection::vec(any::<bool>(), 6),
        ) {
            let base = Schema::native().unwrap();
            let mut schema = base.clone();
            let mut numbers = BTreeMap::new();
            for (nodes, is_removed) in versions.iter().zip(removed) {
                let before = schema.clone();
                let scratch = if is_removed {
                    schema = schema.without_module("extra").unwrap();
                    base.clone()
                } else {
                    schema = schema.with_modules(&[variant(nodes)]).unwrap();
                    base.with_modules(&[variant(nodes)]).unwrap()
                };
                prop_assert_eq!(linked(&schema), linked(&scratch));
                let names = |it: &Schema| -> Vec<_> {
                    it.modules().map(|(_, module)| module.name.clone()).collect()
                };
                prop_assert_eq!(names(&schema), names(&scratch));
                for (old, new) in before.nodes.iter().zip(&schema.nodes) {
                    prop_assert_eq!((old.id, &old.name, old.parent), (new.id, &new.name, new.parent));
                    prop_assert_eq!(old.module, new.module);
                    prop_assert!(is_of_same_kind(&before, old, &schema, new));
                }
                for (path, number) in numbered(&schema) {
                    let first = *numbers.entry(path.clone()).or_insert(number);
                    prop_assert_eq!(first, number, "{}", path);
                }
                // A node that stays in its place stays the same node.
                for (at, node) in before.nodes.iter().enumerate().filter(|(_, it)| !it.is_unlinked) {
                    let again = node.parent.and_then(|parent| {
                        let module = &before.module(node.module).name;
                        schema.child(parent, Some(module), &node.name)
                    });
                    let stays = again.is_some_and(|it| {
                        is_of_same_kind(&before, node, &schema, schema.node(it))
                    });
                    prop_assert!(!stays || again == Some(NodeId(u32::try_from(at).unwrap())));
                }
            }
        }
    }

    #[test]
    fn a_module_that_does_not_compile_is_refused() {
        let before = Schema::native().unwrap();
        assert!(before.with_modules(&[module("other", OTHER)]).is_err(), "an import is missing");
        assert!(before.with_modules(&[module("extra", "module extra {")]).is_err());
        assert!(before.with_modules(&[module("another", MODULE)]).is_err(), "another name");
        assert!(before.with_modules(&[module("extra", "module \0")]).is_err());
    }
}
