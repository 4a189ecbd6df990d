//! Values on the wire: the three encodings of models. ASCII is for CLI text.

use holdfast_config::json::{self, Flavour};
use holdfast_config::limits::LEAF_LIST_ENTRIES;
use holdfast_config::schema::Schema;
use holdfast_config::value::bare_identity;
use holdfast_config::{NodeId, Scalar, Value};
use holdfast_proto::gnmi::{self, TypedValue, typed_value};

use super::status::Refusal;

/// Encoding of the values of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    JsonIetf,
    Proto,
}

/// Encodings that Capabilities announces.
pub(super) const SUPPORTED: [gnmi::Encoding; 4] =
    [gnmi::Encoding::Json, gnmi::Encoding::JsonIetf, gnmi::Encoding::Proto, gnmi::Encoding::Ascii];

impl Encoding {
    pub(super) fn read(number: i32) -> Result<Self, Refusal> {
        match gnmi::Encoding::try_from(number) {
            Ok(gnmi::Encoding::Json) => Ok(Self::Json),
            Ok(gnmi::Encoding::JsonIetf) => Ok(Self::JsonIetf),
            Ok(gnmi::Encoding::Proto) => Ok(Self::Proto),
            Ok(other) => Err(unsupported(other.as_str_name())),
            Err(_) => Err(unsupported(&number.to_string())),
        }
    }

    /// A leaf as one value.
    pub(super) fn leaf(self, schema: &Schema, leaf: NodeId, value: &Value) -> TypedValue {
        match self {
            Self::Proto => TypedValue { value: Some(scalar(value)) },
            Self::Json | Self::JsonIetf => {
                self.document(json::print_value(schema, leaf, value, self.flavour()))
            }
        }
    }

    /// Form of the member names in documents; PROTO has no documents.
    pub(super) fn flavour(self) -> Flavour {
        match self {
            Self::Json | Self::Proto => Flavour::Plain,
            Self::JsonIetf => Flavour::Ietf,
        }
    }

    /// A subtree as one document. Only the two JSON encodings have documents.
    pub(super) fn document(self, text: Vec<u8>) -> TypedValue {
        let value = match self {
            Self::Json | Self::Proto => typed_value::Value::JsonVal(text.into()),
            Self::JsonIetf => typed_value::Value::JsonIetfVal(text.into()),
        };
        TypedValue { value: Some(value) }
    }
}

pub(super) fn unsupported(name: &str) -> Refusal {
    let ascii = "encoding ASCII is for CLI text only";
    Refusal::unimplemented(format!(
        "encoding {name} is unsupported here: use JSON, JSON_IETF or PROTO; {ascii}"
    ))
}

/// A leaf in the PROTO encoding (section 2.2.3 of the specification).
fn scalar(value: &Value) -> typed_value::Value {
    match value {
        Value::Bool(value) => typed_value::Value::BoolVal(*value),
        Value::Int(value) => typed_value::Value::IntVal(*value),
        Value::Uint(value) => typed_value::Value::UintVal(*value),
        #[expect(clippy::cast_precision_loss, reason = "gNMI carries decimal64 as a double")]
        Value::Decimal { digits, scale } => {
            typed_value::Value::DoubleVal(*digits as f64 / 10f64.powi(i32::from(*scale)))
        }
        Value::Str(text) => typed_value::Value::StringVal(text.to_string()),
        Value::Enum(name) => typed_value::Value::StringVal(name.to_string()),
        Value::Identity(name) => typed_value::Value::StringVal(bare_identity(name).to_owned()),
        Value::Binary(octets) => typed_value::Value::BytesVal(octets.to_vec().into()),
        Value::Bits(_) => typed_value::Value::StringVal(value.to_string()),
        Value::Empty => typed_value::Value::BoolVal(true),
        Value::List(values) => {
            let element =
                values.iter().map(|value| TypedValue { value: Some(scalar(value)) }).collect();
            typed_value::Value::LeaflistVal(gnmi::ScalarArray { element })
        }
    }
}

