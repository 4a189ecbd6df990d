//! gNSI: the security state of the box, for those who may change it.
//!
//! Each service is a face: it translates messages, hands them to `holdfast_security` for what they mean and to
//! [`crate::gnsi`] for what is in force. [`rotate`] drives the streams of all that rotate.

mod acctz;
mod authz;
mod certz;
mod credentialz;
mod pathz;
pub(super) mod rotate;
mod seed;

use holdfast_base::Caller;
use holdfast_config::layer;

pub(super) use self::acctz::AcctzService;
pub(super) use self::authz::AuthzService;
pub(super) use self::certz::CertzService;
pub(super) use self::credentialz::CredentialzService;
pub(super) use self::pathz::{PathzService, draft as pathz_draft};
pub(super) use self::rotate::may_finalize;
pub(crate) use self::seed::{Artefacts, Seeds};
use tonic::{Request, Status};

use super::datastore::Datastore;
use super::status::Refusal;

/// Who asks, where gNSI answers.
fn reader<T>(core: &impl Datastore, request: &Request<T>) -> Result<Caller, Status> {
    let caller = Caller::authenticated(request)?;
    switched_on(core)?;
    Ok(caller)
}

/// The same for an `attempt` that is an administrator's.
fn admin<T>(core: &impl Datastore, request: &Request<T>, attempt: &str) -> Result<Caller, Status> {
    let caller = Caller::authenticated(request)?;
    caller.require_admin(attempt)?;
    switched_on(core)?;
    Ok(caller)
}

/// A box on which the operator has switched gNSI off answers none of its services.
fn switched_on(core: &impl Datastore) -> Result<(), Refusal> {
    match core.configuration().layers().is_on(layer::Service::Gnsi) {
        true => Ok(()),
        false => Err(Refusal::precondition("gNSI is switched off on this box")),
    }
}
