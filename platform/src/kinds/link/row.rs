//! The row of a kind of link: its parameters, where they stand in the model and in the kernel, and how they change.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use holdfast_scheduler::Claim;
use netlink_packet_route::link::{InfoData, InfoKind};
use smol_str::{SmolStr, ToSmolStr as _};

/// A kind of link that the agent makes.
#[derive(Debug)]
pub struct LinkRow {
    /// Name in the native model (`type`) and in the kernel (`IFLA_INFO_KIND`), which is also the name of the container with its
    /// parameters.
    pub name: &'static str,
    /// Parameters without any attribute (`IFLA_INFO_DATA`); `None` for a kind that has none.
    pub data: Option<fn() -> InfoData>,
    /// Parameters.
    pub params: &'static [ParamRow],
    /// True for a kind that an interface can be (`type`); false for one whose links have a list of their own.
    pub is_type: bool,
    /// True for a link that the kernel takes down with the link below, and raises with it, also where it was shut before. Such a
    /// link refuses to come up while the link below is down.
    pub goes_down_with_below: bool,
    /// Kinds of links below which the kernel goes: it puts the link on what stands below those.
    pub refuses_below: &'static [&'static str],
    /// Rule for the MTU of the link.
    pub mtu: MtuRule,
    /// How the link takes others as its ports; `None` for a kind that has no ports.
    pub ports: Option<PortRule>,
    /// Rules among the parameters of one link.
    pub check: fn(&MadeLink) -> Result<(), ParamFault>,
    /// True for a link that carries its packets in IPv6 over the link below.
    pub is_over_ipv6: fn(&MadeLink) -> bool,
    /// Names of the facets that the link offers to values of other kinds, beside that of a link with ports.
    pub facets: fn(&MadeLink) -> &'static [&'static str],
    /// Identities that no two links of the kernel can have.
    pub claims: fn(&MadeLink) -> Vec<Claim>,
}

impl LinkRow {
    /// A row with no parameters, no ports, and the MTU of an Ethernet-like link.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            data: None,
            params: &[],
            is_type: true,
            goes_down_with_below: false,
            refuses_below: &[],
            mtu: MtuRule::Own(FRESH_MTU),
            ports: None,
            check: |_| Ok(()),
            is_over_ipv6: |_| false,
            facets: |_| &[],
            claims: |_| Vec::new(),
        }
    }

    /// Name of the kind in messages of the kernel.
    pub(crate) fn kind(&self) -> InfoKind {
        InfoKind::from(self.name)
    }

    /// Position of the parameter with this leaf.
    pub(crate) fn position(&self, leaf: &str) -> Option<usize> {
        self.params.iter().position(|param| param.leaf == leaf)
    }

    /// Position of the parameter that is the name of the link in the kernel; `None` for a kind whose links are known by that.
    pub(crate) fn position_of_own_name(&self) -> Option<usize> {
        self.params.iter().position(|param| param.ty == ParamType::OwnName)
    }

    /// True for the kinds of links that come in pairs.
    pub(crate) fn is_pair(&self) -> bool {
        self.params.iter().any(|param| matches!(param.attribute, Attribute::FarEnd))
    }
}

/// MTU of a fresh Ethernet-like link, bytes of layer 3.
pub(super) const FRESH_MTU: u32 = 1500;

/// Rule for the MTU of a link.
#[derive(Clone, Copy, Debug)]
pub enum MtuRule {
    /// Nothing but the link itself, which begins with this one (bytes of layer 3).
    Own(u32),
    /// The smallest of its ports.
    OfPorts,
    /// The link below, where there is one: its MTU less the bytes that this link adds to a packet.
    OfBelow(fn(&MadeLink) -> u32),
}

/// How a link takes others as its ports (`IFLA_MASTER`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRule {
    /// Leaf of `interface` that names such a link. The leaf of the same name in `state` shows it.
    pub leaf: &'static str,
    /// Word for such a port.
    pub role: &'static str,
    /// True for a link that takes only ports that are down. It puts them up itself, and leaves them down when they go.
    pub needs_down: bool,
    /// True for a link that gives its ports its own link-layer address and MTU, and theirs back when they go.
    pub gives_mac_and_mtu: bool,
    /// Kinds of links that cannot be ports.
    pub refuses: &'static [&'static str],
}

