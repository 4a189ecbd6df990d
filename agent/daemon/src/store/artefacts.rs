//! What the gNSI services keep outside of every tree: policies, certificates, keys and credentials; and what waits for
//! another version of the software.
//!
//! One table for each service, from the name of the artefact to its version, its age and its content. The content is the
//! service's own; only it reads it. Nothing of it is ever part of a layer, where a Get could show it. Only what is final
//! is here: an artefact that is merely tried is in memory, so that a start finds what was final before.

use std::collections::BTreeMap;
use std::fmt;

use redb::{
    ReadTransaction, ReadableTable, ReadableTableMetadata, TableDefinition, WriteTransaction,
};
use zeroize::Zeroizing;

/// Version and age as the client gave them, content.
type Row = (&'static str, u64, &'static [u8]);

/// The service that an artefact belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ArtefactTable {
    /// By user and kind: hashes of passwords, authorized keys, principals.
    Credentialz,
    /// The one policy of the services.
    Authz,
    /// The one policy of the paths.
    Pathz,
    /// By profile and entity: certificates, bundles of trust, revocation lists.
    Certz,
    /// The software that was activated last, and the boot configuration that waits for it, secrets included.
    Activation,
}

/// One artefact as its service gave it. The content does not appear in `Debug`, and is erased from memory with it.
#[derive(Clone, PartialEq, Eq)]
pub struct Artefact {
    /// As the client named it.
    pub version: String,
    /// When it was made, in seconds since 1970, or whatever the client said.
    pub created_on: u64,
    pub content: Zeroizing<Vec<u8>>,
}

/// One artefact to write, or to remove when there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtefactChange {
    pub table: ArtefactTable,
    pub name: String,
    pub artefact: Option<Artefact>,
}

/// All artefacts by service and name.
pub type Artefacts = BTreeMap<ArtefactTable, BTreeMap<String, Artefact>>;

impl ArtefactTable {
    const ALL: [Self; 5] =
        [Self::Credentialz, Self::Authz, Self::Pathz, Self::Certz, Self::Activation];

    fn definition(self) -> TableDefinition<'static, &'static str, Row> {
        TableDefinition::new(match self {
            Self::Credentialz => "gnsi-credentialz",
            Self::Authz => "gnsi-authz",
            Self::Pathz => "gnsi-pathz",
            Self::Certz => "gnsi-certz",
            Self::Activation => "activation",
        })
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

/// Makes the tables that are not there yet.
pub(super) fn make(write: &WriteTransaction) -> Result<(), redb::Error> {
    for table in ArtefactTable::ALL {
        write.open_table(table.definition())?;
    }
    Ok(())
}

/// Everything that is there.
pub(super) fn read(read: &ReadTransaction) -> Result<Artefacts, redb::Error> {
    let of_table = |table: ArtefactTable| {
        let rows = read.open_table(table.definition())?;
        let artefacts = rows.iter()?.map(|row| {
            let (name, value) = row?;
            let (version, created_on, content) = value.value();
            let (version, content) = (version.to_owned(), Zeroizing::new(content.to_vec()));
            Ok((name.value().to_owned(), Artefact { version, created_on, content }))
        });
        Ok((table, artefacts.collect::<Result<_, redb::Error>>()?))
    };
    ArtefactTable::ALL.into_iter().map(of_table).collect()
}

/// Writes artefacts, of whichever services.
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

/// Takes everything out of the tables, but certificates where those are to stay; the answer is how many went.
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
