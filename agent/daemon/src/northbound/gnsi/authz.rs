//! gnsi.authz: the policy for RPCs.

use std::sync::Arc;

use holdfast_core::Datastore;
use holdfast_proto::gnsi::authz::{
    self, authz_server, rotate_authz_request, rotate_authz_response,
};
use holdfast_security::authz::{AuthzRules, Upload};
use holdfast_store::ArtefactChange;
use tonic::{Request, Response, Status, Streaming};

use super::rotate::{self, AnswerStream, Command, Rotatable, RotateMessages, State};
use super::{admin, reader};
use crate::gnsi::{Authz, Gnsi, Rotations, Rotator};
use crate::northbound::status::Refusal;

/// Serves gnsi.authz.
#[derive(Debug)]
pub(in crate::northbound) struct AuthzService<D> {
    face: Arc<RotatableAuthz<D>>,
    rotations: Rotations,
}

/// State that a rotation works on.
#[derive(Debug)]
pub(in crate::northbound) struct RotatableAuthz<D> {
    authz: Arc<Authz>,
    core: D,
}

impl<D: Datastore> AuthzService<D> {
    pub(in crate::northbound) fn new(core: D, gnsi: &Gnsi) -> Self {
        Self { face: Arc::new(RotatableAuthz::new(core, gnsi)), rotations: gnsi.rotations.clone() }
    }
}

impl<D: Datastore> RotatableAuthz<D> {
    pub(super) fn new(core: D, gnsi: &Gnsi) -> Self {
        Self { authz: Arc::clone(&gnsi.authz), core }
    }
}

#[tonic::async_trait]
impl<D: Datastore> authz_server::Authz for AuthzService<D> {
    type RotateStream = AnswerStream<authz::RotateAuthzResponse>;

    async fn rotate(
        &self,
        request: Request<Streaming<authz::RotateAuthzRequest>>,
    ) -> Result<Response<Self::RotateStream>, Status> {
        let caller = admin(&self.face.core, &request, "gNSI authz Rotate")?;
        let face = Arc::clone(&self.face);
        rotate::serve::<_, Rotate>(face, &self.rotations, caller, request).map(Response::new)
    }

    async fn probe(
        &self,
        request: Request<authz::ProbeRequest>,
    ) -> Result<Response<authz::ProbeResponse>, Status> {
        reader(&self.face.core, &request)?;
        let authz::ProbeRequest { user, rpc } = request.into_inner();
        if user.is_empty() {
            return Err(Refusal::invalid(
                "`user` is missing: give a name, or the id of a certificate",
            )
            .into());
        }
        if !rpc.starts_with('/') || rpc.matches('/').count() != 2 {
            let reason = format!("`rpc` must be /package.Service/Method, not `{rpc}`");
            return Err(Refusal::invalid(reason).into());
        }
        let (allowed, version) = self.face.authz.probe(&user, &rpc);
        let action = if allowed {
            authz::probe_response::Action::Permit
        } else {
            authz::probe_response::Action::Deny
        };
        Ok(Response::new(authz::ProbeResponse { action: action.into(), version }))
    }

    async fn get(
        &self,
        request: Request<authz::GetRequest>,
    ) -> Result<Response<authz::GetResponse>, Status> {
        reader(&self.face.core, &request)?;
        default_profile(&request.get_ref().authz_profile_id)?;
        let none =
            || Refusal::precondition("there is no authorization policy: every RPC is allowed");
        let installed = self.face.authz.in_force().ok_or_else(none)?;
        let version = installed.version.clone();
        let created_on = installed.created_on;
        let policy = installed.text.clone();
        Ok(Response::new(authz::GetResponse { version, created_on, policy }))
    }
}

impl<D: Datastore> Rotatable for RotatableAuthz<D> {
    type Rules = AuthzRules;
    const NAME: &'static str = "gnsi.authz";

    fn rules(&self) -> &AuthzRules {
        &AuthzRules
    }

    fn rotator(&self) -> &Rotator {
        &self.authz.rotator
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

    async fn mark_final(&self, now: &State<Self>) {
        self.authz.mark_final(now);
    }

    async fn roll_back(&self, _from: &State<Self>, to: &State<Self>) {
        self.core.show_state(self.authz.enforce(to)).await;
    }
}

/// The messages of Rotate.
struct Rotate;

impl<D: Datastore> RotateMessages<RotatableAuthz<D>> for Rotate {
    type Request = authz::RotateAuthzRequest;
    type Response = authz::RotateAuthzResponse;

    async fn read(
        _service: &RotatableAuthz<D>,
        _current: &State<RotatableAuthz<D>>,
        request: Self::Request,
    ) -> Result<Command<RotatableAuthz<D>>, Refusal> {
        default_profile(&request.authz_profile_id)?;
        match request.rotate_request {
            Some(rotate_authz_request::RotateRequest::UploadRequest(upload_request)) => {
                Ok(Command::Upload {
                    upload: upload(upload_request),
                    overwrite: request.force_overwrite,
                })
            }
            Some(rotate_authz_request::RotateRequest::FinalizeRotation(
                authz::FinalizeRequest {},
            )) => Ok(Command::Finalize),
            None => Err(Refusal::invalid(
                "the message has neither upload_request nor finalize_rotation",
            )),
        }
    }

    fn answer((): ()) -> Self::Response {
        let response =
            rotate_authz_response::RotateResponse::UploadResponse(authz::UploadResponse {});
        authz::RotateAuthzResponse { rotate_response: Some(response) }
    }
}

/// Translates an upload from the wire.
pub(super) fn upload(upload: authz::UploadRequest) -> Upload {
    let authz::UploadRequest { version, created_on, policy } = upload;
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
