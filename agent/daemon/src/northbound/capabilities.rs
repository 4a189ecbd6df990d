//! Capabilities: models, encodings and version of gNMI; and the choice of models by `use_models`.

use std::collections::HashSet;

use holdfast_config::schema::{Module, ModuleId, Schema};
use holdfast_core::Datastore;
use holdfast_proto::gnmi;

use super::encoding;
use super::extensions;
use super::status::Refusal;

/// The version of the protocol: the `gnmi_service` option of `gnmi.proto`.
const GNMI_VERSION: &str = "0.10.0";

pub(super) fn capabilities(
    core: &impl Datastore,
    request: &gnmi::CapabilityRequest,
) -> Result<gnmi::CapabilityResponse, Refusal> {
    extensions::check_none(&request.extension)?;
    let all_models = core.models();
    let mut models: Vec<gnmi::ModelData> = Vec::new();
    for model in [&all_models.openconfig, &all_models.native]
        .into_iter()
        .flat_map(|schema| schema.modules())
        .map(|(_, module)| model(module))
    {
        // Both schemas import some modules, which are listed once.
        if !models.contains(&model) {
            models.push(model);
        }
    }
    Ok(gnmi::CapabilityResponse {
        supported_models: models,
        supported_encodings: encoding::SUPPORTED.map(|encoding| encoding as i32).to_vec(),
        g_nmi_version: GNMI_VERSION.to_owned(),
        extension: Vec::new(),
    })
}

fn model(module: &Module) -> gnmi::ModelData {
    gnmi::ModelData {
        name: module.name.to_string(),
        organization: module.organization.to_string(),
        version: module.version.to_string(),
    }
}

/// The modules that `use_models` names; none means all of them.
///
/// A model that none of `schemas` has, or has in another version, is refused, because the client could not read the
/// answer. The organization is ignored.
pub(super) fn use_models(
    schemas: [&Schema; 2],
    models: &[gnmi::ModelData],
) -> Result<Option<[HashSet<ModuleId>; 2]>, Refusal> {
    if models.is_empty() {
        return Ok(None);
    }
    let mut chosen = [HashSet::new(), HashSet::new()];
    for model in models {
        let mut found = false;
        for (schema, chosen) in schemas.iter().zip(&mut chosen) {
            for (number, module) in schema.modules() {
                if is(module, model) {
                    chosen.insert(number);
                    found = true;
                }
            }
        }
        if !found {
            return Err(Refusal::invalid(format!(
                "use_models: there is no model `{}` {}here, see Capabilities",
                model.name,
                if model.version.is_empty() {
                    String::new()
                } else {
                    format!("of version {} ", model.version)
                },
            )));
        }
    }
    Ok(Some(chosen))
}

fn is(module: &Module, model: &gnmi::ModelData) -> bool {
    module.name == model.name && (model.version.is_empty() || module.version == model.version)
}
