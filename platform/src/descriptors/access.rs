//! Users and the gRPC server, which the agent itself looks up in its configuration. Their operations make no
//! request; they are values so that state, history and plans include them like all others.

use holdfast_scheduler::{Descriptor, Effect, Key, KindId};

use super::{NO_REQUEST, kinds};
use crate::values::{GrpcServer, User};

/// Users that may log in.
#[derive(Debug)]
pub struct UserDescriptor;

/// The gRPC server.
#[derive(Debug)]
pub struct GrpcServerDescriptor;

/// The key of a user.
pub fn user_key(name: &str) -> Key {
    Key::of(kinds::USER).str(name)
}

/// The key of a gRPC server.
pub fn server_key(name: &str) -> Key {
    Key::of(kinds::GRPC_SERVER).str(name)
}

impl Descriptor for UserDescriptor {
    type Value = User;

    fn kind(&self) -> KindId {
        kinds::USER
    }

    fn name(&self) -> &'static str {
        "user"
    }

    fn key(&self, user: &User) -> Key {
        user_key(&user.name)
    }

    fn label(&self, user: &User) -> String {
        format!("user {}", user.name)
    }

    fn effect(&self) -> Effect {
        NO_REQUEST
    }

    fn observable(&self) -> bool {
        false
    }
}

impl Descriptor for GrpcServerDescriptor {
    type Value = GrpcServer;

    fn kind(&self) -> KindId {
        kinds::GRPC_SERVER
    }

    fn name(&self) -> &'static str {
        "grpc-server"
    }

    fn key(&self, server: &GrpcServer) -> Key {
        server_key(&server.name)
    }

    fn label(&self, server: &GrpcServer) -> String {
        format!("gRPC server {}", server.name)
    }

    fn effect(&self) -> Effect {
        NO_REQUEST
    }

    fn observable(&self) -> bool {
        false
    }
}
