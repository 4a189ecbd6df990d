//! The text of the configuration file: its keys, and the arguments that they stand for.

use std::any::TypeId;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command};
use holdfast_common::nearest;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::mistakes::{Mistake, Mistakes};
use super::{options_of, run_definition};
use crate::settings::{SECTIONS, Section, Setting};

/// Bytes of the largest file that is read: hundred times the packaged one, which explains every key.
const MAX_FILE: u64 = 2 << 20;

/// Reason not to use a configuration file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigFileError {
    #[error("cannot read the configuration file `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
}

/// A configuration file that is TOML.
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    text: String,
    entries: Vec<Entry>,
    /// Keys and sections that no option has.
    unknown: Vec<Mistake>,
}

/// A key of the file with its value.
#[derive(Debug)]
struct Entry {
    section: &'static Section,
    setting: &'static Setting,
    /// The words for the option, or what is wrong with the value. No words for an option that is not set.
    words: Result<Vec<String>, String>,
    key_span: Range<usize>,
    value_span: Range<usize>,
}

impl ConfigFile {
    /// Reads a file. Its values are not checked yet.
    ///
    /// # Errors
    /// When the file cannot be read, or is not TOML.
    pub fn read(path: &Path) -> Result<Self, ConfigFileError> {
        let failed = |source| ConfigFileError::Read { path: path.to_owned(), source };
        let mut text = String::new();
        // The opening of a pipe waits for a writer.
        if std::fs::metadata(path).map_err(failed)?.file_type().is_fifo() {
            return Err(failed(io::Error::other("it is a pipe, not a file")));
        }
        let file = File::open(path).map_err(failed)?;
        file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_FILE {
            let reason = format!("the file has more than {MAX_FILE} bytes");
            return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, reason)));
        }
        Ok(Self::parse(path, text)?)
    }

    /// Parses the text of a file.
    pub(super) fn parse(path: &Path, text: String) -> Result<Self, Mistakes> {
        let mut entries = Vec::new();
        let mut unknown = Vec::new();
        let document = DeTable::parse(&text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            Mistakes(vec![Mistake::at(path, &text, &span, error.message().to_owned())])
        })?;
        let run = run_definition();
        let mut refuse = |span: Range<usize>, reason| {
            unknown.push(Mistake::at(path, &text, &span, reason));
        };
        for (name, value) in document.get_ref() {
            let Some(section) = Section::named(name.get_ref()) else {
                refuse(name.span(), unknown_section(name.get_ref()));
                continue;
            };
            let DeValue::Table(table) = value.get_ref() else {
                refuse(name.span(), format!("write [{}] on a line of its own", section.name));
                continue;
            };
            for (key, value) in table {
                let Some(setting) = section.setting(key.get_ref()) else {
                    refuse(key.span(), unknown_key(key.get_ref(), section));
                    continue;
                };
                let words = words(option(&run, setting), value);
                let words = words
                    .map_err(|reason| format!("`{}` in [{}] {reason}", setting.key, section.name));
                entries.push(Entry {
                    section,
                    setting,
                    words,
                    key_span: key.span(),
                    value_span: value.span(),
                });
            }
        }
        drop(document);
        Ok(Self { path: path.to_owned(), text, entries, unknown })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of keys that the file sets.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True for a file that sets no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The words of an option; `None` if the file does not set it.
    pub(crate) fn words_of(&self, option: &str) -> Option<&[String]> {
        let entry = self.entries.iter().find(|entry| entry.setting.option == option)?;
        entry.words.as_deref().ok().filter(|words| !words.is_empty())
    }

    /// Arguments for those of its options that are wanted.
    pub(crate) fn arguments(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<OsString> {
        let run = run_definition();
        let wanted = self.entries.iter().filter(|entry| is_wanted(entry.setting.option));
        wanted.flat_map(|entry| entry.arguments(option(&run, entry.setting))).collect()
    }

    /// Checks each key and value.
    ///
    /// # Errors
    /// All keys that no option has, and all values that their options refuse. Also an option that needs another one which
    /// neither the file sets nor `is_given` knows.
    pub(crate) fn check(&self, is_given: &dyn Fn(&str) -> bool) -> Result<(), Mistakes> {
        let run = run_definition();
        let mut mistakes = self.unknown.clone();
        for entry in &self.entries {
            let reason = match &entry.words {
                Ok(_) => self.refusal(entry, &run, is_given),
                Err(reason) => Some((reason.clone(), &entry.value_span)),
            };
            mistakes.extend(
                reason.map(|(reason, span)| Mistake::at(&self.path, &self.text, span, reason)),
            );
        }
        Mistakes::of(mistakes)
    }

    /// A mistake at the value of an option.
    pub(super) fn mistake_at_value(&self, option: &str, reason: String) -> Option<Mistake> {
        let entry = self.entries.iter().find(|entry| entry.setting.option == option)?;
        let name = format!("`{}` in [{}] {reason}", entry.setting.key, entry.section.name);
        Some(Mistake::at(&self.path, &self.text, &entry.value_span, name))
    }

    /// Reason for which clap refuses the value of a key, and the place that is wrong.
    fn refusal<'e>(
        &self,
        entry: &'e Entry,
        run: &Command,
        is_given: &dyn Fn(&str) -> bool,
    ) -> Option<(String, &'e Range<usize>)> {
        let name = format!("`{}` in [{}]", entry.setting.key, entry.section.name);
        let words = std::iter::once(OsString::from("run"));
        let alone = words.chain(entry.arguments(option(run, entry.setting)));
        let error = run.clone().try_get_matches_from(alone).err()?;
        if error.kind() != ErrorKind::MissingRequiredArgument {
            return Some((format!("{name} {}", reason_of(&error)), &entry.value_span));
        }
        let is_there = |id: &str| is_given(id) || self.words_of(id).is_some();
        let missing =
            missing_options(&error, run).find(|option| !is_there(option.get_id().as_str()))?;
        Some((format!("{name} needs {}", place_of(missing)), &entry.key_span))
    }
}

