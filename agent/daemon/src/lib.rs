//! The agent of one network box: it holds the configuration it was given and makes the box match it.
//!
//! Start at `main.rs` for the command line and at [`settings`] for what can be set from outside. A request comes in
//! through TLS, is tied to a [`holdfast_base::Caller`], and reaches the core task, which owns layers and engine.
//!
//! Absent on purpose: a cleartext listener, a default password, and any decision about configuration outside the
//! core. A failure to read or apply the configuration at the start ends the process with a message that names the
//! file. A failure of what only clients need (a certificate, a socket) is logged, and it is tried again while the box
//! is configured. A failure of one request is that request's status and nothing else.

pub mod aaa;
pub mod accounting;
mod adopt;
#[cfg(test)]
mod agent_tests;
pub mod auth;
pub mod bootz;
pub mod budget;
pub mod command;
mod completion;
mod config_command;
pub mod config_file;
pub mod connections;
mod deadline;
pub mod device;
pub mod dhcp;
pub mod doctor;
mod executable;
mod fault_profile;
mod fault_watch;
pub mod faults;
pub mod files;
mod forwarding;
pub mod gnsi;
mod hardware;
mod http_client;
pub mod image;
mod introspection;
pub mod listeners;
pub mod local;
pub mod logging;
mod look;
pub mod methods;
pub mod network;
pub mod northbound;
mod package_files;
pub mod packages;
pub mod privileges;
pub mod probing;
pub mod process;
pub mod processes;
mod prompt;
pub mod reboot;
mod refusals;
pub mod run;
pub mod server;
pub mod service_socket;
pub mod services;
pub mod settings;
pub mod slots;
mod socket_for_all;
pub mod software;
mod ssh_logins;
pub mod support_bundle;
pub mod sync_summary;
mod systemd;
pub mod tls;
pub mod trace;
mod unit;
pub mod upkeep;
pub mod users;
mod watchdog;
