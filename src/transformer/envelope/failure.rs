/// Why a KMS gave no data key. Texts of the plugin are cut, and name no raw key ID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DekFailure {
    /// Nobody asked: this program was not told to use a KMS, or was told to stop.
    #[error("the KMS was not asked")]
    NotAsked,
    /// The plugin cannot be reached, or did not answer in time.
    #[error("the KMS does not answer: {0}")]
    Unavailable(String),
    /// The plugin says that it has no such key.
    #[error("the KMS does not know the key: {0}")]
    KeyUnknown(String),
    /// The plugin says that this is nothing that its key has encrypted.
    #[error("the KMS refuses: {0}")]
    Refused(String),
    /// The plugin, or whatever is behind it, does not let us use the key: that tells nothing of the value.
    #[error("the KMS does not let the key be used: {0}")]
    Denied(String),
    /// The plugin failed, and does not say whether it is because of the value: many plugins answer every error so.
    #[error("the KMS fails: {0}")]
    Failed(String),
    /// The plugin answers what cannot be used: it is not healthy, or speaks another version.
    #[error("the KMS cannot be used: {0}")]
    Unusable(String),
    /// The plugin answered with what is neither a data key nor a seed.
    #[error("the KMS decrypts the data key to {actual} bytes, which is no key")]
    Length {
        /// How many bytes.
        actual: usize,
    },
    /// The plugin has not said which key writes now, and without that kube-apiserver reads nothing of the provider.
    #[error("the KMS does not say which key it uses: {0}")]
    NoStatus(String),
}

impl DekFailure {
    /// Whether the plugin would answer the same again, whenever it is asked.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::KeyUnknown(_) | Self::Refused(_) | Self::Length { .. })
    }

    /// Whether the plugin has not answered at all.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::NotAsked | Self::Unavailable(_) | Self::NoStatus(_))
    }

    /// Whether it may be the value's own fault, which the other values of its key tell.
    #[must_use]
    pub fn may_be_of_the_value(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Failed(_))
    }
}
