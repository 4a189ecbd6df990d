//! Types of leaves, and parsing of their values.
//!
//! [`Type::parse_text`] parses keys and CLI values, `scalar` gNMI's PROTO values, `crate::json` documents.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use regex::Regex;
use smol_str::SmolStr;

use crate::leaf_list::first_repeated;
use crate::limits::excerpt;
use crate::name::Name;
use crate::value::{Value, bare_identity};

/// The type of a leaf after all typedefs and leafrefs.
#[derive(Clone, Debug)]
pub struct Type {
    pub base: BuiltinType,
    /// Canonical form, for types in which several texts have the same meaning.
    pub canonical: Option<Canonical>,
    /// Typedef that the type is known by, where it is one of texts: messages say it rather than a regular expression.
    pub name: Option<SmolStr>,
}

/// Words for the types of the models whose patterns say nothing to a reader.
const TYPE_WORDS: [(&str, &str); 16] = [
    ("ipv4-address", "an IPv4 address"),
    ("ipv4-address-no-zone", "an IPv4 address"),
    ("ipv4-address-zoned", "an IPv4 address with a zone"),
    ("ipv6-address", "an IPv6 address"),
    ("ipv6-address-no-zone", "an IPv6 address"),
    ("ipv6-address-zoned", "an IPv6 address with a zone"),
    ("ip-address", "an IP address"),
    ("ip-address-no-zone", "an IP address"),
    ("ip-address-zoned", "an IP address with a zone"),
    ("ipv4-prefix", "an IPv4 prefix, such as 192.0.2.0/24"),
    ("ipv6-prefix", "an IPv6 prefix, such as 2001:db8::/32"),
    ("ip-prefix", "an IP prefix, such as 192.0.2.0/24"),
    ("mac-address", "a MAC address, such as 02:00:5e:10:00:01"),
    ("host", "an IP address or a host name"),
    ("domain-name", "a domain name"),
    ("date-and-time", "a time, such as 2026-01-31T12:00:00Z"),
];
/// Characters of a pattern that a reader still takes in at a glance. Of a longer one, the name of its type is said alone.
const READABLE_PATTERN: usize = 40;

/// A built-in type with its restrictions. Ranges and lengths are ascending, bounds included, never empty.
#[derive(Clone, Debug)]
pub enum BuiltinType {
    Bool,
    Empty,
    Int {
        bits: u8,
        ranges: Box<[(i64, i64)]>,
    },
    Uint {
        bits: u8,
        ranges: Box<[(u64, u64)]>,
    },
    Decimal {
        scale: u8,
        ranges: Box<[(i64, i64)]>,
    },
    Str {
        lengths: Box<[(u64, u64)]>,
        patterns: Box<[Pattern]>,
    },
    Binary {
        lengths: Box<[(u64, u64)]>,
    },
    Enum(Box<[EnumMember]>),
    Identity(Box<[Identity]>),
    Bits(Box<[SmolStr]>),
    /// Also for a leafref, see [`super::LeafSchema::leafref`]; the first member that accepts a text is used.
    Union(Box<[Arc<Type>]>),
}

/// One `pattern` statement; a value must match all of its type.
#[derive(Clone)]
pub struct Pattern {
    pub xsd: SmolStr,
    pub inverted: bool,
    pub(super) regex: Arc<Regex>,
    pub(super) quick: Option<fn(&str) -> bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnumMember {
    pub name: Name,
    pub value: i32,
}

/// An identity that is valid for an identityref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name as `module:name`.
    pub qualified: Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Canonical {
    /// RFC 5952 for IPv6.
    IpAddress,
    /// RFC 5952 for the address; host bits are kept.
    IpPrefix,
    /// Lower case.
    MacAddress,
}

/// Reason why a value does not fit its leaf; completes the leaf's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError(pub String);

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ValueError {}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", if self.inverted { "!" } else { "" }, self.xsd)
    }
}

