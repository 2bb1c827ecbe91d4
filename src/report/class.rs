use std::fmt;

use serde::Serialize;

/// What `verify` says of a value. The names are API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Class {
    /// Readable, and written by the key that writes now.
    Current,
    /// Readable, and due to be written again.
    Stale,
    /// The provider that wrote it is not configured for the resource.
    NoProvider,
    /// The provider is configured, the key that the value names is not.
    KeyNotConfigured,
    /// Authentication or padding failed, and nothing else opens under that key either.
    WrongKey,
    /// It failed, while other values under the same key open.
    Damaged,
    /// It was written for another etcd key.
    Moved,
    /// It opens with a configured key of another name.
    KeyRenamed,
    /// Shorter than its format can be.
    Truncated,
    /// Not well-formed.
    Malformed,
    /// Stored in the clear, and the resource's providers do not include `identity`.
    PlaintextNotAllowed,
    /// Neither an object nor ciphertext that Kubernetes writes.
    UnknownFormat,
    /// The KMS does not answer.
    KmsUnavailable,
    /// The KMS does not know the key ID.
    KmsKeyUnknown,
    /// The KMS refuses to decrypt.
    KmsRefused,
    /// Written by a newer Kubernetes.
    NewerFormat,
    /// It opens, and the object inside is not the one that the etcd key names.
    IdentityMismatch,
    /// It opens, and what comes out is no object.
    Garbage,
    /// It opens, and what comes out is ciphertext again.
    Nested,
}

impl Class {
    /// The name, as in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Stale => "stale",
            Self::NoProvider => "no-provider",
            Self::KeyNotConfigured => "key-not-configured",
            Self::WrongKey => "wrong-key",
            Self::Damaged => "damaged",
            Self::Moved => "moved",
            Self::KeyRenamed => "key-renamed",
            Self::Truncated => "truncated",
            Self::Malformed => "malformed",
            Self::PlaintextNotAllowed => "plaintext-not-allowed",
            Self::UnknownFormat => "unknown-format",
            Self::KmsUnavailable => "kms-unavailable",
            Self::KmsKeyUnknown => "kms-key-unknown",
            Self::KmsRefused => "kms-refused",
            Self::NewerFormat => "newer-format",
            Self::IdentityMismatch => "identity-mismatch",
            Self::Garbage => "garbage",
            Self::Nested => "nested",
        }
    }

    /// Whether the value may well be whole, and only the key is missing.
    #[must_use]
    pub const fn lacks_a_key(self) -> bool {
        matches!(
            self,
            Self::NoProvider | Self::KeyNotConfigured | Self::WrongKey | Self::KmsUnavailable | Self::KmsKeyUnknown
        )
    }

    /// Whether an API server with this configuration reads the value, and reads the right thing.
    #[must_use]
    pub const fn is_readable(self) -> bool {
        matches!(self, Self::Current | Self::Stale)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_serialized_name_is_the_name() {
        for class in [Class::Current, Class::KeyNotConfigured, Class::KmsUnavailable, Class::IdentityMismatch] {
            assert_eq!(serde_json::to_value(class).unwrap(), class.name());
        }
    }
}
