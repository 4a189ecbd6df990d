//! gnoi.healthz: the health of the parts of the box that telemetry shows, by the alarms that are open.

use holdfast_base::Caller;
use holdfast_config::tree::{Branch, ListEntry as _};
use holdfast_config::{Models, Value};
use holdfast_core::Datastore;
use holdfast_faults::{Alarm, OperatorState, Resource};
use holdfast_proto::gnoi::healthz::healthz_server::Healthz;
use holdfast_proto::gnoi::healthz::{
    AcknowledgeRequest, AcknowledgeResponse, ArtifactRequest, ArtifactResponse, CheckRequest,
    CheckResponse, ComponentStatus, GetRequest, GetResponse, ListRequest, ListResponse,
    Status as Health,
};
use holdfast_proto::gnoi::types::{Path, PathElem};
use holdfast_telemetry::LeafVersion;
use prost_types::Timestamp;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use super::component;
use crate::faults::FaultService;
use crate::northbound::status::Refusal;

/// Names of the parts that stand for the box and for what runs on it.
const CHASSIS: &str = "chassis";
const OPERATING_SYSTEM: &str = "os";
/// Nanoseconds in a second.
const NS_PER_S: u64 = 1_000_000_000;

/// Serves gnoi.healthz.
#[derive(Debug)]
pub(in crate::northbound) struct HealthzService<D> {
    core: D,
    /// `None` where no agent runs behind the service: then nothing has alarms.
    faults: Option<FaultService>,
}

/// The parts of the box at one moment, with the alarms of each.
#[derive(Debug)]
struct Parts {
    /// Names of the parts, each with the name of the one that it belongs to.
    parents: Vec<(String, Option<String>)>,
    alarms: Vec<Alarm>,
}

impl<D: Datastore> HealthzService<D> {
    pub(in crate::northbound) fn new(core: D, faults: Option<FaultService>) -> Self {
        Self { core, faults }
    }

    async fn parts(&self) -> Result<Parts, Refusal> {
        let alarms = match &self.faults {
            Some(faults) => faults.alarms().await.map_err(Refusal::from)?,
            None => Vec::new(),
        };
        let revision = self.core.current_revision().await;
        let parents = parents(&revision.models, revision.native.root());
        Ok(Parts { parents, alarms: alarms.into_iter().filter(|it| !it.is_aside()).collect() })
    }

    /// The part that a path names, with all parts.
    async fn named(&self, path: Option<&Path>) -> Result<(String, Parts), Refusal> {
        let path = path.ok_or_else(|| Refusal::invalid("path is missing"))?;
        let name = component::name(&self.core.models(), path)?;
        let parts = self.parts().await?;
        if !parts.parents.iter().any(|(part, _)| part == name) {
            return Err(Refusal::missing(format!("the box has no component `{name}`")));
        }
        Ok((name.to_owned(), parts))
    }
}

#[tonic::async_trait]
impl<D: Datastore> Healthz for HealthzService<D> {
    type ArtifactStream = BoxStream<ArtifactResponse>;

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        Caller::authenticated(&request)?.require_admin("gNOI Healthz Get")?;
        let (name, parts) = self.named(request.into_inner().path.as_ref()).await?;
        Ok(Response::new(GetResponse { component: Some(parts.status(&name)) }))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        Caller::authenticated(&request)?.require_admin("gNOI Healthz List")?;
        let ListRequest { path, include_acknowledged } = request.into_inner();
        let (name, parts) = self.named(path.as_ref()).await?;
        let events = parts.events(&name);
        let wanted = events.filter(|event| include_acknowledged || !event.acknowledged);
        Ok(Response::new(ListResponse { statuses: wanted.collect() }))
    }

    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<CheckResponse>, Status> {
        Caller::authenticated(&request)?.require_admin("gNOI Healthz Check")?;
        let CheckRequest { path, event_id } = request.into_inner();
        if !event_id.is_empty() {
            let text =
                "event_id: the agent collects nothing about an event that could be checked again";
            return Err(Refusal::unimplemented(text).into());
        }
        let (name, parts) = self.named(path.as_ref()).await?;
        Ok(Response::new(CheckResponse { status: Some(parts.status(&name)) }))
    }

    async fn acknowledge(
        &self,
        request: Request<AcknowledgeRequest>,
    ) -> Result<Response<AcknowledgeResponse>, Status> {
        Caller::authenticated(&request)?.require_admin("gNOI Healthz Acknowledge")?;
        let text = "alarms are acknowledged by SetOperatorState of holdfast.faults.v1.Faults";
        Err(Refusal::unimplemented(text).into())
    }

    async fn artifact(
        &self,
        request: Request<ArtifactRequest>,
    ) -> Result<Response<Self::ArtifactStream>, Status> {
        Caller::authenticated(&request)?.require_admin("gNOI Healthz Artifact")?;
        let id = request.into_inner().id;
        Err(Refusal::missing(format!(
            "`{id}` is not the id of an artifact: this box keeps no artifacts"
        ))
        .into())
    }
}

