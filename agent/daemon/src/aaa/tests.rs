//! Permissions that a change revokes and that it leaves, and messages that are too large.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use holdfast_base::{Clock, Role};
use holdfast_config::Models;
use holdfast_config::limits::{CALLER_ANSWERS, ERROR_TEXT, PLAIN_MESSAGE_SIZE, READ_MESSAGE_SIZE};
use holdfast_security::authz::{InstalledPolicy, Upload};
use holdfast_security::credentialz::CryptHash;
use holdfast_store::Store;
use http::HeaderMap;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use rcgen::{CertificateParams, DnType};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::ServiceExt;

use super::*;
use crate::auth::{Authenticator, CertificateTrust, Credentials};
use crate::gnsi::{Gnsi, TlsProfiles};
use crate::northbound::tests::certz::rig::Authority;
use crate::settings::ImpersonationPolicy;
use crate::tls::{Peer, PeerCertificate};
use crate::users::{Password, Users};

const SUBSCRIBE: &str = "/gnmi.gNMI/Subscribe";
const ROTATE: &str = "/gnsi.authz.v1.Authz/Rotate";
const RECORDS: &str = "/gnsi.acctz.v1.AcctzStream/RecordSubscribe";
const WATCH: &str = "/grpc.health.v1.Health/Watch";
/// Passwords `secret` and `other` as crypt(3) hashes.
const SECRET: &str = "$1$saltsalt$9xy1btjgzLYfb7hivXtC//";
const OTHER: &str = "$1$saltsalt$d7LNQ2MbR/sz/hgJ/B94y/";

/// Users, policies and profiles without a box around them.
struct Rig {
    users: Users,
    gnsi: Gnsi,
    authenticator: Authenticator,
    root: Authority,
    _folder: TempDir,
}

