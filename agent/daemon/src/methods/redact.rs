//! Copies a message field by field, without secrets and without fields that do not fit.
//!
//! The result is a message of the same type for any input: a field that is unknown, or that ends too early, is left out
//! and counts as cut.

use bytes::Buf;
use holdfast_proto::gnmi;
use holdfast_security::acctz::secrets::{self, WITHHELD};
use prost::Message as _;
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};

use super::rules::RecordingRule;
use super::{Field, Message};

/// Depth of nested messages that are copied. Messages of the protocols nest half as deep; a deeper one only costs
/// time.
const MAX_DEPTH: usize = 16;
/// Bytes that the key and the length of a field take at most.
const FRAME: usize = 10;
/// Replacement for a JSON document that is incomplete.
const CUT_JSON: &[u8] = br#""(cut)""#;

/// State of one copy.
pub(super) struct Redactor<'m> {
    messages: &'m [Message],
    /// Bytes that may still be written.
    left: usize,
    /// True once something was left out for its size, or because it is unknown.
    pub(super) cut: bool,
    /// The prefix of a SetRequest, once it is known.
    prefix: Option<gnmi::Path>,
}

/// Place of the walk in the message.
#[derive(Clone, Copy)]
struct CopyPosition {
    depth: usize,
    /// True when the path of the update leads to a secret.
    secret: bool,
    /// True when all bytes of the message are there.
    whole: bool,
}

impl<'m> Redactor<'m> {
    pub(super) fn new(messages: &'m [Message], left: usize) -> Self {
        Self { messages, left, cut: false, prefix: None }
    }

    pub(super) fn copy(&mut self, message: &Message, from: &[u8], whole: bool) -> Vec<u8> {
        if message.name == "gnmi.SetRequest" && whole {
            let request = gnmi::SetRequest::decode(from).unwrap_or_default();
            self.prefix = Some(request.prefix.unwrap_or_default());
        }
        let whole = whole && from.len() <= self.left;
        let from = &from[..from.len().min(self.left)];
        self.message(message, from, CopyPosition { depth: 0, secret: false, whole })
    }

    fn message(&mut self, message: &Message, mut from: &[u8], at: CopyPosition) -> Vec<u8> {
        let mut to = Vec::new();
        let secret = at.secret || message.name == "gnmi.Update" && self.leads_to_secret(from, at);
        let at = CopyPosition { secret, ..at };
        while !from.is_empty() && self.field(message, &mut from, &mut to, at).is_some() {}
        self.cut |= !from.is_empty() || !at.whole;
        to
    }

    /// Copies one field; `None` when the rest of the message cannot be read or does not fit.
    fn field(
        &mut self,
        message: &Message,
        from: &mut &[u8],
        to: &mut Vec<u8>,
        at: CopyPosition,
    ) -> Option<()> {
        let (number, wire) = decode_key(from).ok()?;
        let field = message.fields.get(&number);
        if wire != WireType::LengthDelimited {
            return self.number(field, (number, wire), from, to, at);
        }
        let length = usize::try_from(decode_varint(from).ok()?).ok()?;
        let (here, rest) = from.split_at(length.min(from.len()));
        *from = rest;
        let whole = here.len() == length;
        let Some(field) = field else {
            self.cut = true; // a newer protocol may keep a secret in it
            return Some(());
        };
        self.left = self.left.checked_sub(FRAME)?;
        let at = CopyPosition { whole, ..at };
        let copied = match *field {
            Field::Message(_) if at.depth == MAX_DEPTH => return None,
            Field::Message(place) => {
                let messages = self.messages;
                self.message(&messages[place], here, CopyPosition { depth: at.depth + 1, ..at })
            }
            Field::Number { .. } if at.secret => return Some(()),
            Field::Number { wire, repeated: true } if whole && are_numbers(wire, here) => {
                self.bounded(here)?
            }
            Field::Number { .. } => {
                self.cut = true;
                return Some(());
            }
            Field::Octets(rule) => self.octets(rule, here, at)?,
        };
        encode_key(number, WireType::LengthDelimited, to);
        encode_varint(copied.len() as u64, to);
        to.extend_from_slice(&copied);
        Some(())
    }

    fn number(
        &mut self,
        field: Option<&Field>,
        (number, wire): (u32, WireType),
        from: &mut &[u8],
        to: &mut Vec<u8>,
        at: CopyPosition,
    ) -> Option<()> {
        let before = *from;
        skip_number(wire, from)?;
        let Some(Field::Number { .. }) = field.filter(|field| field.is_written_as(wire)) else {
            self.cut = true;
            return Some(());
        };
        if at.secret {
            return Some(());
        }
        self.left = self.left.checked_sub(FRAME)?;
        encode_key(number, wire, to);
        let value = self.bounded(&before[..before.len() - from.len()])?;
        to.extend_from_slice(&value);
        Some(())
    }