impl Canonical {
    pub(super) fn parse(argument: &str) -> Option<Self> {
        match argument {
            "ip-address" => Some(Self::IpAddress),
            "ip-prefix" => Some(Self::IpPrefix),
            "mac-address" => Some(Self::MacAddress),
            _ => None,
        }
    }

    /// The canonical text, or `None` when the text is not an address, since a union may have other members.
    fn apply(self, text: &str) -> Option<SmolStr> {
        match self {
            Self::IpAddress => canonical_address(text),
            Self::IpPrefix => {
                let (address, length) = text.split_once('/')?;
                Some(smol_str::format_smolstr!("{}/{length}", canonical_address(address)?))
            }
            Self::MacAddress => Some(text.to_ascii_lowercase().into()),
        }
    }
}

fn canonical_address(text: &str) -> Option<SmolStr> {
    let (address, zone) = text.split_once('%').map_or((text, None), |(a, z)| (a, Some(z)));
    if address.parse::<Ipv4Addr>().is_ok() {
        return Some(text.into());
    }
    let address = ipv6_text(address.parse().ok()?);
    Some(match zone {
        Some(zone) => smol_str::format_smolstr!("{address}%{zone}"),
        None => address,
    })
}

/// Formats by RFC 5952, except for its dotted tail after `::ffff:`, which OpenConfig's pattern of IPv6 addresses
/// does not allow.
fn ipv6_text(address: Ipv6Addr) -> SmolStr {
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] => smol_str::format_smolstr!("::ffff:{high:x}:{low:x}"),
        _ => smol_str::format_smolstr!("{address}"),
    }
}

impl Type {
    /// Parses the text of a key, of a default or of a CLI value.
    ///
    /// # Errors
    /// When the text does not fit this type.
    pub fn parse_text(&self, text: &str) -> Result<Value, ValueError> {
        match &self.base {
            BuiltinType::Bool => match text {
                "true" => Ok(Value::Bool(true)),
                "false" => Ok(Value::Bool(false)),
                _ => Err(self.misfit(text)),
            },
            BuiltinType::Empty if text.is_empty() => Ok(Value::Empty),
            BuiltinType::Empty => Err(self.misfit(text)),
            BuiltinType::Int { .. } => self.int(text.parse().map_err(|_| self.misfit(text))?),
            BuiltinType::Uint { .. } => self.uint(unsigned(text).ok_or_else(|| self.misfit(text))?),
            BuiltinType::Decimal { scale, .. } => {
                self.decimal(decimal_digits(text, *scale).ok_or_else(|| self.misfit(text))?)
            }
            BuiltinType::Binary { .. } => {
                self.binary(BASE64.decode(text).map_err(|_| self.misfit(text))?)
            }
            BuiltinType::Bits(_) => self.bits(text),
            _ => self.str(text),
        }
    }

    /// Parses a text for types whose values are texts in every encoding.
    pub(crate) fn str(&self, text: &str) -> Result<Value, ValueError> {
        match &self.base {
            BuiltinType::Str { lengths, patterns } => self.string(text, lengths, patterns),
            BuiltinType::Enum(members) => match members.iter().find(|m| m.name == text) {
                Some(member) => Ok(Value::Enum(member.name)),
                None => Err(self.misfit(text)),
            },
            BuiltinType::Identity(known) => self.identity(text, known),
            BuiltinType::Bits(_) => self.bits(text),
            BuiltinType::Binary { .. } => {
                self.binary(BASE64.decode(text).map_err(|_| self.misfit(text))?)
            }
            BuiltinType::Union(members) => {
                match members.iter().find_map(|m| m.parse_text(text).ok()) {
                    Some(Value::Str(text)) => Ok(Value::Str(self.canonical(text))),
                    Some(value) => Ok(value),
                    None => Err(self.misfit(text)),
                }
            }
            _ => Err(self.misfit(text)),
        }
    }

