//! The table of keys against the definition of the command line, and files with mistakes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::logging::LogLevel;
use crate::settings::{ListenAddress, LogFormat, RebootSetting, RunSettings};

/// Parses a command line beside a default file with this text.
fn parse(words: &str, text: &str) -> Result<Invocation, InvocationError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("holdfast.toml");
    fs::write(&file, text).unwrap();
    Invocation::parse_with(arguments(words), &file)
}

fn arguments(words: &str) -> Vec<OsString> {
    std::iter::once("holdfast").chain(words.split_whitespace()).map(Into::into).collect()
}

fn run_of(words: &str, text: &str) -> RunSettings {
    match parse(words, text).unwrap_or_else(|error| panic!("{words}\n{text}\n{error}")).command {
        settings::Command::Run(run) => *run,
        other => panic!("not a run: {other:?}"),
    }
}

/// The mistakes of a run with this file, without the path.
fn mistakes(words: &str, text: &str) -> Vec<String> {
    match parse(words, text) {
        Err(InvocationError::File(ConfigFileError::Mistakes(mistakes))) => {
            let line = |mistake: &Mistake| {
                let Mistake { position, reason, .. } = mistake;
                format!("{}:{}: {reason}", position.line, position.column)
            };
            mistakes.0.iter().map(line).collect()
        }
        other => panic!("{text}: {other:?}"),
    }
}

fn addresses(texts: &[&str]) -> Vec<ListenAddress> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn each_option_of_a_run_has_one_key() {
    let mut places = BTreeMap::<String, Vec<String>>::new();
    for option in options_of(&run_definition()) {
        places.insert(option.get_id().to_string(), Vec::new());
    }
    for section in SECTIONS {
        for setting in section.settings {
            let option = places.get_mut(setting.option);
            let option = option.unwrap_or_else(|| panic!("no option `{}`", setting.option));
            option.push(format!("[{}] {}", section.name, setting.key));
        }
    }
    assert!(places.values().all(|places| places.len() == 1), "{places:#?}");
}

#[test]
fn each_option_of_a_run_has_a_variable() {
    let command = definition();
    let run = command.find_subcommand("run").unwrap();
    for option in options_of(run) {
        let name = option.get_long().unwrap().replace('-', "_").to_ascii_uppercase();
        let variable = option.get_env().map(|it| it.to_string_lossy().into_owned());
        assert_eq!(variable, Some(format!("HOLDFAST_{name}")));
    }
    let show = command.find_subcommand("show").unwrap();
    let common = show.get_arguments().filter(|option| option.get_env().is_some());
    let common: Vec<&str> = common.map(|option| option.get_id().as_str()).collect();
    assert_eq!(common, ["state_dir", "socket", "config"]);
}

#[test]
fn options_come_before_the_file_and_the_file_before_defaults() {
    let text = "[agent]\nstate-dir = \"/from/file\"\nlog-level = \"debug\"\nreboot = \"system\"\n\
                [server]\nlisten = [\"192.0.2.1:1\", \"[2001:db8::1]:2\"]\n\
                [accounting]\nhistory = 1_048_576\n[bootz]\ntrust-any-server = true\n";
    let run = run_of("run", text);
    assert_eq!(run.state.state_dir, Path::new("/from/file"));
    assert_eq!(run.log_level, LogLevel::Debug);
    assert_eq!(run.reboot, RebootSetting::System);
    assert_eq!(run.log_format, LogFormat::Auto, "a default");
    assert_eq!(run.listen, addresses(&["192.0.2.1:1", "[2001:db8::1]:2"]));
    assert_eq!(run.accounting_history, 1 << 20);
    assert!(run.bootz.bootz_trust_any_server);

    let run = run_of("run --listen 192.0.2.9:9 --log-level warn --state-dir /from/flag", text);
    assert_eq!(run.listen, addresses(&["192.0.2.9:9"]), "the list replaces that of the file");
    assert_eq!(run.log_level, LogLevel::Warn);
    assert_eq!(run.state.state_dir, Path::new("/from/flag"));
    assert_eq!(run.reboot, RebootSetting::System, "still from the file");
}

