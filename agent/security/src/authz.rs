//! Authorization of RPCs: policies in the form of gRFC A43.
//!
//! A policy is a JSON document with a name, `deny_rules` and `allow_rules`. [`Policy::parse`] refuses every field
//! that it does not know, so that no rule means less than its author thinks. [`Policy::decide`] asks the deny
//! rules first, then the allow rules, and denies a call that matches neither.
//!
//! Absent on purpose: audit logging (gRFC A59; accounting is a service of its own), and an empty policy. Without a
//! policy, every call is allowed.
//!
//! Source: gRFC A43 "gRPC authorization API", README of gnsi.authz.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Deserialize;

use crate::rotation::RotationRules;

mod pattern;

use pattern::Pattern;
pub use pattern::PatternError;

/// Headers that no rule may name: hop-by-hop headers, and those that the transport rewrites.
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A parsed and valid policy.
#[derive(Clone, Debug)]
pub struct Policy {
    name: String,
    deny: Vec<Rule>,
    allow: Vec<Rule>,
}

/// One rule: it matches what comes from one of `principals`, goes to one of `paths` and has all of `headers`.
/// An empty list matches everything.
#[derive(Clone, Debug)]
struct Rule {
    name: String,
    principals: Vec<Pattern>,
    paths: Vec<Pattern>,
    headers: Vec<Header>,
}

/// A header that must be present with one of these values.
#[derive(Clone, Debug)]
struct Header {
    /// In lower case.
    key: String,
    values: Vec<Pattern>,
}

/// A call as a policy sees it.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// All names of the peer; the empty name alone when the peer is not authenticated.
    pub principals: &'a [&'a str],
    /// `/package.Service/Method`.
    pub path: &'a str,
    /// Looks up the values of a header by its lower-case name, joined by commas; `None` when it is absent.
    pub header: &'a dyn Fn(&str) -> Option<String>,
}

/// Outcome for a call, with the rule that decided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<'p> {
    Allowed {
        rule: &'p str,
    },
    /// `None` when the call is denied only because no rule allows it.
    Denied {
        rule: Option<&'p str>,
    },
}

/// Reason for refusing a policy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    #[error("cannot read the policy as JSON of the expected form")]
    Json(#[source] serde_json::Error),
    #[error("the policy has no name")]
    Nameless,
    #[error("the policy has no `allow_rules`: it would allow nothing")]
    NothingAllowed,
    #[error("{list}[{index}] has no name")]
    NamelessRule { list: &'static str, index: usize },
    #[error("{list}[{index}] has the name `{name}` of an earlier rule")]
    NameTwice { list: &'static str, index: usize, name: String },
    #[error("{list}[{index}] `{name}`: {part} `{text}`")]
    Pattern {
        list: &'static str,
        index: usize,
        name: String,
        part: &'static str,
        text: String,
        source: PatternError,
    },
    #[error("{list}[{index}] `{name}`: header `{key}` {reason}")]
    Header { list: &'static str, index: usize, name: String, key: String, reason: &'static str },
}

impl Policy {
    /// Parses a policy.
    ///
    /// # Errors
    /// When the text is not JSON of that shape, has an unknown field, lacks a required one, or has a rule that can
    /// never match as its author intended.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let json: wire::Policy = serde_json::from_str(text).map_err(PolicyError::Json)?;
        if json.name.is_empty() {
            return Err(PolicyError::Nameless);
        }
        let deny = rules("deny_rules", json.deny_rules.unwrap_or_default())?;
        let allow = rules("allow_rules", json.allow_rules.unwrap_or_default())?;
        if allow.is_empty() {
            return Err(PolicyError::NothingAllowed);
        }
        Ok(Self { name: json.name, deny, allow })
    }

    /// A policy that allows nothing, used in place of a stored policy that can no longer be read.
    pub fn closed() -> Self {
        Self { name: "closed".to_owned(), deny: Vec::new(), allow: Vec::new() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Applies deny rules before allow rules; a call that no rule allows is denied.
    pub fn decide(&self, call: Call<'_>) -> Decision<'_> {
        let first = |rules: &'_ [Rule]| rules.iter().position(|rule| rule.matches(call));
        match (first(&self.deny), first(&self.allow)) {
            (Some(deny), _) => Decision::Denied { rule: Some(&self.deny[deny].name) },
            (None, Some(allow)) => Decision::Allowed { rule: &self.allow[allow].name },
            (None, None) => Decision::Denied { rule: None },
        }
    }
}

impl Decision<'_> {
    pub fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed { .. })
    }
}

impl Rule {
    fn matches(&self, call: Call<'_>) -> bool {
        let one_of = |patterns: &[Pattern], text: &str| {
            patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(text))
        };
        let source = self.principals.is_empty()
            || call.principals.iter().any(|principal| one_of(&self.principals, principal));
        source
            && one_of(&self.paths, call.path)
            && self.headers.iter().all(|header| {
                (call.header)(&header.key).is_some_and(|value| one_of(&header.values, &value))
            })
    }
}

