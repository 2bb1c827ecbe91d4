use std::sync::Arc;

use super::envelope::{self, DekFailure};
use super::label::{KeyLabel, ProviderKind};

/// Why a value could not be moved between storage and plaintext.
///
/// The causes are those of kube-apiserver, but a failed authentication and a failed padding check are one variant: which check
/// failed is nobody's business.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No provider of the list claims the value. The operator can fix it: the provider is missing in the configuration.
    #[error("no matching prefix found")]
    NoMatchingPrefix,
    /// The provider is configured, the key that the value names is not. The operator or the key holder can fix it.
    #[error("no matching key was found for the {provider} provider")]
    NoMatchingKey {
        /// The provider that claimed the value.
        provider: ProviderKind,
    },
    /// A resource without a provider list holds ciphertext. The operator can fix it.
    #[error("the resource has no encryption configuration, and the stored value is encrypted")]
    EncryptedDataReadByIdentity,
    /// Fewer bytes than the format's fixed parts. The stored value is damaged.
    #[error("the stored data has {actual} bytes, at least {required} are required")]
    TooShort {
        /// What the format needs, in bytes.
        required: usize,
        /// What is there, in bytes.
        actual: usize,
    },
    /// AES-CBC data whose length is no multiple of 16. The stored value is damaged.
    #[error("the stored data is not a multiple of the block size")]
    NotBlockMultiple,
    /// Wrong key, altered bytes, or a value that was written for another etcd key.
    #[error("message authentication failed")]
    AuthenticationFailed,
    /// The envelope around the data key is not well-formed. The stored value is damaged.
    #[error("invalid envelope")]
    InvalidEnvelope(#[from] envelope::Error),
    /// The KMS gave no data key for the value.
    #[error("no data key from {provider}: {failure}")]
    Kms {
        /// The provider.
        provider: KeyLabel,
        /// Why.
        failure: Arc<DekFailure>,
    },
    /// A KMS has to encrypt a data key before the provider can write.
    #[error("{provider} has no data key to write with")]
    NoWriteState {
        /// The provider.
        provider: KeyLabel,
    },
    /// The KMS has not said for three minutes that it is healthy, and its key may be another now.
    #[error("{provider} has not been healthy for too long to write with its last data key")]
    WriteStateExpired {
        /// The provider.
        provider: KeyLabel,
    },
    /// Values of KMS v2 are bound to an etcd key, and there is none.
    #[error("there is no etcd key that the value could be bound to")]
    EmptyContext,
    /// A seed of less than 32 bytes.
    #[error("a seed of {actual} bytes is too short to derive keys from")]
    SeedLength {
        /// The length of the seed in bytes.
        actual: usize,
    },
    /// A key of a length that the cipher does not take. Validation of the configuration excludes it.
    #[error("a key of {actual} bytes does not fit the {provider} provider")]
    KeyLength {
        /// The provider.
        provider: ProviderKind,
        /// The length of the key in bytes.
        actual: usize,
    },
    /// The message is longer than the cipher can seal with one nonce.
    #[error("the plaintext of {actual} bytes is too long to be sealed")]
    PlaintextTooLong {
        /// The length of the plaintext in bytes.
        actual: usize,
    },
    /// The operating system gave no random bytes.
    #[error("no random bytes from the operating system")]
    Randomness(#[source] getrandom::Error),
    /// Several providers or keys claimed the value and each failed, in the order in which they were tried.
    #[error("{}", join(.0))]
    Several(Vec<Error>),
}

fn join(errors: &[Error]) -> String {
    let mut text = String::from("[");
    for (i, error) in errors.iter().enumerate() {
        if i > 0 {
            text.push_str(", ");
        }
        text.push_str(&error.to_string());
    }
    text.push(']');
    text
}

impl Error {
    /// One error of many, as Kubernetes' aggregates do it: nested ones are flattened, repeated messages kept once.
    pub(crate) fn aggregate(errors: Vec<Error>) -> Option<Self> {
        let mut flat: Vec<Error> = Vec::with_capacity(errors.len());
        let flattened = errors.into_iter().flat_map(|error| match error {
            Error::Several(inner) => inner,
            single => vec![single],
        });
        for error in flattened {
            let message = error.to_string();
            if flat.iter().all(|kept| kept.to_string() != message) {
                flat.push(error);
            }
        }
        match flat.len() {
            0 => None,
            1 => flat.pop(),
            _ => Some(Error::Several(flat)),
        }
    }

    /// Every single cause, in the order in which the providers were tried.
    pub fn causes(&self) -> impl Iterator<Item = &Error> {
        match self {
            Error::Several(errors) => errors.iter(),
            single => std::slice::from_ref(single).iter(),
        }
    }

    /// Why a KMS gave no data key, where that is a cause. Of several, the one that says the least of the value.
    #[must_use]
    pub fn kms_failure(&self) -> Option<&DekFailure> {
        let failures = self.causes().filter_map(|cause| match cause {
            Error::Kms { failure, .. } => Some(&**failure),
            _ => None,
        });
        failures.min_by_key(|failure| (failure.is_final(), failure.may_be_of_the_value()))
    }

    /// Whether some provider or key claimed the value and could not authenticate it.
    #[must_use]
    pub fn is_authentication_failure(&self) -> bool {
        self.causes().any(|cause| matches!(cause, Error::AuthenticationFailed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aggregate_flattens_and_drops_repeated_messages() {
        let inner = Error::Several(vec![Error::AuthenticationFailed, Error::NotBlockMultiple]);
        let error = Error::aggregate(vec![Error::AuthenticationFailed, inner, Error::NoMatchingPrefix]).unwrap();
        assert_eq!(
            error.to_string(),
            "[message authentication failed, the stored data is not a multiple of the block size, no matching prefix found]"
        );
    }

    #[test]
    fn an_aggregate_of_one_is_that_one() {
        let error = Error::aggregate(vec![Error::NotBlockMultiple, Error::NotBlockMultiple]).unwrap();
        assert_eq!(error.to_string(), "the stored data is not a multiple of the block size");
    }
}
