//! Features of the kernel of this box, tried in a network namespace that ends with the attempt.
//!
//! The list of attempts follows from the table of kinds of links: each kind is made once, and once more with each parameter
//! that a kernel may be built without. Objects are encoded as for the agent's own work, so that a refusal here is the
//! refusal that a configuration would meet.
//!
//! Absent on purpose: anything in the namespace of the box. The kernel may load a module for a kind of link, as it does for the
//! first link of that kind. A kind whose module makes a link on the box is not tried where that would load the module.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use holdfast_base::now_ns;
use holdfast_scheduler::{
    Action, Key, ObjectValue, OpId, Operation, SharedValue, TransportId, TxnId,
};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::utsname::uname;
use smol_str::SmolStr;

use crate::kinds::codec::Request;
use crate::kinds::link::{
    self, Constant, LINK_ROWS, Link, LinkRow, MadeLink, Param, ParamRow, ParamType,
};
use crate::kinds::link_setting::{self, LinkSetting, LinkSysctl};
use crate::kinds::links::LinkIndex;
use crate::kinds::types::Family;
use crate::kinds::{address, decode, encode};
use crate::transport::rtnetlink::query::{Listing, QueryError, QuerySocket};
use crate::transport::rtnetlink::socket::{DATAGRAM_SIZE, FORCED_RECEIVE_BUFFER, RouteSocket};
use crate::transport::rtnetlink::window::put_message;
use crate::transport_id;
use crate::values::Address;

/// Kinds whose module makes a link on the box when it is loaded (`bond0`), and the module.
const MODULES_WITH_LINKS: [(&str, &str); 1] = [("bond", "bonding")];
/// Folder with the modules that are loaded, and those that the kernel is built with.
const MODULES: &str = "/sys/module";
/// Folder with the modules that can be loaded, by release of the kernel.
const MODULES_OF_KERNELS: &str = "/lib/modules";
/// Bytes of a unit of sizes.
const KIB: usize = 1024;
/// Name of the link on which the others stand.
pub(crate) const GROUND: &str = "ground";
/// Name of the link that is tried.
const TRIED: &str = "tried";
/// Names of the other ends of pairs.
const FAR_END: &str = "far";
const FAR_END_OF_GROUND: &str = "far-ground";
/// Number for parameters without a default, such as a VNI. Every kind of link has it in its range.
const NUMBER: u32 = 7;
/// Addresses for the attempts, of the ranges for documentation (RFC 5737, RFC 3849).
const IPV4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const IPV6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

/// A feature of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelFeature {
    /// A kind of link.
    Kind(&'static str),
    /// A parameter of a kind of link that a kernel may be built without.
    Parameter(&'static str, &'static str),
    /// Addresses of IPv6.
    Ipv6,
    /// The kernel keeps the protocol of an address (`IFA_PROTO`), by which the agent knows its own.
    AddressProtocol,
    /// Variables below `/proc/sys/net` can be written.
    Variables,
    /// A socket of netlink gets the receive buffer that the agent asks for (`SO_RCVBUFFORCE`).
    ReceiveBuffer,
}

impl fmt::Display for KernelFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "links of type {kind}"),
            Self::Parameter(kind, leaf) => write!(f, "`{leaf}` of links of type {kind}"),
            Self::Ipv6 => f.write_str("addresses of IPv6"),
            Self::AddressProtocol => f.write_str("the protocol of addresses (IFA_PROTO)"),
            Self::Variables => f.write_str("variables below /proc/sys/net"),
            Self::ReceiveBuffer => f.write_str("large receive buffers of netlink"),
        }
    }
}

/// Result of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTrial {
    /// The feature that was tried.
    pub feature: KernelFeature,
    /// Reason for which it does not work; `None` when it works.
    pub refusal: Option<String>,
}

