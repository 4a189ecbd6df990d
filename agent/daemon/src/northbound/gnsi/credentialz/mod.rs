//! gNSI credentialz: passwords, keys and principals of accounts, keys and certificates of the SSH server.
//!
//! Two rotations that share one lock. Uploads are checked in `holdfast_security::credentialz`; here they are brought
//! into force as one transaction of the engine, and rolled back in the same way.

mod translate;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use holdfast_base::{AuthMethod, Caller, ErrorChain, Role};
use holdfast_core::Datastore;
use holdfast_core::{self, CommitError, Intent};
use holdfast_proto::bootz;
use holdfast_proto::gnsi::credentialz;
use holdfast_proto::gnsi::credentialz::credentialz_server::{Credentialz, CredentialzServer};
use holdfast_security::credentialz::{
    Credentials, CredentialzRules, KeyKind, PrivateKey, Reply, SALT_OCTETS, Upload,
};
use holdfast_security::rotation::RotationRules;
use holdfast_store::ArtefactChange;
use smol_str::SmolStr;
use tokio::task::spawn_blocking;
use tonic::{Request, Response, Status, Streaming};
use tracing::error;

use super::rotate::{self, AnswerStream, Command, Rotatable, RotateMessages};
use super::{admin, reader};
use crate::gnsi::{self, CredentialLeaves, CredentialState, Gnsi, Rotations, Rotator};
use crate::northbound::status::Refusal;

/// Host keys that one request may generate: an RSA key takes a second or more.
const MAX_GENERATED: usize = 16;
/// Pause before a rollback is tried again that the core refused because its queue was full.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// The four RPCs.
#[derive(Debug)]
pub(in crate::northbound) struct CredentialzService<D> {
    face: Arc<RotatableCredentialz<D>>,
    rotations: Rotations,
}

impl<D: Datastore> CredentialzService<D> {
    pub(in crate::northbound) fn server(core: D, gnsi: &Gnsi) -> CredentialzServer<Self> {
        let face = Arc::new(RotatableCredentialz::new(core, gnsi));
        let rotations = gnsi.rotations.clone();
        CredentialzServer::new(Self { face, rotations })
    }
}

#[tonic::async_trait]
impl<D: Datastore> Credentialz for CredentialzService<D> {
    type RotateAccountCredentialsStream =
        AnswerStream<credentialz::RotateAccountCredentialsResponse>;
    type RotateHostParametersStream = AnswerStream<credentialz::RotateHostParametersResponse>;

    async fn can_generate_key(
        &self,
        request: Request<credentialz::CanGenerateKeyRequest>,
    ) -> Result<Response<credentialz::CanGenerateKeyResponse>, Status> {
        reader(&self.face.core, &request)?;
        let can_generate = translate::key_gen(request.into_inner().key_params).is_some();
        Ok(Response::new(credentialz::CanGenerateKeyResponse { can_generate }))
    }

    async fn get_public_keys(
        &self,
        request: Request<credentialz::GetPublicKeysRequest>,
    ) -> Result<Response<credentialz::GetPublicKeysResponse>, Status> {
        reader(&self.face.core, &request)?;
        let public_keys = self.face.public_keys().await?;
        Ok(Response::new(credentialz::GetPublicKeysResponse { public_keys }))
    }

    async fn rotate_account_credentials(
        &self,
        request: Request<Streaming<credentialz::RotateAccountCredentialsRequest>>,
    ) -> Result<Response<Self::RotateAccountCredentialsStream>, Status> {
        let caller = admin(&self.face.core, &request, "gNSI RotateAccountCredentials")?;
        let face = Arc::clone(&self.face);
        rotate::serve::<_, RotateAccountCredentials>(face, &self.rotations, caller, request)
            .map(Response::new)
    }

    async fn rotate_host_parameters(
        &self,
        request: Request<Streaming<credentialz::RotateHostParametersRequest>>,
    ) -> Result<Response<Self::RotateHostParametersStream>, Status> {
        let caller = admin(&self.face.core, &request, "gNSI RotateHostParameters")?;
        let face = Arc::clone(&self.face);
        rotate::serve::<_, RotateHostParameters>(face, &self.rotations, caller, request)
            .map(Response::new)
    }
}

