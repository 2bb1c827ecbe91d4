use std::fmt;

use aes_gcm::aead::consts::U12;
use aes_gcm::aead::{AeadInOut as _, KeyInit as _};
use aes_gcm::aes::{Aes128, Aes192, Aes256};

use super::{DataContext, Error, FromStorage, ProviderKind, Transformer, random};
use crate::secret::{Key, Opened, Plaintext};

const NONCE: usize = 12;
const TAG: usize = 16;

/// AES-GCM with a random nonce (NIST SP 800-38D), bound to the etcd key.
///
/// ```text
/// nonce[12] || ciphertext[n] || tag[16]
/// ```
///
/// Upstream: `encrypt/aes.NewGCMTransformerWithUniqueKeyUnsafe` and `NewGCMTransformer`. With random nonces one key should not
/// write more than 2^32 values; Kubernetes advises a rotation after 200,000.
pub struct AesGcm(Cipher);

/// Which implementation of AES-GCM does the work. Both give the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The `aes-gcm` crate, in Rust throughout.
    RustCrypto,
    /// AWS-LC, by the feature `fast-aead`.
    #[cfg(feature = "fast-aead")]
    AwsLc,
    /// ring, by the feature `fast-aead`; keys of 24 bytes go to AWS-LC.
    #[cfg(feature = "fast-aead")]
    Ring,
}

impl Engine {
    /// The fastest engine that is compiled in, on this processor.
    ///
    /// AWS-LC has code for AVX-512 and none for VAES without it, which ring has: there it takes two thirds of the time.
    #[must_use]
    pub fn fastest() -> Self {
        #[cfg(all(feature = "fast-aead", target_arch = "x86_64"))]
        {
            let vaes = is_x86_feature_detected!("vaes") && is_x86_feature_detected!("vpclmulqdq");
            if vaes && !is_x86_feature_detected!("avx512f") { Self::Ring } else { Self::AwsLc }
        }
        #[cfg(all(feature = "fast-aead", not(target_arch = "x86_64")))]
        {
            Self::AwsLc
        }
        #[cfg(not(feature = "fast-aead"))]
        {
            Self::RustCrypto
        }
    }
}

/// A key of ring, which wipes none itself: another key is written over it.
#[cfg(feature = "fast-aead")]
struct RingKey(Box<ring::aead::LessSafeKey>);

#[cfg(feature = "fast-aead")]
impl RingKey {
    fn new(key: &[u8]) -> Option<Self> {
        use ring::aead;
        let algorithm = match key.len() {
            16 => &aead::AES_128_GCM,
            32 => &aead::AES_256_GCM,
            _ => return None,
        };
        Some(Self(Box::new(aead::LessSafeKey::new(aead::UnboundKey::new(algorithm, key).ok()?))))
    }
}

#[cfg(feature = "fast-aead")]
impl Drop for RingKey {
    fn drop(&mut self) {
        use ring::aead;
        // Of the larger kind, so that all of the old key is covered.
        if let Ok(zeros) = aead::UnboundKey::new(&aead::AES_256_GCM, &[0; 32]) {
            *self.0 = aead::LessSafeKey::new(zeros);
        }
        std::hint::black_box(&self.0);
    }
}

enum Cipher {
    Aes128(Box<aes_gcm::AesGcm<Aes128, U12>>),
    Aes192(Box<aes_gcm::AesGcm<Aes192, U12>>),
    Aes256(Box<aes_gcm::AesGcm<Aes256, U12>>),
    #[cfg(feature = "fast-aead")]
    AwsLc(Box<aws_lc_rs::aead::LessSafeKey>),
    #[cfg(feature = "fast-aead")]
    Ring(RingKey),
}

impl AesGcm {
    /// A transformer under one key of 16, 24 or 32 bytes.
    ///
    /// # Errors
    ///
    /// [`Error::KeyLength`] for any other length.
    pub fn new(key: &Key) -> Result<Self, Error> {
        Self::with_engine(key, Engine::fastest())
    }

