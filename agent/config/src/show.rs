//! The commands `show ...`, which print the configuration as CLI text.

use std::fmt::Write;

use crate::cli::{print, print_with_notes, running};
use crate::configuration::Configuration;
use crate::images::{Provenance, ProvenanceKind};
use crate::instance::InstancePath;
use crate::layer::{LayerKey, LeafMark};
use crate::tree::NodeRef;

/// A command that prints text.
#[derive(Clone, Copy, Debug)]
pub struct ShowCommand {
    pub command: &'static str,
    /// Summary of the output, for the error about an unknown command.
    pub about: &'static str,
    text: fn(&Configuration) -> String,
}

/// All commands.
pub const SHOW_COMMANDS: [ShowCommand; 3] = [
    ShowCommand {
        command: "show running-config",
        about: "what clients set by native paths or text, from which a replace makes it again",
        text: running_config,
    },
    ShowCommand {
        command: "show effective",
        about: "the union of all origins and owners, each line with its owner as a comment",
        text: effective,
    },
    ShowCommand {
        command: "show factory",
        about: "what the box left the factory with, the base of a replace",
        text: |it| print(&it.models().native, it.factory()),
    },
];

/// Error for an unknown command, which lists those that exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no command `{0}`: {commands}", commands = list_of_commands())]
pub struct UnknownCommand(pub String);

/// Runs a command; several blanks between words count as one.
///
/// # Errors
/// When the command does not exist.
pub fn show(configuration: &Configuration, command: &str) -> Result<String, UnknownCommand> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let command = words.join(" ");
    match SHOW_COMMANDS.iter().find(|show| show.command == command) {
        Some(show) => Ok((show.text)(configuration)),
        None => Err(UnknownCommand(command)),
    }
}

fn list_of_commands() -> String {
    let mut text = String::new();
    for (number, show) in SHOW_COMMANDS.iter().enumerate() {
        let comma = if number == 0 { "" } else { "; " };
        let _infallible = write!(text, "{comma}`{}` is {}", show.command, show.about);
    }
    text
}

/// The native layer of clients as text, from which a replace makes it again.
pub fn running_config(configuration: &Configuration) -> String {
    let layer = configuration.layers().tree(LayerKey::CLIENT_NATIVE);
    let is_elsewhere = |path: &InstancePath| is_explicit_in_openconfig(configuration, path);
    running(&configuration.models().native, layer, configuration.factory(), &is_elsewhere)
}

/// True for a native leaf or entry whose counterpart the OpenConfig client holds explicitly.
fn is_explicit_in_openconfig(configuration: &Configuration, native: &InstancePath) -> bool {
    let layer = configuration.layers().tree(LayerKey::CLIENT_OPENCONFIG);
    let above = configuration.models().map.up_path_in(native, layer);
    above.iter().any(|path| match layer.get(path) {
        Some(NodeRef::Leaf(leaf)) => leaf.meta == LeafMark::Explicit,
        Some(NodeRef::Branch(_)) => true,
        Some(NodeRef::List(_)) | None => false,
    })
}

fn effective(configuration: &Configuration) -> String {
    let note =
        |path: &InstancePath, prov: &Provenance| Some(provenance_note(configuration, path, prov));
    print_with_notes(&configuration.models().native, configuration.effective(), &note)
}

/// Names those who ask for a leaf or entry, for a comment behind its line.
pub fn provenance_note(
    configuration: &Configuration,
    path: &InstancePath,
    prov: &Provenance,
) -> String {
    let owners = configuration.owner_names(path, prov).join(", ");
    match prov.kind {
        ProvenanceKind::Explicit => owners,
        ProvenanceKind::Factory => "factory".to_owned(),
        ProvenanceKind::OpenConfigDefault => format!("OpenConfig default of {owners}"),
        ProvenanceKind::NativeDefault => "default".to_owned(),
    }
}
