//! The output of `holdfast show boot`.

use std::error::Error;

use holdfast_config::Configuration;
use holdfast_proto::bootz::BootConfig;
use prost::Message;
use prost_types::value::Kind;
use serde_json::{Number, Value, json};

/// One JSON document: the boot configuration as GetBootConfig answers it, null if there is none, and a member that says
/// if it is on trial.
pub(crate) fn boot_document(
    configuration: &Configuration,
) -> Result<String, Box<dyn Error + Send + Sync>> {
    let layers = configuration.layers();
    let decoded = layers.boot.as_ref().map(|boot| BootConfig::decode(&boot.record[..]));
    let document = json!({
        "boot-config": decoded.transpose()?.map(boot_config),
        "is-tried": layers.boot_before.is_some(),
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn boot_config(config: BootConfig) -> Value {
    json!({
        "metadata": config.metadata.map(object),
        "vendor_config": String::from_utf8_lossy(&config.vendor_config),
        "oc_config": String::from_utf8_lossy(&config.oc_config),
    })
}

/// A `google.protobuf.Struct` as the JSON object that it represents.
fn object(of: prost_types::Struct) -> Value {
    of.fields.into_iter().map(|(name, it)| (name, value(it))).collect()
}

fn value(of: prost_types::Value) -> Value {
    match of.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::NumberValue(number)) => {
            Number::from_f64(number).map_or(Value::Null, Value::Number)
        }
        Some(Kind::StringValue(text)) => Value::String(text),
        Some(Kind::BoolValue(truth)) => Value::Bool(truth),
        Some(Kind::StructValue(fields)) => object(fields),
        Some(Kind::ListValue(list)) => list.values.into_iter().map(value).collect(),
    }
}
