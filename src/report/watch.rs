use serde::Serialize;

use super::{Class, ValueRow};
use crate::object;

/// What happened. The names are those of Kubernetes' watches, and two more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ChangeType {
    /// An object that was not there, or not selected.
    Added,
    /// An object that was written again.
    Modified,
    /// An object that was deleted, or is not selected any longer.
    Deleted,
    /// Everything up to this revision was shown.
    Bookmark,
    /// Changes are missing from here up to the revision; what follows is what is there now.
    Relisted,
}

impl ChangeType {
    /// The name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Relisted => "RELISTED",
        }
    }
}

/// One change, decrypted.
#[derive(Clone, Debug, Serialize)]
pub struct WatchRow {
    /// What happened.
    #[serde(rename = "type")]
    pub change: ChangeType,
    /// The revision of the change.
    pub revision: i64,
    /// In which etcd, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd: Option<String>,
    /// The value, and which key it is stored under; of a deletion, that of before.
    #[serde(flatten)]
    pub value: Option<ValueRow>,
    /// How the value is to be judged; nothing of what is not known any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// Why it is so.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The key that the value was stored under before, as PROVIDER/NAME.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_key: Option<String>,
    /// Where the object is another than before, as kubectl's JSONPath has it. Nothing, when only its encryption is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<Vec<String>>,
    /// The object; of a deletion, as it was last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<object::Value>,
}

/// What was watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WatchReport {
    /// How many changes were shown.
    pub events: u64,
    /// How many values could not be read, or are wrong.
    pub unreadable: u64,
    /// How often changes are missing, because etcd had them no longer.
    pub relisted: u64,
    /// Whether there was a connection at the end: otherwise nothing is known of what has changed since it was lost.
    pub connected: bool,
}

impl Default for WatchReport {
    fn default() -> Self {
        Self { events: 0, unreadable: 0, relisted: 0, connected: true }
    }
}
