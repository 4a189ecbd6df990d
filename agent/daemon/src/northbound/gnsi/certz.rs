//! gnsi.certz: the TLS profiles of the box.
//!
//! [`wire_entities`] translates messages, `holdfast_security::certz` decides on uploads, and [`TlsProfiles`] has the
//! profiles for new connections. The protocol allows one RPC of the service at a time.

mod wire_entities;

use std::sync::Arc;

use holdfast_base::ErrorChain;
use holdfast_core::Datastore;
use holdfast_proto::bootz::{CertzProfile, CertzProfiles};
use holdfast_proto::gnsi::certz::{
    self, certz_server, rotate_certificate_request, rotate_certificate_response,
};
use holdfast_security::certz::{CertzError, CertzRules, Profiles, Reply, StreamMessage, Upload};
use holdfast_store::ArtefactChange;
use rustls_pki_types::UnixTime;
use smol_str::SmolStr;
use tokio::task::spawn_blocking;
use tonic::{Request, Response, Status, Streaming};

use self::wire_entities::{csr_params, entities};
use super::rotate::{self, AnswerStream, Command, Rotatable, RotateMessages, State};
use super::{admin, reader};
use crate::gnsi::certz::differences;
use crate::gnsi::{Certz, Gnsi, RotationGuard, Rotations, Rotator, TlsProfiles};
use crate::northbound::status::Refusal;

/// Serves gnsi.certz.
#[derive(Debug)]
pub(in crate::northbound) struct CertzService<D> {
    face: Arc<RotatableCertz<D>>,
    rotations: Rotations,
}

/// State that a rotation works on.
#[derive(Debug)]
pub(in crate::northbound) struct RotatableCertz<D> {
    certz: Certz,
    core: D,
}

impl<D: Datastore> CertzService<D> {
    pub(in crate::northbound) fn new(core: D, gnsi: &Gnsi) -> Self {
        Self { face: Arc::new(RotatableCertz::new(core, gnsi)), rotations: gnsi.rotations.clone() }
    }

    /// Checks the caller, for a change if there is an `attempt`, and takes the lock of the service.
    fn begin<T>(
        &self,
        request: &Request<T>,
        attempt: Option<&str>,
    ) -> Result<RotationGuard, Status> {
        match attempt {
            Some(attempt) => admin(&self.face.core, request, attempt)?,
            None => reader(&self.face.core, request)?,
        };
        let busy = || Refusal::busy("another RPC of gnsi.certz is in progress");
        Ok(self.face.certz.rotator.take().ok_or_else(busy)?)
    }

    /// Changes the list of profiles, and returns when it is durable. The change is completed even if the client goes
    /// meanwhile.
    async fn change_list(&self, guard: RotationGuard, now: Profiles) -> Result<(), Status> {
        let face = Arc::clone(&self.face);
        let changed = tokio::spawn(async move {
            let outcome = face.change_list(now).await;
            drop(guard);
            outcome
        });
        let failed = |_| Refusal::internal("changing the profiles panicked");
        Ok(changed.await.map_err(failed)??)
    }
}

#[tonic::async_trait]
impl<D: Datastore> certz_server::Certz for CertzService<D> {
    type RotateStream = AnswerStream<certz::RotateCertificateResponse>;

    async fn rotate(
        &self,
        request: Request<Streaming<certz::RotateCertificateRequest>>,
    ) -> Result<Response<Self::RotateStream>, Status> {
        let caller = admin(&self.face.core, &request, "gNSI certz Rotate")?;
        let face = Arc::clone(&self.face);
        rotate::serve::<_, Rotate>(face, &self.rotations, caller, request).map(Response::new)
    }

    async fn add_profile(
        &self,
        request: Request<certz::AddProfileRequest>,
    ) -> Result<Response<certz::AddProfileResponse>, Status> {
        let guard = self.begin(&request, Some("gNSI certz AddProfile"))?;
        let id = request.into_inner().ssl_profile_id;
        let now = self.face.certz.profiles.last().with_added(&id).map_err(refused)?;
        self.change_list(guard, now).await?;
        Ok(Response::new(certz::AddProfileResponse {}))
    }

