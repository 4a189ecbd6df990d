//! The Markdown document that gets the table.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

/// The lines around the table.
const TABLE_BEGIN: &str = "<!-- written by `make bench`: begin -->";
const TABLE_END: &str = "<!-- end -->";

/// A document with a place for the table. It is read before anything is measured: a run takes many minutes.
#[derive(Debug)]
pub(crate) struct Document {
    path: PathBuf,
    /// Text up to the table, with its first mark, and from the last mark on.
    before: String,
    after: String,
}

impl Document {
    /// The document that the option `--markdown FILE` names.
    pub(crate) fn from_arguments() -> Result<Option<Self>> {
        let mut arguments = std::env::args().skip_while(|argument| argument != "--markdown");
        match (arguments.next(), arguments.next()) {
            (None, _) => Ok(None),
            (Some(_), None) => anyhow::bail!("--markdown needs a file"),
            (Some(_), Some(path)) => Self::read(path.into()).map(Some),
        }
    }

    fn read(path: PathBuf) -> Result<Self> {
        let name = path.display();
        let text = fs::read_to_string(&path).with_context(|| {
            format!("cannot read `{name}`, the document that is to get the table")
        })?;
        let found = text.split_once(TABLE_BEGIN).and_then(|(before, rest)| {
            rest.split_once(TABLE_END).map(|(_, after)| (before, after))
        });
        ensure!(
            found.is_some(),
            "`{name}` has no place for the table: it needs a line `{TABLE_BEGIN}` and, after it, a line `{TABLE_END}`; \
             what is between them is replaced"
        );
        let (before, after) = found.unwrap_or_default();
        Ok(Self {
            path,
            before: format!("{before}{TABLE_BEGIN}\n"),
            after: format!("{TABLE_END}{after}"),
        })
    }

    /// Writes the document with a table.
    pub(crate) fn write(&self, table: &str) -> Result<()> {
        let Self { path, before, after } = self;
        fs::write(path, format!("{before}{table}{after}"))
            .with_context(|| format!("cannot write the table into `{}`", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("BENCHMARKS.md");
        fs::write(&path, text).unwrap();
        let document = Document::read(path.clone()).map_err(|error| format!("{error:#}"))?;
        document.write("| new |\n").unwrap();
        Ok(fs::read_to_string(path).unwrap())
    }

    #[test]
    fn the_table_between_the_marks_is_replaced() {
        let text = |table: &str| format!("# Title\n{TABLE_BEGIN}\n{table}{TABLE_END}\nmore\n");
        assert_eq!(written(&text("| old |\n")), Ok(text("| new |\n")));
        assert_eq!(written(&text("")), Ok(text("| new |\n")));
    }

    #[test]
    fn a_document_without_the_marks_is_refused_by_name() {
        for text in ["", TABLE_BEGIN, TABLE_END, &format!("{TABLE_END}\n{TABLE_BEGIN}\n")] {
            let error = written(text).unwrap_err();
            for words in ["BENCHMARKS.md` has no place for the table", TABLE_BEGIN, TABLE_END] {
                assert!(error.contains(words), "{error}");
            }
        }
        let missing = Document::read("/nowhere/BENCHMARKS.md".into()).unwrap_err();
        assert!(format!("{missing:#}").starts_with("cannot read `/nowhere/BENCHMARKS.md`"));
    }
}
