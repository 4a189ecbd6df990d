//! The authz policy in force, and counters of its decisions.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use holdfast_base::{AccessEpoch, AuthMethod, Caller, ErrorChain, Role, Switch};
use holdfast_config::schema::Schema;
use holdfast_config::{InstancePath, MissingNode, NodeId, Step, Value};
use holdfast_core::{PolledState, ServiceState};
use holdfast_platform::objects::GRPC_SERVER;
use holdfast_security::authz::{Call, Decision, InstalledPolicy, Policy, Upload};
use holdfast_security::rotation::created_on_ns;
use holdfast_store::{Artefact, ArtefactChange, ArtefactTable, Artefacts, Store};
use holdfast_telemetry::PolledReading;
use http::HeaderMap;
use tonic::Status;
use tracing::error;

use super::Rotator;
use crate::methods;
use crate::tls::Peer;

/// Name of the service's only artefact.
const POLICY: &str = "policy";

/// A policy; `None` before the first one.
pub(crate) type State = Option<Arc<InstalledPolicy>>;

/// Authorization of rpcs.
pub(crate) struct Authz {
    pub(crate) rotator: Rotator,
    policies: RwLock<Policies>,
    switch: Switch,
    access: AccessEpoch,
    counters: HashMap<String, Counters>,
    nodes: Nodes,
}

#[derive(Clone, Debug, Default)]
struct Policies {
    /// Policy that decides: the final one, or the one being tried.
    in_force: State,
    /// Policy on disk.
    last: State,
}

/// Decisions about one rpc since the start of the agent.
#[derive(Debug)]
struct Counters {
    /// The entry of the rpc.
    entry: InstancePath,
    allowed: Counter,
    denied: Counter,
}

#[derive(Debug, Default)]
struct Counter {
    times: AtomicU64,
    /// Nanoseconds since 1970; 0 for never.
    last_ns: AtomicU64,
}

/// Paths of the leaves.
#[derive(Debug)]
struct Nodes {
    version: InstancePath,
    created_on: InstancePath,
    /// Steps below the entry of an rpc: its name, count and time of allowed calls, count and time of denied calls.
    name: Vec<Step>,
    allowed: [Vec<Step>; 2],
    denied: [Vec<Step>; 2],
}

/// Reason for denying a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denial {
    #[error("no rule of the authorization policy allows `{caller}` to call {rpc}")]
    ByDefault { caller: String, rpc: String },
    #[error("rule `{rule}` of the authorization policy denies `{caller}` to call {rpc}")]
    ByRule { caller: String, rpc: String, rule: String },
    #[error(
        "`{caller}` has the role `{role}`, which has no rights of its own: {rpc} needs an authorization policy that allows it"
    )]
    NoPolicy { caller: String, role: String, rpc: String },
}

impl Authz {
    pub(super) fn new(
        native: &Schema,
        store: Store,
        artefacts: &Artefacts,
        switch: Switch,
        access: AccessEpoch,
    ) -> Result<Self, MissingNode> {
        let artefact = artefacts.get(&ArtefactTable::Authz).and_then(|all| all.get(POLICY));
        let last = artefact.map(|artefact| Arc::new(restore_policy(artefact)));
        let counters = methods::rpcs().into_iter().map(|rpc| {
            let entry = rpc_entry(native, &rpc)?;
            let (allowed, denied) = Default::default();
            Ok((rpc, Counters { entry, allowed, denied }))
        });
        Ok(Self {
            rotator: Rotator::new(store),
            policies: RwLock::new(Policies { in_force: last.clone(), last }),
            switch,
            access,
            counters: counters.collect::<Result<_, _>>()?,
            nodes: Nodes::find(native)?,
        })
    }

    /// Decides about a call, and counts the decision.
    ///
    /// # Errors
    /// With the reason, when the call is denied.
    pub(crate) fn authorize(
        &self,
        caller: &Caller,
        peer: Option<&Peer>,
        rpc: &str,
        headers: &HeaderMap,
        now_ns: u64,
    ) -> Result<(), Denial> {
        let verdict = verdict(&self.enforced(), caller, peer, rpc, headers);
        if let Some(counters) = self.counters.get(rpc) {
            counters.count(verdict.is_ok(), now_ns);
        }
        verdict
    }

