//! Where the key-encryption keys are.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use atrest::secret::Key;

#[cfg(feature = "aws")]
pub mod aws;
pub mod keyring;
#[cfg(any(feature = "aws", feature = "vault"))]
mod pause;
#[cfg(feature = "pkcs11")]
pub mod pkcs11;
#[cfg(feature = "vault")]
pub mod vault;

/// A KMS that keeps key-encryption keys: several, of which the current one encrypts and all decrypt.
#[tonic::async_trait]
pub trait Backend: fmt::Debug + Send + Sync {
    /// What it is called in logs and metrics: `keyring`, `pkcs11`, `aws`, `vault`.
    fn name(&self) -> &'static str;

    /// Whether [`current_key_id`](Self::current_key_id) answers at once and costs nothing: it is then asked at every Status.
    fn is_local(&self) -> bool {
        false
    }

    /// The ID of the key that encrypts now. It never names another key later, and holds no secret.
    ///
    /// # Errors
    ///
    /// When it is not known, or something is wrong with the key.
    async fn current_key_id(&self) -> Result<String, Error>;

    /// Encrypts a DEK source by the current key.
    ///
    /// # Errors
    ///
    /// When the KMS cannot, or will not.
    async fn encrypt(&self, plaintext: &Key) -> Result<Wrapped, Error>;

    /// Decrypts a DEK source by the key that encrypted it.
    ///
    /// # Errors
    ///
    /// When the KMS cannot, or will not, or this is no ciphertext of that key.
    async fn decrypt(&self, wrapped: &Wrapped) -> Result<Key, Error>;

    /// Reads again what the keys are: on SIGHUP, and when the backend says that its file has changed.
    ///
    /// # Errors
    ///
    /// When it cannot; what was known before stays in force.
    async fn reload(&self) -> Result<(), Error> {
        Ok(())
    }

    /// What is wrong although requests are served, for the text of health endpoints. It holds no raw key ID.
    fn warning(&self) -> Option<String> {
        None
    }
}

/// An encrypted DEK source, as kube-apiserver keeps it with each value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrapped {
    /// 1 to 1024 bytes.
    pub ciphertext: Vec<u8>,
    /// The ID of the key that encrypted: 1 to 1024 bytes.
    pub key_id: String,
    /// Kept in the clear: names are domain names, 32 KiB at most together.
    pub annotations: BTreeMap<String, Vec<u8>>,
}

/// Why a KMS did not do as it was asked. No text of it holds key material or a raw key ID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No key has that ID, or it was retired.
    #[error("no key has the ID {key_id_hash}")]
    UnknownKey {
        /// `sha256:` and the hash.
        key_id_hash: String,
    },
    /// The ciphertext was not made by that key, or is damaged.
    #[error("the ciphertext is not of this key, or it is damaged")]
    AuthenticationFailed,
    /// The request itself is wrong: too large, empty, of a wrong form.
    #[error("invalid request: {0}")]
    InvalidRequest(&'static str),
    /// The KMS limits the rate of requests.
    #[error("the KMS limits the rate of requests")]
    Throttled {
        /// How long it wants to be left alone, when it says.
        retry_after: Option<Duration>,
    },
    /// The KMS does not accept our credentials, or they have expired.
    #[error("the KMS refuses our credentials: {0}")]
    Credentials(String),
    /// The key exists and cannot be used: disabled, pending deletion, without the permission.
    #[error("the key cannot be used: {0}")]
    KeyUnusable(String),
    /// The options make no sense.
    #[error("the configuration is wrong: {0}")]
    Configuration(String),
    /// The KMS cannot be reached, or failed.
    #[error("the KMS is not available: {0}")]
    Unavailable(String),
}

#[cfg(all(test, any(feature = "aws", feature = "pkcs11", feature = "vault")))]
mod tests {
    use clap::{CommandFactory as _, Parser};

    #[derive(Debug, Parser)]
    struct AllBackends {
        #[cfg(feature = "aws")]
        #[command(flatten)]
        aws: super::aws::Options,
        #[cfg(feature = "pkcs11")]
        #[command(flatten)]
        pkcs11: super::pkcs11::Options,
        #[cfg(feature = "vault")]
        #[command(flatten)]
        vault: super::vault::Options,
    }

    #[test]
    fn the_options_of_all_backends_fit_into_one_command() {
        AllBackends::command().debug_assert();
        let none = AllBackends::try_parse_from(["atrest-kms-plugin"]).expect("nothing is required by clap");
        #[cfg(feature = "pkcs11")]
        assert_eq!(none.pkcs11.pkcs11_timeout.as_millis(), 2500);
        #[cfg(feature = "vault")]
        assert_eq!(none.vault.vault_timeout.as_millis(), 2500);
        #[cfg(feature = "aws")]
        assert_eq!(none.aws.aws_timeout.as_millis(), 2500);
    }
}
