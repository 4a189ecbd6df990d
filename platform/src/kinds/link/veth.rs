//! One end of a pair of links; both ends come and go together.

use super::row::{Attribute, LinkRow, ParamRow, ParamType};

/// Ends of pairs.
pub static VETH: LinkRow = LinkRow {
    params: &[ParamRow {
        is_mandatory: true,
        ..ParamRow::new("peer", ParamType::FarEnd, Attribute::FarEnd)
    }],
    ..LinkRow::new("veth")
};
