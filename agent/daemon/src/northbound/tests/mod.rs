//! The services through a real channel, over a small datastore that has configuration and no kernel; commits and
//! their extensions over the core and the simulated kernel.

mod acctz;
mod appended_nodes;
mod authz;
mod boot_artefacts;
pub(crate) mod certz;
mod cli_text;
mod commits;
mod credentialz;
mod dry_run;
mod extensions;
mod fake_datastore;
mod gnoi;
mod harness;
mod limits;
mod native;
mod os;
mod pathz;
mod pathz_rotation;
mod reading;
mod reboots;
mod refusals;
mod streaming;
mod unknown_paths;
mod user_secrets;
mod writing;
