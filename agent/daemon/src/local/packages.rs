//! `holdfast service` for packages: their routes, and the texts of the answers.

use std::fmt::Write as _;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use bytes::Bytes;
use holdfast_base::ErrorChain;
use holdfast_config::schema::Origin;
use holdfast_core::{
    CommitError, ConfigChange, InvalidPlanHash, MAX_LISTED, Preview, ServiceChange, StateChange,
};
use serde::{Deserialize, Serialize};

use super::failure;
use crate::services::{
    InstallError, InstallTerms, Installation, LoadedPackage, PackageInstaller, Requester,
};
use crate::settings::InstallSettings;

/// Address of the loaded packages; a body is an archive to be installed, on the terms of the query.
pub(super) const PACKAGES: &str = "/services/packages";
/// Address to remove a package; the body is a [`Removal`].
pub(super) const REMOVE_PACKAGE: &str = "/services/packages/remove";

/// Removal of a type of services, in the wire format of the socket.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Removal {
    pub(super) name: String,
    pub(super) force: bool,
}

pub(super) fn routes(installer: PackageInstaller) -> Router {
    Router::new()
        .route(PACKAGES, get(list).post(install))
        .route(REMOVE_PACKAGE, post(remove))
        .with_state(installer)
}

/// Address of an installation on these terms.
pub(super) fn install_address(terms: &InstallSettings) -> String {
    let InstallSettings { dry_run, expected, each, force, downgrade } = terms;
    // A hash that is none is refused by the agent, and does not reach another part of the address.
    let expected: String = expected.chars().filter(char::is_ascii_alphanumeric).collect();
    format!(
        "{PACKAGES}?dry_run={dry_run}&expected={expected}&each={each}&force={force}&downgrade={downgrade}"
    )
}

/// A line for each type: name, version, number of instances, and where it comes from.
async fn list(State(installer): State<PackageInstaller>) -> String {
    let mut text = String::new();
    for package in installer.list().await {
        let LoadedPackage {
            name,
            version,
            instances,
            digest,
            is_installed,
            is_switched_on,
            signer,
            refusal,
            others,
        } = package;
        let source = if is_installed { "installed" } else { "from --services" };
        let _infallible =
            write!(text, "{name}  {version}  {instances} instances  {source}, {digest}");
        if !is_switched_on {
            text.push_str("  switched off: its instances wait");
        }
        if let Some(signer) = signer {
            let _infallible = write!(text, "  signed by {signer}");
        }
        if let Some(reason) = refusal {
            let _infallible = write!(text, ", who is refused now: {reason}");
        }
        for other in others {
            let _infallible = write!(text, "  also {other}");
        }
        text.push('\n');
    }
    text
}

async fn install(
    State(installer): State<PackageInstaller>,
    Extension(by): Extension<Requester>,
    Query(settings): Query<InstallSettings>,
    archive: Bytes,
) -> Response {
    let InstallSettings { dry_run: is_dry_run, expected, each, force, downgrade } = settings;
    let expected = match expected.as_str() {
        "" => None,
        text => match text.parse() {
            Ok(hash) => Some(hash),
            Err(error) => {
                let error: InvalidPlanHash = error;
                return failure(StatusCode::BAD_REQUEST, error.to_string());
            }
        },
    };
    let terms = InstallTerms { is_dry_run, expected, each, force, downgrade };
    let installed = installer.install(&by, &archive, terms).await;
    answer(installed.map(|it| installation(&it)))
}

async fn remove(
    State(installer): State<PackageInstaller>,
    Extension(by): Extension<Requester>,
    Json(Removal { name, force }): Json<Removal>,
) -> Response {
    answer(installer.remove(&by, &name, force).await)
}

fn answer(result: Result<String, InstallError>) -> Response {
    match result {
        Ok(text) => text.into_response(),
        Err(error) => {
            let status = match error {
                InstallError::Package(_) | InstallError::Check(_) => StatusCode::BAD_REQUEST,
                InstallError::Missing(_) => StatusCode::NOT_FOUND,
                InstallError::Precondition(_)
                | InstallError::Exists(_)
                | InstallError::Limit(_)
                | InstallError::Commit(_) => StatusCode::CONFLICT,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            let text = match &error {
                // All instances that are in the way.
                InstallError::Commit(CommitError::Edit(errors)) => {
                    let lines: Vec<_> =
                        errors.iter().map(|it| ErrorChain(it).to_string()).collect();
                    lines.join("\n")
                }
                error => ErrorChain(error).to_string(),
            };
            failure(status, text)
        }
    }
}

/// The text that tells of a package, and what a dry run shows.
fn installation(Installation { summary, preview, unfit }: &Installation) -> String {
    let Some(preview) = preview else { return summary.clone() };
    let mut text = summary.clone();
    text += &services_text(preview);
    for change in &preview.operations.first {
        let _infallible = writeln!(text, "{}  {}", change.object, change.effect.name());
    }
    note_rest(&mut text, "operations", preview.operations.total);
    for reason in unfit {
        let _infallible = writeln!(text, "does not fit: {reason}");
    }
    let Preview { hash, .. } = preview;
    let _infallible = if unfit.is_empty() {
        writeln!(text, "to install it: --expected {hash}")
    } else {
        writeln!(text, "it is refused while these parameters are there")
    };
    text
}

/// The instances of services that a change walks, with their states.
pub(super) fn services_text(preview: &Preview) -> String {
    let mut text = String::new();
    for change in &preview.services.first {
        service_change(&mut text, change);
    }
    note_rest(&mut text, "instances", preview.services.total);
    text
}

/// Says how many there are beyond those that a preview lists.
fn note_rest(text: &mut String, what: &str, total: usize) {
    if total > MAX_LISTED {
        let _infallible = writeln!(text, "and {} {what} more", total - MAX_LISTED);
    }
}

fn service_change(text: &mut String, change: &ServiceChange) {
    let ServiceChange { service, states, leaves, failure, partial } = change;
    let _infallible = writeln!(text, "{service}");
    for StateChange { component: [of, name], state, effect, reason } in states {
        let reason = reason.as_ref().map(|it| format!("  ({it})")).unwrap_or_default();
        let _infallible = writeln!(text, "  {of} {name}, {state}  {}{reason}", effect.name());
    }
    for ConfigChange { origin, path, before, after } in &leaves.first {
        let origin = if *origin == Origin::OpenConfig { "openconfig:" } else { "" };
        let value = |it: &Option<String>| it.clone().unwrap_or_else(|| "nothing".to_owned());
        let before = value(before);
        let after = value(after);
        let _infallible = writeln!(text, "  {origin}{path}  {before} -> {after}");
    }
    for (what, reason) in [("fails", failure), ("goes on later", partial)] {
        if let Some(reason) = reason {
            let _infallible = writeln!(text, "  {what}: {reason}");
        }
    }
}
