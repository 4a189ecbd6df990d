//! Best-match search along a path, one element at a time.
//!
//! Each principal has a trie of its rules for each mode. A [`PolicyView`] is the tries for one user; a [`Position`] is
//! the state of a descent in them, with the best rule so far. The cost of one step depends on the rules at that
//! element only, not on the size of the policy. A position without rules further down is settled, and its
//! descendants need no steps at all.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::{Action, Mode, Principal};

/// One element of a rule's path, with its single-valued keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<N, K, V> {
    pub name: N,
    pub keys: Vec<(K, V)>,
}

/// One rule.
#[derive(Clone, Debug)]
pub struct RuleEntry<N, K, V> {
    pub mode: Mode,
    pub principal: Principal,
    pub action: Action,
    pub path: Vec<Step<N, K, V>>,
}

/// All rules of a policy, generic over the representation of names, keys and values.
#[derive(Debug)]
pub struct CompiledRules<N, K, V> {
    tries: HashMap<TrieKey, Arc<Trie<N, K, V>>>,
}

type TrieKey = (Mode, Principal);

/// Rules that apply to one user in one mode.
#[derive(Debug)]
pub struct PolicyView<N, K, V> {
    tries: Vec<PrincipalTrie<N, K, V>>,
    /// Steps taken, for tests: the work must be in proportion to the data that is read or written.
    steps: AtomicU64,
}

#[derive(Debug)]
struct PrincipalTrie<N, K, V> {
    rank: PrincipalRank,
    trie: Arc<Trie<N, K, V>>,
}

/// State of a descent.
#[derive(Clone, Debug)]
pub struct Position {
    /// Trie nodes with rules further down.
    nodes: SmallVec<[TrieNodeRef; 2]>,
    best: Option<Match>,
}

#[derive(Debug)]
struct Trie<N, K, V> {
    /// Nodes by index; the first is the root. Every other node has an action or edges.
    nodes: Vec<TrieNode<N, K, V>>,
    /// Element names on the paths of permitting rules.
    permit_path_names: HashSet<N>,
    /// Element names at which a rule ends that permits only some list entries.
    partial_permit_names: HashSet<N>,
}

#[derive(Debug)]
struct TrieNode<N, K, V> {
    /// Action of the rules that end here.
    action: Option<Action>,
    edges: HashMap<N, Vec<EdgeGroup<K, V>>>,
}

/// Edges of one element name and one set of definite keys.
#[derive(Debug)]
struct EdgeGroup<K, V> {
    keys: Vec<K>,
    /// Child nodes by the values of these keys.
    to: HashMap<KeyValues<V>, u32>,
}

type KeyValues<V> = SmallVec<[V; 1]>;

#[derive(Clone, Copy, Debug)]
struct TrieNodeRef {
    trie: u16,
    node: u32,
    /// Number of definite keys on the way.
    definite: u16,
}

/// Precedence of a rule. The derived order is that of the specification: more definite keys, user before group,
/// deny before permit. The longer path wins by the order of the descent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Match {
    definite: u16,
    rank: PrincipalRank,
    denies: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PrincipalRank {
    Group,
    User,
}

impl<N, K, V> CompiledRules<N, K, V>
where
    N: Clone + Eq + Hash,
    K: Clone + Ord,
    V: Clone + Eq + Hash,
{
    pub fn new(entries: impl IntoIterator<Item = RuleEntry<N, K, V>>) -> Self {
        let mut tries: HashMap<TrieKey, Trie<N, K, V>> = HashMap::new();
        for RuleEntry { mode, principal, action, path } in entries {
            tries.entry((mode, principal)).or_default().add(path, action);
        }
        let tries = tries.into_iter().map(|(whose, trie)| (whose, Arc::new(trie)));
        Self { tries: tries.collect() }
    }

    /// Selects the rules for a user, given as the user and its groups.
    pub fn view(&self, mode: Mode, principals: &[Principal]) -> PolicyView<N, K, V> {
        let trie = |principal: &Principal| {
            let rank = match principal {
                Principal::User(_) => PrincipalRank::User,
                Principal::Group(_) => PrincipalRank::Group,
            };
            let trie = self.tries.get(&(mode, principal.clone()))?.clone();
            Some(PrincipalTrie { rank, trie })
        };
        PolicyView { tries: principals.iter().filter_map(trie).collect(), steps: AtomicU64::new(0) }
    }
}

