use std::str::FromStr;

use serde::Serialize;

use super::{EtcdKey, SCHEMA_VERSION};

/// By what a census is broken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dimension {
    /// The resource.
    Resource,
    /// The namespace.
    Namespace,
    /// The provider.
    Provider,
    /// The name of the key or of the KMS provider.
    Key,
    /// The KMS key ID.
    KeyId,
}

impl Dimension {
    /// All, in the order in which they are shown.
    pub const ALL: [(&'static str, Self); 5] = [
        ("resource", Self::Resource),
        ("namespace", Self::Namespace),
        ("provider", Self::Provider),
        ("key", Self::Key),
        ("key-id", Self::KeyId),
    ];
}

/// A text that names no dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be one of {}", Dimension::ALL.map(|(name, _)| name).join(", "))]
pub struct UnknownDimension;

impl FromStr for Dimension {
    type Err = UnknownDimension;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, dimension)| dimension).ok_or(UnknownDimension)
    }
}

/// Values that agree in all dimensions of the census. A field is empty when the census is not broken down by it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ScanGroup {
    /// `resource.group`, or what else is kept under the prefix.
    pub resource: Option<String>,
    /// The namespace; empty for what has none.
    pub namespace: Option<String>,
    /// The provider; `identity` is plaintext.
    pub provider: Option<String>,
    /// The name of the key or of the KMS provider.
    pub key_name: Option<String>,
    /// The hash of the KMS key ID.
    pub kms_key_id_hash: Option<String>,
    /// How many values.
    pub values: u64,
    /// The length of the stored values, in bytes.
    pub bytes: u64,
    /// How often these values were written since their keys were created, which bounds the uses of the key from below.
    pub writes: u64,
    /// The lowest revision of a value: how old the oldest is.
    pub oldest_revision: i64,
    /// The highest revision of a value.
    pub newest_revision: i64,
}

/// The census of what is stored under which key.
#[derive(Clone, Debug, Serialize)]
pub struct ScanReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What was read.
    pub source: String,
    /// The revision at which it was read, or at which reading ended.
    pub revision: i64,
    /// Whether all of it is of one revision.
    pub single_revision: bool,
    /// Whether it was read to the end.
    pub complete: bool,
    /// How many values.
    pub values: u64,
    /// How many of them are ciphertext.
    pub encrypted: u64,
    /// How many of them are stored in the clear.
    pub plaintext: u64,
    /// How many have a header that no Kubernetes writes.
    pub unrecognised: u64,
    /// The census.
    pub groups: Vec<ScanGroup>,
    /// For `--expect encrypted`: how many values are plaintext that should not be.
    pub unexpected: u64,
    /// The first keys of them.
    pub unexpected_keys: Vec<EtcdKey>,
    /// What else should be known.
    pub notes: Vec<String>,
}

impl ScanReport {
    pub(crate) fn new(source: String) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            source,
            revision: 0,
            single_revision: true,
            complete: true,
            values: 0,
            encrypted: 0,
            plaintext: 0,
            unrecognised: 0,
            groups: Vec::new(),
            unexpected: 0,
            unexpected_keys: Vec::new(),
            notes: Vec::new(),
        }
    }
}
