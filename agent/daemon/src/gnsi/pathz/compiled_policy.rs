//! A policy compiled for the models: its paths are resolved to schema nodes, so that data is checked by nodes
//! instead of text.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use holdfast_config::schema::{NodeKind, Origin, Schema};
use holdfast_config::{
    Elem, Models, NodeId, Path, PathError, PathPattern, PatternStep, Value, cli,
};
use holdfast_security::pathz::nodes::NodeView;
use holdfast_security::pathz::{
    self, Action, CompiledRules, Mode, NodeRules, Policy, Rule, RuleEntry, Step,
};
use smol_str::SmolStr;
use tracing::warn;

use super::counters::{SchemaPaths, schema_paths};

/// Origin that a rule can be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    OpenConfig,
    Native,
    /// CLI text, whose paths are those of the native model.
    Text,
}

impl Scope {
    /// Looks up the origin of a path; `None` for one that this agent lacks.
    pub fn of(models: &Models, origin: &str) -> Option<Self> {
        match models.origin(origin) {
            Some(origin) => Some(origin.into()),
            None if cli::ORIGINS.contains(&origin) => Some(Self::Text),
            None => None,
        }
    }

    /// Canonical name, for rules and questions.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenConfig => Origin::OpenConfig.as_str(),
            Self::Native => Origin::Native.as_str(),
            Self::Text => cli::ORIGINS[0],
        }
    }

    fn model(self) -> Origin {
        match self {
            Self::OpenConfig => Origin::OpenConfig,
            Self::Native | Self::Text => Origin::Native,
        }
    }
}

impl From<Origin> for Scope {
    fn from(origin: Origin) -> Self {
        match origin {
            Origin::OpenConfig => Self::OpenConfig,
            Origin::Native => Self::Native,
        }
    }
}

/// A rule whose path contradicts the models. Paths that the models lack are permitted, because a policy may be for
/// many kinds of boxes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule `{id}` can never be met")]
pub struct RulePathError {
    pub id: SmolStr,
    pub source: PathError,
}

/// A policy compiled for one version of the models. It judges data of that version and of earlier ones.
#[derive(Debug)]
pub struct CompiledPolicy {
    models: Arc<Models>,
    policy: Arc<Policy>,
    texts: CompiledRules<SmolStr, SmolStr, SmolStr>,
    scopes: [NodeRules; 3],
    names: OnceLock<SchemaPaths>,
}

/// Path of a rule or a question, in canonical form as far as the models have it.
struct ResolvedPath {
    text: pathz::Path,
    nodes: Option<(Scope, PathPattern)>,
}

impl CompiledPolicy {
    /// Resolves the paths of all rules.
    ///
    /// # Errors
    /// When a path has keys that its node lacks, or invalid key values, so that the rule can never apply.
    pub fn new(models: Arc<Models>, policy: Policy) -> Result<Self, RulePathError> {
        let resolve = |rule: &Rule| {
            let resolved = ResolvedPath::of(&models, &rule.path);
            resolved.map(Some).map_err(|source| RulePathError { id: rule.id.clone(), source })
        };
        Self::with_paths(Arc::clone(&models), Arc::new(policy), resolve)
    }

    /// Compiles a policy that was accepted with other models. A rule can contradict nodes that came later. It permits
    /// nothing then; one that denies is widened, see [`ResolvedPath::widened`].
    pub(super) fn accepted(models: &Arc<Models>, policy: Arc<Policy>) -> Self {
        let resolve = |rule: &Rule| {
            let resolved = ResolvedPath::of(models, &rule.path).or_else(|error| {
                warn!(rule = %rule.id, %error, "the models have changed: a pathz rule cannot be met any more");
                match rule.action {
                    Action::Permit => Err(error),
                    Action::Deny => ResolvedPath::widened(models, &rule.path),
                }
            });
            Ok::<_, Infallible>(resolved.ok())
        };
        let Ok(compiled) = Self::with_paths(Arc::clone(models), policy, resolve);
        compiled
    }

    /// Compiles the policy for other models.
    pub(super) fn for_models(&self, models: &Arc<Models>) -> Self {
        Self::accepted(models, Arc::clone(&self.policy))
    }

    /// Compiles the rules that `resolve` finds a path for.
    fn with_paths<E>(
        models: Arc<Models>,
        policy: Arc<Policy>,
        resolve: impl Fn(&Rule) -> Result<Option<ResolvedPath>, E>,
    ) -> Result<Self, E> {
        let mut texts = Vec::new();
        let mut scopes = [Vec::new(), Vec::new(), Vec::new()];
        for rule in policy.rules() {
            let Some(resolved) = resolve(rule)? else { continue };
            let mode = rule.mode;
            let principal = rule.principal.clone();
            let action = rule.action;
            let path = resolved.text.steps().collect();
            texts.push(RuleEntry { mode, principal: principal.clone(), action, path });
            if let Some((scope, pattern)) = resolved.nodes {
                let path = pattern.0.iter().map(node_step).collect();
                scopes[scope as usize].push(RuleEntry { mode, principal, action, path });
            }
        }
        let texts = CompiledRules::new(texts);
        let scopes = scopes.map(CompiledRules::new);
        Ok(Self { models, policy, texts, scopes, names: OnceLock::new() })
    }

