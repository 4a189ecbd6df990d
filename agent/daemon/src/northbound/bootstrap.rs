//! The payload of a bootstrap server, as one change of configuration and gNSI artefacts.

use std::sync::Arc;

use holdfast_base::Caller;
use holdfast_bootz::payload::BootstrapPayload;
use holdfast_config::{BootChange, BootConfiguration, InitialConfiguration};
use holdfast_core::Datastore;
use tracing::info;

use super::gnoi::{SetBoot, boot_of, set_boot};
use super::gnsi::Artefacts;
use super::status::Refusal;
use crate::gnsi::Gnsi;

/// Brings the whole payload into force, or nothing. Returns notes on parts that were left out, to be reported to the
/// server.
///
/// # Errors
/// Text that names the field that this box cannot apply, and the reason.
pub async fn bootstrap(
    core: &impl Datastore,
    gnsi: &Gnsi,
    caller: &Caller,
    payload: &BootstrapPayload,
) -> Result<Vec<String>, String> {
    let text = |refusal: Refusal| refusal.text().to_owned();
    let (boot, artefacts) = read(payload).map_err(text)?;
    let seeds = InitialConfiguration {
        vendor: payload.boot_config.dynamic_vendor_config.to_vec(),
        openconfig: payload.boot_config.dynamic_oc_config.to_vec(),
    };
    let change = BootChange::Bootstrap(Arc::new(boot), Arc::new(seeds));
    let set = SetBoot { boot: Some(change), artefacts, ..SetBoot::default() };
    set_boot(core, gnsi, caller, set).await.map_err(text)?;
    if let Some(metadata) = &payload.boot_config.metadata {
        // Names alone: who writes values says nothing of who may read the log.
        let names: Vec<&str> = metadata.fields.keys().map(String::as_str).collect();
        info!(?names, "the boot configuration has metadata, which `holdfast show boot` shows");
    }
    let mut notes = Vec::new();
    if !payload.response.boot_password_hash.is_empty() {
        notes.push("boot_password_hash is not applied: this box manages no boot loader".to_owned());
    }
    Ok(notes)
}

/// Reads the payload. An empty message counts as absent, because a new box has nothing that it could remove.
fn read(payload: &BootstrapPayload) -> Result<(BootConfiguration, Artefacts), Refusal> {
    fn filled<T: Clone + Default + PartialEq>(field: &Option<T>) -> Option<T> {
        field.clone().filter(|it| *it != T::default())
    }
    let response = &payload.response;
    let artefacts = Artefacts {
        authz: filled(&response.authz),
        pathz: filled(&response.pathz),
        certz: filled(&response.certz_profiles),
        credentials: filled(&response.credentials),
    };
    Ok((boot_of(&payload.boot_config)?, artefacts))
}
