//! Seeds, and edits of them that bytes stand for.

use std::fs;
use std::path::Path;

pub(super) struct Corpus<'a> {
    texts: Vec<String>,
    words: &'a [&'a str],
}

impl<'a> Corpus<'a> {
    pub(super) fn read(name: &str, words: &'a [&'a str]) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fuzz/__fuzz__")
            .join(name)
            .join("corpus");
        let files =
            fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        let texts = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        Self { texts, words }
    }

    /// The first byte names the seed, every three after it an edit: what, where, with which word.
    pub(super) fn mutated(&self, input: &[u8]) -> String {
        let Some((seed, edits)) = input.split_first() else { return String::new() };
        let mut text = self.texts[usize::from(*seed) % self.texts.len()].clone();
        for edit in edits.chunks_exact(3) {
            self.edit(&mut text, edit[0], usize::from(edit[1]), usize::from(edit[2]));
        }
        text
    }

    fn edit(&self, text: &mut String, what: u8, place: usize, which: usize) {
        let starts: Vec<usize> =
            text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        // A whole number of bytes says where in a text of any length.
        let at = starts[place * (starts.len() - 1) / usize::from(u8::MAX)];
        let word = self.words[which % self.words.len()];
        let end =
            starts[starts.partition_point(|start| *start <= at + which % 9).min(starts.len() - 1)];
        match what % 4 {
            0 => text.insert_str(at, word),
            1 => text.replace_range(at..end.max(at), word),
            2 => text.replace_range(at..end.max(at), ""),
            _ => {
                let again = text[at..end.max(at)].to_owned();
                text.insert_str(at, &again);
            }
        }
    }
}
