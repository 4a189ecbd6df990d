//! One run of the agent: its parts are started in order, and end in the opposite order.
//!
//! The store comes first, because the agent is nothing without it. Then the lock of the network namespace, which keeps other agents
//! out of it. Then the local socket, so that commands of the box can
//! wait for the rest. Then the core, which brings the box to its configuration: nothing that only clients need may keep the
//! box from it ([decision 050](../../decisions/050-configuration-before-clients.md)). Only then are the other sockets
//! opened, requests answered and the service manager notified.

use std::{
    error::Error,
    io,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use axum::Router;
use holdfast_base::{ErrorChain, now_ns};
use holdfast_config::services::Services;
use holdfast_config::{MissingNode, Models, ModelsError, Namespace};
use holdfast_core::{Core, CoreHandle, CredentialSource, Datastore, Parts, StartError};
use holdfast_introspect::tcp::{self, IntrospectToken, TokenGuard};
use holdfast_platform::hostname::HostnameWriter;
use holdfast_platform::namespace_lock::{NamespaceLock, NamespaceLockError};
use holdfast_platform::netns::{Netns, NetnsError, NetnsSetting};
use holdfast_platform::{BoxClock, LinkRates, Platform, PlatformError, PlatformSettings};
use holdfast_store::accounts::AccountingLog;
use holdfast_store::{ArtefactTable, Journal, JournalKind, Ledger, Store, StoreError, StoredState};
use tokio::{net::TcpListener, runtime, sync::oneshot, time::timeout};
use tokio_util::task::AbortOnDropHandle;
use tonic::service::Routes;
use tower::Layer as _;
use tracing::{error, info, warn};

use crate::introspection::RunningAgent;
use crate::{
    aaa,
    auth::{Authenticator, CertificateTrust},
    bootz,
    config_file::SettingsSource,
    device::Device,
    dhcp::LostLeases,
    faults::{self, AlarmPlaces, FaultParts, FaultSettingsCheck},
    files::Files,
    forwarding::ForwardingState,
    gnsi::{Gnsi, TlsProfiles},
    hardware::{Components, KernelFolders, Processes, Resources, Sensors},
    listeners::{ListenerKind, Listeners},
    local::{self, CallRights, Inspector, LocalServer, Look, UserDependencies},
    logging::{self, LogFilter},
    northbound::{self, RouteParts},
    packages::{PackageError, Packages},
    privileges,
    probing::ProbeService,
    process::{self, SignalAction, Signals},
    reboot::{RebootScope, Reboots},
    server,
    service_socket::{self, ServiceSocket},
    services::{
        self, ActionResources, Handlers, OfferedPackages, PackageInstaller, PackageSigners,
        ServiceError,
    },
    settings::{ImpersonationPolicy, ListenSocket, RunSettings, TlsSettings},
    slots::Slots,
    software::{self, Software},
    systemd,
    tls::{Incoming, TlsError},
    upkeep::{self, ListenerLeaves},
    users::{Password, PasswordError, Users},
    watchdog,
};

/// Time for a command that writes to the database to give it back: most of it goes into the hash of a password.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two attempts to open the database.
const DATABASE_RETRY: Duration = Duration::from_millis(20);
/// Time for RPCs under way when the agent ends; subscriptions never end by themselves.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(300);
/// Time for a change under way to end.
const CORE_TIMEOUT: Duration = Duration::from_millis(200);
/// Time for the store to close its file after that.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(300);
/// Time to write the history of this run for the next one.
const JOURNAL_TIMEOUT: Duration = Duration::from_millis(200);
/// Time to roll back rotations that are not final; a reload of the SSH server takes longest.
const ROLL_BACK_TIMEOUT: Duration = Duration::from_secs(2);
/// Time to end the log of alarms.
const FAULTS_TIMEOUT: Duration = Duration::from_millis(500);
/// Time to write the last accounting records.
const ACCOUNTS_TIMEOUT: Duration = Duration::from_millis(200);
/// Time for threads to end, before the process exits without them.
const THREADS_TIMEOUT: Duration = Duration::from_millis(100);

/// Reason for which the agent does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot set up the users")]
    Users(#[from] PasswordError),
    #[error("cannot read the factory configuration `{}`", path.display())]
    Factory { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Packages(#[from] PackageError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot start {what}")]
    Start { what: &'static str, source: io::Error },
    #[error("cannot load the models")]
    Models(#[from] ModelsError),
    #[error("cannot load the packages of services")]
    Services(#[from] ServiceError),
    #[error("the native model lacks a node")]
    Model(#[from] MissingNode),
    #[error("the native model has no gRPC server")]
    NoServer,
    #[error("cannot manage the box")]
    Platform(#[from] PlatformError),
    #[error("cannot reach the network of the box")]
    Netns(#[from] NetnsError),
    #[error(transparent)]
    NamespaceLock(#[from] NamespaceLockError),
    #[error("cannot start from the stored configuration")]
    Core(#[from] StartError),
    #[error(
        "{0} has ended unexpectedly, and the agent cannot go on without it; see the log for the reason"
    )]
    Ended(&'static str),
}

/// Runs until a signal or a client ends the process.
///
/// # Errors
/// When a part cannot be started, or ends unexpectedly.
pub fn run(
    settings: RunSettings,
    source: &SettingsSource,
) -> Result<(RunEnd, HostnameWriter), RunError> {
    let log = logging::start(settings.log_format.is_json(), settings.log_level);
    let hostname = privileges::drop_capabilities(&settings)
        .map_err(|source| RunError::Start { what: "with reduced privileges", source })?;
    let configuration = source.file().map(|file| file.display().to_string()).unwrap_or_default();
    info!(version = env!("CARGO_PKG_VERSION"), state = %settings.state.path().display(), configuration, "starting");
    let (store, loaded) = open_store(settings.state.path())?;
    let runtime = runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|source| RunError::Start { what: "the runtime", source })?;
    let ended = runtime.block_on(serve(&settings, source, &log, &hostname, &store, loaded));
    runtime.block_on(close(&store));
    runtime.shutdown_timeout(THREADS_TIMEOUT);
    if ended.is_ok() {
        info!("ended");
    }
    Ok((ended?, hostname))
}

/// Opens the database, and waits for a command that has it, such as `holdfast user set`.
#[allow(
    clippy::disallowed_methods,
    reason = "nothing tells that another process has closed the file"
)]
fn open_store(folder: &Path) -> Result<(Store, StoredState), StoreError> {
    let deadline = Instant::now() + DATABASE_TIMEOUT;
    loop {
        match Store::open(folder) {
            Err(StoreError::Locked { .. }) if Instant::now() < deadline => {
                thread::sleep(DATABASE_RETRY);
            }
            opened => return opened,
        }
    }
}

/// Reason for which a run ended in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// A signal asked for the end.
    Signal,
    /// A reboot was requested, of the agent or of the box.
    Reboot(RebootScope),
}

/// The core, the services on top of it, and background tasks.
struct StartedAgent {
    core: Core,
    routes: Routes,
    /// Additional paths on the local socket.
    local_routes: Router,
    /// Routes that ask for the rights of their caller.
    user_routes: Router,
    /// Task of the bootstrap client, which ends when this is dropped.
    bootz: Option<AbortOnDropHandle<()>>,
    /// Paths of the local socket that may be served on TCP as well.
    introspection: Router,
    /// Leaves that show where the services are reached.
    listener_leaves: ListenerLeaves,
    journal: Journal,
    gnsi: Gnsi,
    handlers: Handlers,
    /// The socket for handlers.
    _service_socket: Option<ServiceSocket>,
    /// Tasks that show the bound TLS profile, and that count changes of permissions.
    _following: [AbortOnDropHandle<()>; 2],
    /// The task that shows ports among the parts of the box.
    _showing_ports: AbortOnDropHandle<()>,
    /// The task that looks for faults.
    looking_for_faults: AbortOnDropHandle<()>,
}

async fn serve(
    settings: &RunSettings,
    source: &SettingsSource,
    log: &LogFilter,
    hostname: &HostnameWriter,
    store: &Store,
    mut loaded: StoredState,
) -> Result<RunEnd, RunError> {
    let mut signals = Signals::listen()
        .map_err(|source| RunError::Start { what: "listening to signals", source })?;
    let netns = Netns::open(&netns_setting(settings))?;
    let version = env!("CARGO_PKG_VERSION");
    let lock = NamespaceLock::take(&netns, version, &absolute(settings.state.path())).await?;
    let _lock = AbortOnDropHandle::new(tokio::spawn(lock.answer()));
    let listeners = Listeners::default();
    let (local, served_tx) = local::start(&settings.state.own_socket(), &listeners);
    listeners.tried().await;
    let users = Users::new(std::mem::take(&mut loaded.users), store.clone())?;
    let mut is_password_set = set_admin_password(settings, &users).await;
    if settings.certificate_speaks_for == ImpersonationPolicy::Anyone {
        warn!(
            "--certificate-speaks-for anyone: every client certificate may act as any user without a password, whatever its role"
        );
    }
    if users.is_empty() {
        warn!(
            "there are no users: logins are refused until `holdfast user set NAME --role admin` creates one"
        );
    }
    let stored = loaded.artefacts.remove(&ArtefactTable::Certz).unwrap_or_default();
    let state_dir = settings.state.path().to_owned();
    let tls = tls_settings(settings);
    let addresses: Vec<_> = settings.listen.iter().map(|address| address.ip).collect();
    let profiles = TlsProfiles::new(tls, state_dir, &addresses, &stored)?;
    drop(stored); // it holds keys

    let ledger = Ledger::open(settings.state.path())?;
    let accounts = ledger.keep(settings.accounting_history, now_ns())?;
    let reboots = Reboots::new(&loaded.notes, store.clone(), settings.reboot.scope());
    let running = tokio::select! {
        running = start_core((settings, hostname), store, loaded, &listeners, &profiles, &reboots, (&users, &accounts)) => running?,
        () = signals.end() => return Ok(RunEnd::Signal), // bringing a large box to its configuration takes a while
    };
    if let Some(configured) = running.core.handle().users() {
        users.follow(configured);
    }
    let served = local::LocalDependencies {
        users: users.clone(),
        accounts: accounts.clone(),
        more: running.local_routes,
    };
    let _ended_already = served_tx.send(served);
    let _user_socket = settings.user_socket.as_deref().map(|path| {
        let served = UserDependencies {
            users: users.clone(),
            rights: CallRights::new(&running.gnsi),
            accounts: accounts.clone(),
            routes: running.user_routes.clone(),
        };
        local::start_for_users(path, &listeners, served)
    });
    let token = settings.introspect_token;
    let routes = running.introspection;
    let _introspection = settings
        .introspect
        .map(|address| introspect(address, settings.state.path(), token, routes, &listeners));
    let certificates = CertificateTrust {
        role: settings.certificate_role.clone(),
        impersonation: settings.certificate_speaks_for,
    };
    let authenticator = Authenticator::new(users.clone(), certificates, running.gnsi.clone());
    let (stop_tx, stop_rx) = oneshot::channel::<()>();
    listeners.tried().await; // what reaches the port finds the sockets of the box, that of handlers among them
    let incoming = Incoming::open(ListenSocket::of(&settings.listen), &profiles, &listeners);
    let stop = async move { drop(stop_rx.await) };
    let service =
        aaa::Layer::new(authenticator, running.gnsi.clone()).layer(running.routes.prepare());
    let mut server = tokio::spawn(server::serve(incoming, server::MAX_STREAMS, service, stop));
    listeners.tried().await;
    let _publishing =
        running.listener_leaves.follow(listeners.clone(), running.core.handle()).await;
    let _renewing = upkeep::keep_identity(profiles.clone(), listeners.clone());
    let ready = upkeep::announce(running.core.handle(), listeners.clone(), profiles.clone());
    let _announcing = AbortOnDropHandle::new(tokio::spawn(ready));
    let _feeding = process::watchdog().map(|patience| feed(patience, running.core.handle()));

    let mut vital = VitalParts { core: running.core.handle(), store: store.clone(), local };
    let due = reboots.due();
    tokio::pin!(due);
    let end = loop {
        tokio::select! {
            told = signals.next() => match told {
                SignalAction::Reload => {
                    profiles.reload(read_settings_again(settings, source, log));
                    listeners.retry_now();
                    is_password_set = is_password_set || set_admin_password(settings, &users).await;
                }
                SignalAction::End => break Ok(RunEnd::Signal),
            },
            pending = &mut due => break Ok(RunEnd::Reboot(pending.extent)),
            _ = &mut server => break Err(RunError::Ended("the server")),
            part = vital.ended() => break Err(RunError::Ended(part)),
        }
    };
    // Not before a restart in place: a service manager that is notified of an end kills the process afterwards.
    if !matches!(end, Ok(RunEnd::Reboot(RebootScope::Agent))) {
        process::notify_stopping();
    }
    running.gnsi.rotations.stop(ROLL_BACK_TIMEOUT).await; // while all that a rollback needs is running
    drop(stop_tx);
    if !server.is_finished() && timeout(DRAIN_TIMEOUT, &mut server).await.is_err() {
        server.abort(); // subscriptions were still open
    }
    drop(running.bootz);
    running.handlers.drain(); // changes that wait for them are refused
    // Stopped after the last request, before the store is closed.
    if timeout(CORE_TIMEOUT, running.core.shutdown()).await.is_err() {
        warn!("a change was still under way; the next start rolls it back");
    }
    if timeout(FAULTS_TIMEOUT, running.looking_for_faults).await.is_err() {
        warn!("the log of alarms has no end; who follows it is told what is open");
    }
    tokio::task::block_in_place(|| {
        running.journal.flush(JOURNAL_TIMEOUT);
        accounts.end(ACCOUNTS_TIMEOUT);
    });
    end
}

/// Parts that the agent cannot work without. When one of them ends unexpectedly, the process ends with an error, and
/// the service manager restarts it.
struct VitalParts {
    core: CoreHandle,
    store: Store,
    local: LocalServer,
}

impl VitalParts {
    /// Waits for the first part that ends, and returns its name. Must not be called again after that.
    async fn ended(&mut self) -> &'static str {
        tokio::select! {
            () = self.core.ended() => "the core",
            () = self.store.ended() => "the store",
            () = self.local.ended() => "the local socket",
        }
    }
}

/// Notifies the watchdog of the service manager as long as the core answers.
fn feed(patience: Duration, core: CoreHandle) -> AbortOnDropHandle<()> {
    let beat = move || {
        let core = core.clone();
        async move { core.beat().await.is_ok() }
    };
    AbortOnDropHandle::new(tokio::spawn(watchdog::feed(patience, beat, process::notify_watchdog)))
}

/// Serves introspection on a loopback address, as soon as the socket can be opened.
fn introspect(
    address: SocketAddr,
    state: &Path,
    token: IntrospectToken,
    routes: Router,
    listeners: &Listeners,
) -> AbortOnDropHandle<()> {
    let entry = listeners.add(ListenerKind::Introspection, address.to_string());
    let state = state.to_owned();
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut guard = None;
        let open = || -> Result<TcpListener, io::Error> {
            guard = Some(TokenGuard::load_or_create(&state, token).map_err(io::Error::other)?);
            let socket = std::net::TcpListener::bind(address)?;
            socket.set_nonblocking(true)?;
            TcpListener::from_std(socket)
        };
        let listener = entry.open(open).await;
        if let Some(guard) = guard {
            tcp::serve(listener, guard, routes).await;
        }
    }))
}

/// Starts the platform, the core and the services.
async fn start_core(
    (settings, hostname): (&RunSettings, &HostnameWriter),
    store: &Store,
    loaded: StoredState,
    listeners: &Listeners,
    profiles: &TlsProfiles,
    reboots: &Reboots,
    (users, accounts): (&Users, &AccountingLog),
) -> Result<StartedAgent, RunError> {
    let installed = loaded.artefacts.get(&ArtefactTable::ServicePackages).cloned();
    let installed = installed.unwrap_or_default();
    let alarms = loaded.artefacts.get(&ArtefactTable::Alarms).cloned().unwrap_or_default();
    let models = Arc::new(Models::load()?);
    let trust = &settings.service_trust;
    let revocations = &settings.service_revocations;
    let signers = PackageSigners::read(trust.as_deref(), revocations.as_deref())?;
    let offered = OfferedPackages::read(settings.services.as_deref(), &installed, &signers)?;
    let (types, refused_packages) = offered.tried(settings.state.path()).await.load(models);
    let models = Arc::clone(types.models());
    let netns = netns_setting(settings);
    let gnsi = Gnsi::new(
        &models,
        users,
        store,
        &loaded.artefacts,
        &settings.root,
        profiles.clone(),
        crate::northbound::pathz_draft,
    )?
    .accounting(accounts.clone())
    .with_undertakings(reboots.undertakings().clone());
    let root = settings.root.clone();
    let vault = gnsi.logins.vault();
    let outward = Netns::open(&netns)?;
    let managed = PlatformSettings { netns, root, hostname: hostname.clone(), vault };
    let (platform, events) = Platform::start(&managed)?;
    let counters = Arc::new(platform.collector(&models.native));
    let lacp_ports = Arc::new(platform.lacp_ports(&models.native));
    let lag_speeds = Arc::new(platform.lag_speeds(&models.native));
    let route_table = platform.route_table();
    let slots = Slots::new(settings.image.image_command.clone());
    let packages = Packages::new(settings.state.path(), slots.clone());
    packages.sweep()?;
    let running =
        software::RunningVersion::find(settings.image.image_version.clone(), &slots).await;
    let boot = software::this_boot(settings.reboot.scope(), reboots)
        .map_err(|source| RunError::Start { what: "keeping track of boots", source })?;
    let software = Software::new(slots, running, boot, store.clone(), &loaded.artefacts);
    let device = Device {
        reboots: reboots.clone(),
        probes: ProbeService::new(platform.probes()),
        packages,
        files: Files::new(settings.state.path()),
        software: software.clone(),
        lost_leases: LostLeases::default(),
    };
    let kept = store.clone();
    let store = store.clone();
    let transport = Box::new(platform);
    let listener_leaves = ListenerLeaves::find(&models.native)?;
    let factory = factory(settings, &loaded)?;
    let journal = Journal::open(settings.state.path(), JournalKind::Transactions)?;
    let last_recorded = journal.last().unwrap_or_else(|error| {
        warn!(error = %ErrorChain(&error), "the history of earlier runs cannot be read; numbers of transactions begin anew");
        0
    });
    let loaded = StoredState { last_recorded, ..loaded };
    let credential_source: Option<Arc<dyn CredentialSource>> = Some(Arc::new(gnsi.logins.clone()));
    let unknown = settings.unknown_subscription_paths;
    let ignored = Arc::new(northbound::IgnoredSubscriptions::new(&models.native, unknown)?);
    let mut polled = gnsi.polled();
    polled.push(counters.clone());
    polled.push(Arc::new(LinkRates::new(&models.native, counters)));
    polled.push(Arc::new(BoxClock::new(&models.native)));
    polled.push(lacp_ports);
    polled.push(lag_speeds);
    let bindable = Arc::new(profiles.clone());
    polled.push(ignored.clone());
    let folders = KernelFolders::default();
    polled.push(Arc::new(Sensors::new(&models.native, &folders)?));
    let resources = Arc::new(Resources::new(&models.native, folders.clone())?);
    polled.push(resources.clone());
    polled.push(Arc::new(ForwardingState::new(&models, route_table.clone())?));
    let started = BoxClock::boot_time_ns();
    let processes = Processes::new(&models, folders.clone(), started)?;
    polled.push(Arc::new(processes));
    let components = Components::find(&models.native, &folders, software.running(), started)?;
    let handlers = Handlers::default();
    let settings_check = Arc::new(FaultSettingsCheck::new(&models.native)?);
    let parts = Parts {
        models,
        transport,
        events,
        polled,
        profiles: Some(bindable),
        settings_check: Some(settings_check),
        store,
        loaded,
        grpc_services: northbound::SERVICES,
        software_version: software.running().to_owned(),
        credential_source,
        services: (!types.is_empty()).then(|| Arc::new(types.clone()) as Arc<dyn Services>),
        handlers: Some(Arc::new(handlers.clone())),
        factory,
        undertakings: reboots.undertakings().clone(),
    };
    let core = Core::start(parts).await?;
    core.handle().show_state(resources.entries()).await;
    let showing_ports = components.follow(core.handle()).await;
    let found_in = FaultParts {
        core: core.handle(),
        store: kept.clone(),
        state_folder: settings.state.path().to_owned(),
        journal: Journal::open(settings.state.path(), JournalKind::Alarms)?,
        listeners: listeners.clone(),
        profiles: profiles.clone(),
        software: software.clone(),
        probes: device.probes.probes().clone(),
        lost_leases: device.lost_leases.clone(),
        handlers: handlers.clone(),
        netns: Arc::new(Netns::open(&netns_setting(settings))?),
        refused_packages,
        pathz: Arc::clone(&gnsi.pathz),
    };
    let (faults, looking_for_faults) = faults::start(found_in, &alarms)?;
    let actions = ActionResources {
        core: core.handle(),
        probes: device.probes.probes().clone(),
        undertakings: reboots.undertakings().clone(),
    };
    let folder = settings.state.path();
    services::reconcile(&kept, &installed, &types, &core.handle().configuration()).await?;
    let installer = PackageInstaller::new(actions, handlers.clone(), folder, signers, types);
    gnsi.begin(&core.handle(), core.handle().switch(Namespace::Gnsi)).await;
    let bound = core.handle().certificate_id().ok_or(RunError::NoServer)?;
    let changes = core.handle().access_changes().ok_or(RunError::NoServer)?;
    let following = [gnsi.follow_binding(bound, core.handle()).await, gnsi.follow_access(changes)];
    northbound::resume_activation(&core.handle(), &gnsi, &software).await?;
    let facts = RunningAgent { faults: faults.clone(), refusals: Arc::clone(&gnsi.refusals) };
    let started_ns = now_ns();
    let introspection = holdfast_introspect::routes(
        core.handle(),
        started_ns,
        Some(journal.clone()),
        Some(Arc::new(facts)),
    );
    let look = Look {
        core: core.handle(),
        pathz: Arc::clone(&gnsi.pathz),
        users: users.clone(),
        listeners: listeners.clone(),
        faults: faults.clone(),
        places: Arc::new(AlarmPlaces::find(&core.handle().models().native)?),
        routes: route_table,
        version: software.running().to_owned(),
        started_ns,
    };
    let probes = device.probes.clone();
    let state = settings.state.path();
    let bootz = &settings.bootz;
    let bootz = bootz::start(bootz, state, outward, core.handle(), gnsi.clone(), &device).await;
    let bootz = bootz.unwrap_or_else(|error| {
        error!(error = %ErrorChain(&error), "this box cannot be bootstrapped");
        None
    });
    let (bootz, client) = bootz.unzip();
    let service_socket = settings.service_socket.as_deref();
    let service_socket = service_socket
        .map(|path| service_socket::start(path, handlers.clone(), gnsi.clone(), listeners));
    let rights = CallRights::new(&gnsi);
    let whole_views = introspection
        .clone()
        .merge(local::inspect_routes(Arc::new(Inspector(core.handle()))))
        .merge(local::raise_routes(faults.clone()))
        .merge(local::start_routes(core.handle(), listeners.clone()))
        .merge(local::report_routes(
            core.handle(),
            listeners.clone(),
            profiles.clone(),
            faults.clone(),
        ));
    let user_routes = local::config_routes(core.handle(), &gnsi)
        .merge(local::view_routes(look.clone()))
        .merge(local::probe_routes(probes))
        .merge(local::completion_routes(look.clone()))
        .merge(local::service_routes(core.handle(), installer.clone(), rights.clone()))
        .merge(local::session_routes(faults.clone(), rights.clone()))
        .merge(local::fault_routes(look.clone(), rights))
        .merge(local::showing_everything(whole_views, look));
    Ok(StartedAgent {
        handlers,
        _service_socket: service_socket,
        _following: following,
        _showing_ports: showing_ports,
        looking_for_faults,
        routes: {
            let installer = Some(installer.clone());
            let parts = RouteParts { ignored, installer, faults: Some(faults.clone()) };
            northbound::routes(core.handle(), device, &gnsi, parts).await?
        },
        local_routes: user_routes
            .clone()
            .merge(local::maintenance_routes(core.handle(), reboots.clone()))
            .merge(local::bootz_routes(bootz)),
        user_routes,
        bootz: client,
        introspection,
        listener_leaves,
        journal,
        core,
        gnsi,
    })
}

/// Reads the configuration file again, and sets the level of the log. The answer has the certificates, which are those of
/// the start while the file has mistakes.
fn read_settings_again(
    started: &RunSettings,
    source: &SettingsSource,
    log: &LogFilter,
) -> TlsSettings {
    match source.read_again() {
        Ok((now, waiting)) => {
            log.set_level(now.log_level);
            if !waiting.is_empty() {
                let keys = waiting.join(", ");
                warn!(keys, "settings have changed that take effect with a restart of the agent");
            }
            // The identity of the vendor is that of the bootstrap as well, which reads it at the start.
            TlsSettings { idevid: tls_settings(started).idevid, ..now.tls }
        }
        Err(error) => {
            error!(error = %ErrorChain(&error), "the settings stay as they were");
            tls_settings(started)
        }
    }
}

fn tls_settings(settings: &RunSettings) -> TlsSettings {
    let bootz = &settings.bootz;
    let idevid = bootz.bootz_idevid_cert.clone().zip(bootz.bootz_idevid_key.clone());
    TlsSettings { idevid, ..settings.tls.clone() }
}

fn netns_setting(settings: &RunSettings) -> NetnsSetting {
    settings.netns.clone().map_or(NetnsSetting::Current, NetnsSetting::Given)
}

/// The path from the root, for readers in other folders.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

/// Makes the first line of `--admin-password-file` the password of `admin`. False when that failed, which is logged: the
/// box is configured all the same, and SIGHUP tries again.
async fn set_admin_password(settings: &RunSettings, users: &Users) -> bool {
    let Some(file) = &settings.admin_password_file else { return true };
    warn_of_readable_password(file);
    let set = async || -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(users.set_admin(Password::from_file(file)?).await?)
    };
    let set = set().await.inspect_err(|error| {
        error!(error = %ErrorChain(&**error), "cannot set the password of admin; SIGHUP tries again");
    });
    set.is_ok()
}

fn warn_of_readable_password(file: &Path) {
    let mode = file.metadata().map_or(0, |metadata| metadata.permissions().mode());
    if mode & 0o077 != 0 {
        warn!(file = %file.display(), mode = format!("{:o}", mode & 0o777), "other users of this box can read the password of `admin`");
    }
}

/// Reads the factory configuration. Only a box without any history needs it, so others do without a file that cannot be
/// read.
fn factory(settings: &RunSettings, loaded: &StoredState) -> Result<Option<Vec<u8>>, RunError> {
    let Some(path) = &settings.factory else { return Ok(None) };
    let is_new = loaded.last_transaction == 0;
    match std::fs::read(path).map_err(|error| systemd::explained(path, error)) {
        Ok(text) => Ok(Some(text)),
        Err(source) if is_new => Err(RunError::Factory { path: path.clone(), source }),
        Err(error) => {
            warn!(file = %path.display(), %error, "the factory configuration cannot be read; this box keeps the one it has");
            Ok(None)
        }
    }
}

async fn close(store: &Store) {
    match timeout(CLOSE_TIMEOUT, store.close()).await {
        Ok(Ok(())) | Ok(Err(StoreError::Stopped)) => {}
        Ok(Err(error)) => error!(error = %ErrorChain(&error), "cannot close the database"),
        Err(_) => error!("the disk did not answer in time; what was answered is safe"),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::mpsc;

    use futures::FutureExt;
    use holdfast_platform::transport::SimulatedKernel;

    use super::*;
    use crate::agent_tests::{Agent, BOX};
    use holdfast_store::Database;
    use holdfast_store::faults::Fault;

    async fn agent(folder: &Path) -> Agent {
        Agent::start(&SimulatedKernel::new(&["eth0"]), folder).await
    }

    #[test]
    fn a_start_waits_for_a_command_that_has_the_database() {
        let folder = tempfile::tempdir().unwrap();
        let command = Database::open(folder.path()).unwrap();
        let (opened_tx, opened) = mpsc::channel();
        let path = folder.path().to_owned();
        thread::spawn(move || {
            opened_tx.send(open_store(&path).map(drop)).unwrap();
        });
        assert!(opened.recv_timeout(5 * DATABASE_RETRY).is_err(), "it is still taken");
        drop(command);
        opened.recv().unwrap().unwrap();
    }

    #[tokio::test]
    async fn the_run_ends_with_the_part_that_ends_first() {
        for part in ["the core", "the store", "the local socket"] {
            let folder = tempfile::tempdir().unwrap();
            let agent = agent(folder.path()).await;
            let local = match part {
                "the local socket" => LocalServer::of(async { panic!("as a bug would") }),
                _ => LocalServer::of(pending()),
            };
            let mut vital = VitalParts { core: agent.handle.clone(), store: agent.store(), local };
            let ended = vital.ended();
            tokio::pin!(ended);
            match part {
                "the core" => {
                    assert!(ended.as_mut().now_or_never().is_none(), "everything is at work");
                    let question = agent.handle.inspect(|_| -> () { panic!("as a bug would") });
                    assert!(question.await.is_err());
                }
                "the store" => {
                    assert!(ended.as_mut().now_or_never().is_none(), "everything is at work");
                    agent.store().refuse(Fault::Panic).await.unwrap();
                    assert!(agent.update(BOX).await.is_err());
                }
                _ => {}
            }
            assert_eq!(timeout(Duration::from_secs(30), ended).await, Ok(part));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_core_that_hangs_answers_no_heartbeat() {
        let folder = tempfile::tempdir().unwrap();
        let agent = agent(folder.path()).await;
        agent.handle.beat().await.unwrap();

        let (go_on, released) = std::sync::mpsc::channel::<()>();
        let (begun_tx, begun) = oneshot::channel();
        let core = agent.handle.clone();
        let hanging = tokio::spawn(async move {
            let hung = core.inspect(move |_| {
                begun_tx.send(()).unwrap();
                released.recv().unwrap();
            });
            hung.await.unwrap();
        });
        begun.await.unwrap();
        let beat = agent.handle.beat();
        tokio::pin!(beat);
        assert!(beat.as_mut().now_or_never().is_none(), "the loop stands still");
        go_on.send(()).unwrap();
        beat.await.unwrap();
        hanging.await.unwrap();
    }
}
