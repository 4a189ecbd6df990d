//! Values in gNMI's PROTO encoding.

use super::types::{BuiltinType, Type, ValueError, decimal_digits};
use super::{Node, NodeKind};
use crate::leaf_list::first_repeated;
use crate::value::{Scalar, Value, bare_identity};

impl Node {
    /// Parses the scalar of a leaf, or the list of a leaf-list.
    ///
    /// # Errors
    /// When the value does not fit the leaf, or the node is not a leaf.
    pub fn parse_scalar(&self, scalar: &Scalar) -> Result<Value, ValueError> {
        let Some(leaf) = &self.leaf else {
            return Err(ValueError("a container or list has no value of its own".into()));
        };
        match (&self.kind, scalar) {
            (NodeKind::LeafList, Scalar::List(items)) => self.leaf_list(
                items.iter().map(|item| leaf.ty.parse_scalar(item)).collect::<Result<_, _>>()?,
            ),
            (NodeKind::LeafList, _) => Err(ValueError("a leaf-list takes a list of values".into())),
            _ => leaf.ty.parse_scalar(scalar),
        }
    }

    /// Parses CLI text: one value, or those of a leaf-list.
    ///
    /// # Errors
    /// When a value does not fit the leaf, or the node is not a leaf.
    pub fn parse_texts(&self, texts: &[&str]) -> Result<Value, ValueError> {
        match (&self.leaf, &self.kind, texts) {
            (Some(leaf), NodeKind::LeafList, _) => self.leaf_list(
                texts.iter().map(|text| leaf.ty.parse_text(text)).collect::<Result<_, _>>()?,
            ),
            (Some(leaf), _, [text]) => leaf.ty.parse_text(text),
            _ => Err(ValueError("one value is expected here".into())),
        }
    }

    /// Makes the value of a leaf-list, in its canonical order.
    ///
    /// # Errors
    /// When a value occurs twice, which configuration must not (RFC 7950 7.7).
    pub fn leaf_list(&self, mut values: Vec<Value>) -> Result<Value, ValueError> {
        if self.user_ordered {
            if let Some(value) = first_repeated(&values).filter(|_| self.config) {
                return Err(ValueError(format!("`{value}` is there twice")));
            }
            return Ok(Value::List(values.into()));
        }
        values.sort();
        match values.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) if self.config => Err(ValueError(format!("`{}` is there twice", pair[0]))),
            _ => Ok(Value::List(values.into())),
        }
    }
}

impl Type {
    /// Parses one scalar. Names, addresses and similar types are strings. Integers may have either signed or
    /// unsigned form. The deprecated float and decimal forms are accepted and never written.
    ///
    /// # Errors
    /// When the value does not fit this type.
    pub fn parse_scalar(&self, scalar: &Scalar) -> Result<Value, ValueError> {
        match scalar {
            Scalar::Str(text) => self.scalar_text(text),
            Scalar::Bool(true) if self.has_empty() => self.empty(),
            Scalar::Bool(value) => self.bool(*value),
            Scalar::Int(value) => self.whole(*value).unwrap_or_else(|| self.int(*value)),
            Scalar::Uint(value) => i64::try_from(*value)
                .ok()
                .and_then(|v| self.whole(v))
                .unwrap_or_else(|| self.uint(*value)),
            Scalar::Double(value) => self.fraction(&value.to_string()),
            Scalar::Decimal { digits, precision } => {
                let scale = u8::try_from(*precision)
                    .map_err(|_| ValueError("too many fraction digits".into()))?;
                self.fraction(&Value::Decimal { digits: *digits, scale }.to_string())
            }
            Scalar::Bytes(bytes) => self.binary(bytes.clone()),
            Scalar::List(_) => Err(ValueError(format!("a list of values is not {self}"))),
        }
    }

    fn scalar_text(&self, text: &str) -> Result<Value, ValueError> {
        match &self.base {
            BuiltinType::Str { .. }
            | BuiltinType::Enum(_)
            | BuiltinType::Identity(_)
            | BuiltinType::Bits(_) => self.str(text),
            BuiltinType::Union(members) => {
                match members.iter().find_map(|m| m.scalar_text(text).ok()) {
                    Some(Value::Str(text)) => Ok(Value::Str(self.canonical(text))),
                    Some(value) => Ok(value),
                    None => Err(ValueError(format!("`{text}` is not {self}"))),
                }
            }
            _ => Err(ValueError(format!("the string \"{text}\" is not {self}"))),
        }
    }

    /// An integer as a decimal64; `None` for other types.
    fn whole(&self, value: i64) -> Option<Result<Value, ValueError>> {
        matches!(self.base, BuiltinType::Decimal { .. }).then(|| self.fraction(&value.to_string()))
    }

