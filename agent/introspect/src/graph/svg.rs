//! Drawing as SVG without external fonts, scripts and inline styles, so that any content security policy permits
//! it.
//!
//! Colors are attributes, for a viewer of pictures; classes and states are there for the page, whose style sheet has colors
//! for a dark screen.

use std::fmt::{self, Write as _};

use holdfast_scheduler::ValueState;

use super::layout::{Layout, Rect, truncated_label};
use super::picture::{Edge, EdgeKind, Node, Picture};
use crate::uri::UriBuilder;

/// Background color of a state.
fn fill(state: ValueState) -> &'static str {
    match state {
        ValueState::Configured => "#cdebd3",
        ValueState::Obtained => "#e4e7ec",
        ValueState::InProgress => "#cfe2fb",
        ValueState::Pending | ValueState::Cyclic => "#fff0bf",
        ValueState::Conflict => "#f3d1f0",
        ValueState::Missing | ValueState::Drifted => "#ffdcae",
        ValueState::Invalid => "#e6cdf7",
        ValueState::Failed => "#f7c5bf",
        ValueState::Retrying => "#fbd3bd",
        ValueState::Nonexistent | ValueState::Unimplemented => "#ffffff",
    }
}

pub(super) fn write(picture: &Picture, layout: &Layout) -> String {
    let mut out = String::new();
    // Writing to a string never fails.
    let _ = document(&mut out, picture, layout);
    out
}

fn document(out: &mut String, picture: &Picture, layout: &Layout) -> fmt::Result {
    let note = if picture.left_out > 0 { 24.0 } else { 0.0 };
    let width = layout.width.ceil();
    let height = (layout.height + note).ceil();
    writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="values and their dependencies" font-family="system-ui, sans-serif" font-size="12">"##
    )?;
    out.push_str(r##"<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="context-stroke"/></marker></defs>"##);
    writeln!(out, r##"<rect class="paper" width="{width}" height="{height}" fill="#ffffff"/>"##)?;
    for (kind, place) in &layout.boxes {
        cluster(out, kind, place)?;
    }
    for tie in &picture.edges {
        edge(out, tie, &layout.nodes)?;
    }
    for (it, place) in picture.nodes.iter().zip(&layout.nodes) {
        node(out, it, place)?;
    }
    if picture.left_out > 0 {
        let y = height - 8.0;
        writeln!(
            out,
            r##"<text class="note" x="12" y="{y}" fill="#57606a">{} values more are not drawn</text>"##,
            picture.left_out
        )?;
    }
    out.push_str("</svg>\n");
    Ok(())
}

fn cluster(out: &mut String, kind: &str, place: &Rect) -> fmt::Result {
    let Rect { x, y, width, height } = place;
    writeln!(
        out,
        r##"<rect class="kind" x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="#f6f8fa" stroke="#d0d7de"/><text class="note" x="{}" y="{}" fill="#57606a" font-size="11">{}</text>"##,
        x + 8.0,
        y + 15.0,
        XmlText(kind)
    )
}

fn edge(out: &mut String, edge: &Edge, nodes: &[Rect]) -> fmt::Result {
    let from = nodes[edge.from];
    let to = nodes[edge.to];
    let start = (from.x + from.width, middle(&from));
    let end = (to.x, middle(&to));
    let ahead = start.0 < end.0;
    // An edge backwards or within a column starts and ends on the right.
    let end = if ahead { end } else { (to.x + to.width, end.1) };
    let bend = if ahead { (end.0 - start.0) / 2.0 } else { 50.0 };
    let turn = if ahead { end.0 - bend } else { end.0 + bend };
    let (class, color, width) = match edge.kind {
        EdgeKind::DependsOn => ("depends", "#57606a", 1.0),
        EdgeKind::Unmet => ("unmet", "#cf222e", 1.6),
        EdgeKind::Derives => ("derives", "#9aa4af", 1.0),
    };
    let dash = if edge.kind == EdgeKind::Derives { r#" stroke-dasharray="2 3""# } else { "" };
    writeln!(
        out,
        r##"<path class="{class}" d="M{} {}C{} {} {turn} {} {} {}" fill="none" stroke="{color}" stroke-width="{width}"{dash} marker-end="url(#arrow)"><title>{}</title></path>"##,
        start.0,
        start.1,
        start.0 + bend,
        start.1,
        end.1,
        end.0,
        end.1,
        XmlText(if edge.kind == EdgeKind::Derives { "consists of" } else { &edge.label })
    )
}

fn middle(place: &Rect) -> f64 {
    place.y + place.height / 2.0
}

fn node(out: &mut String, node: &Node, place: &Rect) -> fmt::Result {
    let Rect { x, y, width, height } = place;
    let dash = if node.is_absent() { r#" stroke-dasharray="5 3""# } else { "" };
    let radius = if node.derived { 12 } else { 3 };
    let (class, stroke, thick) = match (node.touched, node.missing) {
        (true, _) => ("touched", "#bf8700", 3),
        (_, true) => ("missing", "#cf222e", 1),
        _ => ("value", "#6e7781", 1),
    };
    let mut address = UriBuilder::new("key-timeline");
    address.add("key", &node.name);
    if node.key.is_some() {
        write!(
            out,
            r##"<a href="{}" data-key="{}">"##,
            XmlText(&address.into_uri()),
            XmlText(&node.name)
        )?;
    }
    write!(
        out,
        r##"<g data-state="{}"><title>{}</title><rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}" fill="{}" stroke="{stroke}" stroke-width="{thick}"{dash}/><text x="{}" y="{}" fill="#1f2328">{}</text></g>"##,
        node.state,
        XmlText(&node.tooltip),
        fill(node.state),
        x + 9.0,
        y + 17.0,
        XmlText(&truncated_label(&node.label))
    )?;
    if node.key.is_some() {
        out.push_str("</a>");
    }
    out.push('\n');
    Ok(())
}

/// Text escaped for XML.
struct XmlText<'t>(&'t str);

impl fmt::Display for XmlText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\n' | '\t' => f.write_char(c)?,
                c if c.is_control() => f.write_char(char::REPLACEMENT_CHARACTER)?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}
