//! `holdfast config`: the configuration as one text, and changes of it.
//!
//! A change takes the way of a gNMI Set: it is a plain Set that [`holdfast_config::intended`] makes, with the rights of
//! the caller, and its answer says what it does in lines of the configuration.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use holdfast_base::{Caller, ErrorChain};
use holdfast_config::cli::{self, StatementAction};
use holdfast_config::edit::{EditAuthorization, EditAuthorizer, EditTarget, Payload};
use holdfast_config::intended::{
    self, Document, DocumentError, DocumentFormat, Kept, Placement, Wish,
};
use holdfast_config::layer::LayerKey;
use holdfast_config::limits::MESSAGE_SIZE;
use holdfast_config::path::PathSyntaxError;
use holdfast_config::schema::{NodeKind, Origin};
use holdfast_config::show::{provenance_note, running_config};
use holdfast_config::tree::{Child, NodeRef, Tree};
use holdfast_config::{
    Configuration, Edit, EditErrors, FenceStanding, InstancePath, Models, Path, PathError,
    Provenance, Value, json,
};
use holdfast_core::{
    CommitError, CommitOptions, ConfirmAction, ConfirmError, Confirmation, CoreHandle, Datastore,
    Intent, InvalidComment, InvalidPlanHash, Preview, RestoreRequest, UnconfirmedCommit,
};
use holdfast_store::{
    CheckpointName, InvalidCheckpointName, MAX_REVISIONS, RevisionRange, RevisionTarget,
};
use rand::Rng as _;
use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};
use tokio::task::spawn_blocking;

use super::packages::services_text;
use super::rights::path_rights;
use super::{config_log, failure, pretty};
use crate::gnsi::Gnsi;
use crate::gnsi::pathz::{PathPermissions, Pathz};
use crate::services::Requester;
use crate::settings::ConfigFormat;

/// Addresses on the local socket; the bodies are [`ShowRequest`], [`ChangeRequest`] and [`ConfirmRequest`].
pub(super) const SHOW: &str = "/config/show";
pub(super) const CHANGE: &str = "/config/change";
pub(super) const CONFIRM: &str = "/config/confirm";
pub(super) const EXPORT: &str = "/config/export";
pub(super) const LOG: &str = "/config/log";
pub(super) const DIFF: &str = "/config/diff";
pub(super) const CHECKPOINT: &str = "/config/checkpoint";
pub(super) const CHECKPOINTS: &str = "/config/checkpoints";

/// Lines of a difference that an answer has; a person reads no more.
const MAX_LINES: usize = 10_000;

/// The revisions to list, or one of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogRequest {
    /// Number of the revision; without it, the last ones are listed.
    pub number: Option<u64>,
    pub limit: usize,
    pub json: bool,
}

/// Two revisions to compare, each by its number or the name of a checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiffRequest {
    pub from: String,
    pub to: String,
}

/// A checkpoint to make or to remove.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckpointRequest {
    pub name: String,
    pub comment: Option<String>,
    pub delete: bool,
}

/// A question for the configuration or a part of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowRequest {
    pub path: Option<String>,
    pub format: ConfigFormat,
    pub owner: bool,
}

/// A change, and how it is made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangeRequest {
    pub content: ChangeContent,
    pub dry_run: bool,
    /// Hash of the plan that the change must have.
    pub expect: Option<String>,
    /// Seconds in which the change must be confirmed.
    pub confirm_within: Option<u64>,
    pub comment: Option<String>,
}

/// Content of a change.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeContent {
    Merge(SentDocument),
    Replace(SentDocument),
    /// The difference between two versions of a text is made.
    Versions {
        old: String,
        new: String,
    },
    /// A leaf gets values. Their member has the name of the leaf, so that accounting withholds those of secrets.
    Leaf {
        path: String,
        values: serde_json::Map<String, serde_json::Value>,
    },
    Delete {
        path: String,
    },
    /// All that clients configured becomes what an exported document says.
    Import(Export),
    /// All that clients configured becomes what it was: after a revision, by its number, or at a checkpoint.
    Rollback(String),
}

