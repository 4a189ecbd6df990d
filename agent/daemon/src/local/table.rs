//! Tables for people.

use std::fmt::Write as _;

/// Lines whose columns, but for the last one, are aligned.
pub(super) fn aligned<const COLUMNS: usize>(
    lines: impl Iterator<Item = [String; COLUMNS]>,
) -> String {
    let lines: Vec<[String; COLUMNS]> = lines.collect();
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let mut row = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            let _never_fails = write!(row, "{cell:width$}  ");
        }
        let _never_fails = writeln!(text, "{}", row.trim_end());
    }
    text
}
