//! Keys: the names of values.
//!
//! A key is its kind and a sequence of typed segments, written as bytes that sort as the segments do, that show where
//! a segment ends, and that equal keys share. So an index needs no knowledge of kinds, and a prefix made of whole
//! segments can never match half a segment: `link/eth1` is not a prefix of `link/eth10`.

mod order;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher as _, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use foldhash::quality::{FixedState, FoldHasher};
use ipnet::IpNet;
use smallvec::SmallVec;

pub use order::sort_keys;
pub(crate) use order::{sort_by_keys, sort_by_keys_of};

/// Bytes of a key kept without an allocation. The longest interface name fits, or an IPv4 prefix with two numbers,
/// and a key is not larger than three words.
const INLINE_OCTETS: usize = 22;

const STR: u8 = 1;
const U32: u8 = 2;
const U64: u8 = 3;
const IPV4: u8 = 4;
const IPV6: u8 = 5;
const PREFIX4: u8 = 6;
const PREFIX6: u8 = 7;

/// Bytes of the longest segment that is not text, with its tag: an IPv6 prefix.
const SEGMENT_OCTETS: usize = 18;

/// Number of a kind of value. Where the order of two operations is free, the kind with the lower number goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KindId(pub u16);

/// Name of one value: its kind, then its segments.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Bytes);

/// Bytes of a key. Short ones are never shared and long ones never inline, so equal keys have equal representations.
#[derive(Clone)]
enum Bytes {
    /// Bytes beyond the length are zero.
    Inline {
        length: u8,
        bytes: [u8; INLINE_OCTETS],
    },
    Shared(Arc<[u8]>),
}

/// Short bytes as two numbers in the order of the bytes: the comparison that is done most often.
fn numbers(bytes: &[u8; INLINE_OCTETS]) -> (u128, u64) {
    let first = bytes.first_chunk().map(|first| u128::from_be_bytes(*first));
    let last = bytes.last_chunk().map(|last| u64::from_be_bytes(*last));
    (first.unwrap_or_default(), last.unwrap_or_default())
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Inline { bytes: a, .. }, Self::Inline { bytes: b, .. }) => {
                numbers(a) == numbers(b)
            }
            (Self::Shared(a), Self::Shared(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Bytes {}

impl Bytes {
    fn new(bytes: &[u8]) -> Self {
        match inline(bytes.len()) {
            Some(length) => {
                let mut all = [0; INLINE_OCTETS];
                all[..bytes.len()].copy_from_slice(bytes);
                Self::Inline { length, bytes: all }
            }
            None => Self::Shared(bytes.into()),
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Self::Shared(bytes) => bytes,
        }
    }

    fn append(&mut self, more: &[u8]) {
        if !self.append_inline(&[more]) {
            *self = Self::Shared(self.as_slice().iter().chain(more).copied().collect());
        }
    }

    /// Appends in place. False when that does not fit without an allocation.
    fn append_inline(&mut self, pieces: &[&[u8]]) -> bool {
        let Self::Inline { length, bytes } = self else { return false };
        let before = usize::from(*length);
        let more: usize = pieces.iter().map(|piece| piece.len()).sum();
        let Some(longer) = inline(before + more) else { return false };
        let mut rest = &mut bytes[before..];
        for piece in pieces {
            let (here, after) = rest.split_at_mut(piece.len());
            here.copy_from_slice(piece);
            rest = after;
        }
        *length = longer;
        true
    }
}

/// Length of bytes that need no allocation.
fn inline(bytes: usize) -> Option<u8> {
    u8::try_from(bytes).ok().filter(|_| bytes <= INLINE_OCTETS)
}

/// One segment of a key, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    Str(String),
    Int(u64),
    Ip(IpAddr),
    Prefix(IpNet),
}

/// Bytes that are not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not a key: they end inside a segment, or hold an unknown segment")]
pub struct KeyError;

impl Key {
    /// Key of kind `kind` without segments; also the prefix of all keys of that kind.
    pub fn of(kind: KindId) -> Self {
        Self(Bytes::new(&kind.0.to_be_bytes()))
    }

    /// Appends text. Zero bytes are escaped, so the end mark is unique and the order is that of the text.
    #[must_use]
    pub fn str(mut self, text: &str) -> Self {
        if !text.as_bytes().contains(&0)
            && self.0.append_inline(&[&[STR], text.as_bytes(), &[0, 0]])
        {
            return self;
        }
        let mut segment: SmallVec<[u8; INLINE_OCTETS]> = SmallVec::new();
        segment.push(STR);
        for (at, piece) in text.as_bytes().split(|byte| *byte == 0).enumerate() {
            if at > 0 {
                segment.extend_from_slice(&[0, 0xff]);
            }
            segment.extend_from_slice(piece);
        }
        segment.extend_from_slice(&[0, 0]);
        self.0.append(&segment);
        self
    }

    #[must_use]
    pub fn u32(self, number: u32) -> Self {
        self.fixed(U32, &number.to_be_bytes())
    }

    #[must_use]
    pub fn u64(self, number: u64) -> Self {
        self.fixed(U64, &number.to_be_bytes())
    }

    /// Appends an address. IPv4 sorts before IPv6.
    #[must_use]
    pub fn ip(self, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(ip) => self.fixed(IPV4, &ip.octets()),
            IpAddr::V6(ip) => self.fixed(IPV6, &ip.octets()),
        }
    }

    /// Appends a prefix, host bits as given: truncate first for `10.0.0.1/8` and `10.0.0.0/8` to be one key.
    #[must_use]
    pub fn prefix(self, prefix: IpNet) -> Self {
        let length = prefix.prefix_len();
        match prefix.addr() {
            IpAddr::V4(ip) => {
                let [a, b, c, d] = ip.octets();
                self.fixed(PREFIX4, &[a, b, c, d, length])
            }
            IpAddr::V6(ip) => {
                let mut bytes = [length; 17];
                bytes[..16].copy_from_slice(&ip.octets());
                self.fixed(PREFIX6, &bytes)
            }
        }
    }

    fn fixed<const N: usize>(mut self, tag: u8, bytes: &[u8; N]) -> Self {
        let mut segment = [tag; SEGMENT_OCTETS];
        segment[1..=N].copy_from_slice(bytes);
        self.0.append(&segment[..=N]);
        self
    }

    pub fn kind(&self) -> KindId {
        let bytes = self.as_bytes();
        KindId(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// True when `prefix` has the same kind and its segments are the first ones of this key (or all of them).
    pub fn starts_with(&self, prefix: &Key) -> bool {
        self.as_bytes().starts_with(prefix.as_bytes())
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// Reads the bytes of [`Key::as_bytes`].
    ///
    /// # Errors
    /// When the bytes end inside of a segment, or hold an unknown one.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, KeyError> {
        let mut rest = bytes.get(2..).ok_or(KeyError)?;
        while !rest.is_empty() {
            rest = take(rest).ok_or(KeyError)?.1;
        }
        Ok(Self(Bytes::new(bytes)))
    }

    /// The segments, decoded: for printing and for codecs that build their request from the key alone.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        let mut rest = &self.as_bytes()[2..];
        std::iter::from_fn(move || {
            let (segment, after) = take(rest)?;
            rest = after;
            Some(segment)
        })
    }

    /// Every prefix of this key, from its bare kind to the key itself.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = Key> + '_ {
        let bytes = self.as_bytes();
        let mut end = 0;
        std::iter::from_fn(move || {
            end = match end {
                0 => 2,
                _ => end + segment_octets(&bytes[end..])?,
            };
            Some(Self(Bytes::new(&bytes[..end])))
        })
    }
}