    async fn delete_profile(
        &self,
        request: Request<certz::DeleteProfileRequest>,
    ) -> Result<Response<certz::DeleteProfileResponse>, Status> {
        let guard = self.begin(&request, Some("gNSI certz DeleteProfile"))?;
        let id = request.into_inner().ssl_profile_id;
        let profiles = &self.face.certz.profiles;
        let in_use = profiles.bound().is_some_and(|bound| bound == id);
        let now = profiles.last().without(&id, in_use).map_err(refused)?;
        self.change_list(guard, now).await?;
        Ok(Response::new(certz::DeleteProfileResponse {}))
    }

    async fn get_profile_list(
        &self,
        request: Request<certz::GetProfileListRequest>,
    ) -> Result<Response<certz::GetProfileListResponse>, Status> {
        let _held = self.begin(&request, None)?;
        let ssl_profile_ids = self.face.certz.profiles.last().ids().map(str::to_owned).collect();
        Ok(Response::new(certz::GetProfileListResponse { ssl_profile_ids }))
    }

    async fn can_generate_csr(
        &self,
        request: Request<certz::CanGenerateCsrRequest>,
    ) -> Result<Response<certz::CanGenerateCsrResponse>, Status> {
        let _held = self.begin(&request, None)?;
        let params = request.into_inner().params.unwrap_or_default();
        let can_generate = csr_params(params).can_generate();
        Ok(Response::new(certz::CanGenerateCsrResponse { can_generate }))
    }

    async fn get_integrity_manifest(
        &self,
        request: Request<certz::GetIntegrityManifestRequest>,
    ) -> Result<Response<certz::GetIntegrityManifestResponse>, Status> {
        reader(&self.face.core, &request)?;
        let reason =
            "gnsi.certz GetIntegrityManifest: this box has no root of trust for measurement";
        Err(Refusal::unimplemented(reason).into())
    }
}

impl<D: Datastore> RotatableCertz<D> {
    pub(super) fn new(core: D, gnsi: &Gnsi) -> Self {
        Self { certz: gnsi.certz.clone(), core }
    }

    async fn change_list(&self, now: Profiles) -> Result<(), Refusal> {
        let changes = differences(&self.certz.profiles.last(), &now);
        self.certz.rotator.store().write_artefacts(changes).await?;
        self.certz.profiles.mark_final(&now);
        self.activate(&now).await
    }

    /// Brings profiles into force for new connections; existing ones keep theirs.
    async fn activate(&self, profiles: &Profiles) -> Result<(), Refusal> {
        let taken = self.certz.profiles.activate(profiles);
        taken.map_err(|error| Refusal::internal(ErrorChain(&error).to_string()))?;
        self.certz.state.show(&self.core).await;
        Ok(())
    }
}

impl<D: Datastore> Rotatable for RotatableCertz<D> {
    type Rules = CertzRules;
    const NAME: &'static str = "gnsi.certz";

    fn rules(&self) -> &CertzRules {
        &CertzRules
    }

    fn rotator(&self) -> &Rotator {
        &self.certz.rotator
    }

    fn last(&self) -> State<Self> {
        self.certz.profiles.last().into()
    }

    fn refused(&self, refusal: &CertzError) -> Refusal {
        Refusal::certz(refusal)
    }

    async fn activate(&self, _before: &State<Self>, now: &State<Self>) -> Result<(), Refusal> {
        self.activate(&now.profiles).await
    }

    fn changes(&self, before: &State<Self>, now: &State<Self>) -> Vec<ArtefactChange> {
        differences(&before.profiles, &now.profiles)
    }

    async fn mark_final(&self, now: &State<Self>) {
        self.certz.profiles.mark_final(&now.profiles);
    }

    async fn roll_back(&self, _from: &State<Self>, to: &State<Self>) {
        if let Err(refusal) = self.activate(&to.profiles).await {
            tracing::error!(reason = %refusal.text(), "cannot roll back the TLS profiles; those of the trial stay in force");
        }
    }
}