fn rules(list: &'static str, rules: Vec<wire::Rule>) -> Result<Vec<Rule>, PolicyError> {
    let mut names = HashSet::new();
    let read = rules.into_iter().enumerate().map(|(index, rule)| {
        if rule.name.is_empty() {
            return Err(PolicyError::NamelessRule { list, index });
        }
        if !names.insert(rule.name.clone()) {
            return Err(PolicyError::NameTwice { list, index, name: rule.name });
        }
        RuleReader { list, index, name: &rule.name }.rule(&rule)
    });
    read.collect()
}

/// Position in the policy, for error messages.
struct RuleReader<'a> {
    list: &'static str,
    index: usize,
    name: &'a str,
}

impl RuleReader<'_> {
    fn rule(&self, rule: &wire::Rule) -> Result<Rule, PolicyError> {
        let principals = rule.source.as_ref().and_then(|source| source.principals.as_ref());
        let paths = rule.request.as_ref().and_then(|request| request.paths.as_ref());
        let headers = rule.request.as_ref().and_then(|request| request.headers.as_ref());
        let headers = headers.into_iter().flatten().map(|header| self.header(header));
        Ok(Rule {
            name: self.name.to_owned(),
            principals: self.patterns("principal", principals)?,
            paths: self.patterns("path", paths)?,
            headers: headers.collect::<Result<_, _>>()?,
        })
    }

    fn header(&self, header: &wire::Header) -> Result<Header, PolicyError> {
        let key = header.key.to_ascii_lowercase();
        let refused = |reason| {
            let list = self.list;
            let index = self.index;
            let name = self.name.to_owned();
            Err(PolicyError::Header { list, index, name, key: header.key.clone(), reason })
        };
        match key.as_str() {
            "" => return refused("has no key"),
            key if key.starts_with(':') => return refused("is one of HTTP/2's own"),
            key if key.starts_with("grpc-") => return refused("is one of gRPC's own"),
            key if HOP_BY_HOP.contains(&key) => return refused("is about one hop only"),
            key if key.ends_with("-bin") => return refused("has bytes and no text"),
            _ => {}
        }
        if header.values.is_empty() {
            return refused("has no values");
        }
        Ok(Header { key, values: self.patterns("header value", Some(&header.values))? })
    }

    fn patterns(
        &self,
        part: &'static str,
        texts: Option<&Vec<String>>,
    ) -> Result<Vec<Pattern>, PolicyError> {
        let read = texts.into_iter().flatten().map(|text| {
            Pattern::parse(text).map_err(|source| PolicyError::Pattern {
                list: self.list,
                index: self.index,
                name: self.name.to_owned(),
                part,
                text: text.clone(),
                source,
            })
        });
        read.collect()
    }
}

/// A policy with the metadata that its client supplied.
#[derive(Debug)]
pub struct InstalledPolicy {
    /// Version string of the client.
    pub version: String,
    /// Seconds since 1970 by convention; the client may send any number.
    pub created_on: u64,
    /// The document, byte for byte.
    pub text: String,
    pub policy: Policy,
}

/// A policy that was uploaded and not parsed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    pub version: String,
    pub created_on: u64,
    pub text: String,
}

impl Upload {
    /// # Errors
    /// When the document is not a policy.
    pub fn install(self) -> Result<InstalledPolicy, PolicyError> {
        let Self { version, created_on, text } = self;
        let policy = Policy::parse(&text)?;
        Ok(InstalledPolicy { version, created_on, text, policy })
    }
}

/// Rotation of the policy. There is one, and an upload replaces it as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuthzRules;

impl RotationRules for AuthzRules {
    /// `None` before the first policy.
    type State = Option<Arc<InstalledPolicy>>;
    type Upload = Upload;
    type Reply = ();
    type Refusal = PolicyError;

    fn version_in_use(&self, state: &Self::State, upload: &Upload) -> Option<String> {
        let version = state.as_ref().map(|installed| &installed.version)?;
        (*version == upload.version).then(|| version.clone())
    }

    fn apply(&self, _: &Self::State, upload: Upload) -> Result<(Self::State, ()), PolicyError> {
        Ok((Some(Arc::new(upload.install()?)), ()))
    }
}

/// The JSON document of gRFC A43.
mod wire {
    use super::Deserialize;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Policy {
        pub(super) name: String,
        pub(super) deny_rules: Option<Vec<Rule>>,
        pub(super) allow_rules: Option<Vec<Rule>>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Rule {
        pub(super) name: String,
        pub(super) source: Option<Source>,
        pub(super) request: Option<Request>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Source {
        pub(super) principals: Option<Vec<String>>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Request {
        pub(super) paths: Option<Vec<String>>,
        pub(super) headers: Option<Vec<Header>>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Header {
        pub(super) key: String,
        pub(super) values: Vec<String>,
    }
}

impl std::fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call")
            .field("principals", &self.principals)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
