//! Rotation of artefacts: an upload is tried, and then finalized or rolled back.
//!
//! One state machine for all services that rotate. [`Rotation`] holds the final and the tried state; it decides
//! whether an upload is accepted, which change must be carried out, and how to return to the final state. The
//! caller does the work, in this order:
//!
//! | the client | the machine | to be done |
//! |---|---|---|
//! | opens the stream | [`Rotation::open`] | hold the lock of the service |
//! | uploads | [`Rotation::upload`] | bring [`Trial::now`] into force in place of [`Trial::before`], then answer |
//! | finalizes | [`Rotation::finalize`] | write [`Finalizing::now`] down, then [`Finalizing::written`] |
//! | does anything else, or goes | [`Rotation::end`] | carry out the [`RollBack`] that this gives |
//!
//! Every method consumes the machine and returns it only on success. A failed step is the end, and its error
//! carries the roll-back.

use std::fmt;

/// Rules of a service that rotates artefacts. The value holds the facts that the rules need, often none.
pub trait RotationRules {
    /// Everything that a rotation of the service may change, as one value. Cloned often: large parts belong behind
    /// an `Arc`.
    type State: Clone;
    /// Content of one client message.
    type Upload;
    /// Answer to the client once the upload is in force.
    type Reply;
    /// Reason for refusing an upload.
    type Refusal: std::error::Error;

    /// The version that the upload names and that the state uses already for the artefact to be replaced. `None`
    /// for a service without such a rule.
    fn version_in_use(&self, state: &Self::State, upload: &Self::Upload) -> Option<String>;

    /// Computes the state after an upload, without effects. All checks of the upload happen here, before anything
    /// is changed.
    ///
    /// # Errors
    /// When the upload contradicts itself, the state or what this box can do.
    fn apply(
        &self,
        state: &Self::State,
        upload: Self::Upload,
    ) -> Result<(Self::State, Self::Reply), Self::Refusal>;
}

/// One rotation between two steps of its client.
pub struct Rotation<R: RotationRules> {
    /// State on disk, to which a roll-back returns.
    last: R::State,
    /// State in force, or being brought into force, in place of `last`.
    tried: Option<R::State>,
}

/// An accepted upload, to be brought into force.
pub struct Trial<R: RotationRules> {
    pub rotation: Rotation<R>,
    /// State that was in force until now.
    pub before: R::State,
    pub now: R::State,
    /// Answer to the client, once `now` is in force.
    pub reply: R::Reply,
}

/// A tried state that is about to be written to disk.
pub struct FinalizeStep<R: RotationRules> {
    last: R::State,
    tried: R::State,
}

/// Way back to the final state. `from` may be in force as a whole, in part, or not at all.
#[derive(Clone, PartialEq, Eq)]
pub struct RollBack<S> {
    pub from: S,
    pub to: S,
}

/// A rotation that failed.
pub struct RotationFailure<R: RotationRules> {
    pub reason: RotationError<R::Refusal>,
    pub roll_back: Option<RollBack<R::State>>,
}

/// Reason for refusing a step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RotationError<E: std::error::Error> {
    #[error("version `{version}` is in use already: upload another one, or set force_overwrite")]
    VersionInUse { version: String },
    #[error("there is nothing to finalize: upload first")]
    NothingUploaded,
    #[error(transparent)]
    Refused(E),
}

impl<R: RotationRules> Rotation<R> {
    /// Begins a rotation from the final state.
    pub fn open(last: R::State) -> Self {
        Self { last, tried: None }
    }

    /// State that the next upload changes: the tried one, else the final one.
    pub fn current(&self) -> &R::State {
        self.tried.as_ref().unwrap_or(&self.last)
    }

    /// True when there is a state to finalize.
    pub fn is_tried(&self) -> bool {
        self.tried.is_some()
    }

    /// Accepts an upload. Without `overwrite` its version must differ from both the final and the tried one.
    ///
    /// # Errors
    /// With the roll-back, when the version is in use or the service refuses the upload.
    pub fn upload(
        self,
        rules: &R,
        upload: R::Upload,
        overwrite: bool,
    ) -> Result<Trial<R>, RotationFailure<R>> {
        let in_use = |state| rules.version_in_use(state, &upload).filter(|_| !overwrite);
        if let Some(version) = in_use(&self.last).or_else(|| in_use(self.current())) {
            return Err(self.broken(RotationError::VersionInUse { version }));
        }
        let before = self.current().clone();
        match rules.apply(&before, upload) {
            Ok((now, reply)) => {
                let rotation = Self { last: self.last, tried: Some(now.clone()) };
                Ok(Trial { rotation, before, now, reply })
            }
            Err(refusal) => Err(self.broken(RotationError::Refused(refusal))),
        }
    }

    /// Begins to make the tried state final.
    ///
    /// # Errors
    /// When nothing was tried since the last finalize.
    pub fn finalize(self) -> Result<FinalizeStep<R>, RotationFailure<R>> {
        match self.tried {
            Some(tried) => Ok(FinalizeStep { last: self.last, tried }),
            None => Err(self.broken(RotationError::NothingUploaded)),
        }
    }

    /// Ends the rotation, whatever the cause. A tried state that was not finalized has to be rolled back.
    pub fn end(self) -> Option<RollBack<R::State>> {
        let to = self.last;
        self.tried.map(|from| RollBack { from, to })
    }

    fn broken(self, reason: RotationError<R::Refusal>) -> RotationFailure<R> {
        RotationFailure { reason, roll_back: self.end() }
    }
}

impl<R: RotationRules> FinalizeStep<R> {
    /// State on disk until now.
    pub fn before(&self) -> &R::State {
        &self.last
    }

    /// State to write to disk in its place.
    pub fn now(&self) -> &R::State {
        &self.tried
    }

    /// Continues after the write: the state is final and can no longer be rolled back.
    pub fn written(self) -> Rotation<R> {
        Rotation { last: self.tried, tried: None }
    }

    /// Rolls back after the write failed.
    pub fn failed(self) -> RollBack<R::State> {
        RollBack { from: self.tried, to: self.last }
    }
}

/// States may hold secrets, so `Debug` prints none of them.
macro_rules! opaque {
    ($($name:literal: $type:ty;)*) => {$(
        impl<R: RotationRules> fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($name)
            }
        }
    )*};
}

opaque! {
    "Rotation": Rotation<R>;
    "Trial": Trial<R>;
    "Finalizing": FinalizeStep<R>;
}

impl<S> fmt::Debug for RollBack<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RollBack")
    }
}

impl<R: RotationRules> fmt::Debug for RotationFailure<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broken").field("reason", &self.reason).finish_non_exhaustive()
    }
}

/// Converts the creation time that a client gave in seconds to the nanoseconds of the `created-on` leaves. `None`
/// on overflow, since clients may send any number; such a leaf is then absent.
///
/// Source: `created_on` of the gNSI messages is in seconds, `created-on` of the models in nanoseconds.
pub fn created_on_ns(created_on: u64) -> Option<u64> {
    created_on.checked_mul(1_000_000_000)
}

#[cfg(test)]
mod tests;
