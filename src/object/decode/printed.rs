//! Messages that Kubernetes prints by a rule of their own.

use time::OffsetDateTime;

use super::super::Format;
use super::super::protobuf::{Field, Fields};
use super::message::{Decoder, int32};
use super::{Error, Value, cbor, json, text};
use crate::protobuf;

/// `(time.Time{}).Unix()`: the first second of the year 1.
const ZERO_TIME: i64 = -62_135_596_800;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

impl Decoder<'_> {
    /// `meta/v1.Time` in RFC 3339, or `MicroTime` with six digits of the second; the zero time is null.
    pub(super) fn time(&mut self, parts: &[Fields<'_>], depth: usize, micro: bool) -> Result<Value, Error> {
        let (mut seconds, mut nanos, mut all, mut unknown) = (0_i64, 0, Vec::new(), Vec::new());
        each(parts, |field| {
            match field.number {
                1 => seconds = varint(field)?.cast_signed(),
                2 => nanos = int32(varint(field)?),
                _ => unknown.push(field),
            }
            all.push(field);
            Ok(())
        })?;
        // As `MicroTime` does; `Time` drops the fraction when it reads.
        let micros = if micro { nanos / 1000 * 1000 } else { 0 };
        let carried = seconds.checked_add(micros.div_euclid(NANOS_PER_SECOND));
        let micros = micros.rem_euclid(NANOS_PER_SECOND) / 1000;
        let value = match carried.map(|seconds| (seconds, OffsetDateTime::from_unix_timestamp(seconds))) {
            // Without any field it is the zero time, not 1970.
            _ if all.is_empty() => Value::Null,
            Some((ZERO_TIME, _)) if micros == 0 => Value::Null,
            Some((_, Ok(time))) if time.year() >= 0 => {
                let (date, (hour, minute, second)) = (time.date(), time.to_hms());
                let mut printed = format!("{date}T{hour:02}:{minute:02}:{second:02}");
                if micro {
                    printed.push_str(&format!(".{micros:06}"));
                }
                printed.push('Z');
                Value::from(printed)
            }
            // No year of four digits, so nothing that could be read again.
            _ => return Ok(self.beside(Value::Null, all, depth)),
        };
        Ok(self.beside(value, unknown, depth))
    }

    /// `resource.Quantity`: its canonical text, which is what is stored.
    pub(super) fn quantity(&mut self, parts: &[Fields<'_>], depth: usize) -> Result<Value, Error> {
        let (mut value, mut unknown) = (Value::Null, Vec::new());
        each(parts, |field| {
            match field.number {
                1 => value = text(field.bytes()?, self.unknown),
                _ => unknown.push(field),
            }
            Ok(())
        })?;
        if value == Value::Null {
            value = Value::from("0");
        }
        Ok(self.beside(value, unknown, depth))
    }

    /// `util/intstr.IntOrString`: 1 type, 2 integer, 3 string.
    pub(super) fn int_or_string(&mut self, parts: &[Fields<'_>], depth: usize) -> Result<Value, Error> {
        let (mut of, mut int, mut string) = (0, Value::Int(0), Value::from(""));
        let (mut all, mut unknown) = (Vec::new(), Vec::new());
        each(parts, |field| {
            match field.number {
                1 => of = varint(field)?,
                2 => int = Value::Int(int32(varint(field)?)),
                3 => string = text(field.bytes()?, self.unknown),
                _ => unknown.push(field),
            }
            all.push(field);
            Ok(())
        })?;
        Ok(match of {
            0 => self.beside(int, unknown, depth),
            1 => self.beside(string, unknown, depth),
            _ => self.beside(Value::Null, all, depth),
        })
    }

    /// A document in the bytes of field 1, of whatever encoding: `FieldsV1`, `RawExtension`, `apiextensions` `JSON`.
    pub(super) fn raw(&mut self, parts: &[Fields<'_>], depth: usize) -> Result<Value, Error> {
        let (mut document, mut unknown) = (None, Vec::new());
        each(parts, |field| {
            match field.number {
                1 => document = Some(field),
                _ => unknown.push(field),
            }
            Ok(())
        })?;
        let value = match document {
            Some(document) => self.document(&document, depth)?,
            None => Value::Null,
        };
        Ok(self.beside(value, unknown, depth))
    }

    fn document(&mut self, field: &Field<'_>, depth: usize) -> Result<Value, Error> {
        let bytes = field.bytes()?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        let before = *self.unknown;
        let decoded = match Format::of(bytes) {
            Ok(Format::Protobuf) => self.envelope(field.end, bytes, depth),
            Ok(Format::Cbor) => cbor::decode(bytes, field.end, self.unknown),
            _ => json::decode(self.format, bytes, field.end, depth),
        };
        match decoded {
            Err(error @ (Error::TooDeep { .. } | Error::TooMuch { .. })) => Err(error),
            Err(_) => {
                *self.unknown = before;
                Ok(self.beside(Value::Null, vec![*field], depth))
            }
            Ok(value) => Ok(value),
        }
    }
}

fn each<'a>(parts: &[Fields<'a>], mut visit: impl FnMut(Field<'a>) -> Result<(), Error>) -> Result<(), Error> {
    for part in parts {
        let mut fields = part.clone();
        while let Some(field) = fields.next()? {
            visit(field)?;
        }
    }
    Ok(())
}

fn varint(field: Field<'_>) -> Result<u64, Error> {
    match field.value {
        protobuf::Field::Varint(number) => Ok(number),
        _ => Err(Error::Malformed { format: field.format, offset: field.end }),
    }
}
