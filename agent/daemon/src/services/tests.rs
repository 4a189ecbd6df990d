//! The commands on folders, and the example packages with what their pages say.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use super::*;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/services")
}

fn check(package: PathBuf) -> Result<String, ServiceError> {
    run(&PackageAction::Check { packages: vec![package] })
}

fn render(
    package: &Path,
    document: &str,
    component: &str,
    state: &str,
) -> Result<String, ServiceError> {
    let folder = TempDir::new().unwrap();
    let params = folder.path().join("params.json");
    fs::write(&params, document).unwrap();
    let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    run(&PackageAction::Render(ServiceRender {
        package: package.to_path_buf(),
        params,
        component: named(component),
        state: named(state),
        answers: None,
        assume_actions_done: false,
    }))
}

/// Walks an instance with these answers; without any, actions are assumed to be done.
fn walked(package: &Path, document: &str, answers: Option<&str>) -> Result<String, ServiceError> {
    let folder = TempDir::new().unwrap();
    let params = folder.path().join("params.json");
    fs::write(&params, document).unwrap();
    let file = folder.path().join("answers.json");
    fs::write(&file, answers.unwrap_or_default()).unwrap();
    run(&PackageAction::Render(ServiceRender {
        package: package.to_path_buf(),
        params,
        component: None,
        state: None,
        answers: answers.map(|_| file),
        assume_actions_done: answers.is_none(),
    }))
}

/// A copy of an example, to be changed.
fn copy(name: &str) -> (TempDir, PathBuf) {
    let temporary = TempDir::new().unwrap();
    let target = temporary.path().join(name);
    folder::write(&target, &folder::read(&examples().join(name)).unwrap()).unwrap();
    (temporary, target)
}

#[track_caller]
fn refused(result: Result<String, ServiceError>, want: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(want), "{error}\n{want}");
}

/// Blocks of a page in this language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    let parts = page.split(&*begin).skip(1);
    parts.map(|part| part.split("```").next().unwrap()).collect()
}

#[test]
fn each_example_puts_out_what_its_page_says() {
    let mut examples: Vec<PathBuf> =
        fs::read_dir(examples()).unwrap().map(|entry| entry.unwrap().path()).collect();
    examples.sort();
    let names: Vec<_> =
        examples.iter().map(|it| it.file_name().unwrap().to_str().unwrap()).collect();
    let all = [
        "bridge-access",
        "bridge-port",
        "dual-uplink",
        "guest",
        "migrated-link",
        "ssh-users",
        "uplink",
        "vrouter",
    ];
    assert_eq!(names, all);
    for example in examples {
        let summary = check(example.clone()).unwrap();
        assert!(!summary.contains("warning"), "{summary}");
        let page = fs::read_to_string(example.join("README.md")).unwrap();
        let documents = blocks(&page, "json");
        let outputs = blocks(&page, "text");
        assert!(!documents.is_empty() && documents.len() == outputs.len(), "{}", example.display());
        for (document, output) in documents.into_iter().zip(outputs) {
            let rendered = render(&example, document, "", "").unwrap();
            assert_eq!(rendered, output, "{}", example.display());
        }
        let document = blocks(&page, "json")[0];
        let answers = blocks(&page, "json answers");
        for (answers, walks) in answers.into_iter().zip(blocks(&page, "text walks")) {
            assert_eq!(walked(&example, document, Some(answers)).unwrap(), walks);
        }
    }
}

#[test]
fn the_example_of_the_specification_is_the_one_that_is_shipped() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let specification = fs::read_to_string(root.join("agent/services/SERVICES.md")).unwrap();
    let shipped =
        |file: &str| fs::read_to_string(examples().join("bridge-access").join(file)).unwrap();
    assert_eq!(blocks(&specification, "toml"), [shipped("service.toml")]);
    assert_eq!(blocks(&specification, "jinja"), [shipped("templates/port.cli")]);
}

