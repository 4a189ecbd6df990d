//! Refusals of whole packages. Refusals of archive, outline and module are beside their code.

use super::*;

#[track_caller]
fn refused(result: Result<Package, PackageErrors>, want: &[&str]) {
    let errors = messages(result.err().unwrap_or(PackageErrors(Vec::new())));
    assert_eq!(errors.len(), want.len(), "{errors:#?}");
    for (error, want) in errors.iter().zip(want) {
        assert!(error.contains(want), "{error}\n{want}");
    }
}

fn read(texts: &[(&str, &str)]) -> Result<Package, PackageErrors> {
    Package::read(models(), &files(texts.iter().copied())).map(|(package, _)| package)
}

const PLAIN: &str = "[service]\nname = \"s\"\nversion = \"1.0.0\"\nwork = \"main.cli\"\n";

#[test]
fn files_that_are_missing_or_too_many_are_named() {
    let module = ("s@2026-11-23.yang", MODULE);
    let template = ("templates/main.cli", "");
    let outline = ("service.toml", PLAIN);
    refused(read(&[module, template]), &["service.toml: the file is missing"]);
    refused(read(&[outline, template]), &["the file of the module `s@DATE.yang` is missing"]);
    refused(read(&[outline, module]), &["service.toml:4:8: there is no `templates/main.cli`"]);
    refused(read(&[outline, module, template]), &[]);
    refused(read(&[outline, module, template, ("README.md", "for people")]), &[]);
    let second = ("t@2026-11-23.yang", "module t { }");
    refused(
        read(&[outline, module, template, second]),
        &["t@2026-11-23.yang: a package has one file of YANG"],
    );
    let odd = PLAIN.replace("main.cli", "main.txt");
    let errors = &["service.toml:4:8: `templates/main.txt` does not say what it puts out"];
    refused(read(&[("service.toml", &odd), module, ("templates/main.txt", "")]), errors);
    let files = PackageFiles::new([("service.toml".into(), Arc::from(&b"\xff"[..]))]).unwrap();
    refused(
        Package::read(models(), &files).map(|it| it.0),
        &["service.toml: the file is not text"],
    );
}

#[test]
fn the_archive_is_called_after_its_package() {
    let package =
        files([("service.toml", PLAIN), ("s@2026-11-23.yang", MODULE), ("templates/main.cli", "")]);
    let archive = package.write().unwrap();
    let read = |name: &str| Package::read_archive(models(), name, &archive).map(|it| it.0);
    refused(read("s-1.0.0.hfs"), &[]);
    refused(read("s-1.0.1.hfs"), &["the archive is called `s-1.0.1.hfs`, and holds `s-1.0.0.hfs`"]);
    refused(
        Package::read_archive(models(), "s-1.0.0.hfs", &archive[1..]).map(|it| it.0),
        &["cannot be read"],
    );
}

#[test]
fn templates_are_compiled_with_the_package() {
    refused(
        plain("main.cli", "interface {{ params.port }}\n{% if %}"),
        &["templates/main.cli:2:7: syntax error"],
    );
    refused(plain("main.native.json", "{{"), &["templates/main.native.json:1:1: syntax error"]);
    refused(
        plain("main.cli", &" ".repeat((64 << 10) + 1)),
        &["templates/main.cli: more than 65536 bytes in a template"],
    );
    let both = [("templates/a.cli", "{% x %}"), ("templates/b.oc.json", "{{ ( }}")];
    let outline = "[[component]]\ntype = \"c\"\n[[component.state]]\nname = \"a\"\nwork = \"a.cli\"\n[[tree]]\ncreate = { type = \"c\", name = \"'x'\" }";
    refused(
        staged(outline, &both),
        &["templates/a.cli:1:4: syntax error: unknown statement x", "templates/b.oc.json:1:"],
    );
}

#[test]
fn expressions_are_compiled_with_the_package() {
    let outline = "[[component]]\ntype = \"c\"\n[[component.state]]\nname = \"a\"\nwhen = \"params.\"\n[[tree]]\nif = \"1 +\"\ncreate = { type = \"c\", name = \"'x'\" }";
    refused(
        staged(outline, &[]),
        &["service.toml:13:8: syntax error", "service.toml:15:6: syntax error"],
    );
}

#[test]
fn grants_are_paths_of_the_models() {
    let granted = |write: &str, read: &str| {
        let outline = format!("{PLAIN}[grants]\nwrite = [\"{write}\"]\nread = [\"{read}\"]\n");
        super::Package::read(
            models(),
            &files([
                ("service.toml", outline.as_str()),
                ("s@2026-11-23.yang", MODULE),
                ("templates/main.cli", ""),
            ]),
        )
        .map(|it| it.0)
    };
    let write = "/interfaces/interface";
    let fits = "/interfaces/interface/state";
    refused(granted(write, fits), &[]);
    refused(granted("openconfig:/interfaces/interface/config", fits), &[]);
    refused(granted("/holdfast:interfaces", fits), &[]);
    refused(
        granted("/interfaces/colour", fits),
        &["service.toml:6:10: the holdfast_native model has no `/interfaces/colour`"],
    );
    refused(
        granted(fits, fits),
        &["6:10: `/interfaces/interface/state` is state, which cannot be written"],
    );
    refused(
        granted(write, "openconfig:/interfaces/interface/mtu"),
        &["7:9: the openconfig model has no"],
    );
    refused(
        granted(write, "junos:/interfaces"),
        &["7:9: `junos:/interfaces`: there is no origin `junos`"],
    );
    refused(granted("interfaces", fits), &["6:10: `interfaces`: a path begins with `/`"]);
    refused(granted("/", fits), &["6:10: the holdfast_native model has no `/`"]);
    for of_services in ["/services", "/holdfast-services:services", "/services/s/port"] {
        refused(granted(of_services, fits), &["services neither read nor write services"]);
        refused(granted(write, of_services), &["services neither read nor write services"]);
    }
}

#[test]
fn the_package_to_start_from_holds_no_errors() {
    let files = crate::starter::files("my-service", "2026-11-23").unwrap();
    let (package, warnings) = Package::read(models(), &files).unwrap();
    assert_eq!((package.archive_name().as_str(), warnings), ("my-service-1.0.0.hfs", Vec::new()));
    let scope = scope(&package, r#"{"name":"a","port":"eth1","description":"to the north"}"#);
    let components = package.components(&scope, &no_facts()).unwrap();
    let work =
        package.outline.component("port").unwrap().state("configured").unwrap().work.as_ref();
    let output =
        package.render(work, &scope.of_component(&components[1]), &no_facts()).unwrap().unwrap();
    let text = holdfast_config::cli::print(&package.list.models.native, &output.tree);
    assert_eq!(text, "interface eth1\n  enabled true\n  description \"to the north\"\n");
    assert!(crate::starter::files("a/../b", "2026-11-23").is_err());
}
