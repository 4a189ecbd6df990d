//! A service that is made when it is called first.
//!
//! Reflection holds each descriptor twice in decoded form. Without them, an idle agent has 1 MB less of its own memory, and
//! few boxes are ever asked for reflection.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;

/// The service; clones share it.
pub(super) struct OnDemand<S> {
    made: Arc<OnceLock<S>>,
    make: fn() -> S,
}

impl<S> OnDemand<S> {
    pub(super) fn new(make: fn() -> S) -> Self {
        Self { made: Arc::default(), make }
    }
}

impl<S> Clone for OnDemand<S> {
    fn clone(&self) -> Self {
        Self { made: Arc::clone(&self.made), make: self.make }
    }
}

impl<S> fmt::Debug for OnDemand<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnDemand").field("is_made", &self.made.get().is_some()).finish()
    }
}

impl<S: NamedService> NamedService for OnDemand<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for OnDemand<S>
where
    S: Service<
            Request<Body>,
            Response = Response<Body>,
            Error = Infallible,
            Future = BoxFuture<Response<Body>, Infallible>,
        > + Clone,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    /// Services of tonic are always ready.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.made.get_or_init(self.make).clone().call(request)
    }
}
