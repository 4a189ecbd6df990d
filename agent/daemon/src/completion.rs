//! Completion of command lines for shells: `holdfast completion SHELL` prints a script, which asks the hidden `holdfast complete`.
//!
//! Words of the command line follow from its definition. Values of arguments, such as names of interfaces, come from the
//! running agent ([`Topic`]); when it does not answer at once, there are none. Absent on purpose: descriptions of words, and
//! names of files, which the shells complete themselves where there is no word.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Command, CommandFactory as _};
use tokio::time::timeout;

use crate::config_file;
use crate::local::Client;
use crate::settings::{CommandLine, CompleteSettings, DEFAULT_STATE_DIR, Shell, StateDir, Topic};

/// Time for which a person who has pressed a key waits for the agent.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// Characters besides blanks at which bash begins another word; what is completed begins behind the last of them.
const BASH_BREAKS: [char; 2] = ['=', ':'];

/// The script of a shell.
pub(crate) fn script(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => include_str!("completion/holdfast.bash"),
        Shell::Zsh => include_str!("completion/holdfast.zsh"),
        Shell::Fish => include_str!("completion/holdfast.fish"),
    }
}

/// Words that complete a command line, a line each.
pub(crate) async fn complete(settings: &CompleteSettings) -> String {
    let (words, is_bash) = match &settings.line {
        Some(line) => (split(line), true),
        None => (settings.words.clone(), false),
    };
    let Some((word, before)) = words.split_last() else { return String::new() };
    let mut command = CommandLine::command();
    command.build();
    let place = Place::after(&command, before.get(1..).unwrap_or_default());
    let mut candidates = place.fixed(word);
    if let Some((topic, text)) = place.topic(word) {
        candidates.extend(asked(&place, topic, &text).await);
    }
    candidates.retain(|candidate| candidate.starts_with(word.as_str()));
    candidates.sort_unstable();
    candidates.dedup();
    let skipped = if is_bash { word.rfind(BASH_BREAKS).map_or(0, |at| at + 1) } else { 0 };
    candidates.iter().map(|it| format!("{}\n", &it[skipped..])).collect()
}

/// Candidates of the running agent; none without its answer.
async fn asked(place: &Place<'_>, topic: Topic, text: &str) -> Vec<String> {
    let client = Client::new(&place.state_dir().socket());
    let answer =
        timeout(ANSWER_TIMEOUT, client.document(&topic.address(&place.positionals, text))).await;
    let Ok(Ok(answer)) = answer else { return Vec::new() };
    let prefix = topic.prefix();
    let words = answer.as_array().into_iter().flatten().filter_map(|it| it.as_str());
    words.map(|word| format!("{prefix}{word}")).collect()
}

/// Where the next word of a command line stands.
#[derive(Debug)]
struct Place<'c> {
    command: &'c Command,
    /// Names of the subcommands on the way.
    path: Vec<&'c str>,
    /// Positional arguments of the subcommand so far.
    positionals: Vec<String>,
    /// Option whose value comes next.
    option: Option<&'c Arg>,
    /// True once `--` has ended the options.
    is_after_options: bool,
    state_dir: Option<PathBuf>,
    socket: Option<PathBuf>,
    config: Option<PathBuf>,
}

impl<'c> Place<'c> {
    /// The place behind these words, the name of the program not among them.
    fn after(command: &'c Command, words: &[String]) -> Self {
        let mut place = Self {
            command,
            path: Vec::new(),
            positionals: Vec::new(),
            option: None,
            is_after_options: false,
            state_dir: None,
            socket: None,
            config: None,
        };
        words.iter().for_each(|word| place.pass(word));
        place
    }

    fn pass(&mut self, word: &str) {
        if let Some(option) = self.option.take() {
            self.note(option, word);
        } else if self.is_after_options {
            self.positionals.push(word.to_owned());
        } else if word == "--" {
            self.is_after_options = true;
        } else if let Some(name) = word.strip_prefix("--") {
            let (name, value) = name.split_once('=').map_or((name, None), |(n, v)| (n, Some(v)));
            let option = self.command.get_arguments().find(|arg| arg.get_long() == Some(name));
            let option = option.filter(|arg| arg.get_action().takes_values());
            match (option, value) {
                (Some(option), Some(value)) => self.note(option, value),
                (option, _) => self.option = option,
            }
        } else if let Some(letter) = word.strip_prefix('-').and_then(|it| it.chars().last()) {
            let option = self.command.get_arguments().find(|arg| arg.get_short() == Some(letter));
            self.option = option.filter(|arg| arg.get_action().takes_values());
        } else if let Some(below) = self.command.find_subcommand(word) {
            self.command = below;
            self.path.push(below.get_name());
            self.positionals.clear();
        } else {
            self.positionals.push(word.to_owned());
        }
    }