    fn octets(&mut self, rule: RecordingRule, here: &[u8], at: CopyPosition) -> Option<Vec<u8>> {
        match rule {
            _ if at.secret && rule != RecordingRule::Keep => self.bounded(withheld(rule)),
            RecordingRule::Withhold => self.bounded(withheld(rule)),
            RecordingRule::Json if at.whole => {
                let redacted = secrets::json(here);
                let redacted = redacted.unwrap_or_else(|| withheld(rule).to_vec());
                let fits = redacted.len() <= self.left;
                self.cut |= !fits;
                self.bounded(if fits { &redacted } else { CUT_JSON })
            }
            RecordingRule::Json => self.bounded(CUT_JSON),
            RecordingRule::Lines => self.text(&secrets::text(&String::from_utf8_lossy(here)), at),
            RecordingRule::Keep | RecordingRule::Value => {
                self.text(&String::from_utf8_lossy(here), at)
            }
        }
    }

    /// The beginning of a text, as much as fits.
    fn text(&mut self, text: &str, at: CopyPosition) -> Option<Vec<u8>> {
        let end = text.floor_char_boundary(self.left);
        let whole = at.whole && end == text.len();
        self.cut |= !whole;
        if secrets::may_carry_password(&text[..end], whole) {
            return self.bounded(WITHHELD.as_bytes());
        }
        self.bounded(&text.as_bytes()[..end])
    }

    /// The bytes, when they fit.
    fn bounded(&mut self, octets: &[u8]) -> Option<Vec<u8>> {
        self.left = self.left.checked_sub(octets.len())?;
        Some(octets.to_vec())
    }

    /// True for an update whose path has a secret name, or may have one.
    fn leads_to_secret(&self, update: &[u8], at: CopyPosition) -> bool {
        let path = if at.whole { path_of(update) } else { first_path_of(update) };
        let Some(path) = path else { return true };
        match &self.prefix {
            Some(prefix) => names_secret(prefix) || names_secret(&path),
            // The prefix may follow. A leaf has its name in its own path, unless that is empty.
            None => names_secret(&path) || names(&path).next().is_none() && path.origin.is_empty(),
        }
    }
}

fn names_secret(path: &gnmi::Path) -> bool {
    names(path).any(secrets::is_secret)
}

/// Names of the elements of a path in both forms, the current and the deprecated one (`interface[name=eth0]`).
fn names(path: &gnmi::Path) -> impl Iterator<Item = &str> {
    #[expect(deprecated, reason = "old clients send `element`")]
    let old = path.element.iter().map(|text| text.split('[').next().unwrap_or(text));
    path.elem.iter().map(|elem| elem.name.as_str()).chain(old)
}

impl Field {
    fn is_written_as(&self, wire_type: WireType) -> bool {
        matches!(self, Self::Number { wire, .. } if *wire == wire_type)
    }
}

fn skip_number(wire: WireType, from: &mut &[u8]) -> Option<()> {
    match wire {
        WireType::Varint => drop(decode_varint(from).ok()?),
        WireType::ThirtyTwoBit if from.len() >= 4 => from.advance(4),
        WireType::SixtyFourBit if from.len() >= 8 => from.advance(8),
        _ => return None,
    }
    Some(())
}

/// True for the packed form of a repeated field of numbers.
fn are_numbers(wire: WireType, mut from: &[u8]) -> bool {
    while !from.is_empty() {
        if skip_number(wire, &mut from).is_none() {
            return false;
        }
    }
    true
}

fn withheld(rule: RecordingRule) -> &'static [u8] {
    match rule {
        RecordingRule::Json => br#""(withheld)""#,
        _ => WITHHELD.as_bytes(),
    }
}

fn path_of(update: &[u8]) -> Option<gnmi::Path> {
    gnmi::Update::decode(update).ok().map(|update| update.path.unwrap_or_default())
}

/// The path of an incomplete update, if it is the first field, as in all common clients.
fn first_path_of(mut update: &[u8]) -> Option<gnmi::Path> {
    let (number, wire) = decode_key(&mut update).ok()?;
    let path = (number, wire) == (1, WireType::LengthDelimited);
    let length = usize::try_from(decode_varint(&mut update).ok()?).ok()?;
    gnmi::Path::decode(update.get(..length)?).ok().filter(|_| path)
}
