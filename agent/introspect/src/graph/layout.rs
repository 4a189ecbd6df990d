//! Layout of a drawing: a column for each rank of kinds, a box for each kind, rows within it.
//!
//! Values of one kind depend on values of the same few kinds. Ranking kinds instead of values keeps columns short
//! and boxes whole. Values are to the left of their dependencies, except in cycles.
//!
//! The layout is our own, because each library that was looked at costs more than these lines. Figures are of a
//! drawing of 200 values, which takes 0.1 ms and 900 pixels of height here:
//!
//! * `dagre` 0.1.2 ranks values, not kinds, and never wraps a rank: with boxes as compound nodes the drawing is 6500
//!   pixels high and takes 2 s, and the largest permitted one, of 2000 values, is not done within 30 s. Given our boxes
//!   as its nodes it replaces the ranks alone, some 50 lines, by 8600; columns are no longer bounded (3300 pixels).
//! * `rust-sugiyama` 0.4.0 and `layout-rs` 0.1.3 have no boxes, so that values of different kinds lie among each other,
//!   and no bound on a column (3100 and 10500 pixels). The first draws unconnected parts apart from each other, from
//!   top to bottom; the second takes 2 s, and gives positions only together with a drawing of its own.
//! * `dagre-rs` 0.1.0 is licensed for noncommercial use alone; `graphviz-rust` 0.9.9 runs the program `dot`, and
//!   `vizoxide` 1.0.5 links Graphviz, which is written in C.

use std::collections::BTreeMap;

use super::picture::Picture;

/// Width of a character in the font of labels, in pixels, rounded up.
const CHARACTER: f64 = 7.0;
const NODE_HEIGHT: f64 = 26.0;
const MIN_NODE_WIDTH: f64 = 60.0;
pub(super) const MAX_LABEL_CHARACTERS: usize = 36;
/// Pixels between nodes, from a node to its box, and between boxes.
const GAP: f64 = 12.0;
/// Pixels between columns, for the curves of edges.
const COLUMN_GAP: f64 = 90.0;
const TITLE_HEIGHT: f64 = 20.0;
/// Nodes in one column of a box; more of them start further columns.
const ROWS: usize = 24;
/// Height in pixels from which the boxes of a column are placed side by side: about that of a screen.
const MAX_COLUMN_HEIGHT: f64 = 900.0;
/// Number of passes that move nodes towards their neighbours.
const SWEEPS: usize = 4;

/// A rectangle in pixels, relative to the upper left corner.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rect {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// Positions of all parts of a picture.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) width: f64,
    pub(super) height: f64,
    /// Positions in the order of the nodes.
    pub(super) nodes: Vec<Rect>,
    /// Boxes with their titles.
    pub(super) boxes: Vec<(String, Rect)>,
}

/// Nodes of one kind.
#[derive(Debug)]
struct Cluster {
    kind: String,
    rank: usize,
    nodes: Vec<usize>,
}

pub(super) fn layout(picture: &Picture) -> Layout {
    let mut clusters = clusters(picture);
    let mut order: Vec<f64> = (0..picture.nodes.len()).map(|at| at as f64).collect();
    for _ in 0..SWEEPS {
        order_by_barycenter(picture, &mut clusters, &mut order);
    }
    assign_coordinates(picture, &clusters)
}

/// The label, shortened to fit its node.
pub(super) fn truncated_label(label: &str) -> String {
    match label.char_indices().nth(MAX_LABEL_CHARACTERS) {
        None => label.to_owned(),
        Some((end, _)) => format!("{}…", &label[..end]),
    }
}

fn clusters(picture: &Picture) -> Vec<Cluster> {
    let mut by_kind: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, node) in picture.nodes.iter().enumerate() {
        by_kind.entry(&node.kind).or_default().push(at);
    }
    let kinds: Vec<&str> = by_kind.keys().copied().collect();
    let of = |node: usize| {
        kinds.iter().position(|kind| *kind == picture.nodes[node].kind).unwrap_or_default()
    };
    let mut ties: Vec<Vec<usize>> = vec![Vec::new(); kinds.len()];
    for edge in &picture.edges {
        let from = of(edge.from);
        let to = of(edge.to);
        if from != to && !ties[from].contains(&to) {
            ties[from].push(to);
        }
    }
    let mut ranks = Ranks { edges: ties, ranks: vec![None; kinds.len()], path: Vec::new() };
    let heights: Vec<usize> = (0..kinds.len()).map(|kind| ranks.height(kind)).collect();
    let highest = heights.iter().copied().max().unwrap_or_default();
    let cluster = |((kind, nodes), height): ((&str, Vec<usize>), usize)| Cluster {
        kind: kind.to_owned(),
        rank: highest - height,
        nodes,
    };
    let mut clusters: Vec<Cluster> = by_kind.into_iter().zip(heights).map(cluster).collect();
    clusters.sort_by_key(|cluster| cluster.rank);
    clusters
}