/// Length of the first segment of `bytes`; nothing when there is none, or no whole one.
fn segment_octets(bytes: &[u8]) -> Option<usize> {
    let length = match *bytes.first()? {
        STR => 1 + text_octets(&bytes[1..])?,
        U32 | IPV4 => 5,
        U64 => 9,
        PREFIX4 => 6,
        IPV6 => 17,
        PREFIX6 => 18,
        _ => return None,
    };
    (bytes.len() >= length).then_some(length)
}

/// Length of an escaped text with its end mark.
fn text_octets(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += bytes[at..].iter().position(|&byte| byte == 0)?;
        match *bytes.get(at + 1)? {
            0 => return Some(at + 2),
            0xff => at += 2,
            _ => return None,
        }
    }
}

/// Decodes the first segment and gives the bytes after it.
fn take(bytes: &[u8]) -> Option<(Segment, &[u8])> {
    let (this, rest) = bytes.split_at(segment_octets(bytes)?);
    let segment = match this[0] {
        STR => Segment::Str(text(&this[1..this.len() - 2])?),
        U32 => Segment::Int(u32::from_be_bytes(this[1..].try_into().ok()?).into()),
        U64 => Segment::Int(u64::from_be_bytes(this[1..].try_into().ok()?)),
        IPV4 | IPV6 => Segment::Ip(address(&this[1..])?),
        _ => {
            let (length, ip) = this[1..].split_last()?;
            Segment::Prefix(IpNet::new(address(ip)?, *length).ok()?)
        }
    };
    Some((segment, rest))
}

fn text(escaped: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.iter();
    while let Some(&byte) = rest.next() {
        bytes.push(byte);
        if byte == 0 {
            rest.next();
        }
    }
    String::from_utf8(bytes).ok()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(four).into());
    }
    Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into())
}

impl fmt::Display for Key {
    /// `3/eth0/10.0.0.0/8`: the number of the kind and the segments.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind().0)?;
        self.segments().try_for_each(|segment| write!(f, "/{segment}"))
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Str(text) => text.fmt(f),
            Self::Int(number) => number.fmt(f),
            Self::Ip(ip) => ip.fmt(f),
            Self::Prefix(prefix) => prefix.fmt(f),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.0 {
            // The length need not be hashed: no segment is a prefix of another one.
            Bytes::Inline { bytes, .. } => {
                // The last word overlaps the one before, which is cheaper than filling it up in a copy.
                let words = bytes.as_chunks::<8>().0.iter().chain(bytes.last_chunk());
                words.for_each(|word| state.write_u64(u64::from_le_bytes(*word)));
            }
            Bytes::Shared(bytes) => state.write(bytes),
        }
    }
}

