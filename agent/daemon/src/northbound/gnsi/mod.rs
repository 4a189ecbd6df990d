//! gNSI: the security state of the box, for those who may change it.
//!
//! Each service is a face: it translates messages, hands them to `holdfast_security` for what they mean and to
//! [`crate::gnsi`] for what is in force. [`rotate`] drives the streams of all that rotate.

#[allow(dead_code, reason = "the first service comes with the next change")]
pub(super) mod rotate;
