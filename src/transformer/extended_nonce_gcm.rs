use std::fmt;

use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::aes_gcm::AesGcm;
use super::{DataContext, Engine, Error, FromStorage, Transformer, random};
use crate::secret::Key;

/// What the key of one value is derived with.
const INFO: usize = 32;
const NONCE: usize = 12;

/// From which length on ring is the faster one under a key for one value, in bytes.
#[cfg(feature = "fast-aead")]
const RING_FROM: usize = 6 * 1024;

/// AES-256-GCM under a key of its own for each value, derived from a seed by HKDF (RFC 5869, section 2.3: expand only).
///
/// ```text
/// info[32] || nonce[12] || ciphertext[n] || tag[16]
/// key = HKDF-Expand(SHA-256, PRK = seed, info, 32 bytes)
/// ```
///
/// Bound to the etcd key as [`AesGcm`] is. The seed is the plaintext of a DEK source of KMS v2; it has 32 bytes or more, and all
/// of them count. Upstream: `encrypt/aes.NewHKDFExtendedNonceGCMTransformer`.
pub struct ExtendedNonceGcm {
    seed: Hkdf<Sha256>,
    engine: Engine,
}

impl ExtendedNonceGcm {
    /// By how much a stored value is longer than its plaintext, in bytes.
    pub const OVERHEAD: usize = INFO + NONCE + 16;

    /// A transformer under one seed.
    ///
    /// # Errors
    ///
    /// [`Error::SeedLength`] for a seed of less than 32 bytes.
    pub fn new(seed: &Key) -> Result<Self, Error> {
        Self::with_engine(seed, Engine::fastest())
    }

    /// A transformer that runs on the given engine.
    ///
    /// # Errors
    ///
    /// [`Error::SeedLength`] for a seed of less than 32 bytes.
    pub fn with_engine(seed: &Key, engine: Engine) -> Result<Self, Error> {
        let seed = Hkdf::from_prk(seed.expose()).map_err(|_| Error::SeedLength { actual: seed.len() })?;
        Ok(Self { seed, engine })
    }

    /// The key of one value, which has so many bytes.
    #[cfg_attr(not(feature = "fast-aead"), expect(unused_variables, reason = "there is one engine"))]
    fn derive(&self, info: &[u8; INFO], length: usize) -> Result<AesGcm, Error> {
        let mut key = Zeroizing::new([0; 32]);
        // 32 bytes are within what HKDF gives, so this cannot fail.
        self.seed.expand(info, key.as_mut_slice()).map_err(|_| Error::AuthenticationFailed)?;
        let engine = match self.engine {
            // Wiping a key of ring takes as long as making one, which is too much for a small value.
            #[cfg(feature = "fast-aead")]
            Engine::Ring if length < RING_FROM => Engine::AwsLc,
            engine => engine,
        };
        AesGcm::of_256_bits(&key, engine)
    }
}

impl fmt::Debug for ExtendedNonceGcm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExtendedNonceGcm([REDACTED])")
    }
}

impl Transformer for ExtendedNonceGcm {
    fn transform_from_storage<'a>(&self, data: &'a [u8], context: DataContext<'_>) -> Result<FromStorage<'a>, Error> {
        let required = INFO + NONCE;
        let too_short = Error::TooShort { required, actual: data.len() };
        let Some((info, sealed)) = data.split_first_chunk::<INFO>() else { return Err(too_short) };
        if sealed.len() < NONCE {
            return Err(too_short);
        }
        self.derive(info, sealed.len())?.transform_from_storage(sealed, context)
    }

    fn transform_to_storage(&self, plaintext: &[u8], context: DataContext<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        let info = random::<INFO>()?;
        out.extend_from_slice(&info);
        self.derive(&info, plaintext.len())?.transform_to_storage(plaintext, context, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(bytes: u8) -> Key {
        Key::new(Zeroizing::new((0..bytes).collect()))
    }

    /// Made by the code of Kubernetes 1.36.
    #[test]
    fn a_foreign_payload_is_opened() {
        let payload = hex::decode(
            "6b4cb0ea8061ed60add910719b55583215bfb3e41c3ac7aa53d79c6388befb56592d6ab6f32db009b2e249bfb71eb120bae94fdb87135b0a28\
             644c4fbc6bb2e6ea",
        )
        .unwrap();
        let transformer = ExtendedNonceGcm::new(&seed(32)).unwrap();
        let mut key = [0; 32];
        transformer.seed.expand(&payload[..32], &mut key).unwrap();
        assert_eq!(hex::encode(key), "c02145af9e76303a6c210e104bc22187b0b6c57758d87b86b3d2dc4f7874906a");
        let context = DataContext::new(b"/registry/secrets/default/vector");
        let opened = transformer.transform_from_storage(&payload, context).unwrap();
        assert_eq!(&opened.data[..], b"hello");
    }

    #[test]
    fn a_seed_has_32_bytes_or_more() {
        assert!(matches!(ExtendedNonceGcm::new(&seed(31)), Err(Error::SeedLength { actual: 31 })));
        let context = DataContext::new(b"/registry/secrets/default/x");
        let mut stored = Vec::new();
        ExtendedNonceGcm::new(&seed(64)).unwrap().transform_to_storage(b"text", context, &mut stored).unwrap();
        assert_eq!(stored.len(), 60 + 4);
        let opened = ExtendedNonceGcm::new(&seed(64)).unwrap();
        assert_eq!(&opened.transform_from_storage(&stored, context).unwrap().data[..], b"text");
        let other = ExtendedNonceGcm::new(&seed(32)).unwrap();
        assert!(matches!(other.transform_from_storage(&stored, context), Err(Error::AuthenticationFailed)));
    }

    #[test]
    fn payloads_are_short_or_refused() {
        let transformer = ExtendedNonceGcm::new(&seed(32)).unwrap();
        let context = DataContext::new(b"/registry/secrets/default/x");
        for len in [0, 31, 32, 43] {
            let error = transformer.transform_from_storage(&vec![0; len], context).unwrap_err();
            assert!(matches!(error, Error::TooShort { required: 44, actual } if actual == len), "{error:?}");
        }
        for len in [44, 59, 60] {
            let error = transformer.transform_from_storage(&vec![0; len], context).unwrap_err();
            assert!(matches!(error, Error::AuthenticationFailed), "{error:?}");
        }
    }
}
