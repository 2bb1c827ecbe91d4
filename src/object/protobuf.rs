//! The protobuf envelope: `k8s\0`, then `runtime.Unknown` (`apimachinery/pkg/runtime/generated.proto`).
//!
//! ```text
//! Unknown    1 typeMeta { 1 apiVersion, 2 kind }   2 raw: the object   3 contentEncoding   4 contentType
//! the object 1 metadata (ObjectMeta), and the fields of its kind
//! ObjectMeta 1 name, 3 namespace, 5 uid, and others
//! ```

use std::borrow::Cow;
use std::str;

use super::{Error, Format, Found, Metadata, PROTOBUF_MAGIC};
use crate::protobuf::{self, Reader};

/// Reads an envelope, its magic included.
pub(super) fn read(format: Format, plaintext: &[u8]) -> Result<Found<'_>, Error> {
    let Envelope { api_version, kind, mut object, .. } = Envelope::read(format, plaintext.len(), plaintext)?;
    let mut found = Found { api_version, kind, metadata: Metadata::default() };
    while let Some(field) = object.next()? {
        if field.number == 1 {
            read_metadata(&mut found.metadata, field.message()?)?;
        }
    }
    Ok(found)
}

/// A `runtime.Unknown`.
pub(super) struct Envelope<'a> {
    pub(super) api_version: Option<Cow<'a, str>>,
    pub(super) kind: Option<Cow<'a, str>>,
    /// The bytes of the object.
    pub(super) raw: Field<'a>,
    pub(super) object: Fields<'a>,
    /// All other fields that are not empty.
    pub(super) rest: Vec<Field<'a>>,
}

impl<'a> Envelope<'a> {
    /// Reads an envelope, its magic included, that ends at `end`.
    pub(super) fn read(format: Format, end: usize, bytes: &'a [u8]) -> Result<Self, Error> {
        let body = bytes
            .strip_prefix(PROTOBUF_MAGIC)
            .ok_or(Error::Malformed { format, offset: end.saturating_sub(bytes.len()) })?;
        let (mut api_version, mut kind, mut raw, mut rest) = (None, None, None, Vec::new());
        let mut envelope = Fields { format, reader: Reader::ending_at(end, body) };
        while let Some(field) = envelope.next()? {
            match field.number {
                1 => {
                    let mut type_meta = field.message()?;
                    while let Some(part) = type_meta.next()? {
                        match part.number {
                            1 => api_version = Some(part.text()?),
                            2 => kind = Some(part.text()?),
                            _ => rest.push(field),
                        }
                    }
                }
                2 => raw = Some((field, field.message()?)),
                _ if field.value == protobuf::Field::Bytes(b"") => {}
                _ => rest.push(field),
            }
        }
        let (raw, object) = raw.ok_or(Error::MissingObject { format })?;
        Ok(Self { api_version, kind, raw, object, rest })
    }
}

/// Adds to what is there: protobuf merges a message that occurs again.
fn read_metadata<'a>(metadata: &mut Metadata<'a>, mut fields: Fields<'a>) -> Result<(), Error> {
    while let Some(field) = fields.next()? {
        match field.number {
            1 => metadata.name = Some(field.text()?),
            3 => metadata.namespace = Some(field.text()?),
            5 => metadata.uid = Some(field.text()?),
            _ => {}
        }
    }
    Ok(())
}

/// The fields of a message that are still to be read. Offsets are those of the value.
#[derive(Clone)]
pub(super) struct Fields<'a> {
    pub(super) format: Format,
    pub(super) reader: Reader<'a>,
}

#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) format: Format,
    /// Where the field ends.
    pub(super) end: usize,
    pub(super) number: u32,
    pub(super) value: protobuf::Field<'a>,
}

impl<'a> Fields<'a> {
    pub(super) fn next(&mut self) -> Result<Option<Field<'a>>, Error> {
        let (format, offset) = (self.format, self.reader.offset());
        let next = self.reader.next_field().map_err(|error| match error {
            protobuf::Error::Truncated { offset } => Error::Truncated { format, offset },
            protobuf::Error::Malformed { offset } => Error::Malformed { format, offset },
        })?;
        match next {
            // Kubernetes has no groups, and its decoder refuses them.
            Some((_, protobuf::Field::Group)) => Err(Error::Malformed { format, offset }),
            Some((number, value)) => Ok(Some(Field { format, end: self.reader.offset(), number, value })),
            None => Ok(None),
        }
    }
}

impl<'a> Field<'a> {
    pub(super) fn bytes(&self) -> Result<&'a [u8], Error> {
        match self.value {
            protobuf::Field::Bytes(bytes) => Ok(bytes),
            _ => Err(Error::Malformed { format: self.format, offset: self.end }),
        }
    }

    pub(super) fn message(&self) -> Result<Fields<'a>, Error> {
        Ok(Fields { format: self.format, reader: Reader::ending_at(self.end, self.bytes()?) })
    }

    pub(super) fn text(&self) -> Result<Cow<'a, str>, Error> {
        let bytes = self.bytes()?;
        let malformed = |error: str::Utf8Error| {
            let offset = self.end.saturating_sub(bytes.len()).saturating_add(error.valid_up_to());
            Error::Malformed { format: self.format, offset }
        };
        str::from_utf8(bytes).map(Cow::Borrowed).map_err(malformed)
    }
}

