//! Requests of any kind to the services of an agent on a simulated box: each is answered without a panic, and its
//! memory stays below a bound that grows with the request.
//!
//! Each target runs for `BOLERO_RANDOM_TEST_TIME_MS` (a second when it is not set). Half of the requests are random
//! bytes, half are messages that [`requests`] makes of them.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

mod memory;
mod requests;
mod rig;

use prost::Message;

use self::requests::Source;
use self::rig::call;

/// Runs one method over bytes, and over requests that are made of them.
fn fuzz<M: Message>(method: &str, make: impl Fn(&mut Source) -> M + std::panic::RefUnwindSafe) {
    bolero::check!().for_each(|input: &[u8]| {
        call(method, || input.to_vec());
        call(method, || make(&mut Source::new(input)).encode_to_vec());
    });
}

#[test]
fn gets() {
    fuzz("/gnmi.gNMI/Get", Source::get);
}

#[test]
fn sets() {
    fuzz("/gnmi.gNMI/Set", Source::set);
}

#[test]
fn subscribes() {
    fuzz("/gnmi.gNMI/Subscribe", Source::subscribe);
}

#[test]
fn authz_rotations() {
    fuzz("/gnsi.authz.v1.Authz/Rotate", Source::authz);
}

#[test]
fn pathz_rotations() {
    fuzz("/gnsi.pathz.v1.Pathz/Rotate", Source::pathz);
}

#[test]
fn certz_rotations() {
    fuzz("/gnsi.certz.v1.Certz/Rotate", Source::certz);
}

#[test]
fn rotations_of_accounts() {
    fuzz("/gnsi.credentialz.v1.Credentialz/RotateAccountCredentials", Source::account_credentials);
}

#[test]
fn rotations_of_host_parameters() {
    fuzz("/gnsi.credentialz.v1.Credentialz/RotateHostParameters", Source::host_parameters);
}
