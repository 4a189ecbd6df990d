//! The real binary in network namespaces, called over TLS and observed in the kernel.
//!
//! One module for each feature. Each test has a namespace of its own, which ends with its thread.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod acctz;
mod atomicity;
mod attacks_certz;
mod attacks_listener;
mod attacks_logins;
mod attacks_pathz;
mod attacks_reading;
mod attacks_rights;
mod attacks_writing;
mod authz;
mod boot_config;
mod bootz;
mod bootz_dhcp;
mod capabilities;
mod certz;
mod clients;
mod commits;
mod credentialz;
mod documents;
mod drift;
mod ethernet;
mod factory;
mod full_disk;
mod get;
mod gnoi;
mod lease;
mod make_try;
mod os;
mod pathz;
mod pending;
mod ping_traceroute;
mod process;
mod refused_sets;
mod reserved_items;
mod restart;
mod routes;
mod scenarios;
mod service_cases;
mod service_handlers;
mod service_waits;
mod services;
mod set;
mod shells;
mod show;
mod subinterfaces;
mod subscribe;
mod systemd_unit;
mod union;
mod union_cases;
mod user_secrets;
mod users;
mod veth_pairs;
mod web_page;