/// A document as the client read it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SentDocument {
    pub text: String,
    /// Without it, the beginning of the text tells.
    pub format: Option<ConfigFormat>,
}

/// A commit to confirm or to take back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConfirmRequest {
    /// Without it, the commit that waits.
    pub id: Option<String>,
    pub keeps: bool,
}

/// Answer to a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeAnswer {
    /// Lines of the configuration that differ, which begin with `+` or `-`.
    pub difference: Vec<String>,
    /// Number of all lines, where the answer does not have all.
    pub lines: usize,
    /// Nodes that the document leaves out and no client holds, so that they stay.
    pub kept: Vec<KeptLine>,
    /// Hash of the plan; of a dry run.
    pub plan: Option<String>,
    /// Effects on objects of the system; of a dry run.
    pub operations: Vec<ObjectLine>,
    /// Objects that would wait, with what they wait for; of a dry run.
    pub pending: Vec<PendingLine>,
    /// Instances of services that are walked, with their states, as text; of a dry run.
    #[serde(default)]
    pub services: String,
    /// Id of the commit that has to be confirmed.
    pub unconfirmed: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptLine {
    pub path: String,
    pub owners: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectLine {
    pub object: String,
    pub effect: String,
    /// Objects that the system removes along with it.
    pub interrupts: Vec<String>,
    /// True when the system makes the change only while it has a link down.
    #[serde(default)]
    pub takes_link_down: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingLine {
    pub object: String,
    pub waits_for: Vec<String>,
}

/// The configuration of clients in both models, without secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Export {
    /// Version of the form of this document.
    pub format: u32,
    /// SHA-256 of the two texts, in hexadecimal digits.
    pub sha256: String,
    /// The clients' native layer, as lines from which a replace makes it again.
    pub native: String,
    /// The clients' OpenConfig as JSON.
    pub openconfig: String,
}

/// Version of the form of exported documents.
const EXPORT_FORMAT: u32 = 1;

impl Export {
    pub(crate) fn of(configuration: &Configuration) -> Self {
        let native = running_config(configuration);
        let openconfig = printed(
            configuration.models(),
            Origin::OpenConfig,
            NodeRef::Branch(configuration.layers().tree(LayerKey::CLIENT_OPENCONFIG).root()),
        );
        let sha256 = digest(&native, &openconfig);
        Self { format: EXPORT_FORMAT, sha256, native, openconfig }
    }

    fn check(&self) -> Result<(), ChangeError> {
        if self.format != EXPORT_FORMAT {
            return Err(ChangeError::ExportFormat(self.format));
        }
        match digest(&self.native, &self.openconfig) == self.sha256 {
            true => Ok(()),
            false => Err(ChangeError::Checksum),
        }
    }
}

fn digest(native: &str, openconfig: &str) -> String {
    let mut context = Context::new(&SHA256);
    for text in [native, openconfig] {
        context.update(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
        context.update(text.as_bytes());
    }
    context.finish().as_ref().iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Reason for which there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
enum ChangeError {
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error("path `{path}`: {reason}")]
    Path { path: String, reason: String },
    /// The text of the reason names the path.
    #[error("{0}")]
    UnknownPath(String),
    #[error("{0}")]
    Edit(EditErrors),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Confirm(#[from] ConfirmError),
    #[error("`{0}` may not change the configuration: that needs the role admin")]
    Role(SmolStr),
    #[error(
        "`{0}` may not see all of the configuration: the pathz policy permits only a part of it"
    )]
    Denied(SmolStr),
    #[error(transparent)]
    Comment(#[from] InvalidComment),
    #[error(transparent)]
    Name(#[from] InvalidCheckpointName),
    #[error(
        "there is no revision {number}: the last one is {last}, and the log keeps {MAX_REVISIONS}"
    )]
    NoRevision { number: u64, last: u64 },
    #[error("`{0}` is a number, which names a revision: give the checkpoint another name")]
    NumberedCheckpoint(String),
    #[error(transparent)]
    Hash(#[from] InvalidPlanHash),
    #[error("the exported document has the form {0}; this version reads the form {EXPORT_FORMAT}")]
    ExportFormat(u32),
    #[error("the checksum of the exported document is wrong: it was changed or is damaged")]
    Checksum,
    #[error("cannot make the answer")]
    Ended,
}

impl ChangeError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Role(_) | Self::Denied(_) => StatusCode::FORBIDDEN,
            Self::Document(_) | Self::Path { .. } | Self::UnknownPath(_) => StatusCode::BAD_REQUEST,
            Self::Edit(_) | Self::Hash(_) => StatusCode::BAD_REQUEST,
            Self::ExportFormat(_) | Self::Checksum | Self::Comment(_) => StatusCode::BAD_REQUEST,
            Self::Name(_) | Self::NumberedCheckpoint(_) => StatusCode::BAD_REQUEST,
            Self::NoRevision { .. } => StatusCode::NOT_FOUND,
            Self::Commit(_) | Self::Confirm(_) => StatusCode::CONFLICT,
            Self::Ended => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

#[derive(Clone)]
struct ConfigState {
    core: CoreHandle,
    pathz: Arc<Pathz>,
}

/// Routes of the configuration, for [`super::start`].
pub fn config_routes(core: CoreHandle, gnsi: &Gnsi) -> Router {
    Router::new()
        .route(SHOW, post(show))
        .route(CHANGE, post(change))
        .route(CONFIRM, post(confirm))
        .route(EXPORT, post(export))
        .route(LOG, post(log))
        .route(DIFF, post(diff))
        .route(CHECKPOINT, post(checkpoint))
        .route(CHECKPOINTS, post(checkpoints))
        .layer(DefaultBodyLimit::max(MESSAGE_SIZE.figure))
        .with_state(ConfigState { core, pathz: Arc::clone(&gnsi.pathz) })
}

fn answered<T: IntoResponse>(result: Result<T, ChangeError>) -> Response {
    match result {
        Ok(answer) => answer.into_response(),
        Err(error) => failure(error.status(), ErrorChain(&error).to_string()),
    }
}

async fn show(
    State(state): State<ConfigState>,
    Extension(caller): Extension<Caller>,
    Json(request): Json<ShowRequest>,
) -> Response {
    answered(state.show(&caller, request).await)
}

async fn change(
    State(state): State<ConfigState>,
    Extension(by): Extension<Requester>,
    Json(request): Json<ChangeRequest>,
) -> Response {
    answered(state.change(by, request).await.map(Json))
}

async fn confirm(
    State(state): State<ConfigState>,
    Extension(by): Extension<Requester>,
    Json(request): Json<ConfirmRequest>,
) -> Response {
    answered(state.confirm(by, request).await)
}

async fn export(
    State(state): State<ConfigState>,
    Extension(caller): Extension<Caller>,
) -> Response {
    let export = async {
        state.admit(&caller)?;
        let configuration = state.core.configuration();
        spawn_blocking(move || Json(Export::of(&configuration)))
            .await
            .map_err(|_| ChangeError::Ended)
    };
    answered(export.await)
}

async fn log(
    State(state): State<ConfigState>,
    Extension(caller): Extension<Caller>,
    Json(request): Json<LogRequest>,
) -> Response {
    let read = async {
        state.admit(&caller)?;
        let Some(number) = request.number else {
            let list = state.core.revisions(RevisionRange::newest(request.limit)).await?;
            return Ok(if request.json { pretty(&list) } else { config_log::table(&list) });
        };
        let list = state.core.revisions(RevisionRange::one(number)).await?;
        let found = list.revisions.first();
        let found = found.ok_or(ChangeError::NoRevision { number, last: list.last })?;
        Ok::<_, ChangeError>(if request.json { pretty(found) } else { config_log::text(found) })
    };
    answered(read.await)
}

async fn diff(
    State(state): State<ConfigState>,
    Extension(caller): Extension<Caller>,
    Json(request): Json<DiffRequest>,
) -> Response {
    let compared = async {
        state.admit(&caller)?;
        let from = revision_target(&request.from)?;
        let to = revision_target(&request.to)?;
        let alone = state.core.configuration().with_services(None);
        let old = state.core.client_layers_at(&from).await?;
        let new = state.core.client_layers_at(&to).await?;
        let lines = spawn_blocking(move || {
            intended::lines_between(&alone.with_client_of(&old), &alone.with_client_of(&new))
        });
        lines.await.map(differing).map_err(|_| ChangeError::Ended)
    };
    answered(compared.await.map(Json))
}

async fn checkpoint(
    State(state): State<ConfigState>,
    Extension(by): Extension<Requester>,
    Json(request): Json<CheckpointRequest>,
) -> Response {
    answered(state.checkpoint(&by.caller, request).await)
}

async fn checkpoints(
    State(state): State<ConfigState>,
    Extension(caller): Extension<Caller>,
    Json(json): Json<bool>,
) -> Response {
    let read = async {
        state.admit(&caller)?;
        let all = state.core.checkpoints().await?;
        Ok::<_, ChangeError>(if json { pretty(&all) } else { config_log::checkpoints(&all) })
    };
    answered(read.await)
}

impl ConfigState {
    /// Rights of a caller who may read all of the configuration; `None` for one whom no pathz policy restricts.
    fn admit(&self, caller: &Caller) -> Result<Option<Arc<PathPermissions>>, ChangeError> {
        let rights = path_rights(&self.pathz, caller, &self.core.models());
        match rights.as_ref().is_none_or(|rights| rights.reads_everything()) {
            true => Ok(rights),
            false => Err(ChangeError::Denied(caller.name.clone())),
        }
    }

    async fn show(&self, caller: &Caller, request: ShowRequest) -> Result<String, ChangeError> {
        self.admit(caller)?;
        let configuration = self.core.configuration();
        let shown = spawn_blocking(move || text_of(&configuration, &request)).await;
        shown.map_err(|_| ChangeError::Ended)?
    }

    async fn change(
        &self,
        Requester { caller, trace }: Requester,
        request: ChangeRequest,
    ) -> Result<ChangeAnswer, ChangeError> {
        if !caller.may_write() {
            return Err(ChangeError::Role(caller.name));
        }
        let rights = self.admit(&caller)?;
        let ChangeRequest { content, dry_run, expect, confirm_within, comment } = request;
        let expected_plan = expect.map(|hash| hash.parse().map_err(ChangeError::Hash));
        let id = format_smolstr!("cli-{:08x}", rand::rng().random::<u32>());
        let begin = |within| Confirmation {
            id: id.clone(),
            action: ConfirmAction::Begin { rollback_after: Duration::from_secs(within) },
        };
        let options = CommitOptions {
            expected_plan: expected_plan.transpose()?,
            confirmation: confirm_within.map(begin),
            trace,
            comment: comment.map(|text| text.parse()).transpose()?,
            ..CommitOptions::default()
        };
        let content = match content {
            ChangeContent::Rollback(target) => {
                let target = revision_target(&target)?;
                return self.roll_back(&caller, rights, target, options, dry_run).await;
            }
            content => content,
        };
        let configuration = self.core.configuration();
        let placed = spawn_blocking(move || Change::of(&configuration, content)).await;
        let Change { mut edit, kept, difference } = placed.map_err(|_| ChangeError::Ended)??;
        if let Some(rights) = rights {
            edit.authorization = EditAuthorization::new(rights as Arc<dyn EditAuthorizer>);
        }
        let kept = kept.into_iter().map(|Kept { path, owners }| KeptLine { path, owners });
        let answer = ChangeAnswer { kept: kept.collect(), ..differing(difference) };
        if dry_run {
            let options = CommitOptions { confirmation: None, ..options };
            let preview = self.core.preview(&caller, Intent::edit(edit), options).await?;
            return Ok(with_plan(answer, preview));
        }
        let unconfirmed = options.confirmation.as_ref().map(|it| it.id.to_string());
        if edit.is_empty() && unconfirmed.is_none() {
            return Ok(answer);
        }
        self.core.commit(&caller, edit, options).await?;
        Ok(ChangeAnswer { unconfirmed, ..answer })
    }

    /// Goes back to an earlier configuration of clients.
    async fn roll_back(
        &self,
        caller: &Caller,
        rights: Option<Arc<PathPermissions>>,
        target: RevisionTarget,
        options: CommitOptions,
        dry_run: bool,
    ) -> Result<ChangeAnswer, ChangeError> {
        let authorization =
            rights.map(|rights| EditAuthorization::new(rights as Arc<dyn EditAuthorizer>));
        let authorization = authorization.unwrap_or_default();
        let before = self.core.configuration();
        let layers = self.core.client_layers_at(&target).await?;
        let compared = spawn_blocking(move || {
            let alone = before.with_services(None);
            // Leaves that services have set are left out: nothing happens to them unless the services are walked.
            let now = alone.with_client_of(&alone.layers().of_clients());
            intended::lines_between(&now, &now.with_client_of(&layers))
        });
        let answer = differing(compared.await.map_err(|_| ChangeError::Ended)?);
        let request = RestoreRequest { target, authorization };
        if dry_run {
            let options = CommitOptions { confirmation: None, ..options };
            let preview = self.core.preview_restore(caller, request, options).await?;
            return Ok(with_plan(answer, preview));
        }
        let unconfirmed = options.confirmation.as_ref().map(|it| it.id.to_string());
        self.core.restore(caller, request, options).await?;
        Ok(ChangeAnswer { unconfirmed, ..answer })
    }

    async fn checkpoint(
        &self,
        caller: &Caller,
        request: CheckpointRequest,
    ) -> Result<String, ChangeError> {
        if !caller.may_write() {
            return Err(ChangeError::Role(caller.name.clone()));
        }
        self.admit(caller)?;
        let CheckpointRequest { name, comment, delete } = request;
        let name: CheckpointName = match revision_target(&name)? {
            RevisionTarget::Number(_) => return Err(ChangeError::NumberedCheckpoint(name)),
            RevisionTarget::Checkpoint(name) => name,
        };
        if delete {
            self.core.delete_checkpoint(&name).await?;
            return Ok(format!("the checkpoint `{name}` is removed\n"));
        }
        let comment = comment.map(|text| text.parse()).transpose()?;
        let made = self.core.set_checkpoint(caller, name, comment).await?;
        Ok(format!("`{}` keeps revision {}\n", made.name, made.revision))
    }

    async fn confirm(&self, by: Requester, request: ConfirmRequest) -> Result<String, ChangeError> {
        if !by.caller.may_write() {
            return Err(ChangeError::Role(by.caller.name));
        }
        self.admit(&by.caller)?;
        let waiting = UnconfirmedCommit::of(&*self.core.current_revision().await);
        let id = match (request.id, waiting) {
            (Some(id), _) => id.into(),
            (None, Some(waiting)) => waiting.id,
            (None, None) => return Err(ConfirmError::NoneWaits.into()),
        };
        let action = if request.keeps { ConfirmAction::Confirm } else { ConfirmAction::Cancel };
        let confirmation = Some(Confirmation { id: id.clone(), action });
        let options = CommitOptions { confirmation, trace: by.trace, ..CommitOptions::default() };
        self.core.commit(&by.caller, Edit::default(), options).await?;
        Ok(match request.keeps {
            true => format!("the commit `{id}` is kept\n"),
            false => format!("the commit `{id}` is taken back\n"),
        })
    }
}

/// The revision of a number, or the checkpoint of a name.
fn revision_target(text: &str) -> Result<RevisionTarget, ChangeError> {
    Ok(match text.parse() {
        Ok(number) => RevisionTarget::Number(number),
        Err(_) => RevisionTarget::Checkpoint(text.parse()?),
    })
}

/// An answer with these lines, as far as a person reads them.
fn differing(mut difference: Vec<String>) -> ChangeAnswer {
    let lines = difference.len();
    difference.truncate(MAX_LINES);
    ChangeAnswer { difference, lines, ..ChangeAnswer::default() }
}

/// A change that was read and placed.
struct Change {
    edit: Edit,
    kept: Vec<Kept>,
    /// Lines that differ after it, without what services make of it.
    difference: Vec<String>,
}

impl Change {
    fn of(configuration: &Configuration, content: ChangeContent) -> Result<Self, ChangeError> {
        let models = configuration.models();
        let placement = match content {
            ChangeContent::Merge(document) => Placement::Merge(read(models, &document)?),
            ChangeContent::Replace(document) => Placement::Replace(read(models, &document)?),
            ChangeContent::Versions { old, new } => Placement::Differences {
                old: statements(models, &old)?,
                new: statements(models, &new)?,
            },
            ChangeContent::Leaf { path, values } => {
                Placement::Wishes(vec![leaf_wish(models, &path, values)?])
            }
            ChangeContent::Delete { path } => {
                let found = native_path(models, &path)?;
                Placement::Wishes(vec![Wish { path: found, act: StatementAction::No }])
            }
            ChangeContent::Import(export) => {
                export.check()?;
                return Self::of_edit(configuration, imported(export), Vec::new());
            }
            // It is not an edit, and taken before.
            ChangeContent::Rollback(_) => Placement::Wishes(Vec::new()),
        };
        let (edit, kept) = intended::place(configuration, placement).map_err(ChangeError::Edit)?;
        Self::of_edit(configuration, edit, kept)
    }

    fn of_edit(
        configuration: &Configuration,
        edit: Edit,
        kept: Vec<Kept>,
    ) -> Result<Self, ChangeError> {
        // Services walk when the change is carried out; here it is looked at alone. Errors are told by the commit, which
        // knows the rights of the caller.
        let alone = configuration.clone().with_services(None);
        let after = alone.edit(&edit).unwrap_or_else(|_| alone.clone());
        let difference = intended::lines_between(&alone, &after);
        Ok(Self { edit, kept, difference })
    }
}

/// A union_replace of both layers of clients.
fn imported(export: Export) -> Edit {
    let root = |origin| EditTarget { origin, path: Path { elems: Vec::new() } };
    let openconfig = Payload::Json { text: export.openconfig.into_bytes().into(), ietf: true };
    let union_replace = vec![
        (root(Origin::Native), Payload::Cli { text: export.native }),
        (root(Origin::OpenConfig), openconfig),
    ];
    Edit { union_replace, ..Edit::default() }
}

fn read(models: &Models, document: &SentDocument) -> Result<Document, ChangeError> {
    let format = match document.format {
        Some(ConfigFormat::Text) => DocumentFormat::Text,
        Some(ConfigFormat::Json) => DocumentFormat::Json,
        Some(ConfigFormat::Openconfig) => DocumentFormat::OpenConfig,
        None => DocumentFormat::of(models, &document.text)?,
    };
    Ok(Document::read(models, &document.text, format)?)
}

fn statements(models: &Models, text: &str) -> Result<Vec<Wish>, ChangeError> {
    match Document::read(models, text, DocumentFormat::Text)? {
        Document::Native(wishes) => Ok(wishes),
        Document::OpenConfig(_) => Ok(Vec::new()),
    }
}

/// The wish that a leaf has these values.
fn leaf_wish(
    models: &Models,
    path: &str,
    values: serde_json::Map<String, serde_json::Value>,
) -> Result<Wish, ChangeError> {
    let refused = |reason: String| ChangeError::Path { path: path.to_owned(), reason };
    let (origin, named) = named_path(models, path)?;
    let schema = models.schema(origin);
    let node = schema.node(named.last().map_or(schema.root(), |step| step.node));
    let Some(leaf) = &node.leaf else {
        return Err(refused(
            "the path is not a leaf; give a file to set more than one leaf".to_owned(),
        ));
    };
    let texts = values.into_iter().flat_map(|(_, values)| match values {
        serde_json::Value::Array(values) => values,
        value => vec![value],
    });
    let texts: Vec<String> = texts.map(|it| it.as_str().unwrap_or_default().to_owned()).collect();
    let parse =
        |text: &String| leaf.ty.parse_text(text).map_err(|error| refused(error.to_string()));
    let value = match (&node.kind, &texts[..]) {
        (NodeKind::LeafList, _) => {
            Value::List(texts.iter().map(parse).collect::<Result<Vec<_>, _>>()?.into())
        }
        (_, [text]) => parse(text)?,
        (_, []) => parse(&String::new())?,
        (_, [..]) => return Err(refused("the leaf has one value".to_owned())),
    };
    let (path, value) = match origin {
        Origin::Native => (named, value),
        Origin::OpenConfig => models
            .map
            .down(&named, &value)
            .map_err(|reason| refused(format!("its value {reason}")))?
            .ok_or_else(|| refused(NO_COUNTERPART.to_owned()))?,
    };
    Ok(Wish { path, act: StatementAction::Set(value) })
}

/// Reason to refuse a path of OpenConfig alone.
const NO_COUNTERPART: &str =
    "the native model has no counterpart of it; set it by a document of OpenConfig";

/// The native node that a path of either model names.
fn native_path(models: &Models, path: &str) -> Result<InstancePath, ChangeError> {
    let (origin, named) = named_path(models, path)?;
    let is_entry = named.last().is_some_and(|step| step.keys.is_some());
    match origin {
        Origin::Native => Some(named),
        Origin::OpenConfig if is_entry => models.map.entry_to_native(&named),
        Origin::OpenConfig => models.map.path_to_native(&named),
    }
    .ok_or_else(|| ChangeError::Path { path: path.to_owned(), reason: NO_COUNTERPART.to_owned() })
}

/// The origin in front of a path, as clients of gNMI write it (`holdfast_native:/interfaces`), and the path.
fn with_origin(text: &str) -> (Option<Origin>, &str) {
    let named = text.split_once(":/").and_then(|(name, path)| Some((Origin::parse(name)?, path)));
    named.map_or((None, text), |(origin, path)| (Some(origin), path))
}

/// Reads a path, of the native model if that has it, else of OpenConfig; or words of a line of CLI text that name an entry.
fn named_path(models: &Models, text: &str) -> Result<(Origin, InstancePath), ChangeError> {
    if !text.contains(['/', '['])
        && let Ok(statements) = cli::parse(&models.native, text)
        && let [cli::Statement { path, act: StatementAction::Create, .. }] = &statements[..]
    {
        return Ok((Origin::Native, path.clone()));
    }
    let (origin, text) = with_origin(text);
    let rooted = if text.starts_with('/') { text.to_owned() } else { format!("/{text}") };
    let path: Path = rooted
        .parse()
        .map_err(|error: PathSyntaxError| ChangeError::UnknownPath(error.to_string()))?;
    let resolve = |origin: Origin| {
        let found = models.schema(origin).resolve_write(&path);
        found.map(|found| (origin, found))
    };
    let unknown = |error: PathError| ChangeError::UnknownPath(error.to_string());
    if let Some(origin) = origin {
        return resolve(origin).map_err(unknown);
    }
    let native = match resolve(Origin::Native) {
        Ok(found) => return Ok(found),
        Err(error) => error,
    };
    let openconfig = match resolve(Origin::OpenConfig) {
        Ok(found) => return Ok(found),
        Err(error) => error,
    };
    // The reason is that of the model that has the beginning of the path.
    let native_root = models.native.root();
    let is_native = |name: &str| models.native.child(native_root, None, name).is_some();
    let begins_native = path.elems.first().is_some_and(|elem| is_native(&elem.name));
    let has_config =
        path.elems.iter().any(|elem| ["config", "state"].contains(&elem.name.as_str()));
    Err(unknown(if begins_native && !has_config { native } else { openconfig }))
}

fn text_of(configuration: &Configuration, request: &ShowRequest) -> Result<String, ChangeError> {
    let models = configuration.models();
    if request.format == ConfigFormat::Openconfig {
        let layer = configuration.layers().tree(LayerKey::CLIENT_OPENCONFIG);
        let Some(path) = &request.path else {
            return Ok(printed(models, Origin::OpenConfig, NodeRef::Branch(layer.root())) + "\n");
        };
        let (origin, at) = named_path(models, path)?;
        let reason = "it is not a path of OpenConfig".to_owned();
        if origin != Origin::OpenConfig {
            return Err(ChangeError::Path { path: path.clone(), reason });
        }
        let mut part = Tree::new();
        if let Some(child) = layer.find(&at.0) {
            part.put(&models.openconfig, &at, child, &holdfast_config::LeafMark::Explicit);
        }
        return Ok(printed(models, Origin::OpenConfig, NodeRef::Branch(part.root())) + "\n");
    }
    let whole = intended::tree(configuration);
    let shown = match &request.path {
        None => whole,
        Some(path) => part_of(models, &whole, &native_path(models, path)?),
    };
    if request.format == ConfigFormat::Json {
        return Ok(printed(models, Origin::Native, NodeRef::Branch(shown.root())) + "\n");
    }
    let note = |path: &InstancePath, provenance: &Provenance| {
        request.owner.then(|| provenance_note(configuration, path, provenance))
    };
    let text = cli::print_with_notes(&models.native, &shown, &note);
    match request.owner {
        true => Ok(text + &fences_text(configuration, &shown)),
        false => Ok(text),
    }
}

/// Comments that name what fences hold below the entries that are shown. Fences are not part of the configuration.
fn fences_text(configuration: &Configuration, shown: &Tree<Provenance>) -> String {
    let schema = &configuration.models().native;
    let mut fenced = Tree::new();
    for fence in configuration.fences() {
        let leaf = &fence.leaf;
        let is_shown = leaf.0.split_last().is_some_and(|(_, entry)| shown.find(entry).is_some());
        if is_shown
            && fence.standing == FenceStanding::InForce
            && let Some(child) = configuration.effective().find(&leaf.0)
            && let Some(meta) = first_meta(&child)
        {
            fenced.put(schema, leaf, child, &meta);
        }
    }
    let note = |path: &InstancePath, provenance: &Provenance| {
        Some(provenance_note(configuration, path, provenance))
    };
    let lines = cli::print_with_notes(schema, &fenced, &note);
    if lines.is_empty() {
        return lines;
    }
    let lines = lines.lines().map(|line| format!("# {line}\n"));
    format!("\n# fenced, whatever is set above:\n{}", lines.collect::<String>())
}

/// The part of a tree at a path and below it.
fn part_of(models: &Models, whole: &Tree<Provenance>, at: &InstancePath) -> Tree<Provenance> {
    let mut part = Tree::new();
    if let Some(child) = whole.find(&at.0) {
        let meta = first_meta(&child);
        if let Some(meta) = meta {
            part.put(&models.native, at, child, &meta);
        }
    }
    part
}

/// Provenance of some leaf of a node, for the keys of the entries above it.
fn first_meta(child: &Child<Provenance>) -> Option<Provenance> {
    let mut found = None;
    NodeRef::from(child).walk(&mut InstancePath::root(), &mut |_, leaf| {
        found.get_or_insert(leaf.meta);
    });
    found
}

fn printed<M: holdfast_config::LeafMeta>(
    models: &Models,
    origin: Origin,
    found: NodeRef<'_, M>,
) -> String {
    let schema = models.schema(origin);
    let text = json::print(schema, schema.root(), found, json::Flavour::Ietf, &|_| true);
    let document = text.and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok());
    let document = document.unwrap_or_else(|| serde_json::json!({}));
    serde_json::to_string_pretty(&document).unwrap_or_default()
}

fn with_plan(answer: ChangeAnswer, preview: Preview) -> ChangeAnswer {
    let services = services_text(&preview);
    let Preview { hash, operations, pending, .. } = preview;
    let operation = |it: holdfast_core::ObjectChange| ObjectLine {
        object: it.object,
        effect: it.effect.name().to_owned(),
        interrupts: it.interrupts,
        takes_link_down: it.takes_link_down,
    };
    let waiting = |it: holdfast_core::PendingObject| PendingLine {
        object: it.object,
        waits_for: it.waits_for,
    };
    ChangeAnswer {
        plan: Some(hash.to_string()),
        operations: operations.first.into_iter().map(operation).collect(),
        pending: pending.first.into_iter().map(waiting).collect(),
        services,
        ..answer
    }
}
