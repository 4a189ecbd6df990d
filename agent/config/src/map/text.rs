//! Parser for the lines of the map, without reference to a schema.

use super::MapError;
use crate::path::Path;

/// One line.
#[derive(Debug)]
pub(super) struct MapLine {
    pub(super) number: usize,
    pub(super) statement: MapStatement,
}

/// Paths are relative to those of the `at` line above, except in `at` and `only` themselves.
#[derive(Debug)]
pub(super) enum MapStatement {
    /// `at OPENCONFIG NATIVE`: an OpenConfig list and its native list; a key `*` is shared.
    At { openconfig: Path, native: Path },
    /// `config OPENCONFIG NATIVE CODEC`: a leaf that is translated both ways.
    Config { openconfig: Path, native: Path, codec: String },
    /// `state OPENCONFIG NATIVE CODEC`: a leaf that is only translated up. Codec `implied` gives
    /// the key of the same name and `constant:VALUE` the value, as long as the native leaf is there.
    State { openconfig: Path, native: Path, codec: String },
    /// `implied OPENCONFIG`: a configuration leaf that repeats a key of its entry.
    Implied { openconfig: Path },
    /// `constant OPENCONFIG VALUE`: a configuration leaf that can have no other value.
    Constant { openconfig: Path, value: String },
    /// `no-default OPENCONFIG`: the default of a `config` leaf is never put in use.
    NoDefault { openconfig: Path },
    /// `when openconfig|native PREFIX LEAF VALUE,...`: defaults below PREFIX are in use only while
    /// native LEAF of the same entry has one of the values.
    When { openconfig: bool, prefix: Path, leaf: Path, values: Vec<String> },
    /// `never OPENCONFIG REASON...`: a configuration leaf that this device takes from no client.
    Never { openconfig: Path, reason: String },
    /// `only openconfig|native LIST[key=value] REASON...`: no other entry is supported.
    Only { openconfig: bool, list: Path, reason: String },
}

pub(super) fn read(text: &str) -> Result<Vec<MapLine>, MapError> {
    let numbered = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    numbered
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            let statement = statement(line).map_err(|reason| MapError { line: number, reason })?;
            Ok(MapLine { number, statement })
        })
        .collect()
}

fn statement(line: &str) -> Result<MapStatement, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["at", openconfig, native] => {
            Ok(MapStatement::At { openconfig: path(openconfig)?, native: path(native)? })
        }
        ["config", openconfig, native, codec] => Ok(MapStatement::Config {
            openconfig: path(openconfig)?,
            native: path(native)?,
            codec: codec.to_owned(),
        }),
        ["state", openconfig, native, codec] => Ok(MapStatement::State {
            openconfig: path(openconfig)?,
            native: path(native)?,
            codec: codec.to_owned(),
        }),
        ["implied", openconfig] => Ok(MapStatement::Implied { openconfig: path(openconfig)? }),
        ["constant", openconfig, value] => {
            Ok(MapStatement::Constant { openconfig: path(openconfig)?, value: value.to_owned() })
        }
        ["no-default", openconfig] => Ok(MapStatement::NoDefault { openconfig: path(openconfig)? }),
        ["when", origin, prefix, leaf, values] => Ok(MapStatement::When {
            openconfig: origin == "openconfig",
            prefix: path(prefix)?,
            leaf: path(leaf)?,
            values: values.split(',').map(str::to_owned).collect(),
        }),
        ["never", openconfig, ref reason @ ..] => {
            Ok(MapStatement::Never { openconfig: path(openconfig)?, reason: reason.join(" ") })
        }
        ["only", origin, list, ref reason @ ..] => Ok(MapStatement::Only {
            openconfig: origin == "openconfig",
            list: path(list)?,
            reason: reason.join(" "),
        }),
        _ => Err(format!("`{line}` is not a statement")),
    }
}

fn path(text: &str) -> Result<Path, String> {
    text.parse().map_err(|error| format!("{error}"))
}
