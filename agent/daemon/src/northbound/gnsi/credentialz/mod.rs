//! gNSI credentialz: passwords, keys and principals of accounts, keys and certificates of the SSH server.
//!
//! Two rotations that share one turn. What an upload means is decided in `holdfast_security::credentialz`; here it comes
//! into force as one transaction of the engine, and goes back the same way.

mod translate;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use holdfast_proto::gnsi::credentialz::v1 as wire;
use holdfast_proto::gnsi::credentialz::v1::credentialz_server::{Credentialz, CredentialzServer};
use holdfast_security::credentialz::{
    Credentials, KeyKind, PrivateKey, Refusal as Refused, Reply, Rules, SALT_OCTETS, Upload,
};
use holdfast_security::rotation::Rotating;
use smol_str::SmolStr;
use tokio::task::spawn_blocking;
use tonic::{Request, Response, Status, Streaming};
use tracing::error;

use super::rotate::{self, Answers, Command, Rotated};
use super::switched_on;
use crate::caller::{Caller, Role, Source};
use crate::core::{self, CommitError, Intent};
use crate::gnsi::{self, Gnsi, Logins, Rotations};
use crate::logging::Chain;
use crate::northbound::Datastore;
use crate::northbound::status::Refusal;

/// Host keys made for one request: an RSA key takes a second or some.
const MAX_GENERATED: usize = 16;
/// Before a roll-back that found the core flooded with changes is handed over again.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// The four RPCs.
#[derive(Debug)]
pub(in crate::northbound) struct CredentialzService<D> {
    accounts: Arc<Accounts<D>>,
    host: Arc<Host<D>>,
    rotations: Rotations,
}

impl<D: Datastore> CredentialzService<D> {
    pub(in crate::northbound) fn server(core: D, gnsi: &Gnsi) -> CredentialzServer<Self> {
        let rotations = gnsi.rotations.clone();
        let face = Face { core, logins: gnsi.logins.clone(), rules: Asking };
        let accounts = Arc::new(Accounts(face.clone()));
        let host = Arc::new(Host(face));
        CredentialzServer::new(Self { accounts, host, rotations })
    }
}

#[tonic::async_trait]
impl<D: Datastore> Credentialz for CredentialzService<D> {
    type RotateAccountCredentialsStream = Answers<Accounts<D>>;
    type RotateHostParametersStream = Answers<Host<D>>;

    async fn can_generate_key(
        &self,
        request: Request<wire::CanGenerateKeyRequest>,
    ) -> Result<Response<wire::CanGenerateKeyResponse>, Status> {
        switched_on(&self.host.0.core)?;
        let can_generate = translate::key_gen(request.into_inner().key_params).is_some();
        Ok(Response::new(wire::CanGenerateKeyResponse { can_generate }))
    }

    async fn get_public_keys(
        &self,
        _: Request<wire::GetPublicKeysRequest>,
    ) -> Result<Response<wire::GetPublicKeysResponse>, Status> {
        switched_on(&self.host.0.core)?;
        let public_keys = self.host.0.public_keys().await?;
        Ok(Response::new(wire::GetPublicKeysResponse { public_keys }))
    }

    async fn rotate_account_credentials(
        &self,
        request: Request<Streaming<wire::RotateAccountCredentialsRequest>>,
    ) -> Result<Response<Self::RotateAccountCredentialsStream>, Status> {
        let caller = Caller::authenticated(&request)?;
        switched_on(&self.accounts.0.core)?;
        let turn = self.accounts.0.logins.turn();
        let service = Arc::clone(&self.accounts);
        rotate::serve(service, &self.rotations, turn, caller, request.into_inner())
            .map(Response::new)
    }

    async fn rotate_host_parameters(
        &self,
        request: Request<Streaming<wire::RotateHostParametersRequest>>,
    ) -> Result<Response<Self::RotateHostParametersStream>, Status> {
        let caller = Caller::authenticated(&request)?;
        switched_on(&self.host.0.core)?;
        let turn = self.host.0.logins.turn();
        let service = Arc::clone(&self.host);
        rotate::serve(service, &self.rotations, turn, caller, request.into_inner())
            .map(Response::new)
    }
}

