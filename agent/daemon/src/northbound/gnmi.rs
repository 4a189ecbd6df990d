//! The gNMI service: who asks, what they ask, do it, answer.

use std::sync::Arc;

use holdfast_proto::gnmi::g_nmi_server::GNmi;
use holdfast_proto::gnmi::{
    CapabilityRequest, CapabilityResponse, GetRequest, GetResponse, SetRequest, SetResponse,
    SubscribeRequest,
};
use tonic::{Request, Response, Status, Streaming};

use super::datastore::Datastore;
use super::subscribe::sampler::Sampler;
use super::subscribe::{self, Updates};
use super::{capabilities, get, set};
use crate::caller::Caller;

/// Serves gNMI from a datastore.
#[derive(Debug)]
pub(super) struct GnmiService<D> {
    sampler: Arc<Sampler<D>>,
}

impl<D: Datastore> GnmiService<D> {
    pub(super) fn new(core: D) -> Self {
        Self { sampler: Arc::new(Sampler::new(core)) }
    }

    fn core(&self) -> &D {
        self.sampler.core()
    }
}

#[tonic::async_trait]
impl<D: Datastore> GNmi for GnmiService<D> {
    type SubscribeStream = Updates;

    async fn capabilities(
        &self,
        request: Request<CapabilityRequest>,
    ) -> Result<Response<CapabilityResponse>, Status> {
        Caller::authenticated(&request)?;
        let answer = capabilities::capabilities(self.core(), request.get_ref())?;
        Ok(Response::new(answer))
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        Caller::authenticated(&request)?;
        let answer = get::get(self.core(), request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn set(&self, request: Request<SetRequest>) -> Result<Response<SetResponse>, Status> {
        let caller = Caller::authenticated(&request)?;
        caller.require_admin("gNMI Set")?;
        let answer = set::set(self.core(), &caller, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn subscribe(
        &self,
        request: Request<Streaming<SubscribeRequest>>,
    ) -> Result<Response<Updates>, Status> {
        Caller::authenticated(&request)?;
        let (_, extensions, requests) = request.into_parts();
        Ok(Response::new(subscribe::open(self.sampler.clone(), &extensions, requests)))
    }
}
