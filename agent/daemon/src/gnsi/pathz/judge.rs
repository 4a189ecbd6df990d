//! A policy made ready: its paths looked up in the models, so that data is judged by nodes and not by text.

use std::sync::Arc;

use holdfast_config::cli;
use holdfast_config::schema::{NodeKind, Origin, Schema};
use holdfast_config::{Elem, Models, Path, PathError, Pattern, PatternStep, Value};
use holdfast_security::pathz::{self, Action, Entry, Mode, NodeRules, Policy, Rules, Step};
use smol_str::SmolStr;

use super::counters::Counters;
use super::rights::Rights;

/// What a rule can be about on this box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    OpenConfig,
    Native,
    /// Text of the command line. Its paths are those of the native model.
    Text,
}

impl Scope {
    /// By the origin of a path; none for one that this agent does not have.
    pub fn of(origin: &str) -> Option<Self> {
        match Origin::parse(origin) {
            Some(origin) => Some(origin.into()),
            None if cli::ORIGINS.contains(&origin) => Some(Self::Text),
            None => None,
        }
    }

    /// The one name that rules and questions have for it.
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

/// A rule whose path contradicts the models. One that they do not have is another matter: a policy is for many boxes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule `{id}` can never be met")]
pub struct Misfit {
    pub id: SmolStr,
    pub source: PathError,
}

/// A policy that can be asked.
#[derive(Debug)]
pub struct Judge {
    models: Arc<Models>,
    policy: Policy,
    texts: Rules<SmolStr, SmolStr, SmolStr>,
    scopes: [NodeRules; 3],
}

/// A path of a rule or a question, in the words of the models as far as they have it.
struct Known {
    text: pathz::Path,
    nodes: Option<(Scope, Pattern)>,
}

impl Judge {
    /// Looks the paths of all rules up.
    ///
    /// # Errors
    /// When one has keys that its node does not have, or values that they cannot have: it was meant for something else.
    pub fn new(models: Arc<Models>, policy: Policy) -> Result<Self, Misfit> {
        let mut texts = Vec::new();
        let mut scopes = [Vec::new(), Vec::new(), Vec::new()];
        for rule in policy.rules() {
            let known = Known::of(&models, &rule.path)
                .map_err(|source| Misfit { id: rule.id.clone(), source })?;
            let (mode, principal, action) = (rule.mode, rule.principal.clone(), rule.action);
            let path = known.text.steps().collect();
            texts.push(Entry { mode, principal: principal.clone(), action, path });
            if let Some((scope, pattern)) = known.nodes {
                let path = pattern.0.iter().map(node_step).collect();
                scopes[scope as usize].push(Entry { mode, principal, action, path });
            }
        }
        let (texts, scopes) = (Rules::new(texts), scopes.map(Rules::new));
        Ok(Self { models, policy, texts, scopes })
    }

    /// A policy without rules: nothing is permitted.
    pub(super) fn closed(models: &Arc<Models>) -> Self {
        let (texts, scopes) = (Rules::new([]), [(); 3].map(|()| Rules::new([])));
        Self { models: Arc::clone(models), policy: Policy::default(), texts, scopes }
    }

    /// What one user may read and write. Answers are counted.
    pub(crate) fn rights(&self, user: &str, counters: &Arc<Counters>) -> Rights {
        let principals = self.policy.principals(user);
        let view =
            |scope: Scope, mode| Arc::new(self.scopes[scope as usize].view(mode, &principals));
        let views = |mode| [Scope::OpenConfig, Scope::Native, Scope::Text].map(|it| view(it, mode));
        Rights::new(views(Mode::Read), views(Mode::Write), Arc::clone(counters))
    }

    /// What the policy says of one path, which may leave keys open. Names that are left open count from there on for
    /// nothing: what is said above them holds.
    ///
    /// # Errors
    /// When the path contradicts the models.
    pub fn decide(&self, user: &str, mode: Mode, path: &pathz::Path) -> Result<Action, PathError> {
        let known = Known::of(&self.models, path)?;
        Ok(self.policy.decide(&self.texts, user, mode, &known.text))
    }
}

impl Known {
    fn of(models: &Models, path: &pathz::Path) -> Result<Self, PathError> {
        let literal = in_words(path);
        let Some(scope) = Scope::of(&path.origin) else {
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
}

/// The elements before the first one whose name is left open.
fn in_words(path: &pathz::Path) -> Path {
    let elem = |elem: &pathz::Elem| Elem {
        name: elem.name.to_string(),
        keys: elem.keys.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
    };
    let mut path = Path { elems: path.elems.iter().map(elem).collect() };
    path.elems.truncate(path.literal_len());
    path
}

/// A path that the models do not have, without the modules in its names.
fn bare(origin: SmolStr, path: &Path) -> pathz::Path {
    let name = |name: &str| SmolStr::from(name.rsplit_once(':').map_or(name, |(_, bare)| bare));
    let elem = |elem: &Elem| pathz::Elem {
        name: name(&elem.name),
        keys: elem.keys.iter().map(|(key, value)| (name(key), value.into())).collect(),
    };
    pathz::Path { origin, elems: path.elems.iter().map(elem).collect() }
}

/// A step in the words of the schema, with the keys that take one value.
fn elem(schema: &Schema, step: &PatternStep) -> pathz::Elem {
    let node = schema.node(step.node);
    let mut elem = pathz::Elem { name: node.name.clone(), keys: Vec::new() };
    if let (NodeKind::List { keys }, Some(pattern)) = (&node.kind, &step.keys) {
        let given = keys.iter().zip(&pattern.0);
        let definite = given.filter_map(|(key, value)| Some((key, value.as_ref()?)));
        let word = |value: &Value| SmolStr::from(value.to_string());
        elem.keys =
            definite.map(|(key, value)| (schema.node(*key).name.clone(), word(value))).collect();
    }
    elem
}

fn node_step(step: &PatternStep) -> Step<holdfast_config::NodeId, usize, Value> {
    let keys = step.keys.iter().flat_map(|keys| keys.0.iter().enumerate());
    let definite = keys.filter_map(|(place, value)| Some((place, value.clone()?)));
    Step { name: step.node, keys: definite.collect() }
}
