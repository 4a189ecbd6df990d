//! Error texts of bounded length: causes repeat client input, which may be long.

use std::fmt::{self, Write};

/// Bytes in an error text: an error travels in HTTP/2 trailers, and clients accept 8 KiB of them by default.
pub const ERROR_TEXT_OCTETS: usize = 4096;

/// End of an error text that was cut to [`ERROR_TEXT_OCTETS`].
pub const CUT_MARK: &str = "... (cut)";

/// Bytes of a path or value that an error text quotes, which leaves room for the explanation.
pub const EXCERPT: usize = ERROR_TEXT_OCTETS / 4;

/// Formats an error with at most [`ERROR_TEXT_OCTETS`] bytes. A longer text is cut, ends with [`CUT_MARK`], and takes no
/// more memory than the part that is kept.
pub fn error_text(error: &(impl fmt::Display + ?Sized)) -> String {
    cut_text(error, ERROR_TEXT_OCTETS)
}

/// Formats a path, a name or a value for an error text, with at most [`EXCERPT`] bytes.
pub fn excerpt(text: &(impl fmt::Display + ?Sized)) -> String {
    cut_text(text, EXCERPT)
}

fn cut_text(text: &(impl fmt::Display + ?Sized), most: usize) -> String {
    let mut bounded = BoundedText { text: String::new(), most };
    // Writing fails only when the text is full.
    if write!(bounded, "{text}").is_err() {
        let room = bounded.text.floor_char_boundary(most - CUT_MARK.len());
        bounded.text.truncate(room);
        bounded.text.push_str(CUT_MARK);
    }
    bounded.text
}

/// Beginning of a text.
struct BoundedText {
    text: String,
    most: usize,
}

impl Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.most - self.text.len();
        self.text.push_str(&text[..text.floor_char_boundary(room)]);
        if text.len() <= room { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_texts_are_cut_between_characters_and_say_so() {
        let most = ERROR_TEXT_OCTETS;
        let room = most - CUT_MARK.len();
        let pieces: Vec<_> = ["abc"; 2000].to_vec();
        assert!(error_text(&format_args!("{pieces:?}")).ends_with(CUT_MARK));
        assert_eq!(excerpt(&"x".repeat(5000)).len(), EXCERPT);
        for (text, cut) in [
            ("short".to_owned(), None),
            (String::new(), None),
            ("x".repeat(most), None),
            ("x".repeat(most + 1), Some(room)),
            ("\u{20ac}".repeat(20 << 20), Some(room / 3 * 3)),
        ] {
            let got = error_text(&text);
            assert!(got.len() <= ERROR_TEXT_OCTETS);
            match cut {
                None => assert_eq!(got, text),
                Some(room) => assert_eq!(got, format!("{}{CUT_MARK}", &text[..room])),
            }
        }
    }
}
