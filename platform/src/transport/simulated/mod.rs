//! A simulated kernel: a small model behind the same [`Transport`] as the real one.
//!
//! Start at [`SimulatedKernel`]. Its input are the encoded requests and its output are the messages of the real
//! kernel, so tests cover the codecs too. The model has the kernel's quirks: setting an identical neighbour, or
//! the alias of a link that is down, gives no message; IPv4 routes vanish without notification when their link
//! goes down or away; IPv6 addresses go when their link goes down; a link takes everything on it along; no message
//! names the process that caused it. The model can be told to fail, panic or hang at its nth request, or to hang at
//! objects of a kind, and has methods for changes by other programs.
//!
//! The model runs in the thread of the caller, so a test is a sequence of steps and never waits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_scheduler::{
    Completion, Key, KindId, OpId, Operation, OperationError, Scope, SharedValue,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use nix::errno::Errno;
use std::net::IpAddr;

mod credentials;
#[cfg(test)]
mod harness;
mod links;
mod model;
#[cfg(test)]
mod properties;
mod reports;
#[cfg(test)]
pub(crate) mod tests;

use super::mailbox::{Mailbox, mailbox};
use super::{Event, Events, Transport};
use crate::kinds::codec::{Request, Requests};
use crate::kinds::links::{FIRST_OUR_INDEX, LinkIndex};
use crate::kinds::{self, credential};
use crate::values::{Ethernet, Family, KernelRoute, Link, LinkSysctl, MAIN_TABLE, setting_paths};
use links::{SimLink, SimLinkKind};
use model::{KernelModel, SimulatedRefusal};

/// Effect of a fault at the chosen request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request is refused with this errno.
    Fail(i32),
    /// The transport panics.
    Panic,
    /// The request is not carried out, and neither is any later one, until [`SimulatedKernel::resume`].
    Hang,
}

/// Handle of the model; clones share it.
#[derive(Clone, Debug, Default)]
pub struct SimulatedKernel(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    machine: KernelModel,
    links: LinkIndex,
    /// Requests so far.
    requests: u64,
    fault: Option<(u64, Fault)>,
    hung: bool,
    waiting: Vec<Command>,
    /// Kind of objects whose operations hang, as when they have a transport of their own.
    hung_kind: Option<KindId>,
    /// Operations on such objects.
    waiting_operations: Vec<Operation>,
    mailbox: Option<Mailbox>,
    /// Simulated clock, which advances by one at every event.
    time_ns: u64,
}

#[derive(Debug)]
enum Command {
    Submit(Vec<Operation>),
    Read(Vec<Key>),
    Retrieve,
}

/// The [`Transport`] side of a [`SimulatedKernel`].
#[derive(Debug)]
pub struct SimulatedTransport(SimulatedKernel);

impl SimulatedKernel {
    /// A box with the loopback device and these ports, all of them down.
    pub fn new(ports: &[&str]) -> Self {
        let kernel = Self::default();
        {
            let mut state = kernel.lock();
            state.machine.hostname = "simulated".into();
            let mut lo = SimLink::new(1, "lo", SimLinkKind::Loopback);
            lo.mtu = 65_536;
            lo.mac = [0; 6];
            state.machine.insert_link(lo);
        }
        ports.iter().for_each(|port| kernel.plug(port));
        kernel.lock().machine.notes.clear();
        kernel
    }

    /// Returns the transport, and the receiver of its events. Requests that hang end with the agent that made them.
    pub fn connect(&self) -> (SimulatedTransport, Events) {
        let (mailbox, events) = mailbox();
        let mut state = self.lock();
        state.mailbox = Some(mailbox);
        state.waiting.clear();
        state.waiting_operations.clear();
        drop(state);
        (SimulatedTransport(self.clone()), events)
    }

    /// True while the fault that was asked for has not happened.
    pub fn has_fault(&self) -> bool {
        self.lock().fault.is_some()
    }

    /// Chooses the fault for the `nth` request from now on, counted from 1.
    pub fn fault_at(&self, nth: u64, fault: Fault) {
        let mut state = self.lock();
        state.fault = Some((state.requests + nth, fault));
    }

