//! Fuzz targets: no package makes a reader panic, every template comes to its end, and no parameter becomes more than the
//! one value that it is.
//!
//! Each target runs for `BOLERO_RANDOM_TEST_TIME_MS` (a second when it is not set). Half of the inputs are bytes as they
//! come, half are files of the example packages with edits. Modules are not given to libyang here, which bytes can kill.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

use std::fs;
use std::panic::{AssertUnwindSafe, RefUnwindSafe};
use std::path::Path;
use std::sync::Arc;

use holdfast_config::{LeafMark, Models, Tree, Value};
use holdfast_services::outline::Outline;
use holdfast_services::yang;
use holdfast_services::{Facts, NoFacts, Package, PackageFiles, Scope, WorkError};

const EXAMPLES: [&str; 3] = ["bridge-access", "uplink", "migrated-link"];

/// Files of the example packages with this end.
fn seeds(end: &str) -> Vec<String> {
    let all = EXAMPLES.iter().flat_map(|name| {
        let files = example(name);
        let wanted = files.iter().filter(|(path, _)| path.ends_with(end));
        wanted.map(|(_, text)| String::from_utf8(text.to_vec()).unwrap()).collect::<Vec<_>>()
    });
    all.collect()
}

fn example(name: &str) -> PackageFiles {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/services").join(name);
    let read = |path: &Path| -> Vec<(smol_str::SmolStr, Arc<[u8]>)> {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        let files = entries.filter(|path| path.is_file());
        let named = files.map(|path| {
            let inside = path.strip_prefix(&folder).unwrap().to_str().unwrap().into();
            (inside, fs::read(&path).unwrap().into())
        });
        named.collect()
    };
    PackageFiles::new([read(&folder), read(&folder.join("templates"))].concat()).unwrap()
}

/// A seed with edits: the first byte names it, each four after it are a place, an act and a byte.
fn edited(seeds: &[Vec<u8>], input: &[u8]) -> Vec<u8> {
    let Some((which, edits)) = input.split_first() else { return Vec::new() };
    let mut octets = seeds[usize::from(*which) % seeds.len()].clone();
    for edit in edits.chunks_exact(4) {
        let at = usize::from(u16::from_be_bytes([edit[0], edit[1]])) % (octets.len() + 1);
        match edit[2] % 4 {
            0 => octets.insert(at, edit[3]),
            1 => drop(octets.drain(at..(at + usize::from(edit[3])).min(octets.len()))),
            2 if at < octets.len() => octets[at] ^= edit[3],
            _ => {
                let end = (at + usize::from(edit[3])).min(octets.len());
                let again = octets[at..end].to_vec();
                octets.splice(at..at, again);
            }
        }
    }
    octets
}

/// Runs one target over bytes and over edited seeds.
fn fuzz(seeds: &[Vec<u8>], check: impl Fn(&[u8])) {
    let check = AssertUnwindSafe(check);
    fn run(seeds: &[Vec<u8>], check: impl Fn(&[u8]) + RefUnwindSafe) {
        bolero::check!().for_each(|input: &[u8]| {
            check(input);
            check(&edited(seeds, input));
        });
    }
    run(seeds, move |input: &[u8]| check(input));
}

fn texts(end: &str) -> Vec<Vec<u8>> {
    seeds(end).into_iter().map(String::into_bytes).collect()
}

#[test]
fn archives() {
    let seeds: Vec<Vec<u8>> = EXAMPLES.iter().map(|name| example(name).write().unwrap()).collect();
    fuzz(&seeds, |octets| match PackageFiles::read(octets) {
        Ok(files) => {
            let again = files.write().unwrap();
            assert_eq!(PackageFiles::read(&again), Ok(files));
        }
        Err(errors) => assert!(!errors.to_string().is_empty()),
    });
}

#[test]
fn outlines() {
    fuzz(&texts(".toml"), |octets| {
        let text = String::from_utf8_lossy(octets);
        let lines = text.split('\n').count();
        match Outline::read(&text) {
            Ok((outline, _)) => assert!(!outline.components.is_empty()),
            Err(errors) => {
                for error in &errors.0 {
                    assert!(error.position.is_some_and(|at| at.line <= lines), "{error}");
                }
            }
        }
    });
}

