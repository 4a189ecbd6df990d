//! What an operator may do about a bootstrap: look, start, end, and begin from the factory.

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use holdfast_bootz::client::{Command, Entry};
use serde::{Deserialize, Serialize};

use super::failure;
use crate::bootz::Bootz;

/// Which server to bootstrap from, on the wire of this socket.
#[derive(Debug, Serialize, Deserialize)]
pub struct BootzStart {
    pub bootz_uri: String,
    pub src_interface: String,
}

/// The routes below `/bootz`, for [`super::start`]; nothing behind them when the box has no IDevID.
pub fn routes(bootz: Option<Bootz>) -> Router {
    Router::new()
        .route("/bootz", get(status))
        .route("/bootz/start", post(start))
        .route("/bootz/terminate", post(terminate))
        .route("/bootz/reset", post(reset))
        .with_state(bootz)
}

async fn status(State(bootz): State<Option<Bootz>>) -> Response {
    match bootz {
        Some(bootz) => bootz.shown().to_string().into_response(),
        None => unequipped(),
    }
}

async fn start(State(bootz): State<Option<Bootz>>, Json(asked): Json<BootzStart>) -> Response {
    let server = match asked.bootz_uri.parse() {
        Ok(server) => server,
        Err(error) => return failure(StatusCode::BAD_REQUEST, format!("{error}")),
    };
    if asked.src_interface.is_empty() {
        return failure(StatusCode::BAD_REQUEST, "the interface has no name".to_owned());
    }
    command(bootz, Command::Start(Entry::Named { server, interface: asked.src_interface })).await
}

async fn terminate(State(bootz): State<Option<Bootz>>) -> Response {
    command(bootz, Command::Terminate).await
}

async fn reset(State(bootz): State<Option<Bootz>>) -> Response {
    command(bootz, Command::Reset).await
}

async fn command(bootz: Option<Bootz>, command: Command) -> Response {
    match bootz {
        Some(bootz) if bootz.command(command).await => StatusCode::NO_CONTENT.into_response(),
        Some(_) => failure(StatusCode::CONFLICT, "the agent is stopping".to_owned()),
        None => unequipped(),
    }
}

fn unequipped() -> Response {
    let why = "this agent was started without an IDevID: see --bootz-idevid-cert";
    failure(StatusCode::CONFLICT, why.to_owned())
}
