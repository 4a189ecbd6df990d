//! How a service gets new artefacts: uploaded, tried, and then finalized or taken back.
//!
//! One machine for all services that rotate. [`Rotation`] knows what is final and what is tried; it decides which
//! upload is accepted, what has to be carried out, and what brings the final state back. Whoever drives it does the
//! work, in this order:
//!
//! | the client | the machine | to be done |
//! |---|---|---|
//! | opens the stream | [`Rotation::open`] | hold the lock of the service |
//! | uploads | [`Rotation::upload`] | bring [`Trial::now`] into force in place of [`Trial::before`], then answer |
//! | finalizes | [`Rotation::finalize`] | write [`Finalizing::now`] down, then [`Finalizing::written`] |
//! | does anything else, or goes | [`Rotation::end`] | carry out the [`RollBack`] that this gives |
//!
//! Every method takes the machine away and gives it back only on success: a step that fails is the end, and what is to
//! be taken back comes with the reason.

use std::fmt;

/// What a service rotates, and its rules. A value of it is what the rules need to know besides, often nothing.
pub trait Rotating {
    /// All that a rotation of the service may change, as one value. Cloned often: large parts belong behind an `Arc`.
    type State: Clone;
    /// What one message of the client brings.
    type Upload;
    /// What the client is told once that is in force.
    type Reply;
    /// Why an upload is not taken.
    type Refusal: std::error::Error;

    /// The version that the upload names and the state uses already, for what the upload would replace. The service
    /// says what that is; a service without such a rule says `None`.
    fn version_in_use(&self, state: &Self::State, upload: &Self::Upload) -> Option<String>;

    /// What the state would be. Nothing is in force after it; everything about the upload that can be wrong is found
    /// here, before anything is touched.
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
pub struct Rotation<R: Rotating> {
    /// What is written down, and comes back.
    last: R::State,
    /// What is in force instead, or on the way to be.
    tried: Option<R::State>,
}

/// An upload that is to be tried.
pub struct Trial<R: Rotating> {
    pub rotation: Rotation<R>,
    /// In force until now.
    pub before: R::State,
    pub now: R::State,
    /// For the client, once `now` is in force.
    pub reply: R::Reply,
}

/// What was tried is to be kept.
pub struct Finalizing<R: Rotating> {
    last: R::State,
    tried: R::State,
}

/// What is to be taken back: `from` may be in force as a whole, in part, or not at all.
#[derive(Clone, PartialEq, Eq)]
pub struct RollBack<S> {
    pub from: S,
    pub to: S,
}

/// A rotation that cannot go on.
pub struct Broken<R: Rotating> {
    pub reason: Reason<R::Refusal>,
    pub roll_back: Option<RollBack<R::State>>,
}

/// Why a step is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason<E: std::error::Error> {
    #[error("version `{version}` is in use already: upload another one, or set force_overwrite")]
    VersionInUse { version: String },
    #[error("nothing was uploaded that could be finalized")]
    NothingUploaded,
    #[error(transparent)]
    Refused(E),
}

impl<R: Rotating> Rotation<R> {
    /// Begins with what is final.
    pub fn open(last: R::State) -> Self {
        Self { last, tried: None }
    }

    /// What is in force, or was brought on its way last: what the next upload changes.
    pub fn current(&self) -> &R::State {
        self.tried.as_ref().unwrap_or(&self.last)
    }

    /// True when there is something to finalize.
    pub fn is_tried(&self) -> bool {
        self.tried.is_some()
    }

    /// Takes an upload in. Without `overwrite` its version must be a new one, against what is final and against what
    /// is tried.
    ///
    /// # Errors
    /// With what is to be taken back, when the version is in use or the service does not take the upload.
    pub fn upload(
        self,
        rules: &R,
        upload: R::Upload,
        overwrite: bool,
    ) -> Result<Trial<R>, Broken<R>> {
        let in_use = |state| rules.version_in_use(state, &upload).filter(|_| !overwrite);
        if let Some(version) = in_use(&self.last).or_else(|| in_use(self.current())) {
            return Err(self.broken(Reason::VersionInUse { version }));
        }
        let before = self.current().clone();
        match rules.apply(&before, upload) {
            Ok((now, reply)) => {
                let rotation = Self { last: self.last, tried: Some(now.clone()) };
                Ok(Trial { rotation, before, now, reply })
            }
            Err(refusal) => Err(self.broken(Reason::Refused(refusal))),
        }
    }

    /// The client wants to keep what it tried.
    ///
    /// # Errors
    /// When it tried nothing since it finalized last.
    pub fn finalize(self) -> Result<Finalizing<R>, Broken<R>> {
        match self.tried {
            Some(tried) => Ok(Finalizing { last: self.last, tried }),
            None => Err(self.broken(Reason::NothingUploaded)),
        }
    }

    /// The end, whatever its cause: what was tried and not finalized has to go.
    pub fn end(self) -> Option<RollBack<R::State>> {
        let to = self.last;
        self.tried.map(|from| RollBack { from, to })
    }

    fn broken(self, reason: Reason<R::Refusal>) -> Broken<R> {
        Broken { reason, roll_back: self.end() }
    }
}

impl<R: Rotating> Finalizing<R> {
    /// What is written down until now.
    pub fn before(&self) -> &R::State {
        &self.last
    }

    /// What is to be written down in its place.
    pub fn now(&self) -> &R::State {
        &self.tried
    }

    /// It is written down and cannot be taken back any more. A service whose stream goes on goes on with this.
    pub fn written(self) -> Rotation<R> {
        Rotation { last: self.tried, tried: None }
    }

    /// It could not be written down, and counts as taken back.
    pub fn failed(self) -> RollBack<R::State> {
        RollBack { from: self.tried, to: self.last }
    }
}

/// None of them shows its states: they may hold secrets.
macro_rules! opaque {
    ($($name:literal: $type:ty;)*) => {$(
        impl<R: Rotating> fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($name)
            }
        }
    )*};
}

opaque! {
    "Rotation": Rotation<R>;
    "Trial": Trial<R>;
    "Finalizing": Finalizing<R>;
}

impl<S> fmt::Debug for RollBack<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RollBack")
    }
}

impl<R: Rotating> fmt::Debug for Broken<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broken").field("reason", &self.reason).finish_non_exhaustive()
    }
}

/// What the leaves about age show, in nanoseconds, of the seconds that a client gave. The seconds themselves are
/// whatever the client says, so they may be more than nanoseconds can count; then there is no such leaf.
///
/// Source: `created_on` of the gNSI messages is in seconds, `created-on` of the models in nanoseconds.
pub fn created_on_ns(created_on: u64) -> Option<u64> {
    created_on.checked_mul(1_000_000_000)
}

#[cfg(test)]
mod tests;