impl Parts {
    /// The health of a part, with that of the parts that belong to it.
    fn status(&self, name: &str) -> ComponentStatus {
        let below = self.parents.iter().filter(|(_, parent)| parent.as_deref() == Some(name));
        let is_healthy = !self.alarms.iter().any(|alarm| is_about(alarm, name));
        let health = if is_healthy { Health::Healthy } else { Health::Unhealthy };
        ComponentStatus {
            path: Some(path_of(name)),
            subcomponents: below.map(|(part, _)| self.status(part)).collect(),
            status: health.into(),
            ..ComponentStatus::default()
        }
    }

    /// The alarms of a part, each as an event.
    fn events(&self, name: &str) -> impl Iterator<Item = ComponentStatus> {
        let alarms = self.alarms.iter().filter(move |alarm| is_about(alarm, name));
        alarms.map(move |alarm| ComponentStatus {
            path: Some(path_of(name)),
            status: Health::Unhealthy.into(),
            id: alarm.condition.to_string(),
            acknowledged: alarm.operator_state != OperatorState::None,
            created: Some(timestamp(alarm.created_ns)),
            ..ComponentStatus::default()
        })
    }
}

/// True for an alarm about a part: that of an interface is about its port.
fn is_about(alarm: &Alarm, part: &str) -> bool {
    match &alarm.condition.resource {
        Resource::Interface(name) => name == part,
        Resource::Box => part == CHASSIS,
        Resource::Agent => part == OPERATING_SYSTEM,
        _ => false,
    }
}

/// The parts that telemetry shows, with the names of those that they belong to.
fn parents(models: &Models, root: &Branch<LeafVersion>) -> Vec<(String, Option<String>)> {
    let find = |path: &str| models.native.find(path);
    let nodes = [
        find("/components"),
        find("/components/component"),
        find("/components/component/state"),
        find("/components/component/state/parent"),
    ];
    let [Some(components), Some(list), Some(state), Some(parent)] = nodes else {
        return Vec::new();
    };
    let shown = root.container(components).and_then(|it| it.list(list));
    let text = |value: &Value| match value {
        Value::Str(text) => Some(text.to_string()),
        _ => None,
    };
    let entries = shown.into_iter().flat_map(|list| list.iter());
    let found = entries.filter_map(|(keys, entry)| {
        let entry = entry.branch().into_shared();
        let above = entry.container(state).and_then(|state| state.value(parent)).and_then(text);
        Some((text(keys.first()?)?, above))
    });
    found.collect()
}

fn path_of(name: &str) -> Path {
    let elem = |name: &str| PathElem { name: name.to_owned(), ..PathElem::default() };
    let key = [("name".to_owned(), name.to_owned())].into();
    let elem = vec![elem("components"), PathElem { key, ..elem("component") }];
    Path { elem, ..Path::default() }
}

fn timestamp(ns: u64) -> Timestamp {
    let seconds = i64::try_from(ns / NS_PER_S).unwrap_or(i64::MAX);
    let nanos = i32::try_from(ns % NS_PER_S).unwrap_or_default();
    Timestamp { seconds, nanos }
}
