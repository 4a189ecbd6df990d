//! `holdfast support-bundle FILE`: everything that somebody elsewhere needs to find out what is wrong with a box, in one archive.
//!
//! [`PARTS`] is the table of its files. Each comes from the agent, another program or a file of the box, and each that cannot
//! be had is named in the manifest with the reason: the bundle is made with the agent dead, too.
//!
//! Where no agent runs, the configuration comes from a copy of its database.
//!
//! Secrets are withheld by what they are, not by where they stand. Nothing is read below the folders with keys and
//! credentials. Passwords and keys are write-only in the models, so no answer of the agent has them. Keys among the
//! variables of the kernel, values in the environment of units, and the banners of the box are taken out of all texts.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use holdfast_base::ErrorChain;
use holdfast_config::Models;
use holdfast_core::stored_configuration;
use holdfast_platform::netns;
use holdfast_store::{Database, FILE_NAME};
use serde::Serialize;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::doctor::subject::{AgentAnswer, ToolAnswer, ask_tool};
use crate::doctor::{self, Subject};
use crate::local::{Client, Export, pretty};
use crate::settings::{
    DEFAULT_CONFIG_FILE, GraphArgs, GraphFormat, Show, StateDir, SupportBundleSettings,
    TransactionsArgs,
};

/// Time for all parts: somebody waits for the command, often on a box that is in trouble. Parts that come too late are named.
const WHOLE_TIME: Duration = Duration::from_secs(60);
/// Time for one part, so that one program that hangs does not take that of the others.
const PART_TIME: Duration = Duration::from_secs(10);
/// Bytes of the longest part; what follows is cut off. A log of this size has some 100 000 lines.
const PART_SIZE: usize = 10 << 20;
/// Bytes of all parts before they are compressed: a bundle has to fit into a ticket.
const WHOLE_SIZE: usize = 50 << 20;
/// Lines of a list of routes. A box with the routes of the whole Internet has a hundred times as many.
const ROUTES: usize = 10_000;
/// The newest transactions that are listed.
const TRANSACTIONS: u64 = 200;
/// Name of the folder in the archive.
const FOLDER: &str = "holdfast-support";
/// Text in the place of a secret.
const WITHHELD: &str = "(withheld)";
/// Shortest line of a banner that is looked for: a shorter one would be found in words that have nothing to do with it.
const SHORTEST_SECRET: usize = 4;
/// Words in the names of variables of the kernel whose values are keys.
const SECRET_VARIABLES: [&str; 2] = ["stable_secret", "fastopen_key"];
/// Lines of a unit whose values may be secrets.
const SECRET_UNIT_LINES: [&str; 3] = ["Environment=", "SetCredential=", "SetCredentialEncrypted="];

/// Reason not to have a bundle.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    #[error("cannot write the bundle `{path}`")]
    Write { path: String, source: io::Error },
    #[error("cannot write the manifest of the bundle")]
    Manifest(#[from] serde_json::Error),
}

/// One file of the bundle.
#[derive(Debug)]
pub struct Part {
    pub name: &'static str,
    /// Its content, for the guide and the manifest.
    pub about: &'static str,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// An answer of the agent.
    Agent(fn() -> Show),
    /// Another address on its local socket.
    Address(&'static str),
    Doctor,
    /// The configuration of clients, from the agent or from its database.
    Export,
    Version,
    /// Output of a program.
    Tool(&'static [&'static str]),
    /// Output of a program in the network namespace that the agent manages.
    InNamespace(&'static [&'static str]),
    /// The first lines of such an output.
    Routes(&'static [&'static str]),
    File(&'static str),
}

const fn part(name: &'static str, about: &'static str, source: Source) -> Part {
    Part { name, about, source }
}

