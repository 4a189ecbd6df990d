//! Parts of packages that can never work, which an author is told of.

use super::*;

/// Messages about an outline of one component type `core` with states `made` and `done`, and these lines of the latter.
#[track_caller]
fn outline_errors(lines: &str, want: &[&str]) {
    let outline = format!(
        "[[component]]\ntype = \"core\"\n[[component.state]]\nname = \"made\"\nwork = \"a.cli\"\n\
         [[component.state]]\nname = \"done\"\n{lines}\n[[tree]]\ncreate = {{ type = \"core\", name = \"'main'\" }}\n"
    );
    let header = format!("[service]\nname = \"s\"\nversion = \"1.0.0\"\n{GRANTS}");
    let texts = [
        ("service.toml", format!("{header}{outline}")),
        ("s@2026-11-23.yang", MODULE.to_owned()),
        ("templates/a.cli", String::new()),
    ];
    let files = files(texts.iter().map(|(path, text)| (*path, text.as_str())));
    let package = Package::read(models(), &files).unwrap().0;
    told(&package, want);
}

/// Messages about a template of a plain type.
#[track_caller]
fn template_errors(text: &str, want: &[&str]) {
    told(&plain("main.cli", text).unwrap(), want);
}

#[track_caller]
fn told(package: &Package, want: &[&str]) {
    let errors: Vec<String> = package.lint().iter().map(PackageError::to_string).collect();
    assert_eq!(errors.len(), want.len(), "{errors:#?}");
    for (error, want) in errors.iter().zip(want) {
        assert!(error.contains(want), "{error}\n{want}");
    }
}

#[test]
fn expressions_of_the_outline_name_what_is_there() {
    for (when, want) in [
        ("reached('core', 'main', 'made')", ""),
        ("reached('self', 'self', 'ready') or ready('core')", ""),
        (
            "reached('core', 'main', 'tunneled')",
            "service.toml:15:8: the component type `core` has no state `tunneled`",
        ),
        ("reached('cor', 'main', 'made')", "15:8: there is no component type `cor`"),
        ("ready('cor')", "15:8: there is no component type `cor`"),
        ("reached('core', 'made')", "`reached` has 3 arguments"),
        (
            "action('core', component.name, 'made') == 'none'",
            "the state `made` of `core` has no action",
        ),
        (
            "reched('core', 'main', 'made')",
            "there is no function `reched`: there are config, state",
        ),
        ("params.port | foo == 'x'", "there is no filter `foo`"),
        ("params.port is foo", "there is no test `foo`"),
        ("params.prot == 'x'", "the parameters have no `prot`: there are "),
        ("params['test-passed']", "have no `test-passed`; in expressions `-` is `_`"),
        ("params.test_passed and params.options.mtu == 7", ""),
        ("params.options.mut == 7", "`options` has no `mut`: there are mtu, flag"),
        ("params.end | length > 1 and params.end[0].id == 1", ""),
        ("nothing == 1", "there is no value `nothing`"),
        ("nothing is defined", ""),
        ("state('x') is none", "`x`: a path begins with `/`"),
        (
            "state('/system/state/hostname') is none",
            "`/system/state/hostname` is not in the grants to read",
        ),
        ("state('/interfaces/interface[name={}]/state/oper-status', params.port) == 'UP'", ""),
        (
            "state('/interfaces/interface[name={}]/state/oper-status') == 'UP'",
            "has more `{}` than arguments follow it",
        ),
        ("config('/interfaces/interface[name=a]/colour') is none", "colour"),
        ("state(params.text) is none", ""),
    ] {
        let want = if want.is_empty() { &[][..] } else { &[want][..] };
        outline_errors(&format!("when = \"{when}\""), want);
    }
}

#[test]
fn builtin_actions_have_the_parameters_that_they_take() {
    let action =
        |params: &str| format!("action = {{ builtin = \"ping\", params = {{ {params} }} }}");
    outline_errors(&action("destination = \"params.port\", count = \"3\""), &[]);
    outline_errors(
        &action("dest = \"params.port\""),
        &[
            "service.toml:14:8: `ping` needs the parameter `destination`",
            "service.toml:15:48: `ping` has no parameter `dest`: there are destination, source",
        ],
    );
}

#[test]
fn lines_of_templates_are_statements_that_are_granted() {
    for (text, want) in [
        ("interface {{ params.port }}\n  mtu {{ params.count }}\n", ""),
        ("interface {{ params.prot }}\n", "templates/main.cli:1:14: the parameters have no `prot`"),
        ("interface eth0\n  colour red\n", "templates/main.cli:2:3: unknown word `colour`"),
        ("interface {{ params.port }}\n  mtu many\n", "main.cli:2:3: `mtu`: "),
        ("no interface {{ params.port }}\n", "main.cli:1:1: a service has no `no`"),
        (
            "system\n  motd-banner {{ params.text }}\n",
            "main.cli:2:3: `/system/motd-banner` is not in the grants",
        ),
        ("{{ params.text }} eth0\n  colour red\n", ""),
        // Each branch is looked at.
        (
            "interface {{ params.port }}\n{% if params.text is defined %}  mtu 1400\n{% else %}  colour red\n{% endif %}",
            "main.cli:3:13: unknown word `colour`",
        ),
        (
            "{% for tag in params.tag %}interface {{ tag }}\n  colour {{ tag }}\n{% endfor %}",
            "main.cli:2:3: unknown word `colour`",
        ),
        (
            "{% for end in params.end %}interface {{ end.adress }}\n{% endfor %}",
            "main.cli:1:41: `end` has no `adress`",
        ),
        // Texts that no parameters make are not judged.
        (
            "interface {{ params.port }}\n  {% if ':' in params.text %}ipv6{% endif %}{% if not ':' in params.text %}ipv4{% endif %} address {{ params.text }}\n    prefix-length 24\n",
            "",
        ),
        ("{% macro name() %}eth{% endmacro %}interface {{ name() }}\n", ""),
        (
            "{% set port = params.port | lower %}interface {{ port }}\n{{ foo() }}\n",
            "there is no function `foo`",
        ),
        ("{% include 'other.cli' %}\n", "there is no template `other.cli`"),
    ] {
        let want = if want.is_empty() { &[][..] } else { &[want][..] };
        template_errors(text, want);
    }
}

#[test]
fn the_package_to_start_from_has_only_parts_that_work() {
    let files = crate::starter::files("my-service", "2026-11-23").unwrap();
    told(&Package::read(models(), &files).unwrap().0, &[]);
}
