//! The answer of `holdfast doctor`, for people and for programs.

use std::fmt::Write as _;

use super::{Group, Row, Verdict};

/// The rows as a list of documents.
///
/// # Errors
/// When a row cannot be written, which would be a bug.
pub fn json(rows: &[Row]) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(rows)? + "\n")
}

/// One line for each group that is all good, one for each other finding, and one with the numbers of all.
pub fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    for group in Group::ALL {
        let of_group = || rows.iter().filter(|row| row.check.group == group);
        let mut wrong: Vec<&Row> =
            of_group().filter(|row| row.finding.verdict > Verdict::Skipped).collect();
        // Several checks may be kept from looking for one reason.
        wrong.dedup_by(|row, before| row.finding.text == before.finding.text);
        if wrong.is_empty() {
            let good = of_group().filter(|row| row.finding.verdict == Verdict::Good);
            let good: Vec<&str> = good.map(|row| row.finding.text.as_str()).collect();
            let good =
                if good.is_empty() { "nothing to look at".to_owned() } else { good.join("; ") };
            write_line(&mut text, "ok", group, &good);
        }
        for row in wrong {
            let word = match row.finding.verdict {
                Verdict::Failure => "FAIL",
                Verdict::Unknown => "?",
                _ => "warn",
            };
            write_line(&mut text, word, group, &row.finding.text);
            if let Some(advice) = row.advice() {
                let _infallible = writeln!(text, "{:14}advice: {advice}", "");
            }
        }
    }
    let count = |verdict| rows.iter().filter(|row| row.finding.verdict == verdict).count();
    let counts = [
        (count(Verdict::Failure), "failure", "failures"),
        (count(Verdict::Warning), "warning", "warnings"),
        (count(Verdict::Unknown), "not known", "not known"),
        (count(Verdict::Skipped), "skipped", "skipped"),
    ];
    let counts = counts.into_iter().filter(|(count, ..)| *count > 0);
    let mut counts: Vec<String> = counts
        .map(|(count, one, several)| format!("{count} {}", if count == 1 { one } else { several }))
        .collect();
    counts.push(format!("{} ok", count(Verdict::Good)));
    let _infallible = writeln!(text, "{}", counts.join(", "));
    text
}

fn write_line(text: &mut String, word: &str, group: Group, line: &str) {
    // A text of another program may have characters that a terminal obeys.
    let line = line.replace(char::is_control, " ");
    let _infallible = writeln!(text, "{word:4}  {group:7} {line}");
}
