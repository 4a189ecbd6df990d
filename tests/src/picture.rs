//! Pictures of terminal sessions, drawn as SVG from the text of a page.

use std::fmt::Write as _;

use crate::pages::PROMPTS;

/// Pixels of a character and of a line in the font of the picture.
const CHARACTER: f64 = 8.43;
const LINE: usize = 19;
/// Pixels around the text.
const MARGIN: usize = 16;

/// The colours of a picture are its own, so that it is the same on a light and on a dark page.
const STYLE: &str = "text { font: 14px ui-monospace, monospace; white-space: pre; fill: #d8dee9 } \
                     .prompt { fill: #8fbcbb } .typed { fill: #eceff4; font-weight: bold } \
                     .added { fill: #a3be8c } .removed { fill: #bf616a }";

/// Draws a session: prompts, what was typed, and what was printed.
#[must_use]
pub fn of_session(session: &str) -> String {
    let lines: Vec<&str> = session.lines().collect();
    let columns = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "the width of a line of text"
    )]
    let width = (columns as f64 * CHARACTER) as usize + 2 * MARGIN;
    let height = lines.len() * LINE + 2 * MARGIN;
    let mut picture = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <style>{STYLE}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#2e3440\"/>\n"
    );
    for (number, line) in lines.iter().enumerate() {
        let y = MARGIN + (number + 1) * LINE - LINE / 4;
        let _infallible =
            writeln!(picture, "<text x=\"{MARGIN}\" y=\"{y}\">{}</text>", spans(line));
    }
    picture + "</svg>\n"
}

/// The text of a line, each part in its colour.
fn spans(line: &str) -> String {
    let span = |class: &str, text: &str| {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        format!("<tspan class=\"{class}\">{text}</tspan>")
    };
    let prompt = PROMPTS.iter().find(|prompt| line.starts_with(**prompt));
    match prompt {
        Some(prompt) => span("prompt", prompt) + &span("typed", &line[prompt.len()..]),
        None if line.starts_with("+ ") => span("added", line),
        None if line.starts_with("- ") => span("removed", line),
        None => span("printed", line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_text_stands_out() {
        let picture = of_session("box# echo '<a>'\n<a>\n");
        let typed =
            "<tspan class=\"prompt\">box# </tspan><tspan class=\"typed\">echo '&lt;a>'</tspan>";
        assert!(picture.contains(typed), "{picture}");
        assert!(picture.contains("<tspan class=\"printed\">&lt;a></tspan>"), "{picture}");
    }
}
