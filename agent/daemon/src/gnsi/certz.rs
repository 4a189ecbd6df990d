//! The TLS profiles in force: what the listener shows and whom it asks for each new connection.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use holdfast_config::Schema;
use holdfast_platform::objects::Profiles as ProfileNames;
use holdfast_security::certz::{
    BoxIdentity, CertzError, Encoding, EntityKind, Freshness, OfBox, PrivateKey, Profile, Profiles,
    SYSTEM_DEFAULT_PROFILE, StoredEntity, private_key,
};
use rustls::{ServerConfig, sign::CertifiedKey};
use rustls_pki_types::{CertificateDer, UnixTime};
use smol_str::SmolStr;
use tracing::{error, info};

use super::{ModelError, ServerState, Turn};
use crate::{
    access::{AccessEpoch, Clock},
    logging::Chain,
    settings::TlsSettings,
    store::{Artefact, ArtefactChange, ArtefactTable, Store},
    tls::{self, Filed, PeerCertificate, Standing, TlsError},
};
use holdfast_telemetry::view::now_ns;

/// The profile that the configuration binds the server to.
pub trait Binding: std::fmt::Debug + Send + Sync {
    /// Its id, where one is configured.
    fn certificate_id(&self) -> Option<SmolStr>;
}

/// All profiles, in force and final, and the identity of the box below them; clones share them.
#[derive(Clone, Debug)]
pub struct TlsProfiles(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    files: TlsSettings,
    state_dir: PathBuf,
    addresses: Vec<IpAddr>,
    in_force: ArcSwap<InForce>,
    /// What is on disk, and one change of it or of what is in force at a time.
    last: Mutex<Profiles>,
    binding: OnceLock<Box<dyn Binding>>,
    /// Those that come with a configuration which may bind the server to one of them.
    promised: Mutex<Profiles>,
    connections: Connections,
    /// Counts each change; not there before somebody can have come in.
    access: OnceLock<AccessEpoch>,
    clock: Clock,
}

/// Profiles that a configuration may name though they are not final yet: as long as this lives.
#[derive(Debug)]
pub(crate) struct Promise(TlsProfiles);

impl Drop for Promise {
    fn drop(&mut self) {
        self.0.promise_only(Profiles::default());
    }
}

/// Everything of gnsi.certz that outlives a request; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Certz {
    pub(crate) profiles: TlsProfiles,
    pub(crate) state: ServerState,
    pub(crate) store: Store,
    /// One RPC of the service at a time.
    pub(crate) turn: Turn,
}

impl Certz {
    pub(super) fn new(
        native: &Schema,
        store: Store,
        profiles: TlsProfiles,
    ) -> Result<Self, ModelError> {
        let state = ServerState::new(native, profiles.clone())?;
        Ok(Self { profiles, state, store, turn: Turn::default() })
    }
}

/// One consistent picture, ready for handshakes.
#[derive(Debug)]
struct InForce {
    own: tls::Own,
    own_config: Arc<ServerConfig>,
    profiles: Profiles,
    /// Of the profiles that have certificates to show.
    configs: BTreeMap<SmolStr, Arc<ServerConfig>>,
}

/// What became of connections since the start.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    accepts: AtomicU64,
    rejects: AtomicU64,
    last_accept: AtomicU64,
    last_reject: AtomicU64,
}

/// The profile that new connections meet.
#[derive(Clone, Debug)]
pub(crate) struct Serving {
    pub(crate) id: SmolStr,
    pub(crate) profile: Profile,
    /// Seconds since 1970 at which what it shows expires.
    pub(crate) expires_on: Option<u64>,
}

impl TlsProfiles {
    /// Reads the identity of the box, makes it first if need be, and takes what the store holds into force.
    ///
    /// # Errors
    /// [`TlsError`] when there is no identity to serve with. A profile that cannot be read is left out and logged: the
    /// box comes up with the others.
    pub fn new(
        files: TlsSettings,
        state_dir: PathBuf,
        addresses: &[SocketAddr],
        stored: &BTreeMap<String, Artefact>,
    ) -> Result<Self, TlsError> {
        Self::by_clock(files, state_dir, addresses, stored, Clock::default())
    }

