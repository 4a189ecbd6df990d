//! Inspection of the core: questions that run between two of its events.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use holdfast_config::{Configuration, Models};
use holdfast_platform::ForeignRoutes;
use holdfast_platform::objects::Registry;
use holdfast_scheduler::{Engine, Now, TransactionRecord};
use smol_str::SmolStr;
use tokio::sync::oneshot;

use super::CoreHandle;
use crate::examination::{Examiner, ObservedBox};
use crate::planning::MaintainedLinks;
use crate::request::CommitError;

/// The core as a question sees it. The loop waits meanwhile, so a question takes time in proportion to its answer, and
/// answers are rendered elsewhere.
#[derive(Debug)]
pub struct CoreView<'a> {
    pub engine: &'a Engine,
    pub configuration: &'a Configuration,
    pub now: Now,
    pub(crate) foreign_routes: &'a ForeignRoutes,
    pub(crate) examiner: &'a Examiner,
}

impl CoreView<'_> {
    pub fn models(&self) -> &Models {
        self.configuration.models()
    }

    pub fn objects(&self) -> &Registry {
        &self.examiner.registry
    }
}

/// Requests of the local socket and of services that change no configuration.
#[derive(Debug)]
pub(crate) enum Query {
    Inspect(Inspection),
    /// Reads the whole box again; answered with the transactions since, when the repairs are done.
    Resync(oneshot::Sender<Vec<Arc<TransactionRecord>>>),
    /// Waits until nothing is under way.
    AwaitIdle(oneshot::Sender<()>),
    /// Tells these links as down, and no others; answered when a revision shows it.
    ForceDown(BTreeSet<SmolStr>, oneshot::Sender<()>),
    /// Takes these links as maintained, and no others.
    Maintain(MaintainedLinks, oneshot::Sender<()>),
}

/// One question, with its answer channel inside.
pub(crate) struct Inspection(pub(crate) Box<dyn FnOnce(&CoreView<'_>) + Send>);

impl fmt::Debug for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inspection")
    }
}

impl CoreHandle {
    /// Asks the core a question.
    ///
    /// # Errors
    /// When the core has stopped.
    pub async fn inspect<T: Send + 'static>(
        &self,
        question: impl FnOnce(&CoreView<'_>) -> T + Send + 'static,
    ) -> Result<T, CommitError> {
        let (answer, answered) = oneshot::channel();
        let inspect = move |view: &CoreView<'_>| drop(answer.send(question(view)));
        self.query(Query::Inspect(Inspection(Box::new(inspect)))).await?;
        answered.await.map_err(|_| CommitError::Stopped)
    }

    /// Reads the whole box, repairs what differs, and returns the transactions since the request.
    ///
    /// # Errors
    /// When the core has stopped.
    pub async fn resync(&self) -> Result<Vec<Arc<TransactionRecord>>, CommitError> {
        let (answer, answered) = oneshot::channel();
        self.query(Query::Resync(answer)).await?;
        answered.await.map_err(|_| CommitError::Stopped)
    }

    /// Returns when nothing is under way: the box matches its configuration, except for pending and failed values.
    ///
    /// # Errors
    /// When the core has stopped.
    pub async fn wait_until_idle(&self) -> Result<(), CommitError> {
        let (answer, answered) = oneshot::channel();
        self.query(Query::AwaitIdle(answer)).await?;
        answered.await.map_err(|_| CommitError::Stopped)
    }

    /// Tells these links as down, and no others, from the next revision on: their `oper-status` is DOWN whatever the kernel
    /// shows, and `observed-status` says what that is. The kernel is asked for nothing, and no configuration changes. State of
    /// a link on which a commit works is shown when that ends, as always. Not kept over a restart.
    ///
    /// # Errors
    /// When the core has stopped.
    pub async fn force_down(&self, links: BTreeSet<SmolStr>) -> Result<(), CommitError> {
        let (answer, answered) = oneshot::channel();
        self.query(Query::ForceDown(links, answer)).await?;
        answered.await.map_err(|_| CommitError::Stopped)
    }

    pub(crate) async fn query(&self, query: Query) -> Result<(), CommitError> {
        self.query_tx.send(query).await.map_err(|_| CommitError::Stopped)
    }
}

impl CoreHandle {
    /// Tells the core all links that are maintained. Changes that are planned after the answer are judged by that. A restart
    /// forgets it.
    ///
    /// # Errors
    /// When the core has stopped.
    pub async fn maintain(&self, links: MaintainedLinks) -> Result<(), CommitError> {
        let (answer, answered) = oneshot::channel();
        self.query(Query::Maintain(links, answer)).await?;
        answered.await.map_err(|_| CommitError::Stopped)
    }
}

impl CoreHandle {
    /// State of the box now, with the newest configuration.
    pub fn observed_box(&self) -> ObservedBox {
        ObservedBox {
            configuration: self.configuration_rx.borrow().clone(),
            revision: self.chain.newest(),
            engine: self.engine.clone(),
            registry: Arc::clone(&self.registry),
        }
    }
}
