//! gNSI: the services that read and change the security state of the box.
//!
//! Each service only translates messages: their meaning is decided by `holdfast_security`, and [`crate::gnsi`] brings
//! the result into force. [`rotate`] drives the streams of all services that rotate.

mod acctz;
mod artefact_trial;
mod authz;
mod certz;
mod credentialz;
pub(super) mod pathz;
pub(super) mod rotate;

use holdfast_base::Caller;
use holdfast_config::layer;
use holdfast_core::Datastore;

pub(super) use self::acctz::AcctzService;
pub(crate) use self::artefact_trial::{ArtefactTrial, Artefacts};
pub(super) use self::authz::AuthzService;
pub(super) use self::certz::CertzService;
pub(super) use self::credentialz::CredentialzService;
pub(super) use self::pathz::PathzService;
pub(super) use self::rotate::may_finalize;
use tonic::{Request, Status};

use super::status::Refusal;

/// The caller of a request, if gNSI is switched on.
fn reader<T>(core: &impl Datastore, request: &Request<T>) -> Result<Caller, Status> {
    let caller = Caller::authenticated(request)?;
    switched_on(core)?;
    Ok(caller)
}

/// The caller of a request that needs the role admin, if gNSI is switched on. `attempt` names the RPC in a refusal.
fn admin<T>(core: &impl Datastore, request: &Request<T>, attempt: &str) -> Result<Caller, Status> {
    let caller = Caller::authenticated(request)?;
    caller.require_admin(attempt)?;
    switched_on(core)?;
    Ok(caller)
}

/// Refuses all requests while the operator has switched gNSI off.
fn switched_on(core: &impl Datastore) -> Result<(), Refusal> {
    if core.configuration().layers().is_on(layer::Namespace::Gnsi) {
        Ok(())
    } else {
        Err(Refusal::precondition("gNSI is switched off on this box"))
    }
}
