//! Maintenance sessions: what stands on their resources, whether these work, and who follows them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use holdfast_config::InstancePath;
use holdfast_config::schema::Origin;
use holdfast_core::{CommitError, CoreHandle, Datastore as _, MaintainedLinks};
use holdfast_faults::{
    Contents, Faults, Health, Objects as _, Resource, Session, SessionError, SessionEvent,
    SessionObject, SessionState,
};
use holdfast_platform::failure;
use holdfast_scheduler::Failure;
use smol_str::{SmolStr, format_smolstr};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::error;

use super::handle::FaultService;
use super::links::Links;
use super::objects::BoxObjects;

/// Least time between two looks at what stands on the resources of sessions: each may be a walk of the whole graph.
const WALK_INTERVAL: Duration = Duration::from_millis(200);
/// Pause between two looks whether a resource that is given back works.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Reason for which a request about a session is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionRefusal {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("there is no {0}, neither in the configuration nor on the box")]
    NoSuchResource(Resource),
    #[error("cannot find the objects that stand on the resources")]
    Contents(#[source] CommitError),
}

/// The answer to a request about a session.
#[derive(Clone, Debug)]
pub struct SessionAnswer {
    pub session: Session,
    /// False while the disk refuses.
    pub is_durable: bool,
}

/// News of sessions.
#[derive(Clone, Debug)]
pub enum SessionNews {
    /// All sessions: one that is not among them is not kept any more. `is_gap` when the log does not have all steps since the
    /// follower's last one, or a session of these is not kept any more.
    Snapshot {
        sessions: Vec<Session>,
        is_gap: bool,
        last_id: u64,
    },
    Step(Arc<SessionEvent>),
}

/// Someone who follows sessions: first all of them or the steps that it has missed, and then each step. A follower that is
/// too slow gets what it has missed from the log.
#[derive(Debug)]
pub struct SessionFollower {
    faults: FaultService,
    followed: FollowedSessions,
}

/// The answer to one who begins to follow sessions.
#[derive(Debug)]
pub(super) struct FollowedSessions {
    pub(super) news: VecDeque<SessionNews>,
    /// Id of the last entry of the log that the news contain.
    pub(super) last_id: u64,
    pub(super) steps: broadcast::Receiver<Arc<SessionEvent>>,
}

impl SessionFollower {
    pub(super) fn new(faults: FaultService, followed: FollowedSessions) -> Self {
        Self { faults, followed }
    }

