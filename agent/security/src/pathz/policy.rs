//! Uploaded policies, and their validation.

use std::collections::{BTreeSet, HashMap, HashSet};

use smol_str::SmolStr;

use super::trie::{CompiledRules, RuleEntry, Step};
use super::{Action, Mode, Principal};

/// Wildcard for any value of a key. No other use of it is valid.
const ANY: &str = "*";
/// Element name that gNMI reads as any number of elements.
const ANY_DEPTH: &str = "...";

/// Path of a rule or of a question: an origin, which is never empty, and elements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Path {
    pub origin: SmolStr,
    pub elems: Vec<Elem>,
}

/// One element: a name and its keys. A key that is left out matches every value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Elem {
    pub name: SmolStr,
    pub keys: Vec<(SmolStr, SmolStr)>,
}

/// A named set of users, for the rules of one policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub name: SmolStr,
    pub users: Vec<SmolStr>,
}

/// A policy that is not validated yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftPolicy {
    pub groups: Vec<Group>,
    pub rules: Vec<DraftRule>,
}

/// A rule that is not validated yet; missing fields are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftRule {
    pub id: SmolStr,
    pub principal: Option<Principal>,
    pub path: Option<Path>,
    pub action: Option<Action>,
    pub mode: Option<Mode>,
}

/// A validated rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub id: SmolStr,
    pub principal: Principal,
    pub path: Path,
    pub action: Action,
    pub mode: Mode,
}

/// A validated policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    /// Groups by user, for users in at least one group.
    memberships: HashMap<SmolStr, BTreeSet<SmolStr>>,
}

/// Reason for refusing a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    #[error("rule {place} has no id")]
    NoId { place: usize },
    #[error("rule `{id}` is defined twice")]
    Twice { id: SmolStr },
    #[error("rule `{id}` has no {what}")]
    Missing { id: SmolStr, what: &'static str },
    #[error("rule `{id}` is for group `{group}`, which the policy does not define")]
    UnknownGroup { id: SmolStr, group: SmolStr },
    #[error("rule `{id}`: {reason} in its path at `{at}`")]
    Path { id: SmolStr, at: SmolStr, reason: &'static str },
    #[error("a group has no name")]
    NamelessGroup,
    #[error("group `{name}` is defined twice")]
    GroupTwice { name: SmolStr },
    #[error("group `{group}` has a user without a name")]
    NamelessUser { group: SmolStr },
}

impl DraftPolicy {
    /// Validates the policy.
    ///
    /// # Errors
    /// With the first problem found, and the rule or group that has it.
    pub fn check(self) -> Result<Policy, PolicyError> {
        let mut names = HashSet::new();
        let mut memberships: HashMap<SmolStr, BTreeSet<SmolStr>> = HashMap::new();
        for Group { name, users } in self.groups {
            if name.is_empty() {
                return Err(PolicyError::NamelessGroup);
            }
            if users.iter().any(SmolStr::is_empty) {
                return Err(PolicyError::NamelessUser { group: name });
            }
            for user in users {
                memberships.entry(user).or_default().insert(name.clone());
            }
            if !names.insert(name.clone()) {
                return Err(PolicyError::GroupTwice { name });
            }
        }
        let mut ids = HashSet::new();
        let mut rules = Vec::with_capacity(self.rules.len());
        for (place, draft) in self.rules.into_iter().enumerate() {
            let rule = draft.check(place, &names)?;
            if !ids.insert(rule.id.clone()) {
                return Err(PolicyError::Twice { id: rule.id });
            }
            rules.push(rule);
        }
        Ok(Policy { rules, memberships })
    }
}

impl DraftRule {
    fn check(self, place: usize, groups: &HashSet<SmolStr>) -> Result<Rule, PolicyError> {
        let Self { id, principal, path, action, mode } = self;
        if id.is_empty() {
            return Err(PolicyError::NoId { place });
        }
        let missing = |what| PolicyError::Missing { id: id.clone(), what };
        let principal = principal.ok_or_else(|| missing("user and no group"))?;
        if principal.name().is_empty() {
            return Err(missing("name of its user or group"));
        }
        if let Principal::Group(group) = &principal
            && !groups.contains(group)
        {
            return Err(PolicyError::UnknownGroup { id, group: group.clone() });
        }
        let path = path.ok_or_else(|| missing("path"))?;
        let action = action.ok_or_else(|| missing("action"))?;
        let mode = mode.ok_or_else(|| missing("mode"))?;
        if let Some((at, reason)) = path.elems.iter().find_map(Elem::invalid_part) {
            return Err(PolicyError::Path { id, at, reason });
        }
        Ok(Rule { id, principal, path, action, mode })
    }
}

impl Elem {
    /// First part of an element that is not allowed in a rule, with its name.
    fn invalid_part(&self) -> Option<(SmolStr, &'static str)> {
        let name = &self.name;
        if name.is_empty() {
            return Some((name.clone(), "an element without a name"));
        }
        if name.contains(ANY) || name == ANY_DEPTH {
            return Some((name.clone(), "a wildcard in a name"));
        }
        self.keys.iter().find_map(|(key, value)| {
            let at = || SmolStr::from(format!("{name}[{key}={value}]"));
            match (key.as_str(), value.as_str()) {
                ("", _) => Some((at(), "a key without a name")),
                (key, _) if key.contains(ANY) => Some((at(), "a wildcard in the name of a key")),
                (_, ANY) => None,
                (_, value) if value.contains(ANY) => {
                    Some((at(), "a wildcard that is only a part of a value"))
                }
                _ => None,
            }
        })
    }

    /// Keys with a single value, without wildcards.
    pub fn definite_keys(&self) -> impl Iterator<Item = &(SmolStr, SmolStr)> {
        self.keys.iter().filter(|(_, value)| value != ANY)
    }
}

impl Policy {
    /// Rules in the order of the upload, which has no meaning.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Subjects of the rules for a user: the user itself and its groups.
    pub fn principals(&self, user: &str) -> Vec<Principal> {
        let groups = self.memberships.get(user).into_iter().flatten();
        let groups = groups.map(|group| Principal::Group(group.clone()));
        std::iter::once(Principal::User(user.into())).chain(groups).collect()
    }

    /// Compiles the rules for questions by text. The origin is the first step of every path.
    pub fn by_text(&self) -> CompiledRules<SmolStr, SmolStr, SmolStr> {
        CompiledRules::new(self.rules.iter().map(|rule| RuleEntry {
            mode: rule.mode,
            principal: rule.principal.clone(),
            action: rule.action,
            path: rule.path.steps().collect(),
        }))
    }

    /// Decides about one path given as text. A key that `path` leaves open stands for all values at once.
    pub fn decide(
        &self,
        rules: &CompiledRules<SmolStr, SmolStr, SmolStr>,
        user: &str,
        mode: Mode,
        path: &Path,
    ) -> Action {
        let view = rules.view(mode, &self.principals(user));
        let mut at = view.root();
        for step in path.steps() {
            at = view.step(&at, &step.name, |key| {
                step.keys.iter().find(|(name, _)| name == key).map(|(_, value)| value)
            });
        }
        at.action()
    }
}

impl Path {
    /// Steps for the trie: the origin, then the elements with their single-valued keys.
    pub fn steps(&self) -> impl Iterator<Item = Step<SmolStr, SmolStr, SmolStr>> {
        let origin = Step { name: self.origin.clone(), keys: Vec::new() };
        let elems = self.elems.iter().map(|elem| Step {
            name: elem.name.clone(),
            keys: elem.definite_keys().cloned().collect(),
        });
        std::iter::once(origin).chain(elems)
    }
}