    /// Number of requests so far.
    pub fn requests(&self) -> u64 {
        self.lock().requests
    }

    /// True after a [`Fault::Hang`] has occurred.
    pub fn is_hung(&self) -> bool {
        self.lock().hung
    }

    /// Carries out no operations on objects of a kind until [`SimulatedKernel::resume`], and goes on with all others.
    pub fn hang_at(&self, kind: KindId) {
        self.lock().hung_kind = Some(kind);
    }

    /// Number of operations that hang by [`SimulatedKernel::hang_at`].
    pub fn hanging(&self) -> usize {
        self.lock().waiting_operations.len()
    }

    /// Ends a [`Fault::Hang`] and [`SimulatedKernel::hang_at`]: carries out the waiting requests.
    pub fn resume(&self) {
        let mut state = self.lock();
        (state.hung, state.hung_kind) = (false, None);
        let operations = std::mem::take(&mut state.waiting_operations);
        let mut waiting = std::mem::take(&mut state.waiting);
        if !operations.is_empty() {
            waiting.insert(0, Command::Submit(operations));
        }
        waiting.into_iter().for_each(|command| state.run(command));
    }

    /// Plugs a port in.
    pub fn plug(&self, name: &str) {
        self.change_externally(|machine| {
            let index = machine.last_index + 1;
            machine.insert_link(SimLink::new(index, name, SimLinkKind::Port));
        });
    }

    /// Removes a link of any kind.
    pub fn unplug(&self, name: &str) {
        self.change_externally(|machine| {
            if let Some(index) = machine.by_name(name) {
                machine.remove(index);
            }
        });
    }

    /// Sets a link up or down, as another program would.
    pub fn set_up(&self, name: &str, up: bool) {
        self.change_externally(|machine| {
            let mut message = LinkMessage::default();
            message.header.index = machine.by_name(name).unwrap_or(0);
            message.header.change_mask = LinkFlags::Up;
            message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
            machine.request_by_hand(RouteNetlinkMessage::SetLink(message));
        });
    }

    /// Installs a program, as an operator would; its path is below the root.
    pub fn install(&self, program: &str) {
        let key = credential::program_key(program);
        self.change_externally_and_read(key, |machine| machine.credentials.install(program));
    }

    /// Adds an account with a password, as an operator would.
    pub fn add_account(&self, name: &str, hash: &str) {
        let key = credential::account_key(name);
        self.change_externally_and_read(key, |machine| machine.credentials.add_account(name, hash));
    }

    /// Sets the MTU of a link, as another program would.
    pub fn set_mtu(&self, name: &str, mtu: u32) {
        self.set_attribute(name, LinkAttribute::Mtu(mtu));
    }

    /// Sets the alias of a link, as another program would; an empty one removes it.
    pub fn set_alias(&self, name: &str, alias: &str) {
        self.set_attribute(name, LinkAttribute::IfAlias(alias.to_owned()));
    }

    /// Takes a link out of its bridge or bond, as another program would.
    pub fn leave_master(&self, name: &str) {
        self.set_attribute(name, LinkAttribute::Controller(0));
    }

    /// Changes the speed or duplex that the driver of a port reports, as after a new negotiation.
    pub fn set_ethernet(&self, ethernet: Ethernet) {
        let key = kinds::ethernet::key(&ethernet.link);
        self.change_externally_and_read(key, |machine| {
            let index = machine.by_name(&ethernet.link);
            let link = index.and_then(|index| machine.links.get_mut(&index));
            link.expect("a cable comes to a port that is there").ethernet = Some(ethernet);
        });
    }

    fn set_attribute(&self, name: &str, attribute: LinkAttribute) {
        self.change_externally(|machine| {
            let mut message = LinkMessage::default();
            message.header.index = machine.by_name(name).unwrap_or(0);
            message.attributes = vec![attribute];
            machine.request_by_hand(RouteNetlinkMessage::SetLink(message));
        });
    }

