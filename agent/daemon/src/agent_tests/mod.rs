//! The whole agent below gRPC on the simulated kernel. Tests that need the core alone are its own.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_config::services::Services;
use holdfast_config::{Models, Namespace};
use holdfast_core::{Core, Datastore, Parts};
use holdfast_platform::probe::Probes;
use holdfast_platform::transport::{SimulatedKernel, Transport};
use holdfast_services::ServiceTypes;
use holdfast_store::{ArtefactTable, Store};
use proptest::test_runner::Config as ProptestConfig;
use tempfile::TempDir;
use tokio_util::task::AbortOnDropHandle;

use crate::device::Device;
use crate::dhcp::LostLeases;
use crate::files::Files;
use crate::gnsi::{Gnsi, TlsProfiles};
use crate::northbound::{IgnoredSubscriptions, resume_activation};
use crate::packages::Packages;
use crate::probing::ProbeService;
use crate::reboot::{RebootScope, Reboots};
use crate::services::{ActionResources, Handlers, PackageInstaller, PackageSigners, reconcile};
use crate::settings::UnknownPaths;
use crate::slots::Slots;
use crate::software::{RunningVersion, Software, this_boot};
use crate::users::Users;

mod config_log;
mod publication;
mod readiness;
pub(crate) mod service_transactions;
mod service_type;
mod services;
mod side_by_side;
mod ssh_users;
mod windows;

pub(crate) use holdfast_core::fixtures::{
    BOX, CoreFixture, caller, copied, memory_folder, routes, turns,
};

pub(crate) use self::service_type::{LINK_UP, TestType, package_files, types_of};

pub(crate) struct Agent {
    core: CoreFixture,
    pub(crate) device: Device,
    pub(crate) gnsi: Gnsi,
    pub(crate) ignored: Arc<IgnoredSubscriptions>,
    pub(crate) services: PackageInstaller,
    _following: [AbortOnDropHandle<()>; 2],
}

impl Deref for Agent {
    type Target = CoreFixture;

    fn deref(&self) -> &CoreFixture {
        &self.core
    }
}

impl Agent {
    /// Starts an agent. A file `program` in the folder manages the images of the box.
    pub(crate) async fn start(kernel: &SimulatedKernel, folder: &Path) -> Self {
        Self::start_with(kernel, folder, ServiceTypes::new(Arc::new(Models::load().unwrap()))).await
    }

    /// Starts an agent with types of services.
    pub(crate) async fn start_with(
        kernel: &SimulatedKernel,
        folder: &Path,
        types: ServiceTypes,
    ) -> Self {
        let (store, loaded) = Store::open(folder).unwrap();
        let (mut transport, events) = kernel.connect();
        transport.retrieve();
        let models = Arc::clone(types.models());
        let installed = loaded.artefacts.get(&ArtefactTable::ServicePackages).cloned();
        let installed = installed.unwrap_or_default();
        let handlers = Handlers::default();
        let reboots = Reboots::new(&loaded.notes, store.clone(), RebootScope::Agent);
        let stored = loaded.artefacts.get(&ArtefactTable::Certz).cloned().unwrap_or_default();
        let profiles = TlsProfiles::of_box(folder, &stored);
        let transport = Box::new(transport);
        let users = Users::new(loaded.users.clone(), store.clone()).unwrap();
        let gnsi = Gnsi::new(
            &models,
            &users,
            &store,
            &loaded.artefacts,
            folder,
            profiles.clone(),
            crate::northbound::pathz_draft,
        )
        .unwrap()
        .with_undertakings(reboots.undertakings().clone());
        let program = folder.join("program");
        let slots = Slots::new(program.exists().then_some(program));
        let packages = Packages::new(folder, slots.clone());
        packages.sweep().unwrap();
        let running = RunningVersion::find(None, &slots).await;
        let boot = this_boot(RebootScope::Agent, &reboots).unwrap();
        let software = Software::new(slots, running, boot, store.clone(), &loaded.artefacts);
        let ignored = IgnoredSubscriptions::new(&models.native, UnknownPaths::Refuse).unwrap();
        let ignored = Arc::new(ignored);
        let mut polled = gnsi.polled();
        polled.push(ignored.clone());
        let parts = Parts {
            models,
            transport,
            events,
            polled,
            profiles: Some(Arc::new(profiles)),
            settings_check: None,
            store: store.clone(),
            loaded,
            grpc_services: &[],
            services: (!types.is_empty()).then(|| Arc::new(types.clone()) as Arc<dyn Services>),
            handlers: Some(Arc::new(handlers.clone())),
            factory: None,
            software_version: software.running().to_owned(),
            credential_source: Some(Arc::new(gnsi.logins.clone())),
            undertakings: reboots.undertakings().clone(),
        };
        let core = Core::start(parts).await.unwrap();
        let configuration = core.handle().configuration();
        reconcile(&store, &installed, &types, &configuration).await.unwrap();
        if let Some(configured) = core.handle().users() {
            users.follow(configured);
        }
        gnsi.begin(&core.handle(), core.handle().switch(Namespace::Gnsi)).await;
        let bound = core.handle().certificate_id().unwrap();
        let _following = [
            gnsi.follow_binding(bound, core.handle()).await,
            gnsi.follow_access(core.handle().access_changes().unwrap()),
        ];
        resume_activation(&core.handle(), &gnsi, &software).await.unwrap();
        let device = Device {
            reboots,
            probes: ProbeService::new(Probes::here()),
            packages,
            software,
            files: Files::new(folder),
            lost_leases: LostLeases::default(),
        };
        let actions = ActionResources {
            core: core.handle(),
            probes: device.probes.probes().clone(),
            undertakings: device.reboots.undertakings().clone(),
        };
        let signers = PackageSigners::default();
        let services = PackageInstaller::new(actions, handlers, folder, signers, types);
        let core = CoreFixture::of(core, store);
        Self { core, device, gnsi, ignored, services, _following }
    }

    pub(crate) async fn stop(self) {
        self.core.stop().await;
    }

    /// Ends the agent as a kill does, once its disk has stopped. Returns what is on disk then, in a folder of its own.
    pub(crate) fn killed(self, folder: &Path) -> TempDir {
        self.core.killed(folder)
    }
}

/// Configuration of a property of this many cases, unless `PROPTEST_CASES` is set.
pub(crate) fn cases(few: u32) -> ProptestConfig {
    let usual = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { usual.cases } else { few };
    ProptestConfig { cases, failure_persistence: None, ..usual }
}

/// Longest time until something comes that has to come: the disk may be slow.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
