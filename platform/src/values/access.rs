//! Who may reach the agent, and where: users and the gRPC server. The kernel knows nothing of them.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// Someone who may log in. Credentials are no part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The name to log in with.
    pub name: SmolStr,
    /// The role, by the native model's word.
    pub role: SmolStr,
}

/// What is configured of the gRPC server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrpcServer {
    /// Its name.
    pub name: SmolStr,
    /// The TLS profile it is to use; `None` leaves that to the agent.
    pub certificate_id: Option<SmolStr>,
}