#[test]
fn a_file_may_have_the_other_half_of_a_pair() {
    let run = run_of("run --tls-cert c.pem", "[server]\ntls-key = \"k.pem\"\n");
    assert_eq!(run.tls.tls_cert, Some("c.pem".into()));
    assert_eq!(run.tls.tls_key, Some("k.pem".into()));
    let run = run_of("run --tls-key k.pem", "[server]\ntls-cert = \"c.pem\"\n");
    assert_eq!(run.tls.tls_cert, Some("c.pem".into()));
    let alone = parse("run --tls-cert c.pem", "");
    assert!(matches!(alone, Err(InvocationError::CommandLine(_))), "{alone:?}");
}

#[test]
fn every_command_with_a_state_folder_takes_it_from_the_file() {
    let text = "[agent]\nstate-dir = \"/from/file\"\nsocket = \"/run/one.sock\"\n";
    let state_of = |words: &str, text: &str| match parse(words, text).unwrap().command {
        settings::Command::Show(show) => show.state,
        settings::Command::User(user) => user.state,
        settings::Command::Bootz(bootz) => bootz.state,
        other => panic!("{other:?}"),
    };
    for words in ["show config", "user list", "bootz status"] {
        let state = state_of(words, text);
        assert_eq!(state.state_dir, Path::new("/from/file"), "{words}");
        assert_eq!(state.socket, Some("/run/one.sock".into()), "{words}");
    }
    for words in ["show --state-dir /flag config", "user list --state-dir /flag"] {
        assert_eq!(state_of(words, text).state_dir, Path::new("/flag"), "{words}");
    }
    // A mistake in what only the agent needs does not keep people from looking at it.
    let state = state_of("show config", "[agent]\nstate-dir = \"/x\"\nlog-level = \"loud\"\n");
    assert_eq!(state.state_dir, Path::new("/x"));
}

#[test]
fn a_named_file_has_to_be_there() {
    let missing = Path::new("/nonexistent/holdfast.toml");
    assert!(Invocation::parse_with(arguments("run"), missing).is_ok());
    let words = arguments("run --config /nonexistent/other.toml");
    let error = Invocation::parse_with(words, missing).unwrap_err();
    let want = "cannot read the configuration file `/nonexistent/other.toml`";
    assert_eq!(error.to_string(), want);
}

#[test]
fn mistakes_have_their_place_and_a_guess() {
    for (text, want) in [
        (
            "[server]\nlisten = [\"[::]:1\"]\nlisen = 1",
            "3:1: unknown key \"lisen\" in [server]; did you mean \"listen\"?",
        ),
        ("[sever]\n", "1:2: unknown section [sever]; did you mean [server]?"),
        (
            "[agent]\nlisten = [\"[::]:1\"]",
            "2:1: unknown key \"listen\" in [agent]; the key belongs in [server]",
        ),
        (
            "[introspect]\nintrospect-token = \"all\"",
            "2:1: unknown key \"introspect-token\" in [introspect]; did you mean \"token\"?",
        ),
        ("listen = [\"[::]:1\"]", "1:1: the key \"listen\" is in no section: move it to [server]"),
        ("agent = 5", "1:1: write [agent] on a line of its own"),
        (
            "[agent]\n  reboot =  5",
            "2:13: `reboot` in [agent] is integer here, and has to be a text in quotes",
        ),
        (
            "[server]\nlisten = \"[::]:1\"",
            "2:10: `listen` in [server] is string here, and has to be a list of texts in quotes, as in [\"...\"]",
        ),
        (
            "[server]\nlisten = []",
            "2:10: `listen` in [server] is empty, and has to have one value at least",
        ),
        (
            "[accounting]\nhistory = \"8\"",
            "2:11: `history` in [accounting] is string here, and has to be a number",
        ),
        (
            "[bootz]\ntrust-any-server = \"yes\"",
            "2:20: `trust-any-server` in [bootz] is string here, and has to be true or false",
        ),
        (
            "[agent]\nreboot = \"sytem\"",
            "2:10: `reboot` in [agent] cannot be \"sytem\": use one of auto, agent, system",
        ),
        (
            "[server]\nlisten = [\"box:1\"]",
            "2:10: `listen` in [server] cannot be \"box:1\": give an IP address and a port, as in 127.0.0.1:9339 or [::]:9339",
        ),
        (
            "[server]\ntls-cert = \"c.pem\"",
            "2:1: `tls-cert` in [server] needs `tls-key` in [server]",
        ),
        (
            "[introspect]\ntoken = \"all\"",
            "2:1: `token` in [introspect] needs `address` in [introspect]",
        ),
    ] {
        assert_eq!(mistakes("run", text), [want], "{text}");
    }
    assert_eq!(mistakes("run", "[agent]\nx = 1\n[server]\nx = 1\n").len(), 2, "all are named");
    let no_toml = mistakes("run", "[agent]\nroot = /\n");
    assert!(no_toml[0].starts_with("2:8: "), "{no_toml:?}");
}