/// An upload, with what has to be known of the box to judge it.
#[derive(Debug)]
pub(in crate::northbound) struct Asked {
    rules: Rules,
    upload: Upload,
}

/// The rules of both rotations.
#[derive(Clone, Copy, Debug)]
pub(in crate::northbound) struct Asking;

impl Rotating for Asking {
    type State = Arc<Credentials>;
    type Upload = Asked;
    type Reply = Reply;
    type Refusal = Refused;

    fn version_in_use(&self, state: &Self::State, asked: &Asked) -> Option<String> {
        asked.rules.version_in_use(state, &asked.upload)
    }

    fn apply(&self, state: &Self::State, asked: Asked) -> Result<(Self::State, Reply), Refused> {
        let (new, reply) = asked.rules.apply(state, asked.upload)?;
        Ok((Arc::new(new), reply))
    }
}

/// The rotation of accounts.
#[derive(Debug)]
pub(in crate::northbound) struct Accounts<D>(Face<D>);

/// The rotation of the host's parameters.
#[derive(Debug)]
pub(in crate::northbound) struct Host<D>(Face<D>);

/// What both do alike.
#[derive(Clone, Debug)]
struct Face<D> {
    core: D,
    logins: Logins,
    rules: Asking,
}

impl<D: Datastore> Face<D> {
    /// With those of its accounts that exist: users of gRPC, or accounts of the box.
    async fn about_accounts(&self, upload: Upload) -> Result<Asked, Refusal> {
        let names = match &upload {
            Upload::Keys(given) => given.iter().map(|it| it.account.clone()).collect(),
            Upload::Principals(given) => given.iter().map(|it| it.account.clone()).collect(),
            Upload::Passwords(given) => given.iter().map(|it| it.account.clone()).collect(),
            _ => Vec::new(),
        };
        let users = self.logins.users();
        let known = names.iter().filter(|name| users.role(name).is_some());
        let mut accounts: BTreeSet<SmolStr> = known.cloned().collect();
        accounts.extend(self.core.accounts_of_box(names).await?);
        Ok(Asked { rules: Rules { accounts, box_keys: Vec::new() }, upload })
    }

    /// With the host keys that the box has of its own.
    async fn about_host(&self, upload: Upload) -> Result<Asked, Refusal> {
        let logins = self.logins.clone();
        let box_keys = beside(move || Ok(logins.box_keys())).await?;
        Ok(Asked { rules: Rules { accounts: BTreeSet::new(), box_keys }, upload })
    }

    async fn public_keys(&self) -> Result<Vec<wire::PublicKey>, Refusal> {
        let current = self.logins.current();
        let given = current.host.server_keys.iter().map(|key| key.public());
        let given: Vec<_> = given.map(translate::public_key).collect();
        if current.host.has_keys_of_its_own() {
            return Ok(given);
        }
        let logins = self.logins.clone();
        let own = beside(move || Ok(logins.box_keys())).await?;
        Ok(own.iter().map(|key| translate::public_key(&key.public)).collect())
    }

    async fn activate(
        &self,
        before: &Arc<Credentials>,
        now: &Arc<Credentials>,
    ) -> Result<(), Refusal> {
        self.logins.hold(&[&self.logins.last(), before, now]);
        let values = gnsi::difference(before, now);
        let logins = core::Logins { values, taken_back: false };
        self.core.change(&author(), Intent::Logins(logins)).await?;
        self.logins.enter(now);
        Ok(())
    }

    async fn write(
        &self,
        before: &Arc<Credentials>,
        now: &Arc<Credentials>,
    ) -> Result<(), Refusal> {
        let written = self.logins.write(before, now).await;
        written.map_err(|error| Refusal::internal(Chain(&error).to_string()))
    }

