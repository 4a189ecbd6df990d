//! Removal of secret values from requests before they are recorded.
//!
//! Deny by default: a value is withheld when its name sounds like a secret, and when it cannot be read well enough to
//! tell.

use holdfast_config::reserved;
use serde_json::Value;

/// Replacement for a secret value.
pub const WITHHELD: &str = "(withheld)";

/// Words in the names of fields, leaves and members that hold secrets.
const SECRET_WORDS: [&str; 13] = [
    "cleartext",
    "community",
    "credential",
    "credentials",
    "hashed",
    "passphrase",
    "passwd",
    "password",
    "passwords",
    "private",
    "psk",
    "secret",
    "secrets",
];

/// True for the name of a field, leaf or member with a secret value. A module prefix is ignored. The leaves that
/// credentialz reserves count as secret whatever their names are.
pub fn is_secret(name: &str) -> bool {
    let name = name.rsplit(':').next().unwrap_or(name).to_ascii_lowercase();
    let names = reserved::RESERVED_ITEMS.iter().filter_map(|row| row.openconfig.rsplit('/').next());
    names.into_iter().any(|leaf| leaf == name)
        || name.split(['-', '_', '.']).any(|word| SECRET_WORDS.contains(&word))
}

/// Removes the values of secret members from a JSON document, also within documents and CLI text that are strings of it.
/// `None` when the document cannot be parsed.
pub fn json(document: &[u8]) -> Option<Vec<u8>> {
    let mut value = serde_json::from_slice(document).ok()?;
    withhold(&mut value);
    serde_json::to_vec(&value).ok()
}