/// The messages of Rotate.
struct Rotate;

impl<D: Datastore> RotateMessages<RotatableCertz<D>> for Rotate {
    type Request = certz::RotateCertificateRequest;
    type Response = certz::RotateCertificateResponse;

    async fn read(
        service: &RotatableCertz<D>,
        current: &State<RotatableCertz<D>>,
        request: Self::Request,
    ) -> Result<Command<RotatableCertz<D>>, Refusal> {
        let certz::RotateCertificateRequest { force_overwrite, ssl_profile_id, rotate_request } =
            request;
        let profile = ssl_profile_id.into();
        let overwrite = force_overwrite;
        current.check_profile(&profile).map_err(refused)?; // before a key is made for it
        match rotate_request {
            Some(rotate_certificate_request::RotateRequest::GenerateCsr(csr)) => {
                if !csr.integrities.is_empty() {
                    let reason =
                        "generate_csr.integrities: this box has no root of trust for measurement";
                    return Err(Refusal::unimplemented(reason));
                }
                let params = csr_params(csr.params.unwrap_or_default());
                let generated = in_background(move || params.generate()).await?;
                Ok(Command::Upload {
                    upload: StreamMessage::Request { profile, generated },
                    overwrite,
                })
            }
            Some(rotate_certificate_request::RotateRequest::Certificates(upload)) => {
                // A bundle of 20 000 authorities takes a second to parse.
                let entities = in_background(move || entities(upload.entities)).await?;
                let upload = Upload { profile, entities };
                let identity = service.certz.profiles.identity();
                let change = StreamMessage::Upload { upload, identity, now: UnixTime::now() };
                Ok(Command::Upload { upload: change, overwrite })
            }
            Some(rotate_certificate_request::RotateRequest::FinalizeRotation(
                certz::FinalizeRequest {},
            )) => Ok(Command::Finalize),
            None => Err(Refusal::invalid(
                "the message has neither generate_csr nor certificates nor finalize_rotation",
            )),
        }
    }

    fn answer(reply: Reply) -> Self::Response {
        let response = match reply {
            Reply::Uploaded => {
                rotate_certificate_response::RotateResponse::Certificates(certz::UploadResponse {})
            }
            Reply::Request(pem) => {
                let request = certz::CertificateSigningRequest {
                    r#type: certz::CertificateType::X509.into(),
                    encoding: certz::CertificateEncoding::Pem.into(),
                    certificate_signing_request: pem.into(),
                };
                rotate_certificate_response::RotateResponse::GeneratedCsr(
                    certz::GenerateCsrResponse {
                        certificate_signing_request: Some(request),
                        integrities: Vec::new(),
                    },
                )
            }
        };
        certz::RotateCertificateResponse { rotate_response: Some(response) }
    }
}

/// Translates a message with all profiles. `in_use` is the profile that the server will be bound to.
pub(super) async fn replacement(
    uploaded: CertzProfiles,
    in_use: Option<SmolStr>,
    profiles: &TlsProfiles,
) -> Result<StreamMessage, Refusal> {
    let uploads = in_background(move || {
        let upload = |profile: CertzProfile| {
            let entities = entities(profile.certz.unwrap_or_default().entities)?;
            Ok(Upload { profile: profile.ssl_profile_id.into(), entities })
        };
        uploaded.profiles.into_iter().map(upload).collect::<Result<Vec<_>, CertzError>>()
    });
    let uploads = uploads.await?;
    let identity = profiles.identity();
    Ok(StreamMessage::Replacement { uploads, in_use, identity, now: UnixTime::now() })
}

/// Runs long computations on another thread, so that other tasks need not wait.
async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CertzError> + Send + 'static,
) -> Result<T, Refusal> {
    let result = spawn_blocking(work).await;
    let result = result.map_err(|_| Refusal::internal("reading the message panicked"))?;
    result.map_err(refused)
}

fn refused(error: CertzError) -> Refusal {
    Refusal::certz(&error)
}