/// Computes the rank of each kind: the length of the longest chain of dependencies.
struct Ranks {
    edges: Vec<Vec<usize>>,
    ranks: Vec<Option<usize>>,
    /// Kinds on the current path. An edge back to one of them closes a cycle, and is ignored.
    path: Vec<usize>,
}

impl Ranks {
    fn height(&mut self, kind: usize) -> usize {
        if let Some(height) = self.ranks[kind] {
            return height;
        }
        self.path.push(kind);
        let mut height = 0;
        for next in self.edges[kind].clone() {
            if !self.path.contains(&next) {
                height = height.max(1 + self.height(next));
            }
        }
        self.path.pop();
        self.ranks[kind] = Some(height);
        height
    }
}

/// Moves nodes, and boxes within their column, towards the middle of their neighbours.
fn order_by_barycenter(picture: &Picture, clusters: &mut [Cluster], order: &mut [f64]) {
    let mut sums = vec![(0.0, 0.0); picture.nodes.len()];
    for edge in &picture.edges {
        for (this, other) in [(edge.from, edge.to), (edge.to, edge.from)] {
            sums[this].0 += order[other];
            sums[this].1 += 1.0;
        }
    }
    let wish = |node: usize| match sums[node] {
        (_, 0.0) => order[node],
        (sum, count) => sum / count,
    };
    for cluster in clusters.iter_mut() {
        cluster.nodes.sort_by(|&a, &b| wish(a).total_cmp(&wish(b)).then(a.cmp(&b)));
    }
    let middle = |cluster: &Cluster| {
        let sum: f64 = cluster.nodes.iter().map(|&node| wish(node)).sum();
        sum / cluster.nodes.len().max(1) as f64
    };
    clusters.sort_by(|a, b| {
        a.rank.cmp(&b.rank).then(middle(a).total_cmp(&middle(b))).then(a.kind.cmp(&b.kind))
    });
    let mut row = 0;
    let mut rank = None;
    for cluster in clusters.iter() {
        if rank != Some(cluster.rank) {
            (row, rank) = (0, Some(cluster.rank));
        }
        for &node in &cluster.nodes {
            order[node] = f64::from(row);
            row += 1;
        }
    }
}

fn assign_coordinates(picture: &Picture, clusters: &[Cluster]) -> Layout {
    let mut layout = Layout {
        width: GAP,
        height: 0.0,
        nodes: vec![Rect::default(); picture.nodes.len()],
        boxes: Vec::new(),
    };
    for column in clusters.chunk_by(|a, b| a.rank == b.rank) {
        let mut x = layout.width;
        let mut y = GAP;
        let mut right = x;
        for cluster in column {
            if y > GAP && y + height(cluster) > MAX_COLUMN_HEIGHT {
                (x, y) = (right + GAP * 2.0, GAP);
            }
            let place = place_cluster(picture, cluster, x, y, &mut layout.nodes);
            y += place.height + GAP * 2.0;
            right = right.max(x + place.width);
            layout.boxes.push((cluster.kind.clone(), place));
        }
        layout.width = right + COLUMN_GAP;
        layout.height = layout.height.max(y);
    }
    layout.width = (layout.width - COLUMN_GAP + GAP).max(MIN_NODE_WIDTH);
    layout.height = layout.height.max(NODE_HEIGHT);
    layout
}

fn height(cluster: &Cluster) -> f64 {
    TITLE_HEIGHT + GAP + cluster.nodes.len().min(ROWS) as f64 * (NODE_HEIGHT + GAP)
}

/// Positions the nodes of one box and returns its rectangle.
fn place_cluster(picture: &Picture, cluster: &Cluster, x: f64, y: f64, nodes: &mut [Rect]) -> Rect {
    let width = |node: usize| {
        let characters = truncated_label(&picture.nodes[node].label).chars().count() + 3;
        (characters as f64 * CHARACTER).max(MIN_NODE_WIDTH)
    };
    let title = cluster.kind.chars().count() as f64 * CHARACTER + GAP * 2.0;
    let mut left = x + GAP;
    let mut bottom = y;
    for some in cluster.nodes.chunks(ROWS) {
        let widest = some.iter().map(|&node| width(node)).fold(0.0, f64::max);
        let mut top = y + TITLE_HEIGHT + GAP / 2.0;
        for &node in some {
            nodes[node] = Rect { x: left, y: top, width: widest, height: NODE_HEIGHT };
            top += NODE_HEIGHT + GAP;
        }
        left += widest + GAP;
        bottom = bottom.max(top);
    }
    Rect { x, y, width: (left - x).max(title), height: bottom - y }
}
