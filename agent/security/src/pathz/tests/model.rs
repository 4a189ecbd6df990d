//! The trie against a model that looks at every rule for every question.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::*;

const USERS: [&str; 3] = ["ada", "bob", "cyd"];
const GROUPS: [&str; 2] = ["red", "blue"];
const NAMES: [&str; 2] = ["a", "b"];
const KEYS: [&str; 2] = ["k", "l"];
/// The last is the wildcard.
const VALUES: [&str; 3] = ["1", "2", "*"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    // proves 5.42, 5.43, 5.46, 5.48
    #[test]
    fn decisions_are_those_of_the_naive_model(
        draft in draft(),
        user in proptest::sample::select(&USERS[..]),
        mode in mode(),
        paths in vec(path(), 1..12),
    ) {
        let groups = draft.groups.clone();
        let policy = draft.check().unwrap();
        let rules = policy.by_text();
        for path in paths {
            let got = policy.decide(&rules, user, mode, &path);
            prop_assert_eq!(got, naive(&policy, &groups, user, mode, &path), "{:?}", path);
        }
    }

    /// The order in which rules were written means nothing.
    // proves 5.48
    #[test]
    fn rules_have_no_order(
        (draft, shuffled) in draft().prop_flat_map(|draft| {
            let rules = Just(draft.rules.clone()).prop_shuffle();
            let shuffled = rules.prop_map({
                let groups = draft.groups.clone();
                move |rules| DraftPolicy { rules, groups: groups.clone() }
            });
            (Just(draft), shuffled)
        }),
        path in path(),
    ) {
        let one = draft.check().unwrap();
        let other = shuffled.check().unwrap();
        for user in USERS {
            prop_assert_eq!(
                one.decide(&one.by_text(), user, Mode::Read, &path),
                other.decide(&other.by_text(), user, Mode::Read, &path)
            );
        }
    }

    /// Rules below a settled position never change the decision.
    #[test]
    fn a_decision_without_rules_below_holds_for_descendants(draft in draft(), path in path()) {
        let policy = draft.check().unwrap();
        let rules = policy.by_text();
        let view = rules.view(Mode::Read, &policy.principals("ada"));
        let mut at = view.step(&view.root(), &path.origin, |_| None);
        let mut settled = None;
        for elem in &path.elems {
            at = view.step(&at, &elem.name, |key| {
                elem.definite_keys().find(|(name, _)| name == key).map(|(_, value)| value)
            });
            if let Some(action) = settled {
                prop_assert_eq!(at.action(), action);
                prop_assert!(at.has_no_rule_below());
            }
            settled = settled.or(at.has_no_rule_below().then(|| at.action()));
        }
    }
}

/// The specification word for word: of all rules, the best of those that match decides.
fn naive(policy: &Policy, groups: &[Group], user: &str, mode: Mode, path: &Path) -> Action {
    let mut best: Option<&Rule> = None;
    for rule in policy.rules() {
        let about = match &rule.principal {
            Principal::User(name) => name == user,
            Principal::Group(name) => groups
                .iter()
                .any(|group| group.name == *name && group.users.iter().any(|it| it == user)),
        };
        if about && rule.mode == mode && is_prefix(&rule.path, path) {
            best = match best {
                Some(winner) if !is_better(rule, winner) => Some(winner),
                _ => Some(rule),
            };
        }
    }
    best.map_or(Action::Deny, |rule| rule.action)
}

fn is_prefix(rule: &Path, path: &Path) -> bool {
    rule.origin == path.origin
        && rule.elems.len() <= path.elems.len()
        && rule.elems.iter().zip(&path.elems).all(|(rule, elem)| {
            let met = |(key, value): &(smol_str::SmolStr, smol_str::SmolStr)| {
                value == "*" || elem.keys.contains(&(key.clone(), value.clone()))
            };
            rule.name == elem.name && rule.keys.iter().all(met)
        })
}

fn is_better(one: &Rule, other: &Rule) -> bool {
    let definite = |rule: &Rule| {
        rule.path.elems.iter().flat_map(|elem| &elem.keys).filter(|(_, value)| value != "*").count()
    };
    let user = |rule: &Rule| matches!(rule.principal, Principal::User(_));
    let rank = |rule: &Rule| {
        (rule.path.elems.len(), definite(rule), user(rule), rule.action == Action::Deny)
    };
    rank(one) > rank(other)
}

fn draft() -> impl Strategy<Value = DraftPolicy> {
    let members = || proptest::sample::subsequence(&USERS[..], 0..=USERS.len());
    (vec(rule(), 0..24), members(), members()).prop_map(|(rules, red, blue)| {
        let group = |(name, users): (&str, Vec<&str>)| Group {
            name: name.into(),
            users: users.into_iter().map(Into::into).collect(),
        };
        let groups = GROUPS.into_iter().zip([red, blue]).map(group).collect();
        let numbered =
            |(id, rule): (usize, DraftRule)| DraftRule { id: id.to_string().into(), ..rule };
        DraftPolicy { groups, rules: rules.into_iter().enumerate().map(numbered).collect() }
    })
}

fn rule() -> impl Strategy<Value = DraftRule> {
    let user = proptest::sample::select(&USERS[..]).prop_map(|it| Principal::User(it.into()));
    let group = proptest::sample::select(&GROUPS[..]).prop_map(|it| Principal::Group(it.into()));
    let action = prop_oneof![Just(Action::Permit), Just(Action::Deny)];
    (prop_oneof![user, group], path(), action, mode()).prop_map(
        |(principal, path, action, mode)| DraftRule {
            id: "".into(),
            principal: Some(principal),
            path: Some(path),
            action: Some(action),
            mode: Some(mode),
        },
    )
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Read), Just(Mode::Write)]
}

fn path() -> impl Strategy<Value = Path> {
    let value = || proptest::option::of(proptest::sample::select(&VALUES[..]));
    let elem = (proptest::sample::select(&NAMES[..]), value(), value()).prop_map(|(name, k, l)| {
        let keys = KEYS.into_iter().zip([k, l]);
        let keys = keys.filter_map(|(key, value)| Some((key.into(), value?.into()))).collect();
        Elem { name: name.into(), keys }
    });
    let origin = proptest::sample::select(&["openconfig", "openconfig", "holdfast_native"][..]);
    (origin, vec(elem, 0..4)).prop_map(|(origin, elems)| Path { origin: origin.into(), elems })
}
