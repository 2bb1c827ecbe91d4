use serde::Serialize;

use super::{SCHEMA_VERSION, ValueRow};
use crate::object;

/// A place at which two states of an object differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldChange {
    /// Where, as kubectl's JSONPath has it.
    pub path: String,
    /// What was there; of the data of a Secret a hash that is good for this report only, unless it is revealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<object::Value>,
    /// What is there now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<object::Value>,
}

impl From<object::Change> for FieldChange {
    fn from(change: object::Change) -> Self {
        let object::Change { path, from, to } = change;
        Self { path, from, to }
    }
}

/// What became of an object between two snapshots, or two revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Difference {
    /// It is only in the second.
    Added,
    /// It is only in the first.
    Removed,
    /// It was deleted and created again.
    Recreated,
    /// It is another.
    Changed,
    /// The object is the same, and stored by another key or another time.
    Resealed,
    /// The stored bytes are others, and one of them cannot be read.
    Unreadable,
}

impl Difference {
    /// The name, as in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Recreated => "recreated",
            Self::Changed => "changed",
            Self::Resealed => "resealed",
            Self::Unreadable => "unreadable",
        }
    }
}

/// A value that is not the same in both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiffRow {
    /// The value, in the second where it is there.
    #[serde(flatten)]
    pub value: ValueRow,
    /// What became of it.
    pub difference: Difference,
    /// Its revision in the first.
    pub from_revision: Option<i64>,
    /// Its revision in the second.
    pub to_revision: Option<i64>,
    /// What differs.
    pub changes: Vec<FieldChange>,
}

/// What differs between two snapshots, or two revisions.
#[derive(Clone, Debug, Serialize)]
pub struct DiffReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The first.
    pub from: String,
    /// The second.
    pub to: String,
    /// The revision of the first.
    pub from_revision: i64,
    /// The revision of the second.
    pub to_revision: i64,
    /// How many values are the same.
    pub same: u64,
    /// Those that are not.
    pub rows: Vec<DiffRow>,
    /// Whether both were read to the end.
    pub complete: bool,
    /// What else should be known.
    pub notes: Vec<String>,
}

impl DiffReport {
    pub(crate) fn new(from: String, to: String) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            from,
            to,
            from_revision: 0,
            to_revision: 0,
            same: 0,
            rows: Vec::new(),
            complete: true,
            notes: Vec::new(),
        }
    }
}

/// A revision of a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistoryRow {
    /// The revision of the store.
    pub revision: i64,
    /// The position in the transaction.
    pub sub_revision: i64,
    /// `created`, `changed` or `deleted`.
    pub event: &'static str,
    /// How often the key was written since it was created; 0 for a deletion.
    pub version: i64,
    /// The time, where the object tells it: of its creation, or of the last change that was noted in its managedFields.
    pub time: Option<String>,
    /// The key that the header names, as PROVIDER/NAME; `identity` is plaintext.
    pub key: String,
    /// The hash of the KMS key ID.
    pub kms_key_id_hash: Option<String>,
    /// The length of the stored value, in bytes.
    pub bytes: u64,
    /// What `verify` says of it; nothing for a deletion.
    pub class: Option<super::Class>,
    /// Who made the last change that was noted.
    pub manager: Option<String>,
    /// What differs from the revision before it.
    pub changes: Vec<FieldChange>,
}

/// Every revision of a key that is still in a file.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What was read.
    pub source: String,
    /// The key.
    #[serde(flatten)]
    pub key: super::EtcdKey,
    /// Its revisions, oldest first.
    pub revisions: Vec<HistoryRow>,
    /// Whether everything could be read.
    pub complete: bool,
    /// What else should be known.
    pub notes: Vec<String>,
}