    /// A policy without rules, which permits nothing.
    pub(super) fn closed(models: &Arc<Models>) -> Self {
        let texts = CompiledRules::new([]);
        let scopes = [(); 3].map(|()| CompiledRules::new([]));
        let models = Arc::clone(models);
        let policy = Arc::new(Policy::default());
        Self { models, policy, texts, scopes, names: OnceLock::new() }
    }

    pub(super) fn models(&self) -> &Arc<Models> {
        &self.models
    }

    /// Rules for one user in one mode, by scope.
    pub(super) fn views(&self, user: &str, mode: Mode) -> [Arc<NodeView>; 3] {
        let principals = self.policy.principals(user);
        [Scope::OpenConfig, Scope::Native, Scope::Text]
            .map(|scope| Arc::new(self.scopes[scope as usize].view(mode, &principals)))
    }

    /// Schema path such as `/interfaces/interface`; origins other than OpenConfig are prefixed by their name.
    pub(super) fn schema_path(&self, scope: Scope, node: NodeId) -> SmolStr {
        let names = self
            .names
            .get_or_init(|| [&self.models.openconfig, &self.models.native].map(schema_paths));
        let names = &names[usize::from(scope != Scope::OpenConfig)];
        let path = names.get(node.0 as usize).cloned().unwrap_or_default();
        match scope {
            Scope::OpenConfig => path,
            Scope::Native | Scope::Text => format!("{}:{path}", scope.name()).into(),
        }
    }

    /// Decides about one path, which may leave keys open. From the first open name on, the path is ignored: the
    /// decision for its parent applies.
    ///
    /// # Errors
    /// When the path contradicts the models.
    pub fn decide(&self, user: &str, mode: Mode, path: &pathz::Path) -> Result<Action, PathError> {
        let resolved = ResolvedPath::of(&self.models, path)?;
        Ok(self.policy.decide(&self.texts, user, mode, &resolved.text))
    }
}

impl ResolvedPath {
    fn of(models: &Models, path: &pathz::Path) -> Result<Self, PathError> {
        let literal = literal_prefix(path);
        let Some(scope) = Scope::of(models, &path.origin) else {
            return Ok(Self { text: bare(path.origin.clone(), &literal), nodes: None });
        };
        let schema = models.schema(scope.model());
        let origin = SmolStr::from(scope.name());
        match schema.resolve_read(&literal) {
            Ok(mut patterns) => {
                let pattern = patterns.pop().unwrap_or_default();
                let elems = pattern.0.iter().map(|step| elem(schema, step)).collect();
                let text = pathz::Path { origin, elems };
                Ok(Self { text, nodes: Some((scope, pattern)) })
            }
            Err(PathError::Unknown { .. }) => {
                Ok(Self { text: bare(origin, &literal), nodes: None })
            }
            Err(error) => Err(error),
        }
    }

    /// A path that contradicts the models, with keys left out from its end on until it does not: a rule that denies
    /// denies all that it can have meant, and more.
    fn widened(models: &Models, path: &pathz::Path) -> Result<Self, PathError> {
        let mut path = path.clone();
        let mut resolved = Self::of(models, &path);
        for at in (0..path.elems.len()).rev() {
            if resolved.is_ok() {
                break;
            }
            path.elems[at].keys.clear();
            resolved = Self::of(models, &path);
        }
        resolved
    }
}

/// The elements before the first open name.
fn literal_prefix(path: &pathz::Path) -> Path {
    let elem = |elem: &pathz::Elem| Elem {
        name: elem.name.to_string(),
        keys: elem.keys.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
    };
    let mut path = Path { elems: path.elems.iter().map(elem).collect() };
    path.elems.truncate(path.literal_len());
    path
}

/// A path that the models lack, without the modules of its names.
fn bare(origin: SmolStr, path: &Path) -> pathz::Path {
    let name = |name: &str| SmolStr::from(name.rsplit_once(':').map_or(name, |(_, bare)| bare));
    let elem = |elem: &Elem| pathz::Elem {
        name: name(&elem.name),
        keys: elem.keys.iter().map(|(key, value)| (name(key), value.into())).collect(),
    };
    pathz::Path { origin, elems: path.elems.iter().map(elem).collect() }
}

/// A step with the schema's names, and with its single-valued keys.
fn elem(schema: &Schema, step: &PatternStep) -> pathz::Elem {
    let node = schema.node(step.node);
    let mut elem = pathz::Elem { name: node.name.clone(), keys: Vec::new() };
    if let (NodeKind::List { keys }, Some(pattern)) = (&node.kind, &step.keys) {
        let key_patterns = keys.iter().zip(&pattern.0);
        let definite = key_patterns.filter_map(|(key, value)| Some((key, value.as_ref()?)));
        let word = |value: &Value| SmolStr::from(value.to_string());
        elem.keys =
            definite.map(|(key, value)| (schema.node(*key).name.clone(), word(value))).collect();
    }
    elem
}

fn node_step(step: &PatternStep) -> Step<NodeId, usize, Value> {
    let keys = step.keys.iter().flat_map(|keys| keys.0.iter().enumerate());
    let definite = keys.filter_map(|(place, value)| Some((place, value.clone()?)));
    Step { name: step.node, keys: definite.collect() }
}
