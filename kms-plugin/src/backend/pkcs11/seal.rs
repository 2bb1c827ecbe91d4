//! The ciphertext, and the mechanisms that make it.
//!
//! ```text
//! 01 | nonce (12 bytes) | AES-GCM of the plaintext | tag (16 bytes)     the key ID is authenticated too
//! 02 | AES key wrap (RFC 3394) of: length (2 bytes, big-endian) | plaintext | zeros up to a multiple of 8 bytes
//! ```
//!
//! A token wraps keys, not bytes: the second form is made by `C_WrapKey` of a session object, and opened by `C_UnwrapKey` and reading the
//! object's `CKA_VALUE`. The token must allow that: SoftHSM does, one in FIPS mode may not. It has no associated data; another key than
//! the one that wrapped does not unwrap.
//!
//! A random nonce of 96 bits is good for 2^32 encryptions by one key (SP 800-38D, 8.3). kube-apiserver encrypts one DEK seed each time
//! that it starts or the key changes, plus a probe every 30 seconds; with KMS v1 one DEK for each write.

use atrest::secret::Key;
use atrest::transformer::envelope::MAX_DEK_SOURCE_BYTES;
use cryptoki::error::Error as CryptokiError;
use cryptoki::mechanism::aead::GcmParams;
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::Session;
use zeroize::{Zeroize as _, Zeroizing};

use super::failure::{Failure, Verdict, refuses_ciphertext};
use super::key::TokenKey;
use super::token::has;
use super::{GcmIv, Mechanism as Wanted};
use crate::backend::Error;

const GCM: u8 = 1;
const KEY_WRAP: u8 = 2;

const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
/// Of key wrap.
const BLOCK_BYTES: usize = 8;

/// Encrypts by the mechanism that was chosen, and decrypts by the one that was used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sealer {
    form: u8,
    iv: GcmIv,
}

impl Sealer {
    /// What the options ask for, or what the token and the key allow.
    pub(super) fn choose(
        wanted: Wanted,
        iv: GcmIv,
        key: &TokenKey,
        mechanisms: &[MechanismType],
    ) -> Result<Self, Error> {
        let gcm = has(mechanisms, MechanismType::AES_GCM) && key.encrypts();
        let key_wrap = has(mechanisms, MechanismType::AES_KEY_WRAP) && key.wraps();
        let form = match wanted {
            Wanted::Auto | Wanted::AesGcm if gcm => GCM,
            Wanted::Auto | Wanted::AesKeyWrap if key_wrap => KEY_WRAP,
            _ => {
                let needs = match wanted {
                    Wanted::AesGcm => "CKM_AES_GCM, with CKA_ENCRYPT and CKA_DECRYPT of the key",
                    Wanted::AesKeyWrap => "CKM_AES_KEY_WRAP, with CKA_WRAP and CKA_UNWRAP of the key",
                    Wanted::Auto => {
                        "CKM_AES_GCM, with CKA_ENCRYPT and CKA_DECRYPT of the key, or CKM_AES_KEY_WRAP, with CKA_WRAP and CKA_UNWRAP"
                    }
                };
                return Err(Error::KeyUnusable(format!("it needs {needs}")));
            }
        };
        Ok(Self { form, iv })
    }

    /// Encrypts.
    pub(super) fn seal(self, session: &Session, key: &TokenKey, plaintext: &Key) -> Result<Vec<u8>, Failure> {
        let bytes = plaintext.expose();
        if bytes.is_empty() {
            return Err(Error::InvalidRequest("the plaintext is empty").into());
        }
        let mut ciphertext = vec![self.form];
        // Both forms add less than 64 bytes, and a length of so many fits in two bytes.
        if bytes.len() > MAX_DEK_SOURCE_BYTES - 64 {
            return Err(Error::InvalidRequest("the plaintext is too long").into());
        }
        if self.form == GCM {
            let (nonce, sealed) = self.seal_gcm(session, key, bytes)?;
            ciphertext.extend(nonce);
            ciphertext.extend(sealed);
        } else {
            ciphertext.extend(wrap(session, key.handle(), &framed(bytes))?);
        }
        Ok(ciphertext)
    }