    fn note(&mut self, option: &Arg, value: &str) {
        match option.get_long() {
            Some("state-dir") => self.state_dir = Some(value.into()),
            Some("socket") => self.socket = Some(value.into()),
            Some("config") => self.config = Some(value.into()),
            _ => {}
        }
    }

    fn state_dir(&self) -> StateDir {
        let otherwise = |name| config_file::common_option(name, self.config.as_deref());
        let state_dir = self.state_dir.clone().or_else(|| otherwise("state_dir"));
        StateDir {
            state_dir: state_dir.unwrap_or_else(|| DEFAULT_STATE_DIR.into()),
            socket: self.socket.clone().or_else(|| otherwise("socket")),
            config: None,
        }
    }

    /// The argument whose value a word is. Of several positional ones the last may be repeated.
    fn argument(&self, word: &str) -> Option<&'c Arg> {
        if self.option.is_some() {
            return self.option;
        }
        if word.starts_with('-') && !self.is_after_options {
            return None;
        }
        let positional: Vec<&Arg> = self.command.get_positionals().collect();
        let last = positional
            .last()
            .copied()
            .filter(|arg| arg.get_num_args().is_some_and(|it| it.max_values() > 1));
        positional.get(self.positionals.len()).copied().or(last)
    }

    /// Words that the definition of the command line gives.
    fn fixed(&self, word: &str) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(arg) = self.argument(word) {
            let values = arg.get_possible_values().into_iter().filter(|it| !it.is_hide_set());
            words.extend(values.map(|value| value.get_name().to_owned()));
        }
        if self.option.is_some() || self.is_after_options {
            return words;
        }
        if word.starts_with('-') {
            let shown = self.command.get_arguments().filter(|arg| !arg.is_hide_set());
            words.extend(shown.filter_map(Arg::get_long).map(|name| format!("--{name}")));
        } else if self.positionals.is_empty() {
            let shown = self.command.get_subcommands().filter(|below| !below.is_hide_set());
            words.extend(shown.map(|below| below.get_name().to_owned()));
        }
        words
    }

    /// Topic by which the agent knows a value, and the text of it so far.
    fn topic(&self, word: &str) -> Option<(Topic, String)> {
        let arg = self.argument(word)?;
        let topic = match (self.path.as_slice(), arg.get_id().as_str()) {
            (["show", "interfaces"], "name") | (["show", "neighbors"], "interface") => {
                Topic::Interfaces
            }
            (["show", "services"], "name") | (["service", ..], "service" | "services") => {
                Topic::Instances
            }
            (["show", "state" | "why"], "path") => Topic::Paths,
            (["config", "show" | "delete" | "edit"], "path")
            | (["config", "set"], "target" | "values") => match word.starts_with('/') {
                true => Topic::Paths,
                false => Topic::ConfigWords,
            },
            (["config", "diff"], "what" | "to")
            | (["config", "log"], "number")
            | (["config", "rollback"], "target") => Topic::Revisions,
            (["show", "why"], "key") => Topic::Subjects,
            (["show", "timeline" | "graph"], "key") | (["show", "plan"], "keys") => Topic::Values,
            (["user", ..], "name") => Topic::Users,
            (["fault", "show" | "ack" | "close" | "reset"], "id") => Topic::Alarms,
            (["fault" | "maintenance", ..], "resource" | "resources") => Topic::Resources,
            _ => return None,
        };
        let text = word.strip_prefix(topic.prefix()).unwrap_or_default();
        Some((topic, text.to_owned()))
    }
}