/// All files of the bundle but its manifest, the most telling ones first: the time may end before all are made.
pub static PARTS: &[Part] = &[
    part("doctor.json", "what `holdfast doctor` finds", Source::Doctor),
    part(
        "version.txt",
        "version of the program, and the command line of the agent",
        Source::Version,
    ),
    part("pending.txt", "what waits or failed, and why", Source::Agent(|| Show::Pending)),
    part("configuration.json", "the configuration, by model", Source::Agent(|| Show::Config)),
    part(
        "export.json",
        "what clients have set, as `holdfast config import` takes it; from the database where no agent runs",
        Source::Export,
    ),
    part("boot.json", "the boot configuration", Source::Agent(|| Show::Boot)),
    part("values.txt", "every value with its status", Source::Agent(|| Show::Values)),
    part("transactions.txt", "the newest transactions", Source::Agent(transactions)),
    part("listeners.txt", "sockets of the agent", Source::Agent(|| Show::Listeners)),
    part("services.txt", "instances of services", Source::Agent(|| Show::Services { name: None })),
    part(
        "service-waits.txt",
        "what instances of services wait for",
        Source::Agent(|| Show::ServiceWaits),
    ),
    part("graph.json", "values and their dependencies", Source::Agent(graph)),
    part("metrics.txt", "metrics of the agent", Source::Address("/metrics")),
    part(
        "log.txt",
        "log of the agent since the box started",
        Source::Tool(&[
            "journalctl",
            "--unit=holdfast",
            "--boot=0",
            "--no-pager",
            "--output=short-iso",
        ]),
    ),
    part(
        "log-of-last-boot.txt",
        "log of the agent before that",
        Source::Tool(&[
            "journalctl",
            "--unit=holdfast",
            "--boot=-1",
            "--no-pager",
            "--output=short-iso",
        ]),
    ),
    part(
        "unit.txt",
        "the unit with its drop-ins",
        Source::Tool(&["systemctl", "cat", "holdfast.service"]),
    ),
    part(
        "unit-status.txt",
        "state of the unit",
        Source::Tool(&["systemctl", "show", "holdfast.service"]),
    ),
    part("holdfast.toml", "the configuration file", Source::File(DEFAULT_CONFIG_FILE)),
    part("links.json", "links of the kernel", Source::InNamespace(&["ip", "-d", "-j", "link"])),
    part(
        "addresses.json",
        "addresses of the kernel",
        Source::InNamespace(&["ip", "-d", "-j", "address"]),
    ),
    part(
        "neighbors.json",
        "neighbours of the kernel",
        Source::InNamespace(&["ip", "-d", "-j", "neighbor"]),
    ),
    part("rules.json", "policy rules for IPv4", Source::InNamespace(&["ip", "-j", "rule"])),
    part(
        "rules-ipv6.json",
        "policy rules for IPv6",
        Source::InNamespace(&["ip", "-6", "-j", "rule"]),
    ),
    part(
        "routes.txt",
        "the first 10 000 routes of IPv4, of all tables",
        Source::Routes(&["ip", "-d", "route", "show", "table", "all"]),
    ),
    part(
        "routes-ipv6.txt",
        "the first 10 000 routes of IPv6, of all tables",
        Source::Routes(&["ip", "-6", "-d", "route", "show", "table", "all"]),
    ),
    part(
        "variables.txt",
        "variables of the kernel for the network",
        Source::InNamespace(&["sysctl", "net"]),
    ),
    part("kernel-log.txt", "log of the kernel", Source::Tool(&["dmesg"])),
    part("kernel.txt", "version of the kernel", Source::File("/proc/version")),
    part("system.txt", "version of the distribution", Source::File("/etc/os-release")),
    part(
        "processes.txt",
        "names of the processes of the box",
        Source::Tool(&["ps", "-e", "-o", "pid,user,etime,rss,comm"]),
    ),
];

fn transactions() -> Show {
    Show::Transactions(TransactionsArgs { limit: Some(TRANSACTIONS), ..Default::default() })
}

fn graph() -> Show {
    Show::Graph(GraphArgs { format: GraphFormat::Json, ..GraphArgs::default() })
}

/// The list of the parts, also of those that are missing.
#[derive(Debug, Serialize)]
struct Manifest {
    version: &'static str,
    /// Seconds since 1970.
    made_on: u64,
    parts: Vec<ManifestEntry>,
}

#[derive(Debug, Serialize)]
struct ManifestEntry {
    name: &'static str,
    about: &'static str,
    /// Bytes in the archive.
    size: usize,
    /// Bytes that were cut off.
    #[serde(skip_serializing_if = "is_zero")]
    cut: usize,
    /// Reason for which the part is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(cut: &usize) -> bool {
    *cut == 0
}

