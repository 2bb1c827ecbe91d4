use std::collections::BTreeMap;

use serde::Serialize;

use super::{SCHEMA_VERSION, VerifyRow};

/// Values of a resource that were under one key and are under another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RewriteGroup {
    /// `resource.group`.
    pub resource: String,
    /// The key that the header named before, as PROVIDER/NAME.
    pub from: String,
    /// The one that it names now.
    pub to: String,
    /// How many values, of all revisions.
    pub values: u64,
}

/// A snapshot that was written anew.
#[derive(Clone, Debug, Serialize)]
pub struct RewriteReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What was read.
    pub source: String,
    /// What was written; nothing was when it is empty.
    pub target: String,
    /// The revision of the store, before and after.
    pub revision: i64,
    /// How many records there were, of all revisions.
    pub records_before: u64,
    /// How many were written.
    pub records: u64,
    /// How many have another value.
    pub replaced: u64,
    /// How many records of keys that were left out.
    pub dropped: u64,
    /// Whether only the last value of each key was kept.
    pub history_dropped: bool,
    /// How long the new file is, in bytes.
    pub size: u64,
    /// Its hash, as `etcdutl snapshot status` prints it.
    pub status_hash: u32,
    /// The SHA-256 at its end.
    pub sha256: String,
    /// What was under which key.
    pub groups: Vec<RewriteGroup>,
    /// Values that could not be read, or could not be written, the first of them.
    pub unreadable: Vec<VerifyRow>,
    /// How many.
    pub unreadable_values: u64,
    /// Whether it was done to the end.
    pub complete: bool,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// What else should be known.
    pub notes: Vec<String>,
}

impl RewriteReport {
    pub(crate) fn new(source: String) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            source,
            target: String::new(),
            revision: 0,
            records_before: 0,
            records: 0,
            replaced: 0,
            dropped: 0,
            history_dropped: false,
            size: 0,
            status_hash: 0,
            sha256: String::new(),
            groups: Vec::new(),
            unreadable: Vec::new(),
            unreadable_values: 0,
            complete: true,
            seconds: 0.0,
            notes: Vec::new(),
        }
    }

    pub(crate) fn set_groups(&mut self, groups: BTreeMap<(String, String, String), u64>) {
        let group = |((resource, from, to), values)| RewriteGroup { resource, from, to, values };
        self.groups = groups.into_iter().map(group).collect();
    }
}
