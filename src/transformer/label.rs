use std::fmt;
use std::str::FromStr;

/// The providers of an EncryptionConfiguration that leave a mark in storage, and `identity` that leaves none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ProviderKind {
    /// Stored in the clear.
    Identity,
    /// AES-CBC with PKCS#7 padding.
    AesCbc,
    /// AES-GCM with a random nonce.
    AesGcm,
    /// XSalsa20 and Poly1305.
    Secretbox,
    /// An envelope with a data key per value.
    KmsV1,
    /// An envelope with a data key, or the seed of one, per writer.
    KmsV2,
}

impl ProviderKind {
    /// All kinds that have a prefix in storage.
    pub const ENCRYPTED: [Self; 5] = [Self::AesCbc, Self::AesGcm, Self::Secretbox, Self::KmsV1, Self::KmsV2];

    /// The name of `identity`, which stands for plaintext in reports.
    pub const IDENTITY_NAME: &'static str = "identity";

    /// What stored values of the provider begin with, before the name of the key.
    #[must_use]
    pub const fn prefix(self) -> &'static [u8] {
        match self {
            Self::Identity => b"",
            Self::AesCbc => b"k8s:enc:aescbc:v1:",
            Self::AesGcm => b"k8s:enc:aesgcm:v1:",
            Self::Secretbox => b"k8s:enc:secretbox:v1:",
            Self::KmsV1 => b"k8s:enc:kms:v1:",
            Self::KmsV2 => b"k8s:enc:kms:v2:",
        }
    }

    /// The name in reports and in key labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => Self::IDENTITY_NAME,
            Self::AesCbc => "aescbc",
            Self::AesGcm => "aesgcm",
            Self::Secretbox => "secretbox",
            Self::KmsV1 => "kms-v1",
            Self::KmsV2 => "kms-v2",
        }
    }

    /// Whether the keys are those of a KMS.
    #[must_use]
    pub const fn is_kms(self) -> bool {
        matches!(self, Self::KmsV1 | Self::KmsV2)
    }

    /// Whether the stored value is bound to its etcd key.
    ///
    /// KMS v1 is: only its data written before Kubernetes 1.25 is not.
    #[must_use]
    pub const fn binds_to_key(self) -> bool {
        matches!(self, Self::AesGcm | Self::KmsV1 | Self::KmsV2)
    }
}

impl fmt::Display for ProviderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A key as an operator names it: `aescbc/key1`, `kms-v2/cloud-kms`, `identity`.
///
/// The name is the label in the configuration file, not key material.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyLabel {
    /// The provider.
    pub provider: ProviderKind,
    /// The name of the key, or of the KMS provider; empty for `identity`.
    pub name: String,
}

impl KeyLabel {
    /// A label.
    #[must_use]
    pub fn new(provider: ProviderKind, name: impl Into<String>) -> Self {
        Self { provider, name: name.into() }
    }

    /// The label of a value that is stored in the clear.
    #[must_use]
    pub fn identity() -> Self {
        Self::new(ProviderKind::Identity, "")
    }

    /// What stored values of the key begin with.
    #[must_use]
    pub fn prefix(&self) -> Vec<u8> {
        let mut prefix = self.provider.prefix().to_vec();
        if self.provider != ProviderKind::Identity {
            prefix.extend_from_slice(self.name.as_bytes());
            prefix.push(b':');
        }
        prefix
    }
}

impl fmt::Display for KeyLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.provider {
            ProviderKind::Identity => f.write_str("identity"),
            provider => write!(f, "{provider}/{}", self.name),
        }
    }
}

/// Text that names no key, because it has no provider in front.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not PROVIDER/NAME with one of the providers aescbc, aesgcm, secretbox, kms-v1, kms-v2")]
pub struct InvalidKeyLabel {
    text: String,
}

impl FromStr for KeyLabel {
    type Err = InvalidKeyLabel;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "identity" {
            return Ok(Self::identity());
        }
        text.split_once('/')
            .filter(|(_, name)| !name.is_empty())
            .and_then(|(provider, name)| {
                ProviderKind::ENCRYPTED
                    .into_iter()
                    .find(|kind| kind.name() == provider)
                    .map(|kind| Self::new(kind, name))
            })
            .ok_or_else(|| InvalidKeyLabel { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_read_back_from_its_text() {
        for label in [
            KeyLabel::identity(),
            KeyLabel::new(ProviderKind::AesCbc, "key1"),
            KeyLabel::new(ProviderKind::Secretbox, "a:b/c"),
            KeyLabel::new(ProviderKind::KmsV2, "cloud-kms"),
        ] {
            assert_eq!(label.to_string().parse::<KeyLabel>().unwrap(), label);
        }
        for text in ["", "key1", "aescbc", "aescbc/", "des/key1", "identity/x"] {
            assert_eq!(
                text.parse::<KeyLabel>().unwrap_err().to_string(),
                format!(
                    "{text:?} is not PROVIDER/NAME with one of the providers aescbc, aesgcm, secretbox, kms-v1, kms-v2"
                )
            );
        }
    }

    #[test]
    fn the_prefix_holds_the_name_as_it_is() {
        assert_eq!(KeyLabel::new(ProviderKind::AesGcm, "a:b").prefix(), b"k8s:enc:aesgcm:v1:a:b:");
        assert_eq!(KeyLabel::identity().prefix(), b"");
    }
}