    fn by_clock(
        files: TlsSettings,
        state_dir: PathBuf,
        addresses: &[SocketAddr],
        stored: &BTreeMap<String, Artefact>,
        clock: Clock,
    ) -> Result<Self, TlsError> {
        let addresses: Vec<_> = addresses.iter().map(SocketAddr::ip).collect();
        let own = tls::own(&files, &state_dir, &addresses)?;
        let identity = Identity { own: own.clone(), addresses: addresses.clone() };
        let profiles = restored(stored, &identity);
        let in_force = ArcSwap::from_pointee(InForce::new(own, profiles.clone(), None)?);
        let (last, binding) = (Mutex::new(profiles), OnceLock::new());
        let (promised, connections) = (Mutex::default(), Connections::default());
        Ok(Self(Arc::new(Shared {
            files,
            state_dir,
            addresses,
            in_force,
            last,
            binding,
            promised,
            connections,
            access: OnceLock::new(),
            clock,
        })))
    }

    /// Profiles of a test that trusts the clients of an authority, by a clock of its own.
    #[cfg(test)]
    pub(crate) fn of_clients(state_dir: &std::path::Path, ca: PathBuf, clock: Clock) -> Self {
        let files = TlsSettings { tls_client_ca: Some(ca), ..TlsSettings::default() };
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::by_clock(files, state_dir.to_owned(), &[address], &BTreeMap::new(), clock)
            .expect("an identity can be made")
    }

    /// Of a test whose clients are on this host.
    #[cfg(test)]
    pub(crate) fn of_box(state_dir: &std::path::Path, stored: &BTreeMap<String, Artefact>) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::new(TlsSettings::default(), state_dir.to_owned(), &[address], stored)
            .expect("an identity can be made")
    }

    /// From now on the configuration says which profile new connections meet. The first one to say so stays.
    pub fn follow(&self, binding: impl Binding + 'static) {
        let _there_already = self.0.binding.set(Box::new(binding));
    }

    /// The settings for the next handshake. A profile that cannot be served with gives way to the identity of the box:
    /// it must stay reachable.
    pub(crate) fn server_config(&self) -> Arc<ServerConfig> {
        let in_force = self.0.in_force.load();
        let bound = self.bound().and_then(|id| in_force.configs.get(&id));
        bound.unwrap_or(&in_force.own_config).clone()
    }

    /// The profile that the next connection meets.
    pub(crate) fn serving(&self) -> Serving {
        let in_force = self.0.in_force.load();
        let bound = self.bound().filter(|id| in_force.configs.contains_key(id));
        let profile = bound.as_ref().and_then(|id| in_force.profiles.profile(id)).cloned();
        let id = bound.unwrap_or(SmolStr::new_static(SYSTEM_DEFAULT_PROFILE));
        let expires_on = match &profile {
            Some(profile) => profile.chain.as_ref().map(|chain| chain.value.expires_on()),
            None => {
                let own = in_force.own.certified.clone();
                let chain = holdfast_security::certz::Chain::identity(&id, OfBox::Server, own);
                chain.ok().map(|chain| chain.expires_on())
            }
        };
        Serving { id, profile: profile.unwrap_or_default(), expires_on }
    }

    /// The profile that is configured, whether or not it can be served with.
    pub(crate) fn bound(&self) -> Option<SmolStr> {
        let id = self.0.binding.get().and_then(|binding| binding.certificate_id());
        id.filter(|id| id != SYSTEM_DEFAULT_PROFILE)
    }

    /// What is on disk.
    pub(crate) fn last(&self) -> Profiles {
        self.0.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on each change counts there. The first one to say so stays.
    pub(crate) fn count_in(&self, access: AccessEpoch) {
        let _there_already = self.0.access.set(access);
    }

    fn count_change(&self) {
        if let Some(access) = self.0.access.get() {
            access.advance();
        }
    }

    pub(crate) fn now(&self) -> UnixTime {
        self.0.clock.now()
    }

    /// The standing of a certificate that came through a handshake: by the profile in force, or by the final one while
    /// another is tried. It is looked at once for each change.
    pub(crate) fn standing(&self, certificate: &PeerCertificate) -> Standing {
        let (epoch, now) = (self.0.access.get().map_or(0, AccessEpoch::number), self.now());
        let clients = || {
            let in_force = self.0.in_force.load_full();
            let bound = self.bound();
            [in_force.profiles.clone(), self.last()].map(|profiles| {
                let profile = bound.as_ref().and_then(|id| profiles.profile(id));
                let profile = profile.filter(|profile| profile.chain.is_some());
                profile.map_or_else(|| in_force.own.clients.clone(), |profile| profile.clients())
            })
        };
        certificate.standing.at(epoch, now, || tls::judge(certificate, clients(), now))
    }

    /// The time at which that has to be looked at again without a change.
    pub(crate) fn standing_until(&self, certificate: &PeerCertificate) -> Option<UnixTime> {
        self.standing(certificate);
        certificate.standing.until()
    }

    /// Has new connections meet these; those that are there stay until [`Self::settle`].
    ///
    /// # Errors
    /// When the library does not take one of them; then all is as it was.
    pub(crate) fn bring_into_force(&self, profiles: &Profiles) -> Result<(), TlsError> {
        let _one_at_a_time = self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.0.in_force.load_full();
        let now = InForce::new(before.own.clone(), profiles.clone(), Some(&before))?;
        self.0.in_force.store(Arc::new(now));
        self.count_change();
        Ok(())
    }

    /// Lets a configuration name these until the answer is dropped.
    pub(crate) fn promise(&self, profiles: &Profiles) -> Promise {
        self.promise_only(profiles.clone());
        Promise(self.clone())
    }

    fn promise_only(&self, profiles: Profiles) {
        *self.0.promised.lock().unwrap_or_else(PoisonError::into_inner) = profiles;
    }

    /// Notes that these are on disk and in force: streams end whose certificate they do not let in.
    pub(crate) fn settle(&self, profiles: &Profiles) {
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) = profiles.clone();
        self.count_change();
    }

    /// Takes new files of the operator into use for new connections; keeps the old ones when they are not usable.
    pub fn reload(&self) {
        match self.read_again() {
            Ok(()) => info!("TLS files read again"),
            Err(error) => error!(error = %Chain(&error), "the TLS files stay as they were"),
        }
    }

    fn read_again(&self) -> Result<(), TlsError> {
        let Shared { files, state_dir, addresses, .. } = &*self.0;
        let own = tls::own(files, state_dir, addresses)?;
        let mut last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        let in_force = self.0.in_force.load_full();
        let identity = Identity { own: own.clone(), addresses: addresses.clone() };
        let follow = |profiles: &Profiles| {
            profiles.following(&identity).map_err(|source| TlsError::Profile { source })
        };
        let (profiles, settled) = (follow(&in_force.profiles)?, follow(&last)?);
        self.0.in_force.store(Arc::new(InForce::new(own, profiles, None)?));
        *last = settled;
        drop(last);
        self.count_change();
        Ok(())
    }

    /// What the box can give to a profile by itself.
    pub(crate) fn identity(&self) -> Arc<dyn BoxIdentity + Send + Sync> {
        let own = self.0.in_force.load().own.clone();
        Arc::new(Identity { own, addresses: self.0.addresses.clone() })
    }

    pub(crate) fn connections(&self) -> &Connections {
        &self.0.connections
    }
}

