//! etcd's own checksums of a store, with which snapshots and members are compared.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::ControlFlow;

use super::bbolt::{Bucket, Damage, Element, Meta};
use super::records::{Problems, RecordKind};
use super::revision::Revision;
use super::{Error, Snapshot};

/// What `etcdutl snapshot status` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// CRC-32C over the names of the buckets, their keys and their values, in order: the pages do not matter.
    pub hash: u32,
    /// The revision of the last record; the store's may be higher.
    pub revision: i64,
    /// `totalKey` as etcd up to 3.5 counts it: all elements of all buckets.
    pub elements: u64,
    /// `totalSize`: the bytes up to the high-water mark.
    pub size: u64,
}

/// The status of a file whose elements are being visited in order.
pub(super) struct StatusSum<'s> {
    crc: Crc,
    elements: u64,
    revision: i64,
    /// Those whose names are not in the sum yet.
    buckets: std::slice::Iter<'s, Bucket>,
    meta: &'s Meta,
}

impl<'s> StatusSum<'s> {
    pub(super) fn new(snapshot: &'s Snapshot) -> Self {
        let db = snapshot.db();
        Self { crc: Crc::default(), elements: 0, revision: 0, buckets: db.buckets().iter(), meta: db.meta() }
    }

    pub(super) fn add(&mut self, bucket: &Bucket, element: &Element<'_>) {
        // The names of those before it too that are empty.
        while let Some(begun) = self.buckets.as_slice().first().filter(|begun| begun.name <= bucket.name) {
            self.crc.add(&begun.name);
            self.buckets.next();
        }
        self.crc.add(element.key);
        self.crc.add(element.value);
        self.elements += 1;
        if bucket.name == super::schema::KEY {
            self.revision = Revision::parse(element.key).map_or(self.revision, |(revision, _)| revision.main);
        }
    }

    pub(super) fn finish(mut self) -> Status {
        self.buckets.for_each(|bucket| self.crc.add(&bucket.name));
        let size = self.meta.high_water.saturating_mul(self.meta.page_size);
        Status { hash: self.crc.value(), revision: self.revision, elements: self.elements, size }
    }
}

impl Snapshot {
    /// Computes the status. Parts that are damaged are handed to `damaged` and left out, where that is allowed.
    ///
    /// # Errors
    ///
    /// When something is damaged, and the snapshot is read strictly.
    pub fn status(&self, mut damaged: impl FnMut(Damage)) -> Result<Status, Error> {
        let mut sum = StatusSum::new(self);
        self.db().all_elements(|bucket, element| sum.add(bucket, &element), &mut damaged)?;
        Ok(sum.finish())
    }

    /// What `etcdctl endpoint hashkv` prints of a member at this revision (etcd `mvcc.kvHasher`). Two stores can be compared only
    /// when they were compacted at the same revision.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn hash_kv(&self, revision: Option<i64>) -> Result<u32, Error> {
        let limit = revision.unwrap_or(i64::MAX);
        let compacted = self.meta().finished_compact_revision.unwrap_or(-1);
        // Of what was compacted, only what is still the last state of its key at this revision counts.
        let hasher = RandomState::new();
        let mut newest: HashMap<u64, Revision> = HashMap::new();
        let mut problems = Problems::default();
        self.records(&mut problems, |record| {
            if record.revision.main > limit {
                return ControlFlow::Break(());
            }
            let key = hasher.hash_one(record.kv.key);
            match record.kind() {
                RecordKind::Tombstone => newest.remove(&key),
                _ => newest.insert(key, record.revision),
            };
            ControlFlow::Continue(())
        })?;
        let keep: std::collections::HashSet<_> = newest.into_values().collect();
        let mut crc = Crc::default();
        crc.add(super::schema::KEY);
        self.records(&mut problems, |record| {
            if record.revision.main > limit {
                return ControlFlow::Break(());
            }
            let gone = record.revision.main <= compacted && !keep.is_empty() && !keep.contains(&record.revision);
            let last = record.tombstone && record.revision.main == compacted;
            if !gone && !last {
                crc.add(&record.revision.to_key());
                if record.tombstone {
                    crc.add(b"t");
                }
                crc.add(record.encoded);
            }
            ControlFlow::Continue(())
        })?;
        Ok(crc.value())
    }
}

/// CRC-32C (Castagnoli), as Go's `hash/crc32` has it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Crc(u32);

impl Crc {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    pub(crate) fn value(self) -> u32 {
        self.0
    }
}