#[test]
fn parameters_of_the_examples_are_checked() {
    let uplink = examples().join("uplink");
    let with = |members: &str| format!("{{\"name\":\"n\",\"port\":\"eth1\",{members}}}");
    let peer = "\"address\":\"192.0.2.0/31\",\"peer\":\"192.0.2.1\"";
    refused(render(&uplink, &with(peer), "", ""), "prefix");
    let both = "\"address\":\"192.0.2.0/31\",\"peer\":\"2001:db8::1\",\"prefix\":[\"::/0\"]";
    refused(render(&uplink, &with(both), "", ""), "The peer is of the family of the address");
    refused(render(&uplink, &with("\"prefix\":[\"::/0\"]"), "", ""), "a mandatory leaf is not set");
    let migrated = examples().join("migrated-link");
    let end = |name: &str| {
        format!("{{\"name\":\"{name}\",\"vni\":1,\"local\":\"::1\",\"remote\":\"::2\"}}")
    };
    let two =
        format!("{{\"name\":\"n\",\"bridge\":\"br0\",\"endpoint\":[{},{}]}}", end("a"), end("b"));
    refused(render(&migrated, &two, "", ""), "many");
    assert_eq!(render(&migrated, "{\"name\":\"n\",\"bridge\":\"br0\"}", "", "").unwrap(), "");
}

#[test]
fn one_component_type_and_one_state_are_rendered_alone() {
    let document = "{\"name\":\"a\",\"port\":\"eth1\",\"bridge\":\"br0\"}";
    let access = examples().join("bridge-access");
    let text = render(&access, document, "access", "port-attached").unwrap();
    assert!(text.contains("master br0") && !text.contains("routed"), "{text}");
    refused(
        render(&access, document, "acess", ""),
        "there is no component type `acess`: there is access",
    );
    refused(
        render(&access, document, "access", "rooted"),
        "`access` has no state `rooted`: there is init, port-attached, routed, ready",
    );
    let failure =
        "failed in bridge-access 1.2.0: templates/route.cli:3:14: undefined value: params.prefix";
    refused(render(&access, document, "", ""), failure);
}

#[test]
fn errors_of_a_package_have_file_line_and_column() {
    let (_keep, package) = copy("uplink");
    let change = |file: &str, from: &str, to: &str| {
        let text = fs::read_to_string(package.join(file)).unwrap();
        assert!(text.contains(from));
        fs::write(package.join(file), text.replacen(from, to, 1)).unwrap();
    };
    change("templates/routes.cli", "{% endfor %}", "");
    change("service.toml", "params.peer", "params.");
    let errors = check(package.clone()).unwrap_err().to_string();
    assert!(errors.contains("uplink` is refused:\n"), "{errors}");
    assert!(errors.contains("\ntemplates/routes.cli:"), "{errors}");
    change("templates/routes.cli", "{% for prefix in params.prefix %}", "");
    let errors = check(package.clone()).unwrap_err().to_string();
    assert!(errors.ends_with("service.toml:18:57: syntax error: unexpected end of input, expected identifier or integer"), "{errors}");
}

#[test]
fn a_new_package_holds_no_errors_and_is_packed_alike_each_time() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("my-service");
    let files = starter::files("my-service", "2026-11-23").unwrap();
    folder::write(&path, &files).unwrap();
    fs::write(path.join(".hidden"), "of an editor").unwrap();
    assert!(check(path.clone()).unwrap().starts_with("my-service 1.0.0\ncomponent port: "));
    let pack = || run(&PackageAction::Pack { folder: path.clone(), output: folder.path().into() });
    let said = pack().unwrap();
    let archive = folder.path().join("my-service-1.0.0.hfs");
    assert_eq!(said, pack().unwrap());
    assert!(said.len() > 64 && said.ends_with(&format!("  {}\n", archive.display())), "{said}");
    assert_eq!(fs::read(&archive).unwrap(), files.write().unwrap());
    assert!(check(archive.clone()).is_ok());
    let other = folder.path().join("other-1.0.0.hfs");
    fs::rename(&archive, &other).unwrap();
    refused(
        check(other),
        "the archive is called `other-1.0.0.hfs`, and holds `my-service-1.0.0.hfs`",
    );
    assert!(folder::write(&path, &files).is_err(), "the folder is there");
}

