//! A network namespace for each test, and a platform that manages it.

use std::process::Command;
use std::time::Duration;

use holdfast_scheduler::{
    Action, Completion, Fact, Key, OpId, Operation, OperationError, Scope, SharedValue,
    TransportId, TxnId,
};
use nix::sched::{CloneFlags, unshare};
use tokio::runtime::{Builder, Runtime};

use super::kernel_defaults;
use crate::kinds::registry;
use crate::netns::NetnsSetting;
use crate::transport::codecs::Codecs;
use crate::transport::{Event, Events, Transport};
use crate::values::*;
use crate::{Platform, PlatformSettings};

/// Time limit for an event that normally takes some milliseconds.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);

/// Moves the test's thread into new namespaces, which its child threads share. The network has the settings of the kernel, not
/// those of the host.
pub(crate) fn enter_fresh_namespaces() {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS).unwrap_or_else(|errno| {
        panic!(
            "this test needs a network namespace ({errno}): run it as root, or under \
             `unshare --map-root-user --net --uts --mount`"
        )
    });
    kernel_defaults::restore();
    ip("link set lo up");
}

/// Path of the calling thread's namespace, for `--netns`.
pub(super) fn own_namespace() -> NetnsSetting {
    let thread = nix::unistd::gettid();
    NetnsSetting::Given(format!("/proc/self/task/{thread}/ns/net"))
}

/// Runs `ip` in the namespace of the calling thread.
#[track_caller]
pub(crate) fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split_whitespace()).output();
    let output = output.expect("iproute2 is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A managed namespace.
pub(super) struct ManagedNetns {
    pub(super) platform: Platform,
    events: Events,
    runtime: Runtime,
    next: u64,
    pub(super) root: tempfile::TempDir,
    /// All facts posted since [`ManagedNetns::forget`], complete lists included.
    pub(super) facts: Vec<Fact>,
    /// Number of complete reports, of everything or of a class.
    pub(super) lists: Vec<Scope>,
    completions: Vec<Completion>,
}

impl ManagedNetns {
    /// Enters fresh namespaces, runs these `ip` commands there, and manages them.
    pub(super) fn with(commands: &[&str]) -> Self {
        enter_fresh_namespaces();
        for command in commands {
            ip(command);
        }
        Self::start(Codecs::default(), None)
    }

    pub(super) fn start(codecs: Codecs, receive_buffer: Option<usize>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let settings = PlatformSettings {
            netns: own_namespace(),
            hostname: Default::default(),
            root: root.path().into(),
            vault: std::sync::Arc::new(crate::EmptyVault),
        };
        let (platform, events) =
            Platform::start_with(&settings, codecs, receive_buffer).expect("a managed namespace");
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let mut managed = Self {
            platform,
            events,
            runtime,
            next: 0,
            root,
            facts: Vec::new(),
            lists: Vec::new(),
            completions: Vec::new(),
        };
        managed.until("the first report", |managed| {
            managed.lists.contains(&Scope::Everything).then_some(())
        });
        managed
    }

    /// Waits for events until `look` returns a value.
    #[track_caller]
    pub(super) fn until<T>(
        &mut self,
        what: &str,
        mut look: impl FnMut(&mut Self) -> Option<T>,
    ) -> T {
        let deadline = std::time::Instant::now() + EVENT_TIMEOUT;
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            let event = self
                .runtime
                .block_on(async { tokio::time::timeout(left, self.events.recv()).await });
            match event {
                Ok(Some(event)) => self.take(event),
                Ok(None) => panic!("the transports ended while waiting for {what}"),
                Err(_) => panic!("{what} did not happen; facts: {:#?}", self.facts),
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Completed(list) => self.completions.extend(list),
            Event::Observed(facts) => self.facts.extend(facts),
            Event::Retrieved { scope, facts } => {
                // Objects that the list does not name are gone, as for the engine.
                let is_reported = |key: &Key| facts.iter().any(|fact| fact.key == *key);
                let registry = registry();
                let covered = |fact: &Fact| match &scope {
                    Scope::Everything => true,
                    Scope::Kinds(kinds) => kinds.contains(&fact.key.kind()),
                    Scope::Under(prefix) => fact.key.starts_with(prefix),
                    Scope::On { kind, object } => {
                        let value = fact.value.as_deref().filter(|_| fact.key.kind() == *kind);
                        registry
                            .descriptor(*kind)
                            .zip(value)
                            .is_some_and(|(it, value)| it.is_on(value, object))
                    }
                };
                let mut deleted: Vec<Fact> =
                    self.facts.iter().filter(|it| covered(it)).cloned().collect();
                deleted.retain(|fact| !is_reported(&fact.key));
                deleted.iter_mut().for_each(|fact| fact.value = None);
                self.facts.extend(deleted);
                self.facts.extend(facts);
                self.lists.push(scope);
            }
        }
    }

    /// Carries operations out and waits for all of them.
    #[track_caller]
    pub(super) fn run(&mut self, operations: Vec<Operation>) -> Vec<Result<(), OperationError>> {
        let ids: Vec<OpId> = operations.iter().map(|operation| operation.id).collect();
        self.platform.submit(operations);
        self.ended(&ids)
    }

    /// Waits for operations that were submitted.
    #[track_caller]
    pub(super) fn ended(&mut self, ids: &[OpId]) -> Vec<Result<(), OperationError>> {
        self.until("completion", |managed| (managed.completions.len() >= ids.len()).then_some(()));
        let completions = std::mem::take(&mut self.completions);
        assert_eq!(completions.iter().map(|completion| completion.op).collect::<Vec<_>>(), ids);
        completions
            .into_iter()
            .map(|completion| {
                self.facts.extend(completion.observed);
                completion.result
            })
            .collect()
    }

    /// Reads one object back.
    #[track_caller]
    pub(super) fn read(&mut self, key: &Key) -> Option<SharedValue> {
        self.facts.clear();
        self.platform.read(vec![key.clone()]);
        self.until("an answer", |managed| {
            managed.facts.iter().rev().find(|fact| fact.key == *key).cloned()
        })
        .value
    }

    /// Last observed value of a key.
    pub(super) fn latest<V: 'static>(&self, key: &Key) -> Option<&V> {
        let fact = self.facts.iter().rev().find(|fact| fact.key == *key)?;
        fact.value.as_ref()?.as_any().downcast_ref()
    }

    /// True when the last fact about a key says that it is gone.
    pub(super) fn is_gone(&self, key: &Key) -> bool {
        let latest = self.facts.iter().rev().find(|fact| fact.key == *key);
        latest.is_some_and(|fact| fact.value.is_none())
    }

    pub(super) fn create(&mut self, value: impl holdfast_scheduler::ObjectValue) -> Operation {
        self.operation(Action::Create, None, Some(shared(value)))
    }

    pub(super) fn delete(&mut self, value: impl holdfast_scheduler::ObjectValue) -> Operation {
        self.operation(Action::Delete, Some(shared(value)), None)
    }

    fn operation(
        &mut self,
        action: Action,
        old: Option<SharedValue>,
        new: Option<SharedValue>,
    ) -> Operation {
        self.next += 1;
        let value = new.as_deref().or(old.as_deref()).expect("one of both");
        let (key, transport) = key_and_transport(value);
        Operation { id: OpId(self.next), txn: TxnId(1), action, key, old, new, transport }
    }
}