/// Value that a Set supplies for one path.
#[derive(Debug)]
pub(super) enum SetValue {
    Json {
        text: prost::bytes::Bytes,
        ietf: bool,
    },
    Scalar(Scalar),
    /// CLI text, in encoding ASCII.
    Text(String),
}

impl SetValue {
    pub(super) fn read(update: &gnmi::Update) -> Result<Self, Refusal> {
        #[expect(deprecated, reason = "old clients send `value`; it is read, never written")]
        let old = &update.value;
        match (&update.val, old) {
            (Some(value), _) => Self::of(value),
            (None, Some(value)) => Self::of_old(value),
            (None, None) => Err(Refusal::invalid("an update without a value")),
        }
    }

    fn of(value: &TypedValue) -> Result<Self, Refusal> {
        match &value.value {
            Some(typed_value::Value::JsonVal(text)) => {
                Ok(Self::Json { text: text.clone(), ietf: false })
            }
            Some(typed_value::Value::JsonIetfVal(text)) => {
                Ok(Self::Json { text: text.clone(), ietf: true })
            }
            Some(typed_value::Value::AsciiVal(text)) => Ok(Self::Text(text.clone())),
            Some(value) => read_scalar(value).map(Self::Scalar),
            None => Err(Refusal::invalid("a value without a type")),
        }
    }

    fn of_old(value: &gnmi::Value) -> Result<Self, Refusal> {
        let text = value.value.clone();
        match Encoding::read(value.r#type)? {
            Encoding::Json => Ok(Self::Json { text, ietf: false }),
            Encoding::JsonIetf => Ok(Self::Json { text, ietf: true }),
            Encoding::Proto => Err(unsupported("PROTO in the deprecated `value`")),
        }
    }
}

/// One entry of a leaf-list.
fn read_entry(entry: &TypedValue) -> Result<Scalar, Refusal> {
    match &entry.value {
        Some(typed_value::Value::LeaflistVal(_)) => {
            Err(Refusal::invalid("a leaf-list inside a leaf-list"))
        }
        Some(value) => read_scalar(value),
        None => Err(Refusal::invalid("a leaf-list with a value without a type")),
    }
}

fn read_scalar(value: &typed_value::Value) -> Result<Scalar, Refusal> {
    #[expect(
        deprecated,
        reason = "old clients send float_val and decimal_val; they are read, never written"
    )]
    Ok(match value {
        typed_value::Value::StringVal(text) => Scalar::Str(text.clone()),
        typed_value::Value::IntVal(value) => Scalar::Int(*value),
        typed_value::Value::UintVal(value) => Scalar::Uint(*value),
        typed_value::Value::BoolVal(value) => Scalar::Bool(*value),
        typed_value::Value::BytesVal(octets) => Scalar::Bytes(octets.to_vec()),
        typed_value::Value::FloatVal(value) => Scalar::Double(f64::from(*value)),
        typed_value::Value::DoubleVal(value) => Scalar::Double(*value),
        typed_value::Value::DecimalVal(value) => {
            Scalar::Decimal { digits: value.digits, precision: value.precision }
        }
        typed_value::Value::LeaflistVal(values) => {
            LEAF_LIST_ENTRIES.check(values.element.len())?;
            Scalar::List(values.element.iter().map(read_entry).collect::<Result<_, _>>()?)
        }
        typed_value::Value::JsonVal(_) | typed_value::Value::JsonIetfVal(_) => {
            return Err(Refusal::invalid("JSON inside a leaf-list"));
        }
        typed_value::Value::AsciiVal(_) => return Err(unsupported("ASCII")),
        typed_value::Value::AnyVal(_) => return Err(unsupported("any_val")),
        typed_value::Value::ProtoBytes(_) => return Err(unsupported("proto_bytes")),
    })
}
