//! Drawing in the language of Graphviz, for use with its own tools.

use std::fmt::{self, Write as _};

use super::layout::Layout;
use super::picture::{EdgeKind, Picture};

/// Points per inch in Graphviz; our pixels count as points.
const POINTS: f64 = 72.0;

/// Writes the picture, with positions if there is a layout.
pub(super) fn write(picture: &Picture, layout: Option<&Layout>) -> String {
    let mut out = String::from("digraph values {\n  rankdir=LR;\n  node [shape=box];\n");
    // Writing to a string never fails.
    let _ = nodes(&mut out, picture, layout);
    let _ = edges(&mut out, picture);
    out.push_str("}\n");
    out
}

fn nodes(out: &mut String, picture: &Picture, layout: Option<&Layout>) -> fmt::Result {
    let mut kinds: Vec<&str> = picture.nodes.iter().map(|node| node.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for (number, kind) in kinds.iter().enumerate() {
        writeln!(out, "  subgraph cluster_{number} {{\n    label={};", DotString(kind))?;
        let here = picture.nodes.iter().enumerate().filter(|(_, node)| node.kind == *kind);
        for (at, node) in here {
            let style = match (node.is_absent(), node.derived) {
                (true, true) => "rounded,dashed",
                (true, false) => "dashed",
                (false, true) => "rounded,filled",
                (false, false) => "filled",
            };
            write!(
                out,
                "    n{at} [label={}, tooltip={}, comment=\"{}\", style={style:?}",
                DotString(&node.label),
                DotString(&node.tooltip),
                node.state
            )?;
            if node.touched {
                write!(out, ", color=gold")?;
            }
            if let Some(place) = layout.map(|layout| layout.nodes[at]) {
                let width = place.width / POINTS;
                let height = place.height / POINTS;
                let x = place.x + place.width / 2.0;
                let y = -(place.y + place.height / 2.0);
                write!(out, ", pos=\"{x},{y}!\", width={width:.3}, height={height:.3}")?;
            }
            writeln!(out, "];")?;
        }
        writeln!(out, "  }}")?;
    }
    Ok(())
}

fn edges(out: &mut String, picture: &Picture) -> fmt::Result {
    for edge in &picture.edges {
        let style = match edge.kind {
            EdgeKind::DependsOn => "solid",
            EdgeKind::Unmet => "solid\", color=\"red",
            EdgeKind::Derives => "dotted",
        };
        writeln!(
            out,
            "  n{} -> n{} [tooltip={}, style=\"{style}\"];",
            edge.from,
            edge.to,
            DotString(&edge.label)
        )?;
    }
    Ok(())
}

/// A quoted string in the language.
struct DotString<'t>(&'t str);

impl fmt::Display for DotString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
    }
}
