//! The gNMI service: who asks, what they ask, do it, answer.

use std::sync::Arc;

use holdfast_base::Caller;
use holdfast_core::Datastore;
use holdfast_proto::gnmi::g_nmi_server::GNmi;
use holdfast_proto::gnmi::{
    CapabilityRequest, CapabilityResponse, GetRequest, GetResponse, SetRequest, SetResponse,
    SubscribeRequest,
};
use tokio::time::Instant;
use tonic::{Request, Response, Status, Streaming};

use super::reads::ReadPool;
use super::status::Refusal;
use super::subscribe::sampler::Sampler;
use super::subscribe::{self, IgnoredSubscriptions, SubscriberContext, Updates};
use super::{capabilities, get, set};
use crate::budget::CallerBudget;
use crate::deadline::deadline_of;
use crate::gnsi::pathz::{PathPermissions, Pathz};
use crate::trace::{comment_of, trace_of};

/// Serves gNMI from a datastore.
#[derive(Debug)]
pub(super) struct GnmiService<D> {
    sampler: Arc<Sampler<D>>,
    reads: ReadPool,
    pathz: Arc<Pathz>,
    ignored: Arc<IgnoredSubscriptions>,
}

impl<D: Datastore> GnmiService<D> {
    pub(super) fn new(core: D, pathz: Arc<Pathz>, ignored: Arc<IgnoredSubscriptions>) -> Self {
        let sampler = Arc::new(Sampler::new(core));
        let reads = ReadPool::default();
        Self { sampler, reads, pathz, ignored }
    }

    fn core(&self) -> &D {
        self.sampler.core()
    }

    fn rights(&self, caller: &Caller) -> Option<Arc<PathPermissions>> {
        self.pathz.rights(&caller.name, &self.core().models())
    }

    /// Shows counters of the pathz policy that did not exist before this request.
    async fn publish_new_counters(&self, rights: Option<&PathPermissions>) {
        let fresh = rights.map(|_| self.pathz.fresh_state()).unwrap_or_default();
        if !fresh.is_empty() {
            self.core().show_state(fresh).await;
        }
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
        let caller = Caller::authenticated(&request)?;
        let rights = self.rights(&caller);
        let budget = CallerBudget::of(request.extensions());
        let request = request.into_inner();
        let answer = get::get(self.core(), &self.reads, budget, rights.as_ref(), request).await;
        self.publish_new_counters(rights.as_deref()).await;
        Ok(Response::new(answer?))
    }

    async fn set(&self, request: Request<SetRequest>) -> Result<Response<SetResponse>, Status> {
        let caller = Caller::authenticated(&request)?;
        caller.require_admin("gNMI Set")?;
        let rights = self.rights(&caller);
        let own = set::RequestOptions {
            rights: rights.clone(),
            trace: trace_of(request.metadata().as_ref()),
            comment: comment_of(request.metadata().as_ref()).map_err(Refusal::invalid)?,
            deadline: deadline_of(request.metadata().as_ref(), Instant::now()),
        };
        let answer = set::set(self.core(), &caller, own, request.into_inner()).await;
        self.publish_new_counters(rights.as_deref()).await;
        Ok(Response::new(answer?))
    }

    async fn subscribe(
        &self,
        request: Request<Streaming<SubscribeRequest>>,
    ) -> Result<Response<Updates>, Status> {
        let caller = Caller::authenticated(&request)?;
        let (_, extensions, requests) = request.into_parts();
        let policies = self.pathz.follow();
        let reads = self.reads.clone();
        let budget = CallerBudget::of(&extensions);
        let ignored = self.ignored.clone();
        let reader = SubscriberContext { caller, policies, reads, ignored, budget };
        let updates = subscribe::open(self.sampler.clone(), reader, &extensions, requests)?;
        Ok(Response::new(updates))
    }
}