/// Reason for which nothing can be tried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelTrialError {
    /// There is no namespace to try in.
    #[error("cannot make a network namespace: that needs CAP_SYS_ADMIN")]
    Namespace(#[source] io::Error),
    /// The kernel cannot be asked.
    #[error("cannot open a netlink socket in the new network namespace")]
    Socket(#[source] io::Error),
    /// The thread for the namespace did not come to its end.
    #[error("cannot run a thread in a new network namespace")]
    Thread(#[source] io::Error),
}

/// Tries each feature in a network namespace of its own.
///
/// # Errors
/// When there cannot be such a namespace.
pub fn try_kernel() -> Result<Vec<KernelTrial>, KernelTrialError> {
    let tried = thread::Builder::new().name("kernel-trial".to_owned()).spawn(|| {
        let entered = unshare(CloneFlags::CLONE_NEWNET);
        entered.map_err(|errno| KernelTrialError::Namespace(errno.into()))?;
        Ok(Attempts::begin()?.all(LINK_ROWS))
    });
    let ended = tried.map_err(KernelTrialError::Thread)?.join();
    ended.map_err(|_| KernelTrialError::Thread(io::Error::other("the thread panicked")))?
}

fn receive_buffer() -> KernelTrial {
    let opened = RouteSocket::for_groups([].iter(), None);
    let refusal = match opened.map(|socket| socket.receive_buffer()) {
        Ok(size) if size >= FORCED_RECEIVE_BUFFER => None,
        Ok(size) => Some(format!(
            "a socket gets {} KiB, and not {} KiB",
            size / KIB,
            FORCED_RECEIVE_BUFFER / KIB
        )),
        Err(error) => Some(error.to_string()),
    };
    KernelTrial { feature: KernelFeature::ReceiveBuffer, refusal }
}

/// True for a kind whose first link makes none on the box.
fn is_harmless(row: &LinkRow) -> bool {
    let module = MODULES_WITH_LINKS.iter().find(|(kind, _)| *kind == row.name);
    module.is_none_or(|(_, module)| {
        let release = uname().map(|names| names.release().to_os_string()).unwrap_or_default();
        let list = Path::new(MODULES_OF_KERNELS).join(release).join("modules.dep");
        let file = format!("/{module}.ko");
        let can_be_loaded = fs::read_to_string(list).is_ok_and(|list| list.contains(&file));
        Path::new(MODULES).join(module).exists() || !can_be_loaded
    })
}

/// Attempts in the namespace of the calling thread.
struct Attempts {
    queries: QuerySocket,
    buffer: Vec<u8>,
    links: LinkIndex,
}

impl Attempts {
    fn begin() -> Result<Self, KernelTrialError> {
        let queries = QuerySocket::new().map_err(KernelTrialError::Socket)?;
        Ok(Self { queries, buffer: vec![0; DATAGRAM_SIZE], links: LinkIndex::new() })
    }

    fn all(mut self, rows: &[&'static LinkRow]) -> Vec<KernelTrial> {
        // Any kind that stands alone will do.
        let stands_alone = |row: &&&LinkRow| {
            row.params.iter().all(|param| !param.is_mandatory || param.ty != ParamType::Link)
        };
        let mut grounds = rows.iter().filter(stands_alone);
        let has_ground = grounds.any(|row| {
            let ground = Link::new(GROUND, required(row, FAR_END_OF_GROUND).into());
            self.create(link::key(GROUND), ground).is_ok()
        });
        if !has_ground {
            // So that the kernel itself says why nothing stands on it.
            self.links.reserve(GROUND, true);
        }
        let mut trials = Vec::new();
        for row in rows.iter().filter(|row| is_harmless(row)) {
            let trial = self.kind(row);
            let is_there = trial.refusal.is_none();
            trials.push(trial);
            if is_there {
                trials.extend(row.params.iter().filter_map(|param| self.parameter(row, param)));
            }
        }
        if has_ground {
            trials.push(self.ipv6());
            trials.push(self.address_protocol());
            trials.push(self.variables());
        }
        trials.push(receive_buffer());
        trials
    }

    fn kind(&mut self, row: &'static LinkRow) -> KernelTrial {
        let refusal = self.make(required(row, FAR_END)).err();
        KernelTrial { feature: KernelFeature::Kind(row.name), refusal }
    }

    /// An attempt with a parameter that the agent leaves out of requests until it is configured, because a kernel may be built
    /// without it; `None` for other parameters.
    fn parameter(&mut self, row: &'static LinkRow, param: &ParamRow) -> Option<KernelTrial> {
        let other = other_than(param.implied?, param.ty)?;
        let made = required(row, FAR_END).with(param.leaf, other);
        (row.check)(&made).ok()?;
        let refusal = self.make(made).err();
        Some(KernelTrial { feature: KernelFeature::Parameter(row.name, param.leaf), refusal })
    }

    /// Makes a link and removes it again.
    fn make(&mut self, made: MadeLink) -> Result<(), String> {
        let link = Link::new(TRIED, made.into());
        self.create(link::key(TRIED), link.clone())?;
        self.carry_out(Action::Delete, link::key(TRIED), Some(Arc::new(link)), None)
    }

    fn ipv6(&mut self) -> KernelTrial {
        let refusal = match Path::new("/proc/sys/net/ipv6").exists() {
            true => self.create(address::key(GROUND, IPV6), Address::new(GROUND, IPV6, 64)).err(),
            false => Some("the kernel has no IPv6".to_owned()),
        };
        KernelTrial { feature: KernelFeature::Ipv6, refusal }
    }

    fn address_protocol(&mut self) -> KernelTrial {
        let key = address::key(GROUND, IPV4);
        let created = self.create(key.clone(), Address::new(GROUND, IPV4, 24));
        let found = created.and_then(|()| self.find_address(&key));
        let refusal = match found {
            Ok(Some(found)) if found.facts.as_ref().is_some_and(|facts| facts.ours) => None,
            Ok(_) => Some("the kernel does not keep it (it came with Linux 5.18)".to_owned()),
            Err(reason) => Some(reason),
        };
        KernelTrial { feature: KernelFeature::AddressProtocol, refusal }
    }

    fn variables(&mut self) -> KernelTrial {
        let setting = LinkSetting::new(LinkSysctl::Forwarding, GROUND, Family::V4, &[1]);
        let key = link_setting::key(setting.sysctl, GROUND, setting.family);
        KernelTrial { feature: KernelFeature::Variables, refusal: self.create(key, setting).err() }
    }

    fn find_address(&mut self, key: &Key) -> Result<Option<Address>, String> {
        let mut found = None;
        let links = &mut self.links;
        let mut take = |listing: Listing<'_>| {
            let Listing::Object(frame) = listing else { return };
            let Ok(message) = frame.decode() else { return };
            for (observed, value) in decode(&message, 0, now_ns(), links) {
                if observed == *key {
                    let value: Option<SharedValue> = value;
                    found = value.and_then(|it| it.as_any().downcast_ref::<Address>().cloned());
                }
            }
        };
        let question = address::list(Family::V4, 0);
        self.queries.list(&question, &mut self.buffer, &mut take).map_err(|it| it.to_string())?;
        Ok(found)
    }

    fn create(&mut self, key: Key, value: impl ObjectValue) -> Result<(), String> {
        self.carry_out(Action::Create, key, None, Some(Arc::new(value)))
    }

    fn carry_out(
        &mut self,
        action: Action,
        key: Key,
        old: Option<SharedValue>,
        new: Option<SharedValue>,
    ) -> Result<(), String> {
        let transport: TransportId = transport_id::RTNETLINK;
        let is_ground = key == link::key(GROUND);
        let operation = Operation { id: OpId(1), txn: TxnId(1), action, key, old, new, transport };
        let requests = encode(&operation, &mut self.links).map_err(|error| error.to_string());
        let sent = requests.and_then(|all| all.into_iter().try_for_each(|it| self.send(it)));
        if sent.is_err() {
            // Their reservations.
            self.links.forget_name(TRIED);
            if is_ground {
                self.links.forget_name(GROUND);
            }
        }
        sent
    }

    fn send(&mut self, request: Request) -> Result<(), String> {
        match request {
            Request::Netlink { message, flags, forgiven } => {
                let question = |octets: &mut Vec<u8>, sequence| {
                    put_message(octets, &message, flags, sequence);
                };
                match self.queries.query(&mut self.buffer, &mut |_| {}, question) {
                    Err(QueryError::Refused { errno, .. }) if forgiven.contains(&errno) => Ok(()),
                    Err(QueryError::Refused { errno, words }) => {
                        let errno = Errno::from_raw(errno);
                        Err(words
                            .map_or_else(|| errno.to_string(), |words| format!("{errno}: {words}")))
                    }
                    answered => answered.map_err(|error| error.to_string()),
                }
            }
            Request::Sysctl { path, value } => {
                let path = Path::new("/proc/sys").join(path);
                let written = fs::write(&path, value);
                written.map_err(|error| format!("cannot write {}: {error}", path.display()))
            }
            Request::File { .. }
            | Request::CredentialFile { .. }
            | Request::SshServer(_)
            | Request::Password { .. }
            | Request::Hostname(_) => Err("the request is not for the network".to_owned()),
        }
    }
}

/// A link of a kind with the parameters that it cannot be without.
pub(crate) fn required(row: &'static LinkRow, far_end: &'static str) -> MadeLink {
    let mandatory = row.params.iter().filter(|param| param.is_mandatory);
    mandatory.fold(MadeLink::new(row), |made, param| {
        let value = match param.ty {
            ParamType::Bool => Param::Bool(true),
            ParamType::Uint => Param::Uint(NUMBER),
            ParamType::Enum(words) => Param::Name(words.first().copied().unwrap_or("").into()),
            ParamType::Ip => Param::Ip(IPV4),
            ParamType::Link => Param::Name(SmolStr::new_static(GROUND)),
            ParamType::FarEnd | ParamType::OwnName => Param::Name(SmolStr::new_static(far_end)),
        };
        made.with(param.leaf, value)
    })
}

/// Another value than the one that the kernel gives a link which does not ask for one.
fn other_than(implied: Constant, ty: ParamType) -> Option<Param> {
    match (implied, ty) {
        (Constant::Bool(on), _) => Some(Param::Bool(!on)),
        (Constant::Uint(number), _) => Some(Param::Uint(number + 1)),
        (Constant::Name(name), ParamType::Enum(words)) => {
            let other = words.iter().find(|word| **word != name)?;
            Some(Param::Name(SmolStr::new_static(other)))
        }
        (Constant::Name(_), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;
    use crate::kernel_tests::fixture::enter_fresh_namespaces;
    use crate::values::VETH;

    fn refusal(trials: &[KernelTrial], feature: &KernelFeature) -> Option<String> {
        let found = trials.iter().find(|trial| trial.feature == *feature);
        found.unwrap_or_else(|| panic!("{feature} is not tried")).refusal.clone()
    }

    #[test]
    fn each_kind_of_link_is_tried_and_nothing_is_left_in_the_namespace_of_the_caller() {
        enter_fresh_namespaces();
        let trials = try_kernel().unwrap();
        for row in LINK_ROWS.iter().filter(|row| is_harmless(row)) {
            let refusal = refusal(&trials, &KernelFeature::Kind(row.name));
            // A machine for tests may lack any kind; whatever it says is the kernel's own word.
            assert!(refusal.is_none_or(|it| it.starts_with("EOPNOTSUPP")), "{trials:?}");
        }
        for kind in ["veth", "bridge"] {
            assert_eq!(refusal(&trials, &KernelFeature::Kind(kind)), None);
        }
        for feature in
            [KernelFeature::Ipv6, KernelFeature::AddressProtocol, KernelFeature::Variables]
        {
            assert_eq!(refusal(&trials, &feature), None);
        }
        // Root of a user namespace does not get it.
        assert_eq!(trials.last().unwrap().feature, KernelFeature::ReceiveBuffer);
        let filtering = KernelFeature::Parameter("bridge", "vlan-filtering");
        assert!(trials.iter().any(|trial| trial.feature == filtering), "{trials:?}");
        let links = crate::kernel_tests::fixture::ip("-o link show");
        assert!(!links.contains(GROUND) && !links.contains(TRIED), "{links}");
    }

    #[test]
    fn what_the_kernel_does_not_have_is_refused_in_its_words() {
        static UNKNOWN: LinkRow = LinkRow::new("no-such-kind");
        enter_fresh_namespaces();
        let trials = Attempts::begin().unwrap().all(&[&UNKNOWN, &VETH]);
        let kind = |name| refusal(&trials, &KernelFeature::Kind(name));
        assert!(kind("no-such-kind").unwrap().starts_with("EOPNOTSUPP"), "{trials:?}");
        assert_eq!(kind("veth"), None, "the one before has left nothing");
    }

    #[test]
    fn without_a_right_every_attempt_says_so() {
        enter_fresh_namespaces();
        let attempts = Attempts::begin().unwrap();
        let mut sets = capabilities(None).unwrap();
        sets.effective -= CapabilitySet::NET_ADMIN;
        set_capabilities(None, sets).unwrap(); // of this thread alone
        let trials = attempts.all(LINK_ROWS);
        let tried = LINK_ROWS.iter().filter(|row| is_harmless(row)).count();
        let (buffer, others) = trials.split_last().unwrap();
        assert_eq!(others.len(), tried, "nothing stands on anything");
        for trial in others {
            assert!(trial.refusal.as_ref().unwrap().starts_with("EPERM"), "{trial:?}");
        }
        assert_eq!(buffer.feature, KernelFeature::ReceiveBuffer);
        assert!(buffer.refusal.as_ref().unwrap().contains("not 32768 KiB"), "{buffer:?}");
        sets.effective -= CapabilitySet::SYS_ADMIN;
        set_capabilities(None, sets).unwrap();
        let refused = try_kernel().unwrap_err().to_string();
        assert!(refused.contains("CAP_SYS_ADMIN"), "{refused}");
    }

    #[test]
    fn variables_that_cannot_be_written_are_named() {
        enter_fresh_namespaces();
        let mut attempts = Attempts::begin().unwrap();
        // The link is not there, so neither are its variables.
        let refusal = attempts.variables().refusal.unwrap();
        assert!(refusal.contains("/proc/sys/net/ipv4/conf/ground/forwarding"), "{refusal}");
        let refusal = attempts.address_protocol().refusal.unwrap();
        assert!(refusal.contains("ground"), "{refusal}");
        let refusal = attempts.ipv6().refusal.unwrap();
        assert!(refusal.contains("ground"), "{refusal}");
    }
}
