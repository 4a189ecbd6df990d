//! The word that was probably meant by one that is not known.

/// Letters that may be wrong, missing or swapped.
const TYPING_MISTAKES: usize = 2;

/// Longest UTF-8 encoding of a letter, in bytes.
const MAX_OCTETS_OF_A_LETTER: usize = 4;

/// Suggests the word that was probably meant: one with few different letters, or one that begins with `word`.
pub fn nearest<'a, I>(word: &str, known: impl Fn() -> I) -> Option<&'a str>
where
    I: Iterator<Item = &'a str>,
{
    // The edit distance of two words takes a table of all pairs of their letters.
    let longest = known().map(str::len).max().unwrap_or_default();
    if word.len() > MAX_OCTETS_OF_A_LETTER * (longest + TYPING_MISTAKES) {
        return None;
    }
    let distance = |candidate: &&str| strsim::damerau_levenshtein(candidate, word);
    let close = known().min_by_key(distance).filter(|candidate| {
        distance(candidate) <= TYPING_MISTAKES && distance(candidate) < word.chars().count()
    });
    close.or_else(|| known().find(|candidate| candidate.starts_with(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_with_few_other_letters_is_suggested() {
        let known = || ["listen", "tls-cert", "tls-key", "unknown-subscription-paths"].into_iter();
        for (word, want) in [
            ("lisen", Some("listen")),
            ("tls-crt", Some("tls-cert")),
            ("tls_key", Some("tls-key")),
            ("unknown", Some("unknown-subscription-paths")),
            ("port", None),
            ("x", None),
            (&*"listen".repeat(100), None),
        ] {
            assert_eq!(nearest(word, known), want, "{word}");
        }
    }
}
