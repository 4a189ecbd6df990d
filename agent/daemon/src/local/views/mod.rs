//! Views for people: what `holdfast show interfaces`, `routes`, `neighbors`, `system`, `users`, `services NAME` and
//! `state PATH` print.
//!
//! The agent answers each with a document, from what the caller may read by gNMI ([`Look`]); the command makes a table of it
//! ([`text_of`]) or prints it as it is. Both are in the file of the view. Absent on purpose: anything that the agent has to
//! remember for a view. Rates come from two readings of the counters, a moment apart.

mod interfaces;
mod look;
mod neighbors;
mod routes;
mod services;
mod state;
mod system;
mod users;

use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Extension, Json, Router};
use holdfast_base::Caller;
use serde::Deserialize;
use serde_json::Value;

pub(super) use self::interfaces::names as interface_names;
pub(super) use self::look::Readable;
pub use self::look::{Look, showing_everything};
pub(super) use self::services::names as instance_names;
pub(super) use self::users::names as user_names;
use super::rights::{LookError, require_reader};
use super::table::Ink;
use crate::settings::View;

type Answer = Result<Json<Value>, LookError>;

/// Argument of a view: the name, prefix or path of what is to be shown.
#[derive(Debug, Deserialize)]
struct Subject {
    #[serde(default)]
    of: Option<String>,
    /// Model of a path.
    #[serde(default)]
    origin: Option<String>,
}

/// Routes of the views, for [`super::start`].
pub fn view_routes(look: Look) -> Router {
    let mut routes = Router::new();
    for view in View::ALL {
        let answer =
            async move |look: State<Look>, caller: Extension<Caller>, of: Query<Subject>| {
                answer(&look, &caller, view, &of).await
            };
        routes = routes.route(&view.path(), get(answer));
    }
    routes.with_state(look)
}

async fn answer(look: &Look, caller: &Caller, view: View, subject: &Subject) -> Answer {
    require_reader(caller)?;
    let of = subject.of.as_deref();
    Ok(Json(match view {
        View::Interfaces => interfaces::document(look, caller, of).await?,
        View::Routes => routes::document(look, caller, of).await?,
        View::Neighbors => neighbors::document(look, caller, of).await?,
        View::System => system::document(look, caller).await?,
        View::Users => users::document(look, caller).await?,
        View::Services => services::document(look, caller, of).await?,
        View::State => state::document(look, caller, of, subject.origin.as_deref()).await?,
    }))
}

/// Text of a view for people. `is_one` when it is of one thing that was named.
pub fn text_of(view: View, document: &Value, is_one: bool, ink: Ink) -> String {
    match view {
        View::Interfaces if is_one => interfaces::details(document, ink),
        View::Interfaces => interfaces::table(document, ink),
        View::Routes => routes::table(document, ink),
        View::Neighbors => neighbors::table(document, ink),
        View::System => system::table(document, ink),
        View::Users => users::table(document, ink),
        View::Services => services::table(document, ink),
        View::State => state::text(document),
    }
}

/// A member of a document as a person reads it; nothing where it is not there.
fn word(of: &Value, name: &str) -> String {
    match &of[name] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The entries of a list in a document.
fn list<'d>(of: &'d Value, name: &str) -> impl Iterator<Item = &'d Value> {
    of[name].as_array().into_iter().flatten()
}

/// The texts of a list in a document.
fn words<'d>(of: &'d Value, name: &str) -> impl Iterator<Item = &'d str> {
    list(of, name).filter_map(Value::as_str)
}