/// One parameter of a kind of link.
#[derive(Debug)]
pub struct ParamRow {
    /// Leaf in the container of the kind.
    pub leaf: &'static str,
    /// Type of its values.
    pub ty: ParamType,
    /// Value without configuration; `None` leaves it out.
    pub default: Option<Constant>,
    /// True for a parameter without which there is no link.
    pub is_mandatory: bool,
    /// Value that the kernel gives a link whose creation does not mention the parameter. It is not requested: a kernel that is
    /// built without a feature is asked for it only when it is configured.
    pub implied: Option<Constant>,
    /// How the parameter changes.
    pub change: Change,
    /// Where the kernel has it.
    pub attribute: Attribute,
    /// True while the kernel shows another value than the one that was set, which is unknown then.
    pub is_hidden: Option<fn(&InfoData) -> bool>,
}

impl ParamRow {
    /// A parameter that is not mandatory, has no default, and needs another link when it changes.
    pub(super) const fn new(leaf: &'static str, ty: ParamType, attribute: Attribute) -> Self {
        Self {
            leaf,
            ty,
            default: None,
            is_mandatory: false,
            implied: None,
            change: Change::Recreate,
            attribute,
            is_hidden: None,
        }
    }
}

/// Type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamType {
    /// A boolean.
    Bool,
    /// A number.
    Uint,
    /// One of these names, which the model lists too.
    Enum(&'static [&'static str]),
    /// An address.
    Ip,
    /// Name of another link, which has to exist as long as this one.
    Link,
    /// Name of the other end of a pair, which is made together with this one.
    FarEnd,
    /// Name of the link itself in the kernel, where the agent knows it by another one.
    OwnName,
}

/// Value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Param {
    /// A boolean.
    Bool(bool),
    /// A number. In attributes of the kernel also the index of a link.
    Uint(u32),
    /// An address.
    Ip(IpAddr),
    /// Name of a link, or of a value of a fixed set.
    Name(SmolStr),
}

/// Value of a parameter in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constant {
    /// A boolean.
    Bool(bool),
    /// A number.
    Uint(u32),
    /// A name of a fixed set.
    Name(&'static str),
}

impl From<Constant> for Param {
    fn from(constant: Constant) -> Self {
        match constant {
            Constant::Bool(on) => Self::Bool(on),
            Constant::Uint(number) => Self::Uint(number),
            Constant::Name(name) => Self::Name(SmolStr::new_static(name)),
        }
    }
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(on) => on.fmt(f),
            Self::Uint(number) => number.fmt(f),
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

impl From<bool> for Param {
    fn from(on: bool) -> Self {
        Self::Bool(on)
    }
}

impl From<u32> for Param {
    fn from(number: u32) -> Self {
        Self::Uint(number)
    }
}

impl From<IpAddr> for Param {
    fn from(ip: IpAddr) -> Self {
        Self::Ip(ip)
    }
}

impl From<&str> for Param {
    fn from(name: &str) -> Self {
        Self::Name(name.into())
    }
}

/// How a parameter of a link changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// While the link is up.
    InPlace,
    /// With another link in the place of this one.
    Recreate,
}

/// Where the kernel has a parameter.
#[derive(Clone, Copy, Debug)]
pub enum Attribute {
    /// `IFLA_LINK` of a link that names its other end when it is made (`VETH_INFO_PEER`).
    FarEnd,
    /// `IFLA_LINK`: the link below.
    Below,
    /// `IFLA_IFNAME`.
    OwnName,
    /// An attribute in `IFLA_INFO_DATA`. Links stand there by their index.
    Data {
        /// Adds it.
        put: fn(&mut InfoData, &Param),
        /// Reads it; `None` where it is not there.
        take: fn(&InfoData) -> Option<Param>,
    },
}

/// `put` and `take` of one variant of a kind's attributes.
macro_rules! data {
    ($data:ident, $attribute:path, $put:expr, $take:expr) => {
        Attribute::Data {
            put: |data, param| {
                if let InfoData::$data(all) = data {
                    let put: fn(&Param) -> Option<_> = $put;
                    all.extend(put(param).map($attribute));
                }
            },
            take: |data| match data {
                InfoData::$data(all) => all.iter().find_map(|attribute| match attribute {
                    $attribute(value) => Some(($take)(value)),
                    _ => None,
                }),
                _ => None,
            },
        }
    };
}
pub(super) use data;

/// The value of a boolean.
pub(super) fn as_bool(param: &Param) -> Option<bool> {
    match param {
        Param::Bool(on) => Some(*on),
        _ => None,
    }
}

/// The value of a number.
pub(super) fn as_uint(param: &Param) -> Option<u32> {
    match param {
        Param::Uint(number) => Some(*number),
        _ => None,
    }
}