    /// Decides again about a call in progress, by the policy in force, or the final one while another is being
    /// tried. Not counted, because it is not a new call.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` with the reason, when the call is denied.
    pub(crate) fn reauthorize(
        &self,
        caller: &Caller,
        peer: Option<&Peer>,
        rpc: &str,
        headers: &HeaderMap,
    ) -> Result<(), Status> {
        let verdict_of = |state: &State| verdict(state, caller, peer, rpc, headers);
        let last = || if self.switch.is_on() { self.last() } else { None };
        let allowed =
            verdict_of(&self.enforced()).or_else(|denied| verdict_of(&last()).map_err(|_| denied));
        allowed.map_err(|denied| Status::permission_denied(denied.to_string()))
    }

    /// Decision for a hypothetical call of this user, with the version of the policy. The call has no headers.
    pub(crate) fn probe(&self, user: &str, rpc: &str) -> (bool, String) {
        let Some(installed) = self.enforced() else { return (true, String::new()) };
        let call = Call { principals: &[user], path: rpc, header: &|_| None };
        (installed.policy.decide(call).is_allowed(), installed.version.clone())
    }

    /// True when a policy decides, in addition to roles.
    pub(crate) fn is_enforced(&self) -> bool {
        self.enforced().is_some()
    }

    fn enforced(&self) -> State {
        if self.switch.is_on() { self.in_force() } else { None }
    }

    /// Policy that decides, or would if gNSI were switched on.
    pub(crate) fn in_force(&self) -> State {
        self.policies.read().unwrap_or_else(PoisonError::into_inner).in_force.clone()
    }

    /// Policy on disk.
    pub(crate) fn last(&self) -> State {
        self.policies.read().unwrap_or_else(PoisonError::into_inner).last.clone()
    }

    /// Applies another policy from the next call on. Returns the resulting state leaves.
    pub(crate) fn enforce(&self, state: &State) -> ServiceState {
        self.policies.write().unwrap_or_else(PoisonError::into_inner).in_force.clone_from(state);
        self.access.advance();
        self.state_leaves(state)
    }

    /// Change of the artefact for this state.
    pub(crate) fn change(&self, state: &State) -> ArtefactChange {
        let artefact = state.as_ref().map(|installed| Artefact {
            version: installed.version.clone(),
            created_on: installed.created_on,
            content: installed.text.clone().into_bytes().into(),
        });
        ArtefactChange { table: ArtefactTable::Authz, name: POLICY.into(), artefact }
    }

    /// Records that this state is on disk; streams that it does not allow are ended.
    pub(crate) fn mark_final(&self, state: &State) {
        self.policies.write().unwrap_or_else(PoisonError::into_inner).last.clone_from(state);
        self.access.advance();
    }

    /// State at the start: the version, and the name of each rpc.
    pub(super) fn first_state(&self) -> ServiceState {
        let name = |(rpc, counters): (&String, &Counters)| {
            (below(&counters.entry, &self.nodes.name), Some(Value::Str(rpc.into())))
        };
        let mut state = self.state_leaves(&self.in_force());
        state.extend(self.counters.iter().map(name));
        state
    }

    fn state_leaves(&self, state: &State) -> ServiceState {
        let version = state.as_ref().map(|it| Value::Str(it.version.as_str().into()));
        let created_on = state.as_ref().and_then(|it| created_on_ns(it.created_on));
        vec![
            (self.nodes.version.clone(), version),
            (self.nodes.created_on.clone(), created_on.map(Value::Uint)),
        ]
    }
}

impl Authz {
    fn counts(&self) -> Vec<(InstancePath, Value)> {
        let mut leaves = Vec::with_capacity(self.counters.len() * 4);
        for Counters { entry, allowed, denied } in self.counters.values() {
            for (counter, [times, last]) in
                [(allowed, &self.nodes.allowed), (denied, &self.nodes.denied)]
            {
                leaves.push((below(entry, times), Value::Uint(counter.times.load(Relaxed))));
                let last_ns = counter.last_ns.load(Relaxed);
                if last_ns != 0 {
                    leaves.push((below(entry, last), Value::Uint(last_ns)));
                }
            }
        }
        leaves
    }
}

#[tonic::async_trait]
impl PolledState for Authz {
    fn nodes(&self) -> Vec<NodeId> {
        let ways = self.nodes.allowed.iter().chain(&self.nodes.denied);
        ways.filter_map(|way| Some(way.last()?.node)).collect()
    }

    async fn read(&self) -> PolledReading {
        self.counts().into()
    }
}

impl Counters {
    fn count(&self, allowed: bool, now_ns: u64) {
        let counter = if allowed { &self.allowed } else { &self.denied };
        counter.times.fetch_add(1, Relaxed);
        counter.last_ns.fetch_max(now_ns, Relaxed);
    }
}