/// Makes the bundle, and gives a line about each part that it lacks.
///
/// # Errors
/// When the file cannot be written. It is made anew: a file that is there is not overwritten.
pub async fn make(settings: &SupportBundleSettings) -> Result<String, BundleError> {
    let path = settings.file.display().to_string();
    let failed = |source| BundleError::Write { path: path.clone(), source };
    // Before the work, which would be lost if it cannot be written. The file has its name once it is whole.
    if settings.file.exists() {
        return Err(failed(io::ErrorKind::AlreadyExists.into()));
    }
    let folder = settings.file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let file = tempfile::NamedTempFile::new_in(folder.unwrap_or_else(|| Path::new(".")));
    let file = file.map_err(failed)?;
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    let gathered = gather(&settings.state, settings.banners).await;
    let made_on = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut report = String::new();
    let mut entries = Vec::new();
    for (part, result) in PARTS.iter().zip(gathered) {
        let (text, cut, missing) = match result {
            Ok(Text { text, cut }) => (text, cut, None),
            Err(reason) => {
                report += &format!("without {}: {reason}\n", part.name);
                (String::new(), 0, Some(reason))
            }
        };
        if missing.is_none() {
            append(&mut archive, part.name, text.as_bytes(), made_on).map_err(failed)?;
        }
        entries.push(ManifestEntry {
            name: part.name,
            about: part.about,
            size: text.len(),
            cut,
            missing,
        });
    }
    let manifest = Manifest { version: crate::settings::VERSION, made_on, parts: entries };
    let manifest = serde_json::to_string_pretty(&manifest)? + "\n";
    append(&mut archive, "manifest.json", manifest.as_bytes(), made_on).map_err(failed)?;
    let mut packed = archive.into_inner().and_then(GzEncoder::finish).map_err(failed)?;
    packed.flush().map_err(failed)?;
    packed.persist_noclobber(&settings.file).map_err(|error| failed(error.error))?;
    report += &format!("{path}: look through it before you pass it on\n");
    Ok(report)
}

fn append(
    archive: &mut tar::Builder<GzEncoder<tempfile::NamedTempFile>>,
    name: &str,
    text: &[u8],
    made_on: u64,
) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o600);
    header.set_mtime(made_on);
    archive.append_data(&mut header, Path::new(FOLDER).join(name), text)
}

/// Content of a part, and how many bytes were cut off.
struct Text {
    text: String,
    cut: usize,
}

/// Makes the parts one after the other, within the time and the size for all.
async fn gather(state: &StateDir, with_banners: bool) -> Vec<Result<Text, String>> {
    let end = Instant::now() + WHOLE_TIME;
    let client = Client::new(&state.socket());
    let subject = Subject::gather(state, false).await;
    let stored = match subject.agent {
        AgentAnswer::NotRunning(_) => Some(stored(subject.state_folder()).await),
        AgentAnswer::Running(_) | AgentAnswer::NotAllowed(_) => None,
    };
    let banners = match (with_banners, &stored) {
        (true, _) => Vec::new(),
        (false, Some(stored)) => stored.as_ref().map(|it| it.banners.clone()).unwrap_or_default(),
        (false, None) => banners(&client).await,
    };
    let banners: Vec<String> = banners.iter().flat_map(|line| spellings(line)).collect();
    let mut room = WHOLE_SIZE;
    let mut parts = Vec::new();
    for part in PARTS {
        let left = end.saturating_duration_since(Instant::now()).min(PART_TIME);
        let made = timeout(left, content(part, &client, &subject, stored.as_ref())).await;
        let text = made.unwrap_or_else(|_| Err("there was no time left for it".to_owned()));
        let text = text.map(|text| {
            let text = without_secrets(&text, &banners);
            let kept = text.floor_char_boundary(text.len().min(PART_SIZE).min(room));
            room -= kept;
            Text { cut: text.len() - kept, text: text[..kept].to_owned() }
        });
        parts.push(text);
    }
    parts
}

