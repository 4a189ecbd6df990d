//! The services of an agent on a simulated box, called with request bodies as from HTTP/2.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use holdfast::device::Device;
use holdfast::dhcp::LostLeases;
use holdfast::files::Files;
use holdfast::gnsi::{Gnsi, TlsProfiles};
use holdfast::northbound::{self, IgnoredSubscriptions};
use holdfast::packages::Packages;
use holdfast::probing::ProbeService;
use holdfast::reboot::{RebootScope, Reboots};
use holdfast::settings::{TlsSettings, UnknownPaths};
use holdfast::slots::Slots;
use holdfast::software::{RunningVersion, Software};
use holdfast::users::Users;
use holdfast_base::{AuthMethod, Caller, Role};
use holdfast_config::{Models, Namespace};
use holdfast_core::{Core, Parts};
use holdfast_platform::probe::Probes;
use holdfast_platform::transport::{SimulatedKernel, Transport};
use holdfast_store::Store;
use http_body_util::{BodyExt, Full};
use tempfile::TempDir;
use tokio::runtime::{self, Runtime};
use tokio::time::timeout;
use tonic::body::Body;
use tonic::service::Routes;
use tower::ServiceExt;

use crate::memory;

/// Time limit of an answer, enough for the largest requests on a busy machine without optimisation.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Silence after which a stream that has begun to answer is closed.
const SILENCE: Duration = Duration::from_millis(100);
/// Frames of a stream that are read.
const FRAMES: usize = 256;
/// Bytes of memory that any call may take: an answer of the largest size while it is made, with a margin.
const BOUND: usize = 512 << 20;
/// Additional bytes of memory for each byte of the request: messages of two bytes become structures.
const BOUND_FOR_EACH_OCTET: usize = 100;

/// Bytes of a request that a failure shows.
const SHOWN: usize = 256;

/// Panics of all threads, each with its place, since the output of other threads than the test's own is not shown.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// The services. The lock admits one call at a time, because its memory is measured.
static RIG: LazyLock<Mutex<Rig>> = LazyLock::new(|| Mutex::new(Rig::start()));

struct Rig {
    runtime: Runtime,
    routes: Routes,
    _core: Core,
    _folder: TempDir,
}

impl Rig {
    fn start() -> Self {
        let default_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string());
            default_hook(info);
        }));
        let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        let folder = TempDir::new().unwrap();
        let (core, routes) = runtime.block_on(agent(&folder));
        Self { runtime, routes, _core: core, _folder: folder }
    }

    /// Sends a request and reads its answer, or a part of it.
    async fn answer(&self, method: &str, body: Bytes) {
        let mut request = http::Request::post(format!("http://box{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Body::new(Full::new(body)))
            .unwrap();
        let name = "fuzz".into();
        let source = AuthMethod::Password;
        request.extensions_mut().insert(Caller {
            name,
            role: Role::Admin,
            auth_method: source,
            peer: None,
        });
        let answer = timeout(ANSWER_TIMEOUT, self.routes.clone().oneshot(request)).await;
        let response = answer.expect("an answer begins in time").unwrap();
        let mut is_told = response.headers().contains_key("grpc-status");
        let mut body = response.into_body();
        for frame in 0..FRAMES {
            let patience = if frame == 0 { ANSWER_TIMEOUT } else { SILENCE };
            match timeout(patience, body.frame()).await {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    frame.unwrap();
                    is_told = true;
                }
                Err(_) if is_told => break,
                Err(_) => panic!("{method}: no answer within {ANSWER_TIMEOUT:?}"),
            }
        }
        assert!(is_told, "{method}: neither an answer nor a status");
    }
}

async fn agent(folder: &TempDir) -> (Core, Routes) {
    let kernel = SimulatedKernel::new(&["eth0", "eth1"]);
    kernel.install("usr/sbin/sshd");
    kernel.add_account("alice", "!");
    let (store, loaded) = Store::open(folder.path()).unwrap();
    let (mut transport, events) = kernel.connect();
    transport.retrieve();
    let models = Arc::new(Models::load().unwrap());
    let address = IpAddr::from([127, 0, 0, 1]);
    let profiles = TlsProfiles::new(
        TlsSettings::default(),
        folder.path().to_owned(),
        &[address],
        &BTreeMap::new(),
    )
    .unwrap();
    let users = Users::new(loaded.users.clone(), store.clone()).unwrap();
    let artefacts = loaded.artefacts.clone();
    let reboots = Reboots::new(&loaded.notes, store.clone(), RebootScope::System);
    let gnsi = Gnsi::new(
        &models,
        &users,
        &store,
        &artefacts,
        folder.path(),
        profiles.clone(),
        holdfast::northbound::pathz_draft,
    )
    .unwrap()
    .with_undertakings(reboots.undertakings().clone());
    let slots = Slots::default();
    let running = RunningVersion::certain("1.0");
    let software = Software::new(slots.clone(), running, "first".into(), store.clone(), &artefacts);
    // Its readers go further than those of an agent that refuses such paths.
    let ignored = IgnoredSubscriptions::new(&models.native, UnknownPaths::Ignore).unwrap();
    let ignored = Arc::new(ignored);
    let mut polled = gnsi.polled();
    polled.push(ignored.clone());
    let parts = Parts {
        models,
        transport: Box::new(transport),
        events,
        polled,
        profiles: Some(Arc::new(profiles)),
        settings_check: None,
        store,
        loaded,
        grpc_services: &[],
        services: None,
        handlers: None,
        factory: None,
        software_version: "1.0".into(),
        credential_source: None,
        undertakings: reboots.undertakings().clone(),
    };
    let core = Core::start(parts).await.unwrap();
    gnsi.begin(&core.handle(), core.handle().switch(Namespace::Gnsi)).await;
    let packages = Packages::new(folder.path(), slots);
    let device = Device {
        reboots,
        probes: ProbeService::new(Probes::here()),
        packages,
        software,
        files: Files::new(folder.path()),
        lost_leases: LostLeases::default(),
    };
    let routes = northbound::routes(
        core.handle(),
        device,
        &gnsi,
        northbound::RouteParts::without_agent(ignored),
    )
    .await
    .unwrap();
    (core, routes)
}

/// Calls a method with the message of `make`, and checks that it answers without a panic and within the memory bounds.
/// One thread at a time runs this, from the making of the message to its end, because memory is counted for the whole
/// process.
pub(crate) fn call(method: &str, make: impl FnOnce() -> Vec<u8>) {
    // A failed assertion of an earlier call leaves the services intact.
    let rig = RIG.lock().unwrap_or_else(PoisonError::into_inner);
    let message = make();
    let mut body = BytesMut::new();
    body.put_u8(0); // not compressed
    body.put_u32(u32::try_from(message.len()).unwrap());
    body.put_slice(&message);
    drop(message);
    let octets = body.len();
    let body = body.freeze();
    let sent = body.slice(..octets.min(SHOWN));
    let ((), most) = memory::peak_during(|| rig.runtime.block_on(rig.answer(method, body)));
    let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!(panics.is_empty(), "{method}: a task panicked: {panics:?}");
    let bound = BOUND + octets * BOUND_FOR_EACH_OCTET;
    assert!(most <= bound, "{method}: {most} bytes of memory for a request of {octets}: {sent:x?}");
}