    pub(crate) fn int(&self, value: i64) -> Result<Value, ValueError> {
        match &self.base {
            BuiltinType::Int { ranges, .. } if within(ranges, value) => Ok(Value::Int(value)),
            BuiltinType::Uint { ranges, .. }
                if u64::try_from(value).is_ok_and(|v| within(ranges, v)) =>
            {
                Ok(Value::Uint(value.unsigned_abs()))
            }
            BuiltinType::Union(members) => {
                members.iter().find_map(|m| m.int(value).ok()).ok_or_else(|| self.misfit(value))
            }
            _ => Err(self.misfit(value)),
        }
    }

    pub(crate) fn uint(&self, value: u64) -> Result<Value, ValueError> {
        match &self.base {
            BuiltinType::Uint { ranges, .. } if within(ranges, value) => Ok(Value::Uint(value)),
            BuiltinType::Uint { .. } => Err(self.misfit(value)),
            _ => self.int(i64::try_from(value).map_err(|_| self.misfit(value))?),
        }
    }

    pub(crate) fn bool(&self, value: bool) -> Result<Value, ValueError> {
        match &self.base {
            BuiltinType::Bool => Ok(Value::Bool(value)),
            BuiltinType::Union(members) => {
                members.iter().find_map(|m| m.bool(value).ok()).ok_or_else(|| self.misfit(value))
            }
            _ => Err(self.misfit(value)),
        }
    }

    pub(crate) fn empty(&self) -> Result<Value, ValueError> {
        match &self.base {
            BuiltinType::Empty => Ok(Value::Empty),
            BuiltinType::Union(members) => {
                members.iter().find_map(|m| m.empty().ok()).ok_or_else(|| self.misfit("[null]"))
            }
            _ => Err(self.misfit("[null]")),
        }
    }

    /// Makes a decimal64 from `digits`, the value in units of its last fraction digit.
    pub(crate) fn decimal(&self, digits: i64) -> Result<Value, ValueError> {
        match &self.base {
            BuiltinType::Decimal { scale, ranges } if within(ranges, digits) => {
                Ok(Value::Decimal { digits, scale: *scale })
            }
            BuiltinType::Decimal { scale, .. } => {
                Err(self.misfit(Value::Decimal { digits, scale: *scale }))
            }
            _ => Err(self.misfit(digits)),
        }
    }

    pub(crate) fn binary(&self, bytes: Vec<u8>) -> Result<Value, ValueError> {
        match &self.base {
            BuiltinType::Binary { lengths } if within(lengths, bytes.len() as u64) => {
                Ok(Value::Binary(bytes.into()))
            }
            BuiltinType::Union(members) => {
                match members.iter().find_map(|m| m.binary(bytes.clone()).ok()) {
                    Some(value) => Ok(value),
                    None => Err(self.misfit("bytes")),
                }
            }
            _ => Err(self.misfit(format_args!("{} bytes", bytes.len()))),
        }
    }

    fn string(
        &self,
        text: &str,
        lengths: &[(u64, u64)],
        patterns: &[Pattern],
    ) -> Result<Value, ValueError> {
        let whole = [(0, u64::MAX)];
        if lengths != whole && !within(lengths, text.chars().count() as u64) {
            return Err(self.misfit(QuotedText(text)));
        }
        if !text.chars().all(is_yang_char) {
            return Err(ValueError(format!(
                "{} has a character that YANG does not permit in text",
                excerpt(&QuotedText(text))
            )));
        }
        match patterns.iter().find(|p| !p.accepts(text)) {
            Some(_) => Err(self.misfit(QuotedText(text))),
            None => Ok(Value::Str(self.canonical(text.into()))),
        }
    }

    pub(crate) fn canonical(&self, text: SmolStr) -> SmolStr {
        self.canonical.and_then(|form| form.apply(&text)).unwrap_or(text)
    }