#[cfg(test)]
mod tests {
    use prost::encoding::encode_varint;

    use super::super::{Identity, identify};
    use super::*;

    fn field(number: u64, content: impl AsRef<[u8]>) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_varint(number << 3 | 2, &mut bytes);
        encode_varint(content.as_ref().len() as u64, &mut bytes);
        bytes.extend_from_slice(content.as_ref());
        bytes
    }

    /// An envelope around the fields of an object.
    fn envelope(object: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, "v1"), field(2, "Node")].concat();
        [PROTOBUF_MAGIC, &field(1, type_meta), &field(2, object), b"\x1a\x00\x22\x00"].concat()
    }

    fn name(plaintext: &[u8]) -> Result<Option<String>, Error> {
        identify(plaintext).map(|identity| identity.name.map(Cow::into_owned))
    }

    /// The offset at which the object's fields begin in [`envelope`], for objects of less than 128 bytes.
    const OBJECT: usize = 4 + 2 + 10 + 2;

    fn malformed(offset: usize) -> Error {
        Error::Malformed { format: Format::Protobuf, offset }
    }

    fn truncated(offset: usize) -> Error {
        Error::Truncated { format: Format::Protobuf, offset }
    }

    #[test]
    fn unknown_fields_of_every_type_are_passed_over() {
        let fields = [b"\x50\x96\x01".as_slice(), b"\x5d1234", b"\x6112345678", &field(500, "text")].concat();
        let metadata = [&fields, field(1, "n1").as_slice(), &fields].concat();
        let object = [&fields, field(1, metadata).as_slice(), &fields].concat();
        assert_eq!(name(&[envelope(&object), fields].concat()), Ok(Some("n1".to_owned())));
    }

    #[test]
    fn a_message_that_occurs_again_adds_to_the_first() {
        let object = [field(1, [field(1, "n1"), field(3, "a")].concat()), field(1, field(1, "n2"))].concat();
        let plaintext = envelope(&object);
        let identity = identify(&plaintext).unwrap();
        assert_eq!((identity.name.as_deref(), identity.namespace.as_deref()), (Some("n2"), Some("a")));
    }

    #[test]
    fn an_object_without_metadata_has_no_name() {
        let plaintext = envelope(b"");
        let nameless = Identity {
            format: Format::Protobuf,
            api_version: "v1".into(),
            kind: "Node".into(),
            namespace: None,
            name: None,
            uid: None,
        };
        assert_eq!(identify(&plaintext), Ok(nameless));
    }

    #[test]
    fn the_type_and_the_object_have_to_be_there() {
        let format = Format::Protobuf;
        let with = |type_meta: &[u8]| [PROTOBUF_MAGIC, &field(1, type_meta), &field(2, "")].concat();
        assert_eq!(name(&with(&field(1, "v1"))), Err(Error::MissingKind { format }));
        assert_eq!(name(&with(&[field(1, "v1"), field(2, "")].concat())), Err(Error::MissingKind { format }));
        assert_eq!(name(&with(&field(2, "Node"))), Err(Error::MissingApiVersion { format }));
        assert_eq!(name(PROTOBUF_MAGIC), Err(Error::MissingObject { format }));
        assert_eq!(name(&[PROTOBUF_MAGIC, &field(1, "")].concat()), Err(Error::MissingObject { format }));
    }

    #[test]
    fn fields_are_checked_to_the_end() {
        for (object, error) in [
            (b"\x10\x01\x0b\x0c".as_slice(), malformed(OBJECT + 2)),
            (b"\x10\x01\x0e", malformed(OBJECT + 2)),
            (b"\x00\x01", malformed(OBJECT)),
            (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", truncated(OBJECT)),
            (b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", malformed(OBJECT)),
            (b"\x10\xff", truncated(OBJECT)),
            (b"\x10", truncated(OBJECT)),
            (b"\xff", truncated(OBJECT)),
            (b"\x12\x02a", truncated(OBJECT)),
            (b"\x15123", truncated(OBJECT)),
            (b"\x111234567", truncated(OBJECT)),
            (b"\x08\x01", malformed(OBJECT + 2)),
            (b"\x0a\x02\x08\x01", malformed(OBJECT + 4)),
            (b"\x0a\x03\x0a\x02a", truncated(OBJECT + 2)),
            (b"\x0a\x05\x0a\x03a\xffb", malformed(OBJECT + 5)),
        ] {
            assert_eq!(name(&envelope(object)), Err(error), "{}", object.escape_ascii());
        }
    }
}