    /// A transformer that runs on the given engine.
    ///
    /// # Errors
    ///
    /// [`Error::KeyLength`] for a key that is not of 16, 24 or 32 bytes.
    pub fn with_engine(key: &Key, engine: Engine) -> Result<Self, Error> {
        let wrong_length = || Error::KeyLength { provider: ProviderKind::AesGcm, actual: key.len() };
        let cipher = match engine {
            Engine::RustCrypto => match key.len() {
                16 => aes_gcm::AesGcm::new_from_slice(key.expose()).map(Box::new).map(Cipher::Aes128),
                24 => aes_gcm::AesGcm::new_from_slice(key.expose()).map(Box::new).map(Cipher::Aes192),
                _ => aes_gcm::AesGcm::new_from_slice(key.expose()).map(Box::new).map(Cipher::Aes256),
            }
            .map_err(|_| wrong_length())?,
            #[cfg(feature = "fast-aead")]
            Engine::Ring if key.len() != 24 => Cipher::Ring(RingKey::new(key.expose()).ok_or_else(wrong_length)?),
            #[cfg(feature = "fast-aead")]
            Engine::AwsLc | Engine::Ring => {
                use aws_lc_rs::aead;
                let algorithm = match key.len() {
                    16 => &aead::AES_128_GCM,
                    24 => &aead::AES_192_GCM,
                    _ => &aead::AES_256_GCM,
                };
                let unbound = aead::UnboundKey::new(algorithm, key.expose()).map_err(|_| wrong_length())?;
                Cipher::AwsLc(Box::new(aead::LessSafeKey::new(unbound)))
            }
        };
        Ok(Self(cipher))
    }

    /// The same for a key whose length is known, without a copy of it.
    pub(super) fn of_256_bits(key: &[u8; 32], engine: Engine) -> Result<Self, Error> {
        let wrong_length = || Error::KeyLength { provider: ProviderKind::AesGcm, actual: key.len() };
        let cipher = match engine {
            Engine::RustCrypto => {
                aes_gcm::AesGcm::new_from_slice(key).map(Box::new).map(Cipher::Aes256).map_err(|_| wrong_length())?
            }
            #[cfg(feature = "fast-aead")]
            Engine::Ring => Cipher::Ring(RingKey::new(key).ok_or_else(wrong_length)?),
            #[cfg(feature = "fast-aead")]
            Engine::AwsLc => {
                use aws_lc_rs::aead;
                let unbound = aead::UnboundKey::new(&aead::AES_256_GCM, key).map_err(|_| wrong_length())?;
                Cipher::AwsLc(Box::new(aead::LessSafeKey::new(unbound)))
            }
        };
        Ok(Self(cipher))
    }

    /// Decrypts `ciphertext || tag`.
    fn open(&self, nonce: [u8; NONCE], sealed: &[u8], aad: &[u8]) -> Result<Opened, Error> {
        let (ciphertext, tag) = sealed.split_last_chunk::<TAG>().ok_or(Error::AuthenticationFailed)?;
        #[cfg(feature = "fast-aead")]
        if let Cipher::AwsLc(key) = &self.0 {
            use aws_lc_rs::aead;
            let mut text = Opened::new(vec![0; ciphertext.len()]);
            let nonce = aead::Nonce::assume_unique_for_key(nonce);
            return key
                .open_separate_gather(nonce, aead::Aad::from(aad), ciphertext, tag, &mut text)
                .map(|()| text)
                .map_err(|_| Error::AuthenticationFailed);
        }
        let mut text = Opened::new(ciphertext.to_vec());
        #[cfg(feature = "fast-aead")]
        if let Cipher::Ring(RingKey(key)) = &self.0 {
            use ring::aead;
            let nonce = aead::Nonce::assume_unique_for_key(nonce);
            let opened = key.open_in_place_separate_tag(nonce, aead::Aad::from(aad), (*tag).into(), &mut text, 0..);
            return opened.map(|_| ()).map(|()| text).map_err(|_| Error::AuthenticationFailed);
        }
        let (nonce, tag, buffer) = (&nonce.into(), &(*tag).into(), (&mut *text).into());
        match &self.0 {
            Cipher::Aes128(gcm) => gcm.decrypt_inout_detached(nonce, aad, buffer, tag),
            Cipher::Aes192(gcm) => gcm.decrypt_inout_detached(nonce, aad, buffer, tag),
            Cipher::Aes256(gcm) => gcm.decrypt_inout_detached(nonce, aad, buffer, tag),
            #[cfg(feature = "fast-aead")]
            Cipher::AwsLc(_) | Cipher::Ring(_) => return Err(Error::AuthenticationFailed),
        }
        .map(|()| text)
        .map_err(|_| Error::AuthenticationFailed)
    }

