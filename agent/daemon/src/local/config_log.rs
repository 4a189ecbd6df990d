//! The log of configuration revisions and the checkpoints, as texts for people.

use holdfast_store::{Checkpoint, ConfigRevision, ListedRevision, RevisionList};

use super::faults::time_text;
use super::table::{Cell, Column, Ink, Table};

/// A line for each revision, the last one last.
pub(super) fn table(list: &RevisionList) -> String {
    let headings = ["REVISION", "TIME", "AUTHOR", "FROM", "BY", "LEAVES", "TRACE", "COMMENT"];
    let mut table = Table::new(&headings.map(Column::left));
    for ListedRevision { revision, .. } in &list.revisions {
        let row = [
            revision.number.to_string(),
            time_text(revision.time_ns),
            revision.author.clone(),
            place(revision),
            way(revision),
            revision.difference.leaves.to_string(),
            revision.trace.clone(),
            revision.comment.clone().unwrap_or_default(),
        ];
        table.rows.push(row.map(Cell::from).into());
    }
    let text = table.text(Ink::Plain);
    let oldest = list.oldest_restorable;
    match list.revisions.first() {
        Some(first) if first.revision.number < oldest => {
            format!("{text}`config rollback` goes back to revision {oldest} at most\n")
        }
        _ => text,
    }
}

/// Where the author of a revision was.
fn place(revision: &ConfigRevision) -> String {
    revision.from.map_or_else(|| "the box".to_owned(), |address| address.to_string())
}

fn way(revision: &ConfigRevision) -> String {
    match &revision.restored {
        Some(target) => format!("{} of {target}", revision.by),
        None => revision.by.to_string(),
    }
}

/// Everything that is known of a revision, with its difference.
pub(super) fn text(listed: &ListedRevision) -> String {
    let ListedRevision { revision, restorable } = listed;
    let mut lines = vec![
        format!("revision  {}", revision.number),
        format!("time      {}", time_text(revision.time_ns)),
        format!("author    {} from {}, by {}", revision.author, place(revision), way(revision)),
        format!("trace     {}", revision.trace),
    ];
    lines.extend(revision.comment.as_ref().map(|comment| format!("comment   {comment}")));
    if !restorable {
        lines.push("the log does not keep enough to go back to it".to_owned());
    }
    let difference = &revision.difference;
    lines.extend(difference.lines.iter().cloned());
    let more = difference.total_lines.saturating_sub(difference.lines.len());
    if more > 0 {
        lines.push(format!("... and {more} more lines"));
    }
    lines.join("\n") + "\n"
}

/// A line for each checkpoint.
pub(super) fn checkpoints(checkpoints: &[Checkpoint]) -> String {
    let headings = ["NAME", "REVISION", "TIME", "AUTHOR", "COMMENT"];
    let mut table = Table::new(&headings.map(Column::left));
    for checkpoint in checkpoints {
        let row = [
            checkpoint.name.to_string(),
            checkpoint.revision.to_string(),
            time_text(checkpoint.time_ns),
            checkpoint.author.clone(),
            checkpoint.comment.clone().unwrap_or_default(),
        ];
        table.rows.push(row.map(Cell::from).into());
    }
    table.text(Ink::Plain)
}
