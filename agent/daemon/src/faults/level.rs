//! Level of a source: all that it reports, whenever something in it has changed.

use holdfast_faults::{Condition, Input, Report, Source};
use smol_str::SmolStr;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendError;

/// The level that a source has told last.
#[derive(Debug)]
pub(super) struct ToldLevel {
    source: Source,
    inputs: mpsc::Sender<Input>,
    /// Conditions with their texts; `None` before the first level.
    told: Option<Vec<(Condition, SmolStr)>>,
}

impl ToldLevel {
    pub(super) fn new(source: Source, inputs: mpsc::Sender<Input>) -> Self {
        Self { source, inputs, told: None }
    }

    /// Tells what holds, unless it is what was told last.
    ///
    /// # Errors
    /// When nobody takes the reports any more.
    pub(super) async fn tell(&mut self, reports: Vec<Report>) -> Result<(), SendError<Input>> {
        let found: Vec<_> =
            reports.iter().map(|it| (it.condition.clone(), it.text.clone())).collect();
        if self.told.as_ref() != Some(&found) {
            self.inputs.send(Input::Level(self.source.clone(), reports)).await?;
            self.told = Some(found);
        }
        Ok(())
    }
}
