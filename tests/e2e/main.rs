//! The real binary in network namespaces, called over TLS and observed in the kernel.
//!
//! One module for each feature. Each test has a namespace of its own, which ends with its thread.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod accounts;
mod attacks_certz;
mod attacks_listener;
mod attacks_logins;
mod attacks_pathz;
mod attacks_reading;
mod attacks_rights;
mod attacks_writing;
mod authz;
mod boot;
mod bootz;
mod bootz_dhcp;
mod capabilities;
mod certz;
mod clients;
mod commits;
mod credentialz;
mod disk;
mod documents;
mod drift;
mod ethernet;
mod factory;
mod get;
mod gnoi;
mod lease;
mod os;
mod page;
mod pairs;
mod pathz;
mod pending;
mod playground;
mod probe;
mod process;
mod refused;
mod reserved;
mod restart;
mod routes;
mod scenarios;
mod set;
mod shells;
mod show;
mod subinterfaces;
mod subscribe;
mod transaction;
mod union;
mod union_cases;
mod unit;
mod user_secrets;
mod users;
