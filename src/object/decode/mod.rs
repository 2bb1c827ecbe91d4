//! Whole objects: what Kubernetes prints of what it stored.

mod cbor;
mod dump;
mod json;
mod message;
mod printed;

use std::fmt;

use super::value::{Map, Value};
use super::{Error, Format, from_base64};

/// How deep objects, lists and messages may be nested. The deepest of Kubernetes' own stay below 30; its schemas of
/// custom resources, which are stored as JSON, go on as far as their authors like.
const MAX_DEPTH: usize = 100;

/// The key in a message's object under which its fields are that the table of kinds does not have, by their numbers.
///
/// A field that occurs once is what it holds, one that occurs more often is the list of that. Integers are signed.
/// Other numbers are objects with their bits in hex, by the key `(fixed32)` or `(fixed64)`. Bytes are printable text,
/// or an object of fields by their numbers if they are well-formed as a message, or else in base64 under [`BASE64`].
pub const UNKNOWN_FIELDS: &str = "(unknown fields)";
/// The key beside [`UNKNOWN_FIELDS`] for the value of a message that is no object in JSON, such as a time.
pub const VALUE: &str = "(value)";
/// The only key of an object that stands for bytes which are no text.
pub const BASE64: &str = "(base64)";
/// The key in an object's root for fields of the protobuf envelope that mean nothing here, by their numbers.
pub const ENVELOPE: &str = "(envelope)";

/// A decoded object.
#[derive(Clone, PartialEq)]
pub struct Object {
    /// What is stored, printed as `kubectl get -o json` prints it. Always an object.
    ///
    /// [`set_resource_version`](Self::set_resource_version), [`hide_managed_fields`](Self::hide_managed_fields) and
    /// [`convert_to_served_version`](Self::convert_to_served_version) make the rest of it what `kubectl` shows.
    pub value: Value,
    /// How it is stored.
    pub format: Format,
    /// Whether something in it could not be told, and is shown as bare fields: see [`UNKNOWN_FIELDS`].
    pub unknown: bool,
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object([REDACTED], {})", self.format)
    }
}

/// Decodes an object.
///
/// Protobuf is printed by the table of all kinds that Kubernetes 1.36 stores and of older ones that it reads. Of a kind
/// that is not in the table, the metadata is decoded; its other fields are in the root by their numbers, like
/// [`UNKNOWN_FIELDS`].
///
/// What differs from `kubectl`: text in protobuf that is not UTF-8 is an object with its [`BASE64`] instead of text
/// with replacement characters. Quantities are as they were stored, which for those of API servers is canonical. JSON's
/// integers keep their value up to 2<sup>64</sup>, where `kubectl` rounds from 2<sup>63</sup> on; beyond they are the
/// nearest float, as with `kubectl`. How floats are written is for the serializer to say; Go writes large ones without
/// an exponent. Of CBOR's times only those with tag 0 become text, and of equal keys the last counts.
///
/// # Errors
/// When the plaintext is not one whole object with a kind and an `apiVersion`; see [`Error`]. What Kubernetes could not
/// read is [`Error::Malformed`], such as a field with another wire type than its own.
pub fn decode(plaintext: &[u8]) -> Result<Object, Error> {
    let format = Format::of(plaintext)?;
    let mut unknown = false;
    let value = match format {
        Format::Protobuf => message::decode(format, plaintext, &mut unknown)?,
        Format::LegacyBase64 => message::decode(format, &from_base64(plaintext)?, &mut unknown)?,
        Format::Json => json::decode(format, plaintext, plaintext.len(), 0)?,
        Format::Cbor => cbor::decode(plaintext, plaintext.len(), &mut unknown)?,
    };
    let names = |key| value.get(key).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    if value.as_object().is_none() {
        Err(Error::Malformed { format, offset: 0 })
    } else if !names("kind") {
        Err(Error::MissingKind { format })
    } else if !names("apiVersion") {
        Err(Error::MissingApiVersion { format })
    } else {
        Ok(Object { value, format, unknown })
    }
}

/// Bytes that are text in most cases.
fn text(bytes: &[u8], unknown: &mut bool) -> Value {
    match str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => {
            *unknown = true;
            dump::base64(bytes)
        }
    }
}

#[cfg(test)]
mod tests;
