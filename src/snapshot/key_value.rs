use prost::encoding::encode_varint;

use crate::protobuf::{Error, Field, Reader};

/// What etcd stores at a revision: `mvccpb.KeyValue`, read in place.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyValue<'a> {
    /// Field 1: the user's key. A record without one is the mark of `--bump-revision`.
    pub key: &'a [u8],
    /// Field 2: the revision at which the key was created.
    pub create_revision: i64,
    /// Field 3: the revision of this value.
    pub mod_revision: i64,
    /// Field 4: how often the key was written since.
    pub version: i64,
    /// Field 5: the value.
    pub value: &'a [u8],
    /// Field 6: the lease; 0 is none.
    pub lease: i64,
    /// Whether there are fields that etcd does not know.
    pub has_unknown_fields: bool,
}

impl<'a> KeyValue<'a> {
    /// Reads an encoded record.
    ///
    /// # Errors
    ///
    /// When it is no protobuf message, or one of its fields is of another type.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut kv = Self::default();
        let mut reader = Reader::new(bytes);
        loop {
            let offset = reader.offset();
            let Some((number, field)) = reader.next_field()? else { return Ok(kv) };
            match (number, field) {
                (1, Field::Bytes(key)) => kv.key = key,
                (2, Field::Varint(revision)) => kv.create_revision = revision.cast_signed(),
                (3, Field::Varint(revision)) => kv.mod_revision = revision.cast_signed(),
                (4, Field::Varint(version)) => kv.version = version.cast_signed(),
                (5, Field::Bytes(value)) => kv.value = value,
                (6, Field::Varint(lease)) => kv.lease = lease.cast_signed(),
                (1..=6, _) | (_, Field::Group) => return Err(Error::Malformed { offset }),
                _ => kv.has_unknown_fields = true,
            }
        }
    }

    /// Appends the record as etcd encodes it: fields ascending, those that are zero left out.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let bytes = |number: u64, bytes: &[u8], out: &mut Vec<u8>| {
            if !bytes.is_empty() {
                encode_varint(number << 3 | 2, out);
                encode_varint(bytes.len() as u64, out);
                out.extend_from_slice(bytes);
            }
        };
        bytes(1, self.key, out);
        let varint = |number: u64, value: i64, out: &mut Vec<u8>| {
            if value != 0 {
                encode_varint(number << 3, out);
                encode_varint(value.cast_unsigned(), out);
            }
        };
        varint(2, self.create_revision, out);
        varint(3, self.mod_revision, out);
        varint(4, self.version, out);
        bytes(5, self.value, out);
        varint(6, self.lease, out);
    }
}

/// The key, and of the value how long it is: it may be plaintext.
impl std::fmt::Debug for KeyValue<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyValue")
            .field("key", &self.key.escape_ascii().to_string())
            .field("create_revision", &self.create_revision)
            .field("mod_revision", &self.mod_revision)
            .field("version", &self.version)
            .field("value", &format_args!("[{} bytes]", self.value.len()))
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_zero_is_left_out() {
        let kv = KeyValue { key: b"/a", mod_revision: 300, value: b"v", ..KeyValue::default() };
        let mut encoded = Vec::new();
        kv.encode(&mut encoded);
        assert_eq!(encoded, b"\x0a\x02/a\x18\xac\x02\x2a\x01v");
        assert_eq!(KeyValue::parse(&encoded), Ok(kv));
        assert_eq!(KeyValue::parse(b""), Ok(KeyValue::default()));
    }

    #[test]
    fn a_field_of_another_type_is_an_error_and_an_unknown_one_is_not() {
        assert_eq!(KeyValue::parse(b"\x0a\x01k\x28\x01"), Err(Error::Malformed { offset: 3 }));
        assert_eq!(KeyValue::parse(b"\x0a\x05k"), Err(Error::Truncated { offset: 0 }));
        let kv = KeyValue::parse(b"\x0a\x01k\x3a\x01x").unwrap();
        assert_eq!((kv.key, kv.has_unknown_fields), (&b"k"[..], true));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_read_again(
            key in prop::collection::vec(any::<u8>(), 0..40),
            value in prop::collection::vec(any::<u8>(), 0..300),
            numbers in any::<[i64; 4]>(),
        ) {
            let [create_revision, mod_revision, version, lease] = numbers;
            let (key, value) = (&key[..], &value[..]);
            let kv = KeyValue { key, create_revision, mod_revision, version, value, lease, has_unknown_fields: false };
            let mut encoded = Vec::new();
            kv.encode(&mut encoded);
            prop_assert_eq!(KeyValue::parse(&encoded), Ok(kv));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            _ = KeyValue::parse(&bytes);
        }
    }
}