    /// Adds an address, as another program would.
    pub fn add_address(&self, link: &str, ip: IpAddr, prefix_len: u8) {
        self.change_externally(|machine| {
            let message = address_message(machine, link, ip, prefix_len);
            machine.request_by_hand(RouteNetlinkMessage::NewAddress(message));
        });
    }

    /// Removes an address, as another program would.
    pub fn delete_address(&self, link: &str, ip: IpAddr, prefix_len: u8) {
        self.change_externally(|machine| {
            let message = address_message(machine, link, ip, prefix_len);
            machine.request_by_hand(RouteNetlinkMessage::DelAddress(message));
        });
    }

    /// Adds a foreign route that drops packets, with protocol `static` and the metric of a static route without one.
    pub fn add_foreign_route(&self, prefix: ipnet::IpNet) {
        self.change_externally(|machine| {
            let metric = KernelRoute::kernel_metric(prefix, None);
            let mut message = foreign_route_message(prefix, metric);
            message.header.kind = RouteType::BlackHole;
            machine.request_by_hand(RouteNetlinkMessage::NewRoute(message));
        });
    }

    /// Adds a foreign route by a link, with protocol `static`.
    pub fn add_foreign_route_by(&self, prefix: ipnet::IpNet, link: &str, metric: u32) {
        self.change_externally(|machine| {
            let mut message = foreign_route_message(prefix, metric);
            message.header.kind = RouteType::Unicast;
            message.header.scope = RouteScope::Link;
            message.attributes.push(RouteAttribute::Oif(machine.by_name(link).unwrap_or(0)));
            machine.request_by_hand(RouteNetlinkMessage::NewRoute(message));
        });
    }

    /// Removes a route of any origin.
    pub fn delete_route(&self, prefix: ipnet::IpNet) {
        self.change_externally(|machine| {
            let keys: Vec<_> =
                machine.routes.keys().filter(|key| key.1 == prefix).copied().collect();
            for key in keys {
                let old = machine.routes.remove(&key);
                machine.notes.extend(old.map(|old| (RouteNetlinkMessage::DelRoute(old), 0)));
            }
        });
    }

    /// Description of the whole box, one sorted line for each object, for comparison in tests.
    pub fn describe(&self) -> Vec<String> {
        let mut state = self.lock();
        let registry = kinds::registry();
        let mut lines = Vec::new();
        for (key, value) in state.everything() {
            if matches!(key.kind(), kinds::LINK | kinds::ADDRESS | kinds::NEIGHBOR | kinds::ROUTE) {
                lines.push(registry.label(&key, Some(&*value)));
            }
        }
        lines.sort();
        lines
    }

    /// Configuration of the box in full, with settings and files but without volatile facts. After a rollback this
    /// must be as before.
    pub fn contents(&self) -> Vec<String> {
        let mut state = self.lock();
        let bare = |value: SharedValue| match value.as_any().downcast_ref::<Link>() {
            Some(link) => {
                let ours = link.is_ours();
                // A link that is created again gets a new address from the kernel, and members of a bond have that of the bond.
                let index = link.facts.as_ref().map_or(0, |facts| facts.index);
                let is_own = index < FIRST_OUR_INDEX && !link.has_those_of_master();
                let mac = link.mac.filter(|_| is_own);
                format!("{:?}, ours: {ours}", Link { facts: None, mac, ..link.clone() })
            }
            None => format!("{value:?}"),
        };
        let all = state.everything();
        let mut lines: Vec<String> =
            all.into_iter().map(|(key, value)| format!("{key}: {}", bare(value))).collect();
        lines.sort();
        lines
    }

    /// Observed value of a key.
    pub fn observed(&self, key: &Key) -> Option<SharedValue> {
        self.lock().everything().into_iter().find(|(other, _)| other == key).map(|(_, it)| it)
    }

    /// True when the link of this name carries our mark.
    pub fn is_marked(&self, link: &str) -> bool {
        self.lock().machine.is_marked(link)
    }

    fn change_externally(&self, act: impl FnOnce(&mut KernelModel)) {
        let mut state = self.lock();
        act(&mut state.machine);
        state.post_notifications();
    }