impl Entry {
    /// Arguments for the option; none for its default, which may stand in the file although the option needs another one.
    fn arguments(&self, option: &Arg) -> Vec<OsString> {
        let name = option.get_long().unwrap_or_default();
        let defaults = option.get_default_values().iter().map(|value| value.to_str());
        if self.words.iter().flatten().map(|word| Some(word.as_str())).eq(defaults) {
            return Vec::new();
        }
        let words = self.words.as_deref().unwrap_or_default().iter();
        if takes_no_value(option) {
            words.map(|_| format!("--{name}").into()).collect()
        } else {
            words.map(|word| format!("--{name}={word}").into()).collect()
        }
    }
}

/// The definition of the option of a key.
fn option<'c>(run: &'c Command, setting: &Setting) -> &'c Arg {
    let option = options_of(run).find(|option| option.get_id() == setting.option);
    option.expect("a test says that the options of the table are defined")
}

fn takes_no_value(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::SetTrue)
}

/// Kind of value that an option has in TOML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Switch,
    Number,
    Text,
    List,
}

impl ValueKind {
    pub(super) fn of(option: &Arg) -> Self {
        match option.get_action() {
            ArgAction::SetTrue => Self::Switch,
            ArgAction::Append => Self::List,
            _ if option.get_value_parser().type_id() == TypeId::of::<usize>() => Self::Number,
            _ => Self::Text,
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::Switch => "true or false",
            Self::Number => "a number",
            Self::Text => "a text in quotes",
            Self::List => "a list of texts in quotes, as in [\"...\"]",
        }
    }
}

