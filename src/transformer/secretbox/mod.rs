mod keystream;

use std::fmt;

use poly1305::Poly1305;
use poly1305::universal_hash::KeyInit as _;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use self::keystream::Keystream;
use super::{DataContext, Error, FromStorage, ProviderKind, Transformer, random};
use crate::secret::{Key, Opened, Plaintext};

const NONCE: usize = 24;
const TAG: usize = 16;
const KEY: usize = 32;

/// NaCl's secretbox: XSalsa20 and Poly1305 (Bernstein, "Cryptography in NaCl", section 9).
///
/// ```text
/// nonce[24] || tag[16] || ciphertext[n]
/// ```
///
/// The context is ignored: the content is authenticated, its place is not. Upstream: `encrypt/secretbox.NewSecretboxTransformer`.
pub struct Secretbox(Zeroizing<[u8; KEY]>);

impl Secretbox {
    /// A transformer under one key of 32 bytes.
    ///
    /// # Errors
    ///
    /// [`Error::KeyLength`] for any other length.
    pub fn new(key: &Key) -> Result<Self, Error> {
        let key = <[u8; KEY]>::try_from(key.expose())
            .map_err(|_| Error::KeyLength { provider: ProviderKind::Secretbox, actual: key.len() })?;
        Ok(Self(Zeroizing::new(key)))
    }
}

impl fmt::Debug for Secretbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secretbox([REDACTED])")
    }
}

fn tag(stream: &Keystream, ciphertext: &[u8]) -> [u8; TAG] {
    Poly1305::new(stream.authenticator_key().into()).compute_unpadded(ciphertext).into()
}

impl Transformer for Secretbox {
    fn transform_from_storage<'a>(&self, data: &'a [u8], _: DataContext<'_>) -> Result<FromStorage<'a>, Error> {
        let too_short = Error::TooShort { required: NONCE + TAG, actual: data.len() };
        let Some((nonce, sealed)) = data.split_first_chunk::<NONCE>() else { return Err(too_short) };
        let Some((expected, ciphertext)) = sealed.split_first_chunk::<TAG>() else { return Err(too_short) };
        let stream = Keystream::new(&self.0, nonce);
        if !bool::from(tag(&stream, ciphertext).ct_eq(expected)) {
            return Err(Error::AuthenticationFailed);
        }
        let mut text = Opened::new(ciphertext.to_vec());
        stream.apply(&mut text);
        Ok(FromStorage::leaf(Plaintext::Opened(text)))
    }

    fn transform_to_storage(&self, plaintext: &[u8], _: DataContext<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        let nonce = random::<NONCE>()?;
        out.reserve(NONCE + TAG + plaintext.len());
        out.extend_from_slice(&nonce);
        let tag_at = out.len();
        out.extend_from_slice(&[0; TAG]);
        out.extend_from_slice(plaintext);
        let stream = Keystream::new(&self.0, &nonce);
        if let Some((place, text)) = out.get_mut(tag_at..).and_then(|sealed| sealed.split_first_chunk_mut::<TAG>()) {
            stream.apply(text);
            *place = tag(&stream, text);
        }
        Ok(())
    }
}
