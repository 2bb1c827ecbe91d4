//! Key-encryption keys in one file: several, of which one encrypts and all decrypt.
//!
//! # The file
//!
//! A JSON object of at most 1 MiB, here with seal `none`:
//!
//! ```json
//! {
//!   "format": "atrest-keyring",
//!   "version": 1,
//!   "seal": "none",
//!   "content": {
//!     "keys": [{"id": "kr-20260131-0123456789abcdef", "created": "2026-01-31T10:00:00Z", "state": "current", "key": "<32 bytes>"}],
//!     "retired": [{"id": "…", "created": "…", "retired": "2026-02-28T10:00:00Z"}]
//!   }
//! }
//! ```
//!
//! All bytes are in base64 (RFC 4648, section 4, with padding), all times as in RFC 3339, no other fields are allowed. `state`
//! is `current` (of one key), `staged` or `decrypt-only`. A key that has encrypted and does not any more has `deactivated`, the time when
//! it stopped; files of before that field do not have it. Instead of `none` the seal is one of
//!
//! ```json
//! {"passphrase": {"kdf": "argon2id", "memory_kib": 65536, "passes": 3, "lanes": 1, "salt": "<16 to 64 bytes>"}}
//! {"tpm2": {"public": "<TPMT_PUBLIC>", "private": "<the buffer of TPM2B_PRIVATE>", "pcrs": []}}
//! ```
//!
//! and then `sealed` takes the place of `content`: the nonce of 24 bytes, the same object as JSON encrypted by
//! XChaCha20-Poly1305, the tag of 16. The key is what Argon2id (RFC 9106, version 0x13) makes of the passphrase, or the 32 bytes
//! that the TPM unseals; the associated data is the JSON of `format`, `version` and `seal`, in this order, fields in the order
//! above, without spaces: `{"format":"atrest-keyring","version":1,"seal":{…}}`.
//!
//! The passphrase is all bytes of its file but one newline at the end. A credential of systemd is such a file too: whatever is in
//! it, a random key or words, Argon2id makes the key of it.
//!
//! A key wraps a DEK source by XChaCha20-Poly1305 with its key ID as associated data: nonce, ciphertext, tag.
//!
//! How keys are rotated is told in the plugin's README, "Rotating the key".

mod aead;
mod args;
mod document;
mod error;
mod file;
mod kek;
mod key_id;
mod passphrase;
mod ring;
mod seal;
#[cfg(feature = "tpm")]
mod tpm;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use atrest::secret::Key;
use time::OffsetDateTime;

pub use args::{KeyringArgs, NewSealArgs, SealArgs};
pub use document::Document;
pub use error::{Error, FileError};
pub(crate) use file::Signature;
pub(crate) use kek::MAX_PLAINTEXT;
pub use key_id::KeyId;
pub use passphrase::Source;
pub use ring::{KeyInfo, Retired, Ring, State, rfc3339};
pub use seal::{Method, Opener, TpmOptions};
#[cfg(feature = "tpm")]
pub use tpm::TpmError;

use seal::Seal;

/// A keyring as its file was at one time.
pub struct Keyring {
    ring: Ring,
    seal: Seal,
    /// Opens `seal`.
    key: Option<Arc<Key>>,
    signature: Option<Signature>,
}

impl Keyring {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// When it is no keyring, or does not open.
    pub fn open(path: &Path, opener: &Opener) -> Result<Self, Error> {
        Self::of_snapshot(&file::read(path)?, opener, None)
    }

    /// Reads a file again; unless its seal is another, what opened it before is used once more.
    pub(crate) fn reopen(&self, path: &Path, opener: &Opener) -> Result<Self, Error> {
        Self::of_snapshot(&file::read(path)?, opener, Some(self))
    }

    /// Creates a file with one new key.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`], or when it cannot be written or sealed.
    pub fn create(path: &Path, opener: &Opener, now: OffsetDateTime) -> Result<Self, Error> {
        if std::fs::symlink_metadata(path).is_ok() {
            return Err(Error::Exists);
        }
        let (seal, key) = opener.seal()?;
        let ring = Ring::generate(now)?;
        file::create(path, &document::write(&ring, &seal, key.as_ref())?)?;
        Ok(Self { ring, seal, key: key.map(Arc::new), signature: None })
    }

    /// Changes the keys, while no other process does; when `change` fails, the file stays as it is.
    ///
    /// # Errors
    ///
    /// When it does not open, cannot be written, or `change` fails.
    pub fn update<T>(
        path: &Path,
        opener: &Opener,
        change: impl FnOnce(&mut Ring) -> Result<T, Error>,
    ) -> Result<(Self, T), Error> {
        let locked = file::lock(path)?;
        let mut keyring = Self::of_snapshot(&locked.read()?, opener, None)?;
        let outcome = change(&mut keyring.ring)?;
        let text = document::write(&keyring.ring, &keyring.seal, keyring.key.as_deref())?;
        locked.replace(&text, keyring.key.is_some())?;
        Ok((keyring, outcome))
    }

    /// Seals the same keys in another way, or in the same with a new salt.
    ///
    /// # Errors
    ///
    /// When it does not open, or cannot be sealed or written.
    pub fn reseal(path: &Path, opener: &Opener, new: &Opener) -> Result<Self, Error> {
        let locked = file::lock(path)?;
        let keyring = Self::of_snapshot(&locked.read()?, opener, None)?;
        let (seal, key) = new.seal()?;
        locked.replace(&document::write(&keyring.ring, &seal, key.as_ref())?, key.is_some())?;
        Ok(Self { seal, key: key.map(Arc::new), ..keyring })
    }

    /// Its keys.
    #[must_use]
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// How it is sealed.
    #[must_use]
    pub fn method(&self) -> Method {
        self.seal.method()
    }

    /// What the file showed when it was read.
    pub(crate) fn signature(&self) -> Option<Signature> {
        self.signature
    }

    fn of_snapshot(snapshot: &file::Snapshot, opener: &Opener, known: Option<&Self>) -> Result<Self, Error> {
        let document = Document::parse(&snapshot.text)?;
        let key = match known.filter(|known| known.seal == *document.seal()) {
            Some(known) => known.key.clone(),
            None => opener.unlock(document.seal())?.map(Arc::new),
        };
        if key.is_none() {
            snapshot.check_private()?;
        }
        let (seal, ring) = document.open(key.as_deref())?;
        Ok(Self { ring, seal, key, signature: Some(snapshot.signature()) })
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.ring.keys().collect();
        f.debug_struct("Keyring").field("seal", &self.seal.method()).field("keys", &keys).finish_non_exhaustive()
    }
}
