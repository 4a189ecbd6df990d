//! Differences of two values in words.

use serde::Serialize;
use serde_json::Value;

/// Longest text of one attribute in [`difference`], in characters: an MTU or an address, not a file.
const MAX_WORD: usize = 64;

/// Attributes of the requested value that the observed one has otherwise, as `mtu 1450 instead of 9000`. Attributes that
/// the request leaves open are not compared.
pub(crate) fn difference<V: Serialize>(expected: &V, observed: &V) -> String {
    let [expected, observed] = [expected, observed].map(serde_json::to_value);
    let (Ok(expected), Ok(observed)) = (expected, observed) else { return String::new() };
    let mut words = Vec::new();
    compare("value", &expected, &observed, &mut words);
    words.join(", ")
}

fn compare(name: &str, expected: &Value, observed: &Value, words: &mut Vec<String>) {
    match (expected, observed) {
        (Value::Null, _) => {}
        (expected, observed) if expected == observed => {}
        (Value::Object(expected), Value::Object(observed))
            if expected.keys().eq(observed.keys()) =>
        {
            for (name, expected) in expected {
                compare(name, expected, &observed[name], words);
            }
        }
        (expected, observed) => {
            let word = |value: &Value| {
                let text = match value {
                    Value::Null => "none".to_owned(),
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                match text.char_indices().nth(MAX_WORD) {
                    Some((end, _)) => format!("{}...", &text[..end]),
                    None => text,
                }
            };
            let name = name.replace('_', "-").to_ascii_lowercase();
            words.push(format!("{name} {} instead of {}", word(observed), word(expected)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::{DUMMY, Link, LinkKind};

    #[test]
    fn a_difference_names_attributes_and_both_values() {
        let expected = Link { mtu: Some(9000), ..Link::new("br0", LinkKind::from(&DUMMY)) };
        let observed = Link { mtu: Some(1450), description: Some("x".into()), ..expected.clone() };
        let words = difference(&expected, &observed);
        assert_eq!(words, "mtu 1450 instead of 9000");
        assert_eq!(difference(&expected, &expected), "");
    }
}