/// The value of a name of a fixed set, as the library of messages has it.
pub(super) fn as_named<T: FromStr>(param: &Param) -> Option<T> {
    match param {
        Param::Name(name) => name.parse().ok(),
        _ => None,
    }
}

/// Why the parameters of a link do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamFault {
    /// The leaf at fault.
    pub leaf: &'static str,
    /// Problem found.
    pub reason: &'static str,
}

/// Kind and parameters of a link that the agent makes, or could have made.
#[derive(Clone)]
pub struct MadeLink {
    row: &'static LinkRow,
    /// In the order of the row.
    values: Vec<Option<Param>>,
}

impl MadeLink {
    /// A link of this kind with default parameters.
    pub fn new(row: &'static LinkRow) -> Self {
        Self {
            row,
            values: row.params.iter().map(|param| param.default.map(Param::from)).collect(),
        }
    }

    /// The same link with another parameter.
    ///
    /// # Panics
    /// The row has no such leaf.
    #[must_use]
    pub fn with(mut self, leaf: &str, param: impl Into<Param>) -> Self {
        let position = self.row.position(leaf).expect("the row has this leaf");
        self.set(position, Some(param.into()));
        self
    }

    /// Sets the parameter at a position of the row.
    pub(crate) fn set(&mut self, position: usize, param: Option<Param>) {
        self.values[position] = param;
    }

    /// The row of its kind.
    pub fn row(&self) -> &'static LinkRow {
        self.row
    }

    /// A parameter.
    pub fn get(&self, leaf: &str) -> Option<&Param> {
        self.values[self.row.position(leaf)?].as_ref()
    }

    /// Rows of the parameters, with their values.
    pub(crate) fn params(&self) -> impl Iterator<Item = (&'static ParamRow, Option<&Param>)> + '_ {
        self.row.params.iter().zip(self.values.iter().map(Option::as_ref))
    }

    /// Rows of the parameters in which `new` differs from this link of the same kind. A parameter that the kernel hides at times
    /// differs only where both are known. So does the other end of a pair, which is unknown until the message about it arrives,
    /// and while it is in another namespace.
    pub(crate) fn differing<'l>(
        &'l self,
        new: &'l Self,
    ) -> impl Iterator<Item = (&'static ParamRow, Option<&'l Param>)> {
        self.params().zip(new.params()).filter_map(|((row, old), (_, new))| {
            let may_be_unknown = row.ty == ParamType::FarEnd || row.is_hidden.is_some();
            let is_unknown = may_be_unknown && (old.is_none() || new.is_none());
            (old != new && !is_unknown).then_some((row, new))
        })
    }

    /// The value of the first parameter of a type that names a link.
    fn named(&self, ty: ParamType) -> Option<SmolStr> {
        let mut params = self.params().filter(|(row, _)| row.ty == ty);
        params.next()?.1.map(|name| match name {
            Param::Name(name) => name.clone(),
            other => other.to_smolstr(),
        })
    }

    /// Name of the link below.
    pub fn below(&self) -> Option<SmolStr> {
        self.named(ParamType::Link)
    }

    /// Name of the other end of a pair.
    pub fn far_end(&self) -> Option<SmolStr> {
        self.named(ParamType::FarEnd)
    }

    /// Name of the link in the kernel, where the agent knows it by another one.
    pub fn own_name(&self) -> Option<SmolStr> {
        self.named(ParamType::OwnName)
    }

    /// True for a link whose MTU follows from that of other links.
    pub fn has_limited_mtu(&self) -> bool {
        match self.row.mtu {
            MtuRule::Own(_) => false,
            MtuRule::OfPorts => true,
            MtuRule::OfBelow(_) => self.below().is_some(),
        }
    }

    /// Bytes that the link adds to each packet that it gives to the link below.
    pub(crate) fn overhead(&self) -> u32 {
        match self.row.mtu {
            MtuRule::OfBelow(overhead) => overhead(self),
            MtuRule::Own(_) | MtuRule::OfPorts => 0,
        }
    }
}

impl PartialEq for MadeLink {
    fn eq(&self, other: &Self) -> bool {
        self.row.name == other.row.name && self.values == other.values
    }
}

impl Eq for MadeLink {}

impl fmt::Debug for MadeLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct(self.row.name);
        for (row, value) in self.params() {
            if let Some(value) = value {
                all.field(row.leaf, &format_args!("{value}"));
            }
        }
        all.finish()
    }
}
