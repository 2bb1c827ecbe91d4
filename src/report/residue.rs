use std::fmt;

use serde::Serialize;

use super::{EtcdKey, SCHEMA_VERSION};

/// Where a value was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ResiduePlace {
    /// It is the last value of its key.
    Live,
    /// An earlier value of a key, or one of a key that was deleted. Compaction removes it from here.
    History,
    /// A page that nothing refers to. Defragmentation removes it.
    FreePages,
    /// Behind the elements of a page.
    PageSlack,
    /// Behind the last page.
    FileTail,
    /// A request in the write-ahead log.
    Wal,
    /// A branch of a transaction that may not have been taken.
    WalOtherBranch,
    /// What a transaction compared with.
    WalCompare,
    /// A request of a leader that lost its office: it was never applied.
    WalDiscarded,
    /// A request that is not known to be committed.
    WalUncommitted,
    /// Bytes of the log that are no record.
    WalLeftover,
    /// A snapshot of raft.
    RaftSnapshot,
    /// A file that an interrupted or failed operation has left behind.
    LeftFile,
}

impl ResiduePlace {
    /// The name, as in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::History => "history",
            Self::FreePages => "free-pages",
            Self::PageSlack => "page-slack",
            Self::FileTail => "file-tail",
            Self::Wal => "wal",
            Self::WalOtherBranch => "wal-other-branch",
            Self::WalCompare => "wal-compare",
            Self::WalDiscarded => "wal-discarded",
            Self::WalUncommitted => "wal-uncommitted",
            Self::WalLeftover => "wal-leftover",
            Self::RaftSnapshot => "raft-snapshot",
            Self::LeftFile => "left-file",
        }
    }

    /// Whether it is in the write-ahead log.
    #[must_use]
    pub const fn is_wal(self) -> bool {
        matches!(
            self,
            Self::Wal
                | Self::WalOtherBranch
                | Self::WalCompare
                | Self::WalDiscarded
                | Self::WalUncommitted
                | Self::WalLeftover
        )
    }
}

impl fmt::Display for ResiduePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Values of a resource in one place under one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResidueGroup {
    /// Where.
    pub place: ResiduePlace,
    /// `resource.group`, or what else it is; of bytes without a key, by the kind that they name.
    pub resource: String,
    /// The key that the header names, as PROVIDER/NAME; `identity` is plaintext.
    pub key: String,
    /// The hash of the KMS key ID.
    pub kms_key_id_hash: Option<String>,
    /// How many values.
    pub values: u64,
    /// Their length, in bytes, as far as it is known.
    pub bytes: u64,
    /// How many of them are copies of records that the tree still has.
    pub copies: u64,
    /// Whether they should not be there: plaintext of what is encrypted, or ciphertext of a key that does not write.
    pub unwanted: bool,
}

/// A value that should not be there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResidueExample {
    /// Where.
    pub place: ResiduePlace,
    /// The file.
    pub file: String,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// The etcd key, where it is known.
    pub key: Option<String>,
    /// The key that the header names.
    pub under: String,
    /// How many bytes the hash is of: the value, or its beginning where its end is not known.
    pub bytes: u64,
    /// SHA-256 of those bytes.
    pub sha256: String,
}

/// What plaintext and what old ciphertext is left in a file or a data directory.
#[derive(Clone, Debug, Serialize)]
pub struct ResidueReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What was read.
    pub source: String,
    /// The files that were looked through.
    pub files: Vec<String>,
    /// What was found.
    pub groups: Vec<ResidueGroup>,
    /// How many values should not be there.
    pub unwanted: u64,
    /// Some of them.
    pub examples: Vec<ResidueExample>,
    /// Users of etcd whose passwords are in the log in the clear.
    pub plaintext_passwords: Vec<EtcdKey>,
    /// What to do, in this order.
    pub clean_up: Vec<String>,
    /// Whether everything could be read.
    pub complete: bool,
    /// What else should be known.
    pub notes: Vec<String>,
}

impl ResidueReport {
    pub(crate) fn new(source: String) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            source,
            files: Vec::new(),
            groups: Vec::new(),
            unwanted: 0,
            examples: Vec::new(),
            plaintext_passwords: Vec::new(),
            clean_up: Vec::new(),
            complete: true,
            notes: Vec::new(),
        }
    }
}
