//! The tower layer that gives each call its right, and ends it when that is gone.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tonic::{Status, body::Body};
use tower::Service;

use super::CallPermission;
use super::body::{RequestBody, ResponseBody};
use super::right::Call;
use crate::auth::{Authenticator, LoginContext};
use crate::gnsi::Gnsi;
use crate::methods::Methods;
use crate::tls::Peer;

/// Wraps a service in [`Guarded`]. Its place is behind authentication and authorization, whose results it reads.
#[derive(Clone, Debug)]
pub struct Layer {
    authenticator: Authenticator,
    gnsi: Gnsi,
    methods: Arc<Methods>,
}

impl Layer {
    pub fn new(authenticator: Authenticator, gnsi: Gnsi) -> Self {
        Self { authenticator, gnsi, methods: Arc::new(Methods::new()) }
    }

    fn right(&self, request: &Request<Body>) -> Result<CallPermission, Status> {
        let admission = request.extensions().get::<LoginContext>().cloned();
        let peer = request.extensions().get::<Peer>().cloned();
        let (Some(admission), Some(peer)) = (admission, peer) else {
            return Err(Status::unauthenticated("the request carries no authenticated caller"));
        };
        Ok(CallPermission::of_call(Call {
            authenticator: self.authenticator.clone(),
            gnsi: self.gnsi.clone(),
            admission,
            peer,
            path: request.uri().path().to_owned(),
            headers: request.headers().clone(),
        }))
    }
}

impl<S> tower::Layer<S> for Layer {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded { inner, layer: self.clone() }
    }
}

/// Ends calls whose right is gone.
#[derive(Clone, Debug)]
pub struct Guarded<S> {
    inner: S,
    layer: Layer,
}

impl<S> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let right = match self.layer.right(&request) {
            Ok(right) => right,
            Err(status) => return Box::pin(async move { Ok(status.into_http()) }),
        };
        let method = self.layer.methods.method(request.uri().path());
        let is_unary = method.is_some_and(|method| !method.streams);
        request.extensions_mut().insert(right.clone());
        let request = request.map(|body| Body::new(RequestBody::new(body, right.clone())));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = answer.await?;
            match right.lost() {
                Some(status) => Ok(status.into_http()), // the request was cut
                // The change is carried out, so the client has to learn its outcome.
                None if is_unary => Ok(response),
                None => Ok(response.map(|body| Body::new(ResponseBody::new(body, right)))),
            }
        })
    }
}