#[test]
fn files_that_cannot_be_read_and_those_that_are_none_are_named() {
    refused(check("/nonexistent".into()), "cannot read `/nonexistent`");
    let (_keep, package) = copy("uplink");
    std::os::unix::fs::symlink("/etc/passwd", package.join("templates/x.cli")).unwrap();
    refused(check(package.clone()), "templates/x.cli: the entry is not a regular file");
    fs::remove_file(package.join("templates/x.cli")).unwrap();
    fs::write(package.join("large"), vec![b'x'; (1 << 20) + 1]).unwrap();
    refused(check(package.clone()), "cannot read");
    fs::remove_file(package.join("large")).unwrap();
    for number in 0..64 {
        fs::write(package.join(format!("f{number}")), "").unwrap();
    }
    refused(check(package), "more than 64 files in a package");
    refused(new("9/x"), "9/x");
    refused(new("Über"), "is refused");
}

/// Writes the archive of a package with this version under this name, and gives its path.
fn archive(folder: &Path, version: &str, name: &str) -> PathBuf {
    let (_temporary, source) = copy("bridge-port");
    let outline = fs::read_to_string(source.join("service.toml")).unwrap();
    let outline = outline.replace("version = \"1.0.0\"", &format!("version = \"{version}\""));
    fs::write(source.join("service.toml"), outline).unwrap();
    let target = folder.join(name);
    fs::write(&target, folder::read(&source).unwrap().write().unwrap()).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o644)).unwrap();
    target
}

fn loaded(folder: &Path) -> Result<Vec<String>, ServiceError> {
    let stored = BTreeMap::new();
    let offered = OfferedPackages::read(Some(folder), &stored, &PackageSigners::default())?;
    let (types, _) = offered.load(Arc::new(Models::load()?));
    Ok(types.packages().map(holdfast_services::Package::archive_name).collect())
}

#[test]
fn the_highest_version_of_each_type_is_loaded() {
    let folder = TempDir::new().unwrap();
    assert_eq!(loaded(folder.path()).unwrap(), [""; 0]);
    for version in ["1.9.0", "1.10.0", "1.2.0"] {
        archive(folder.path(), version, &format!("bridge-port-{version}.hfs"));
    }
    archive(folder.path(), "3.0.0", "bridge-port-3.0.0.tar");
    archive(folder.path(), "4.0.0", "other-4.0.0.hfs");
    fs::write(folder.path().join("damaged-1.0.0.hfs"), "no archive").unwrap();
    assert_eq!(loaded(folder.path()).unwrap(), ["bridge-port-1.10.0.hfs"]);
}

#[test]
fn packages_that_others_could_write_are_not_loaded() {
    let folder = TempDir::new().unwrap();
    let path = archive(folder.path(), "1.0.0", "bridge-port-1.0.0.hfs");
    let mode =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(&path, 0o664);
    assert_eq!(loaded(folder.path()).unwrap(), [""; 0]);
    mode(&path, 0o600);
    assert_eq!(loaded(folder.path()).unwrap(), ["bridge-port-1.0.0.hfs"]);
    let link = folder.path().join("bridge-port-1.1.0.hfs");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(loaded(folder.path()).unwrap(), ["bridge-port-1.0.0.hfs"]);
    mode(folder.path(), 0o777);
    let error = loaded(folder.path()).unwrap_err().to_string();
    assert!(error.contains("its mode is 777"), "{error}");
    assert!(loaded(&folder.path().join("none")).unwrap_err().to_string().contains("cannot read"));
}

#[test]
fn a_walk_without_a_box_says_which_answers_it_lacks() {
    let document = "{\"name\":\"n\",\"port\":\"eth1\",\"address\":\"192.0.2.0/31\",\"peer\":\"192.0.2.1\",\"prefix\":[\"198.51.100.0/24\"]}";
    let uplink = examples().join("uplink");
    let path = "/interfaces/interface[name=eth1]/state/oper-status";
    let line = format!("# add to the answers, in \"state\": \"{path}\": VALUE, or null for none\n");
    let text = walked(&uplink, document, None).unwrap();
    assert!(
        text.contains(
            "# not ready\n# uplink eth1, probed failed: uplink 1.0.0: service.toml line 16:"
        ),
        "{text}"
    );
    assert!(text.ends_with(&line), "{text}");
    let up = format!("{{\"state\":{{\"{path}\":\"UP\"}}");
    let text = walked(&uplink, document, Some(&format!("{up}}}"))).unwrap();
    let line = "# add to the answers, in \"actions\": \"uplink eth1 probed\": RESULT, or --assume-actions-done\n";
    assert!(text.ends_with(line), "{text}");
    let silent = format!("{up},\"actions\":{{\"uplink eth1 probed\":{{\"received\":0}}}}}}");
    let text = walked(&uplink, document, Some(&silent)).unwrap();
    assert!(text.contains("probed failed: `result.received > 0` is false"), "{text}");
    let answers = format!("{up},\"actions\":{{\"uplink eth1 probed\":{{\"received\":5}}}}}}");
    let text = walked(&uplink, document, Some(&answers)).unwrap();
    assert!(text.contains("route 198.51.100.0/24") && text.ends_with("# ready\n"), "{text}");
    refused(walked(&uplink, document, Some("{]")), "answers.json` are refused: key must be");
}

