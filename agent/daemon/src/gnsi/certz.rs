//! The TLS profiles in force: server certificates and client authorities for new connections.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use holdfast_base::{AccessEpoch, Clock, ErrorChain, now_ns};
use holdfast_config::{MissingNode, Schema};
use holdfast_core::CertificateId;
use holdfast_security::certz::{
    BoxIdentity, BoxIdentityKind, CertzError, Chain, Encoding, EntityKind, Freshness, PrivateKey,
    Profile, Profiles, SYSTEM_DEFAULT_PROFILE, StoredEntity, private_key,
};
use holdfast_store::{Artefact, ArtefactChange, ArtefactTable, Store};
use rustls::{ServerConfig, sign::CertifiedKey};
use rustls_pki_types::{CertificateDer, UnixTime};
use smol_str::SmolStr;
use tokio::sync::watch;
use tracing::{debug, error, info};

use super::{Rotator, ServerState};
use crate::{
    settings::TlsSettings,
    tls::{self, CertificateStatus, FileIdentity, PeerCertificate, TlsError},
};

/// All profiles, in force and final, with the identities of the box; clones share them.
#[derive(Clone, Debug)]
pub struct TlsProfiles(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The operator's files.
    files: ArcSwap<TlsSettings>,
    state_dir: PathBuf,
    addresses: Vec<IpAddr>,
    in_force: ArcSwap<TlsSnapshot>,
    /// Profiles on disk. The lock also serializes changes of these and of those in force.
    last: Mutex<Profiles>,
    binding: OnceLock<CertificateId>,
    /// Profiles that a configuration in the same request may refer to.
    trial_profiles: Mutex<Profiles>,
    /// Rows of the profiles that could not be read at the start: the file of an identity that they follow may come back.
    left_out: Mutex<BTreeMap<String, Artefact>>,
    /// Counter of the times that the identity of the box was replaced.
    identity_tx: watch::Sender<u64>,
    connections: Connections,
    /// Counter of changes; set before the first connection.
    access: OnceLock<AccessEpoch>,
    clock: Clock,
}

/// Permission for a configuration to name profiles that are not final yet. Ends on drop.
#[derive(Debug)]
pub(crate) struct TrialProfilesGuard(TlsProfiles);

impl Drop for TrialProfilesGuard {
    fn drop(&mut self) {
        self.0.set_trial_profiles(Profiles::default());
    }
}

/// Long-lived state of gnsi.certz; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Certz {
    pub(crate) profiles: TlsProfiles,
    pub(crate) state: ServerState,
    /// Rotations of the service, which runs one RPC at a time.
    pub(crate) rotator: Arc<Rotator>,
}

impl Certz {
    pub(super) fn new(
        native: &Schema,
        store: Store,
        profiles: TlsProfiles,
    ) -> Result<Self, MissingNode> {
        let state = ServerState::new(native, profiles.clone())?;
        Ok(Self { profiles, state, rotator: Arc::new(Rotator::new(store)) })
    }
}

/// A consistent snapshot, ready for handshakes.
#[derive(Debug)]
struct TlsSnapshot {
    own: tls::DefaultTls,
    /// TLS settings of the own identity, where there is one.
    own_config: Option<Arc<ServerConfig>>,
    profiles: Profiles,
    /// TLS settings of the profiles that have a certificate chain.
    configs: BTreeMap<SmolStr, Arc<ServerConfig>>,
}

/// Counters of connections since the start.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    accepts: AtomicU64,
    rejects: AtomicU64,
    last_accept: AtomicU64,
    last_reject: AtomicU64,
}

/// Profile for new connections.
#[derive(Clone, Debug)]
pub(crate) struct ServerProfile {
    pub(crate) id: SmolStr,
    pub(crate) profile: Profile,
    /// Expiry of its certificate, in seconds since 1970.
    pub(crate) expires_on: Option<u64>,
}