    fn seal_gcm(
        self,
        session: &Session,
        key: &TokenKey,
        bytes: &[u8],
    ) -> Result<([u8; NONCE_BYTES], Vec<u8>), Failure> {
        let mut nonce = [0; NONCE_BYTES];
        if self.iv == GcmIv::Random {
            getrandom::fill(&mut nonce).map_err(|error| Error::Unavailable(format!("no random numbers: {error}")))?;
        }
        let params = GcmParams::new(&mut nonce, key.key_id().as_bytes(), 128.into())?;
        let sealed = session.encrypt(&Mechanism::AesGcm(params), key.handle(), bytes)?;
        if nonce == [0; NONCE_BYTES] {
            let text = "the token makes no nonces of its own: use --pkcs11-gcm-iv random";
            return Err(Error::KeyUnusable(text.to_owned()).into());
        }
        if sealed.len() != bytes.len() + TAG_BYTES {
            let text = format!("the token's AES-GCM adds {} bytes, not 16", sealed.len().saturating_sub(bytes.len()));
            return Err(Error::KeyUnusable(text).into());
        }
        Ok((nonce, sealed))
    }

    /// Decrypts. What cannot be decrypted is called so only if the key itself works.
    ///
    /// `key_id` is the one that it was encrypted under, whatever the key's is now.
    pub(super) fn open(
        self,
        session: &Session,
        key: &TokenKey,
        key_id: &str,
        ciphertext: &[u8],
    ) -> Result<Key, Failure> {
        let refused = || Failure::from(Error::AuthenticationFailed);
        if ciphertext.len() > MAX_DEK_SOURCE_BYTES {
            return Err(refused());
        }
        let opened = match ciphertext.split_first() {
            Some((&GCM, rest)) => match rest.split_first_chunk::<NONCE_BYTES>() {
                Some((nonce, sealed)) if sealed.len() > TAG_BYTES => open_gcm(session, key, key_id, *nonce, sealed),
                _ => return Err(refused()),
            },
            // The smallest has two blocks and the check value.
            Some((&KEY_WRAP, wrapped)) if wrapped.len() >= 3 * BLOCK_BYTES && wrapped.len() % BLOCK_BYTES == 0 => {
                unwrap(session, key.handle(), wrapped)
            }
            _ => return Err(refused()),
        };
        let bytes = match opened {
            Ok(bytes) => bytes,
            Err(error) => {
                return Err(match refuses_ciphertext(&error) {
                    Verdict::Yes => refused(),
                    Verdict::Perhaps if self.works(session, key, ciphertext) => refused(),
                    _ => error.into(),
                });
            }
        };
        if ciphertext.first() == Some(&GCM) { Ok(Key::new(bytes)) } else { unframed(&bytes).ok_or_else(refused) }
    }

    /// Whether the key opens what it makes now, by the mechanism of this ciphertext.
    fn works(self, session: &Session, key: &TokenKey, ciphertext: &[u8]) -> bool {
        let form = if ciphertext.first() == Some(&KEY_WRAP) { KEY_WRAP } else { GCM };
        let probe = Key::new(Zeroizing::new(vec![0; 16]));
        let Ok(sealed) = (Self { form, ..self }).seal(session, key, &probe) else { return false };
        match sealed.split_first() {
            Some((&GCM, rest)) => rest.split_first_chunk::<NONCE_BYTES>().is_some_and(|(nonce, sealed)| {
                open_gcm(session, key, key.key_id(), *nonce, sealed).is_ok_and(|o| *o == [0; 16])
            }),
            Some((_, wrapped)) => unwrap(session, key.handle(), wrapped).is_ok(),
            None => false,
        }
    }
}

