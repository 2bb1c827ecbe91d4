use std::collections::BTreeMap;

use serde::Serialize;

use super::{Class, EtcdKey, SCHEMA_VERSION, ValueRow};

/// What `verify` says of one value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerifyRow {
    /// The value.
    #[serde(flatten)]
    pub value: ValueRow,
    /// The verdict.
    pub class: Class,
    /// Why, and what to do; empty for `current`.
    pub message: String,
}

/// Values of a resource and a namespace with one verdict and one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerifyGroup {
    /// `resource.group`, or what else is kept under the prefix.
    pub resource: String,
    /// The namespace; empty for what has none.
    pub namespace: String,
    /// The key that the header names, as PROVIDER/NAME.
    pub key: String,
    /// The verdict.
    pub class: Class,
    /// How many values.
    pub values: u64,
}

/// How many values need a key of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyUse {
    /// The key, as PROVIDER/NAME.
    pub key: String,
    /// For which resources it is the key that writes.
    pub writes: Vec<String>,
    /// How many values it opens.
    pub opens: u64,
    /// How many values name it and cannot be read.
    pub unreadable: u64,
    /// How many unreadable values may be of it: their headers tell the provider at most.
    pub unattributed: u64,
}

/// A key that values name, and that this configuration does not have, or that its KMS does not give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissingKey {
    /// The key, as PROVIDER/NAME.
    pub key: String,
    /// The hash of the KMS key ID, where the values name one.
    pub kms_key_id_hash: Option<String>,
    /// How many values need it.
    pub values: u64,
}

/// Whether a key can be taken out of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Removable {
    /// No live value needs it.
    Yes,
    /// Live values need it, or it writes.
    No,
    /// It cannot be told: the reasons say why.
    Unknown,
}

/// The answer to `verify --removable KEY`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RemovableAnswer {
    /// The key that was asked for.
    pub key: String,
    /// The answer.
    pub removable: Removable,
    /// Why not.
    pub reasons: Vec<String>,
    /// How many live values need it.
    pub needed_by: u64,
    /// Their keys.
    pub needed_by_keys: Vec<EtcdKey>,
}

/// What can be read, what cannot, and why.
#[derive(Clone, Debug, Serialize)]
pub struct VerifyReport {
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
    /// How many have each verdict.
    pub classes: BTreeMap<Class, u64>,
    /// By resource, namespace, key and verdict.
    pub groups: Vec<VerifyGroup>,
    /// The keys of the configuration.
    pub keys: Vec<KeyUse>,
    /// The keys without which values cannot be read.
    pub missing: Vec<MissingKey>,
    /// Every value that cannot be read or is wrong, and with `--expect current` every stale one.
    pub findings: Vec<VerifyRow>,
    /// The answer to `--removable`.
    pub removable: Option<RemovableAnswer>,
    /// What else should be known.
    pub notes: Vec<String>,
}

impl VerifyReport {
    pub(crate) fn new(source: String) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            source,
            revision: 0,
            single_revision: true,
            complete: true,
            values: 0,
            classes: BTreeMap::new(),
            groups: Vec::new(),
            keys: Vec::new(),
            missing: Vec::new(),
            findings: Vec::new(),
            removable: None,
            notes: Vec::new(),
        }
    }

    /// How many values have a verdict.
    #[must_use]
    pub fn count(&self, class: Class) -> u64 {
        self.classes.get(&class).copied().unwrap_or(0)
    }

    /// How many values cannot be read, or are wrong.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        self.classes.iter().filter(|(class, _)| !class.is_readable()).map(|(_, count)| count).sum()
    }
}