impl tls::ServerConfigs for TlsProfiles {
    /// An unusable profile is replaced by the identity of the box, so that the box stays reachable.
    fn server_config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let in_force = self.0.in_force.load();
        let bound = self.bound().and_then(|id| in_force.configs.get(&id));
        bound.or(in_force.own_config.as_ref()).cloned().ok_or_else(|| {
            let reason = in_force.own.server.as_ref().err().cloned();
            TlsError::NoIdentity(reason.unwrap_or_default())
        })
    }

    fn accepted(&self) {
        self.connections().accepted();
    }

    fn rejected(&self) {
        self.connections().rejected();
    }
}

impl TlsProfiles {
    /// Reads the identity of the box, creating it if necessary, and applies the stored profiles. Neither an identity that
    /// cannot be used nor an unreadable profile is an error: each is logged and left out, so that the box starts with what
    /// is there.
    ///
    /// # Errors
    /// When rustls refuses its own defaults, which would be a bug.
    pub fn new(
        files: TlsSettings,
        state_dir: PathBuf,
        addresses: &[IpAddr],
        stored: &BTreeMap<String, Artefact>,
    ) -> Result<Self, TlsError> {
        Self::by_clock(files, state_dir, addresses, stored, Clock::default())
    }

    fn by_clock(
        files: TlsSettings,
        state_dir: PathBuf,
        addresses: &[IpAddr],
        stored: &BTreeMap<String, Artefact>,
        clock: Clock,
    ) -> Result<Self, TlsError> {
        let addresses = addresses.to_vec();
        let own = tls::load_default(&files, &state_dir, &addresses);
        if let Err(error) = &own.server {
            error!(
                error,
                "there is no identity to show: the gRPC services wait for it, and the box is configured without them"
            );
        }
        let identity = Identity { own: own.clone(), addresses: addresses.clone() };
        let (profiles, left_out) = restore_profiles(&Profiles::default(), stored, &identity);
        let in_force = ArcSwap::from_pointee(TlsSnapshot::new(own, profiles.clone(), None)?);
        let last = Mutex::new(profiles);
        let binding = OnceLock::new();
        let promised = Mutex::default();
        let connections = Connections::default();
        Ok(Self(Arc::new(Shared {
            files: ArcSwap::from_pointee(files),
            state_dir,
            addresses,
            in_force,
            last,
            binding,
            trial_profiles: promised,
            left_out: Mutex::new(left_out),
            identity_tx: watch::Sender::new(0),
            connections,
            access: OnceLock::new(),
            clock,
        })))
    }

    /// Profiles for a test that trusts the clients of an authority, with a clock of its own.
    #[cfg(test)]
    pub(crate) fn of_clients(state_dir: &std::path::Path, ca: PathBuf, clock: Clock) -> Self {
        let files = TlsSettings { tls_client_ca: Some(ca), ..TlsSettings::default() };
        let address = IpAddr::from([127, 0, 0, 1]);
        Self::by_clock(files, state_dir.to_owned(), &[address], &BTreeMap::new(), clock)
            .expect("an identity can be made")
    }

    /// Profiles for a test whose clients are on this host.
    #[cfg(test)]
    pub(crate) fn of_box(state_dir: &std::path::Path, stored: &BTreeMap<String, Artefact>) -> Self {
        let address = IpAddr::from([127, 0, 0, 1]);
        Self::new(TlsSettings::default(), state_dir.to_owned(), &[address], stored)
            .expect("an identity can be made")
    }

    /// Sets the source of the server's profile id. Only the first call has an effect.
    pub fn follow(&self, binding: CertificateId) {
        let _there_already = self.0.binding.set(binding);
    }

    /// Profile for the next connection.
    pub(crate) fn server_profile(&self) -> ServerProfile {
        let in_force = self.0.in_force.load();
        let bound = self.bound().filter(|id| in_force.configs.contains_key(id));
        let profile = bound.as_ref().and_then(|id| in_force.profiles.profile(id)).cloned();
        let id = bound.unwrap_or(SmolStr::new_static(SYSTEM_DEFAULT_PROFILE));
        let expires_on = match &profile {
            Some(profile) => profile.chain.as_ref().map(|chain| chain.value.expires_on()),
            None => in_force.own.certified().and_then(|own| {
                let chain = Chain::identity(&id, BoxIdentityKind::Server, own.clone());
                chain.ok().map(|chain| chain.expires_on())
            }),
        };
        ServerProfile { id, profile: profile.unwrap_or_default(), expires_on }
    }

