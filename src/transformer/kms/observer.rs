use std::fmt;

use crate::transformer::KeyLabel;

/// Which way a value goes. Upstream: `transformation_type` of its metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransformationType {
    /// It is opened.
    FromStorage,
    /// It is sealed.
    ToStorage,
}

impl TransformationType {
    /// As upstream's metrics have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FromStorage => "from_storage",
            Self::ToStorage => "to_storage",
        }
    }
}

/// Sees what is done by the keys of a KMS, to count it.
pub trait KmsObserver: fmt::Debug + Send + Sync {
    /// A value of KMS v2 is opened or sealed by a key ID.
    fn used(&self, provider: &KeyLabel, transformation_type: TransformationType, key_id: &str);

    /// A data key or a seed is kept: `size` of at most `limit`. When a value is to be opened, a KMS had to be asked for it.
    fn cached(&self, provider: &KeyLabel, transformation_type: TransformationType, size: usize, limit: usize);
}
