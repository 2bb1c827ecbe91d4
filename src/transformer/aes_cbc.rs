use std::fmt;

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockModeDecrypt as _, BlockModeEncrypt as _, InnerIvInit as _, KeyInit as _};
use aes::{Aes128, Aes192, Aes256};

use super::{DataContext, Error, FromStorage, ProviderKind, Transformer, random};
use crate::secret::{Key, Opened, Plaintext};

const BLOCK: usize = 16;

/// AES-CBC with PKCS#7 padding (RFC 5652, section 6.3), without authentication.
///
/// ```text
/// IV[16] || AES-CBC(key, IV, PKCS7(plaintext))
/// ```
///
/// The context is ignored, so a value can be moved to another etcd key, and a wrong key opens about one value in 256: what
/// comes out must be looked at before it is believed. Upstream: `encrypt/aes.NewCBCTransformer`.
pub struct AesCbc(Cipher);

enum Cipher {
    Aes128(Aes128),
    Aes192(Aes192),
    Aes256(Aes256),
}

impl AesCbc {
    /// A transformer under one key of 16, 24 or 32 bytes.
    ///
    /// # Errors
    ///
    /// [`Error::KeyLength`] for any other length.
    pub fn new(key: &Key) -> Result<Self, Error> {
        let cipher = match key.len() {
            16 => Aes128::new_from_slice(key.expose()).map(Cipher::Aes128),
            24 => Aes192::new_from_slice(key.expose()).map(Cipher::Aes192),
            _ => Aes256::new_from_slice(key.expose()).map(Cipher::Aes256),
        };
        cipher.map(Self).map_err(|_| Error::KeyLength { provider: ProviderKind::AesCbc, actual: key.len() })
    }
}

impl fmt::Debug for AesCbc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AesCbc([REDACTED])")
    }
}

/// The length without the padding, as upstream checks it.
///
/// Upstream compares the last byte with the length of the text only, not with the block size, so a padding of 17 to 255
/// equal bytes is accepted; a stricter check would refuse values that kube-apiserver reads.
fn unpadded_len(text: &[u8]) -> Option<usize> {
    let count = usize::from(*text.last()?);
    let unpadded = text.len().checked_sub(count).filter(|_| count != 0)?;
    let padding = text.get(unpadded..)?;
    padding.iter().all(|byte| usize::from(*byte) == count).then_some(unpadded)
}

impl Transformer for AesCbc {
    fn transform_from_storage<'a>(&self, data: &'a [u8], _: DataContext<'_>) -> Result<FromStorage<'a>, Error> {
        let too_short = |required| Error::TooShort { required, actual: data.len() };
        let (iv, ciphertext) = data.split_first_chunk::<BLOCK>().ok_or_else(|| too_short(BLOCK))?;
        if ciphertext.len() % BLOCK != 0 {
            return Err(Error::NotBlockMultiple);
        }
        if ciphertext.is_empty() {
            // Upstream panics here: it looks for the padding in front of the text.
            return Err(too_short(2 * BLOCK));
        }
        let mut text = Opened::new(ciphertext.to_vec());
        let (blocks, _) = aes::Block::slice_as_chunks_mut(&mut text);
        match &self.0 {
            Cipher::Aes128(aes) => cbc::Decryptor::inner_iv_init(aes, iv.into()).decrypt_blocks(blocks),
            Cipher::Aes192(aes) => cbc::Decryptor::inner_iv_init(aes, iv.into()).decrypt_blocks(blocks),
            Cipher::Aes256(aes) => cbc::Decryptor::inner_iv_init(aes, iv.into()).decrypt_blocks(blocks),
        }
        let unpadded = unpadded_len(&text).ok_or(Error::AuthenticationFailed)?;
        text.truncate(unpadded);
        Ok(FromStorage::leaf(Plaintext::Opened(text)))
    }

    fn transform_to_storage(&self, plaintext: &[u8], _: DataContext<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        let iv = random::<BLOCK>()?;
        let padding = BLOCK - plaintext.len() % BLOCK;
        out.reserve(BLOCK + plaintext.len() + padding);
        out.extend_from_slice(&iv);
        let start = out.len();
        out.extend_from_slice(plaintext);
        out.resize(out.len() + padding, 0);
        let text = out.get_mut(start..).unwrap_or_default();
        let sealed = match &self.0 {
            Cipher::Aes128(aes) => {
                cbc::Encryptor::inner_iv_init(aes, &iv.into()).encrypt_padded::<Pkcs7>(text, plaintext.len())
            }
            Cipher::Aes192(aes) => {
                cbc::Encryptor::inner_iv_init(aes, &iv.into()).encrypt_padded::<Pkcs7>(text, plaintext.len())
            }
            Cipher::Aes256(aes) => {
                cbc::Encryptor::inner_iv_init(aes, &iv.into()).encrypt_padded::<Pkcs7>(text, plaintext.len())
            }
        };
        sealed.map_err(|_| Error::PlaintextTooLong { actual: plaintext.len() })?;
        Ok(())
    }
}
