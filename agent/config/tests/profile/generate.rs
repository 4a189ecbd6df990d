//! Writes the YANG modules of the OpenConfig profile from the rows in agent/config/profile.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::Value;

use super::table::{Row, name, parent, read};

/// All that the modules are made of.
pub(crate) struct Profile {
    nodes: Vec<Row>,
    modules: Vec<Row>,
    identities: Vec<Row>,
    descriptions: BTreeMap<String, String>,
}

/// Other modules that the profile's text may refer to by prefix.
const EXTENSIONS: [(&str, &str); 2] =
    [("oc-ext", "openconfig-extensions"), ("hf-ext", "holdfast-extensions")];

/// Prefixes under which the published modules import others, each with the prefix of the imported module itself.
const OTHER_PREFIXES: [(&str, &str); 1] = [("oc-ni", "oc-netinst")];

impl Profile {
    pub(crate) fn read() -> Self {
        let pairs = read("descriptions.tsv")
            .into_iter()
            .map(|r| (r["name"].clone(), r["description"].clone()));
        Self {
            nodes: read("nodes.tsv"),
            modules: read("modules.tsv"),
            identities: read("identities.tsv"),
            descriptions: pairs.collect(),
        }
    }

    /// Each module's name and text.
    pub(crate) fn modules(&self) -> Vec<(String, String)> {
        self.modules.iter().map(|module| (module["module"].clone(), self.module(module))).collect()
    }

    fn module(&self, module: &Row) -> String {
        let body = self.identities(module) + &self.data(module);
        let version = &module["openconfig_version"];
        let mut out = String::new();
        let organization =
            if version.is_empty() { "IETF and IANA" } else { "OpenConfig working group" };
        let _ = writeln!(
            out,
            "// Written from the tables in agent/config/profile; a test holds the two together."
        );
        let _ = writeln!(
            out,
            "module {} {{\n  yang-version {};",
            module["module"], module["yang_version"]
        );
        let _ = writeln!(
            out,
            "  namespace \"{}\";\n  prefix {};",
            module["namespace"], module["prefix"]
        );
        out += &self.imports(module, &body);
        let _ = writeln!(out, "  organization \"{organization}\";");
        let _ =
            writeln!(out, "  description \"The part of this module that the agent implements.\";");
        if !version.is_empty() {
            let _ = writeln!(out, "  oc-ext:openconfig-version \"{version}\";");
        }
        let _ = writeln!(
            out,
            "  revision {} {{ description \"The release this follows.\"; }}",
            module["latest_revision"]
        );
        out + &body + "}\n"
    }

    /// Imports what the body refers to by prefix.
    fn imports(&self, module: &Row, body: &str) -> String {
        let import = self
            .modules
            .iter()
            .map(|m| (m["prefix"].as_str(), m["module"].as_str()))
            .chain(EXTENSIONS);
        let mut out = String::new();
        for (prefix, imported) in import.filter(|(_, name)| *name != module["module"]) {
            let versioned = prefix == "oc-ext" && !module["openconfig_version"].is_empty();
            let before = |at: usize| {
                body[..at]
                    .chars()
                    .next_back()
                    .is_some_and(|c| c.is_alphanumeric() || "-_".contains(c))
            };
            let used = body.match_indices(&format!("{prefix}:")).any(|(at, _)| !before(at));
            if versioned || used {
                let _ = writeln!(out, "  import {imported} {{ prefix {prefix}; }}");
            }
        }
        out
    }

    fn identities(&self, module: &Row) -> String {
        let mut out = String::new();
        for identity in self.identities.iter().filter(|i| i["module"] == module["module"]) {
            let _ = writeln!(out, "  identity {} {{", identity["identity"]);
            for base in identity["bases"].split_whitespace() {
                let _ = writeln!(out, "    base {};", self.reference(module, base));
            }
            let _ = writeln!(
                out,
                "    description \"{}.\";\n  }}",
                identity["identity"].replace('_', " ")
            );
        }
        out
    }