fn shared(value: impl holdfast_scheduler::ObjectValue) -> SharedValue {
    std::sync::Arc::new(value)
}

/// Key of the value by its own descriptor.
fn key_and_transport(value: &dyn holdfast_scheduler::ObjectValue) -> (Key, TransportId) {
    use crate::kinds;
    let setting = value.as_any().downcast_ref::<LinkSetting>();
    let value_is = |kind| match kind {
        _ if setting.is_some_and(|it| it.sysctl.row().kind == kind) => true,
        kinds::LINK => value.as_any().is::<Link>(),
        kinds::LINK_MASTER => value.as_any().is::<LinkMaster>(),
        kinds::LINK_MTU => value.as_any().is::<LinkMtu>(),
        kinds::ADDRESS => value.as_any().is::<Address>(),
        kinds::NEIGHBOR => value.as_any().is::<Neighbor>(),
        kinds::ROUTE => value.as_any().is::<KernelRoute>(),
        kinds::HOSTNAME => value.as_any().is::<Hostname>(),
        kinds::TEXT_FILE => value.as_any().is::<TextFile>(),
        _ => false,
    };
    let registry = registry();
    let descriptor = registry.iter().find(|descriptor| value_is(descriptor.kind()));
    let descriptor = descriptor.expect("a kind with operations");
    match descriptor.effect() {
        holdfast_scheduler::Effect::Operation(transport) => (descriptor.key(value), transport),
        holdfast_scheduler::Effect::Property => panic!("{value:?} has no operations"),
    }
}

pub(super) fn veth(name: &str, peer: &str) -> Link {
    Link::new(name, MadeLink::new(&VETH).with("peer", peer).into())
}

pub(super) fn address(link: &str, net: &str) -> Address {
    let net: ipnet::IpNet = net.parse().unwrap();
    Address::new(link, net.addr(), net.prefix_len())
}

pub(super) fn route(prefix: &str, gateway: &str) -> KernelRoute {
    let hop = Hop { gateway: Some(gateway.parse().unwrap()), link: None };
    let prefix: ipnet::IpNet = prefix.parse().unwrap();
    let metric = KernelRoute::kernel_metric(prefix, None);
    let target = RouteTarget::Hops(vec![hop]);
    KernelRoute::new(MAIN_TABLE, prefix, metric, target)
}
