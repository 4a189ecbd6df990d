//! Texts that are made from the definition of the command line: the packaged file, a page of the guide, and a page of the
//! manual.

use std::fmt::Write as _;

use clap::{Arg, Command};
use clap_mangen::roff::{Roff, bold, roman};

use super::document::ValueKind;
use super::{options_of, run_definition, variable_of};
use crate::settings::{DEFAULT_CONFIG_FILE, SECTIONS, Section, Setting, TakesEffect};

/// Characters of a line of the packaged file.
const LINE_CHARACTERS: usize = 100;

/// Head of the packaged file.
const FILE_HEAD: &str = "Configuration of the Holdfast agent. Each key is commented out, and shows its default. \
    An empty text stands for an option that is not set. An option of `holdfast run` overrides its variable in the \
    environment, and the variable overrides this file.";

/// Advice for after a change of the packaged file.
const FILE_ADVICE: &str = "`holdfast check-config` checks this file. `systemctl reload holdfast` reads it again. \
    Certificates and the log level take effect then. The log names other changed keys, which wait for a restart.";

/// Head of the page of the guide. The page is written by a test.
const PAGE_HEAD: &str = "\
# The configuration file

Each option of `holdfast run` has a key in `/etc/holdfast/holdfast.toml`, a variable in the environment, and a default.
The option overrides its variable, the variable overrides the file, and the file overrides the default. A list that is
given by option or variable replaces the list of the file. An empty text stands for an option that is not set.
[When the box starts](../operating/start.md#the-configuration-file) says how the file is read, checked and read again.

The page is made from the definition of the command line.
";

/// The packaged file: each key with its help and its default, commented out.
pub fn template() -> String {
    let run = run_definition();
    let mut text = String::new();
    comment(&mut text, FILE_HEAD);
    text.push_str("#\n");
    comment(&mut text, FILE_ADVICE);
    for section in SECTIONS {
        text.push('\n');
        comment(&mut text, section.about);
        let _infallible = writeln!(text, "[{}]", section.name);
        for (setting, option) in settings_of(section, &run) {
            text.push('\n');
            comment(&mut text, &help(option));
            for (name, meaning) in choices(option) {
                comment(&mut text, &format!("{name}: {meaning}"));
            }
            let _infallible = writeln!(text, "#{} = {}", setting.key, default(option));
        }
    }
    text
}

/// The page of the guide with all keys.
pub fn markdown() -> String {
    let run = run_definition();
    let mut text = PAGE_HEAD.to_owned();
    for section in SECTIONS {
        let _infallible = write!(
            text,
            "\n## [{}]\n\n{}\n\n| key | default | takes effect | what it says |\n|---|---|---|---|\n",
            section.name, section.about
        );
        for (setting, option) in settings_of(section, &run) {
            let effect = match setting.takes_effect {
                TakesEffect::AtReload => "reload",
                TakesEffect::AtStart => "restart",
            };
            let choices = choices(option);
            let choices = choices.iter().map(|(name, meaning)| format!(" `{name}`: {meaning}"));
            let meaning = help(option) + &choices.collect::<String>();
            let _infallible = writeln!(
                text,
                "| `{}` | `{}` | {effect} | {} `--{}`, `{}` |",
                setting.key,
                default(option),
                escaped(&meaning),
                option.get_long().unwrap_or_default(),
                variable_of(setting.option),
            );
        }
    }
    text
}

/// The page holdfast.toml(5) of the manual.
pub(crate) fn manual_page() -> String {
    let run = run_definition();
    let mut page = Roff::new();
    page.control("TH", ["holdfast.toml", "5", "", "", "Holdfast"]);
    page.control("SH", ["NAME"]);
    page.text([roman("holdfast.toml - configuration of the Holdfast agent")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman(DEFAULT_CONFIG_FILE), roman(" is a file in TOML. "), roman(FILE_HEAD)]);
    page.control("PP", []);
    page.text([roman(FILE_ADVICE)]);
    for section in SECTIONS {
        page.control("SH", [format!("[{}]", section.name).as_str()]);
        page.text([roman(section.about)]);
        for (setting, option) in settings_of(section, &run) {
            page.control("TP", []);
            page.text([bold(setting.key), roman(format!(" = {}", default(option)))]);
            page.text([roman(help(option))]);
            for (name, meaning) in choices(option) {
                page.control("br", []);
                page.text([bold(name), roman(": "), roman(meaning)]);
            }
        }
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("holdfast"), roman("(8), "), bold("holdfast-run"), roman("(8)")]);
    page.render()
}

fn settings_of<'c>(
    section: &'static Section,
    run: &'c Command,
) -> impl Iterator<Item = (&'static Setting, &'c Arg)> {
    section.settings.iter().filter_map(|setting| {
        let option = options_of(run).find(|option| option.get_id() == setting.option)?;
        Some((setting, option))
    })
}

/// The help of an option, as sentences.
fn help(option: &Arg) -> String {
    let help = option.get_long_help().or_else(|| option.get_help());
    let text = help.map(ToString::to_string).unwrap_or_default();
    sentence(&text)
}

/// The values between which an option chooses, and what each of them means.
fn choices(option: &Arg) -> Vec<(String, String)> {
    if ValueKind::of(option) == ValueKind::Switch {
        return Vec::new();
    }
    let values = option.get_possible_values();
    let values = values.iter().filter(|value| !value.is_hide_set());
    let meaning = |value: &clap::builder::PossibleValue| {
        let help = value.get_help().map(ToString::to_string).unwrap_or_default();
        (value.get_name().to_owned(), sentence(&help))
    };
    values.map(meaning).collect()
}

fn sentence(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.ends_with(['.', '?', ')']) || text.is_empty() { text } else { format!("{text}.") }
}

/// The default of an option as TOML.
fn default(option: &Arg) -> String {
    let values = option.get_default_values().iter().map(|value| value.to_string_lossy());
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    match ValueKind::of(option) {
        ValueKind::Switch => "false".to_owned(),
        ValueKind::Number => values.collect(),
        ValueKind::Text => quoted(&values.collect::<String>()),
        ValueKind::List => {
            format!("[{}]", values.map(|value| quoted(&value)).collect::<Vec<_>>().join(", "))
        }
    }
}

/// A text for a cell of a table.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Adds a text as comments, in lines that fit.
fn comment(text: &mut String, words: &str) {
    let mut line = "#".to_owned();
    for word in words.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > LINE_CHARACTERS {
            let _infallible = writeln!(text, "{line}");
            line = "#".to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    let _infallible = writeln!(text, "{line}");
}