    /// Runs a change by another program that gives no notification, and reads the object again.
    fn change_externally_and_read(&self, key: Key, act: impl FnOnce(&mut KernelModel)) {
        let mut state = self.lock();
        act(&mut state.machine);
        state.run(Command::Read(vec![key]));
    }

    /// Recovers from a poisoned lock: an injected panic happens before the model is changed.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for SimulatedTransport {
    fn submit(&mut self, batch: Vec<Operation>) {
        self.0.lock().run(Command::Submit(batch));
    }

    fn cancel(&mut self, operations: Vec<OpId>) {
        self.0.lock().cancel(&operations);
    }

    fn read(&mut self, keys: Vec<Key>) {
        self.0.lock().run(Command::Read(keys));
    }

    fn retrieve(&mut self) {
        self.0.lock().run(Command::Retrieve);
    }
}

impl State {
    fn run(&mut self, command: Command) {
        if self.hung {
            self.waiting.push(command);
            return;
        }
        match command {
            Command::Submit(batch) => self.submit(batch),
            Command::Read(keys) => {
                let there: HashMap<Key, SharedValue> = self.everything().into_iter().collect();
                let answers =
                    keys.into_iter().map(|key| (key.clone(), there.get(&key).cloned())).collect();
                let facts = self.facts(answers);
                self.post(Event::Observed(facts));
            }
            Command::Retrieve => {
                let all = self.everything();
                let facts = self.facts(all.into_iter().map(|(key, it)| (key, Some(it))).collect());
                self.machine.notes.clear();
                self.post(Event::Retrieved { scope: Scope::Everything, facts: facts.into() });
            }
        }
    }

    /// Cancels operations that have not started. A request that hangs has started, so it stays.
    fn cancel(&mut self, operations: &[OpId]) {
        let mut cancelled = Vec::new();
        let batches = self.waiting.iter_mut().filter_map(|command| match command {
            Command::Submit(batch) => Some(batch),
            _ => None,
        });
        for (nth, batch) in batches.enumerate() {
            let hangs = batch.first().map(|operation| operation.id).filter(|_| nth == 0);
            batch.retain(|operation| {
                let expected = Some(operation.id) == hangs || !operations.contains(&operation.id);
                cancelled.extend((!expected).then_some(operation.id));
                expected
            });
        }
        let mut nth = 0;
        self.waiting_operations.retain(|operation| {
            nth += 1;
            let expected = nth == 1 || !operations.contains(&operation.id);
            cancelled.extend((!expected).then_some(operation.id));
            expected
        });
        let answers = cancelled.into_iter().map(|op| {
            let result = Err(OperationError::cancelled());
            Completion { op, result, observed: None }
        });
        let answers = answers.collect();
        self.post(Event::Completed(answers));
    }

    fn submit(&mut self, batch: Vec<Operation>) {
        let mut rest = batch.into_iter();
        let mut completions = Vec::new();
        while let Some(operation) = rest.next() {
            if self.hung_kind == Some(operation.key.kind()) {
                self.waiting_operations.push(operation);
                continue;
            }
            match self.operate(&operation) {
                Some(result) => {
                    completions.push(Completion { op: operation.id, result, observed: None });
                }
                None => {
                    let waiting = std::iter::once(operation).chain(rest.by_ref()).collect();
                    self.waiting.push(Command::Submit(waiting));
                }
            }
        }
        self.post(Event::Completed(completions));
        self.post_notifications();
    }

    /// Carries one operation out; `None` when it hangs.
    fn operate(&mut self, operation: &Operation) -> Option<Result<(), OperationError>> {
        let mut links = self.links.clone();
        let requests = match kinds::encode(operation, &mut links) {
            Ok(requests) => requests,
            Err(error) => return Some(Err(error.into())),
        };
        let chosen = self.requests + 1..=self.requests + requests.len() as u64;
        if let Some((nth, Fault::Hang)) = self.fault
            && chosen.contains(&nth)
        {
            self.fault = None;
            self.hung = true;
            return None;
        }
        self.links = links;
        let result = self.execute(requests).map_err(|error| {
            let reason = kinds::why_refused(operation, &self.links);
            OperationError { message: reason.unwrap_or(error.message), ..error }
        });
        if result.is_err() && operation.action == holdfast_scheduler::Action::Create {
            self.undo(operation);
        }
        Some(result)
    }

