//! Parser for the lines of the map, without reference to a schema. Named blocks are read here, and are put where they are
//! placed.

use std::collections::BTreeMap;

use super::MapError;
use crate::path::Path;

/// One line.
#[derive(Clone, Debug)]
pub(super) struct MapLine {
    pub(super) number: usize,
    pub(super) statement: MapStatement,
    /// Number of the line that placed the block that this line is in.
    placed_by: Option<usize>,
}

/// Paths are relative to those of the `at` line above, except in `at` and `only` themselves. In a named block they are
/// relative to the place of the block, those of `at` too.
#[derive(Clone, Debug)]
pub(super) enum MapStatement {
    /// `at OPENCONFIG NATIVE`: an OpenConfig list and its native list. A key `*` is shared, and `*:CODEC` is through a codec.
    At { openconfig: Path, native: Path },
    /// Beginning of `place NAME OPENCONFIG NATIVE`: the rows of the block that follow are about these nodes, which are at or in
    /// entries that have an `at` line.
    Place { openconfig: Path, native: Path },
    /// End of the rows that were placed: the rows that follow are those of the `at` line before `place`.
    Placed,
    /// `config OPENCONFIG NATIVE CODEC`: a leaf that is translated both ways. A second one for a native leaf is an alternative.
    Config { openconfig: Path, native: Path, codec: String },
    /// `state OPENCONFIG NATIVE CODEC`: a leaf that is only translated up. Codec `implied` gives
    /// the key of the same name and `constant:VALUE` the value, as long as the native leaf is there.
    State { openconfig: Path, native: Path, codec: String },
    /// `implied OPENCONFIG`: a configuration leaf that repeats a key of its entry.
    Implied { openconfig: Path },
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

/// Reads the lines, with those of named blocks where the blocks are placed.
pub(super) fn read(text: &str) -> Result<Vec<MapLine>, MapError> {
    let mut reader = Reader::default();
    let numbered = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    for (number, line) in numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        reader.line(number, line).map_err(|reason| MapError { line: number, reason })?;
    }
    reader.finish()
}

#[derive(Default)]
struct Reader {
    lines: Vec<MapLine>,
    blocks: BTreeMap<String, Block>,
    /// Name of the block that the lines are in.
    open: Option<String>,
}

/// Rows that are placed several times.
#[derive(Default)]
struct Block {
    begin: usize,
    lines: Vec<MapLine>,
    is_placed: bool,
}

impl Reader {
    fn line(&mut self, number: usize, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (&words[..], &self.open) {
            (["block", name], None) => self.begin(number, name),
            (["end"], Some(_)) => {
                self.open = None;
                Ok(())
            }
            (["place", name, openconfig, native], None) => {
                self.place(number, name, &path(openconfig)?, &path(native)?)
            }
            (["block" | "place" | "only", ..], Some(name)) => {
                Err(format!("`{}` cannot stand in a block, and `{name}` has no end yet", words[0]))
            }
            (_, open) => {
                let line = MapLine { number, statement: statement(line)?, placed_by: None };
                let block = open.as_ref().and_then(|name| self.blocks.get_mut(name));
                block.map_or(&mut self.lines, |block| &mut block.lines).push(line);
                Ok(())
            }
        }
    }

    fn begin(&mut self, number: usize, name: &str) -> Result<(), String> {
        let block = Block { begin: number, ..Block::default() };
        if let Some(earlier) = self.blocks.insert(name.to_owned(), block) {
            return Err(format!("line {} has a block `{name}` already", earlier.begin));
        }
        self.open = Some(name.to_owned());
        Ok(())
    }

    fn place(
        &mut self,
        number: usize,
        name: &str,
        openconfig: &Path,
        native: &Path,
    ) -> Result<(), String> {
        let block = self.blocks.get_mut(name);
        let block = block.ok_or_else(|| format!("no block before this line is called `{name}`"))?;
        block.is_placed = true;
        let own = |statement| MapLine { number, statement, placed_by: None };
        let place = MapStatement::Place { openconfig: openconfig.clone(), native: native.clone() };
        self.lines.push(own(place));
        for line in &block.lines {
            let statement = match &line.statement {
                MapStatement::At { openconfig: list, native: own } => {
                    MapStatement::At { openconfig: openconfig.join(list), native: native.join(own) }
                }
                other => other.clone(),
            };
            self.lines.push(MapLine { statement, placed_by: Some(number), ..*line });
        }
        self.lines.push(own(MapStatement::Placed));
        Ok(())
    }

    fn finish(self) -> Result<Vec<MapLine>, MapError> {
        let begin = |name: &String| self.blocks.get(name).map_or(0, |block| block.begin);
        if let Some(name) = &self.open {
            return Err(MapError {
                line: begin(name),
                reason: format!("block `{name}` has no end"),
            });
        }
        match self.blocks.iter().find(|(_, block)| !block.is_placed) {
            Some((name, block)) => {
                let reason = format!("block `{name}` is never placed");
                Err(MapError { line: block.begin, reason })
            }
            None => Ok(self.lines),
        }
    }
}

impl MapLine {
    /// The error of this line.
    pub(super) fn error(&self, reason: String) -> MapError {
        let reason = match self.placed_by {
            Some(line) => format!("{reason} (in the block that line {line} places)"),
            None => reason,
        };
        MapError { line: self.number, reason }
    }
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
