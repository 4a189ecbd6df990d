//! gnsi.pathz: the policy for reading and writing paths.

use std::sync::Arc;

use holdfast_core::Datastore;
use holdfast_proto::gnmi;
use holdfast_proto::gnsi::pathz::{
    self, authorization_rule, pathz_server, rotate_request, rotate_response,
};
use holdfast_security::pathz::{
    Action, DraftPolicy, DraftRule, Elem, Group, Mode, Path, Principal,
};
use holdfast_store::ArtefactChange;
use prost::Message;
use smol_str::SmolStr;
use tonic::{Request, Response, Status, Streaming};

use super::rotate::{self, AnswerStream, Command, Rotatable, RotateMessages, State};
use super::{admin, reader};
use crate::gnsi::pathz::{InstalledPolicy, Pathz, PathzRules, Upload};
use crate::gnsi::{Gnsi, Rotations, Rotator};
use crate::northbound::path::elements;
use crate::northbound::status::Refusal;

/// Serves gnsi.pathz.
#[derive(Debug)]
pub(in crate::northbound) struct PathzService<D> {
    face: Arc<RotatablePathz<D>>,
    rotations: Rotations,
}

/// State that a rotation works on.
#[derive(Debug)]
pub(in crate::northbound) struct RotatablePathz<D> {
    pathz: Arc<Pathz>,
    rules: PathzRules<D>,
    core: D,
}

impl<D: Datastore> PathzService<D> {
    pub(in crate::northbound) fn new(core: D, gnsi: &Gnsi) -> Self {
        Self { face: Arc::new(RotatablePathz::new(core, gnsi)), rotations: gnsi.rotations.clone() }
    }
}

#[tonic::async_trait]
impl<D: Datastore> pathz_server::Pathz for PathzService<D> {
    type RotateStream = AnswerStream<pathz::RotateResponse>;

    async fn rotate(
        &self,
        request: Request<Streaming<pathz::RotateRequest>>,
    ) -> Result<Response<Self::RotateStream>, Status> {
        let caller = admin(&self.face.core, &request, "gNSI pathz Rotate")?;
        let face = Arc::clone(&self.face);
        rotate::serve::<_, Rotate>(face, &self.rotations, caller, request).map(Response::new)
    }

    async fn probe(
        &self,
        request: Request<pathz::ProbeRequest>,
    ) -> Result<Response<pathz::ProbeResponse>, Status> {
        reader(&self.face.core, &request)?;
        let pathz::ProbeRequest { user, path, mode, policy_instance } = request.into_inner();
        if user.is_empty() {
            return Err(Refusal::invalid("`user` is missing").into());
        }
        let requested_path = path.as_ref().ok_or_else(|| Refusal::invalid("`path` is missing"))?;
        let mode = read_mode(mode)
            .ok_or_else(|| Refusal::invalid("`mode` must be MODE_READ or MODE_WRITE"))?;
        let Some(installed) = self.face.instance(policy_instance)? else {
            // Without a policy everything is allowed.
            let action = pathz::Action::Permit.into();
            return Ok(Response::new(pathz::ProbeResponse { action, version: String::new() }));
        };
        let compiled = installed.judge.compiled(&self.face.core.models());
        let decided = compiled.decide(&user, mode, &read_path(requested_path)?);
        let action = match decided.map_err(|error| Refusal::invalid(error.to_string()))? {
            Action::Permit => pathz::Action::Permit,
            Action::Deny => pathz::Action::Deny,
        };
        let version = installed.version.clone();
        Ok(Response::new(pathz::ProbeResponse { action: action.into(), version }))
    }

    async fn get(
        &self,
        request: Request<pathz::GetRequest>,
    ) -> Result<Response<pathz::GetResponse>, Status> {
        reader(&self.face.core, &request)?;
        let none = || Refusal::precondition("there is no pathz policy: everything is allowed");
        let installed = self.face.instance(request.get_ref().policy_instance)?.ok_or_else(none)?;
        let policy = pathz::AuthorizationPolicy::decode(&*installed.content).map_err(|error| {
            Refusal::internal(format!("the stored policy cannot be read: {error}"))
        })?;
        let version = installed.version.clone();
        let created_on = installed.created_on;
        Ok(Response::new(pathz::GetResponse { version, created_on, policy: Some(policy) }))
    }
}

impl<D: Datastore> RotatablePathz<D> {
    pub(super) fn new(core: D, gnsi: &Gnsi) -> Self {
        Self { pathz: Arc::clone(&gnsi.pathz), rules: PathzRules(core.clone()), core }
    }

    /// The policy of an instance; `None` when no policy is in force.
    fn instance(&self, number: i32) -> Result<Option<Arc<InstalledPolicy>>, Refusal> {
        match pathz::PolicyInstance::try_from(number) {
            Ok(pathz::PolicyInstance::Active) => Ok(self.pathz.active()),
            Ok(pathz::PolicyInstance::Sandbox) => {
                let none =
                    || Refusal::precondition("no rotation with an uploaded policy is in progress");
                self.pathz.sandbox().map(Some).ok_or_else(none)
            }
            Ok(pathz::PolicyInstance::Unspecified) | Err(_) => {
                let reason =
                    "`policy_instance` must be POLICY_INSTANCE_ACTIVE or POLICY_INSTANCE_SANDBOX";
                Err(Refusal::invalid(reason))
            }
        }
    }
}

