//! Authentication policies: which authority may sign for which subject.
//!
//! gNSI leaves the form of such a policy to the device. Ours is a list of rules, each with subjects and
//! authorities. A certificate is accepted when some rule has both one of its subjects and one of the authorities
//! on its path. A subject that no rule names is refused.

use std::sync::Arc;

use aws_lc_rs::digest;
use smol_str::SmolStr;
use webpki::VerifiedPath;
use x509_parser::extensions::GeneralName;

use super::{CertzError, material};

/// Rules of one policy, and entries of one rule: bounds on the work of one verification.
const MAX_RULES: usize = 4096;
const MAX_ENTRIES: usize = 4096;
/// Hexadecimal digits of a SHA-256 digest.
const DIGEST_DIGITS: usize = 64;

/// Rules of an authentication policy. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticationPolicy(Arc<[Rule]>);

/// Subjects, and the authorities that may sign for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Label for people and error messages; not empty, and unique in the policy.
    pub name: SmolStr,
    /// URI or DNS names of a certificate, or its common name; a `*` at the end matches any suffix.
    pub subjects: Vec<SmolStr>,
    /// SHA-256 of the SubjectPublicKeyInfo of an authority, root or intermediate, in hexadecimal digits.
    pub authorities: Vec<SmolStr>,
}

impl AuthenticationPolicy {
    /// Checks the rules, and converts the digits of digests to lower case.
    ///
    /// # Errors
    /// When there is no rule, a name is missing or repeated, or an entry is malformed.
    pub fn new(what: &str, mut rules: Vec<Rule>) -> Result<Self, CertzError> {
        let refused = |reason: String| CertzError::invalid(what, reason);
        if rules.is_empty() || rules.len() > MAX_RULES {
            return Err(refused(format!(
                "a policy has 1 to {MAX_RULES} rules, not {}",
                rules.len()
            )));
        }
        let mut names = std::collections::BTreeSet::new();
        for rule in &mut rules {
            let name = rule.name.clone();
            let at = |reason: &str| refused(format!("rule `{name}`: {reason}"));
            if name.is_empty() || !names.insert(name.clone()) {
                return Err(at("each rule needs a name of its own"));
            }
            let counts = [rule.subjects.len(), rule.authorities.len()];
            if counts.iter().any(|count| !(1..=MAX_ENTRIES).contains(count)) {
                return Err(at("the rule needs 1 to 4096 subjects and as many authorities"));
            }
            if !rule.subjects.iter().all(|subject| is_pattern(subject)) {
                return Err(at("a subject is a name, with `*` nowhere but at its end"));
            }
            for authority in &mut rule.authorities {
                *authority = authority.to_ascii_lowercase().into();
                let digits = authority.chars().all(|digit| digit.is_ascii_hexdigit());
                if authority.len() != DIGEST_DIGITS || !digits {
                    return Err(at(
                        "an authority is the SHA-256 of its key, in 64 hexadecimal digits",
                    ));
                }
            }
        }
        Ok(Self(rules.into()))
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub fn rules(&self) -> &[Rule] {
        &self.0
    }

    /// Stored form: one line per rule with its name, subjects and authorities.
    pub fn stored(&self) -> String {
        let line = |rule: &Rule| {
            let subjects: Vec<_> = rule.subjects.iter().map(|subject| escaped(subject)).collect();
            let name = escaped(&rule.name);
            let authorities = rule.authorities.join(" ");
            format!("{name}\t{}\t{authorities}\n", subjects.join(" "))
        };
        self.0.iter().map(line).collect()
    }

    /// Restores a policy from the output of [`Self::stored`].
    ///
    /// # Errors
    /// When the text has another form.
    pub fn from_stored(what: &str, text: &str) -> Result<Self, CertzError> {
        let rule = |line: &str| {
            let mut fields = line.split('\t');
            let name = unescaped(fields.next()?)?;
            let subjects = fields.next()?;
            let authorities = fields.next()?.split(' ').map(SmolStr::new).collect();
            let subjects = subjects.split(' ').map(unescaped).collect::<Option<_>>()?;
            Some(Rule { name, subjects, authorities })
        };
        let rules: Option<Vec<_>> = text.lines().map(rule).collect();
        let torn = || CertzError::internal(what, "the stored policy cannot be read");
        Self::new(what, rules.ok_or_else(torn)?)
    }

    /// True when an authority on this path may sign for the subject of its leaf.
    pub(super) fn permits(&self, path: &VerifiedPath<'_>) -> bool {
        let subjects = subjects(path);
        let anchor = sequence(path.anchor().subject_public_key_info.as_ref());
        let mut authorities = vec![digest_of(&anchor)];
        authorities.extend(
            path.intermediate_certificates()
                .map(|intermediate| digest_of(intermediate.subject_public_key_info().as_ref())),
        );
        self.0.iter().any(|rule| {
            rule.authorities.iter().any(|authority| authorities.iter().any(|has| has == authority))
                && rule.subjects.iter().any(|rule| subjects.iter().any(|name| is_match(rule, name)))
        })
    }
}

/// Names of a certificate that a rule can match.
fn subjects(path: &VerifiedPath<'_>) -> Vec<String> {
    let der = path.end_entity().der();
    let Ok(leaf) = material::parse(&der) else { return Vec::new() };
    let mut names: Vec<String> = Vec::new();
    if let Ok(Some(extension)) = leaf.subject_alternative_name() {
        names.extend(extension.value.general_names.iter().filter_map(|name| match name {
            GeneralName::URI(name) | GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        }));
    }
    let common = leaf.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    names.extend(common.map(str::to_owned));
    names
}

fn is_match(rule: &str, name: &str) -> bool {
    match rule.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => rule == name,
    }
}

fn is_pattern(subject: &str) -> bool {
    let fixed = subject.strip_suffix('*').unwrap_or(subject);
    !subject.is_empty() && !fixed.contains('*') && !subject.chars().any(char::is_control)
}

fn digest_of(key: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, key);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Wraps content in a DER SEQUENCE header (X.690 8.9), which webpki strips from the key of an anchor.
fn sequence(content: &[u8]) -> Vec<u8> {
    const SEQUENCE: u8 = 0x30;
    const SHORT: usize = 0x80;
    let length = content.len().to_be_bytes();
    let length = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut der = vec![SEQUENCE];
    if content.len() >= SHORT {
        der.push(0x80 | u8::try_from(length.len()).expect("at most the bytes of a usize"));
    }
    der.extend(if content.is_empty() { &[0] } else { length });
    der.extend(content);
    der
}

/// Escapes a name so that it has no blanks: `%` and two digits encode a byte, as in URIs.
fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte > b' ' && byte != b'%' && byte != 0x7f;
    let octets: Vec<u8> = name
        .bytes()
        .flat_map(|byte| if plain(byte) { vec![byte] } else { format!("%{byte:02x}").into_bytes() })
        .collect();
    String::from_utf8(octets).expect("only ASCII was replaced, by ASCII")
}

fn unescaped(text: &str) -> Option<SmolStr> {
    let mut octets = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if *first != b'%' {
            octets.push(*first);
            rest = after;
            continue;
        }
        let digits = std::str::from_utf8(after.get(..2)?).ok()?;
        octets.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &after[2..];
    }
    String::from_utf8(octets).ok().map(SmolStr::from)
}