    /// Writes `module:name` as in a text of `module`.
    fn reference(&self, module: &Row, qualified: &str) -> String {
        let (of, name) = qualified.split_once(':').unwrap();
        if of == module["module"] {
            return name.to_owned();
        }
        let of = self
            .modules
            .iter()
            .find(|m| m["module"] == of)
            .unwrap_or_else(|| panic!("no row for module {of}"));
        format!("{}:{name}", of["prefix"])
    }

    /// Nodes whose parent is in another module are augmentations.
    fn data(&self, module: &Row) -> String {
        let mut out = String::new();
        let mut augmented: BTreeSet<&str> = BTreeSet::new();
        for node in self.nodes.iter().filter(|n| n["module"] == module["module"]) {
            let above = parent(&node["path"]);
            if above.is_empty() {
                self.node(&mut out, module, node, 1);
            } else if self
                .nodes
                .iter()
                .any(|n| n["path"] == above && n["module"] != module["module"])
            {
                augmented.insert(above);
            }
        }
        for above in augmented {
            let _ = writeln!(out, "  augment \"{}\" {{", self.schema_path(above));
            let _ = writeln!(out, "    description \"What this module adds there.\";");
            self.children(&mut out, module, above, 2);
            out += "  }\n";
        }
        out
    }

    /// A path as an augment names it, with the prefix of each node's module.
    fn schema_path(&self, path: &str) -> String {
        let mut out = String::new();
        for (end, _) in path.match_indices('/').skip(1).chain([(path.len(), "")]) {
            let node = self.nodes.iter().find(|n| n["path"] == path[..end]).unwrap();
            let module = self.modules.iter().find(|m| m["module"] == node["module"]).unwrap();
            let _ = write!(out, "/{}:{}", module["prefix"], name(&node["path"]));
        }
        out
    }

    fn children(&self, out: &mut String, module: &Row, path: &str, depth: usize) {
        let below = |n: &&Row| parent(&n["path"]) == path && n["module"] == module["module"];
        let mut children: Vec<&Row> = self.nodes.iter().filter(below).collect();
        // Keys first, then as the table has it.
        children.sort_by_key(|n| {
            !path.ends_with(']') || !path.contains(&format!("[{}]", name(&n["path"])))
        });
        for child in children {
            self.node(out, module, child, depth);
        }
    }

    fn node(&self, out: &mut String, module: &Row, node: &Row, depth: usize) {
        let pad = "  ".repeat(depth);
        let path = &node["path"];
        let _ = writeln!(out, "{pad}{} {} {{", node["kind"], name(path));
        for (column, statement) in [("when", "when \"@\";"), ("keys", "key \"@\";")] {
            if !node[column].is_empty() {
                let _ = writeln!(out, "{pad}  {}", statement.replace('@', &node[column]));
            }
        }
        if node["presence"] == "true" {
            let _ = writeln!(out, "{pad}  presence \"Its being there says something.\";");
        }
        if node["config"] == "false" && self.is_config(parent(path)) {
            let _ = writeln!(out, "{pad}  config false;");
        }
        self.leaf(out, module, node, &pad);
        if node["ordered_by"] == "user" {
            let _ = writeln!(out, "{pad}  ordered-by user;");
        }
        if node["status"] != "current" {
            let _ = writeln!(out, "{pad}  status {};", node["status"]);
        }
        let _ = writeln!(out, "{pad}  description \"{}\";", self.descriptions[name(path)]);
        for extension in node["extensions"].split_whitespace() {
            let _ = writeln!(out, "{pad}  oc-ext:{extension};");
        }
        if node["polled"] == "true" {
            let _ = writeln!(out, "{pad}  hf-ext:polled;");
        }
        self.children(out, module, path, depth + 1);
        let _ = writeln!(out, "{pad}}}");
    }

    fn is_config(&self, path: &str) -> bool {
        self.nodes.iter().find(|n| n["path"] == path).is_none_or(|n| n["config"] == "true")
    }