/// The words of a line as a shell has them: blanks part them, quotes and backslashes hide blanks. The last one is the one
/// that is being written, and may be empty.
fn split(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    let mut characters = line.trim_start().chars();
    while let Some(character) = characters.next() {
        let word = words.last_mut();
        match (quote, character) {
            (Some(open), character) if open == character => quote = None,
            (None, '\'' | '"') => quote = Some(character),
            (None | Some('"'), '\\') => {
                if let (Some(word), Some(next)) = (word, characters.next()) {
                    word.push(next);
                }
            }
            (None, character) if character.is_whitespace() => {
                if word.is_some_and(|word| !word.is_empty()) {
                    words.push(String::new());
                }
            }
            (_, character) => word.into_iter().for_each(|word| word.push(character)),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(words: &[&str]) -> CompleteSettings {
        CompleteSettings { line: None, words: words.iter().map(|&it| it.to_owned()).collect() }
    }

    #[tokio::test]
    async fn words_follow_from_the_definition_of_the_command_line() {
        for (words, there, missing) in [
            (&["holdfast", ""][..], "show", "name-host"),
            (&["holdfast", "sh"], "show", "user"),
            (&["holdfast", "show", "in"], "interfaces", "routes"),
            (&["holdfast", "show", "graph", "--format", ""], "svg", "--json"),
            (&["holdfast", "show", "graph", "--fo"], "--format", "--json"),
            (&["holdfast", "show", "interfaces", "--w"], "--watch", "--json"),
            (&["holdfast", "switch", ""], "", "show"),
            (&["holdfast", "switch", "gnsi", ""], "off", "show"),
            (&["holdfast", "completion", "z"], "zsh", "bash"),
            (&["holdfast", "show", "--state-dir", "/x", "ro"], "routes", "state"),
            (&["holdfast", "--", "sh"], "", "show"),
        ] {
            let found = complete(&settings(words)).await;
            let has = |word: &str| found.lines().any(|line| line == word);
            assert!(there.is_empty() || has(there), "{words:?}: {found}");
            assert!(!has(missing), "{words:?}: {found}");
        }
    }

    #[test]
    fn values_have_the_topic_of_their_argument() {
        let mut command = CommandLine::command();
        command.build();
        for (line, want) in [
            ("holdfast show interfaces e", Some((Topic::Interfaces, "e"))),
            ("holdfast show interfaces -", None),
            ("holdfast show interfaces eth0 e", None),
            ("holdfast show interfaces --interval e", None),
            ("holdfast show state /sys", Some((Topic::Paths, "/sys"))),
            ("holdfast show why --path /sys", Some((Topic::Paths, "/sys"))),
            ("holdfast config set /sys", Some((Topic::Paths, "/sys"))),
            ("holdfast config show /sys", Some((Topic::Paths, "/sys"))),
            ("holdfast config set interface eth0 m", Some((Topic::ConfigWords, "m"))),
            ("holdfast config delete ", Some((Topic::ConfigWords, ""))),
            ("holdfast config rollback --dry-run ", Some((Topic::Revisions, ""))),
            ("holdfast config diff 1 ", Some((Topic::Revisions, ""))),
            ("holdfast show why link/", Some((Topic::Subjects, "link/"))),
            ("holdfast show plan link/a link/", Some((Topic::Values, "link/"))),
            ("holdfast service redeploy a", Some((Topic::Instances, "a"))),
            ("holdfast user delete a", Some((Topic::Users, "a"))),
            ("holdfast fault force-down interface:e", Some((Topic::Resources, "e"))),
        ] {
            let words = split(line);
            let (word, before) = words.split_last().unwrap();
            let place = Place::after(&command, &before[1..]);
            let found = place.topic(word);
            let found = found.as_ref().map(|(topic, text)| (*topic, text.as_str()));
            assert_eq!(found, want, "{line}");
        }
    }

    #[test]
    fn a_line_is_split_as_a_shell_does() {
        for (line, want) in [
            ("", &[""][..]),
            ("holdfast ", &["holdfast", ""]),
            ("holdfast  show", &["holdfast", "show"]),
            (r"show a\[n=\'x\'\] ", &["show", "a[n='x']", ""]),
            (r#"show "a[n='x y" "#, &["show", "a[n='x y", ""]),
            ("show 'link et", &["show", "link et"]),
        ] {
            assert_eq!(split(line), want, "{line}");
        }
    }

    #[tokio::test]
    async fn bash_replaces_what_is_behind_its_last_break() {
        let line = |line: &str| CompleteSettings { line: Some(line.to_owned()), words: Vec::new() };
        assert_eq!(complete(&line("holdfast sho")).await, "show\n");
        assert_eq!(complete(&line("holdfast show graph --format ra")).await, "raw\n");
    }

    #[test]
    fn scripts_ask_the_program() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            assert!(script(shell).contains("holdfast complete"), "{shell:?}");
        }
    }
}
