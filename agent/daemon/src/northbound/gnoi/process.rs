//! KillProcess: the choice of the process and of the signal.

use holdfast_base::{Caller, ErrorChain};
use holdfast_proto::gnoi::system::KillProcessRequest;
use holdfast_proto::gnoi::system::kill_process_request;
use tracing::info;

use crate::northbound::status::Refusal;
use crate::processes::{KillError, ProcessSelector, Signal, SignalOutcome, signal};
use crate::reboot::Reboots;

/// Signals a process of the agent. The agent itself restarts in place, as for a reboot of the agent.
pub(super) fn kill(
    reboots: &Reboots,
    caller: &Caller,
    request: KillProcessRequest,
) -> Result<(), Refusal> {
    let signal_kind = match kill_process_request::Signal::try_from(request.signal) {
        Ok(kill_process_request::Signal::Term) => Signal::TERM,
        Ok(kill_process_request::Signal::Kill) => Signal::KILL,
        Ok(kill_process_request::Signal::Hup) => Signal::HUP,
        Ok(kill_process_request::Signal::Abrt) => Signal::ABORT,
        Ok(kill_process_request::Signal::Unspecified) | Err(_) => {
            let number = request.signal;
            return Err(Refusal::invalid(format!(
                "signal {number} is unknown: use TERM, KILL, HUP or ABRT"
            )));
        }
    };
    let selector = ProcessSelector {
        pid: Some(request.pid).filter(|pid| *pid != 0),
        name: Some(request.name).filter(|name| !name.is_empty()),
    };
    let activity = signal(&selector, signal_kind, request.restart)?;
    info!(caller = %caller.name, ?selector, signal = ?signal_kind, "signalling a process");
    match activity {
        SignalOutcome::Signalled => Ok(()),
        SignalOutcome::RestartAgent => Ok(reboots.restart("KillProcess".to_owned())?),
    }
}

impl From<KillError> for Refusal {
    fn from(error: KillError) -> Self {
        let text = ErrorChain(&error).to_string();
        match error {
            KillError::NoPid(_) | KillError::NoName(_) => Self::missing(text),
            KillError::Agent | KillError::NoRestart(_) => Self::precondition(text),
            KillError::Signal { .. } | KillError::List(_) => Self::internal(text),
            _ => Self::invalid(text),
        }
    }
}
