//! Random values and changes of intent, as text.

use proptest::prelude::*;

/// Number of cases of a property, unless `PROPTEST_CASES` is set.
pub(crate) fn cases(few: u32) -> ProptestConfig {
    let usual = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { usual.cases } else { few };
    ProptestConfig { cases, failure_persistence: None, ..usual }
}

/// Names of the values in a random system.
pub(crate) const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "m", "m/1", "m/2", "A", "B"];
/// Values that offer facets. They need only one another, so no facet supports itself.
pub(crate) const PROVIDERS: [&str; 3] = ["a", "b", "A"];

/// Reducible values. They have no parts, and the targets of their members never depend on them.
const REDUCIBLE: [&str; 2] = ["c", "B"];

/// Members with targets that may come and go.
const MEMBERS: [&str; 8] = ["|a", "|b", "|A", "|m/1", "|?f", "|a&b", "|b:up", "|@10.0.0.1"];

/// True for a value that a reducible one may have as a member.
pub(crate) fn is_member(name: &str) -> bool {
    PROVIDERS.contains(&name) || name.starts_with('m')
}

/// One value as text.
pub(crate) fn value(name: &'static str, rich: bool) -> impl Strategy<Value = String> {
    let names = if rich && is_member(name) { &PROVIDERS[..] } else { &NAMES[..] };
    // Nothing is generated to be rejected: proptest ends a long run for that.
    let needed: Vec<&str> = names.iter().copied().filter(|it| !rich || *it != name).collect();
    let needed = proptest::sample::select(needed).prop_map(|name| format!("<{name}"));
    let mut tokens = vec![(4, needed.boxed())];
    let fixed = |texts: &[&str]| -> Vec<(u32, BoxedStrategy<String>)> {
        texts.iter().map(|text| (1, Just((*text).to_owned()).boxed())).collect()
    };
    if rich {
        tokens.extend(fixed(&[":up"]));
        if !REDUCIBLE.contains(&name) {
            tokens.extend(fixed(&[".p", ".r(<c)", ".t(.q)", ".*s", ".w(|a,|b&A)"]));
        }
        tokens.extend(fixed(&["#x", "#y", "#x/s", "#x/s", "#y/s", "#y/t"]));
        if REDUCIBLE.contains(&name) {
            let members = proptest::sample::select(&MEMBERS[..]);
            tokens.push((12, members.prop_map(str::to_owned).boxed()));
        }
        let provider = proptest::sample::select(&PROVIDERS[..]);
        match (PROVIDERS.contains(&name), name.starts_with('m')) {
            (true, _) => tokens.extend(fixed(&["+f", "+f", "+g", "+10.0.0.0/8"])),
            (_, true) => tokens.extend(fixed(&["<?f", "<?f", "<?g", "<@10.0.0.1"])),
            _ => {
                tokens.extend(fixed(&["<?f", "<?f", "<?g", "<@10.0.0.1", "<m/"]));
                tokens.push((1, provider.prop_map(|name| format!("<{name}:up")).boxed()));
            }
        }
    }
    let tokens =
        proptest::collection::btree_set(proptest::strategy::Union::new_weighted(tokens), 0..4);
    (0u32..3, 0u32..2, tokens).prop_map(move |(content, shape, tokens)| {
        let tokens: Vec<String> = tokens.into_iter().collect();
        format!("{name} ={content} !{shape} {}", tokens.join(" "))
    })
}

/// A change of several keys: new values and removals.
pub(crate) fn change(rich: bool) -> impl Strategy<Value = String> {
    let one = proptest::sample::select(&NAMES[..]).prop_flat_map(
        move |name| prop_oneof![3 => value(name, rich), 1 => Just(format!("-{name}"))],
    );
    proptest::collection::vec(one, 1..7).prop_map(|mut items| {
        let name =
            |item: &String| item.trim_start_matches('-').split(' ').next().unwrap().to_owned();
        items.sort_by_key(name);
        items.dedup_by_key(|item| name(item));
        items.join("; ")
    })
}
