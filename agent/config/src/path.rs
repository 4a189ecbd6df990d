//! Paths as people and clients write them: names and keys as text, not yet looked up in a schema.
//!
//! [`crate::resolve`] converts them to schema nodes.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use crate::limits::{ELEMENT_KEYS, LimitExceeded, PATH_DEPTH_WILDCARDS, PATH_ELEMENTS, excerpt};

/// Wildcard for any one name.
pub const ANY: &str = "*";
/// Wildcard for any names on any number of levels, including none.
pub const ANY_DEPTH: &str = "...";

/// A path from the root, as a client sends it. Empty for the root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path {
    pub elems: Vec<Elem>,
}

/// One element: a name, with or without its module (`openconfig-interfaces:mtu`), and key values as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Elem {
    pub name: String,
    pub keys: Vec<(String, String)>,
}

/// Error of the path parser.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read path `{text}`: {reason}")]
pub struct PathSyntaxError {
    pub text: String,
    pub reason: &'static str,
}

impl Elem {
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), keys: Vec::new() }
    }

    /// Adds a key.
    #[must_use]
    pub fn key(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.keys.push((name.into(), value.into()));
        self
    }

    /// Module and name proper.
    pub fn split_name(&self) -> (Option<&str>, &str) {
        match self.name.split_once(':') {
            Some((module, name)) => (Some(module), name),
            None => (None, &self.name),
        }
    }
}

impl Path {
    pub fn root() -> Self {
        Self::default()
    }

    /// Number of elements before the first wildcard name (`*`, `...`).
    pub fn literal_len(&self) -> usize {
        let open = |elem: &Elem| elem.name == ANY || elem.name == ANY_DEPTH;
        self.elems.iter().position(open).unwrap_or(self.elems.len())
    }

    /// Appends another path, such as a path to its gNMI prefix.
    #[must_use]
    pub fn join(&self, below: &Path) -> Self {
        Self { elems: self.elems.iter().chain(&below.elems).cloned().collect() }
    }

    /// The first `count` elements, for messages about one of them.
    pub(crate) fn head(&self, count: usize) -> String {
        excerpt(&Elems(&self.elems[..count.min(self.elems.len())]))
    }

    /// Refuses a path that is too large to be meaningful.
    ///
    /// # Errors
    /// With the limit that is exceeded.
    pub fn check_limits(&self) -> Result<(), LimitExceeded> {
        check_limits(self.elems.iter().map(|elem| (elem.name.as_str(), elem.keys.len())))
    }
}

/// Checks a path before any of it is copied, given the name of each element and its number of keys.
///
/// # Errors
/// With the limit that is exceeded.
pub fn check_limits<'a>(
    elements: impl ExactSizeIterator<Item = (&'a str, usize)>,
) -> Result<(), LimitExceeded> {
    PATH_ELEMENTS.check(elements.len())?;
    let mut wildcards = 0;
    for (name, keys) in elements {
        ELEMENT_KEYS.check(keys)?;
        wildcards += usize::from(name == ANY_DEPTH);
    }
    PATH_DEPTH_WILDCARDS.check(wildcards)
}

/// Formats elements as a path from the root.
struct Elems<'a>(&'a [Elem]);

/// Formats by the gNMI path conventions: keys sorted by name, `]` and `\` escaped, a newline as `\n`.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Elems(&self.elems).fmt(f)
    }
}

impl fmt::Display for Elems<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("/");
        }
        self.0.iter().try_for_each(|elem| write!(f, "/{elem}"))
    }
}

impl fmt::Display for Elem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_escaped(f, &self.name, &['\\', '/', '['])?;
        let mut keys: Vec<_> = self.keys.iter().collect();
        keys.sort();
        for (name, value) in keys {
            f.write_str("[")?;
            write_escaped(f, name, &['\\', '=', ']'])?;
            f.write_str("=")?;
            write_escaped(f, value, &['\\', ']'])?;
            f.write_str("]")?;
        }
        Ok(())
    }
}

fn write_escaped(f: &mut fmt::Formatter<'_>, text: &str, special: &[char]) -> fmt::Result {
    for c in text.chars() {
        match c {
            '\n' => f.write_str("\\n")?,
            c if special.contains(&c) => write!(f, "\\{c}")?,
            c => write!(f, "{c}")?,
        }
    }
    Ok(())
}

/// Parses the output of `Display`. A leading `/` is optional; `` and `/` are the root.
impl FromStr for Path {
    type Err = PathSyntaxError;

    fn from_str(text: &str) -> Result<Self, PathSyntaxError> {
        let fail = |reason| PathSyntaxError { text: excerpt(text), reason };
        let mut rest = text.strip_prefix('/').unwrap_or(text);
        let mut elems = Vec::new();
        while !rest.is_empty() {
            let (elem, after) = read_elem(rest).map_err(fail)?;
            elems.push(elem);
            rest = match after.strip_prefix('/') {
                Some("") => return Err(fail("the path ends with a slash")),
                Some(more) => more,
                None => after,
            };
        }
        Ok(Self { elems })
    }
}

