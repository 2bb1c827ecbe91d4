//! From a passphrase to the key that seals the file: Argon2id (RFC 9106).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use argon2::{Algorithm, Argon2, Block, Params, Version};
use atrest::secret::Key;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

use super::Error;
use super::aead::KEY_LEN;
use super::seal::Bytes;
use crate::secret_file::{self, Contents};

/// The longest passphrase in bytes.
const MAX_LEN: usize = 64 * 1024;
/// Shorter ones are warned about, in bytes.
const SHORT_LEN: usize = 16;

/// Where the passphrase is. Only ever a file: what is in `argv` or the environment is seen by others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// A credential of systemd: a file of that name in `$CREDENTIALS_DIRECTORY`.
    Credential(String),
}

impl Source {
    fn path(&self) -> Result<PathBuf, Error> {
        match self {
            Self::File(path) => Ok(path.clone()),
            Self::Credential(name) => {
                if Path::new(name).file_name() != Some(OsStr::new(name)) {
                    return Err(Error::CredentialName);
                }
                let dir = std::env::var_os("CREDENTIALS_DIRECTORY").filter(|dir| !dir.is_empty());
                Ok(Path::new(&dir.ok_or(Error::NoCredentials)?).join(name))
            }
        }
    }

    /// The passphrase: all bytes of the file, without one `\n` at the end.
    pub(super) fn read(&self) -> Result<Passphrase, Error> {
        let path = self.path()?;
        let failed = |source| Error::PassphraseFile { path: path.clone(), source };
        match secret_file::read(&path, MAX_LEN).map_err(failed)? {
            Contents::Secret(bytes) => Ok(Passphrase { bytes, path }),
            Contents::Empty => Err(Error::EmptyPassphrase { path }),
            Contents::TooLong => Err(Error::LongPassphrase { path }),
        }
    }
}

/// A passphrase, wiped when dropped.
pub(super) struct Passphrase {
    bytes: Zeroizing<Vec<u8>>,
    path: PathBuf,
}

impl Passphrase {
    /// Warns when it could be guessed.
    pub(super) fn warn_when_short(&self) {
        if self.bytes.len() < SHORT_LEN {
            tracing::warn!(
                "the passphrase in {} has fewer than {SHORT_LEN} bytes, and whoever gets the keyring can try many",
                self.path.display()
            );
        }
    }
}

/// How a key comes from a passphrase. Part of the file's header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Derivation {
    kdf: Kdf,
    memory_kib: u32,
    passes: u32,
    lanes: u32,
    salt: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Kdf {
    #[serde(rename = "argon2id")]
    Argon2id,
}

impl Derivation {
    /// Over what OWASP asks for at least: 64 MiB, three passes, one lane; about 0.2 s.
    pub(super) fn generate() -> Result<Self, Error> {
        let mut salt = vec![0; 16];
        getrandom::fill(&mut salt).map_err(|_| Error::Random)?;
        Ok(Self { kdf: Kdf::Argon2id, memory_kib: 64 * 1024, passes: 3, lanes: 1, salt: Bytes(salt) })
    }

    /// From 8 MiB to 1 GiB, and no more work than four passes over 1 GiB, which is some seconds; the salt of 16 to 64 bytes.
    pub(super) fn check(&self) -> Result<(), Error> {
        let work = u64::from(self.memory_kib).saturating_mul(self.passes.into());
        let is_allowed = (8 * 1024..=1024 * 1024).contains(&self.memory_kib)
            && self.passes >= 1
            && work <= 4 * 1024 * 1024
            && (1..=16).contains(&self.lanes)
            && (16..=64).contains(&self.salt.0.len());
        if is_allowed { Ok(()) } else { Err(Error::KdfBounds) }
    }

    pub(super) fn derive(&self, passphrase: &Passphrase) -> Result<Key, Error> {
        self.check()?;
        let params =
            Params::new(self.memory_kib, self.passes, self.lanes, Some(KEY_LEN)).map_err(|_| Error::KdfBounds)?;
        let no_memory = |_| Error::Io { action: "derive the key for", source: std::io::ErrorKind::OutOfMemory.into() };
        let mut blocks = Vec::new();
        blocks.try_reserve_exact(params.block_count()).map_err(no_memory)?;
        blocks.resize(params.block_count(), Block::default());
        let mut key = Zeroizing::new(vec![0; KEY_LEN]);
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let derived =
            argon2.hash_password_into_with_memory(&passphrase.bytes, &self.salt.0, &mut key, blocks.as_mut_slice());
        // They tell about the passphrase.
        blocks.iter_mut().for_each(|block| block.zeroize());
        derived.map_err(|_| Error::KdfBounds)?;
        Ok(Key::new(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passphrase(bytes: &[u8]) -> Passphrase {
        Passphrase { bytes: Zeroizing::new(bytes.to_vec()), path: PathBuf::new() }
    }

    fn derivation(memory_kib: u32, passes: u32, lanes: u32, salt: &[u8]) -> Derivation {
        Derivation { kdf: Kdf::Argon2id, memory_kib, passes, lanes, salt: Bytes(salt.to_vec()) }
    }

    /// Made by argon2-cffi 25.1.0: `hash_secret_raw(b"correct horse", b"0123456789abcdef", 2, 8192, 4, 32, Type.ID)`.
    #[test]
    fn the_key_is_that_of_the_reference_implementation() {
        let key = derivation(8192, 2, 4, b"0123456789abcdef").derive(&passphrase(b"correct horse")).unwrap();
        assert_eq!(hex::encode(key.expose()), "8962af270f4a84793bf021aa33a45a7cca774dbd4bc4e522785a439e0a0110c0");
    }

    #[test]
    fn a_file_cannot_ask_for_all_memory_or_for_hours() {
        let salt = [0; 16];
        let allowed = [(8192, 1, 1), (65536, 3, 1), (65536, 64, 16), (1024 * 1024, 4, 1)];
        for (memory_kib, passes, lanes) in allowed {
            derivation(memory_kib, passes, lanes, &salt).check().unwrap();
        }
        let refused = [
            (8191, 1, 1),
            (1024 * 1024 + 1, 1, 1),
            (u32::MAX, u32::MAX, 1),
            (1024 * 1024, 5, 1),
            (8192, 513, 1),
            (8192, 1_000_000_000, 1),
            (8192, 0, 1),
            (8192, 1, 0),
            (8192, 1, 17),
        ];
        for (memory_kib, passes, lanes) in refused {
            let error = derivation(memory_kib, passes, lanes, &salt).derive(&passphrase(b"x")).unwrap_err();
            assert!(matches!(error, Error::KdfBounds), "{memory_kib} {passes} {lanes}");
        }
        for len in [0, 15, 65] {
            assert!(matches!(derivation(8192, 1, 1, &vec![0; len]).check(), Err(Error::KdfBounds)), "salt of {len}");
        }
    }
}