async fn content(
    part: &Part,
    client: &Client,
    subject: &Subject,
    stored: Option<&Result<Stored, String>>,
) -> Result<String, String> {
    let of_tool = |answer: ToolAnswer, program: &str| match answer {
        ToolAnswer::Text(text) => Ok(text),
        ToolAnswer::Missing => Err(format!("{program} is not installed")),
        ToolAnswer::Failed(reason) => Err(reason),
    };
    let is_of_agent = matches!(part.source, Source::Agent(_) | Source::Address(_));
    if let (true, AgentAnswer::NotRunning(reason) | AgentAnswer::NotAllowed(reason)) =
        (is_of_agent, &subject.agent)
    {
        return Err(reason.clone());
    }
    match &part.source {
        Source::Agent(show) => {
            let is_json = part.name.ends_with(".json");
            let answer = client.text(&show().address(is_json)).await;
            answer.map_err(|error| ErrorChain(&error).to_string())
        }
        Source::Address(address) => {
            client.text(address).await.map_err(|error| ErrorChain(&error).to_string())
        }
        Source::Export => match stored {
            Some(stored) => stored.as_ref().map(|it| it.export.clone()).map_err(Clone::clone),
            None => {
                let export = client.export_config().await;
                export.map(|it| pretty(&it)).map_err(|error| ErrorChain(&error).to_string())
            }
        },
        Source::Doctor => {
            doctor::json(&doctor::examine(subject)).map_err(|error| error.to_string())
        }
        Source::Version => {
            let arguments = subject.report().map(|report| report.arguments.join(" "));
            let agent = arguments.unwrap_or_else(|| "no agent runs".to_owned());
            Ok(format!("holdfast {}\n{agent}\n", crate::settings::VERSION))
        }
        Source::Tool(command) => of_tool(run(command, None).await, command[0]),
        Source::InNamespace(command) => of_tool(run(command, namespace(subject)).await, command[0]),
        Source::Routes(command) => {
            let text = of_tool(run(command, namespace(subject)).await, command[0])?;
            let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
            let beyond = lines.len().saturating_sub(ROUTES);
            lines.truncate(ROUTES);
            let more = if beyond > 0 { format!("and {beyond} more\n") } else { String::new() };
            Ok(lines.concat() + &more)
        }
        Source::File(path) => {
            std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))
        }
    }
}

/// File of the network namespace that the agent manages; `None` for that of this process.
fn namespace(subject: &Subject) -> Option<PathBuf> {
    match &subject.settings.netns {
        Some(netns) => Some(netns::path_of(netns)),
        None => subject.report().map(|report| format!("/proc/{}/ns/net", report.pid).into()),
    }
}

/// Runs a program, in a network namespace if one is given.
async fn run(command: &[&str], namespace: Option<PathBuf>) -> ToolAnswer {
    let net = namespace.map(|file| format!("--net={}", file.display()));
    let mut words: Vec<&str> = Vec::new();
    if let Some(net) = &net {
        words.extend(["nsenter", net]);
    }
    words.extend(command);
    ask_tool(words[0], &words[1..], None).await
}

/// The configuration of an agent that does not run.
#[derive(Debug)]
struct Stored {
    export: String,
    /// Lines of the banners of the box.
    banners: Vec<String>,
}

/// Reads the configuration from a copy of the database. Opening a database settles what its last run has left, which is work
/// of the next start.
async fn stored(folder: &Path) -> Result<Stored, String> {
    let database = folder.join(FILE_NAME);
    let read = move || -> Result<Stored, String> {
        let text = |error: &dyn std::error::Error| ErrorChain(error).to_string();
        let failed = |error: io::Error| format!("cannot copy {}: {error}", database.display());
        let copy = tempfile::tempdir().map_err(failed)?;
        std::fs::copy(&database, copy.path().join(FILE_NAME)).map_err(failed)?;
        let loaded = Database::open(copy.path()).and_then(|mut it| it.load());
        let loaded = loaded.map_err(|error| text(&error))?;
        let models = Arc::new(Models::load().map_err(|error| text(&error))?);
        let configuration = stored_configuration(&models, &loaded).map_err(|error| text(&error))?;
        let mut banners = Vec::new();
        let system = models.native.find("/system");
        let system = system.and_then(|node| configuration.effective().root().container(node));
        for leaf in BANNERS {
            let leaf = models.native.find(&format!("/system/{leaf}"));
            let text = leaf.and_then(|leaf| Some(system?.value(leaf)?.to_string()));
            banners.extend(text.iter().flat_map(|text| text.lines()).map(str::to_owned));
        }
        Ok(Stored { export: pretty(&Export::of(&configuration)), banners })
    };
    let read = timeout(PART_TIME, spawn_blocking(read)).await;
    match read {
        Ok(Ok(read)) => read,
        Ok(Err(bug)) => Err(bug.to_string()),
        Err(_) => Err("the database was not read in time".to_owned()),
    }
}

