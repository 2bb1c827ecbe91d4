//! A stored Secret without what it keeps: for backups that are handed on.

use prost::encoding::encode_varint;
use zeroize::Zeroizing;

use super::view::LAST_APPLIED;
use super::{Error, Format, PROTOBUF_MAGIC, Value, decode};
use crate::protobuf::{self, Field, Reader};

/// What stands in place of each value.
pub const BLANK: &[u8] = b"REDACTED";

/// [`BLANK`] in base64, as JSON has it.
const BLANK_BASE64: &str = "UkVEQUNURUQ=";

/// Encodes a stored Secret anew, each of its values replaced by [`BLANK`]. The keys stay. The copy that `kubectl apply` keeps in an
/// annotation and fields that no Secret has are left out.
///
/// # Errors
///
/// When the plaintext is no whole object, or no Secret: that is [`Error::MissingKind`].
pub fn blank_secret(plaintext: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
    let format = Format::of(plaintext)?;
    let object = decode(plaintext)?;
    if !object.is_secret() {
        return Err(Error::MissingKind { format });
    }
    match format {
        Format::Protobuf => envelope(plaintext, format),
        Format::Json => json(object.value, format),
        // API servers write none of these for Secrets.
        Format::LegacyBase64 | Format::Cbor => Err(Error::UnknownFormat { len: plaintext.len() }),
    }
}

/// The numbers of `v1.Secret`.
mod secret {
    pub(super) const METADATA: u32 = 1;
    pub(super) const DATA: u32 = 2;
    pub(super) const TYPE: u32 = 3;
    pub(super) const STRING_DATA: u32 = 4;
    pub(super) const IMMUTABLE: u32 = 5;
    /// In `ObjectMeta`.
    pub(super) const ANNOTATIONS: u32 = 12;
}

fn envelope(plaintext: &[u8], format: Format) -> Result<Zeroizing<Vec<u8>>, Error> {
    let malformed = |error: protobuf::Error| match error {
        protobuf::Error::Truncated { offset } => Error::Truncated { format, offset },
        protobuf::Error::Malformed { offset } => Error::Malformed { format, offset },
    };
    let body = plaintext.strip_prefix(PROTOBUF_MAGIC).ok_or(Error::Malformed { format, offset: 0 })?;
    let mut out = Zeroizing::new(Vec::with_capacity(plaintext.len() + 64));
    out.extend_from_slice(PROTOBUF_MAGIC);
    let mut fields = Reader::new(body);
    while let Some((number, field)) = fields.next_field().map_err(malformed)? {
        match (number, field) {
            (2, Field::Bytes(raw)) => put(2, Field::Bytes(&message(raw).map_err(malformed)?), &mut out),
            // Type, encoding and media type; whatever else there is, is no part of an envelope.
            (1 | 3 | 4, Field::Bytes(_)) => put(number, field, &mut out),
            _ => {}
        }
    }
    Ok(out)
}

fn message(raw: &[u8]) -> Result<Zeroizing<Vec<u8>>, protobuf::Error> {
    let mut out = Zeroizing::new(Vec::with_capacity(raw.len() + 64));
    let mut fields = Reader::new(raw);
    while let Some((number, field)) = fields.next_field()? {
        match (number, field) {
            (secret::METADATA, Field::Bytes(metadata)) => {
                put(number, Field::Bytes(&without_copy(metadata)?), &mut out);
            }
            (secret::DATA | secret::STRING_DATA, Field::Bytes(entry)) => {
                let mut blank = Vec::new();
                put(1, Field::Bytes(key_of(entry)?), &mut blank);
                put(2, Field::Bytes(BLANK), &mut blank);
                put(number, Field::Bytes(&blank), &mut out);
            }
            (secret::TYPE | secret::IMMUTABLE, field) => put(number, field, &mut out),
            _ => {}
        }
    }
    Ok(out)
}

/// The metadata without the annotation that repeats the object.
fn without_copy(metadata: &[u8]) -> Result<Zeroizing<Vec<u8>>, protobuf::Error> {
    let mut out = Zeroizing::new(Vec::with_capacity(metadata.len()));
    let mut fields = Reader::new(metadata);
    while let Some((number, field)) = fields.next_field()? {
        let is_copy = match (number, field) {
            (secret::ANNOTATIONS, Field::Bytes(entry)) => key_of(entry)? == LAST_APPLIED.as_bytes(),
            _ => false,
        };
        if !is_copy {
            put(number, field, &mut out);
        }
    }
    Ok(out)
}

/// The key of an entry of a map.
fn key_of(entry: &[u8]) -> Result<&[u8], protobuf::Error> {
    let mut key: &[u8] = b"";
    let mut fields = Reader::new(entry);
    while let Some((number, field)) = fields.next_field()? {
        if let (1, Field::Bytes(bytes)) = (number, field) {
            key = bytes;
        }
    }
    Ok(key)
}

