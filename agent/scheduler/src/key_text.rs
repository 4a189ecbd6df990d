//! Keys as text: `link/eth0`, `route/254/10.0.0.0/8/0`.
//!
//! Text is the name of the kind, then the segments. A slash or percent sign inside a segment is percent-encoded. Text
//! does not contain the types of segments, so reading returns every key it can mean.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::descriptor::Registry;
use crate::key::{Key, Segment};

/// Number of segments up to which a text is read as a key. Each segment can have a few types, so the readings multiply.
const SEGMENTS_MOST: usize = 8;

impl Registry {
    /// Text of a key.
    pub fn key_text(&self, key: &Key) -> String {
        let kind = self.descriptor(key.kind());
        let mut text = kind.map_or_else(|| key.kind().0.to_string(), |kind| kind.name().to_owned());
        for segment in key.segments() {
            text.push('/');
            match segment {
                Segment::Str(part) => text += &part.replace('%', "%25").replace('/', "%2F"),
                Segment::Int(number) => text += &number.to_string(),
                Segment::Ip(ip) => text += &ip.to_string(),
                Segment::Prefix(prefix) => text += &prefix.to_string(),
            }
        }
        text
    }

    /// All keys, or prefixes of keys, that a text can mean; empty when no kind has this name.
    pub fn keys_from_text(&self, text: &str) -> Vec<Key> {
        let mut parts = text.split('/');
        let kind = parts.next().and_then(|name| self.by_name(name));
        let parts: Vec<&str> = parts.collect();
        let Some(kind) = kind.filter(|_| parts.len() <= SEGMENTS_MOST) else { return Vec::new() };
        let mut found = Vec::new();
        read(Key::of(kind.kind()), &parts, &mut found);
        found
    }
}

/// Appends every reading of the parts to `key`.
fn read(key: Key, parts: &[&str], found: &mut Vec<Key>) {
    let Some((first, rest)) = parts.split_first() else { return found.push(key) };
    if let Ok(ip) = first.parse::<IpAddr>() {
        let length = rest.first().and_then(|length| length.parse().ok());
        if let Some(prefix) = length.and_then(|length| IpNet::new(ip, length).ok()) {
            read(key.clone().prefix(prefix), &rest[1..], found);
        }
        read(key.clone().ip(ip), rest, found);
    }
    if let Ok(number) = first.parse::<u32>() {
        read(key.clone().u32(number), rest, found);
    }
    if let Ok(number) = first.parse::<u64>() {
        read(key.clone().u64(number), rest, found);
    }
    let text = first.replace("%2F", "/").replace("%2f", "/").replace("%25", "%");
    read(key.str(&text), rest, found);
}