impl<N, K, V> PolicyView<N, K, V>
where
    N: Eq + Hash,
    V: Clone + Eq + Hash,
{
    /// Position above the first element.
    pub fn root(&self) -> Position {
        let spot = |trie| TrieNodeRef { trie, node: 0, definite: 0 };
        let tries = u16::try_from(self.tries.len()).unwrap_or(u16::MAX);
        self.position((0..tries).map(spot), None)
    }

    /// Descends by one element. `key` gives the value of a key; a key without one stands for every value, and
    /// matches only rules that leave it open too.
    pub fn step<'v>(&self, from: &Position, name: &N, key: impl Fn(&K) -> Option<&'v V>) -> Position
    where
        V: 'v,
    {
        self.steps.fetch_add(1, Ordering::Relaxed);
        let mut reached: SmallVec<[TrieNodeRef; 2]> = SmallVec::new();
        for spot in &from.nodes {
            for edges in self.node(spot).edges.get(name).into_iter().flatten() {
                let values =
                    edges.keys.iter().map(|it| key(it).cloned()).collect::<Option<KeyValues<V>>>();
                if let Some(node) = values.and_then(|values| edges.to.get(&values)) {
                    let more = u16::try_from(edges.keys.len()).unwrap_or(u16::MAX);
                    let definite = spot.definite.saturating_add(more);
                    reached.push(TrieNodeRef { trie: spot.trie, node: *node, definite });
                }
            }
        }
        self.position(reached, from.best)
    }

    /// True when a permitting rule ends at an element name, or leads through it. With schema nodes as names this
    /// identifies one place in the tree.
    pub fn leads_to_permit(&self, name: &N) -> bool {
        self.tries.iter().any(|ranked| ranked.trie.permit_path_names.contains(name))
    }

    /// True when a rule ends at an element name and permits only some list entries.
    pub fn permits_some(&self, name: &N) -> bool {
        self.tries.iter().any(|ranked| ranked.trie.partial_permit_names.contains(name))
    }

    /// Number of steps taken so far.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Combines the nodes reached. A longer path beats any shorter one, so `above` counts only when no rule ends
    /// here.
    fn position(
        &self,
        reached: impl IntoIterator<Item = TrieNodeRef>,
        above: Option<Match>,
    ) -> Position {
        let mut here = None;
        let mut spots = SmallVec::new();
        for spot in reached {
            let node = self.node(&spot);
            here = here.max(node.action.map(|action| Match {
                definite: spot.definite,
                rank: self.tries[usize::from(spot.trie)].rank,
                denies: action == Action::Deny,
            }));
            if !node.edges.is_empty() {
                spots.push(spot);
            }
        }
        Position { nodes: spots, best: here.or(above) }
    }

    fn node(&self, spot: &TrieNodeRef) -> &TrieNode<N, K, V> {
        &self.tries[usize::from(spot.trie)].trie.nodes[spot.node as usize]
    }
}

impl Position {
    /// Decision for the path up to here.
    pub fn action(&self) -> Action {
        match self.best {
            Some(Match { denies: false, .. }) => Action::Permit,
            Some(Match { denies: true, .. }) | None => Action::Deny,
        }
    }

    /// True when no rule is about any descendant, so that the decision here holds for the whole subtree.
    pub fn has_no_rule_below(&self) -> bool {
        self.nodes.is_empty()
    }
}

impl<N, K, V> Default for Trie<N, K, V> {
    fn default() -> Self {
        Self {
            nodes: vec![TrieNode::default()],
            permit_path_names: HashSet::new(),
            partial_permit_names: HashSet::new(),
        }
    }
}

impl<N, K, V> Default for TrieNode<N, K, V> {
    fn default() -> Self {
        Self { action: None, edges: HashMap::new() }
    }
}

impl<N, K, V> Trie<N, K, V>
where
    N: Clone + Eq + Hash,
    K: Clone + Ord,
    V: Clone + Eq + Hash,
{
    fn add(&mut self, path: Vec<Step<N, K, V>>, action: Action) {
        if action == Action::Permit {
            self.permit_path_names.extend(path.iter().map(|step| step.name.clone()));
            let some = path.iter().any(|step| !step.keys.is_empty());
            self.partial_permit_names
                .extend(path.last().filter(|_| some).map(|step| step.name.clone()));
        }
        let end = path.into_iter().fold(0, |at, step| self.child(at, step));
        let slot = &mut self.nodes[end].action;
        // Of two rules with equal path and principal, deny wins.
        *slot = Some(slot.map_or(action, |slot| slot.min(action)));
    }

    fn child(&mut self, at: usize, step: Step<N, K, V>) -> usize {
        let Step { name, mut keys } = step;
        keys.sort_by(|(one, _), (other, _)| one.cmp(other));
        let (keys, values): (Vec<K>, KeyValues<V>) = keys.into_iter().unzip();
        let fresh = self.nodes.len();
        let groups = self.nodes[at].edges.entry(name).or_default();
        let group = match groups.iter().position(|edges| edges.keys == keys) {
            Some(group) => group,
            None => {
                groups.push(EdgeGroup { keys, to: HashMap::new() });
                groups.len() - 1
            }
        };
        let number = u32::try_from(fresh).expect("a message cannot hold so many elements");
        let child = *groups[group].to.entry(values).or_insert(number) as usize;
        if child == fresh {
            self.nodes.push(TrieNode::default());
        }
        child
    }
}