impl Rig {
    /// A box that knows ada, an administrator whose password is `secret`, and certificates of an authority.
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let (store, loaded) = Store::open(folder.path()).unwrap();
        let models = Arc::new(Models::load().unwrap());
        let root = Authority::new("root");
        let ca = folder.path().join("clients.pem");
        std::fs::write(&ca, &root.pem).unwrap();
        let began = Instant::now();
        let now = UnixTime::now().as_secs();
        let clock = Clock::of(move || {
            UnixTime::since_unix_epoch(Duration::from_secs(now) + began.elapsed())
        });
        let profiles = TlsProfiles::of_clients(folder.path(), ca, clock);
        let users = Users::new(loaded.users, store.clone()).unwrap();
        let gnsi = Gnsi::new(
            &models,
            &users,
            &store,
            &loaded.artefacts,
            folder.path(),
            profiles,
            crate::northbound::pathz_draft,
        )
        .unwrap();
        let trust =
            CertificateTrust { role: Role::ReadOnly, impersonation: ImpersonationPolicy::Anyone };
        let authenticator = Authenticator::new(users.clone(), trust, gnsi.clone());
        let rig = Self { users, gnsi, authenticator, root, _folder: folder };
        rig.change("user ada admin secret").await;
        rig
    }

    /// Begins a call of ada with her password, or of the holder of this certificate.
    async fn call(&self, path: &str, certificate: Option<PeerCertificate>) -> CallPermission {
        let credentials = match certificate {
            Some(_) => Credentials::default(),
            None => Credentials {
                name: Some("ada".into()),
                password: Some(Password::new("secret").unwrap()),
            },
        };
        let peer = Peer::of(([127, 0, 0, 1], 1).into(), certificate);
        let login = self.authenticator.login(credentials, &peer).await.unwrap();
        let authenticator = self.authenticator.clone();
        self.permission(path, CallOrigin::Login { authenticator, login, peer })
    }

    /// The call of a process on the socket for handlers.
    fn call_of_process(&self, path: &str, name: &str) -> CallPermission {
        let auth_method = AuthMethod::Local { uid: 7 };
        let caller = Caller { name: name.into(), role: Role::ReadOnly, auth_method, peer: None };
        let epoch = self.gnsi.access().number();
        self.permission(path, CallOrigin::Process { caller, epoch })
    }

    fn permission(&self, path: &str, by: CallOrigin) -> CallPermission {
        CallPermission::of_call(Call {
            gnsi: self.gnsi.clone(),
            by,
            path: path.to_owned(),
            rules: Methods::new().rules(path),
            headers: HeaderMap::new(),
        })
    }

    /// Body of a request to `path`, in a call with this permission.
    fn request_body(&self, path: &str, body: Body, permission: CallPermission) -> RequestBody {
        let layer = Layer::new(self.authenticator.clone(), self.gnsi.clone());
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let record = Arc::new(layer.record(&request));
        let frames = Frames::new(layer.methods.rules(path).message_limit, ExceededLimit::default());
        RequestBody::new(body, record, Revocation::of(permission), frames)
    }

    /// Has ada call a service behind the layer that reads the whole request and ends with `trailers`. Returns the status, and
    /// the bytes that the service has read, 0 after an error.
    async fn request(&self, path: &str, octets: Vec<u8>, trailers: Status) -> (Status, usize) {
        let layer = Layer::new(self.authenticator.clone(), self.gnsi.clone());
        Self::request_through(&layer, path, octets, trailers).await
    }

    async fn request_through(
        layer: &Layer,
        path: &str,
        octets: Vec<u8>,
        trailers: Status,
    ) -> (Status, usize) {
        let read = Arc::new(OnceLock::new());
        let reads = read.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let reads = reads.clone();
            let trailers = trailers.clone();
            async move {
                assert!(!request.headers().contains_key("password"));
                let got = request.into_body().collect().await.map(|all| all.to_bytes().len());
                reads.set(got.unwrap_or(0)).unwrap();
                let mut headers = HeaderMap::new();
                trailers.add_header(&mut headers).unwrap();
                let end = Ok::<_, Status>(Frame::<Bytes>::trailers(headers));
                let body = StreamBody::new(tokio_stream::once(end));
                Ok::<_, Infallible>(Response::new(Body::new(body)))
            }
        });
        let service = tower::Layer::layer(layer, service);
        let body = Body::new(Full::new(Bytes::from(octets)).map_err(|never| match never {}));
        let request = Request::builder().uri(path);
        let request = request.header("username", "ada").header("password", "secret");
        let request = request.extension(peer());
        let response = service.oneshot(request.body(body).unwrap()).await.unwrap();
        let refused = Status::from_header_map(response.headers());
        let body = response.into_body().collect().await.unwrap();
        let answered = body.trailers().and_then(Status::from_header_map);
        (refused.or(answered).unwrap(), read.get().copied().unwrap_or(0))
    }

    /// Certificate of eve that is valid for some seconds.
    fn eve(&self, seconds: i64) -> PeerCertificate {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "eve");
        params.not_after = OffsetDateTime::now_utc() + time::Duration::seconds(seconds);
        let pem = self.root.signed(&params).certificate;
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        PeerCertificate::of_chain(&[der]).unwrap()
    }

    /// Makes one change that decides about callers, written as words.
    async fn change(&self, text: &str) {
        let words: Vec<&str> = text.split(' ').collect();
        match words[..] {
            ["nothing"] => {}
            ["user", name, role, password] => {
                let password = Some(Password::new(password).unwrap());
                self.users.set(name.into(), role.parse().unwrap(), password).await.unwrap();
            }
            ["delete", name] => self.users.delete(&name.into()).await.unwrap(),
            ["give", name, hash] => {
                let hash = CryptHash::parse(hash).unwrap();
                self.users.set_gnsi_passwords(BTreeMap::from([(name.into(), hash)]));
            }
            ["give-nothing"] => self.users.set_gnsi_passwords(BTreeMap::new()),
            ["keep-given"] => self.users.mark_final(),
            ["try-policy", caller, rpc] => {
                self.gnsi.authz.enforce(&Some(Arc::new(policy(caller, rpc))));
            }
            ["try-last-policy"] => drop(self.gnsi.authz.enforce(&self.gnsi.authz.last())),
            ["keep-policy"] => self.gnsi.authz.mark_final(&self.gnsi.authz.in_force()),
            _ => panic!("no such change: {text}"),
        }
    }
}

/// Policy with one rule: it allows this caller this RPC.
fn policy(caller: &str, rpc: &str) -> InstalledPolicy {
    let text = serde_json::json!({"name": "policy", "allow_rules": [{
        "name": "rule", "source": {"principals": [caller]}, "request": {"paths": [rpc]}}]});
    let text = text.to_string();
    Upload { version: "v".into(), created_on: 1, text }.install().unwrap()
}

fn code(answer: Result<(), Status>) -> Result<(), Code> {
    answer.map_err(|status| status.code())
}

