//! Tables for people.

use std::fmt::Write as _;

/// Lines whose columns, except the last one, are aligned.
pub(super) fn aligned<const COLUMNS: usize>(
    lines: impl Iterator<Item = [String; COLUMNS]>,
) -> String {
    let rows = lines.map(|line| line.map(Cell::from).into()).collect();
    Table { columns: vec![Column::left(""); COLUMNS], rows }.text(Ink::Plain)
}

/// Use of colours in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    Plain,
    Coloured,
}

/// Meaning of a cell, which a terminal shows by its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    #[default]
    Neutral,
    /// Sign that all is as it should be.
    Good,
    /// Sign of something that waits.
    Waiting,
    /// Sign of something that does not work.
    Bad,
    Heading,
}

impl Tone {
    /// Attribute of "select graphic rendition" (ECMA-48, section 8.3.117).
    fn rendition(self) -> Option<&'static str> {
        match self {
            Self::Neutral => None,
            Self::Good => Some("32"),
            Self::Waiting => Some("33"),
            Self::Bad => Some("31"),
            Self::Heading => Some("1"),
        }
    }
}

/// A text of a table. It has one line, and no character that a terminal would obey.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(super) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { tone, ..Self::from(text.into()) }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        let text = match text.contains(char::is_control) {
            true => text.replace(char::is_control, " "),
            false => text,
        };
        Self { text, tone: Tone::Neutral }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// A column: its heading, and the side on which its cells end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    heading: &'static str,
    is_right: bool,
}

impl Column {
    pub(super) const fn left(heading: &'static str) -> Self {
        Self { heading, is_right: false }
    }

    /// Column of numbers.
    pub(super) const fn right(heading: &'static str) -> Self {
        Self { heading, is_right: true }
    }
}

/// Rows of cells below headings. Without any heading, the rows stand alone.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(super) fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Lines with aligned columns; nothing where there are no rows.
    pub(super) fn text(&self, ink: Ink) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let headings = self.columns.iter().map(|it| Cell::toned(it.heading, Tone::Heading));
        let headings: Vec<Cell> = headings.collect();
        let has_headings = self.columns.iter().any(|it| !it.heading.is_empty());
        let headings = has_headings.then_some(&headings);
        let all = || headings.into_iter().chain(&self.rows);
        let width = |at: usize| {
            all().filter_map(|row| row.get(at)).map(|it| it.text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        for row in all() {
            self.write(&mut text, row, &widths, ink);
        }
        text
    }

    fn write(&self, text: &mut String, row: &[Cell], widths: &[usize], ink: Ink) {
        let last = row.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or(0);
        for (at, cell) in row.iter().enumerate().take(last + 1) {
            let room = " ".repeat(widths[at].saturating_sub(cell.text.chars().count()));
            let is_right = self.columns[at].is_right;
            text.push_str(if is_right { &room } else { "" });
            match cell.tone.rendition().filter(|_| ink == Ink::Coloured && !cell.text.is_empty()) {
                Some(rendition) => {
                    let _never_fails = write!(text, "\x1b[{rendition}m{}\x1b[0m", cell.text);
                }
                None => text.push_str(&cell.text),
            }
            if at < last {
                text.push_str(if is_right { "" } else { &room });
                text.push_str("  ");
            }
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_below_their_headings() {
        let mut table =
            Table::new(&[Column::left("NAME"), Column::right("MTU"), Column::left("WHY")]);
        table.rows.push(vec!["eth0".into(), "1500".into(), "".into()]);
        table.rows.push(vec![
            Cell::toned("br-uplink", Tone::Bad),
            "9000".into(),
            Cell::from("no\ncarrier\x1b[2J"),
        ]);
        table.rows.push(vec!["".into(), "".into(), "more".into()]);
        assert_eq!(
            table.text(Ink::Plain),
            "NAME        MTU  WHY\n\
             eth0       1500\n\
             br-uplink  9000  no carrier [2J\n                 more\n"
        );
        assert!(table.text(Ink::Coloured).contains("\x1b[31mbr-uplink\x1b[0m  9000  no"));
        table.rows.clear();
        assert_eq!(table.text(Ink::Plain), "", "there is nothing below the headings");
    }
}
