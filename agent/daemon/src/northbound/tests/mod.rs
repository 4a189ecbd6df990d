//! The services through a real channel, over a small datastore that has configuration and no kernel; commits and
//! their extensions over the core and the simulated kernel.

mod acctz;
mod authz;
pub(crate) mod certz;
mod commits;
mod credentialz;
mod extensions;
mod fake;
mod gnoi;
mod harness;
mod limits;
mod native;
mod os;
mod pathz;
mod previews;
mod reading;
mod reboots;
mod refusals;
mod rotations_of_pathz;
mod seeds;
mod streaming;
mod text;
mod unknown_paths;
mod user_secrets;
mod writing;