    /// The next news; `None` when nobody looks for faults any more.
    pub async fn next(&mut self) -> Option<SessionNews> {
        loop {
            if let Some(news) = self.followed.news.pop_front() {
                return Some(news);
            }
            match self.followed.steps.recv().await {
                Ok(event) => {
                    self.followed.last_id = event.step.id;
                    return Some(SessionNews::Step(event));
                }
                Err(RecvError::Lagged(_)) => {
                    let after = Some(self.followed.last_id);
                    self.followed = self.faults.ask_to_follow_sessions(after).await.ok()?;
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Finds everything that stands on some resources.
///
/// # Errors
/// When the core has stopped.
pub(super) async fn contents(
    core: &CoreHandle,
    objects: &BoxObjects,
    resources: &BTreeSet<Resource>,
) -> Result<Contents, CommitError> {
    let configuration = core.configuration();
    let models = core.models();
    let mut failed = Failure::default();
    let mut links: BTreeSet<InstancePath> = BTreeSet::new();
    for link in links_of(resources, core, objects) {
        failed = failed.and(failure::of_interface(&link));
        links.extend(objects.of(&Resource::Interface(link)));
    }
    let impact = core.impact(failed).await?;
    let native = models.schema(Origin::Native);
    let claims = configuration.layers().claims();
    let mut found = Contents::default();
    let down = impact.down.iter().map(|path| (path, false));
    let degraded = impact.degraded.iter().map(|path| (path, true));
    for (path, has_other_way) in down.chain(degraded) {
        let name = SmolStr::from(path.to_path(native).to_string());
        found.names.insert(name.clone());
        let is_of_resource = links.iter().any(|link| path.starts_with(link));
        let owners = claims.owners(&models, path);
        let services = owners.iter().filter_map(|owner| owner.split('[').next());
        let services = services.map(SmolStr::from).collect();
        found.objects.push(SessionObject {
            path: path.clone(),
            name,
            services,
            has_other_way,
            is_of_resource,
        });
    }
    found.names.extend(links.iter().map(|link| link.to_path(native).to_string().into()));
    found.without = impact.down.into_iter().collect();
    Ok(found)
}

/// The links of some resources: of the box, all that are configured.
fn links_of(
    resources: &BTreeSet<Resource>,
    core: &CoreHandle,
    objects: &BoxObjects,
) -> BTreeSet<SmolStr> {
    let mut links = BTreeSet::new();
    for resource in resources {
        match resource {
            Resource::Interface(name) => drop(links.insert(name.clone())),
            Resource::Box => {
                let configuration = core.configuration();
                links.extend(objects.links(configuration.effective()).map(SmolStr::from));
            }
            _ => {}
        }
    }
    links
}

/// The links that sessions have now.
pub(super) fn maintained(
    faults: &Faults,
    core: &CoreHandle,
    objects: &BoxObjects,
) -> MaintainedLinks {
    let mut maintained = MaintainedLinks::default();
    for session in faults.sessions().filter(|it| it.is_placement_off()) {
        let links = links_of(&session.resources, core, objects);
        if session.state == SessionState::InMaintenance {
            maintained.in_work.extend(links.iter().cloned());
        }
        maintained.closed.extend(links.into_iter().map(|link| (link, session.id.clone())));
    }
    maintained
}

/// The health of a session's resources: links are up, and probes that leave by them are answered.
pub(super) fn health(session: &Session, faults: &Faults, links: &Links) -> Health {
    let mut health = Health::default();
    for resource in &session.resources {
        let Resource::Interface(name) = resource else { continue };
        health.trouble = health.trouble.or_else(|| links.trouble(name));
        let probes = faults.settings().probes();
        for (probe, condition) in probes.filter(|(it, _)| it.interface.as_ref() == Some(name)) {
            health.is_probed = true;
            if faults.holds(&condition) {
                let trouble = format_smolstr!("the probe {} is not answered", probe.name);
                health.trouble.get_or_insert(trouble);
            }
        }
    }
    health
}

/// Looks for what stands on the resources of sessions, one at a time.
#[derive(Debug)]
pub(super) struct ContentWalks {
    core: CoreHandle,
    objects: Arc<BoxObjects>,
    wanted: BTreeMap<SmolStr, BTreeSet<Resource>>,
    running: Option<(SmolStr, JoinHandle<Option<Contents>>)>,
    next_at: Instant,
}

impl ContentWalks {
    pub(super) fn new(core: CoreHandle, objects: Arc<BoxObjects>) -> Self {
        Self { core, objects, wanted: BTreeMap::new(), running: None, next_at: Instant::now() }
    }

    /// Has the contents of these sessions looked for.
    pub(super) fn want<'s>(&mut self, sessions: impl IntoIterator<Item = &'s Session>) {
        let wanted = sessions.into_iter().map(|it| (it.id.clone(), it.resources.clone()));
        self.wanted.extend(wanted);
    }

    /// When the next walk may begin; `None` while there is nothing to be looked for, or one is under way.
    pub(super) fn due(&self) -> Option<Instant> {
        (self.running.is_none() && !self.wanted.is_empty()).then_some(self.next_at)
    }

    pub(super) fn begin(&mut self) {
        let Some((id, resources)) = self.wanted.pop_first() else { return };
        let core = self.core.clone();
        let objects = Arc::clone(&self.objects);
        let find = async move {
            let found = contents(&core, &objects, &resources).await;
            found.inspect_err(|error| error!(%error, "what stands on a resource is not known")).ok()
        };
        self.running = Some((id, tokio::spawn(find)));
        self.next_at = Instant::now() + WALK_INTERVAL;
    }

    /// The result of the walk under way. Without one, this waits for ever.
    pub(super) async fn found(&mut self) -> (SmolStr, Option<Contents>) {
        let Some((id, walk)) = &mut self.running else { return pending().await };
        // A walk that has panicked has found nothing, and is logged.
        let found = walk.await.ok().flatten();
        let id = id.clone();
        self.running = None;
        (id, found)
    }
}
