//! Rights of calls that are under way: a stream ends as soon as its caller could no longer begin it.
//!
//! Users, roles, policies, TLS profiles and the switch of gNSI each count their changes in one [`holdfast_base::AccessEpoch`].
//! [`Layer`] sits behind authentication and authorization, in front of every service, and gives each call a
//! [`CallPermission`]. While the epoch does not move, checking a right is one comparison; when it moves, authentication and
//! authorization are asked again, once for each call. The loss of a right ends both directions of a stream: the
//! client reads the reason, the handler finds its stream broken. A unary call whose request has arrived in full is
//! carried out.
//!
//! A change on trial takes no right away from a stream: it goes on as long as either the final state or the state
//! in force allows it. Otherwise an administrator could not finalize passwords, authorities or policies that lock
//! him out of the running call.

mod body;
mod layer;
mod right;
#[cfg(test)]
mod tests;

pub use self::layer::Layer;
pub(crate) use self::right::CallPermission;
