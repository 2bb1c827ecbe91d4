use std::collections::BTreeMap;
use std::fmt;

use super::{EncryptedDekSourceType, EncryptedObject, EnvelopeV1};
use crate::transformer::Header;

/// What a KMS has to decrypt before a value can be opened. Values with equal sources are opened by one answer.
///
/// Of KMS v2 the annotations are a part of it: a plugin may answer the same ciphertext always, and keep the real one there.
#[derive(Clone, PartialEq, Eq)]
pub enum DekSource {
    /// An encrypted data key of KMS v1, which may be empty.
    V1 {
        /// What the plugin's Decrypt gets.
        encrypted_dek: Vec<u8>,
    },
    /// An encrypted data key, or an encrypted seed, of KMS v2.
    V2 {
        /// What the plugin's Decrypt gets.
        encrypted_dek_source: Vec<u8>,
        /// Names the key-encryption key in the KMS.
        key_id: String,
        /// What the plugin's Encrypt had answered.
        annotations: BTreeMap<String, Vec<u8>>,
        /// What the plaintext is.
        source_type: EncryptedDekSourceType,
    },
}

/// Says how long it is, and shows no raw key ID.
impl fmt::Debug for DekSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V1 { encrypted_dek } => write!(f, "V1({} bytes)", encrypted_dek.len()),
            Self::V2 { encrypted_dek_source, source_type, .. } => {
                write!(f, "V2({} bytes, {source_type:?})", encrypted_dek_source.len())
            }
        }
    }
}

impl DekSource {
    /// What a stored value of a KMS needs, without a configuration; nothing when it is none, or damaged. The line feed that
    /// etcdctl adds does no harm.
    #[must_use]
    pub fn of_stored(value: &[u8]) -> Option<Self> {
        match Header::parse(value) {
            Header::KmsV1 { envelope: Ok(envelope), .. } => Some(Self::of_v1(envelope)),
            Header::KmsV2 { envelope: Ok(object), .. } => Some(Self::of_v2(&object)),
            _ => match Header::parse(value.strip_suffix(b"\n")?) {
                Header::KmsV2 { envelope: Ok(object), .. } => Some(Self::of_v2(&object)),
                _ => None,
            },
        }
    }

    pub(crate) fn of_v1(envelope: EnvelopeV1<'_>) -> Self {
        Self::V1 { encrypted_dek: envelope.encrypted_dek.to_vec() }
    }

    pub(crate) fn of_v2(object: &EncryptedObject<'_>) -> Self {
        let annotations = object.annotations.iter().map(|(key, value)| ((*key).to_owned(), value.to_vec()));
        Self::V2 {
            encrypted_dek_source: object.encrypted_dek_source.to_vec(),
            key_id: object.key_id.to_owned(),
            annotations: annotations.collect(),
            source_type: object.encrypted_dek_source_type,
        }
    }

    /// The same bytes for equal sources, and for no others.
    #[must_use]
    pub fn cache_key(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::V1 { encrypted_dek } => out.extend_from_slice(encrypted_dek),
            Self::V2 { encrypted_dek_source, key_id, annotations, source_type } => {
                let annotations = annotations.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
                write_v2(encrypted_dek_source, key_id, annotations, *source_type, &mut out);
            }
        }
        out
    }
}

/// [`DekSource::cache_key`] of an envelope, without what it takes to make the source.
pub(crate) fn cache_key_of(object: &EncryptedObject<'_>, out: &mut Vec<u8>) {
    out.clear();
    let (source, source_type) = (object.encrypted_dek_source, object.encrypted_dek_source_type);
    if object.annotations.is_sorted() {
        write_v2(source, object.key_id, object.annotations.iter().copied(), source_type, out);
    } else {
        let mut sorted = object.annotations.clone();
        sorted.sort_unstable();
        write_v2(source, object.key_id, sorted.into_iter(), source_type, out);
    }
}

/// Every part is preceded by its length, so that none can be taken for a part of another.
fn write_v2<'a>(
    source: &[u8],
    key_id: &str,
    annotations: impl Iterator<Item = (&'a str, &'a [u8])>,
    source_type: EncryptedDekSourceType,
    out: &mut Vec<u8>,
) {
    let mut part = |bytes: &[u8]| {
        out.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
        out.extend_from_slice(bytes);
    };
    part(&[source_type as u8]);
    part(source);
    part(key_id.as_bytes());
    for (key, value) in annotations {
        part(key.as_bytes());
        part(value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object<'a>(key_id: &'a str, source: &'a [u8], annotations: &[(&'a str, &'a [u8])]) -> EncryptedObject<'a> {
        EncryptedObject {
            encrypted_data: b"data",
            key_id,
            encrypted_dek_source: source,
            annotations: annotations.to_vec(),
            encrypted_dek_source_type: EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed,
        }
    }

    #[test]
    fn annotations_tell_sources_apart_and_their_order_does_not() {
        let key = |annotations: &[(&str, &[u8])]| DekSource::of_v2(&object("kek", b"dek", annotations)).cache_key();
        assert_eq!(key(&[("a.io", b"1"), ("b.io", b"2")]), key(&[("b.io", b"2"), ("a.io", b"1")]));
        assert_ne!(key(&[("a.io", b"1")]), key(&[("b.io", b"1")]));
        assert_ne!(key(&[("a.io", b"1")]), key(&[]));
        assert_ne!(key(&[("a.io", b"")]), key(&[]));
    }

    #[test]
    fn debug_shows_no_key_id() {
        assert_eq!(
            format!("{:?}", DekSource::of_v2(&object("kek-of-the-king", b"dek", &[]))),
            "V2(3 bytes, HkdfSha256XnonceAesGcmSeed)"
        );
    }

    proptest! {
        #[test]
        fn the_key_of_an_envelope_is_that_of_its_source(
            key_id in ".{1,20}",
            source in prop::collection::vec(any::<u8>(), 1..40),
            annotations in prop::collection::btree_map("[a-z]{1,3}\\.io", prop::collection::vec(any::<u8>(), 0..9), 0..4),
            reversed: bool,
        ) {
            let mut pairs: Vec<_> = annotations.iter().map(|(key, value)| (key.as_str(), value.as_slice())).collect();
            if reversed {
                pairs.reverse();
            }
            let object = object(&key_id, &source, &pairs);
            let mut key = b"left over".to_vec();
            cache_key_of(&object, &mut key);
            prop_assert_eq!(key, DekSource::of_v2(&object).cache_key());
        }
    }
}
