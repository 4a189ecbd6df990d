//! Status of a bootstrap, for people and in state leaves.

use std::{collections::VecDeque, fmt, sync::Arc};

use holdfast_bootz::client::{BootstrapRecord, BootstrapStage};
use holdfast_config::{Elem, InstancePath, Path, Schema, Value};

/// Lines of the status text that are kept: a few attempts of about ten steps.
const MAX_LINES: usize = 64;

/// Recent steps, and the state of the client.
#[derive(Clone, Debug, Default)]
pub(super) struct BootzStatus {
    account: VecDeque<Arc<str>>,
    record: BootstrapRecord,
}

impl BootzStatus {
    pub(super) fn new(record: BootstrapRecord) -> Self {
        Self { account: VecDeque::new(), record }
    }

    pub(super) fn log_line(&mut self, line: &str) {
        if self.account.len() == MAX_LINES {
            self.account.pop_front();
        }
        self.account.push_back(line.into());
    }

    pub(super) fn set(&mut self, record: BootstrapRecord) {
        self.record = record;
    }

    /// Leaves of `/system/bootz/state`, in the native model.
    pub(super) fn leaves(&self, native: &Schema) -> Vec<(InstancePath, Option<Value>)> {
        let telemetry = &self.record.telemetry;
        let checksum = (!telemetry.checksum.is_empty()).then_some(telemetry.checksum.as_str());
        let leaves = [
            ("status", Some(Value::Enum(telemetry.status.name().into()))),
            ("checksum", checksum.map(|checksum| Value::Str(checksum.into()))),
            ("error-count", Some(Value::Uint(telemetry.error_count))),
            ("last-boot-attempt", telemetry.last_attempt.map(Value::Uint)),
        ];
        let leaves = leaves.into_iter();
        leaves.filter_map(|(name, value)| Some((path(native, name)?, value))).collect()
    }
}

fn path(native: &Schema, leaf: &str) -> Option<InstancePath> {
    let elem = |name: &str| Elem { name: name.to_owned(), keys: Vec::new() };
    let elems = ["system", "state", "bootz", leaf].map(elem).into();
    native.resolve_write(&Path { elems }).ok()
}

impl fmt::Display for BootzStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.account {
            writeln!(f, "  {line}")?;
        }
        let telemetry = &self.record.telemetry;
        match &self.record.parameters {
            None => writeln!(f, "bootz: nothing to do")?,
            Some(parameters) => {
                let stage = match parameters.stage {
                    BootstrapStage::Attempting => "attempting",
                    BootstrapStage::Reporting { .. } => "reporting",
                };
                writeln!(f, "bootz: {stage} by {}", parameters.entry)?;
            }
        }
        writeln!(f, "status: {}", telemetry.status.name())?;
        writeln!(f, "failed attempts: {}", telemetry.error_count)
    }
}