    /// Comes back as far as it can: a change that fails is repaired by the engine later on.
    async fn roll_back(&self, from: &Arc<Credentials>, to: &Arc<Credentials>) {
        self.logins.hold(&[to, from]);
        let logins = core::Logins { values: gnsi::difference(from, to), taken_back: true };
        loop {
            let intent = Intent::Logins(logins.clone());
            match self.core.change(&author(), intent).await {
                Ok(_) => break,
                Err(CommitError::Overloaded) => tokio::time::sleep(TRY_AGAIN).await,
                Err(reason) => {
                    error!(error = %Chain(&reason), "credentials that were tried are still there; the next start takes them back");
                    break;
                }
            }
        }
        self.logins.enter(to);
        self.logins.hold(&[to]);
    }
}

impl<D: Datastore> Rotated for Accounts<D> {
    type Rules = Asking;
    type Request = wire::RotateAccountCredentialsRequest;
    type Response = wire::RotateAccountCredentialsResponse;
    const NAME: &'static str = "credentialz";

    fn rules(&self) -> &Asking {
        &self.0.rules
    }

    fn last(&self) -> Arc<Credentials> {
        self.0.logins.last()
    }

    async fn read(
        &self,
        _: &Caller,
        _: &Arc<Credentials>,
        request: Self::Request,
    ) -> Result<Command<Self>, Refusal> {
        use wire::rotate_account_credentials_request::Request as Asks;
        let overwrite = request.force_overwrite;
        let upload = match request.request {
            Some(Asks::Credential(keys)) => translate::keys(keys)?,
            Some(Asks::User(policies)) => translate::principals(policies),
            Some(Asks::Password(passwords)) => {
                beside(move || translate::passwords(passwords, salt)).await?
            }
            Some(Asks::Finalize(_)) => return Ok(Command::Finalize),
            None => return Err(nothing()),
        };
        Ok(Command::Upload { upload: self.0.about_accounts(upload).await?, overwrite })
    }

    fn answer(&self, reply: Reply) -> Self::Response {
        use wire::rotate_account_credentials_response::Response as Says;
        let response = match reply {
            Reply::Keys => Some(Says::Credential(wire::AuthorizedKeysResponse {})),
            Reply::Principals => Some(Says::User(wire::AuthorizedUsersResponse {})),
            Reply::Passwords => Some(Says::Password(wire::PasswordResponse {})),
            _ => None, // of the other rotation
        };
        wire::RotateAccountCredentialsResponse { response }
    }

    fn refused(&self, refusal: &Refused) -> Refusal {
        refused(refusal)
    }

    async fn activate(
        &self,
        before: &Arc<Credentials>,
        now: &Arc<Credentials>,
    ) -> Result<(), Refusal> {
        self.0.activate(before, now).await
    }

    async fn write(
        &self,
        before: &Arc<Credentials>,
        now: &Arc<Credentials>,
    ) -> Result<(), Refusal> {
        self.0.write(before, now).await
    }

    async fn settle(&self, now: &Arc<Credentials>) {
        self.0.logins.settle(now);
    }

    async fn roll_back(&self, from: &Arc<Credentials>, to: &Arc<Credentials>) {
        self.0.roll_back(from, to).await;
    }
}

impl<D: Datastore> Rotated for Host<D> {
    type Rules = Asking;
    type Request = wire::RotateHostParametersRequest;
    type Response = wire::RotateHostParametersResponse;
    const NAME: &'static str = "credentialz";

    fn rules(&self) -> &Asking {
        &self.0.rules
    }

    fn last(&self) -> Arc<Credentials> {
        self.0.logins.last()
    }