#[test]
fn modules() {
    let models = Models::load().unwrap();
    fuzz(&texts(".yang"), |octets| {
        let text = String::from_utf8_lossy(octets);
        let lines = text.split('\n').count();
        if let Err(errors) = yang::check(&models, "uplink", "uplink@2026-11-23.yang", &text) {
            for error in &errors {
                assert!(error.position.is_none_or(|at| at.line <= lines), "{error}");
            }
        }
    });
}

/// A plain package with this template, and what it puts out for an instance.
struct PlainPackage {
    base: Package,
    module: (String, Vec<u8>),
}

impl PlainPackage {
    fn new() -> Self {
        let files = example("bridge-access");
        let module = files.iter().find(|(path, _)| path.ends_with(".yang")).unwrap();
        let module = (module.0.to_owned(), module.1.to_vec());
        let (base, _) = Package::read(&Models::load().unwrap(), &files).unwrap();
        Self { base, module }
    }

    fn render(
        &self,
        kind: &str,
        template: &[u8],
        document: &str,
    ) -> Option<Result<Tree<LeafMark>, WorkError>> {
        let work = format!("work.{kind}");
        let outline = format!(
            "[service]\nname = \"bridge-access\"\nversion = \"1.0.0\"\nwork = \"{work}\"\n[grants]\nwrite = [\"/interfaces\", \"openconfig:/interfaces\"]\nread = [\"/interfaces\"]\n"
        );
        let files = [
            ("service.toml".into(), outline.into_bytes().into()),
            (self.module.0.as_str().into(), self.module.1.clone().into()),
            (format!("templates/{work}").into(), template.into()),
        ];
        let files = PackageFiles::new(files).unwrap();
        let package = Package::with_module(self.base.list.clone(), &files).ok()?;
        let parameters = package.parameters(document.as_bytes()).ok()?;
        let facts: Arc<dyn Facts> = Arc::new(NoFacts);
        let work = package.outline.components[0].states[0].work.as_ref();
        let done = package.render(work, &Scope::of_instance(&parameters, false), &facts);
        Some(done.map(|output| output.unwrap().tree))
    }
}

const INSTANCE: &str = r#"{"name":"a","port":"eth1","bridge":"br0","gateway":"10.0.0.1/24","prefix":"::/0","via":"::1"}"#;

#[test]
fn templates() {
    let package = PlainPackage::new();
    fuzz(&texts(".cli"), |octets| {
        for kind in ["cli", "native.json", "oc.json"] {
            if let Some(Err(error)) = package.render(kind, octets, INSTANCE) {
                assert!(error.to_string().starts_with("templates/work."), "{error}");
            }
        }
    });
}

/// Text of a parameter in a line and in a document: it is the whole of the one leaf, or all of it is refused.
#[test]
fn inserted_values() {
    let package = PlainPackage::new();
    let line = "interface eth1\n  description {{ params.gateway }}\n";
    let document = r#"{"holdfast:interfaces":{"interface":[{"name":"eth1","description":{{ params.gateway }}}]}}"#;
    let seeds = [
        "x\nno interface eth0",
        "\"",
        "\\",
        "x\",\"mtu\":1500,\"alias\":\"y",
        "# !",
        "\u{2028}\u{85}\r",
    ];
    let seeds: Vec<Vec<u8>> = seeds.iter().map(|it| it.as_bytes().to_vec()).collect();
    let check = |octets: &[u8]| {
        let text = String::from_utf8_lossy(octets);
        let instance =
            serde_json::json!({"name": "a", "port": "eth1", "bridge": "br0", "gateway": &*text});
        let mut accepted = 0;
        for (kind, template) in [("cli", line), ("native.json", document)] {
            let rendered = package.render(kind, template.as_bytes(), &instance.to_string());
            let Some(Ok(tree)) = rendered else { continue };
            let mut leaves = Vec::new();
            tree.walk(&mut |_, leaf| leaves.push(leaf.value.clone()));
            assert_eq!(leaves, [Value::Str("eth1".into()), Value::Str(text.as_ref().into())]);
            accepted += 1;
        }
        accepted
    };
    for seed in &seeds[..5] {
        assert_eq!(check(seed), 2, "{}", String::from_utf8_lossy(seed));
    }
    fuzz(&seeds, |octets| {
        check(octets);
    });
}