impl Nodes {
    fn find(native: &Schema) -> Result<Self, MissingNode> {
        let policy = |leaf| {
            native.instance_path(&[
                ("system", &[]),
                ("state", &[]),
                ("authz-policy", &[]),
                (leaf, &[]),
            ])
        };
        let entry = rpc_entry(native, "/")?;
        let in_entry = |leaf: &str| {
            let state = native.child(entry.last()?.node, None, "state")?;
            Some(vec![Step::node(state), Step::node(native.child(state, None, leaf)?)])
        };
        let leaf = |name: &str| in_entry(name).ok_or_else(|| MissingNode(name.to_owned()));
        Ok(Self {
            version: policy("version")?,
            created_on: policy("created-on")?,
            name: leaf("name")?,
            allowed: [leaf("access-accepts")?, leaf("last-access-accept")?],
            denied: [leaf("access-rejects")?, leaf("last-access-reject")?],
        })
    }
}

impl fmt::Debug for Authz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.in_force().map(|it| it.version.clone());
        f.debug_struct("Authz").field("version", &version).finish_non_exhaustive()
    }
}

/// Parses the stored policy. It was accepted once, possibly by an agent that knows more; a policy that this agent
/// cannot parse allows nothing, and is kept unchanged.
fn restore_policy(artefact: &Artefact) -> InstalledPolicy {
    let text = String::from_utf8_lossy(&artefact.content).into_owned();
    let version = artefact.version.clone();
    let created_on = artefact.created_on;
    let upload = Upload { version: version.clone(), created_on, text: text.clone() };
    upload.install().unwrap_or_else(|reason| {
        error!(error = %ErrorChain(&reason), "the stored authorization policy cannot be read: no RPC is allowed until \
            gNSI is switched off on the box");
        InstalledPolicy { version, created_on, text, policy: Policy::closed() }
    })
}

/// Decision about a call; allowed without a policy.
fn verdict(
    state: &State,
    caller: &Caller,
    peer: Option<&Peer>,
    rpc: &str,
    headers: &HeaderMap,
) -> Result<(), Denial> {
    let rpc_name = || rpc.trim_start_matches('/').to_owned();
    let installed = match (state, &caller.role) {
        (Some(installed), _) => installed,
        (None, Role::Named(role)) => {
            let caller = caller.name.to_string();
            let role = role.to_string();
            return Err(Denial::NoPolicy { caller, role, rpc: rpc_name() });
        }
        (None, _) => return Ok(()),
    };
    let principals = principals(caller, peer);
    let header = |key: &str| joined(headers, key);
    let call = Call { principals: &principals, path: rpc, header: &header };
    let denied = match installed.policy.decide(call) {
        Decision::Allowed { .. } => return Ok(()),
        Decision::Denied { rule } => rule,
    };
    let caller = caller.name.to_string();
    let rpc = rpc_name();
    Err(match denied {
        Some(rule) => Denial::ByRule { caller, rpc, rule: rule.to_owned() },
        None => Denial::ByDefault { caller, rpc },
    })
}

/// All names of the caller: the name from the metadata alone, or all names in the certificate; and that of a role without
/// rights of its own.
fn principals<'a>(caller: &'a Caller, peer: Option<&'a Peer>) -> Vec<&'a str> {
    let certificate = match caller.auth_method {
        AuthMethod::Certificate => peer.and_then(|peer| peer.certificate.as_ref()),
        AuthMethod::Password | AuthMethod::NameWithCertificate | AuthMethod::Local { .. } => None,
    };
    let names = certificate.iter().flat_map(|it| &it.principals).map(|name| name.as_str());
    let role = match &caller.role {
        Role::Named(role) => Some(role.as_str()),
        Role::None | Role::ReadOnly | Role::Admin => None,
    };
    std::iter::once(caller.name.as_str()).chain(names).chain(role).collect()
}

/// Values of a header, joined by commas.
fn joined(headers: &HeaderMap, key: &str) -> Option<String> {
    let mut values = headers.get_all(key).iter().map(|it| String::from_utf8_lossy(it.as_bytes()));
    let first = values.next()?.into_owned();
    Some(values.fold(first, |all, value| all + "," + &value))
}

fn rpc_entry(native: &Schema, rpc: &str) -> Result<InstancePath, MissingNode> {
    let server: &[_] = &[("name", GRPC_SERVER)];
    native.instance_path(&[
        ("system", &[]),
        ("grpc-server", server),
        ("authz-rpc", &[("name", rpc)]),
    ])
}

fn below(entry: &InstancePath, steps: &[Step]) -> InstancePath {
    InstancePath(entry.0.iter().chain(steps).cloned().collect())
}
