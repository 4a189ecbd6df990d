//! Questions about the text of XPath expressions, which libyang compiles and evaluates.

/// True when an expression has a path that begins at the root.
pub(super) fn has_absolute_path(xpath: &str) -> bool {
    let mut before = Before::Nothing;
    let mut rest = xpath;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '/' if before.is_operator() => return true,
            '"' | '\'' => rest[1..].find(c).map_or(rest.len(), |end| end + 2),
            c if is_name(c) => rest.find(|c| !is_name(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        before = before.followed_by(token);
        rest = after;
    }
    false
}

/// Steps that a path goes up from its leaf; `None` for one that does not begin with a step up.
pub(super) fn steps_up(path: &str) -> Option<usize> {
    let ups = path.split('/').map(str::trim).take_while(|step| *step == "..").count();
    (ups > 0).then_some(ups)
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// Token before the present one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// A name, a number, a text, or the end of a bracket: an operator or a step may follow.
    Operand,
    /// `/` or `::`, which a step follows.
    Step,
    Operator,
}

impl Before {
    fn is_operator(self) -> bool {
        matches!(self, Self::Nothing | Self::Operator)
    }

    fn followed_by(self, token: &str) -> Self {
        let after_operand = self == Self::Operand;
        match token {
            blank if blank.trim().is_empty() => self,
            "/" | ":" | "@" => Self::Step,
            // Names and `*` are operators behind an operand alone (XPath 1.0 section 3.7).
            "and" | "or" | "div" | "mod" | "*" | "-" if after_operand => Self::Operator,
            ")" | "]" | "*" => Self::Operand,
            token if token.starts_with(['"', '\'']) => Self::Operand,
            token if token.starts_with(is_name) && token != "-" => Self::Operand,
            _ => Self::Operator,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_from_the_root_are_found() {
        for (xpath, absolute) in [
            ("/a", true),
            ("//a", true),
            ("../a = '/b'", false),
            ("../a = /b", true),
            ("count(/a/b) > 1", true),
            ("count(../a/b) > 1", false),
            ("../a and /b", true),
            ("../and/b", false),
            ("../a * /b", true),
            ("../*/b", false),
            ("*/b", false),
            ("../a - /b", true),
            ("../a-b/c", false),
            (". = \"x / y\"", false),
            (".//a", false),
            ("current()/../a", false),
            ("a[b=1]/c", false),
            ("a[/b]", true),
            ("x:a/y:b", false),
            ("../a|/b", true),
            ("-/a", true),
            ("starts-with(., '/')", false),
            ("child::*/a", false),
        ] {
            assert_eq!(has_absolute_path(xpath), absolute, "{xpath}");
        }
    }

    #[test]
    fn steps_up_are_those_at_the_beginning() {
        for (path, ups) in [
            ("../a", Some(1)),
            ("../../a/../b", Some(2)),
            (" .. / .. / a", Some(2)),
            ("a", None),
            ("/a", None),
            ("deref(../a)/../b", None),
        ] {
            assert_eq!(steps_up(path), ups, "{path}");
        }
    }
}
