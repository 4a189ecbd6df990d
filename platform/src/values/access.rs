//! Users and the gRPC server, which concern the agent and not the kernel.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// A user that may log in, without credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Login name.
    pub name: SmolStr,
    /// Role, as an enum name of the native model.
    pub role: SmolStr,
}

/// Configuration of a gRPC server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrpcServer {
    /// Name of the server.
    pub name: SmolStr,
    /// TLS profile to use; `None` leaves the choice to the agent.
    pub certificate_id: Option<SmolStr>,
    /// The answer to subscriptions to paths that no model has, by the native model's word; `None` leaves that to the
    /// command line of the agent.
    pub unknown_subscription_paths: Option<SmolStr>,
}