    /// Encrypts in place and returns the tag.
    fn seal(&self, nonce: [u8; NONCE], text: &mut [u8], aad: &[u8]) -> Result<[u8; TAG], Error> {
        let too_long = Error::PlaintextTooLong { actual: text.len() };
        let (nonce_array, text) = ((&nonce).into(), text);
        match &self.0 {
            Cipher::Aes128(gcm) => gcm.encrypt_inout_detached(nonce_array, aad, text.into()).map(Into::into),
            Cipher::Aes192(gcm) => gcm.encrypt_inout_detached(nonce_array, aad, text.into()).map(Into::into),
            Cipher::Aes256(gcm) => gcm.encrypt_inout_detached(nonce_array, aad, text.into()).map(Into::into),
            #[cfg(feature = "fast-aead")]
            Cipher::AwsLc(key) => {
                use aws_lc_rs::aead;
                let nonce = aead::Nonce::assume_unique_for_key(nonce);
                let tag = key.seal_in_place_separate_tag(nonce, aead::Aad::from(aad), text);
                return tag.ok().and_then(|tag| tag.as_ref().try_into().ok()).ok_or(too_long);
            }
            #[cfg(feature = "fast-aead")]
            Cipher::Ring(RingKey(key)) => {
                use ring::aead;
                let nonce = aead::Nonce::assume_unique_for_key(nonce);
                let tag = key.seal_in_place_separate_tag(nonce, aead::Aad::from(aad), text);
                return tag.ok().and_then(|tag| tag.as_ref().try_into().ok()).ok_or(too_long);
            }
        }
        .map_err(|_| too_long)
    }
}

impl fmt::Debug for AesGcm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AesGcm([REDACTED])")
    }
}

impl Transformer for AesGcm {
    fn transform_from_storage<'a>(&self, data: &'a [u8], context: DataContext<'_>) -> Result<FromStorage<'a>, Error> {
        let (nonce, sealed) =
            data.split_first_chunk::<NONCE>().ok_or(Error::TooShort { required: NONCE, actual: data.len() })?;
        self.open(*nonce, sealed, context.authenticated_data()).map(|text| FromStorage::leaf(Plaintext::Opened(text)))
    }

    fn transform_to_storage(&self, plaintext: &[u8], context: DataContext<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        let nonce = random::<NONCE>()?;
        out.reserve(NONCE + plaintext.len() + TAG);
        out.extend_from_slice(&nonce);
        let start = out.len();
        out.extend_from_slice(plaintext);
        let text = out.get_mut(start..).unwrap_or_default();
        let tag = self.seal(nonce, text, context.authenticated_data())?;
        out.extend_from_slice(&tag);
        Ok(())
    }
}

#[cfg(all(test, feature = "fast-aead"))]
mod tests {
    use proptest::prelude::*;
    use zeroize::Zeroizing;

    use super::*;

    proptest! {
        #[test]
        fn all_engines_seal_to_the_same_bytes_and_open_each_other(
            key in prop_oneof![Just(16_usize), Just(24), Just(32)].prop_flat_map(|n| prop::collection::vec(any::<u8>(), n)),
            nonce: [u8; NONCE],
            aad in prop::collection::vec(any::<u8>(), 0..80),
            text in prop::collection::vec(any::<u8>(), 0..600),
            flip: prop::sample::Index,
        ) {
            let key = Key::new(Zeroizing::new(key));
            let engines = [Engine::RustCrypto, Engine::AwsLc, Engine::Ring];
            let engines = engines.map(|engine| AesGcm::with_engine(&key, engine).unwrap());
            let mut sealed = engines.each_ref().map(|engine| {
                let mut sealed = text.clone();
                let tag = engine.seal(nonce, &mut sealed, &aad).unwrap();
                sealed.extend_from_slice(&tag);
                sealed
            });
            prop_assert_eq!(&sealed[0], &sealed[1]);
            prop_assert_eq!(&sealed[0], &sealed[2]);
            for engine in &engines {
                prop_assert_eq!(&engine.open(nonce, &sealed[0], &aad).unwrap()[..], &text[..]);
            }
            let at = flip.index(sealed[0].len());
            sealed[0][at] ^= 1;
            for engine in &engines {
                prop_assert!(matches!(engine.open(nonce, &sealed[0], &aad), Err(Error::AuthenticationFailed)));
            }
        }
    }
}
