//! What the gNSI services keep outside of every tree: policies, certificates, keys and credentials.
//!
//! One table for each service, from the name of the artefact to its version, its age and its content. The content is the
//! service's own; only it reads it. Nothing of it is ever part of a layer, where a Get could show it.

use redb::{ReadableTableMetadata, TableDefinition, WriteTransaction};

/// Version as the client named it, nanoseconds since 1970 at which it was made, content.
pub(super) type Artefact = (&'static str, u64, &'static [u8]);

/// By user: hashes of passwords, authorized keys, principals.
const CREDENTIALZ: TableDefinition<'_, &str, Artefact> = TableDefinition::new("gnsi-credentialz");
/// The one policy of the services, and the one before it.
const AUTHZ: TableDefinition<'_, &str, Artefact> = TableDefinition::new("gnsi-authz");
/// The one policy of the paths, and the one before it.
const PATHZ: TableDefinition<'_, &str, Artefact> = TableDefinition::new("gnsi-pathz");
/// By profile and entity: certificates, bundles of trust, revocation lists.
const CERTZ: TableDefinition<'_, &str, Artefact> = TableDefinition::new("gnsi-certz");

const ALL: [TableDefinition<'_, &str, Artefact>; 4] = [CREDENTIALZ, AUTHZ, PATHZ, CERTZ];

/// Makes the tables that are not there yet.
pub(super) fn make(write: &WriteTransaction) -> Result<(), redb::Error> {
    for table in ALL {
        write.open_table(table)?;
    }
    Ok(())
}

/// Takes everything out of them.
pub(super) fn clear(write: &WriteTransaction) -> Result<(), redb::Error> {
    for table in ALL {
        write.delete_table(table)?;
    }
    make(write)
}

/// How many artefacts there are.
pub(super) fn count(write: &WriteTransaction) -> Result<u64, redb::Error> {
    ALL.into_iter().try_fold(0, |sum, table| Ok(sum + write.open_table(table)?.len()?))
}