    fn leaf(&self, out: &mut String, module: &Row, node: &Row, pad: &str) {
        if node["type_spec"].is_empty() {
            return;
        }
        let spec: Value = serde_json::from_str(&node["type_spec"]).unwrap();
        if let Some(form) = canonical(&spec, &node["typedef"]) {
            let _ = writeln!(out, "{pad}  hf-ext:canonical \"{form}\";");
        }
        self.ty(out, module, &spec, &format!("{pad}  "));
        if !node["units"].is_empty() {
            let _ = writeln!(out, "{pad}  units \"{}\";", node["units"]);
        }
        for default in node["default"].split('|').filter(|d| !d.is_empty()) {
            let identity = node["type"] == "identityref";
            let default =
                if identity { self.reference(module, default) } else { default.to_owned() };
            let _ = writeln!(out, "{pad}  default \"{default}\";");
        }
        if node["mandatory"] == "true" {
            let _ = writeln!(out, "{pad}  mandatory true;");
        }
    }

    fn ty(&self, out: &mut String, module: &Row, spec: &Value, pad: &str) {
        let mut inside = String::new();
        for (column, statement) in [("range", "range"), ("length", "length")] {
            if let Some(ranges) = spec.get(column) {
                let _ = writeln!(inside, "{pad}  {statement} \"{}\";", range(ranges));
            }
        }
        for pattern in strings(spec, "patterns") {
            let _ = writeln!(inside, "{pad}  pattern '{pattern}';");
        }
        for base in strings(spec, "bases") {
            let _ = writeln!(inside, "{pad}  base {};", self.reference(module, base));
        }
        for (i, member) in strings(spec, "enums").enumerate() {
            let value =
                spec["values"].get(i).map(|v| format!(" {{ value {v}; }}")).unwrap_or(";".into());
            let _ = writeln!(inside, "{pad}  enum {member}{value}");
        }
        if let Some(digits) = spec.get("fraction_digits") {
            let _ = writeln!(inside, "{pad}  fraction-digits {digits};");
        }
        if let Some(path) = spec["path"].as_str() {
            let path = OTHER_PREFIXES.iter().fold(path.to_owned(), |path, (other, prefix)| {
                path.replace(&format!("{other}:"), &format!("{prefix}:"))
            });
            let _ = writeln!(inside, "{pad}  path \"{path}\";");
        }
        for member in spec["members"].as_array().into_iter().flatten() {
            self.ty(&mut inside, module, member, &format!("{pad}  "));
        }
        let base = spec["base"].as_str().unwrap();
        let _ = if inside.is_empty() {
            writeln!(out, "{pad}type {base};")
        } else {
            writeln!(out, "{pad}type {base} {{\n{inside}{pad}}}")
        };
    }
}

/// Canonical form of the values of a type, known from the names of its typedefs.
fn canonical(spec: &Value, typedef: &str) -> Option<&'static str> {
    let own = match typedef.split_once(':').map_or("", |(_, name)| name) {
        "ip-address" | "ipv4-address" | "ipv6-address" => Some("ip-address"),
        "ip-prefix" | "ipv4-prefix" | "ipv6-prefix" => Some("ip-prefix"),
        "mac-address" | "phys-address" => Some("mac-address"),
        _ => None,
    };
    own.or_else(|| {
        let mut members = spec["members"].as_array().into_iter().flatten();
        members.find_map(|m| canonical(m, m["typedef"].as_str().unwrap_or_default()))
    })
}

fn strings<'a>(spec: &'a Value, column: &str) -> impl Iterator<Item = &'a str> {
    spec[column].as_array().into_iter().flatten().map(|v| v.as_str().unwrap())
}

fn range(ranges: &Value) -> String {
    let bound = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
    let part = |pair: &Value| match (bound(&pair[0]), bound(&pair[1])) {
        (low, high) if low == high => low,
        (low, high) => format!("{low}..{high}"),
    };
    ranges.as_array().unwrap().iter().map(part).collect::<Vec<_>>().join(" | ")
}
