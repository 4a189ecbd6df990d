//! Binary form of values: a tag followed by a compact, self-delimiting encoding.

use std::sync::Arc;

use smol_str::SmolStr;

use super::varint;
use crate::name::Name;
use crate::value::Value;

const FALSE: u8 = 0;
const TRUE: u8 = 1;
const INT: u8 = 2;
const UINT: u8 = 3;
const DECIMAL: u8 = 4;
const STR: u8 = 5;
const BINARY: u8 = 6;
const ENUM: u8 = 7;
const IDENTITY: u8 = 8;
const BITS: u8 = 9;
const EMPTY: u8 = 10;
const LIST: u8 = 11;

pub(super) fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Bool(false) => out.push(FALSE),
        Value::Bool(true) => out.push(TRUE),
        Value::Int(number) => {
            out.push(INT);
            varint::put(out, zigzag(*number));
        }
        Value::Uint(number) => {
            out.push(UINT);
            varint::put(out, *number);
        }
        Value::Decimal { digits, scale } => {
            out.extend([DECIMAL, *scale]);
            varint::put(out, zigzag(*digits));
        }
        Value::Str(text) => put_bytes(out, STR, text.as_bytes()),
        Value::Binary(octets) => put_bytes(out, BINARY, octets),
        Value::Enum(name) => put_bytes(out, ENUM, name.as_bytes()),
        Value::Identity(name) => put_bytes(out, IDENTITY, name.as_bytes()),
        Value::Bits(names) => {
            out.push(BITS);
            varint::put(out, names.len() as u64);
            names.iter().for_each(|name| put_bytes(out, STR, name.as_bytes()));
        }
        Value::Empty => out.push(EMPTY),
        Value::List(values) => {
            out.push(LIST);
            varint::put(out, values.len() as u64);
            values.iter().for_each(|value| put_value(out, value));
        }
    }
}

fn put_bytes(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    varint::put(out, bytes.len() as u64);
    out.extend(bytes);
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

/// Rest of the input.
pub(super) struct RowReader<'a>(pub(super) &'a [u8]);

pub(super) const SHORT: &str = "the row ends too early";

impl<'a> RowReader<'a> {
    pub(super) fn byte(&mut self) -> Result<u8, &'static str> {
        let (first, rest) = self.0.split_first().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn name(&mut self) -> Result<u32, &'static str> {
        let (name, rest) = self.0.split_first_chunk().ok_or(SHORT)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*name))
    }

    pub(super) fn value(&mut self) -> Result<Value, &'static str> {
        Ok(match self.byte()? {
            FALSE => Value::Bool(false),
            TRUE => Value::Bool(true),
            INT => Value::Int(self.signed()?),
            UINT => Value::Uint(self.number()?),
            DECIMAL => {
                let scale = self.byte()?;
                Value::Decimal { digits: self.signed()?, scale }
            }
            STR => Value::Str(SmolStr::new(self.text()?)),
            BINARY => Value::Binary(Arc::from(self.bytes()?)),
            ENUM => Value::Enum(self.known_name()?),
            IDENTITY => Value::Identity(self.known_name()?),
            BITS => Value::Bits(self.many(|reader| {
                reader.byte()?;
                reader.text().map(SmolStr::new)
            })?),
            EMPTY => Value::Empty,
            LIST => Value::List(self.many(Self::value)?),
            _ => return Err("a value is of an unknown kind"),
        })
    }

    fn many<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, &'static str>,
    ) -> Result<Arc<[T]>, &'static str> {
        let count = self.number()?;
        (0..count).map(|_| read(self)).collect()
    }

    fn text(&mut self) -> Result<&'a str, &'static str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| "a text is not UTF-8")
    }

    fn known_name(&mut self) -> Result<Name, &'static str> {
        self.text().map(Name::of)
    }

    fn bytes(&mut self) -> Result<&'a [u8], &'static str> {
        let length = usize::try_from(self.number()?).map_err(|_| SHORT)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(SHORT)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<u64, &'static str> {
        varint::take(&mut self.0)
    }

    fn signed(&mut self) -> Result<i64, &'static str> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }
}