    /// Id of the configured profile, even if that is unusable.
    pub(crate) fn bound(&self) -> Option<SmolStr> {
        let id = self.0.binding.get().and_then(|binding| binding.current());
        id.filter(|id| id != SYSTEM_DEFAULT_PROFILE)
    }

    /// Profiles on disk.
    pub(crate) fn last(&self) -> Profiles {
        self.0.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the counter of changes. Only the first call has an effect.
    pub(crate) fn set_access_epoch(&self, access: AccessEpoch) {
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

    /// Validity of a client certificate from an earlier handshake, by the profile in force, or the final one while
    /// another is being tried. Checked once for each change.
    pub(crate) fn certificate_status(&self, certificate: &PeerCertificate) -> CertificateStatus {
        let epoch = self.0.access.get().map_or(0, AccessEpoch::number);
        let now = self.now();
        let clients = || {
            let in_force = self.0.in_force.load_full();
            let bound = self.bound();
            [in_force.profiles.clone(), self.last()].map(|profiles| {
                let profile = bound.as_ref().and_then(|id| profiles.profile(id));
                let profile = profile.filter(|profile| profile.chain.is_some());
                profile.map_or_else(|| in_force.own.clients().cloned(), |profile| profile.clients())
            })
        };
        certificate.status_cache.at(epoch, now, || tls::current_status(certificate, clients(), now))
    }

    /// Time of the next check without a change.
    pub(crate) fn certificate_status_until(
        &self,
        certificate: &PeerCertificate,
    ) -> Option<UnixTime> {
        self.certificate_status(certificate);
        certificate.status_cache.until()
    }

    /// Applies these profiles to new connections. Present connections stay until [`Self::mark_final`].
    ///
    /// # Errors
    /// When rustls refuses one of them; nothing has changed then.
    pub(crate) fn activate(&self, profiles: &Profiles) -> Result<(), TlsError> {
        let _one_at_a_time = self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.0.in_force.load_full();
        let now = TlsSnapshot::new(before.own.clone(), profiles.clone(), Some(&before))?;
        self.0.in_force.store(Arc::new(now));
        self.count_change();
        Ok(())
    }

    /// Permits configurations to name these profiles, until the returned value is dropped.
    pub(crate) fn allow_trial_profiles(&self, profiles: &Profiles) -> TrialProfilesGuard {
        self.set_trial_profiles(profiles.clone());
        TrialProfilesGuard(self.clone())
    }

    fn set_trial_profiles(&self, profiles: Profiles) {
        *self.0.trial_profiles.lock().unwrap_or_else(PoisonError::into_inner) = profiles;
    }

    /// Records that these profiles are on disk and in force. Streams are ended whose certificate is no longer
    /// accepted.
    pub(crate) fn mark_final(&self, profiles: &Profiles) {
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) = profiles.clone();
        self.count_change();
    }

    /// Reads the operator's files again, which may be other ones than before, for new connections. Keeps the previous
    /// identity if they are unusable.
    pub fn reload(&self, files: TlsSettings) {
        self.0.files.store(Arc::new(files));
        let had_identity = self.has_identity();
        match self.read_again() {
            Ok(()) => info!("TLS files read again"),
            Err(error) if had_identity => {
                error!(error = %ErrorChain(&error), "the TLS files stay as they were");
            }
            Err(error) => error!(error = %ErrorChain(&error), "the TLS files still cannot be used"),
        }
    }

    /// Does what time asks for: makes the box's own certificate again when it lacks a name or an address or nears its end,
    /// and tries again to read an identity that could not be used. True when the identity was replaced.
    pub(crate) fn refresh(&self) -> bool {
        let Shared { files, addresses, in_force, .. } = &*self.0;
        let is_due = match &in_force.load().own.server {
            Err(_) => true,
            Ok(own) => {
                files.load().tls_cert.is_none() && !tls::is_current(&own.certified, addresses)
            }
        };
        is_due
            && match self.read_again() {
                Ok(()) => true,
                Err(error) => {
                    debug!(error = %ErrorChain(&error), "the identity of the box stays as it was");
                    false
                }
            }
    }

    /// True when there is a certificate to show without any profile.
    pub(crate) fn has_identity(&self) -> bool {
        self.0.in_force.load().own.server.is_ok()
    }

    /// Receiver that is notified when the identity of the box was replaced.
    pub(crate) fn identity_changes(&self) -> watch::Receiver<u64> {
        self.0.identity_tx.subscribe()
    }

    fn read_again(&self) -> Result<(), TlsError> {
        let Shared { files, state_dir, addresses, .. } = &*self.0;
        let own = tls::load_default(&files.load(), state_dir, addresses);
        if let Err(reason) = &own.server {
            return Err(TlsError::NoIdentity(reason.clone()));
        }
        let mut last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        let in_force = self.0.in_force.load_full();
        let identity = Identity { own: own.clone(), addresses: addresses.clone() };
        let follow = |profiles: &Profiles| {
            profiles
                .with_current_identities(&identity)
                .map_err(|source| TlsError::Profile { source })
        };
        let profiles = follow(&in_force.profiles)?;
        let settled = follow(&last)?;
        let mut left_out = self.0.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        let (settled, still_left_out) = restore_profiles(&settled, &left_out, &identity);
        let (profiles, _) = restore_profiles(&profiles, &left_out, &identity);
        self.0.in_force.store(Arc::new(TlsSnapshot::new(own, profiles, None)?));
        *left_out = still_left_out;
        drop(left_out);
        *last = settled;
        drop(last);
        self.count_change();
        self.0.identity_tx.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Identities of the box, for profiles.
    pub(crate) fn identity(&self) -> Arc<dyn BoxIdentity + Send + Sync> {
        let own = self.0.in_force.load().own.clone();
        Arc::new(Identity { own, addresses: self.0.addresses.clone() })
    }

    pub(crate) fn connections(&self) -> &Connections {
        &self.0.connections
    }
}

impl TlsSnapshot {
    /// Computes the TLS settings of profiles that differ from `before`.
    fn new(
        own: tls::DefaultTls,
        profiles: Profiles,
        before: Option<&Self>,
    ) -> Result<Self, TlsError> {
        let own_config = match (before, &own.server) {
            (Some(before), _) => before.own_config.clone(),
            (None, Ok(server)) => {
                Some(Arc::new(tls::server_config(&server.certified, server.clients.clone())?))
            }
            (None, Err(_)) => None,
        };
        let mut configs = BTreeMap::new();
        for (id, profile) in profiles.iter() {
            let Some(chain) = &profile.chain else { continue };
            let unchanged = before.and_then(|before| before.config_of(id, profile));
            let config = match unchanged {
                Some(config) => config,
                None => Arc::new(tls::server_config(chain.value.certified(), profile.clients())?),
            };
            configs.insert(id.clone(), config);
        }
        Ok(Self { own, own_config, profiles, configs })
    }

    /// TLS settings of a profile, if it has not changed.
    fn config_of(&self, id: &str, profile: &Profile) -> Option<Arc<ServerConfig>> {
        let before = self.profiles.profile(id)?;
        let same = EntityKind::ALL.into_iter().all(|kind| before.shares(profile, kind));
        self.configs.get(id).filter(|_| same).cloned()
    }
}

/// Final profiles with a certificate chain, to which a server may be bound.
impl holdfast_platform::objects::Profiles for TlsProfiles {
    fn refusal(&self, id: &str) -> Option<String> {
        if id == SYSTEM_DEFAULT_PROFILE {
            return None;
        }
        let promised = self.0.trial_profiles.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match promised.profile(id).or(self.last().profile(id)) {
            None => Some(format!("there is no TLS profile `{id}`")),
            Some(profile) if profile.chain.is_none() => {
                Some(format!("the TLS profile `{id}` has no certificate to show"))
            }
            Some(_) => None,
        }
    }
}

/// Identity of the box at one moment.
struct Identity {
    own: tls::DefaultTls,
    addresses: Vec<IpAddr>,
}

impl BoxIdentity for Identity {
    /// Returns the own identity as IDevID when no file has one.
    fn certified(&self, which: BoxIdentityKind) -> Option<Arc<CertifiedKey>> {
        let tls::DefaultTls { idevid, oidevid, .. } = &self.own;
        match (which, idevid, oidevid) {
            (BoxIdentityKind::Server, ..)
            | (BoxIdentityKind::Idevid, FileIdentity::NotGiven, _) => self.own.certified().cloned(),
            (BoxIdentityKind::Idevid, FileIdentity::Loaded(found), _)
            | (BoxIdentityKind::Oidevid, _, FileIdentity::Loaded(found)) => Some(found.clone()),
            _ => None,
        }
    }

    fn self_signed(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKey), CertzError> {
        const WHAT: &str = "certificate_chain";
        let identity = tls::self_signed(&self.addresses);
        let (certificate, pem) =
            identity.map_err(|error| CertzError::internal(WHAT, ErrorChain(&error).to_string()))?;
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

    /// Numbers of accepted and rejected connections, and the time of the last one of each, in nanoseconds since
    /// 1970.
    pub(crate) fn counts(&self) -> [(u64, Option<u64>); 2] {
        let read = |count: &AtomicU64, last: &AtomicU64| {
            let count = count.load(Ordering::Relaxed);
            (count, Some(last.load(Ordering::Relaxed)).filter(|_| count > 0))
        };
        [read(&self.accepts, &self.last_accept), read(&self.rejects, &self.last_reject)]
    }
}

/// Changes on disk from `before` to `now`: profiles added and removed, and entities that differ.
pub(crate) fn differences(before: &Profiles, now: &Profiles) -> Vec<ArtefactChange> {
    let removed = before.iter().filter(|(id, _)| now.profile(id).is_none());
    let mut changes: Vec<_> = removed.flat_map(|(id, _)| profile_rows(id, None)).collect();
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

/// Rows for adding or removing a profile. Also removes entities that an earlier profile of the same id has left.
fn profile_rows(id: &str, row: Option<Artefact>) -> impl Iterator<Item = ArtefactChange> {
    let entities = EntityKind::ALL.map(|kind| change(entity_name(id, kind), None));
    entities.into_iter().chain([change(id.to_owned(), row)])
}

fn change(name: String, artefact: Option<Artefact>) -> ArtefactChange {
    ArtefactChange { table: ArtefactTable::Certz, name, artefact }
}

/// Name of an entity's row. The slash is unambiguous, because ids cannot contain one.
fn entity_name(id: &str, kind: EntityKind) -> String {
    format!("{id}/{}", kind.name())
}

/// Adds the stored profiles that `profiles` lacks, and returns the rows of those that cannot be read.
fn restore_profiles(
    profiles: &Profiles,
    stored: &BTreeMap<String, Artefact>,
    identity: &Identity,
) -> (Profiles, BTreeMap<String, Artefact>) {
    let mut profiles = profiles.clone();
    let mut left_out = BTreeMap::new();
    let missing = |id: &&String| !id.contains('/') && profiles.profile(id).is_none();
    let ids: Vec<&String> = stored.keys().filter(missing).collect();
    for id in ids {
        match restore_profile(id, stored, identity) {
            Ok(profile) => profiles = profiles.with(id.as_str().into(), profile),
            // Without one of its parts, a profile might accept the wrong clients.
            Err(error) => {
                error!(profile = id, error = %ErrorChain(&error), "a TLS profile is left out");
                let names = EntityKind::ALL.map(|kind| entity_name(id, kind));
                let rows = names.into_iter().chain([id.clone()]);
                left_out.extend(rows.filter_map(|name| {
                    let row = stored.get(&name)?.clone();
                    Some((name, row))
                }));
            }
        }
    }
    (profiles, left_out)
}

fn restore_profile(
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
