//! Counters of records and their readers, as polled leaves of the native model.

use holdfast_config::schema::Schema;
use holdfast_config::{InstancePath, MissingNode, NodeId, Value};
use holdfast_core::{PolledState, ServiceState};
use holdfast_platform::objects::GRPC_SERVER;
use holdfast_security::acctz::{CommandKind, ServiceFamily};
use holdfast_store::accounts::{AccountingLog, SOURCES, SourceKind, SubscribeCounts};
use holdfast_telemetry::PolledReading;

/// Paths of the counters.
#[derive(Clone, Debug)]
pub(super) struct AccountingLeaves {
    accounts: AccountingLog,
    sources: Vec<SourceLeaves>,
    requests: InstancePath,
    responses: InstancePath,
    truncated: InstancePath,
}

/// One kind of source. Its list entry has two keys, which are leaves as well.
#[derive(Clone, Debug)]
struct SourceLeaves {
    kind: SourceKind,
    names: [(InstancePath, Value); 2],
    records: InstancePath,
}

impl AccountingLeaves {
    pub(super) fn new(native: &Schema, accounts: AccountingLog) -> Result<Self, MissingNode> {
        let server = |name: &str| {
            let entry: &[_] = &[("name", GRPC_SERVER)];
            let above =
                [("system", &[][..]), ("grpc-server", entry), ("state", &[]), ("acctz", &[])];
            native.instance_path(&[&above[..], &[(name, &[])]].concat())
        };
        let sources = SOURCES.into_iter().map(|kind| source(native, kind));
        Ok(Self {
            accounts,
            sources: sources.collect::<Result<_, _>>()?,
            requests: server("record-requests")?,
            responses: server("record-responses")?,
            truncated: server("history-istruncated")?,
        })
    }

    /// The leaves for other accounts.
    pub(super) fn of(&self, accounts: AccountingLog) -> Self {
        Self { accounts, ..self.clone() }
    }

    /// State at the start: each kind of source with its names.
    pub(super) fn first_state(&self) -> ServiceState {
        let names = self.sources.iter().flat_map(|source| source.names.clone());
        names.map(|(path, value)| (path, Some(value))).collect()
    }
}

impl AccountingLeaves {
    fn counts(&self) -> Vec<(InstancePath, Value)> {
        let SubscribeCounts { requests, responses, truncated } = self.accounts.subscribe_counts();
        let served = [
            (&self.requests, requests),
            (&self.responses, responses),
            (&self.truncated, truncated),
        ];
        let recorded = self.sources.iter().map(|it| (&it.records, self.accounts.recorded(it.kind)));
        let all = served.into_iter().chain(recorded);
        all.map(|(path, count)| (path.clone(), Value::Uint(count))).collect()
    }
}

#[tonic::async_trait]
impl PolledState for AccountingLeaves {
    fn nodes(&self) -> Vec<NodeId> {
        let served = [&self.requests, &self.responses, &self.truncated].into_iter();
        let all = served.chain(self.sources.iter().map(|it| &it.records));
        all.filter_map(InstancePath::leaf).collect()
    }

    async fn read(&self) -> PolledReading {
        self.counts().into()
    }
}

fn source(native: &Schema, kind: SourceKind) -> Result<SourceLeaves, MissingNode> {
    let (service, name) = words(kind);
    let keys: &[_] = &[("service", service), ("type", name)];
    let leaf = |leaf: &str| {
        let path = [("system", &[][..]), ("acctz-source", keys), ("state", &[]), (leaf, &[])];
        native.instance_path(&path)
    };
    let word = |text: &'static str| Value::Enum(text.into());
    let names = [(leaf("service")?, word(service)), (leaf("type")?, word(name))];
    Ok(SourceLeaves { kind, names, records: leaf("records")? })
}

/// Names of a kind of source in the models.
fn words(kind: SourceKind) -> (&'static str, &'static str) {
    match kind {
        SourceKind::Rpc(family) => (
            "GRPC_SERVICE",
            match family {
                ServiceFamily::Other => "UNSPECIFIED",
                ServiceFamily::Gnmi => "GNMI",
                ServiceFamily::Gnoi => "GNOI",
                ServiceFamily::Gnsi => "GNSI",
            },
        ),
        SourceKind::Command(kind) => (
            "CMD_SERVICE",
            match kind {
                CommandKind::Shell => "SHELL",
                CommandKind::Cli => "CLI",
            },
        ),
    }
}
