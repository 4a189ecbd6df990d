//! What `holdfast show` prints of the running agent.

use std::error::Error;
use std::fmt::Write as _;

use holdfast_config::json::{self, Flavour};
use holdfast_config::schema::{Node, Origin};
use holdfast_config::tree::Found;
use holdfast_scheduler::Status;

use crate::core::CoreHandle;
use crate::local::Inspect;
use crate::northbound::Datastore;
use crate::settings::Shown;

/// Answers the local socket out of revisions and the engine's own account.
#[derive(Debug)]
pub struct Inspector(CoreHandle);

impl Inspector {
    pub fn new(core: CoreHandle) -> Self {
        Self(core)
    }

    /// Both origins as one JSON document, each under its name.
    fn trees(&self, shown: impl Fn(&Node) -> bool) -> Result<String, Box<dyn Error + Send + Sync>> {
        let revision = self.0.revision();
        let mut document = serde_json::Map::new();
        for (origin, name) in
            [(Origin::OpenConfig, "openconfig"), (Origin::Native, "holdfast_native")]
        {
            let schema = self.0.schema(origin);
            let found = Found::Branch(revision.tree(origin).root());
            let printed = json::print(schema, schema.root(), found, Flavour::Ietf, &shown);
            let printed = printed.unwrap_or_else(|| b"{}".to_vec());
            document.insert(name.to_owned(), serde_json::from_slice(&printed)?);
        }
        Ok(serde_json::to_string_pretty(&document)? + "\n")
    }
}

#[tonic::async_trait]
impl Inspect for Inspector {
    async fn show(&self, what: Shown) -> Result<String, Box<dyn Error + Send + Sync>> {
        match what {
            Shown::Config => self.trees(|node| node.config),
            Shown::State => self.trees(|node| !node.config),
            Shown::Values => Ok(table(&self.0.statuses(false).await?)),
            Shown::Pending => Ok(match table(&self.0.statuses(true).await?) {
                table if table.is_empty() => "nothing is pending\n".to_owned(),
                table => table,
            }),
        }
    }
}

/// A line for each value: its state, what it is called, and what it waits for or failed with.
fn table(statuses: &[Status]) -> String {
    let mut text = String::new();
    for status in statuses {
        // Writing into a string cannot fail.
        let _ =
            writeln!(text, "{:<13} {}{}", status.state.to_string(), status.label, reason(status));
    }
    text
}

fn reason(status: &Status) -> String {
    let detail = &status.detail;
    if let Some(invalid) = &detail.invalid {
        return format!(": {invalid}");
    }
    if let Some(error) = &detail.error {
        return format!(": {error}");
    }
    match detail.unmet.is_empty() {
        true => String::new(),
        false => format!(": waits for {}", detail.unmet.join(", ")),
    }
}