impl Ord for Key {
    /// Orders keys as their bytes, which is the order of their segments.
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (
                Bytes::Inline { length: a, bytes: ours },
                Bytes::Inline { length: b, bytes: theirs },
            ) => numbers(ours).cmp(&numbers(theirs)).then(a.cmp(b)),
            _ => self.as_bytes().cmp(other.as_bytes()),
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Hash map whose order of iteration does not depend on a random seed, so that plans do not either. Keys come from
/// our own configuration: floods of colliding keys cannot happen.
pub(crate) type FixedMap<K, V> = std::collections::HashMap<K, V, FixedState>;

/// Set with that hash.
pub(crate) type FixedSet<T> = std::collections::HashSet<T, FixedState>;

/// Set of keys with that hash.
pub(crate) type KeySet = FixedSet<Key>;

/// Hash with the same seed in every run. Of its two forms, the one all of whose bits are good: tables and their shards take
/// different ones.
pub(crate) type FixedHasher = FoldHasher;

/// Begins a hash.
pub(crate) fn hasher() -> FixedHasher {
    FixedState::default().build_hasher()
}

/// Hash by which [`Slots`](crate::arena::Slots) are indexed.
pub(crate) fn hash_of(thing: &impl Hash) -> u64 {
    FixedState::default().hash_one(thing)
}

/// Set of kinds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kinds(Vec<u64>);

impl Kinds {
    pub(crate) fn insert(&mut self, kind: KindId) {
        let (word, bit) = Self::place(kind);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
    }

    pub(crate) fn contains(&self, kind: KindId) -> bool {
        let (word, bit) = Self::place(kind);
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }

    fn place(kind: KindId) -> (usize, u64) {
        (usize::from(kind.0 / 64), 1 << (kind.0 % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: KindId = KindId(1);

    fn link(name: &str) -> Key {
        Key::of(LINK).str(name)
    }

    // proves kv.X1
    #[test]
    fn a_prefix_ends_where_a_segment_ends() {
        for (key, prefix, want) in [
            (link("eth10"), link("eth1"), false),
            (link("eth1").u32(7), link("eth1"), true),
            (link("eth1"), link("eth1"), true),
            (link("eth1"), link("eth1").u32(7), false),
            (link("eth1"), Key::of(LINK), true),
            (link("eth1"), Key::of(KindId(2)), false),
            (link("a\0b"), link("a"), false),
        ] {
            assert_eq!(key.starts_with(&prefix), want, "{key} {prefix}");
        }
    }

    #[test]
    fn keys_sort_as_their_segments() {
        let sorted = [
            link("a"),
            link("a").u32(1),
            link("a").u32(256),
            link("a\0"),
            link("a\0b"),
            link("a\u{1}"),
            link("ab"),
            link("b").ip(IpAddr::from([10, 0, 0, 1])),
            link("b").ip("fe80::1".parse().unwrap()),
            Key::of(KindId(0x100)),
        ];
        for pair in sorted.windows(2) {
            assert!(pair[0] < pair[1], "{:?} {:?}", pair[0], pair[1]);
        }
    }

    /// Equality and order do not depend on where the bytes are kept.
    #[test]
    fn short_and_long_keys_are_alike() {
        let texts = (0..2 * INLINE_OCTETS).map(|length| "x".repeat(length));
        let mut all: Vec<Key> =
            texts.flat_map(|text| [link(&text), link(&text).u32(0), link(&text).u32(9)]).collect();
        for key in &all {
            assert_eq!(Key::from_bytes(key.as_bytes()).as_ref(), Ok(key));
            assert_eq!(hash_of(&Key::from_bytes(key.as_bytes()).unwrap()), hash_of(key));
        }
        all.sort();
        assert!(all.windows(2).all(|pair| pair[0].as_bytes() < pair[1].as_bytes()));
        let hashes: std::collections::BTreeSet<u64> = all.iter().map(hash_of).collect();
        assert_eq!(hashes.len(), all.len());
    }

    #[test]
    fn keys_read_back_as_written() {
        let key = link("a\0b")
            .u32(7)
            .u64(8)
            .prefix("10.1.2.3/8".parse().unwrap())
            .ip("::1".parse().unwrap());
        assert_eq!(key.to_string(), "1/a\0b/7/8/10.1.2.3/8/::1");
        assert_eq!(Key::from_bytes(key.as_bytes()), Ok(key.clone()));
        assert_eq!(Key::from_bytes(&key.as_bytes()[..key.as_bytes().len() - 1]), Err(KeyError));
        assert_eq!(Key::from_bytes(&[0]), Err(KeyError));
        assert_eq!(key.prefixes().count(), 6);
        assert!(key.prefixes().all(|prefix| key.starts_with(&prefix)));
    }
}