impl InForce {
    /// Settings are made for those profiles that differ from `before`.
    fn new(own: tls::Own, profiles: Profiles, before: Option<&Self>) -> Result<Self, TlsError> {
        let own_config = match before {
            Some(before) => before.own_config.clone(),
            None => Arc::new(tls::server_config(&own.certified, own.clients.clone())?),
        };
        let mut configs = BTreeMap::new();
        for (id, profile) in profiles.iter() {
            let Some(chain) = &profile.chain else { continue };
            let kept = before.and_then(|before| before.config_of(id, profile));
            let config = match kept {
                Some(config) => config,
                None => Arc::new(tls::server_config(chain.value.certified(), profile.clients())?),
            };
            configs.insert(id.clone(), config);
        }
        Ok(Self { own, own_config, profiles, configs })
    }

    /// The settings of a profile, if it was the same.
    fn config_of(&self, id: &str, profile: &Profile) -> Option<Arc<ServerConfig>> {
        let before = self.profiles.profile(id)?;
        let same = EntityKind::ALL.into_iter().all(|kind| before.shares(profile, kind));
        self.configs.get(id).filter(|_| same).cloned()
    }
}

/// A server may be bound to what is final and has certificates to show.
impl ProfileNames for TlsProfiles {
    fn refusal(&self, id: &str) -> Option<String> {
        if id == SYSTEM_DEFAULT_PROFILE {
            return None;
        }
        let promised = self.0.promised.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match promised.profile(id).or(self.last().profile(id)) {
            None => Some(format!("there is no TLS profile `{id}`")),
            Some(profile) if profile.chain.is_none() => {
                Some(format!("the TLS profile `{id}` has no certificate to show"))
            }
            Some(_) => None,
        }
    }
}

/// The identity of the box as it was at one moment.
struct Identity {
    own: tls::Own,
    addresses: Vec<IpAddr>,
}

