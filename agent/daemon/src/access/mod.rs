//! Rights of calls that are under way: a stream ends when its caller could not begin it any more.
//!
//! Users, roles, policies, TLS profiles and the switch of gNSI each count their changes in one [`AccessEpoch`]. [`Layer`]
//! stands behind authentication and authorization, in front of every service, and gives each call a [`Right`]. As long
//! as the epoch stands still, a right is one comparison; when it moves, the questions of the beginning are asked again,
//! once for each call. A right that is gone ends both directions of a stream: the client reads why, the handler finds
//! its stream broken. A unary call whose request is all there is carried out.
//!
//! Something that is only tried takes no right away from a stream: it goes on as long as either what is final or what is
//! in force allows it. Else nobody could finalize new passwords, authorities or policies for himself.

mod body;
mod epoch;
mod layer;
mod right;
#[cfg(test)]
mod tests;

pub use self::epoch::AccessEpoch;
pub(crate) use self::epoch::Clock;
pub use self::layer::Layer;
pub(crate) use self::right::Right;
