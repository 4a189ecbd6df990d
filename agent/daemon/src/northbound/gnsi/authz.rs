//! gnsi.authz: the policy for RPCs.

use std::sync::Arc;

use holdfast_core::Datastore;
use holdfast_proto::gnsi::authz::v1 as wire;
use holdfast_proto::gnsi::authz::v1::authz_server::Authz as Service;
use holdfast_proto::gnsi::authz::v1::rotate_authz_request::RotateRequest as Asked;
use holdfast_proto::gnsi::authz::v1::rotate_authz_response::RotateResponse as Told;
use holdfast_security::authz::{Rules, Upload};
use holdfast_store::{ArtefactChange, Store};
use tonic::{Request, Response, Status, Streaming};

use super::rotate::{self, Answers, Command, Messages, Rotated, State};
use super::{admin, reader};
use crate::gnsi::{Authz, Gnsi, RotationLock, Rotations};
use crate::northbound::status::Refusal;

/// Serves gnsi.authz.
#[derive(Debug)]
pub(in crate::northbound) struct AuthzService<D> {
    face: Arc<Face<D>>,
    rotations: Rotations,
}

/// State that a rotation works on.
#[derive(Debug)]
pub(in crate::northbound) struct Face<D> {
    authz: Arc<Authz>,
    core: D,
}

impl<D: Datastore> AuthzService<D> {
    pub(in crate::northbound) fn new(core: D, gnsi: &Gnsi) -> Self {
        Self { face: Arc::new(Face::new(core, gnsi)), rotations: gnsi.rotations.clone() }
    }
}

impl<D: Datastore> Face<D> {
    pub(super) fn new(core: D, gnsi: &Gnsi) -> Self {
        Self { authz: Arc::clone(&gnsi.authz), core }
    }
}

#[tonic::async_trait]
impl<D: Datastore> Service for AuthzService<D> {
    type RotateStream = Answers<wire::RotateAuthzResponse>;

    async fn rotate(
        &self,
        request: Request<Streaming<wire::RotateAuthzRequest>>,
    ) -> Result<Response<Self::RotateStream>, Status> {
        let caller = admin(&self.face.core, &request, "gNSI authz Rotate")?;
        let face = Arc::clone(&self.face);
        rotate::serve::<_, Rotate>(face, &self.rotations, caller, request).map(Response::new)
    }

    async fn probe(
        &self,
        request: Request<wire::ProbeRequest>,
    ) -> Result<Response<wire::ProbeResponse>, Status> {
        reader(&self.face.core, &request)?;
        let wire::ProbeRequest { user, rpc } = request.into_inner();
        if user.is_empty() {
            return Err(
                Refusal::invalid("`user` is missing: a name, or an id of a certificate").into()
            );
        }
        if !rpc.starts_with('/') || rpc.matches('/').count() != 2 {
            let reason = format!("`rpc` has to be /package.Service/Method, not `{rpc}`");
            return Err(Refusal::invalid(reason).into());
        }
        let (allowed, version) = self.face.authz.probe(&user, &rpc);
        let action = match allowed {
            true => wire::probe_response::Action::Permit,
            false => wire::probe_response::Action::Deny,
        };
        Ok(Response::new(wire::ProbeResponse { action: action.into(), version }))
    }

    async fn get(
        &self,
        request: Request<wire::GetRequest>,
    ) -> Result<Response<wire::GetResponse>, Status> {
        reader(&self.face.core, &request)?;
        default_profile(&request.get_ref().authz_profile_id)?;
        let none =
            || Refusal::precondition("there is no authorization policy: every RPC is allowed");
        let installed = self.face.authz.in_force().ok_or_else(none)?;
        let (version, created_on) = (installed.version.clone(), installed.created_on);
        let policy = installed.text.clone();
        Ok(Response::new(wire::GetResponse { version, created_on, policy }))
    }
}

impl<D: Datastore> Rotated for Face<D> {
    type Rules = Rules;
    const NAME: &'static str = "gnsi.authz";

    fn rules(&self) -> &Rules {
        &Rules
    }

    fn rotation_lock(&self) -> &RotationLock {
        &self.authz.rotation_lock
    }

    fn store(&self) -> &Store {
        self.authz.store()
    }

    fn last(&self) -> State<Self> {
        self.authz.last()
    }

    async fn activate(&self, _before: &State<Self>, now: &State<Self>) -> Result<(), Refusal> {
        self.core.show_state(self.authz.enforce(now)).await;
        Ok(())
    }

    fn changes(&self, _before: &State<Self>, now: &State<Self>) -> Vec<ArtefactChange> {
        vec![self.authz.change(now)]
    }

    async fn settle(&self, now: &State<Self>) {
        self.authz.settle(now);
    }

    async fn roll_back(&self, _from: &State<Self>, to: &State<Self>) {
        self.core.show_state(self.authz.enforce(to)).await;
    }
}

/// The messages of Rotate.
struct Rotate;

impl<D: Datastore> Messages<Face<D>> for Rotate {
    type Request = wire::RotateAuthzRequest;
    type Response = wire::RotateAuthzResponse;

    async fn read(
        _service: &Face<D>,
        _current: &State<Face<D>>,
        request: Self::Request,
    ) -> Result<Command<Face<D>>, Refusal> {
        default_profile(&request.authz_profile_id)?;
        match request.rotate_request {
            Some(Asked::UploadRequest(given)) => {
                Ok(Command::Upload { upload: upload(given), overwrite: request.force_overwrite })
            }
            Some(Asked::FinalizeRotation(wire::FinalizeRequest {})) => Ok(Command::Finalize),
            None => Err(Refusal::invalid(
                "the message has neither upload_request nor finalize_rotation",
            )),
        }
    }

    fn answer((): ()) -> Self::Response {
        let told = Told::UploadResponse(wire::UploadResponse {});
        wire::RotateAuthzResponse { rotate_response: Some(told) }
    }
}

/// Translates an upload from the wire.
pub(super) fn upload(upload: wire::UploadRequest) -> Upload {
    let wire::UploadRequest { version, created_on, policy } = upload;
    Upload { version, created_on, text: policy }
}

/// Refuses profiles other than the default, because one policy applies to all servers and services.
fn default_profile(id: &str) -> Result<(), Refusal> {
    if id.is_empty() {
        return Ok(());
    }
    Err(Refusal::unimplemented(format!(
        "authz_profile_id `{id}`: this box has one policy for everything; leave the field empty"
    )))
}