/// A line as it stands in texts, in documents, and in lines of a document.
fn spellings(line: &str) -> [String; 3] {
    let escaped = |text: &str| {
        let quoted = serde_json::Value::from(text).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    };
    let once = escaped(line);
    [line.to_owned(), once.clone(), escaped(&once)]
}

/// Leaves of `/system` that are withheld unless somebody asks for them.
const BANNERS: [&str; 2] = ["login-banner", "motd-banner"];

/// Lines of the banners of the box.
async fn banners(client: &Client) -> Vec<String> {
    let mut lines = Vec::new();
    for leaf in BANNERS {
        let show = Show::State {
            path: Some(format!("/system/state/{leaf}")),
            origin: Some("holdfast_native".to_owned()),
        };
        if let Ok(document) = client.document(&show.address(true)).await {
            texts_in(&document, &mut lines);
        }
    }
    lines
}

/// The lines of all texts of a document.
fn texts_in(document: &serde_json::Value, lines: &mut Vec<String>) {
    match document {
        serde_json::Value::String(text) => lines.extend(text.lines().map(str::to_owned)),
        serde_json::Value::Array(values) => values.iter().for_each(|it| texts_in(it, lines)),
        serde_json::Value::Object(members) => members.values().for_each(|it| texts_in(it, lines)),
        _ => {}
    }
}

/// A text without keys of the kernel, values in environments of units, and lines of the banners.
fn without_secrets(text: &str, banners: &[String]) -> String {
    let mut kept = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let end = if line.ends_with('\n') { "\n" } else { "" };
        let line_of_unit =
            SECRET_UNIT_LINES.iter().find(|start| line.trim_start().starts_with(**start));
        if let Some(start) = line_of_unit {
            kept += &format!("{start}{WITHHELD}{end}");
        } else if let Some((name, _)) = line.split_once('=')
            && SECRET_VARIABLES.iter().any(|word| name.contains(word))
        {
            kept += &format!("{name}= {WITHHELD}{end}");
        } else {
            kept += line;
        }
    }
    for banner in banners {
        let banner = banner.trim();
        if banner.len() >= SHORTEST_SECRET {
            kept = kept.replace(banner, WITHHELD);
            // As it stands in JSON and in texts of values.
            let quoted = serde_json::Value::from(banner).to_string();
            kept = kept.replace(quoted.trim_matches('"'), WITHHELD);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_withheld_wherever_they_stand() {
        let secret = "s3cr3t-7f";
        let texts = [
            format!("net.ipv6.conf.eth0.stable_secret = {secret}\n"),
            format!("net.ipv4.tcp_fastopen_key = {secret}\n"),
            format!("[Service]\nEnvironment=TOKEN={secret}\nExecStart=/usr/bin/holdfast run\n"),
            format!("  SetCredential=pw:{secret}"),
            format!("system\n  login-banner \"say \\\"{secret}\\\" now\"\n"),
            format!("Whole(\"first line\\nsay \\\"{secret}\\\" now\\n\")"),
        ];
        let banners = [format!("say \"{secret}\" now"), "hi".to_owned()];
        for text in texts {
            let kept = without_secrets(&text, &banners);
            assert!(!kept.contains(secret) && kept.contains(WITHHELD), "{kept}");
        }
        let plain = "Environment is not a key\nnet.ipv4.ip_forward = 1\nhi there\n";
        assert_eq!(without_secrets(plain, &banners), plain);
    }

    #[test]
    fn each_part_has_a_name_of_its_own() {
        let mut names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PARTS.len());
    }

    #[test]
    fn the_guide_names_each_part() {
        let page = include_str!("../../../packaging/guide/operating/support-bundle.md");
        for part in PARTS {
            let row = format!("| `{}` | {} |", part.name, part.about);
            assert!(page.contains(&row), "{row}");
        }
    }
}