    fn fraction(&self, text: &str) -> Result<Value, ValueError> {
        match &self.base {
            BuiltinType::Decimal { scale, .. } => match decimal_digits(text, *scale) {
                Some(digits) => self.decimal(digits),
                None => Err(ValueError(format!("`{text}` is not {self}"))),
            },
            BuiltinType::Union(members) => match members.iter().find_map(|m| m.fraction(text).ok())
            {
                Some(value) => Ok(value),
                None => Err(ValueError(format!("`{text}` is not {self}"))),
            },
            _ => Err(ValueError(format!("`{text}` is not {self}"))),
        }
    }

    fn has_empty(&self) -> bool {
        match &self.base {
            BuiltinType::Empty => true,
            BuiltinType::Union(members) => {
                members.iter().any(|m| m.has_empty()) && self.bool(true).is_err()
            }
            _ => false,
        }
    }
}

impl Value {
    /// The value in PROTO encoding: names and texts as strings, identities without their module, decimal64 as a
    /// double, `empty` as true.
    pub fn to_scalar(&self) -> Scalar {
        match self {
            Self::Bool(value) => Scalar::Bool(*value),
            Self::Int(value) => Scalar::Int(*value),
            Self::Uint(value) => Scalar::Uint(*value),
            Self::Decimal { .. } => Scalar::Double(self.to_string().parse().unwrap_or_default()),
            Self::Str(text) => Scalar::Str(text.to_string()),
            Self::Enum(name) => Scalar::Str(name.to_string()),
            Self::Identity(name) => Scalar::Str(bare_identity(name).to_owned()),
            Self::Binary(bytes) => Scalar::Bytes(bytes.to_vec()),
            Self::Bits(_) => Scalar::Str(self.to_string()),
            Self::Empty => Scalar::Bool(true),
            Self::List(values) => Scalar::List(values.iter().map(Value::to_scalar).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Schema;
    use super::*;

    // proves 1.39, 1.44
    #[test]
    fn scalars_are_read_by_the_type_of_their_leaf() {
        let text = |t: &str| Scalar::Str(t.into());
        check("/interfaces/interface/config/mtu", &Scalar::Uint(1500), "1500");
        check("/interfaces/interface/config/mtu", &Scalar::Int(1500), "1500");
        check(
            "/interfaces/interface/config/mtu",
            &Scalar::Int(-1),
            "`-1` is not a uint16 within 0..65535",
        );
        check(
            "/interfaces/interface/config/mtu",
            &Scalar::Uint(70000),
            "`70000` is not a uint16 within 0..65535",
        );
        check(
            "/interfaces/interface/config/mtu",
            &text("1500"),
            "the string \"1500\" is not a uint16 within 0..65535",
        );
        check("/interfaces/interface/config/enabled", &Scalar::Bool(false), "false");
        check(
            "/interfaces/interface/config/enabled",
            &text("false"),
            "the string \"false\" is not true or false",
        );
        check("/interfaces/interface/config/type", &text("iana-if-type:bridge"), "bridge");
        check("/interfaces/interface/config/type", &text("bridge"), "bridge");
        check("/system/config/login-banner", &text("hello\n"), "hello\n");
        check(
            "/system/config/login-banner",
            &Scalar::List(vec![]),
            "a list of values is not a string",
        );
        check("/system/config", &text("x"), "a container or list has no value of its own");
    }

    // proves 1.39
    #[test]
    fn a_decimal_is_written_as_a_double_and_read_in_every_form() {
        let ty = Type {
            base: BuiltinType::Decimal { scale: 2, ranges: [(i64::MIN, i64::MAX)].into() },
            canonical: None,
            name: None,
        };
        let value = Value::Decimal { digits: 150, scale: 2 };
        for scalar in [
            Scalar::Double(1.5),
            Scalar::Decimal { digits: 15, precision: 1 },
            Scalar::Decimal { digits: 1500, precision: 3 },
        ] {
            assert_eq!(ty.parse_scalar(&scalar), Ok(value.clone()));
        }
        assert_eq!(ty.parse_scalar(&Scalar::Int(2)), Ok(Value::Decimal { digits: 200, scale: 2 }));
        assert!(ty.parse_scalar(&Scalar::Double(0.125)).is_err());
        assert_eq!(value.to_scalar(), Scalar::Double(1.5));
        let list = Value::List([Value::Identity("m:A".into()), Value::Empty].into());
        assert_eq!(
            list.to_scalar(),
            Scalar::List(vec![Scalar::Str("A".into()), Scalar::Bool(true)])
        );
    }

    #[track_caller]
    fn check(path: &str, scalar: &Scalar, want: &str) {
        let schema = Schema::openconfig().unwrap();
        let node = schema.node(schema.find(path).unwrap());
        let got = node.parse_scalar(scalar).map_or_else(|e| e.to_string(), |v| v.to_string());
        assert_eq!(got, want);
    }
}
