//! `holdfast adopt`: the configuration that asks for what the kernel has, printed or set.
//!
//! The kinds of the platform say which entry asks for one of their objects ([`Survey`]). The text has the form of `holdfast config show`. It is set by the way of `holdfast config set`, with a window in which it has to be
//! confirmed, so that a session that is lost puts everything back.
//!
//! Absent on purpose: changes of files of other programs. The answer ends with what keeps each of them off a port.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use holdfast_config::json::Flavour;
use holdfast_config::schema::{Origin, Schema};
use holdfast_config::tree::{Leaf, NodeRef, Tree};
use holdfast_config::{InstancePath, LeafMark, Models, ModelsError, Value, cli, json};
use holdfast_platform::netns::{Netns, NetnsError, NetnsSetting};
use holdfast_platform::{Survey, SurveyError};

use crate::config_command::{self, ConfigCommandError};
use crate::doctor::Subject;
use crate::doctor::managers::{Managed, Manager, managed};
use crate::local::{ChangeContent, Client, ClientError, ConfirmRequest, SentDocument};
use crate::settings::{AdoptSettings, ChangeTerms, ConfigFormat};

/// Time in which what was adopted has to be confirmed: enough to log in anew by way of the network that was taken over.
const WINDOW: Duration = Duration::from_secs(120);
/// Reasons that are printed. A person reads no more, and a routing daemon may have a million routes.
const MOST_REASONS: usize = 100;

