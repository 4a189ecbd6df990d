//! Artefacts that come without a stream: with a boot configuration, or when the box is bootstrapped.
//!
//! They take the same way as those of a rotation, each service's as one: [`Seeds::try_all`] has all of them in force or none,
//! [`Seeds::keep`] makes them final, [`Seeds::undo`] brings back what was there. One of the two has to follow, so all of
//! it belongs into a task that the client's going does not end.

use std::sync::Arc;

use holdfast_proto::gnsi::authz::v1 as authz;
use holdfast_proto::gnsi::pathz::v1 as pathz;

use super::authz::{Face, upload as authz_upload};
use super::pathz::{Face as PathzFace, read_upload};
use super::rotate::{self, Rotated, Trying};
use crate::caller::Caller;
use crate::gnsi::Gnsi;
use crate::northbound::Datastore;
use crate::northbound::status::Refusal;

/// What somebody brings for the services of gNSI; nothing for those that stay as they are.
#[derive(Debug, Default)]
pub(crate) struct Artefacts {
    pub(crate) authz: Option<authz::UploadRequest>,
    pub(crate) pathz: Option<pathz::UploadRequest>,
}

/// What is in force of it, and not final yet.
#[must_use = "what is tried has to be kept or undone"]
#[derive(Default)]
pub(crate) struct Seeds(Vec<Box<dyn Seed>>);

/// What one service tries.
#[tonic::async_trait]
trait Seed: Send + Sync {
    async fn keep(self: Box<Self>) -> Result<(), Refusal>;
    async fn undo(self: Box<Self>, why: &Refusal);
}

#[tonic::async_trait]
impl<S: Rotated> Seed for Trying<S> {
    async fn keep(self: Box<Self>) -> Result<(), Refusal> {
        (*self).keep().await
    }

    async fn undo(self: Box<Self>, why: &Refusal) {
        (*self).undo(why).await;
    }
}

impl Artefacts {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { authz, pathz } = self;
        authz.is_none() && pathz.is_none()
    }
}

impl Seeds {
    /// Brings all of them into force.
    ///
    /// # Errors
    /// When one of them is not taken: then none is in force.
    pub(crate) async fn try_all(
        core: &impl Datastore,
        gnsi: &Gnsi,
        caller: &Caller,
        artefacts: Artefacts,
    ) -> Result<Self, Refusal> {
        let mut seeds = Self::default();
        let Artefacts { authz, pathz } = artefacts;
        if let Some(given) = authz {
            let face = Arc::new(Face::new(core.clone(), gnsi));
            let (turn, uploads) = (&gnsi.authz.turn, vec![authz_upload(given)]);
            let tried = rotate::try_uploads(face, turn, caller, uploads).await;
            seeds.add(tried).await?;
        }
        if let Some(given) = pathz {
            let face = Arc::new(PathzFace::new(core.clone(), gnsi));
            let tried = match read_upload(given) {
                Ok(upload) => {
                    rotate::try_uploads(face, &gnsi.pathz.turn, caller, vec![upload]).await
                }
                Err(refusal) => Err(refusal),
            };
            seeds.add(tried).await?;
        }
        Ok(seeds)
    }

    async fn add<S: Rotated>(&mut self, tried: Result<Trying<S>, Refusal>) -> Result<(), Refusal> {
        match tried {
            Ok(tried) => self.0.push(Box::new(tried)),
            Err(refusal) => {
                std::mem::take(self).undo(&refusal).await;
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Makes them final.
    ///
    /// # Errors
    /// When one cannot be written down: it and those after it are as they were.
    pub(crate) async fn keep(self) -> Result<(), Refusal> {
        let mut failed = None;
        for seed in self.0 {
            match &failed {
                None => failed = seed.keep().await.err(),
                Some(refusal) => seed.undo(refusal).await,
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Brings back what was there before.
    pub(crate) async fn undo(self, why: &Refusal) {
        for seed in self.0.into_iter().rev() {
            seed.undo(why).await;
        }
    }
}

impl std::fmt::Debug for Seeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} services", self.0.len())
    }
}