    async fn read(
        &self,
        _: &Caller,
        _: &Arc<Credentials>,
        request: Self::Request,
    ) -> Result<Command<Self>, Refusal> {
        use wire::rotate_host_parameters_request::Request as Asks;
        let upload = match request.request {
            Some(Asks::SshCaPublicKey(keys)) => translate::ca_keys(keys)?,
            Some(Asks::ServerKeys(keys)) => translate::server_keys(keys),
            Some(Asks::GenerateKeys(keys)) => {
                let (stamp, kinds) = translate::generate(keys)?;
                let keys = beside(move || generate(&kinds)).await?;
                Upload::GeneratedKeys { stamp, keys }
            }
            Some(Asks::AuthenticationAllowed(ways)) => translate::allowed(ways)?,
            Some(Asks::AuthorizedPrincipalCheck(tool)) => translate::tool(&tool)?,
            Some(Asks::Glome(glome)) => translate::glome(glome),
            Some(Asks::Finalize(_)) => return Ok(Command::Finalize),
            None => return Err(nothing()),
        };
        // Parameters of the host have no flag for it, and a version may come again.
        Ok(Command::Upload { upload: self.0.about_host(upload).await?, overwrite: false })
    }

    fn answer(&self, reply: Reply) -> Self::Response {
        use wire::rotate_host_parameters_response::Response as Says;
        let response = match reply {
            Reply::CaKeys => Some(Says::SshCaPublicKey(wire::CaPublicKeyResponse {})),
            Reply::ServerKeys => Some(Says::ServerKeys(wire::ServerKeysResponse {})),
            Reply::GeneratedKeys(keys) => {
                let public_keys = keys.iter().map(translate::public_key).collect();
                Some(Says::GenerateKeys(wire::GenerateKeysResponse { public_keys }))
            }
            Reply::Allowed => {
                Some(Says::AuthenticationAllowed(wire::AllowedAuthenticationResponse {}))
            }
            Reply::PrincipalsTool => {
                Some(Says::AuthorizedPrincipalCheck(wire::AuthorizedPrincipalCheckResponse {}))
            }
            Reply::Glome => Some(Says::Glome(wire::GlomeResponse {})),
            Reply::Keys | Reply::Principals | Reply::Passwords => None, // of the other rotation
        };
        wire::RotateHostParametersResponse { response }
    }

    fn refused(&self, refusal: &Refused) -> Refusal {
        refused(refusal)
    }

    async fn activate(
        &self,
        before: &Arc<Credentials>,
        now: &Arc<Credentials>,
    ) -> Result<(), Refusal> {
        self.0.activate(before, now).await
    }

    async fn write(
        &self,
        before: &Arc<Credentials>,
        now: &Arc<Credentials>,
    ) -> Result<(), Refusal> {
        self.0.write(before, now).await
    }

    async fn settle(&self, now: &Arc<Credentials>) {
        self.0.logins.settle(now);
    }

    async fn roll_back(&self, from: &Arc<Credentials>, to: &Arc<Credentials>) {
        self.0.roll_back(from, to).await;
    }
}

/// Whose doing it is, in the history: whoever opened the stream is in the log beside it.
fn author() -> Caller {
    let source = Source::Local { uid: 0 };
    Caller { name: SmolStr::new_static("credentialz"), role: Role::Admin, source, peer: None }
}

fn nothing() -> Refusal {
    Refusal::invalid("the message has no request")
}

fn refused(refusal: &Refused) -> Refusal {
    let text = Chain(refusal).to_string();
    match refusal {
        it if it.is_of_state() => Refusal::precondition(text),
        it if it.is_missing() => Refusal::missing(text),
        _ => Refusal::invalid(text),
    }
}

fn salt() -> Result<[u8; SALT_OCTETS], Refusal> {
    let mut salt = [0; SALT_OCTETS];
    let filled = SystemRandom::new().fill(&mut salt);
    filled.map_err(|_| Refusal::internal("the system has no randomness"))?;
    Ok(salt)
}

fn generate(kinds: &[KeyKind]) -> Result<Vec<PrivateKey>, Refusal> {
    if kinds.len() > MAX_GENERATED {
        let text = format!("generate_keys: {} keys are more than {MAX_GENERATED}", kinds.len());
        return Err(Refusal::invalid(text));
    }
    let made = kinds.iter().map(|kind| gnsi::make_host_key(*kind));
    let made: Result<_, _> = made.collect();
    made.map_err(|error| Refusal::internal(Chain(&error).to_string()))
}

/// Runs what takes a processor or a disk a while where nobody waits for the thread.
async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Refusal::internal("reading the request panicked")))
}