/// The words that a value stands for. An empty text stands for an option that is not set.
fn words(option: &Arg, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, String> {
    let kind = ValueKind::of(option);
    let wrong = |found: &DeValue<'_>| {
        format!("is {} here, and has to be {}", found.type_str(), kind.in_words())
    };
    match (kind, value.get_ref()) {
        (ValueKind::Switch, DeValue::Boolean(true)) => Ok(vec!["true".to_owned()]),
        (ValueKind::Switch, DeValue::Boolean(false)) => Ok(Vec::new()),
        (ValueKind::Number, DeValue::Integer(number)) => Ok(vec![decimal(number)]),
        (ValueKind::Text, DeValue::String(text)) if text.is_empty() => Ok(Vec::new()),
        (ValueKind::Text, DeValue::String(text)) => Ok(vec![text.to_string()]),
        (ValueKind::List, DeValue::Array(values)) if values.is_empty() => {
            Err("is empty, and has to have one value at least".to_owned())
        }
        (ValueKind::List, DeValue::Array(values)) => {
            let text = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
                DeValue::String(text) => Ok(text.to_string()),
                other => Err(wrong(other)),
            };
            values.iter().map(text).collect()
        }
        (_, other) => Err(wrong(other)),
    }
}

/// The digits of a number to base ten; a number that is too large keeps its own.
fn decimal(number: &DeInteger<'_>) -> String {
    let parsed = i64::from_str_radix(number.as_str(), number.radix());
    parsed.map_or_else(|_| number.to_string(), |number| number.to_string())
}

/// Reason for which clap refuses a value, without the usage that it adds for command lines.
fn reason_of(error: &clap::Error) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        _ => None,
    };
    let value = context(ContextKind::InvalidValue).unwrap_or_default();
    let reason = match (std::error::Error::source(error), context(ContextKind::ValidValue)) {
        (Some(source), _) => source.to_string(),
        (None, Some(valid)) => format!("use one of {valid}"),
        (None, None) => error.kind().to_string(),
    };
    format!("cannot be \"{value}\": {reason}")
}

/// Options that another one requires.
fn missing_options<'c>(error: &clap::Error, run: &'c Command) -> impl Iterator<Item = &'c Arg> {
    let missing = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(options)) => options.clone(),
        Some(ContextValue::String(option)) => vec![option.clone()],
        _ => Vec::new(),
    };
    options_of(run).filter(move |option| missing.contains(&option.to_string()))
}

/// The key and section of an option, for a message.
fn place_of(option: &Arg) -> String {
    let sections = SECTIONS
        .iter()
        .flat_map(|section| section.settings.iter().map(move |setting| (section, setting)));
    let mut found = sections.filter(|(_, setting)| option.get_id() == setting.option);
    let place = found.next();
    place.map_or_else(
        || option.to_string(),
        |(section, setting)| format!("`{}` in [{}]", setting.key, section.name),
    )
}

fn unknown_section(name: &str) -> String {
    if let Some(section) = SECTIONS.iter().find(|section| section.setting(name).is_some()) {
        return format!("the key \"{name}\" is in no section: move it to [{}]", section.name);
    }
    match nearest(name, || SECTIONS.iter().map(|section| section.name)) {
        Some(meant) => format!("unknown section [{name}]; did you mean [{meant}]?"),
        None => {
            let names: Vec<String> =
                SECTIONS.iter().map(|section| format!("[{}]", section.name)).collect();
            format!("unknown section [{name}]; there are {}", names.join(", "))
        }
    }
}

fn unknown_key(key: &str, section: &Section) -> String {
    let unknown = format!("unknown key \"{key}\" in [{}]", section.name);
    if let Some(other) = SECTIONS.iter().find(|other| other.setting(key).is_some()) {
        return format!("{unknown}; the key belongs in [{}]", other.name);
    }
    let by_option = |setting: &&Setting| setting.option.replace('_', "-") == key;
    let as_option = section.settings.iter().find(by_option).map(|setting| setting.key);
    let meant =
        as_option.or_else(|| nearest(key, || section.settings.iter().map(|setting| setting.key)));
    match meant {
        Some(meant) => format!("{unknown}; did you mean \"{meant}\"?"),
        None => unknown,
    }
}