/// An upload, with the facts of the box that its check needs.
#[derive(Debug)]
pub(in crate::northbound) struct UploadInContext {
    rules: CredentialzRules,
    upload: Upload,
}

/// The rules of both rotations, for uploads in their context.
#[derive(Clone, Copy, Debug)]
pub(in crate::northbound) struct RulesInContext;

impl RotationRules for RulesInContext {
    type State = Arc<Credentials>;
    type Upload = UploadInContext;
    type Reply = Reply;
    type Refusal = holdfast_security::credentialz::CredentialzError;

    fn version_in_use(&self, state: &Self::State, upload: &UploadInContext) -> Option<String> {
        upload.rules.version_in_use(state, &upload.upload)
    }

    fn apply(
        &self,
        state: &Self::State,
        upload: UploadInContext,
    ) -> Result<(Self::State, Reply), Self::Refusal> {
        let (new, reply) = upload.rules.apply(state, upload.upload)?;
        Ok((Arc::new(new), reply))
    }
}

/// State that both rotations work on.
#[derive(Debug)]
pub(in crate::northbound) struct RotatableCredentialz<D> {
    core: D,
    logins: CredentialState,
    leaves: Arc<CredentialLeaves>,
    rules: RulesInContext,
}

impl<D: Datastore> RotatableCredentialz<D> {
    pub(super) fn new(core: D, gnsi: &Gnsi) -> Self {
        let logins = gnsi.logins.clone();
        let leaves = Arc::clone(&gnsi.credential_leaves);
        Self { core, logins, leaves, rules: RulesInContext }
    }

    /// Adds the accounts of the upload that exist: gRPC users, accounts of the box, or users of the configuration that
    /// is `coming` with it.
    pub(super) async fn with_accounts(
        &self,
        upload: Upload,
        coming: impl Fn(&str) -> bool,
    ) -> Result<UploadInContext, Refusal> {
        let names = upload.accounts();
        let users = self.logins.users();
        let existing = names.iter().filter(|name| users.role(name).is_some() || coming(name));
        let mut accounts: BTreeSet<SmolStr> = existing.cloned().collect();
        accounts.extend(self.core.accounts_of_box(names).await?);
        Ok(UploadInContext { rules: CredentialzRules { accounts, box_keys: Vec::new() }, upload })
    }

    /// Adds the host keys that the box itself has.
    async fn with_host_keys(&self, upload: Upload) -> Result<UploadInContext, Refusal> {
        let logins = self.logins.clone();
        let box_keys = in_background(move || Ok(logins.box_keys())).await?;
        Ok(UploadInContext {
            rules: CredentialzRules { accounts: BTreeSet::new(), box_keys },
            upload,
        })
    }

    async fn public_keys(&self) -> Result<Vec<credentialz::PublicKey>, Refusal> {
        let current = self.logins.current();
        let keys = current.host.server_keys.iter().map(|key| key.public());
        let keys: Vec<_> = keys.map(translate::public_key).collect();
        if current.host.has_managed_keys() {
            return Ok(keys);
        }
        let logins = self.logins.clone();
        let own = in_background(move || Ok(logins.box_keys())).await?;
        Ok(own.iter().map(|key| translate::public_key(&key.public)).collect())
    }
}

impl<D: Datastore> Rotatable for RotatableCredentialz<D> {
    type Rules = RulesInContext;
    const NAME: &'static str = "credentialz";

    fn rules(&self) -> &RulesInContext {
        &self.rules
    }

    /// One lock for both rotations.
    fn rotator(&self) -> &Rotator {
        self.logins.rotator()
    }

    fn last(&self) -> Arc<Credentials> {
        self.logins.last()
    }

    fn refused(&self, refusal: &holdfast_security::credentialz::CredentialzError) -> Refusal {
        refused(refusal)
    }

