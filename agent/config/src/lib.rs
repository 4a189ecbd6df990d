//! Configuration of the device: the requests of all owners, and the resulting effective tree.
//!
//! Start at [`schema`] for the models, at [`tree`] for the data structure of configuration and state, at
//! [`configuration`] for the effect of a request. Everything here is a pure function of its arguments: no socket,
//! file, clock or lock, except for the lock of the table of names ([`name`]). The YANG text is part of the binary.
//!
//! Each module uses those below it alone. From below: names, paths and values; [`schema`] and [`tree`]; the [`map`], and
//! all models; [`claims`], service plans and [`layer`]s; the [`union`]; one [`configuration`]; footprints and differences of
//! two; [`edit`]; and documents, boot configurations, fences and leases.

pub mod boot;
pub mod changes;
pub mod claims;
pub mod cli;
pub mod configuration;
pub mod difference;
pub mod document;
pub mod edit;
mod effective_status;
mod enum_names;
pub mod fence;
mod fenced_leaves;
pub mod footprint;
mod growth;
mod images;
pub mod instance;
pub mod intended;
pub mod json;
pub mod layer;
mod layer_key;
mod leaf_list;
pub mod lease;
pub mod limits;
pub mod map;
pub mod models;
pub mod name;
mod node_id;
pub mod path;
pub mod pending;
pub mod progress;
pub mod reserved;
pub mod resolve;
mod restore;
mod route_metric;
pub mod rows;
pub mod schema;
mod secret_nodes;
pub mod secrets;
mod service_plan;
pub mod services;
mod shared_path;
pub mod show;
mod text_form;
pub mod tree;
mod type_exchange;
pub mod union;
mod user_keys;
mod user_secrets;
pub mod value;

pub use boot::{BootChange, InitialConfiguration};
pub use changes::{ObjectChange, all_objects, changed_objects};
pub use claims::{
    Claim, ClaimChange, ClaimError, ClaimKey, Claims, GrowingClaim, PersistedOutput, ServiceTag,
};
pub use configuration::Configuration;
pub use difference::{LayerDifference, MAX_DIFFERENCE_LINES};
pub use edit::{Edit, EditCause, EditError, EditErrors, EditOperation, EditTarget, Payload};
pub use effective_status::EffectiveStatus;
pub use fence::{
    Fence, FenceChange, FenceItem, FenceOwner, FenceStanding, Fences, Lift, UnknownFenceOwner,
};
pub use footprint::{EditScope, Footprint};
pub use images::{Provenance, ProvenanceKind};
pub use instance::{InstancePath, Keys, Step};
pub use layer::{BootConfiguration, LayerKey, LayerSet, Layers, LeafMark, Namespace, Owner};
pub use lease::{LeasedPort, LeasedRoute};
pub use limits::{Limit, LimitExceeded};
pub use map::Map;
pub use models::{Models, ModelsError};
pub use name::Name;
pub use path::{Elem, Path};
pub use pending::PendingEntry;
pub use progress::{CancelToken, ParseProgress, StopReason};
pub use resolve::{KeyPattern, MissingNode, PathError, PathPattern, PatternStep};
pub use route_metric::{IPV4_METRIC, IPV6_METRIC};
pub use rows::{
    LayersReader, RowChange, RowError, is_client_row, is_configuration_row, is_secret_row,
    is_service_row, layer_rows_diff,
};
pub use schema::{NodeId, Schema};
pub use secrets::{SecretLeaf, SecretRef, Secrets};
pub use shared_path::SharedPath;
pub use tree::{Branch, Child, LeafMeta, List, NodeRef, StoredMeta, Tree};
pub use type_exchange::{ExchangeMode, PackageChange, TypeExchange};
pub use value::{Scalar, Value};

#[cfg(test)]
mod tests;