#[tokio::test]
async fn a_call_goes_on_as_long_as_its_caller_could_begin_it() {
    let gone = Err(Code::Unauthenticated);
    let denied = Err(Code::PermissionDenied);
    for (changes, path, want) in [
        ("nothing", SUBSCRIBE, Ok(())),
        ("user bob admin else", SUBSCRIBE, Ok(())),
        ("user bob admin else, delete bob", ROTATE, Ok(())),
        ("delete ada", SUBSCRIBE, gone),
        ("delete ada", WATCH, gone),
        ("delete ada, user ada admin other", SUBSCRIBE, gone),
        ("user ada admin other", SUBSCRIBE, gone),
        // The same password set again is not a change.
        ("user ada admin secret", ROTATE, Ok(())),
        ("user ada read-only secret", SUBSCRIBE, Ok(())),
        ("user ada read-only secret", WATCH, Ok(())),
        ("user ada read-only secret", ROTATE, denied),
        ("user ada read-only secret", RECORDS, denied),
        // A password on trial revokes no permission.
        (&format!("give ada {OTHER}"), ROTATE, Ok(())),
        (&format!("give ada {OTHER}, give-nothing"), ROTATE, Ok(())),
        (&format!("give ada {OTHER}, keep-given"), ROTATE, gone),
        (&format!("give bob {OTHER}, keep-given"), ROTATE, Ok(())),
        ("try-policy ada *", SUBSCRIBE, Ok(())),
        ("try-policy ada *, keep-policy", SUBSCRIBE, Ok(())),
        ("try-policy ada *, keep-policy, try-policy ada *, keep-policy", SUBSCRIBE, Ok(())),
        ("try-policy ada /gnmi.gNMI/Get", SUBSCRIBE, Ok(())),
        ("try-policy ada /gnmi.gNMI/Get, try-last-policy", SUBSCRIBE, Ok(())),
        ("try-policy ada /gnmi.gNMI/Get, keep-policy", SUBSCRIBE, denied),
        ("try-policy ada /gnmi.gNMI/*, keep-policy", SUBSCRIBE, Ok(())),
        ("try-policy ada /gnmi.gNMI/*, keep-policy", ROTATE, denied),
        ("try-policy bob *, keep-policy", SUBSCRIBE, denied),
    ] {
        let rig = Rig::new().await;
        let permission = rig.call(path, None).await;
        assert_eq!(code(permission.check()), Ok(()));
        for change in changes.split(", ") {
            rig.change(change).await;
        }
        assert_eq!(code(permission.check()), want, "{changes}: {path}");
        assert_eq!(code(permission.recheck()), want, "{changes}: {path}");
        assert_eq!(permission.revocation().map(|status| status.code()), want.err());
    }
}

#[tokio::test]
async fn a_call_of_a_process_goes_on_as_long_as_the_policy_permits_it() {
    const ATTACH: &str = "/holdfast.services.v1.Handler/Attach";
    for (changes, want) in [
        ("delete ada", Ok(())),
        ("try-policy www-data *, keep-policy", Ok(())),
        ("try-policy ada *, keep-policy", Err(Code::PermissionDenied)),
    ] {
        let rig = Rig::new().await;
        let permission = rig.call_of_process(ATTACH, "www-data");
        assert_eq!(code(permission.check()), Ok(()));
        for change in changes.split(", ") {
            rig.change(change).await;
        }
        assert_eq!(code(permission.check()), want, "{changes}");
    }
}

#[tokio::test]
async fn calls_begun_with_a_trial_password_end_at_its_rollback() {
    let rig = Rig::new().await;
    rig.change("user ada admin other").await;
    rig.change(&format!("give ada {SECRET}")).await;
    let permission = rig.call(SUBSCRIBE, None).await; // with `secret`
    assert_eq!(code(permission.check()), Ok(()));
    rig.change("give-nothing").await;
    assert_eq!(code(permission.check()), Err(Code::Unauthenticated));
}

#[tokio::test]
async fn a_call_that_ends_by_itself_is_not_cut() {
    let rig = Rig::new().await;
    let permission = rig.call(ROTATE, None).await;
    permission.recheck().unwrap();
    permission.allow_completion();
    rig.change("delete ada").await;
    assert_eq!(code(permission.check()), Ok(()));
    assert!(permission.revocation().is_none());
}

#[tokio::test]
async fn a_certificate_of_a_call_counts_until_it_expires() {
    let rig = Rig::new().await;
    let permission = rig.call(SUBSCRIBE, Some(rig.eve(100))).await;
    let other = rig.call(SUBSCRIBE, Some(rig.eve(100_000))).await;
    tokio::time::pause();
    let mut revoked = std::pin::pin!(permission.clone().wait_revoked());
    assert!(timeout(Duration::from_secs(98), &mut revoked).await.is_err());
    assert_eq!(code(permission.check()), Ok(()));
    // The clock of the test may be anywhere within its second.
    let status = timeout(Duration::from_secs(5), &mut revoked).await.unwrap();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    assert!(status.message().contains("certificate"), "{status}");
    // A call on the same connection is refused, though nothing has changed but the time.
    assert_eq!(code(permission.recheck()), Err(Code::Unauthenticated));
    assert_eq!(code(other.check()), Ok(()));
    // The role of certificates has not changed, so a longer certificate still gets in.
    assert_eq!(code(rig.call(SUBSCRIBE, Some(rig.eve(100_000))).await.check()), Ok(()));
}

