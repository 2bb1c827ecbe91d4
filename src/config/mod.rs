//! `EncryptionConfiguration`: the file of kube-apiserver's `--encryption-provider-config`, decoded and validated.
//!
//! A file is accepted here exactly when kube-apiserver 1.36 accepts it, with KMS v1 enabled. A file that is refused gets
//! every error at once, each with its field and its place, and no error repeats text that may be a key. Text goes
//! through three stages: `document` makes a tree of JSON or YAML, `decode` finds the fields of the type in the tree, and
//! `validation` checks what they say.

mod base64;
mod decode;
mod diagnostic;
pub(crate) mod document;
mod duration;
mod endpoint;
mod fields;
mod json;
mod problem;
mod resource_match;
mod scalar;
mod validation;
mod yaml;

use std::fmt;
use std::time::Duration;

pub use self::diagnostic::{Diagnostic, Position};
pub use self::duration::{InvalidDuration, parse_timeout};
pub use self::endpoint::{DialAddress, Endpoint, InvalidEndpoint};
pub use self::problem::{Format, NodeType, Placeholder, Problem};
use crate::secret::Key;

/// A valid configuration.
#[derive(Debug, PartialEq, Eq)]
pub struct EncryptionConfiguration {
    /// The entries, in file order.
    pub resources: Vec<ResourceConfiguration>,
}

/// Resources, and the providers that they share.
#[derive(Debug, PartialEq, Eq)]
pub struct ResourceConfiguration {
    /// Resources as in the file: `secrets`, `deployments.apps`, `*.apps`, `*.` or `*.*`.
    pub resources: Vec<String>,
    /// The providers: the first writes, all read.
    pub providers: Vec<ProviderConfiguration>,
    /// Where the entry is in the file.
    pub position: Position,
}

/// One way to store a value.
#[derive(Debug, PartialEq, Eq)]
pub enum ProviderConfiguration {
    /// AES-GCM with a random nonce.
    AesGcm(AesConfiguration),
    /// AES-CBC.
    AesCbc(AesConfiguration),
    /// XSalsa20 and Poly1305.
    Secretbox(SecretboxConfiguration),
    /// No encryption.
    Identity(IdentityConfiguration),
    /// Envelope encryption with keys of a KMS plugin.
    Kms(KmsConfiguration),
}

/// The provider `aesgcm` or `aescbc`.
#[derive(Debug, PartialEq, Eq)]
pub struct AesConfiguration {
    /// Keys of 16, 24 or 32 bytes: the first writes, all read.
    pub keys: Vec<NamedKey>,
    /// Where the provider is in the file.
    pub position: Position,
}

/// The provider `secretbox`.
#[derive(Debug, PartialEq, Eq)]
pub struct SecretboxConfiguration {
    /// Keys of 32 bytes: the first writes, all read.
    pub keys: Vec<NamedKey>,
    /// Where the provider is in the file.
    pub position: Position,
}

/// The provider `identity`.
#[derive(Debug, PartialEq, Eq)]
pub struct IdentityConfiguration {
    /// Where the provider is in the file.
    pub position: Position,
}

/// The provider `kms`.
#[derive(Debug, PartialEq, Eq)]
pub struct KmsConfiguration {
    /// The API that the plugin speaks.
    pub api_version: KmsApiVersion,
    /// The name, which is a part of each stored value.
    pub name: String,
    /// The plugin's socket.
    pub endpoint: Endpoint,
    /// The longest a call may take.
    pub timeout: Duration,
    /// How many keys are cached, negative for none; KMS v2 has no such setting.
    pub cache_size: Option<i32>,
    /// Where the provider is in the file.
    pub position: Position,
}

/// The API of a KMS plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KmsApiVersion {
    /// The package `v1beta1`: deprecated, and disabled by default since Kubernetes 1.29.
    V1,
    /// The package `v2`.
    V2,
}

impl fmt::Display for KmsApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KmsApiVersion::V1 => "v1",
            KmsApiVersion::V2 => "v2",
        })
    }
}

/// A key and the name that values written with it carry.
#[derive(Debug, PartialEq, Eq)]
pub struct NamedKey {
    /// The name.
    pub name: String,
    /// The key.
    pub secret: Key,
    /// Where the secret is in the file.
    pub position: Position,
}

impl ProviderConfiguration {
    /// The field that the provider is in the file: `aesgcm`, `aescbc`, `secretbox`, `identity` or `kms`.
    #[must_use]
    pub fn field_name(&self) -> &'static str {
        match self {
            ProviderConfiguration::AesGcm(_) => "aesgcm",
            ProviderConfiguration::AesCbc(_) => "aescbc",
            ProviderConfiguration::Secretbox(_) => "secretbox",
            ProviderConfiguration::Identity(_) => "identity",
            ProviderConfiguration::Kms(_) => "kms",
        }
    }

    /// Where the provider is in the file.
    #[must_use]
    pub fn position(&self) -> Position {
        match self {
            ProviderConfiguration::AesGcm(aes) | ProviderConfiguration::AesCbc(aes) => aes.position,
            ProviderConfiguration::Secretbox(secretbox) => secretbox.position,
            ProviderConfiguration::Identity(identity) => identity.position,
            ProviderConfiguration::Kms(kms) => kms.position,
        }
    }

    /// The keys in the file; a KMS and `identity` have none.
    #[must_use]
    pub fn keys(&self) -> &[NamedKey] {
        match self {
            ProviderConfiguration::AesGcm(aes) | ProviderConfiguration::AesCbc(aes) => &aes.keys,
            ProviderConfiguration::Secretbox(secretbox) => &secretbox.keys,
            ProviderConfiguration::Identity(_) | ProviderConfiguration::Kms(_) => &[],
        }
    }
}

/// How kube-apiserver is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `--encryption-provider-config-automatic-reload`, under which names of KMS v1 must be unique too.
    pub automatic_reload: bool,
}

/// A file that kube-apiserver accepts.
#[derive(Debug)]
pub struct Loaded {
    /// What it says.
    pub config: EncryptionConfiguration,
    /// What is strange about it.
    pub warnings: Vec<Diagnostic>,
}

/// A file that kube-apiserver refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid encryption configuration: {}", Sentences(.errors))]
pub struct Invalid {
    /// Everything that is wrong; at least one.
    pub errors: Vec<Diagnostic>,
    /// What is strange besides.
    pub warnings: Vec<Diagnostic>,
}

struct Sentences<'a>(&'a [Diagnostic]);

impl fmt::Display for Sentences<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{diagnostic}")?;
        }
        Ok(())
    }
}

/// Reads the text of a file.
///
/// # Errors
/// When kube-apiserver would not start with the file.
pub fn load(text: &[u8], options: &Options) -> Result<Loaded, Invalid> {
    let mut errors = Vec::new();
    let mut warnings = Vec::new();
    let config = match document::parse(text) {
        Ok(document) => {
            if let Some(later) = document.later {
                warnings.push(Diagnostic::new("", later, Problem::LaterDocument));
            }
            decode::decode(document, &mut errors)
                .map(|root| validation::validate(root, options, &mut errors, &mut warnings))
        }
        Err(error) => {
            errors.push(*error);
            None
        }
    };
    match config {
        Some(config) if errors.is_empty() => Ok(Loaded { config, warnings }),
        _ => Err(Invalid { errors, warnings }),
    }
}