impl<D: Datastore> Rotatable for RotatablePathz<D> {
    type Rules = PathzRules<D>;
    const NAME: &'static str = "gnsi.pathz";

    fn rules(&self) -> &PathzRules<D> {
        &self.rules
    }

    fn rotator(&self) -> &Rotator {
        &self.pathz.rotator
    }

    fn last(&self) -> State<Self> {
        self.pathz.active()
    }

    /// Puts the upload into the sandbox, where it decides nothing.
    async fn activate(&self, _before: &State<Self>, now: &State<Self>) -> Result<(), Refusal> {
        self.core.show_state(self.pathz.set_sandbox(now)).await;
        Ok(())
    }

    fn changes(&self, _before: &State<Self>, now: &State<Self>) -> Vec<ArtefactChange> {
        vec![self.pathz.change(now)]
    }

    async fn mark_final(&self, now: &State<Self>) {
        self.core.show_state(self.pathz.mark_final(now)).await;
    }

    async fn roll_back(&self, _from: &State<Self>, _to: &State<Self>) {
        self.core.show_state(self.pathz.set_sandbox(&None)).await;
    }
}

/// The messages of Rotate.
struct Rotate;

impl<D: Datastore> RotateMessages<RotatablePathz<D>> for Rotate {
    type Request = pathz::RotateRequest;
    type Response = pathz::RotateResponse;
    /// After a finalize, the client may upload the next policy.
    const CONTINUES_AFTER_FINALIZE: bool = true;

    async fn read(
        _service: &RotatablePathz<D>,
        _current: &State<RotatablePathz<D>>,
        request: Self::Request,
    ) -> Result<Command<RotatablePathz<D>>, Refusal> {
        match request.rotate_request {
            Some(rotate_request::RotateRequest::UploadRequest(upload)) => {
                let upload = read_upload(upload)?;
                Ok(Command::Upload { upload, overwrite: request.force_overwrite })
            }
            Some(rotate_request::RotateRequest::FinalizeRotation(pathz::FinalizeRequest {})) => {
                Ok(Command::Finalize)
            }
            None => Err(Refusal::invalid(
                "the message has neither upload_request nor finalize_rotation",
            )),
        }
    }

    fn answer((): ()) -> Self::Response {
        pathz::RotateResponse {
            response: Some(rotate_response::Response::Upload(pathz::UploadResponse {})),
        }
    }
}

/// Reads a stored policy, which has the bytes of the upload.
pub(crate) fn draft(content: &[u8]) -> Result<DraftPolicy, Status> {
    let policy = pathz::AuthorizationPolicy::decode(content)
        .map_err(|error| Refusal::internal(error.to_string()))?;
    Ok(read_policy(policy)?)
}

/// Translates an upload from the wire.
pub(super) fn read_upload(upload: pathz::UploadRequest) -> Result<Upload, Refusal> {
    let pathz::UploadRequest { version, created_on, policy } = upload;
    let policy = policy.ok_or_else(|| Refusal::invalid("the upload has no policy"))?;
    let content = policy.encode_to_vec();
    Ok(Upload { version, created_on, content, draft: read_policy(policy)? })
}

fn read_policy(policy: pathz::AuthorizationPolicy) -> Result<DraftPolicy, Refusal> {
    let group = |group: pathz::Group| Group {
        name: group.name.into(),
        users: group.users.into_iter().map(|user| user.name.into()).collect(),
    };
    let groups = policy.groups.into_iter().map(group).collect();
    let rules = policy.rules.into_iter().map(read_rule).collect::<Result<_, _>>()?;
    Ok(DraftPolicy { groups, rules })
}

fn read_rule(rule: pathz::AuthorizationRule) -> Result<DraftRule, Refusal> {
    let pathz::AuthorizationRule { id, path, action, mode, principal } = rule;
    let principal = principal.map(|it| match it {
        authorization_rule::Principal::User(name) => Principal::User(name.into()),
        authorization_rule::Principal::Group(name) => Principal::Group(name.into()),
    });
    let action = match pathz::Action::try_from(action) {
        Ok(pathz::Action::Permit) => Some(Action::Permit),
        Ok(pathz::Action::Deny) => Some(Action::Deny),
        Ok(pathz::Action::Unspecified) | Err(_) => None,
    };
    let path = path.as_ref().map(read_path).transpose();
    let path = path.map_err(|refusal| refusal.in_rule(&id))?;
    Ok(DraftRule { id: id.into(), principal, path, action, mode: read_mode(mode) })
}

fn read_mode(number: i32) -> Option<Mode> {
    match pathz::Mode::try_from(number) {
        Ok(pathz::Mode::Read) => Some(Mode::Read),
        Ok(pathz::Mode::Write) => Some(Mode::Write),
        Ok(pathz::Mode::Unspecified) | Err(_) => None,
    }
}

fn read_path(path: &gnmi::Path) -> Result<Path, Refusal> {
    let elems = elements(path)?;
    if !path.target.is_empty() {
        let reason = "a target belongs in the prefix of a gNMI request";
        return Err(Refusal::malformed(elems.to_string(), reason));
    }
    let word = |text: &str| SmolStr::from(text);
    let elem = |elem: &holdfast_config::Elem| Elem {
        name: word(&elem.name),
        keys: elem.keys.iter().map(|(key, value)| (word(key), word(value))).collect(),
    };
    Ok(Path { origin: word(&path.origin), elems: elems.elems.iter().map(elem).collect() })
}