/// Parses one element; the rest is empty or starts with a slash.
fn read_elem(text: &str) -> Result<(Elem, &str), &'static str> {
    let (name, mut rest) = read_until(text, &['/', '[']);
    if name.is_empty() {
        return Err("an element has no name");
    }
    let mut elem = Elem::new(name);
    let mut names = HashSet::new();
    while let Some(inside) = rest.strip_prefix('[') {
        let (key, after) = read_until(inside, &['=', ']']);
        let after = after.strip_prefix('=').ok_or("a key has no value")?;
        if key.is_empty() {
            return Err("a key has no name");
        }
        let (value, after) = read_until(after, &[']']);
        rest = after.strip_prefix(']').ok_or("a key is not closed by `]`")?;
        if !names.insert(key.clone()) {
            return Err("a key is given twice");
        }
        elem.keys.push((key, value));
    }
    if !rest.is_empty() && !rest.starts_with('/') {
        return Err("text follows a key");
    }
    Ok((elem, rest))
}

/// Takes characters up to an unescaped one of `ends`; a backslash escapes the next character.
fn read_until<'a>(text: &'a str, ends: &[char]) -> (String, &'a str) {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            c if ends.contains(&c) => return (out, &text[at..]),
            '\\' => match chars.next() {
                Some((_, 'n')) => out.push('\n'),
                Some((_, plain)) => out.push(plain),
                None => out.push('\\'),
            },
            c => out.push(c),
        }
    }
    (out, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves 1.34
    #[test]
    fn paths_are_read_and_written_with_escapes() {
        check("/", &[]);
        check(
            "/interfaces/interface[name=eth0]/config/mtu",
            &["interfaces", "interface+name=eth0", "config", "mtu"],
        );
        check(r"/foo[name=[\\\]]", &[r"foo+name=[\]"]);
        check("/a/b[k=1/2][l=x=y]", &["a", "b+k=1/2+l=x=y"]);
        check(r"/a[k\]=1]", &["a+k]=1"]);
        check(r"/a\/b[k=x\ny]", &["a/b+k=x\ny"]);
        check("/oc-if:a/*/...", &["oc-if:a", "*", "..."]);
    }

    #[test]
    fn keys_are_written_sorted_and_a_leading_slash_is_optional() {
        let path: Path = "a/b[z=1][a=2]".parse().unwrap();
        assert_eq!(path.to_string(), "/a/b[a=2][z=1]");
        assert_eq!("".parse::<Path>().unwrap(), Path::root());
    }

    #[test]
    fn bad_texts_are_refused_with_a_reason() {
        for (text, reason) in [
            ("//a", "an element has no name"),
            ("/a//b", "an element has no name"),
            ("/a/", "the path ends with a slash"),
            ("/a[k]", "a key has no value"),
            ("/a[=v]", "a key has no name"),
            ("/a[k=v", "a key is not closed by `]`"),
            ("/a[k=v]b", "text follows a key"),
            ("/a[k=1][k=2]", "a key is given twice"),
        ] {
            assert_eq!(text.parse::<Path>().unwrap_err().reason, reason, "{text}");
        }
    }

    #[test]
    fn the_figure_of_a_limit_is_accepted_and_one_more_is_not() {
        let many = |count: usize, name: &str| Path { elems: vec![Elem::new(name); count] };
        let keys = |count: usize| {
            let elem = (0..count).fold(Elem::new("a"), |elem, at| elem.key(at.to_string(), "v"));
            Path { elems: vec![elem] }
        };
        for (limit, path) in [
            (&PATH_ELEMENTS, &(|count| many(count, "a")) as &dyn Fn(usize) -> Path),
            (&PATH_DEPTH_WILDCARDS, &|count| many(count, ANY_DEPTH)),
            (&ELEMENT_KEYS, &keys),
        ] {
            assert_eq!(path(limit.figure).check_limits(), Ok(()), "{}", limit.name);
            let error = path(limit.figure + 1).check_limits().unwrap_err();
            assert_eq!(error.limit.name, limit.name);
        }
    }

    /// Elements are written as `name+key=value+...`.
    #[track_caller]
    fn check(text: &str, want: &[&str]) {
        let path: Path = text.parse().unwrap();
        let elems = |elem: &&str| {
            let mut parts = elem.split('+');
            let mut read = Elem::new(parts.next().unwrap());
            read.keys = parts
                .map(|p| p.split_once('=').map(|(k, v)| (k.into(), v.into())).unwrap())
                .collect();
            read
        };
        assert_eq!(path.elems, want.iter().map(elems).collect::<Vec<_>>());
        assert_eq!(path.to_string(), text);
    }
}
