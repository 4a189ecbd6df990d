//! Keys as text: `link/eth0`, `static-route/DEFAULT/static/10.0.0.0/8`.
//!
//! The name of the kind, then the segments. A slash or percent sign inside a text is percent-encoded. Text does not
//! say of which type a segment is, so reading gives every key it can mean, and the engine knows which of them exist.

use std::net::IpAddr;

use holdfast_scheduler::{Engine, Key, Registry, Segment, State};
use ipnet::IpNet;

use super::failure::Failure;

/// Segments up to which a text is taken for a key; each may mean a few things.
const SEGMENTS_MOST: usize = 8;

/// The text of a key.
pub(super) fn name(registry: &Registry, key: &Key) -> String {
    let kind = registry.descriptor(key.kind());
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

/// The key that a text means: by name, or as people call the value (which looks at every value).
pub(super) fn find(engine: &Engine, text: &str) -> Result<Key, Failure> {
    let meanings = meanings(engine.registry(), text);
    let known = |key: &&Key| {
        engine.state(key) != State::Nonexistent
            || engine.status(key).is_some()
            || engine.history().touching(key).next().is_some()
    };
    let by_label = || {
        let labelled = text.contains(' ').then(|| engine.keys(|key| engine.label(key) == text));
        labelled.unwrap_or_default().into_iter().next()
    };
    let found = meanings.iter().find(known).cloned().or_else(by_label);
    found.ok_or_else(|| Failure::unknown(format!("nobody has heard of a value `{text}`")))
}

/// Every prefix of keys that a text can mean.
pub(super) fn prefixes(registry: &Registry, text: &str) -> Result<Vec<Key>, Failure> {
    let meanings = meanings(registry, text.trim_end_matches('/'));
    match meanings.is_empty() {
        true => Err(Failure::unknown(format!("no keys start with `{text}`"))),
        false => Ok(meanings),
    }
}

fn meanings(registry: &Registry, text: &str) -> Vec<Key> {
    let mut parts = text.split('/');
    let kind = parts.next().and_then(|name| registry.by_name(name));
    let parts: Vec<&str> = parts.collect();
    let Some(kind) = kind.filter(|_| parts.len() <= SEGMENTS_MOST) else { return Vec::new() };
    let mut found = Vec::new();
    read(Key::of(kind.kind()), &parts, &mut found);
    found
}

/// Appends every way to read the parts to `key`.
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

#[cfg(test)]
mod tests {
    use holdfast_platform::descriptors::{self, address, link, route};

    use super::*;

    #[test]
    fn a_name_can_mean_its_key() {
        let registry = descriptors::registry();
        let net = "10.0.0.0/8".parse().unwrap();
        for (key, text) in [
            (link::key("eth0"), "link/eth0"),
            (link::key("a/b%"), "link/a%2Fb%25"),
            (link::key("7"), "link/7"),
            (address::key("eth0", "::1".parse().unwrap()), "address/eth0/::1"),
            (route::static_key("DEFAULT", "static", net), "static-route/DEFAULT/static/10.0.0.0/8"),
        ] {
            assert_eq!(name(&registry, &key), text);
            assert!(meanings(&registry, text).contains(&key), "{text}");
        }
        assert!(meanings(&registry, "nothing/eth0").is_empty());
        assert!(meanings(&registry, &format!("link{}", "/1".repeat(40))).is_empty());
    }
}
