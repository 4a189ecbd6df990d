//! Both schemas and the map between them.

use crate::fenced_leaves::FenceNodes;
use crate::map::{Map, MapError};
use crate::schema::{HashCollision, NodeHashes, Origin, Schema, SchemaError, YangModule};

/// All models: one version of them, which a configuration and all that is read from it have in common. In a later version
/// every node has the same number; some may be unlinked.
#[derive(Debug)]
pub struct Models {
    pub openconfig: Schema,
    pub native: Schema,
    pub map: Map,
    /// Leaves that the fence layer may hold.
    pub(crate) fence: FenceNodes,
    names: [NodeHashes; 2],
    /// Number of versions before this one since the start.
    versions: u32,
}

/// Reason why models could not be loaded.
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
        Self::of(Schema::openconfig()?, Schema::native()?)
    }

    /// These models with another map, for tests of what the product's map does not use yet.
    #[cfg(test)]
    pub(crate) fn with_map(self, text: &str) -> Result<Self, MapError> {
        let map = Map::from_text(text, &self.openconfig, &self.native)?;
        Ok(Self { map, ..self })
    }

    /// These models with more modules of one origin, and with other texts of those that were appended before.
    ///
    /// # Errors
    /// When the modules cannot be compiled, see [`Schema::with_modules`], or their nodes cannot be told apart in stored
    /// rows.
    pub fn with_modules(
        &self,
        origin: Origin,
        modules: &[YangModule],
    ) -> Result<Self, ModelsError> {
        self.with_schema(self.schema(origin).with_modules(modules)?)
    }

    /// These models without an appended module of one origin.
    ///
    /// # Errors
    /// When the others cannot be compiled without it.
    pub fn without_module(&self, origin: Origin, name: &str) -> Result<Self, ModelsError> {
        self.with_schema(self.schema(origin).without_module(name)?)
    }

    fn with_schema(&self, schema: Schema) -> Result<Self, ModelsError> {
        let models = match schema.origin() {
            Origin::OpenConfig => Self::of(schema, self.native.clone()),
            Origin::Native => Self::of(self.openconfig.clone(), schema),
        };
        Ok(Self { versions: self.versions + 1, ..models? })
    }

    /// True when these models have all nodes of `other`: they are `other`, or a later version of it.
    pub fn includes(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.versions > other.versions
    }

    fn of(openconfig: Schema, native: Schema) -> Result<Self, ModelsError> {
        let map = Map::new(&openconfig, &native)?;
        let names = [NodeHashes::new(&openconfig)?, NodeHashes::new(&native)?];
        let fence = FenceNodes::find(&native);
        Ok(Self { openconfig, native, map, fence, names, versions: 0 })
    }

    /// Names of a schema's nodes in stored rows.
    pub(crate) fn names(&self, origin: Origin) -> &NodeHashes {
        match origin {
            Origin::OpenConfig => &self.names[0],
            Origin::Native => &self.names[1],
        }
    }

    /// Origin that a client means by a name: the name of an origin (empty means `openconfig`), or of a module that one of
    /// the models serves. `None` for any other name.
    pub fn origin(&self, name: &str) -> Option<Origin> {
        Origin::parse(name).or_else(|| {
            let serves = |origin: &Origin| {
                self.schema(*origin).modules().any(|(_, module)| module.name == name)
            };
            // Some modules of types are in both models.
            [Origin::OpenConfig, Origin::Native].into_iter().find(serves)
        })
    }

    pub fn schema(&self, origin: Origin) -> &Schema {
        match origin {
            Origin::OpenConfig => &self.openconfig,
            Origin::Native => &self.native,
        }
    }
}
