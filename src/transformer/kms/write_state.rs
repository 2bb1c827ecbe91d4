use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prost::encoding::{encode_varint, encoded_len_varint};

use crate::secret::Key;
use crate::transformer::envelope::{self, Dek, DekSource, EncryptedDekSourceType, validate_encrypt_response};
use crate::transformer::{DataContext, Error, ExtendedNonceGcm, Transformer as _};

/// What writes the values of a KMS v2: one seed that the KMS has encrypted, for all values until its key changes.
///
/// Only type 1 is ever written: a data key of its own for each value, derived from the seed. Upstream: `kmsv2.State`.
pub struct WriteState {
    source: DekSource,
    cache_key: Vec<u8>,
    key_id: String,
    dek: Arc<Dek>,
    /// The fields 2 to 5 of each `EncryptedObject`.
    trailer: Vec<u8>,
}

impl fmt::Debug for WriteState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteState({:?})", self.source)
    }
}

/// Why what a plugin answered to Encrypt cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidAnswer {
    /// kube-apiserver does not take it, so it is not written.
    #[error("kube-apiserver would not take what the KMS answered")]
    Envelope(#[from] envelope::Error),
    /// The seed is too short.
    #[error("a seed of {actual} bytes")]
    SeedLength {
        /// Its length in bytes.
        actual: usize,
    },
}

impl WriteState {
    /// A state of a seed, and of what the plugin made of it.
    ///
    /// # Errors
    ///
    /// When kube-apiserver would not take the answer.
    pub fn new(
        seed: &Key,
        encrypted_dek_source: Vec<u8>,
        key_id: String,
        annotations: BTreeMap<String, Vec<u8>>,
    ) -> Result<Self, InvalidAnswer> {
        let pairs: Vec<_> = annotations.iter().map(|(key, value)| (key.as_str(), value.as_slice())).collect();
        validate_encrypt_response(&encrypted_dek_source, &key_id, pairs.iter().copied())?;
        let mut trailer = Vec::new();
        write_bytes(2, key_id.as_bytes(), &mut trailer);
        write_bytes(3, &encrypted_dek_source, &mut trailer);
        for (key, value) in pairs {
            let mut entry = Vec::new();
            write_bytes(1, key.as_bytes(), &mut entry);
            write_bytes(2, value, &mut entry);
            write_bytes(4, &entry, &mut trailer);
        }
        trailer.extend_from_slice(&[5 << 3, EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed as u8]);
        let transformer = ExtendedNonceGcm::new(seed).map_err(|_| InvalidAnswer::SeedLength { actual: seed.len() })?;
        let source = DekSource::V2 {
            encrypted_dek_source,
            key_id: key_id.clone(),
            annotations,
            source_type: EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed,
        };
        let cache_key = source.cache_key();
        Ok(Self { source, cache_key, key_id, dek: Arc::new(Dek::Seed(transformer)), trailer })
    }

    /// Names the key-encryption key in the KMS.
    #[must_use]
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    pub(super) fn source(&self) -> &DekSource {
        &self.source
    }

    /// The seed, when this is the key of its source.
    pub(super) fn dek_of(&self, cache_key: &[u8]) -> Option<Arc<Dek>> {
        (self.cache_key == cache_key).then(|| self.dek())
    }

    pub(super) fn dek(&self) -> Arc<Dek> {
        Arc::clone(&self.dek)
    }

    pub(super) fn seal(&self, plaintext: &[u8], context: DataContext<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        let Dek::Seed(seed) = &*self.dek else { return Err(Error::AuthenticationFailed) };
        let length = plaintext.len().saturating_add(ExtendedNonceGcm::OVERHEAD);
        out.reserve(1 + encoded_len_varint(length as u64) + length + self.trailer.len());
        out.push(1 << 3 | 2);
        encode_varint(length as u64, out);
        seed.transform_to_storage(plaintext, context, out)?;
        out.extend_from_slice(&self.trailer);
        Ok(())
    }
}

/// A field of wire type 2; Go writes both fields of a map entry, also when they are empty.
fn write_bytes(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(number << 3 | 2);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;
    use crate::transformer::envelope::EncryptedObject;

    fn seed() -> Key {
        Key::new(Zeroizing::new(vec![7; 32]))
    }

    #[test]
    fn the_envelope_is_that_of_the_answer() {
        let annotations = BTreeMap::from([("a.io".to_owned(), b"x".to_vec()), ("b.io".to_owned(), Vec::new())]);
        let state = WriteState::new(&seed(), b"dek".to_vec(), "kek-2".to_owned(), annotations).unwrap();
        let mut out = Vec::new();
        state.seal(b"plaintext", DataContext::new(b"/k"), &mut out).unwrap();
        let object = EncryptedObject::parse(&out).unwrap();
        assert_eq!(object.encrypted_data.len(), 60 + 9);
        assert_eq!((object.key_id, object.encrypted_dek_source), ("kek-2", &b"dek"[..]));
        assert_eq!(object.annotations, [("a.io", &b"x"[..]), ("b.io", b"")]);
        assert_eq!(object.encrypted_dek_source_type, EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed);
        // As Go writes it: fields in their order, the empty value of an annotation too.
        let trailer = b"\x12\x05kek-2\x1a\x03dek\x22\x09\x0a\x04a.io\x12\x01x\x22\x08\x0a\x04b.io\x12\0\x28\x01";
        assert_eq!(&out[2 + 69..], trailer);
        assert_eq!(&out[..2], b"\x0a\x45");
    }

    #[test]
    fn an_answer_that_kube_apiserver_would_not_take_writes_nothing() {
        let new = |source: usize, key_id: usize, annotation: &str| {
            let annotations = BTreeMap::from([(annotation.to_owned(), Vec::new())]);
            WriteState::new(&seed(), vec![1; source], "k".repeat(key_id), annotations).map(|_| ())
        };
        let too_long = |field, actual| Err(envelope::Error::FieldTooLong { field, actual, max: 1024 }.into());
        assert_eq!(new(1024, 1024, "a.io"), Ok(()));
        assert_eq!(new(1025, 1, "a.io"), too_long("encryptedDEKSource", 1025));
        assert_eq!(new(1, 1025, "a.io"), too_long("keyID", 1025));
        assert_eq!(new(0, 1, "a.io"), Err(envelope::Error::EmptyField { field: "encryptedDEKSource" }.into()));
        assert_eq!(new(1, 0, "a.io"), Err(envelope::Error::EmptyField { field: "keyID" }.into()));
        assert_eq!(new(1, 1, "simple"), Err(envelope::Error::AnnotationKey.into()));
    }
}