    /// Rolls back a creation, which succeeds as a whole or not at all.
    fn undo(&mut self, operation: &Operation) {
        let mut back = operation.clone();
        back.action = holdfast_scheduler::Action::Delete;
        back.old = back.new.take();
        let requests = kinds::encode(&back, &mut self.links).unwrap_or_default();
        for request in &requests {
            // Deleting an object that was not created fails, which is fine.
            let _ = self.machine.request(request);
        }
    }

    fn execute(&mut self, requests: Requests) -> Result<(), OperationError> {
        for request in requests {
            self.requests += 1;
            let fault = self.fault.filter(|(nth, _)| *nth == self.requests).map(|(_, fault)| fault);
            match fault {
                Some(Fault::Fail(errno)) => {
                    self.fault = None;
                    return Err(error(&Errno::from_raw(errno).into()));
                }
                Some(Fault::Panic) => {
                    self.fault = None;
                    return Err(self.panicked(&request));
                }
                Some(Fault::Hang) | None => {}
            }
            self.machine.request(&request).map_err(|refusal| error(&refusal))?;
        }
        Ok(())
    }

    /// Error of an operation whose transport panicked.
    fn panicked(&mut self, request: &Request) -> OperationError {
        let unwound =
            std::panic::catch_unwind(|| std::panic::panic_any(format!("asked to, at {request:?}")));
        debug_assert!(unwound.is_err(), "a panic unwinds");
        OperationError::message("the transport panicked")
    }
}

impl KernelModel {
    /// Runs a manual change, under the kernel's rules.
    fn request_by_hand(&mut self, message: RouteNetlinkMessage) {
        let refused = self.request(&Request::create(message));
        assert!(refused.is_ok(), "by hand: {refused:?}");
    }
}

/// Paths of the settings of a link and family, below `/proc/sys`, with what the kernel has there for a new link.
fn new_settings(link: &str, family: Family) -> impl Iterator<Item = (String, String)> + '_ {
    let settings = LinkSysctl::of_families().filter(move |(_, of)| *of == family);
    settings.flat_map(move |(sysctl, _)| {
        let values = sysctl.row().without_us.iter().map(u32::to_string);
        setting_paths(sysctl, link, family).zip(values)
    })
}

/// A route of another program, without its kind and its next hop.
fn foreign_route_message(prefix: ipnet::IpNet, metric: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    let v4 = prefix.addr().is_ipv4();
    use netlink_packet_route::AddressFamily::{Inet, Inet6};
    message.header.address_family = if v4 { Inet } else { Inet6 };
    message.header.destination_prefix_length = prefix.prefix_len();
    message.header.table = u8::try_from(MAIN_TABLE).unwrap_or(0);
    message.header.protocol = RouteProtocol::Static;
    let destination = RouteAddress::from(prefix.network());
    message.attributes =
        vec![RouteAttribute::Destination(destination), RouteAttribute::Priority(metric)];
    message
}

fn address_message(
    machine: &KernelModel,
    link: &str,
    ip: IpAddr,
    prefix_len: u8,
) -> AddressMessage {
    use netlink_packet_route::AddressFamily::{Inet, Inet6};
    let mut message = AddressMessage::default();
    message.header.index = machine.by_name(link).unwrap_or(0);
    message.header.family = if ip.is_ipv4() { Inet } else { Inet6 };
    message.header.prefix_len = prefix_len;
    message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
    message
}

fn error(refusal: &SimulatedRefusal) -> OperationError {
    let errno = refusal.errno;
    let words = refusal.words.map_or_else(|| errno.desc().to_owned(), str::to_owned);
    let transient = matches!(
        errno,
        Errno::EBUSY | Errno::EEXIST | Errno::ENOBUFS | Errno::ENOMEM | Errno::EAGAIN
    );
    OperationError { errno: Some(errno as i32), message: words, transient }
}