    /// Looks up an identity by name. The module may be omitted when only one valid identity has the name.
    fn identity(&self, text: &str, identities: &[Identity]) -> Result<Value, ValueError> {
        let qualified = text.contains(':');
        let name = |i: &&Identity| {
            if qualified { i.qualified == text } else { bare_identity(&i.qualified) == text }
        };
        let mut fitting = identities.iter().filter(name);
        match (fitting.next(), fitting.next()) {
            (Some(one), None) => Ok(Value::Identity(one.qualified)),
            (Some(_), Some(_)) => Err(ValueError(format!(
                "`{text}` is in several modules: name one as `module:{text}`"
            ))),
            (None, _) => Err(self.misfit(text)),
        }
    }

    fn bits(&self, text: &str) -> Result<Value, ValueError> {
        let BuiltinType::Bits(defined) = &self.base else { return Err(self.misfit(text)) };
        let names: Vec<&str> = text.split_ascii_whitespace().take(defined.len() + 1).collect();
        let is_known = |name: &&str| defined.iter().any(|it| it == name);
        // More bits than exist: at least one is unknown or repeated.
        if names.len() > defined.len()
            || !names.iter().all(is_known)
            || first_repeated(&names).is_some()
        {
            return Err(self.misfit(text));
        }
        Ok(Value::Bits(defined.iter().filter(|k| names.contains(&k.as_str())).cloned().collect()))
    }

    /// True for 64-bit integers and decimals, which RFC 7951 encodes as strings.
    pub(crate) fn is_wide(&self, value: &Value) -> bool {
        match (&self.base, value) {
            (BuiltinType::Int { bits, .. }, Value::Int(_))
            | (BuiltinType::Uint { bits, .. }, Value::Uint(_)) => *bits == 64,
            (BuiltinType::Decimal { .. }, Value::Decimal { .. }) => true,
            (BuiltinType::Union(members), _) => match members.iter().find(|m| m.takes(value)) {
                Some(member) => member.is_wide(value),
                None => false,
            },
            _ => false,
        }
    }

    /// True for a number within the ranges of this type.
    pub(crate) fn takes(&self, value: &Value) -> bool {
        match (&self.base, value) {
            (BuiltinType::Int { ranges, .. }, Value::Int(v)) => within(ranges, *v),
            (BuiltinType::Uint { ranges, .. }, Value::Uint(v)) => within(ranges, *v),
            (BuiltinType::Decimal { .. }, Value::Decimal { .. }) => true,
            (BuiltinType::Union(members), _) => members.iter().any(|m| m.takes(value)),
            _ => false,
        }
    }

    /// True for a text with a pattern that says little to a reader.
    fn is_unreadable(&self) -> bool {
        let BuiltinType::Str { patterns, .. } = &self.base else { return false };
        patterns.iter().any(|pattern| pattern.xsd.chars().count() > READABLE_PATTERN)
    }

    fn misfit(&self, text: impl fmt::Display) -> ValueError {
        ValueError(format!("`{}` is not {self}", excerpt(&text)))
    }
}

impl Pattern {
    pub(super) fn accepts(&self, text: &str) -> bool {
        if self.quick.is_some_and(|quick| quick(text)) {
            return !self.inverted;
        }
        self.regex.is_match(text) != self.inverted
    }
}

/// A quoted text, which is shortened in messages.
struct QuotedText<'a>(&'a str);

impl fmt::Display for QuotedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Characters of an invalid value that a message quotes.
        const SHOWN: usize = 80;
        match self.0.char_indices().nth(SHOWN) {
            Some((cut, _)) => write!(f, "{}...", &self.0[..cut]),
            None => f.write_str(self.0),
        }
    }
}

fn within<T: PartialOrd + Copy>(ranges: &[(T, T)], value: T) -> bool {
    ranges.iter().any(|(low, high)| *low <= value && value <= *high)
}

/// Parses an unsigned integer, which may have a sign, even a minus before zero (RFC 7950 9.2.1).
fn unsigned(text: &str) -> Option<u64> {
    match text.strip_prefix('-') {
        Some(zeros) => (!zeros.is_empty() && zeros.bytes().all(|b| b == b'0')).then_some(0),
        None => text.parse().ok(),
    }
}