#[test]
fn paths_of_the_file_have_to_lead_somewhere() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    fs::write(place("key.pem"), "").unwrap();
    let check = |text: &str| {
        let file = place("holdfast.toml");
        fs::write(&file, text).unwrap();
        check_paths(&ConfigFile::read(&file).unwrap())
    };
    let key = |option: &str, path: PathBuf| format!("{option} = \"{}\"\n", path.display());
    for (section, option, path, is_good) in [
        ("server", "tls-key", place("key.pem"), true),
        ("server", "tls-key", place("none.pem"), false),
        ("server", "tls-key", folder.path().to_owned(), false),
        ("services", "folder", folder.path().to_owned(), true),
        ("services", "folder", place("key.pem"), false),
        ("image", "command", PathBuf::from("/bin/sh"), true),
        ("image", "command", place("key.pem"), false),
        ("agent", "state-dir", place("made-by-the-agent"), true),
    ] {
        let text = format!("[{section}]\n{}", key(option, path.clone()));
        let found = check(&text);
        assert_eq!(found.is_ok(), is_good, "{option} {path:?}: {found:?}");
        if let Err(error) = found {
            let error = error.to_string();
            let place = format!(":2:{}: `{option}` in [{section}] names", option.len() + 4);
            assert!(error.contains(&place), "{error}");
        }
    }
}

#[test]
fn changes_that_wait_for_a_restart_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("holdfast.toml");
    fs::write(&file, "[agent]\nlog-level = \"warn\"\n").unwrap();
    let source = Invocation::parse_with(arguments("run --netns blue"), &file).unwrap().source;
    let (run, waiting) = source.read_again().unwrap();
    assert_eq!((run.log_level, waiting), (LogLevel::Warn, Vec::new()));

    let text = "[agent]\nlog-level = \"debug\"\nroot = \"/mnt\"\nnetns = \"red\"\n\
                [server]\ntls-cert = \"c\"\ntls-key = \"k\"\nlisten = [\"[::]:1\"]\n";
    fs::write(&file, text).unwrap();
    let (run, waiting) = source.read_again().unwrap();
    assert_eq!((run.log_level, run.tls.tls_cert), (LogLevel::Debug, Some("c".into())));
    assert_eq!(run.netns.as_deref(), Some("blue"), "the option stays");
    assert_eq!(waiting, ["`root` in [agent]", "`listen` in [server]"]);

    fs::write(&file, "[agent]\nlog-level = \"loud\"\n").unwrap();
    assert!(source.read_again().is_err());
}

/// Holds a generated file against what the code gives; `HOLDFAST_WRITE=1` writes it.
fn check_generated(path: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("HOLDFAST_WRITE").is_some() {
        fs::write(&path, text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let name = path.display();
    assert!(kept == text, "{name} is not what the code gives; HOLDFAST_WRITE=1 writes it:\n{text}");
}

#[test]
fn the_packaged_file_is_that_of_the_definition() {
    check_generated("packaging/holdfast.toml", &template());
}

#[test]
fn the_page_of_the_guide_is_that_of_the_definition() {
    check_generated("packaging/guide/appendix/configuration-file.md", &markdown());
}

#[test]
fn the_packaged_file_sets_nothing_and_shows_the_defaults() {
    let is_key = |line: &str| {
        line.strip_prefix('#').is_some_and(|rest| !rest.is_empty() && !rest.starts_with(' '))
    };
    let defaults = format!("{:?}", run_of("run", ""));
    let packaged = template();
    assert_eq!(ConfigFile::parse(Path::new("x"), packaged.clone()).unwrap().len(), 0);
    assert_eq!(format!("{:?}", run_of("run", &packaged)), defaults);

    let uncommented = packaged.lines().map(|line| if is_key(line) { &line[1..] } else { line });
    let uncommented = uncommented.collect::<Vec<_>>().join("\n");
    let count = options_of(&run_definition()).count();
    let file = ConfigFile::parse(Path::new("x"), uncommented.clone()).unwrap();
    assert_eq!(file.len(), count, "{uncommented}");
    assert_eq!(format!("{:?}", run_of("run", &uncommented)), defaults);
}
