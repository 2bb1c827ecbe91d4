//! Key-encryption keys. Their bytes are in this module, and in the file that [`super::document`] writes.

use std::fmt;

use atrest::transformer::envelope::MAX_DEK_SOURCE_BYTES;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::XChaCha20Poly1305;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::aead::{self, KEY_LEN, OVERHEAD};
use super::{Error, KeyId};

/// The largest plaintext in bytes: kube-apiserver takes no larger ciphertext.
pub(crate) const MAX_PLAINTEXT: usize = MAX_DEK_SOURCE_BYTES - OVERHEAD;

/// 32 bytes in base64.
const ENCODED_LEN: usize = 44;

/// A key-encryption key: XChaCha20-Poly1305, with the key ID as associated data.
///
/// In a box, since a value that is moved leaves its bytes behind.
pub(crate) struct Kek(Box<Parts>);

struct Parts {
    bytes: Zeroizing<[u8; KEY_LEN]>,
    /// Ready for use; it wipes its own copy.
    cipher: XChaCha20Poly1305,
}

impl Kek {
    /// A new random key.
    pub(crate) fn generate() -> Result<Self, Error> {
        let mut bytes = Zeroizing::new([0; KEY_LEN]);
        getrandom::fill(bytes.as_mut_slice()).map_err(|_| Error::Random)?;
        Ok(Self::new(&bytes))
    }

    fn new(bytes: &[u8; KEY_LEN]) -> Self {
        let mut parts = Box::new(Parts { bytes: Zeroizing::new([0; KEY_LEN]), cipher: aead::cipher(bytes) });
        parts.bytes.copy_from_slice(bytes);
        Self(parts)
    }

    /// Encrypts: the nonce of 24 bytes, the ciphertext, the tag of 16.
    pub(crate) fn wrap(&self, key_id: &KeyId, plaintext: &[u8]) -> Result<Vec<u8>, Error> {
        aead::seal(&self.0.cipher, key_id.as_str().as_bytes(), plaintext)
    }

    /// Decrypts; `None` for whatever this key did not encrypt under this key ID.
    pub(crate) fn unwrap(&self, key_id: &KeyId, ciphertext: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        aead::open(&self.0.cipher, key_id.as_str().as_bytes(), ciphertext)
    }
}

/// Compares in constant time.
impl PartialEq for Kek {
    fn eq(&self, other: &Self) -> bool {
        self.0.bytes.ct_eq(other.0.bytes.as_slice()).into()
    }
}

impl fmt::Debug for Kek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kek([REDACTED])")
    }
}

/// Writes the key itself, for the keyring's file and for nothing else.
impl Serialize for Kek {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = Zeroizing::new([0; ENCODED_LEN]);
        let len =
            STANDARD.encode_slice(self.0.bytes.as_slice(), text.as_mut_slice()).map_err(serde::ser::Error::custom)?;
        let text = text.get(..len).and_then(|text| std::str::from_utf8(text).ok());
        serializer.serialize_str(text.ok_or_else(|| serde::ser::Error::custom("base64 is text"))?)
    }
}

impl<'de> Deserialize<'de> for Kek {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Encoded)
    }
}

/// Takes the text where it lies in the file. With an escape it would first be copied to a place that is not wiped, so a key
/// that is written with escapes is not accepted.
struct Encoded;

impl<'de> Visitor<'de> for Encoded {
    type Value = Kek;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key of 32 bytes in base64")
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<Kek, E> {
        let mut bytes = Zeroizing::new([0; KEY_LEN]);
        match STANDARD.decode_slice(text, bytes.as_mut_slice()) {
            Ok(KEY_LEN) => Ok(Kek::new(&bytes)),
            _ => Err(E::custom("not a key of 32 bytes in base64")),
        }
    }

    /// One with escapes. The library's own message would quote it.
    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Kek, E> {
        Err(E::custom("a key with escapes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_of_a_key_prints_nothing_of_it() {
        let kek = Kek::new(&[0x41; KEY_LEN]);
        assert_eq!(format!("{kek:?} {kek:#?}"), "Kek([REDACTED]) Kek([REDACTED])");
    }

    #[test]
    fn a_key_is_read_back_as_it_was_written() {
        let kek = Kek::new(&[0xff; KEY_LEN]);
        let text = serde_json::to_string(&kek).unwrap();
        assert_eq!(text, "\"//////////////////////////////////////////8=\"");
        assert_eq!(serde_json::from_str::<Kek>(&text).unwrap(), kek);
    }

    #[test]
    fn a_key_of_another_form_is_refused_without_being_quoted() {
        for text in [
            "\"QUJD\"",
            "\"//////////////////////////////////////////9=\"",
            "\"//////////////////////////////////////////8\"",
            "\"//////////////////////////////////////////////////////8=\"",
            "\"\\/\\/////////////////////////////////////////8=\"",
            "\"\"",
        ] {
            let error = serde_json::from_str::<Kek>(text).unwrap_err().to_string();
            assert!(!error.contains("//") && !error.contains("QUJD"), "{error}");
        }
    }

    #[test]
    fn the_largest_plaintext_fits_into_what_kube_apiserver_takes() {
        let kek = Kek::generate().unwrap();
        let id = KeyId::parse("kr-1").unwrap();
        let wrapped = kek.wrap(&id, &[1; MAX_PLAINTEXT]).unwrap();
        assert_eq!(wrapped.len(), 1024);
        assert_eq!(kek.unwrap(&id, &wrapped).unwrap().as_slice(), [1; MAX_PLAINTEXT]);
        assert_eq!(kek.unwrap(&KeyId::parse("kr-2").unwrap(), &wrapped), None);
    }
}
