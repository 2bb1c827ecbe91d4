use serde::Serialize;

use super::SCHEMA_VERSION;
use crate::snapshot::Trailer;
use crate::snapshot::schema::Cluster;

/// A bucket of a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BucketSize {
    /// The name.
    pub bucket: String,
    /// How many elements.
    pub elements: u64,
    /// The length of their keys and values, in bytes.
    pub bytes: u64,
}

/// A key that values of a backup are under.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NeededKey {
    /// The key, as PROVIDER/NAME; `identity` is plaintext.
    pub key: String,
    /// The hash of the KMS key ID.
    pub kms_key_id_hash: Option<String>,
    /// How many live values.
    pub live: u64,
    /// How many values of earlier revisions.
    pub history: u64,
}

/// How many pages of a file are used for what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pages {
    /// The size of a page, in bytes.
    pub size: u64,
    /// All up to the high-water mark.
    pub total: u64,
    /// Those that nothing refers to: what was in them is still there.
    pub free: u64,
}

/// A backup at a glance.
#[derive(Clone, Debug, Serialize)]
pub struct InspectReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What was read.
    pub source: String,
    /// Its length, in bytes, unpacked.
    pub file_size: u64,
    /// The version of etcd, as far as it can be told.
    pub etcd_version: String,
    /// The hash at the end of the file.
    pub trailer: Trailer,
    /// The revision of the store.
    pub revision: i64,
    /// Up to which revision it was compacted.
    pub compacted_revision: Option<i64>,
    /// A compaction that was begun and not ended.
    pub interrupted_compaction: Option<i64>,
    /// What `etcdutl snapshot status` prints: the hash.
    pub status_hash: u32,
    /// The revision of the last record.
    pub status_revision: i64,
    /// All elements of all buckets, as etcd up to 3.5 counts keys.
    pub total_keys: u64,
    /// The size up to the high-water mark, in bytes.
    pub total_size: u64,
    /// What `etcdctl endpoint hashkv` prints.
    pub hash_kv: u32,
    /// How many keys there are.
    pub live_keys: u64,
    /// How many records, of all revisions.
    pub records: u64,
    /// How many of them are deletions.
    pub tombstones: u64,
    /// The pages.
    pub pages: Pages,
    /// The index of the last entry of the log that is in it.
    pub consistent_index: Option<u64>,
    /// The buckets.
    pub buckets: Vec<BucketSize>,
    /// The keys without which values cannot be read: to be kept as long as the backup.
    pub keys: Vec<NeededKey>,
    /// The cluster.
    pub cluster: Cluster,
    /// Entries of the write-ahead log that are not in the database yet.
    pub not_yet_in_db: Vec<String>,
    /// Whether everything could be read.
    pub complete: bool,
    /// What should be known before it is used.
    pub warnings: Vec<String>,
}

impl InspectReport {
    pub(crate) fn new(source: String) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            source,
            file_size: 0,
            etcd_version: String::new(),
            trailer: Trailer::Missing { zeros: 0 },
            revision: 0,
            compacted_revision: None,
            interrupted_compaction: None,
            status_hash: 0,
            status_revision: 0,
            total_keys: 0,
            total_size: 0,
            hash_kv: 0,
            live_keys: 0,
            records: 0,
            tombstones: 0,
            pages: Pages::default(),
            consistent_index: None,
            buckets: Vec::new(),
            keys: Vec::new(),
            cluster: Cluster::default(),
            not_yet_in_db: Vec::new(),
            complete: true,
            warnings: Vec::new(),
        }
    }
}