/// Words of the outline, by the line that shows them.
const WORDS: &[&str] = &[
    "[service]",
    "name =",
    "version =",
    "converge =",
    "missing-handler =",
    "work =",
    "[grants]",
    "write =",
    "read =",
    "[handler]",
    "user =",
    "identities =",
    "modification =",
    "[[component]]",
    "type =",
    "[[component.state]]",
    "when =",
    "sticky =",
    "timeout =",
    "commit-after =",
    "action =",
    "delete =",
    "{ handler =",
    "{ builtin =",
    "params =",
    "sync =",
    "result =",
    "save =",
    "serial =",
    "[[tree]]",
    "[[tree.node]]",
    "if =",
    "observe =",
    "foreach =",
    "as =",
    "vars =",
    "create =",
    "replaces =",
    "delete = { work =",
    "delete = { when =",
    "delete = { action =",
    "destination =",
    "source =",
    "count =",
    "interval =",
    "wait =",
    "size =",
    "state('/services/",
];

/// The packages of the page about the outline, each in a folder of its name.
fn packages_of(page: &str, folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for part in page.split("\n```").skip(1) {
        let Some((head, text)) = part.split_once('\n') else { continue };
        let Some((_, file)) = head.split_once(' ').filter(|(_, file)| file.contains('/')) else {
            continue;
        };
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
        names.extend(file.strip_suffix("/service.toml").map(ToOwned::to_owned));
    }
    names
}

#[test]
fn the_page_about_the_outline_is_true() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page_path = root.join("packaging/guide/services/outline.md");
    let mut page = fs::read_to_string(&page_path).unwrap();
    let folder = TempDir::new().unwrap();
    let names = packages_of(&page, folder.path());
    assert_eq!(names, ["site", "greeting"]);
    let outlines = names.iter().map(|name| {
        let summary = check(folder.path().join(name)).unwrap();
        assert!(!summary.contains("warning"), "{summary}");
        fs::read_to_string(folder.path().join(name).join("service.toml")).unwrap()
    });
    let outlines = outlines.collect::<String>();
    for word in WORDS {
        assert!(outlines.contains(word), "no package of the page has `{word}`");
    }
    let document = blocks(&page, "json greeting")[0].to_owned();
    let greeting = folder.path().join("greeting");
    assert!(
        render(&greeting, &document, "", "").unwrap().contains("This box belongs to somebody.")
    );
    let document = blocks(&page, "json site")[0].to_owned();
    let answers = blocks(&page, "json site answers")[0].to_owned();
    let some = blocks(&page, "json site some")[0].to_owned();
    let site = folder.path().join("site");
    let outputs = [
        ("text site", render(&site, &document, "link", "").unwrap()),
        ("text site lacks", walked(&site, &document, Some(&some)).unwrap()),
        ("text site walks", walked(&site, &document, Some(&answers)).unwrap()),
    ];
    assert!(outputs[2].1.ends_with("# ready\n"), "{}", outputs[2].1);
    for (language, output) in outputs {
        let printed = blocks(&page, language)[0].to_owned();
        if std::env::var_os("HOLDFAST_WRITE").is_some() {
            let block = |text: &str| format!("```{language}\n{text}```");
            page = page.replace(&block(&printed), &block(&output));
            fs::write(&page_path, &page).unwrap();
            continue;
        }
        assert_eq!(printed, output, "{language}: HOLDFAST_WRITE=1 writes it");
    }
}
