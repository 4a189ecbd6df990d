//! `holdfast config` on the side of the person: files, the editor, questions, and the text of answers.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use holdfast_config::cli::write_word;
use holdfast_config::limits::MESSAGE_SIZE;
use holdfast_store::{ConfigRevision, ListedRevision, RevisionList};
use serde::de::DeserializeOwned;
use tempfile::NamedTempFile;

use crate::local::{
    ChangeAnswer, ChangeContent, ChangeRequest, CheckpointRequest, Client, ClientError,
    ConfirmRequest, DiffRequest, Export, LogRequest, SentDocument, ShowRequest, pretty,
};
use crate::prompt::{self, PromptError};
use crate::settings::{ChangeTerms, ConfigAction, ConfigFormat, DocumentArgs};

/// The editor of a person who names none.
const DEFAULT_EDITOR: &str = "vi";

/// Reason for which a command fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigCommandError {
    #[error(transparent)]
    Agent(#[from] ClientError),
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}` has more than {} bytes", path.display(), MESSAGE_SIZE.figure)]
    TooLarge { path: PathBuf },
    #[error("`{}` is not text in UTF-8", path.display())]
    NoText { path: PathBuf },
    #[error("`{}` is not a document that `holdfast config export` made", path.display())]
    NoExport { path: PathBuf, source: serde_json::Error },
    #[error("there is no file `{0}`; to set a leaf, give its value after its path")]
    NeitherFileNorValue(String),
    #[error("`--format` is for a file; the model of a path follows from the path")]
    FormatOfPath,
    #[error("cannot save the text in a temporary file for the editor")]
    File(#[source] io::Error),
    #[error("cannot start the editor `{editor}`")]
    Editor { editor: String, source: io::Error },
    #[error("the editor `{editor}` ended with {status}; nothing is changed")]
    EditorFailed { editor: String, status: std::process::ExitStatus },
    #[error(transparent)]
    Prompt(#[from] PromptError),
    #[error("nothing is changed: the answer was not `yes`")]
    Declined,
    #[error("cannot print the answer")]
    Print(#[source] io::Error),
}

/// Carries out a command; the answer is what is printed.
///
/// # Errors
/// When no agent runs, it refuses, or a file or the editor cannot be used.
pub(crate) async fn run(
    client: &Client,
    action: &ConfigAction,
) -> Result<String, ConfigCommandError> {
    Ok(match action {
        ConfigAction::Show { path, format, owner } => {
            let request = ShowRequest { path: joined(path), format: *format, owner: *owner };
            client.show_config(&request).await?
        }
        ConfigAction::Diff { what: Some(from), to: Some(to), .. } => {
            let request = DiffRequest { from: from.clone(), to: to.clone() };
            let mut text = String::new();
            write_difference(&mut text, &client.config_difference(&request).await?);
            text
        }
        ConfigAction::Diff { what: None, .. } => {
            let last: RevisionList = log_document(client, None).await?;
            last.revisions.last().map_or_else(String::new, |it| lines_of(&it.revision))
        }
        ConfigAction::Diff { what: Some(what), format, to: None } => match what.parse() {
            Ok(number) => {
                let found: ListedRevision = log_document(client, Some(number)).await?;
                lines_of(&found.revision)
            }
            Err(_) => {
                let document = DocumentArgs { file: what.into(), format: *format };
                let answer = planned_replace(client, &document).await?;
                let mut text = String::new();
                write_difference(&mut text, &answer);
                text
            }
        },
        ConfigAction::Log { number, limit, json } => {
            let request = LogRequest { number: *number, limit: *limit, json: *json };
            let text = client.config_log(&request).await?;
            match number {
                Some(number) if !json => text + &objects_of(client, *number).await?,
                _ => text,
            }
        }
        ConfigAction::Rollback { target, terms } => {
            change(client, ChangeContent::Rollback(target.clone()), terms).await?
        }
        ConfigAction::Checkpoint { name: None, json, .. } => client.checkpoints(*json).await?,
        ConfigAction::Checkpoint { name: Some(name), comment, delete, .. } => {
            let comment = comment.as_ref().map(ToString::to_string);
            let request = CheckpointRequest { name: name.clone(), comment, delete: *delete };
            client.set_checkpoint(&request).await?
        }
        ConfigAction::Check { document } => {
            let answer = planned_replace(client, document).await?;
            plan_text(&answer)
        }
        ConfigAction::Set { target, values, format, terms } => {
            change(client, set_content(target, values, *format)?, terms).await?
        }
        ConfigAction::Delete { path, terms } => {
            let content = match &path[..] {
                [path] if is_path(path) => ChangeContent::Delete { path: path.clone() },
                words => line_content("no ", words),
            };
            change(client, content, terms).await?
        }
        ConfigAction::Replace { document, terms } => {
            change(client, ChangeContent::Replace(read_document(document)?), terms).await?
        }
        ConfigAction::Edit { path, terms } => edit(client, joined(path), terms).await?,
        ConfigAction::Confirm { id } => {
            client.confirm_config(&ConfirmRequest { id: id.clone(), keeps: true }).await?
        }
        ConfigAction::Cancel { id } => {
            client.confirm_config(&ConfirmRequest { id: id.clone(), keeps: false }).await?
        }
        ConfigAction::Export => pretty(&client.export_config().await?),
        ConfigAction::Import { file, terms } => {
            let text = read_file(file)?;
            let export: Export = serde_json::from_str(&text)
                .map_err(|source| ConfigCommandError::NoExport { path: file.clone(), source })?;
            change(client, ChangeContent::Import(export), terms).await?
        }
    })
}

async fn planned_replace(
    client: &Client,
    document: &DocumentArgs,
) -> Result<ChangeAnswer, ConfigCommandError> {
    let content = ChangeContent::Replace(read_document(document)?);
    let terms = ChangeTerms { dry_run: true, ..ChangeTerms::default() };
    Ok(client.change_config(&request(content, &terms)).await?)
}

async fn log_document<T: DeserializeOwned>(
    client: &Client,
    number: Option<u64>,
) -> Result<T, ConfigCommandError> {
    let text = client.config_log(&LogRequest { number, limit: 1, json: true }).await?;
    Ok(serde_json::from_str(&text).map_err(ClientError::from)?)
}

fn lines_of(revision: &ConfigRevision) -> String {
    revision.difference.lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Transactions that are looked at for that of a revision.
const NEAR_TRANSACTIONS: usize = 1000;
/// Time before a revision in which its transaction may have ended: the disk makes it final meanwhile.
const LOOK_BACK: Duration = Duration::from_secs(10);

/// Text on the transaction of a revision, with what it did to objects of the system; empty once the history has lost it.
async fn objects_of(client: &Client, number: u64) -> Result<String, ConfigCommandError> {
    let found: ListedRevision = log_document(client, Some(number)).await?;
    let ConfigRevision { time_ns, trace, .. } = found.revision;
    let since = Duration::from_nanos(time_ns).saturating_sub(LOOK_BACK).as_nanos();
    let near = format!("/scheduler/txn-history?since={since}&limit={NEAR_TRANSACTIONS}");
    // A caller without rights on the history reads the difference alone.
    let Ok(near) = client.text(&near).await else { return Ok(String::new()) };
    let near: Vec<serde_json::Value> = serde_json::from_str(&near).map_err(ClientError::from)?;
    let Some(own) = near.iter().find(|it| it["Trace"] == trace.as_str()) else {
        return Ok(String::new());
    };
    let address = format!("/scheduler/txn-history?seq-num={}&format=text", own["SeqNum"]);
    Ok(format!("\n{}", client.text(&address).await?))
}

pub(crate) fn request(content: ChangeContent, terms: &ChangeTerms) -> ChangeRequest {
    ChangeRequest {
        content,
        dry_run: terms.dry_run,
        expect: terms.expect.map(|hash| hash.to_string()),
        // A part of a second counts as a whole one: a commit without any time would be taken back at once.
        comment: terms.comment.as_ref().map(ToString::to_string),
        confirm_within: terms
            .confirm_within
            .map(|time| time.as_secs() + u64::from(time.subsec_nanos() > 0)),
    }
}

async fn change(
    client: &Client,
    content: ChangeContent,
    terms: &ChangeTerms,
) -> Result<String, ConfigCommandError> {
    let answer = client.change_config(&request(content, terms)).await?;
    Ok(match terms.json {
        true => pretty(&answer),
        false if terms.dry_run => plan_text(&answer),
        false => done_text(&answer, terms),
    })
}

/// True for a path, other than words of a line of text.
fn is_path(text: &str) -> bool {
    text.contains(['/', '['])
}

/// A path, or the words of a line, as one text; `None` for none.
fn joined(words: &[String]) -> Option<String> {
    (!words.is_empty()).then(|| line(words))
}

/// Words as a line of CLI text; those with blanks are quoted.
fn line(words: &[String]) -> String {
    match words {
        [path] => path.clone(),
        words => {
            let mut line = String::new();
            for word in words {
                if !line.is_empty() {
                    line.push(' ');
                }
                write_word(&mut line, word);
            }
            line
        }
    }
}

/// A line of CLI text to merge.
fn line_content(before: &str, words: &[String]) -> ChangeContent {
    let text = format!("{before}{}\n", line(words));
    ChangeContent::Merge(SentDocument { text, format: Some(ConfigFormat::Text) })
}

/// A file, standard input, a leaf with its values, or the words of a line.
fn set_content(
    target: &str,
    values: &[String],
    format: Option<ConfigFormat>,
) -> Result<ChangeContent, ConfigCommandError> {
    if !values.is_empty() && !is_path(target) {
        let words: Vec<String> = [target.to_owned()].into_iter().chain(values.to_vec()).collect();
        return Ok(line_content("", &words));
    }
    if !values.is_empty() {
        if format.is_some() {
            return Err(ConfigCommandError::FormatOfPath);
        }
        let last = target.rsplit('/').next().unwrap_or(target);
        let name = last.split('[').next().unwrap_or(last).to_owned();
        let values = values.iter().cloned().map(serde_json::Value::String).collect();
        let values = [(name, serde_json::Value::Array(values))].into_iter().collect();
        return Ok(ChangeContent::Leaf { path: target.to_owned(), values });
    }
    if target != "-" && !Path::new(target).exists() {
        return Err(ConfigCommandError::NeitherFileNorValue(target.to_owned()));
    }
    Ok(ChangeContent::Merge(read_document(&DocumentArgs { file: target.into(), format })?))
}

fn read_document(document: &DocumentArgs) -> Result<SentDocument, ConfigCommandError> {
    Ok(SentDocument { text: read_file(&document.file)?, format: document.format })
}

/// Reads a file, or standard input for `-`.
fn read_file(path: &Path) -> Result<String, ConfigCommandError> {
    let failed = |source| ConfigCommandError::Read { path: path.to_owned(), source };
    let limit = u64::try_from(MESSAGE_SIZE.figure).unwrap_or(u64::MAX);
    let mut octets = Vec::new();
    if path == Path::new("-") {
        io::stdin().lock().take(limit + 1).read_to_end(&mut octets).map_err(failed)?;
    } else {
        let file = fs::File::open(path).map_err(failed)?;
        file.take(limit + 1).read_to_end(&mut octets).map_err(failed)?;
    }
    if octets.len() > MESSAGE_SIZE.figure {
        return Err(ConfigCommandError::TooLarge { path: path.to_owned() });
    }
    String::from_utf8(octets).map_err(|_| ConfigCommandError::NoText { path: path.to_owned() })
}

/// Lets a person edit the configuration, shows what that does, and asks before it is made. A text that is refused can be
/// edited once more.
async fn edit(
    client: &Client,
    path: Option<String>,
    terms: &ChangeTerms,
) -> Result<String, ConfigCommandError> {
    let shown = ShowRequest { path, format: ConfigFormat::Text, owner: false };
    let old = client.show_config(&shown).await?;
    let mut text = old.clone();
    loop {
        text = in_editor(&text)?;
        if text == old {
            return Ok("nothing is changed: the text is as it was\n".to_owned());
        }
        let content = ChangeContent::Versions { old: old.clone(), new: text.clone() };
        let trial = ChangeTerms { dry_run: true, ..ChangeTerms::default() };
        match client.change_config(&request(content.clone(), &trial)).await {
            Err(ClientError::Refused(reason)) => {
                say(&format!("{reason}\n"))?;
                if !prompt::is_confirmed("Type `yes` to edit the text again: ")? {
                    return Err(ConfigCommandError::Declined);
                }
            }
            Err(error) => return Err(error.into()),
            Ok(answer) if terms.dry_run => return Ok(plan_text(&answer)),
            Ok(answer) => {
                say(&plan_text(&answer))?;
                if !prompt::is_confirmed("Type `yes` to make this change: ")? {
                    return Err(ConfigCommandError::Declined);
                }
                // The plan that the person has seen, and no other.
                let expect = answer.plan.as_deref().and_then(|hash| hash.parse().ok());
                let terms = ChangeTerms { expect, ..terms.clone() };
                return change(client, content, &terms).await;
            }
        }
    }
}

/// The text after the person's editor has ended.
fn in_editor(text: &str) -> Result<String, ConfigCommandError> {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.trim().is_empty());
    let editor = variable("VISUAL").or_else(|| variable("EDITOR"));
    let editor = editor.unwrap_or_else(|| DEFAULT_EDITOR.to_owned());
    // The file has mode 0600, and goes at the end.
    let mut file =
        NamedTempFile::with_prefix("holdfast-config-").map_err(ConfigCommandError::File)?;
    file.write_all(text.as_bytes()).map_err(ConfigCommandError::File)?;
    let path = file.path().to_owned();
    // The variable may hold options, which the shell takes apart.
    let ended =
        Command::new("sh").args(["-c", &format!("{editor} \"$1\""), "sh"]).arg(&path).status();
    match ended {
        Err(source) => Err(ConfigCommandError::Editor { editor, source }),
        Ok(status) if !status.success() => Err(ConfigCommandError::EditorFailed { editor, status }),
        Ok(_) => read_file(&path),
    }
}

/// Prints something before a question.
fn say(text: &str) -> Result<(), ConfigCommandError> {
    let mut output = io::stdout().lock();
    let printed = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    printed.map_err(ConfigCommandError::Print)
}

fn write_difference(text: &mut String, answer: &ChangeAnswer) {
    for line in &answer.difference {
        let _infallible = writeln!(text, "{line}");
    }
    if answer.lines > answer.difference.len() {
        let more = answer.lines - answer.difference.len();
        let _infallible = writeln!(text, "... and {more} more lines");
    }
    for kept in &answer.kept {
        let owners = kept.owners.join(", ");
        let _infallible = writeln!(text, "{} stays: {owners} asks for it", kept.path);
    }
}

/// Text for the answer to a dry run.
pub(crate) fn plan_text(answer: &ChangeAnswer) -> String {
    let mut text = String::new();
    write_difference(&mut text, answer);
    if answer.difference.is_empty() {
        text += "the configuration stays as it is\n";
    }
    let Some(plan) = &answer.plan else { return text };
    let _infallible = writeln!(text, "plan {plan}");
    let width = answer.operations.iter().map(|it| it.effect.len()).max().unwrap_or(0);
    for it in &answer.operations {
        let _infallible = write!(text, "  {:width$}  {}", it.effect, it.object);
        if !it.interrupts.is_empty() {
            let _infallible = write!(text, "  (interrupts {})", it.interrupts.join(", "));
        }
        if it.takes_link_down {
            text += "  (takes its link down for a moment)";
        }
        text.push('\n');
    }
    if answer.operations.is_empty() {
        text += "  no object of the system is touched\n";
    }
    for it in &answer.pending {
        let needs = match &it.waits_for[..] {
            [] => "what another object holds".to_owned(),
            needs => needs.join(", "),
        };
        let _infallible = writeln!(text, "  {} waits for {needs}", it.object);
    }
    for line in answer.services.lines() {
        let _infallible = writeln!(text, "  {line}");
    }
    text
}

/// Text for the answer to a change.
fn done_text(answer: &ChangeAnswer, terms: &ChangeTerms) -> String {
    let mut text = String::new();
    write_difference(&mut text, answer);
    if answer.difference.is_empty() {
        text += "the configuration was like that already\n";
    }
    if let (Some(id), Some(within)) = (&answer.unconfirmed, terms.confirm_within) {
        let within = humantime::format_duration(within);
        let _infallible = writeln!(
            text,
            "`{id}` is taken back in {within} unless `holdfast config confirm` keeps it"
        );
    }
    text
}