fn open_gcm(
    session: &Session,
    key: &TokenKey,
    key_id: &str,
    mut nonce: [u8; NONCE_BYTES],
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, CryptokiError> {
    let params = GcmParams::new(&mut nonce, key_id.as_bytes(), 128.into())?;
    session.decrypt(&Mechanism::AesGcm(params), key.handle(), sealed).map(Zeroizing::new)
}

/// The plaintext as key wrap takes it: its length, and zeros up to whole blocks.
fn framed(plaintext: &[u8]) -> Zeroizing<Vec<u8>> {
    let len = (plaintext.len() + 2).next_multiple_of(BLOCK_BYTES).max(2 * BLOCK_BYTES);
    let mut bytes = Zeroizing::new(Vec::with_capacity(len));
    let [high, low] = u16::try_from(plaintext.len()).unwrap_or(u16::MAX).to_be_bytes();
    bytes.extend_from_slice(&[high, low]);
    bytes.extend_from_slice(plaintext);
    bytes.resize(len, 0);
    bytes
}

/// The plaintext of that, `None` when it is nothing that [`framed`] makes.
fn unframed(bytes: &Zeroizing<Vec<u8>>) -> Option<Key> {
    let (len, rest) = bytes.split_first_chunk::<2>()?;
    let plaintext = rest.get(..usize::from(u16::from_be_bytes(*len)))?;
    (!plaintext.is_empty() && framed(plaintext) == *bytes).then(|| Key::new(Zeroizing::new(plaintext.to_vec())))
}

/// AES key wrap of bytes, through a session object that holds them.
pub(super) fn wrap(session: &Session, key: ObjectHandle, bytes: &[u8]) -> Result<Vec<u8>, CryptokiError> {
    let mut template = [
        Attribute::Value(bytes.to_vec()),
        Attribute::Class(ObjectClass::SECRET_KEY),
        Attribute::KeyType(KeyType::GENERIC_SECRET),
        Attribute::Token(false),
        Attribute::Private(true),
        Attribute::Sensitive(false),
        Attribute::Extractable(true),
    ];
    let created = session.create_object(&template);
    if let [Attribute::Value(value), ..] = &mut template {
        value.zeroize();
    }
    let object = created?;
    let wrapped = session.wrap_key(&Mechanism::AesKeyWrap, key, object);
    session.destroy_object(object)?;
    wrapped
}

fn unwrap(session: &Session, key: ObjectHandle, wrapped: &[u8]) -> Result<Zeroizing<Vec<u8>>, CryptokiError> {
    let template = [
        Attribute::Class(ObjectClass::SECRET_KEY),
        Attribute::KeyType(KeyType::GENERIC_SECRET),
        Attribute::Token(false),
        Attribute::Private(true),
        Attribute::Sensitive(false),
        Attribute::Extractable(true),
    ];
    let object = session.unwrap_key(&Mechanism::AesKeyWrap, key, wrapped, &template)?;
    let values = session.get_attributes(object, &[AttributeType::Value]);
    session.destroy_object(object)?;
    let value = values?.into_iter().find_map(|attribute| match attribute {
        Attribute::Value(bytes) => Some(Zeroizing::new(bytes)),
        _ => None,
    });
    value.ok_or(CryptokiError::InvalidValue)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_frame_has_the_length_the_plaintext_and_zeros() {
        assert_eq!(**framed(b"ping"), *b"\0\x04ping\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(framed(&[7; 32]).len(), 40);
        assert_eq!(framed(&[7; 14]).len(), 16);
        assert_eq!(framed(&[7; 15]).len(), 24);
    }

    #[test]
    fn a_frame_with_other_padding_is_none() {
        let opened = |bytes: &[u8]| unframed(&Zeroizing::new(bytes.to_vec()));
        assert_eq!(opened(b"\0\x04ping\0\0\0\0\0\0\0\0\0\x01"), None);
        assert_eq!(opened(b"\0\x04ping\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), None);
        assert_eq!(opened(b"\xff\xffping\0\0\0\0\0\0\0\0\0\0"), None);
        assert_eq!(opened(&[0; 16]), None);
        assert_eq!(opened(b"\0"), None);
    }

    proptest! {
        #[test]
        fn what_is_framed_is_unframed(plaintext in proptest::collection::vec(any::<u8>(), 1..1000)) {
            let opened = unframed(&framed(&plaintext)).expect("it is a frame");
            prop_assert_eq!(opened.expose(), plaintext.as_slice());
        }

        #[test]
        fn unframed_is_total_and_exact(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let bytes = Zeroizing::new(bytes);
            if let Some(key) = unframed(&bytes) {
                prop_assert_eq!(framed(key.expose()), bytes);
            }
        }
    }
}