    async fn activate(
        &self,
        before: &Arc<Credentials>,
        now: &Arc<Credentials>,
    ) -> Result<(), Refusal> {
        self.logins.retain_secrets(&[&self.logins.last(), before, now]);
        let from = Arc::clone(before);
        let to = Arc::clone(now);
        let change = holdfast_core::CredentialChange { from, to, is_restored: false };
        self.core.change(&author(), Intent::Credentials(change)).await?;
        self.logins.enter(now);
        self.core.show_state(self.leaves.state_leaves(before, now)).await;
        Ok(())
    }

    fn changes(&self, before: &Arc<Credentials>, now: &Arc<Credentials>) -> Vec<ArtefactChange> {
        self.logins.changes(before, now)
    }

    async fn mark_final(&self, now: &Arc<Credentials>) {
        self.logins.mark_final(now);
    }

    /// Rolls back as far as possible: the engine repairs a failed change later.
    async fn roll_back(&self, from: &Arc<Credentials>, to: &Arc<Credentials>) {
        self.logins.retain_secrets(&[to, from]);
        let change = holdfast_core::CredentialChange {
            from: Arc::clone(from),
            to: Arc::clone(to),
            is_restored: true,
        };
        loop {
            let intent = Intent::Credentials(change.clone());
            match self.core.change(&author(), intent).await {
                Ok(_) => break,
                Err(CommitError::Overloaded) => tokio::time::sleep(TRY_AGAIN).await,
                Err(reason) => {
                    error!(error = %ErrorChain(&reason), "credentials that were tried are still there; the next start takes them back");
                    break;
                }
            }
        }
        self.logins.enter(to);
        self.logins.retain_secrets(&[to]);
        self.core.show_state(self.leaves.state_leaves(from, to)).await;
    }
}

/// The messages of RotateAccountCredentials.
struct RotateAccountCredentials;

impl<D: Datastore> RotateMessages<RotatableCredentialz<D>> for RotateAccountCredentials {
    type Request = credentialz::RotateAccountCredentialsRequest;
    type Response = credentialz::RotateAccountCredentialsResponse;

    async fn read(
        service: &RotatableCredentialz<D>,
        _current: &Arc<Credentials>,
        request: Self::Request,
    ) -> Result<Command<RotatableCredentialz<D>>, Refusal> {
        use credentialz::rotate_account_credentials_request::Request;
        let overwrite = request.force_overwrite;
        let upload = match request.request {
            Some(Request::Credential(keys)) => translate::keys(keys)?,
            Some(Request::User(users)) => translate::principals(users),
            Some(Request::Password(passwords)) => {
                in_background(move || translate::passwords(passwords, salt)).await?
            }
            Some(Request::Finalize(_)) => return Ok(Command::Finalize),
            None => return Err(nothing()),
        };
        Ok(Command::Upload { upload: service.with_accounts(upload, |_| false).await?, overwrite })
    }

    fn answer(reply: Reply) -> Self::Response {
        use credentialz::rotate_account_credentials_response::Response;
        let response = match reply {
            Reply::Keys => Some(Response::Credential(credentialz::AuthorizedKeysResponse {})),
            Reply::Principals => Some(Response::User(credentialz::AuthorizedUsersResponse {})),
            Reply::Passwords => Some(Response::Password(credentialz::PasswordResponse {})),
            _ => None, // of the other rotation
        };
        credentialz::RotateAccountCredentialsResponse { response }
    }
}

/// The messages of RotateHostParameters.
struct RotateHostParameters;

impl<D: Datastore> RotateMessages<RotatableCredentialz<D>> for RotateHostParameters {
    type Request = credentialz::RotateHostParametersRequest;
    type Response = credentialz::RotateHostParametersResponse;

    async fn read(
        service: &RotatableCredentialz<D>,
        _current: &Arc<Credentials>,
        request: Self::Request,
    ) -> Result<Command<RotatableCredentialz<D>>, Refusal> {
        use credentialz::rotate_host_parameters_request::Request;
        let upload = match request.request {
            Some(Request::SshCaPublicKey(keys)) => translate::ca_keys(keys)?,
            Some(Request::ServerKeys(keys)) => translate::server_keys(keys),
            Some(Request::GenerateKeys(keys)) => {
                let (stamp, kinds) = translate::generate(keys)?;
                let keys = in_background(move || generate(&kinds)).await?;
                Upload::GeneratedKeys { stamp, keys }
            }
            Some(Request::AuthenticationAllowed(ways)) => translate::allowed(ways)?,
            Some(Request::AuthorizedPrincipalCheck(tool)) => translate::tool(&tool)?,
            Some(Request::Glome(glome)) => translate::glome(glome),
            Some(Request::Finalize(_)) => return Ok(Command::Finalize),
            None => return Err(nothing()),
        };
        // The message has no flag `force_overwrite`, and a version may be used again.
        Ok(Command::Upload { upload: service.with_host_keys(upload).await?, overwrite: false })
    }