/// RFC 7950 section 14, `yang-char`.
fn is_yang_char(c: char) -> bool {
    let code = u32::from(c);
    let noncharacter = (0xFDD0..=0xFDEF).contains(&code) || code & 0xFFFE == 0xFFFE;
    (c >= ' ' && !noncharacter) || matches!(c, '\t' | '\n' | '\r')
}

/// `text` in units of `10^-scale`; `None` when it is not a decimal, or has too many digits.
pub(crate) fn decimal_digits(text: &str, scale: u8) -> Option<i64> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
    let digits_only = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    if !digits_only(whole) || !digits_only(fraction) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let missing = usize::from(scale).checked_sub(fraction.len())?;
    let digits =
        format!("{}{whole}{fraction}{}", if negative { "-" } else { "" }, "0".repeat(missing));
    digits.parse().ok()
}

/// Describes the type for messages: `a uint16 within 68..65535`.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            if let Some((_, words)) = TYPE_WORDS.iter().find(|(known, _)| known == name) {
                return f.write_str(words);
            }
            if self.is_unreadable() {
                return write!(f, "of the form of a `{name}`");
            }
        }
        match &self.base {
            BuiltinType::Bool => f.write_str("true or false"),
            BuiltinType::Empty => f.write_str("empty"),
            BuiltinType::Int { bits, ranges } => {
                write!(f, "an int{bits} within {}", Ranges(ranges))
            }
            BuiltinType::Uint { bits, ranges } => {
                write!(f, "a uint{bits} within {}", Ranges(ranges))
            }
            BuiltinType::Decimal { scale, .. } => {
                write!(f, "a decimal with at most {scale} fraction digits in its range")
            }
            BuiltinType::Str { lengths, patterns } => write_string(f, lengths, patterns),
            BuiltinType::Binary { .. } => f.write_str("binary of the right length"),
            BuiltinType::Enum(members) => {
                write!(f, "one of {}", NameList(members.iter().map(|m| m.name.as_str())))
            }
            BuiltinType::Identity(known) => {
                write!(f, "one of {}", NameList(known.iter().map(|i| bare_identity(&i.qualified))))
            }
            BuiltinType::Bits(names) => {
                write!(f, "a set of {}", NameList(names.iter().map(SmolStr::as_str)))
            }
            BuiltinType::Union(members) => {
                members.iter().enumerate().try_for_each(|(i, member)| {
                    write!(f, "{}{member}", if i == 0 { "" } else { " or " })
                })
            }
        }
    }
}

fn write_string(
    f: &mut fmt::Formatter<'_>,
    lengths: &[(u64, u64)],
    patterns: &[Pattern],
) -> fmt::Result {
    f.write_str("a string")?;
    if lengths != [(0, u64::MAX)] {
        write!(f, " of {} characters", Ranges(lengths))?;
    }
    patterns
        .iter()
        .try_for_each(|p| write!(f, " {} `{}`", if p.inverted { "unlike" } else { "like" }, p.xsd))
}

struct Ranges<'a, T>(&'a [(T, T)]);

impl<T: fmt::Display + PartialEq> fmt::Display for Ranges<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (low, high)) in self.0.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { " | " })?;
            if low == high { write!(f, "{low}")? } else { write!(f, "{low}..{high}")? }
        }
        Ok(())
    }
}

struct NameList<I>(I);

impl<'a, I: Iterator<Item = &'a str> + Clone> fmt::Display for NameList<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Names that a message lists before it abbreviates.
        const SHOWN: usize = 12;
        for (i, name) in self.0.clone().take(SHOWN).enumerate() {
            write!(f, "{}{name}", if i == 0 { "" } else { ", " })?;
        }
        if self.0.clone().nth(SHOWN).is_some() { f.write_str(", ...") } else { Ok(()) }
    }
}