fn withhold(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(withhold),
        Value::Object(members) => {
            for (name, value) in members {
                if is_secret(name) {
                    *value = Value::String(WITHHELD.to_owned());
                } else {
                    withhold(value);
                }
            }
        }
        Value::String(words) => *words = within_string(words),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A string without the secrets of the document or text that it may be. A string that begins as a document and is none is
/// withheld.
fn within_string(words: &str) -> String {
    if words.trim_start().starts_with(['{', '[']) {
        let document = json(words.as_bytes()).and_then(|json| String::from_utf8(json).ok());
        return document.unwrap_or_else(|| WITHHELD.to_owned());
    }
    if words.contains('\n') { text(words) } else { words.to_owned() }
}

/// Removes from CLI text whatever follows a secret name, on its line and on the lines below it in the hierarchy.
pub fn text(lines: &str) -> String {
    let mut kept_lines = String::with_capacity(lines.len());
    let mut below = None;
    for line in lines.split_inclusive('\n') {
        let indent = line.len() - line.trim_start().len();
        let blank = line.trim().is_empty();
        if below.is_some_and(|secret| blank || indent > secret) {
            continue;
        }
        below = None;
        match end_of_secret_name(line) {
            None => kept_lines.push_str(line),
            Some(end) => {
                below = Some(indent);
                kept_lines.push_str(&line[..end]);
                kept_lines.push(' ');
                kept_lines.push_str(WITHHELD);
                kept_lines.push('\n');
            }
        }
    }
    kept_lines
}

/// Removes from a message, such as an error that may repeat its input, everything after the name of a secret.
pub fn message(words: &str) -> String {
    let line = words.replace(['\n', '\r'], " "); // text after a line end belongs to the secret as well
    text(&line).trim_end().to_owned()
}

/// Position after the first word that is a secret name.
fn end_of_secret_name(line: &str) -> Option<usize> {
    let words = line.split(|letter: char| !letter.is_alphanumeric() && !"-_:.".contains(letter));
    let secret = words.into_iter().find(|word| is_secret(word))?;
    let start = secret.as_ptr() as usize - line.as_ptr() as usize;
    Some(start + secret.len())
}

/// True for a text that may carry a user name and password within a URL, as in `sftp://user:word@host/file`.
pub fn may_carry_password(text: &str, whole: bool) -> bool {
    text.contains("://") && (!whole || text.contains('@'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secret_names_are_recognised() {
        for (name, secret) in [
            ("password", true),
            ("openconfig-system:password-hashed", true),
            ("ssh-key", true),
            ("boot_password_hash", true),
            ("private_key", true),
            ("Secret", true),
            ("hostname", false),
            ("key", false),
            ("passwordless", false),
            ("", false),
        ] {
            assert_eq!(is_secret(name), secret, "{name}");
        }
    }

    // proves 5.101
    #[test]
    fn secrets_in_json_are_withheld() {
        for (document, want) in [
            (r#"{"a":1,"oc:password":"x"}"#, Some(r#"{"a":1,"oc:password":"(withheld)"}"#)),
            (r#"[{"secrets":{"a":["x"]}}]"#, Some(r#"[{"secrets":"(withheld)"}]"#)),
            (r#"{"passw\u006frd":"x"}"#, Some(r#"{"password":"(withheld)"}"#)),
            (r#""plain""#, Some(r#""plain""#)),
            (
                r#"{"text":"{\"password\":\"x\"}"}"#,
                Some(r#"{"text":"{\"password\":\"(withheld)\"}"}"#),
            ),
            (r#"{"text":"{\"password\":\"x\""}"#, Some(r#"{"text":"(withheld)"}"#)),
            (
                r#"{"text":"mtu 1\npassword x\n"}"#,
                Some(r#"{"text":"mtu 1\npassword (withheld)\n"}"#),
            ),
            (r#"{"password":"x"#, None),
            ("", None),
        ] {
            let got = json(document.as_bytes()).map(|it| String::from_utf8(it).unwrap());
            assert_eq!(got.as_deref(), want, "{document}");
        }
    }

    // proves 5.101
    #[test]
    fn cli_text_is_cut_after_a_secret_name() {
        for (lines, want) in [
            ("system hostname edge\n", "system hostname edge\n"),
            ("user ada password hunter2\nmtu 1400", "user ada password (withheld)\nmtu 1400"),
            (
                "user ada\n  password\n    x\n\n    y\n  role admin\n",
                "user ada\n  password (withheld)\n  role admin\n",
            ),
            ("a \"password\" \"x y\"", "a \"password (withheld)\n"),
            ("secret=x", "secret (withheld)\n"),
        ] {
            assert_eq!(text(lines), want);
        }
    }

    #[test]
    fn an_error_repeats_no_secret() {
        for (words, want) in [
            (
                "line 1: `system hostnam x`: no such word",
                "line 1: `system hostnam x`: no such word",
            ),
            (
                "line 1: `system user op password X`: no such word",
                "line 1: `system user op password (withheld)",
            ),
            ("`/a/password`: `X\nY` is not a value", "`/a/password (withheld)"),
        ] {
            assert_eq!(message(words), want);
        }
    }

    #[test]
    fn an_address_may_carry_a_password() {
        for (text, whole, want) in [
            ("sftp://me:x@host/file", true, true),
            ("https://host/file", true, false),
            ("sftp://me:x", false, true),
            ("me@host", true, false),
        ] {
            assert_eq!(may_carry_password(text, whole), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_document_leaks_a_secret(word in "[a-z]{12}", depth in 0..5_usize, name in "(oc:)?(password|ssh-key|my-secret)") {
            let inner = format!(r#"{{"{name}":["{word}",{{"a":"{word}"}}],"b":2}}"#);
            let document = (0..depth).fold(inner, |inner, _| format!(r#"{{"a":[{inner}]}}"#));
            let printed = String::from_utf8(json(document.as_bytes()).unwrap()).unwrap();
            prop_assert!(!printed.contains(&word), "{}", printed);
            let line = format!("{}{name} {word}\n{}{word}\n", " ".repeat(depth), " ".repeat(depth + 1));
            prop_assert!(!text(&line).contains(&word));
        }

        #[test]
        fn withholding_never_panics(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            json(&octets);
            text(&String::from_utf8_lossy(&octets));
        }
    }
}
