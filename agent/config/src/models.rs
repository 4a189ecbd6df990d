//! Both schemas and the map between them.

use crate::map::{Map, MapError};
use crate::rows::{NameError, Names};
use crate::schema::{Origin, Schema, SchemaError};

/// All that is known of the models; made once at start.
#[derive(Debug)]
pub struct Models {
    pub openconfig: Schema,
    pub native: Schema,
    pub map: Map,
    names: [Names; 2],
}

/// Why the models that are part of the agent could not be made ready.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Names(#[from] NameError),
}

impl Models {
    /// Compiles what is part of the agent.
    ///
    /// # Errors
    /// When a model or the map is broken: a mistake of ours, found by the first test.
    pub fn load() -> Result<Self, ModelsError> {
        let (openconfig, native) = (Schema::openconfig()?, Schema::native()?);
        let map = Map::new(&openconfig, &native)?;
        let names = [Names::new(&openconfig)?, Names::new(&native)?];
        Ok(Self { openconfig, native, map, names })
    }

    /// What stored rows call the nodes of a schema.
    pub(crate) fn names(&self, origin: Origin) -> &Names {
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