    fn answer(reply: Reply) -> Self::Response {
        use credentialz::rotate_host_parameters_response::Response;
        let response = match reply {
            Reply::CaKeys => Some(Response::SshCaPublicKey(credentialz::CaPublicKeyResponse {})),
            Reply::ServerKeys => Some(Response::ServerKeys(credentialz::ServerKeysResponse {})),
            Reply::GeneratedKeys(keys) => {
                let public_keys = keys.iter().map(translate::public_key).collect();
                Some(Response::GenerateKeys(credentialz::GenerateKeysResponse { public_keys }))
            }
            Reply::Allowed => {
                Some(Response::AuthenticationAllowed(credentialz::AllowedAuthenticationResponse {}))
            }
            Reply::PrincipalsTool => Some(Response::AuthorizedPrincipalCheck(
                credentialz::AuthorizedPrincipalCheckResponse {},
            )),
            Reply::Glome => Some(Response::Glome(credentialz::GlomeResponse {})),
            Reply::Keys | Reply::Principals | Reply::Passwords | Reply::Accounts => None, // of the other rotation
        };
        credentialz::RotateHostParametersResponse { response }
    }
}

/// Translates all credentials of a bootstrap or boot configuration.
pub(super) async fn replacement(from_bootz: bootz::Credentials) -> Result<Upload, Refusal> {
    let bootz::Credentials { credentials, users, passwords } = from_bootz;
    let keys = credentials.into_iter().map(translate::keys);
    let principals = users.into_iter().map(|it| Ok(translate::principals(it)));
    let mut parts = keys.chain(principals).collect::<Result<Vec<_>, Refusal>>()?;
    for from_bootz in passwords {
        parts.push(in_background(move || translate::passwords(from_bootz, salt)).await?);
    }
    Ok(Upload::Accounts(parts))
}

/// Author of the change in the history. The log has the client that opened the stream.
fn author() -> Caller {
    let source = AuthMethod::Local { uid: 0 };
    Caller {
        name: SmolStr::new_static("credentialz"),
        role: Role::Admin,
        auth_method: source,
        peer: None,
    }
}

fn nothing() -> Refusal {
    Refusal::invalid("the message has no request")
}

fn refused(refusal: &holdfast_security::credentialz::CredentialzError) -> Refusal {
    let text = ErrorChain(refusal).to_string();
    match refusal {
        it if it.is_conflict_with_state() => Refusal::precondition(text),
        it if it.is_not_found() => Refusal::missing(text),
        _ => Refusal::invalid(text),
    }
}

fn salt() -> Result<[u8; SALT_OCTETS], Refusal> {
    let mut salt = [0; SALT_OCTETS];
    let filled = SystemRandom::new().fill(&mut salt);
    filled.map_err(|_| Refusal::internal("the system gives no random numbers"))?;
    Ok(salt)
}

fn generate(kinds: &[KeyKind]) -> Result<Vec<PrivateKey>, Refusal> {
    if kinds.len() > MAX_GENERATED {
        let text =
            format!("generate_keys names {} keys; the limit is {MAX_GENERATED}", kinds.len());
        return Err(Refusal::invalid(text));
    }
    let keys = kinds.iter().map(|kind| gnsi::make_host_key(*kind));
    let keys: Result<_, _> = keys.collect();
    keys.map_err(|error| Refusal::internal(ErrorChain(&error).to_string()))
}

/// Runs long computations and file reads on a thread for blocking work.
async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let result = spawn_blocking(work).await;
    result.unwrap_or_else(|_| Err(Refusal::internal("reading the request panicked")))
}