/// Reason for which nothing is adopted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptError {
    #[error("cannot load the models")]
    Models(#[from] ModelsError),
    #[error(transparent)]
    Netns(#[from] NetnsError),
    #[error("cannot read what the kernel has")]
    Survey(#[from] SurveyError),
    #[error("there is no link `{0}` that could be adopted")]
    NoPort(String),
    #[error("cannot print the configuration")]
    Print(#[from] serde_json::Error),
    #[error(transparent)]
    Agent(#[from] ClientError),
    #[error(transparent)]
    Config(#[from] ConfigCommandError),
}

/// Carries out the command; the answer is what is printed.
///
/// # Errors
/// When the kernel cannot be read; of a change also when no agent runs, or it refuses.
pub(crate) async fn run(settings: &AdoptSettings) -> Result<String, AdoptError> {
    let client = Client::new(&settings.state.socket());
    if settings.confirm {
        return Ok(client.confirm_config(&ConfirmRequest { id: None, keeps: true }).await?);
    }
    let subject = Subject::gather(&settings.state, true).await;
    let netns = subject.settings.netns.clone();
    let netns = Netns::open(&netns.map_or(NetnsSetting::Current, NetnsSetting::Given))?;
    let models = Models::load()?;
    let survey = Survey::read(netns, &models.native).await?;
    let found = Found::of(&survey, &settings.port)?;
    let leaves = found.leaves;
    let text = cli::print_with_notes(&models.native, &tree(&models.native, &leaves), &|_, _| None);
    let others = others(&subject, &found.links);
    if settings.apply {
        return Ok(apply(&client, text).await? + &others);
    }
    if settings.openconfig {
        let openconfig = models.map.up(&leaves);
        let schema = models.schema(Origin::OpenConfig);
        let tree = tree(schema, &openconfig);
        let whole = NodeRef::Branch(tree.root());
        let printed = json::print(schema, schema.root(), whole, Flavour::Ietf, &|_| true);
        let document: serde_json::Value = match printed {
            Some(text) => serde_json::from_slice(&text)?,
            None => serde_json::json!({}),
        };
        return Ok(serde_json::to_string_pretty(&document)? + "\n");
    }
    let mut answer = String::new();
    let _infallible = writeln!(
        answer,
        "# {} objects of the kernel; {} are left to others",
        found.objects,
        found.reasons.len()
    );
    answer += &text;
    for reason in found.reasons.iter().take(MOST_REASONS) {
        let _infallible = writeln!(answer, "# {reason}");
    }
    if found.reasons.len() > MOST_REASONS {
        let more = found.reasons.len() - MOST_REASONS;
        let _infallible = writeln!(answer, "# {more} more are left out");
    }
    for line in others.lines() {
        let _infallible = writeln!(answer, "# {line}");
    }
    Ok(answer)
}

/// The part of a survey that is adopted.
struct Found {
    objects: usize,
    leaves: Vec<(InstancePath, Value)>,
    links: BTreeSet<String>,
    reasons: Vec<String>,
}

impl Found {
    /// The objects on these ports, or all objects where no port is named.
    fn of(survey: &Survey, ports: &[String]) -> Result<Self, AdoptError> {
        let is_wanted = |links: &[String]| {
            ports.is_empty() || links.iter().any(|link| ports.iter().any(|port| is_of(link, port)))
        };
        let entries = survey.entries.iter().filter(|it| is_wanted(&it.links));
        let mut found =
            Self { objects: 0, leaves: Vec::new(), links: BTreeSet::new(), reasons: Vec::new() };
        for surveyed in entries {
            found.objects += 1;
            found.links.extend(surveyed.links.iter().cloned());
            let leaves = surveyed.entry.leaves();
            found.leaves.extend(leaves.map(|(path, value)| (path, value.clone())));
        }
        if let Some(missing) =
            ports.iter().find(|port| !found.links.iter().any(|link| is_of(link, port)))
        {
            return Err(AdoptError::NoPort(missing.clone()));
        }
        let left_out = survey.left_out.iter().filter(|it| is_wanted(&it.links));
        found.reasons.extend(left_out.map(|it| it.text.clone()));
        Ok(found)
    }
}

/// True for a port itself and for the VLANs on it.
fn is_of(link: &str, port: &str) -> bool {
    let rest = link.strip_prefix(port);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn tree(schema: &Schema, leaves: &[(InstancePath, Value)]) -> Tree<LeafMark> {
    let mut tree = Tree::new();
    for (path, value) in leaves {
        let leaf = Leaf { value: value.clone(), meta: LeafMark::Explicit };
        tree.set_leaf(schema, path, leaf);
    }
    tree
}

/// Shows the plan, and sets the configuration for as long as nobody has to confirm it.
async fn apply(client: &Client, text: String) -> Result<String, AdoptError> {
    let document = SentDocument { text, format: Some(ConfigFormat::Text) };
    let content = ChangeContent::Merge(document);
    let trial = ChangeTerms { dry_run: true, ..ChangeTerms::default() };
    let planned = client.change_config(&config_command::request(content.clone(), &trial)).await?;
    if planned.difference.is_empty() && planned.operations.is_empty() {
        return Ok("nothing is changed: everything is in the configuration already\n".to_owned());
    }
    let mut answer = config_command::plan_text(&planned);
    let terms = ChangeTerms {
        expect: planned.plan.as_deref().and_then(|hash| hash.parse().ok()),
        confirm_within: Some(WINDOW),
        ..ChangeTerms::default()
    };
    let done = client.change_config(&config_command::request(content, &terms)).await?;
    let id = done.unconfirmed.unwrap_or_default();
    let _infallible = writeln!(
        answer,
        "adopted; `{id}` is taken back in {} s unless `holdfast adopt --confirm` keeps it",
        WINDOW.as_secs()
    );
    Ok(answer)
}

/// A line for each other program that manages an adopted port, with what keeps the program off.
fn others(subject: &Subject, links: &BTreeSet<String>) -> String {
    let mut text = String::new();
    for manager in Manager::ALL {
        let name = manager.name();
        match managed(subject, manager) {
            Managed::Absent => {}
            Managed::Unknown(reason) => {
                let _infallible =
                    writeln!(text, "{name} runs, and its ports are not known: {reason}");
            }
            Managed::Ports(ports) => {
                for port in ports.intersection(links) {
                    let advice = manager.keep_off(port);
                    let _infallible = writeln!(text, "{name} manages {port}: {advice}");
                }
            }
        }
    }
    text
}
