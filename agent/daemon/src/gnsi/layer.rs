//! Tower layer that checks every call against the authz policy.
//!
//! The layer comes after authentication, which identifies the caller, and before all services: health, reflection,
//! and paths without a service. A stream is checked at its beginning; [`crate::access`] checks it again after each
//! change.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::Either;
use holdfast_base::{Caller, now_ns};
use holdfast_config::limits::error_text;
use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tower::Service;
use tracing::info;

use super::{Authz, Gnsi};
use crate::messages;
use crate::tls::Peer;

/// Adds [`Authorized`] to a service.
#[derive(Clone, Debug)]
pub struct Layer(pub Gnsi);

impl<S> tower::Layer<S> for Layer {
    type Service = Authorized<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Authorized { inner, authz: Arc::clone(&self.0.authz) }
    }
}

/// Passes allowed calls on, and answers denied ones.
#[derive(Clone, Debug)]
pub struct Authorized<S> {
    inner: S,
    authz: Arc<Authz>,
}

impl<S> Service<Request<Body>> for Authorized<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<S::Future, Ready<Result<Response<Body>, Infallible>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match admit(&self.authz, &request) {
            Ok(()) => Either::Left(self.inner.call(request)),
            Err(status) => Either::Right(ready(Ok(messages::cut(status).into_http()))),
        }
    }
}

fn admit(authz: &Authz, request: &Request<Body>) -> Result<(), Status> {
    let caller = &Caller::from_extensions(request.extensions())?;
    let peer = request.extensions().get::<Peer>();
    let rpc = request.uri().path();
    authz.judge(caller, peer, rpc, request.headers(), now_ns()).map_err(|denied| {
        let reason = error_text(&denied);
        info!(caller = %caller.name, rpc, reason, "a call is denied");
        Status::permission_denied(reason)
    })
}
