//! A schema with more modules, in which every node keeps its number.
//!
//! All modules are compiled together, as libyang needs it for augments, types and identities, and the result is
//! renumbered: a node that the schema has had keeps its number, and so does a module. The others follow, parents before
//! children, and last among the children of their parent. Trees, paths and selections of the schema before are those of
//! the new one, therefore.

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
    /// This schema with the nodes of `modules` appended.
    ///
    /// # Errors
    /// When the modules cannot be compiled together with those that the schema has, or take one of its nodes away.
    pub fn appended(&self, modules: &[YangModule]) -> Result<Self, SchemaError> {
        let appended: Vec<YangModule> = self.appended.iter().chain(modules).cloned().collect();
        let fresh = compile::compile(self.origin, sources(self.origin), &appended)?;
        let mut schema = Renumbering::of(self, &fresh)?.schema(fresh);
        schema.appended = appended;
        Ok(schema)
    }
}

/// Node and module numbers of the earlier schema, by those of the recompiled one.
struct Renumbering {
    nodes: Vec<NodeId>,
    modules: Vec<ModuleId>,
}

impl Renumbering {
    fn of(before: &Schema, fresh: &Schema) -> Result<Self, SchemaError> {
        let missing_node = |what: &str| SchemaError {
            origin: before.origin,
            reason: format!("`{what}` is missing in the models with more modules"),
        };
        let module = |schema: &Schema, name: &str| {
            let found = schema.modules.iter().position(|module| module.name == name);
            found.and_then(|at| u16::try_from(at).ok()).map(ModuleId)
        };
        for it in &before.modules {
            module(fresh, &it.name).ok_or_else(|| missing_node(&it.name))?;
        }
        let (mut modules, mut next) = (Vec::new(), before.modules.len());
        for it in &fresh.modules {
            modules.push(module(before, &it.name).unwrap_or_else(|| {
                next += 1;
                ModuleId(u16::try_from(next - 1).unwrap_or(u16::MAX))
            }));
        }
        // Parents come before their children, so the number of a node's parent is known.
        let mut nodes = vec![before.root(); fresh.nodes.len()];
        let mut next = before.nodes.len();
        let mut found_again = 1;
        for node in &fresh.nodes[1..] {
            let parent = node.parent.map(|it| nodes[it.0 as usize]);
            let earlier = parent
                .filter(|it| (it.0 as usize) < before.nodes.len())
                .and_then(|it| before.child(it, Some(&fresh.module(node.module).name), &node.name));
            found_again += usize::from(earlier.is_some());
            nodes[node.id.0 as usize] = earlier.unwrap_or_else(|| {
                next += 1;
                NodeId(u32::try_from(next - 1).unwrap_or(u32::MAX))
            });
        }
        if found_again < before.nodes.len() {
            let left: HashMap<NodeId, ()> = nodes.iter().map(|it| (*it, ())).collect();
            let missing = before.nodes.iter().find(|node| !left.contains_key(&node.id));
            return Err(missing_node(missing.map_or("", |node| &node.name)));
        }
        Ok(Self { nodes, modules })
    }

    fn schema(&self, fresh: Schema) -> Schema {
        let mut nodes: Vec<Node> = fresh.nodes.into_iter().map(|node| self.node(node)).collect();
        nodes.sort_by_key(|node| node.id);
        let mut modules: Vec<_> = self.modules.iter().zip(fresh.modules).collect();
        modules.sort_by_key(|(number, _)| **number);
        let modules = modules.into_iter().map(|(_, module)| module).collect();
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

#[cfg(test)]
mod tests {
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
        let after = before.appended(&[module("extra", MODULE)]).unwrap();
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
        let more = after.appended(&[module("other", OTHER)]).unwrap();
        check_kept(&after, &more);
        assert!(more.find("/things/thing/other:weight").is_some());
    }

    #[test]
    fn what_does_not_compile_is_refused() {
        let before = Schema::native().unwrap();
        assert!(before.appended(&[module("other", OTHER)]).is_err(), "an import is missing");
        assert!(before.appended(&[module("extra", "module extra {")]).is_err());
        assert!(before.appended(&[module("another", MODULE)]).is_err(), "another name");
        assert!(before.appended(&[module("extra", "module \0")]).is_err());
    }
}
