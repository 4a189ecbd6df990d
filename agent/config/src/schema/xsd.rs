//! Conversion of XML Schema regular expressions, which YANG uses, to the syntax of the `regex` crate.

use regex::Regex;

/// Compiles a YANG `pattern`, which is implicitly anchored, and in which `^` and `$` are ordinary characters.
pub(super) fn compile(xsd: &str) -> Result<Regex, regex::Error> {
    Regex::new(&format!(r"\A(?:{})\z", translate(xsd)))
}

fn translate(xsd: &str) -> String {
    let mut out = String::with_capacity(xsd.len() + 8);
    let mut chars = xsd.chars().peekable();
    let mut in_class = false;
    let mut class_start = false;
    while let Some(c) = chars.next() {
        let first = std::mem::take(&mut class_start);
        match c {
            '\\' => {
                out.push('\\');
                out.extend(chars.next());
            }
            '[' if !in_class => {
                in_class = true;
                class_start = true;
                out.push('[');
            }
            '^' if in_class && first => {
                class_start = true;
                out.push('^');
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            // Operators within classes of `regex`, plain characters in XSD.
            '[' | '&' | '~' if in_class => out.extend(['\\', c]),
            '^' | '$' if !in_class => out.extend(['\\', c]),
            '.' if !in_class => out.push_str(r"[^\n\r]"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xsd_patterns_are_anchored_and_have_their_own_special_characters() {
        check("a|b", &["a", "b"], &["ab", "xa", "a\n", ""]);
        check("a$", &["a$"], &["a"]);
        check("^a", &["^a"], &["a"]);
        check("[^a]", &["b", "^"], &["a"]);
        check("[a&&b~[-]+", &["&", "~[-", "ab"], &["c"]);
        check(r"[a\]^]+", &["]", "^a"], &["b"]);
        check(".", &["x", "\u{e9}"], &["\n", "\r", "xx"]);
        check(r"\p{N}+", &["12"], &["a"]);
    }

    #[track_caller]
    fn check(xsd: &str, fit: &[&str], unfit: &[&str]) {
        let regex = compile(xsd).unwrap();
        for (texts, want) in [(fit, true), (unfit, false)] {
            for text in texts {
                assert_eq!(regex.is_match(text), want, "{xsd} on {text:?}");
            }
        }
    }
}
