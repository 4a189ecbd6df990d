//! Artefacts of the gNSI services (policies, certificates, keys, credentials), data that waits for another version of
//! the software, packages of services, the history of service transactions, and open alarms.
//!
//! One table for each service, from the name of an artefact to its version, creation time and content. Only the
//! service itself interprets the content. Artefacts are never part of a layer, where a Get could show them. Only
//! final artefacts are stored; a tried one is in memory, so that a restart returns to the final one.

use std::collections::BTreeMap;
use std::fmt;

use redb::{
    ReadTransaction, ReadableTable, ReadableTableMetadata, TableDefinition, WriteTransaction,
};
use zeroize::Zeroizing;

/// Version and creation time from the client, content.
type Row = (&'static str, u64, &'static [u8]);

/// The service that an artefact belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ArtefactTable {
    /// Password hashes, authorized keys and principals, by user and kind.
    Credentialz,
    /// The authz policy.
    Authz,
    /// The pathz policy.
    Pathz,
    /// Certificates, trust bundles and revocation lists, by profile and entity.
    Certz,
    /// Software activated last, and the boot configuration that waits for it, including secrets.
    Activation,
    /// Installed packages of services, by the name of the type: the content is the archive.
    ServicePackages,
    /// The last service transactions, by their ids.
    ServiceTransactions,
    /// Open alarms, by their ids.
    Alarms,
}

/// One artefact of a service. `Debug` omits the content, which is wiped from memory on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct Artefact {
    /// Version string of the client.
    pub version: String,
    /// Seconds since 1970 by convention; the client may send any number.
    pub created_on: u64,
    pub content: Zeroizing<Vec<u8>>,
}

/// An artefact to write, or to remove when it is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtefactChange {
    pub table: ArtefactTable,
    pub name: String,
    pub artefact: Option<Artefact>,
}

/// All artefacts by service and name.
pub type Artefacts = BTreeMap<ArtefactTable, BTreeMap<String, Artefact>>;

holdfast_config::enum_names!(ArtefactTable {
    Credentialz = "gnsi-credentialz",
    Authz = "gnsi-authz",
    Pathz = "gnsi-pathz",
    Certz = "gnsi-certz",
    Activation = "activation",
    ServicePackages = "service-packages",
    ServiceTransactions = "service-transactions",
    Alarms = "alarms",
});

impl ArtefactTable {
    fn definition(self) -> TableDefinition<'static, &'static str, Row> {
        TableDefinition::new(self.name())
    }
}

impl fmt::Debug for Artefact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Artefact")
            .field("version", &self.version)
            .field("created_on", &self.created_on)
            .finish_non_exhaustive()
    }
}

/// Creates missing tables.
pub(super) fn make(write: &WriteTransaction) -> Result<(), redb::Error> {
    for table in ArtefactTable::ALL {
        write.open_table(table.definition())?;
    }
    Ok(())
}

/// Reads all artefacts.
pub(super) fn read(read: &ReadTransaction) -> Result<Artefacts, redb::Error> {
    let of_table = |table: ArtefactTable| {
        let rows = read.open_table(table.definition())?;
        let artefacts = rows.iter()?.map(|row| {
            let (name, value) = row?;
            let (version, created_on, content) = value.value();
            let version = version.to_owned();
            let content = Zeroizing::new(content.to_vec());
            Ok((name.value().to_owned(), Artefact { version, created_on, content }))
        });
        Ok((table, artefacts.collect::<Result<_, redb::Error>>()?))
    };
    ArtefactTable::ALL.into_iter().map(of_table).collect()
}

/// Writes artefacts of any services.
pub(super) fn write(
    write: &WriteTransaction,
    changes: &[ArtefactChange],
) -> Result<(), redb::Error> {
    for change in changes {
        let mut table = write.open_table(change.table.definition())?;
        let name = change.name.as_str();
        match &change.artefact {
            Some(artefact) => {
                let Artefact { version, created_on, content } = artefact;
                table.insert(name, (version.as_str(), *created_on, content.as_slice()))?;
            }
            None => {
                table.remove(name)?;
            }
        }
    }
    Ok(())
}

/// Removes all artefacts, except certificates if those are to stay. Returns the number removed.
pub(super) fn clear(
    write: &WriteTransaction,
    retain_certificates: bool,
) -> Result<u64, redb::Error> {
    let mut cleared = 0;
    for table in ArtefactTable::ALL {
        if table == ArtefactTable::Certz && retain_certificates {
            continue;
        }
        cleared += write.open_table(table.definition())?.len()?;
        write.delete_table(table.definition())?;
    }
    make(write)?;
    Ok(cleared)
}