#[tokio::test]
async fn a_request_whose_caller_goes_is_not_read_to_its_end() {
    let rig = Rig::new().await;
    let (sent, frames) = mpsc::channel(1);
    let frames = StreamBody::new(ReceiverStream::new(frames));
    let permission = rig.call("/gnmi.gNMI/Set", None).await;
    let mut body = rig.request_body("/gnmi.gNMI/Set", Body::new(frames), permission);
    let part = || Ok::<_, Status>(Frame::data(Bytes::from_static(b"part")));
    sent.send(part()).await.unwrap();
    assert!(body.frame().await.unwrap().unwrap().is_data());

    rig.change("delete ada").await;
    sent.send(part()).await.unwrap();
    let cut = body.frame().await.unwrap().unwrap_err();
    assert_eq!(cut.code(), Code::Unauthenticated);
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn a_request_that_waits_learns_that_its_caller_is_gone() {
    let rig = Rig::new().await;
    let (_sent, frames) = mpsc::channel::<Result<Frame<Bytes>, Status>>(1);
    let frames = StreamBody::new(ReceiverStream::new(frames));
    let permission = rig.call(ROTATE, None).await;
    let mut body = rig.request_body(ROTATE, Body::new(frames), permission);
    let (cut, ()) = tokio::join!(body.frame(), async {
        tokio::task::yield_now().await;
        rig.change("user ada read-only secret").await;
    });
    assert_eq!(cut.unwrap().unwrap_err().code(), Code::PermissionDenied);
}

/// The peer of all requests of these tests.
fn peer() -> Peer {
    Peer::of(([127, 0, 0, 1], 1).into(), None)
}

fn frame(length: usize) -> Vec<u8> {
    [&[0], &u32::try_from(length).unwrap().to_be_bytes()[..]].concat()
}

#[tokio::test]
async fn a_stream_that_announces_too_much_ends_with_the_name_of_the_limit() {
    let rig = Rig::new().await;
    let fine = Status::ok("");
    let octets = [frame(3), vec![1, 2, 3]].concat();
    let (status, read) = rig.request(SUBSCRIBE, octets, fine.clone()).await;
    assert_eq!((status.code(), read), (Code::Ok, 8));
    for (method, length, limit) in [
        ("/gnmi.gNMI/Get", 64 << 20, &READ_MESSAGE_SIZE),
        (SUBSCRIBE, 2 << 20, &READ_MESSAGE_SIZE),
        ("/gnoi.os.OS/Install", (4 << 20) + 1, &PLAIN_MESSAGE_SIZE),
    ] {
        let (status, read) = rig.request(method, frame(length), fine.clone()).await;
        assert_eq!((status.code(), read), (Code::ResourceExhausted, 0), "{method}");
        assert!(status.message().contains(limit.name), "{method}: {status:?}");
    }
    let (status, _) = rig.request("/gnmi.gNMI/Set", frame(64 << 20), fine).await;
    assert_eq!(status.code(), Code::Ok);
}

#[tokio::test]
async fn a_caller_who_takes_no_answers_may_change_and_not_read() {
    let rig = Rig::new().await;
    let layer = Layer::new(rig.authenticator.clone(), rig.gnsi.clone());
    let auth_method = AuthMethod::Password;
    let ada = Caller { name: "ada".into(), role: Role::Admin, auth_method, peer: None };
    let call = async |path| {
        let octets = [frame(3), vec![1, 2, 3]].concat();
        Rig::request_through(&layer, path, octets, Status::ok("")).await
    };
    let ada = layer.budgets.of(&ada, Some(&peer()));
    let held = ada.hold_answer(CALLER_ANSWERS.figure).unwrap();
    for reading in ["/gnmi.gNMI/Get", SUBSCRIBE] {
        let (status, read) = call(reading).await;
        assert_eq!((status.code(), read), (Code::ResourceExhausted, 0), "{reading}");
        assert!(status.message().contains(CALLER_ANSWERS.name), "{status:?}");
    }
    let set = "/gnmi.gNMI/Set";
    assert_eq!(call(set).await.0.code(), Code::Ok);
    drop(held);
    for path in ["/gnmi.gNMI/Get", SUBSCRIBE, set] {
        assert_eq!(call(path).await.0.code(), Code::Ok, "{path}");
    }
    ada.hold_answer(CALLER_ANSWERS.figure).expect("answers that were taken count no more");
}

#[tokio::test]
async fn statuses_of_services_have_texts_of_bounded_length() {
    let rig = Rig::new().await;
    let long = Status::not_found("x".repeat(ERROR_TEXT.figure * 2));
    let (status, _) = rig.request(SUBSCRIBE, Vec::new(), long).await;
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(status.message().len(), ERROR_TEXT.figure);
}