/// Appends a field. Kubernetes has no groups.
fn put(number: u32, field: Field<'_>, out: &mut Vec<u8>) {
    let mut tag = |wire_type: u64| encode_varint(u64::from(number) << 3 | wire_type, out);
    match field {
        Field::Varint(value) => {
            tag(0);
            encode_varint(value, out);
        }
        Field::Fixed64(bytes) => {
            tag(1);
            out.extend_from_slice(&bytes);
        }
        Field::Bytes(bytes) => {
            tag(2);
            encode_varint(bytes.len() as u64, out);
            out.extend_from_slice(bytes);
        }
        Field::Fixed32(bytes) => {
            tag(5);
            out.extend_from_slice(&bytes);
        }
        Field::Group => {}
    }
}

fn json(mut value: Value, format: Format) -> Result<Zeroizing<Vec<u8>>, Error> {
    for (field, with) in [("data", BLANK_BASE64), ("stringData", "REDACTED")] {
        match value.get_mut(field) {
            Some(Value::Object(entries)) => entries.iter_mut().for_each(|(_, value)| *value = Value::from(with)),
            // No API server reads it; it may be a secret all the same.
            Some(_) => _ = value.remove(field),
            None => {}
        }
    }
    let metadata = value.get_mut("metadata");
    if let Some(annotations) = metadata.and_then(|metadata| metadata.get_mut("annotations")) {
        annotations.remove(LAST_APPLIED);
    }
    if let Some(root) = value.as_object_mut() {
        let known = ["apiVersion", "kind", "metadata", "data", "stringData", "type", "immutable"];
        let others: Vec<_> =
            root.iter().map(|(key, _)| key.to_owned()).filter(|key| !known.contains(&&key[..])).collect();
        others.iter().for_each(|key| _ = root.remove(key));
    }
    let mut out = Zeroizing::new(serde_json::to_vec(&value).map_err(|_| Error::Malformed { format, offset: 0 })?);
    out.push(b'\n');
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u32, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put(number, Field::Bytes(content), &mut out);
        out
    }

    fn entry(key: &str, value: &str) -> Vec<u8> {
        [field(1, key.as_bytes()), field(2, value.as_bytes())].concat()
    }

    #[test]
    fn the_values_of_a_secret_go_and_everything_else_stays() {
        let annotations = [field(12, &entry(LAST_APPLIED, "hunter2")), field(12, &entry("team", "a"))].concat();
        let metadata = [field(1, b"x"), field(3, b"ns"), annotations].concat();
        let secret = [
            field(1, &metadata),
            field(2, &entry("password", "hunter2")),
            field(2, &entry("user", "root")),
            field(3, b"Opaque"),
            b"\x28\x01".to_vec(),
            field(99, b"hunter2"),
        ]
        .concat();
        let type_meta = [field(1, b"v1"), field(2, b"Secret")].concat();
        let stored =
            [PROTOBUF_MAGIC, &field(1, &type_meta), &field(2, &secret), &field(3, b""), &field(4, b"")].concat();
        let blank = blank_secret(&stored).unwrap();
        assert!(!blank.windows(7).any(|part| part == b"hunter2"));
        assert_eq!(
            serde_json::to_string(&decode(&blank).unwrap().value).unwrap(),
            r#"{"apiVersion":"v1","data":{"password":"UkVEQUNURUQ=","user":"UkVEQUNURUQ="},"immutable":true,"kind":"Secret","metadata":{"annotations":{"team":"a"},"name":"x","namespace":"ns"},"type":"Opaque"}"#
        );
        assert_eq!(*blank_secret(&blank).unwrap(), *blank);
    }

    #[test]
    fn a_secret_in_json_is_blanked_too() {
        let stored = br#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"hunter2"}},"data":{"a":"aHVudGVyMg=="},"other":"hunter2"}"#;
        let blank = blank_secret(stored).unwrap();
        assert_eq!(
            std::str::from_utf8(&blank).unwrap(),
            "{\"apiVersion\":\"v1\",\"data\":{\"a\":\"UkVEQUNURUQ=\"},\"kind\":\"Secret\",\"metadata\":{\"annotations\":{},\"name\":\"x\"}}\n"
        );
    }

    /// Data that is no object was left as it was.
    #[test]
    fn data_of_another_form_goes() {
        for data in [r#""hunter2""#, r#"["hunter2"]"#, "7"] {
            let stored = format!(r#"{{"kind":"Secret","apiVersion":"v1","data":{data},"stringData":{data}}}"#);
            let blank = blank_secret(stored.as_bytes()).unwrap();
            assert_eq!(std::str::from_utf8(&blank).unwrap(), "{\"apiVersion\":\"v1\",\"kind\":\"Secret\"}\n");
        }
        let type_meta = [field(1, b"v1"), field(2, b"Secret")].concat();
        let stored =
            [PROTOBUF_MAGIC, &field(1, &type_meta), &field(2, &field(3, b"Opaque")), &field(9, b"hunter2")].concat();
        assert!(!blank_secret(&stored).unwrap().windows(7).any(|part| part == b"hunter2"));
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        let stored = br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"}}"#;
        assert_eq!(blank_secret(stored).map(|_| ()), Err(Error::MissingKind { format: Format::Json }));
    }
}
