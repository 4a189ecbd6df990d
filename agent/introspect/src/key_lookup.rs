//! Lookup of values by name. A text may stand for several keys; the engine knows some of them.

use std::net::IpAddr;

use holdfast_platform::kinds::{self, link};
use holdfast_platform::values::{Address, KernelRoute, Neighbor, RouteTarget};
use holdfast_scheduler::{Engine, Key, Registry, ValueState};
use ipnet::IpNet;

use super::http_error::HttpError;

/// Values that are listed where a text may mean several.
const CANDIDATES: usize = 20;

/// Finds the key for a text: by its name, or by the label of the value, or as a person names it: a device, an address, a
/// prefix, a gateway. All but the first require a scan of all values.
pub(super) fn find_key(engine: &Engine, text: &str) -> Result<Key, HttpError> {
    if let Some(key) = named(engine, text) {
        return Ok(key);
    }
    let candidates = candidates(engine, text);
    match candidates.as_slice() {
        [] => Err(HttpError::not_found(format!(
            "there is no value `{text}`: `show values` lists all values, and you can also name a link, an address, a prefix or `gateway ADDRESS`"
        ))),
        [key] => Ok(key.clone()),
        several => {
            let names = several.iter().take(CANDIDATES).map(|key| engine.registry().key_text(key));
            let names = names.collect::<Vec<_>>().join(", ");
            let more = several.len().saturating_sub(CANDIDATES);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            Err(HttpError::bad_request(format!(
                "`{text}` may be one of {names}{more}: name one of them"
            )))
        }
    }
}

/// Sentence that says which value was taken for a text that does not name it; `None` for a text that does.
pub(super) fn taken_text(engine: &Engine, text: &str, key: &Key) -> Option<String> {
    let is_named = named(engine, text).as_ref() == Some(key);
    let name = engine.registry().key_text(key);
    (!is_named).then(|| format!("`{text}` is taken for {}, {name}", engine.label(key)))
}

/// The value with this name or label.
fn named(engine: &Engine, text: &str) -> Option<Key> {
    let meanings = engine.registry().keys_from_text(text);
    let exists = |key: &&Key| {
        engine.state(key) != ValueState::Nonexistent
            || engine.status(key).is_some()
            || engine.history().touching(key).next().is_some()
    };
    let by_label = || {
        let labelled = text.contains(' ').then(|| engine.keys(|key| engine.label(key) == text));
        labelled.unwrap_or_default().into_iter().next()
    };
    meanings.iter().find(exists).cloned().or_else(by_label)
}

/// Values that a person may mean: the link of this name; else those with this address; else the routes to this prefix, or
/// through this gateway; else the address in whose prefix it is.
fn candidates(engine: &Engine, text: &str) -> Vec<Key> {
    let link = link::key(text);
    if engine.state(&link) != ValueState::Nonexistent {
        return vec![link];
    }
    if let Ok(prefix) = text.parse::<IpNet>() {
        return of_prefix(engine, prefix);
    }
    let (address, is_gateway) = match text.strip_prefix("gateway ") {
        Some(gateway) => (gateway.trim(), true),
        None => (text, false),
    };
    let Ok(address) = address.parse::<IpAddr>() else { return Vec::new() };
    let kinds = [kinds::ADDRESS, kinds::NEIGHBOR];
    let is_host = |key: &Key| kinds.contains(&key.kind()) && has_ip(engine, key, address);
    let hosts = if is_gateway { Vec::new() } else { sorted(engine, is_host) };
    if !hosts.is_empty() {
        return hosts;
    }
    let through = sorted(engine, |key| is_through(engine, key, address));
    if !through.is_empty() {
        return through;
    }
    let covers = |key: &Key| {
        key.kind() == kinds::ADDRESS
            && prefix_of(engine, key).is_some_and(|it| it.contains(&address))
    };
    sorted(engine, covers)
}

/// Routes to a prefix, and addresses that have it on their link.
fn of_prefix(engine: &Engine, prefix: IpNet) -> Vec<Key> {
    let wanted = prefix.trunc();
    let is_to = |key: &Key| {
        let route: Option<KernelRoute> = value_of(engine, key);
        route.is_some_and(|route| route.prefix == wanted)
    };
    let routes = sorted(engine, |key| key.kind() == kinds::ROUTE && is_to(key));
    if !routes.is_empty() {
        return routes;
    }
    let has = |key: &Key| prefix_of(engine, key).is_some_and(|it| it.trunc() == wanted);
    sorted(engine, |key| key.kind() == kinds::ADDRESS && has(key))
}

fn sorted(engine: &Engine, matches: impl Fn(&Key) -> bool) -> Vec<Key> {
    let mut keys = engine.keys(matches);
    keys.sort_unstable();
    keys
}

/// The value under a key, as intended, else as the system has it.
fn value_of<V: Clone + 'static>(engine: &Engine, key: &Key) -> Option<V> {
    let value = engine.planes(key).into_iter().flatten().next()?;
    value.as_any().downcast_ref::<V>().cloned()
}

fn has_ip(engine: &Engine, key: &Key, ip: IpAddr) -> bool {
    let address: Option<Address> = value_of(engine, key);
    let neighbor: Option<Neighbor> = value_of(engine, key);
    address.map(|it| it.ip).or(neighbor.map(|it| it.ip)) == Some(ip)
}

fn prefix_of(engine: &Engine, key: &Key) -> Option<IpNet> {
    let address: Address = value_of(engine, key)?;
    IpNet::new(address.ip, address.prefix_len).ok()
}

fn is_through(engine: &Engine, key: &Key, gateway: IpAddr) -> bool {
    if key.kind() != kinds::ROUTE {
        return false;
    }
    match value_of::<KernelRoute>(engine, key).map(|route| route.target) {
        Some(RouteTarget::Hops(hops)) => hops.iter().any(|hop| hop.gateway == Some(gateway)),
        Some(RouteTarget::Blackhole) | None => false,
    }
}

/// All key prefixes that a text can stand for.
pub(super) fn key_prefixes(registry: &Registry, text: &str) -> Result<Vec<Key>, HttpError> {
    let meanings = registry.keys_from_text(text.trim_end_matches('/'));
    if meanings.is_empty() {
        Err(HttpError::not_found(format!("no keys start with `{text}`")))
    } else {
        Ok(meanings)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_platform::kinds::{self, address, link, route};

    #[test]
    fn key_texts_parse_back_to_their_keys() {
        let registry = kinds::registry();
        let net = "10.0.0.0/8".parse().unwrap();
        for (key, text) in [
            (link::key("eth0"), "link/eth0"),
            (link::key("a/b%"), "link/a%2Fb%25"),
            (link::key("7"), "link/7"),
            (address::key("eth0", "::1".parse().unwrap()), "address/eth0/::1"),
            (route::key(254, net, 0), "route/254/10.0.0.0/8/0"),
        ] {
            assert_eq!(registry.key_text(&key), text);
            assert!(registry.keys_from_text(text).contains(&key), "{text}");
        }
        assert!(registry.keys_from_text("nothing/eth0").is_empty());
        assert!(registry.keys_from_text(&format!("link{}", "/1".repeat(40))).is_empty());
    }
}
