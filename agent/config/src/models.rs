//! Both schemas and the map between them.

use crate::map::{Map, MapError};
use crate::rows::{HashCollision, NodeHashes};
use crate::schema::{Origin, Schema, SchemaError};

/// All models, loaded once at start.
#[derive(Debug)]
pub struct Models {
    pub openconfig: Schema,
    pub native: Schema,
    pub map: Map,
    names: [NodeHashes; 2],
}

/// Reason why the models in the binary could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Names(#[from] HashCollision),
}

impl Models {
    /// Compiles the models in the binary.
    ///
    /// # Errors
    /// When a model or the map is malformed, which is a bug that the first test would find.
    pub fn load() -> Result<Self, ModelsError> {
        let (openconfig, native) = (Schema::openconfig()?, Schema::native()?);
        let map = Map::new(&openconfig, &native)?;
        let names = [NodeHashes::new(&openconfig)?, NodeHashes::new(&native)?];
        Ok(Self { openconfig, native, map, names })
    }

    /// Names of a schema's nodes in stored rows.
    pub(crate) fn names(&self, origin: Origin) -> &NodeHashes {
        match origin {
            Origin::OpenConfig => &self.names[0],
            Origin::Native => &self.names[1],
        }
    }

    pub fn schema(&self, origin: Origin) -> &Schema {
        match origin {
            Origin::OpenConfig => &self.openconfig,
            Origin::Native => &self.native,
        }
    }
}
