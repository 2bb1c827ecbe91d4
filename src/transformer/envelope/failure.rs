/// Why a KMS gave no data key. Texts of the plugin are cut, and name no raw key ID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DekFailure {
    /// Nobody asked: this program was not told to use a KMS.
    #[error("the KMS was not asked")]
    NotAsked,
    /// The plugin cannot be reached, or did not answer in time.
    #[error("the KMS does not answer: {0}")]
    Unavailable(String),
    /// The plugin says that it has no such key.
    #[error("the KMS does not know the key: {0}")]
    KeyUnknown(String),
    /// The plugin refuses, or it failed.
    #[error("the KMS refuses: {0}")]
    Refused(String),
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
    /// Whether the answer may be another soon.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::NotAsked | Self::Unavailable(_) | Self::NoStatus(_))
    }
}
