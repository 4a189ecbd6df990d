//! Lookup of values by name. A text may stand for several keys, of which the engine knows some.

use holdfast_scheduler::{Engine, Key, Registry, ValueState};

use super::http_error::HttpError;

/// Finds the key for a text: by its name, or by the label of the value, which requires a scan of all values.
pub(super) fn find_key(engine: &Engine, text: &str) -> Result<Key, HttpError> {
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
    let found = meanings.iter().find(exists).cloned().or_else(by_label);
    found.ok_or_else(|| HttpError::not_found(format!("there is no value `{text}`")))
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
    use holdfast_platform::descriptors::{self, address, link, route};

    #[test]
    fn key_texts_parse_back_to_their_keys() {
        let registry = descriptors::registry();
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