impl BoxIdentity for Identity {
    /// A box without a file from its maker is its own maker.
    fn certified(&self, which: OfBox) -> Option<Arc<CertifiedKey>> {
        let tls::Own { certified, idevid, oidevid, .. } = &self.own;
        match (which, idevid, oidevid) {
            (OfBox::Server, ..) | (OfBox::Idevid, Filed::NotGiven, _) => Some(certified.clone()),
            (OfBox::Idevid, Filed::There(found), _) | (OfBox::Oidevid, _, Filed::There(found)) => {
                Some(found.clone())
            }
            _ => None,
        }
    }

    fn self_signed(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKey), CertzError> {
        const WHAT: &str = "certificate_chain";
        let made = tls::self_signed(&self.addresses);
        let (certificate, pem) =
            made.map_err(|error| CertzError::internal(WHAT, Chain(&error).to_string()))?;
        Ok((vec![certificate], private_key(WHAT, Encoding::Pem, pem.as_bytes())?))
    }
}

impl Connections {
    pub(crate) fn accepted(&self) {
        self.accepts.fetch_add(1, Ordering::Relaxed);
        self.last_accept.store(now_ns(), Ordering::Relaxed);
    }

    pub(crate) fn rejected(&self) {
        self.rejects.fetch_add(1, Ordering::Relaxed);
        self.last_reject.store(now_ns(), Ordering::Relaxed);
    }

    /// How many were accepted and rejected, and when the last of each was, in nanoseconds since 1970.
    pub(crate) fn counts(&self) -> [(u64, Option<u64>); 2] {
        let read = |count: &AtomicU64, last: &AtomicU64| {
            let count = count.load(Ordering::Relaxed);
            (count, Some(last.load(Ordering::Relaxed)).filter(|_| count > 0))
        };
        [read(&self.accepts, &self.last_accept), read(&self.rejects, &self.last_reject)]
    }
}

/// What is written down to get from the one to the other: profiles that come and go, and entities that differ.
pub(crate) fn differences(before: &Profiles, now: &Profiles) -> Vec<ArtefactChange> {
    let gone = before.iter().filter(|(id, _)| now.profile(id).is_none());
    let mut changes: Vec<_> = gone.flat_map(|(id, _)| profile_rows(id, None)).collect();
    for (id, profile) in now.iter() {
        if before.profile(id).is_none() {
            let empty =
                Artefact { version: String::new(), created_on: 0, content: Vec::new().into() };
            changes.extend(profile_rows(id, Some(empty)));
        }
        let earlier = before.profile(id).cloned().unwrap_or_default();
        for kind in EntityKind::ALL.into_iter().filter(|kind| !earlier.shares(profile, *kind)) {
            let content = StoredEntity::encode(profile, kind);
            let artefact = content.zip(profile.freshness(kind)).map(|(content, freshness)| {
                let Freshness { version, created_on } = freshness.clone();
                Artefact { version, created_on, content }
            });
            changes.push(change(entity_name(id, kind), artefact));
        }
    }
    changes
}

/// The row of a profile that comes or goes: nothing below it must be left of an earlier one of the same id.
fn profile_rows(id: &str, row: Option<Artefact>) -> impl Iterator<Item = ArtefactChange> {
    let entities = EntityKind::ALL.map(|kind| change(entity_name(id, kind), None));
    entities.into_iter().chain([change(id.to_owned(), row)])
}

fn change(name: String, artefact: Option<Artefact>) -> ArtefactChange {
    ArtefactChange { table: ArtefactTable::Certz, name, artefact }
}

/// No id has a slash.
fn entity_name(id: &str, kind: EntityKind) -> String {
    format!("{id}/{}", kind.as_str())
}

fn restored(stored: &BTreeMap<String, Artefact>, identity: &Identity) -> Profiles {
    let mut profiles = Profiles::default();
    for id in stored.keys().filter(|name| !name.contains('/')) {
        match restored_profile(id, stored, identity) {
            Ok(profile) => profiles = profiles.with(id.as_str().into(), profile),
            // Served without a part of it, it might let in whom it must not.
            Err(error) => error!(profile = id, error = %Chain(&error), "a TLS profile is left out"),
        }
    }
    profiles
}

fn restored_profile(
    id: &str,
    stored: &BTreeMap<String, Artefact>,
    identity: &Identity,
) -> Result<Profile, CertzError> {
    let mut profile = Profile::default();
    for kind in EntityKind::ALL {
        let Some(artefact) = stored.get(&entity_name(id, kind)) else { continue };
        let freshness =
            Freshness { version: artefact.version.clone(), created_on: artefact.created_on };
        StoredEntity::restore(&mut profile, kind, freshness, &artefact.content, identity)?;
    }
    Ok(profile)
}
