//! Local commands for bootstraps: status, start, end, and reset to factory state.

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use holdfast_bootz::client::{OperatorCommand, ServerDiscovery};
use serde::{Deserialize, Serialize};

use super::failure;
use crate::bootz::Bootz;

/// Request to bootstrap from this server, or from those that DHCP names. The wire format of the socket.
#[derive(Debug, Serialize, Deserialize)]
pub struct BootzStartRequest {
    pub bootz_uri: Option<String>,
    pub src_interface: Option<String>,
}

/// Routes below `/bootz`, for [`super::start`]; each is refused when the box has no IDevID.
pub fn bootz_routes(bootz: Option<Bootz>) -> Router {
    Router::new()
        .route("/bootz", get(status))
        .route("/bootz/start", post(start))
        .route("/bootz/terminate", post(terminate))
        .route("/bootz/reset", post(reset))
        .with_state(bootz)
}

async fn status(State(bootz): State<Option<Bootz>>) -> Response {
    match bootz {
        Some(bootz) => bootz.status().into_response(),
        None => unequipped(),
    }
}

async fn start(
    State(bootz): State<Option<Bootz>>,
    Json(asked): Json<BootzStartRequest>,
) -> Response {
    let refused = |why: String| failure(StatusCode::BAD_REQUEST, why);
    let entry = match (asked.bootz_uri, asked.src_interface) {
        (None, None) if bootz.as_ref().is_some_and(|bootz| !bootz.has_port()) => {
            let why = "this agent was started without a port for DHCP: see --bootz-port";
            return failure(StatusCode::CONFLICT, why.to_owned());
        }
        (None, None) => ServerDiscovery::Dhcp,
        (Some(uri), Some(interface)) if !interface.is_empty() => match uri.parse() {
            Ok(server) => ServerDiscovery::Named { server, interface },
            Err(error) => return refused(format!("{error}")),
        },
        (Some(_), _) => return refused("the interface has no name".to_owned()),
        (None, Some(_)) => return refused("the server has no URI".to_owned()),
    };
    command(bootz, OperatorCommand::Start(entry)).await
}

async fn terminate(State(bootz): State<Option<Bootz>>) -> Response {
    command(bootz, OperatorCommand::Terminate).await
}

async fn reset(State(bootz): State<Option<Bootz>>) -> Response {
    command(bootz, OperatorCommand::Reset).await
}

async fn command(bootz: Option<Bootz>, command: OperatorCommand) -> Response {
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
