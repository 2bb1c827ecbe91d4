use std::sync::Arc;

use super::plan::Place;
use crate::snapshot::bbolt::Pager;
use crate::snapshot::{Error, KeyValue, Revision, Snapshot};

/// A record that is to be written, as it is or with another value.
pub struct Source {
    /// The key in the bucket: the revision.
    pub(super) revision_key: Vec<u8>,
    pub(super) encoded: Vec<u8>,
}

impl Source {
    /// The record.
    ///
    /// # Errors
    ///
    /// When it is none: the file has changed since it was looked through.
    pub fn kv(&self) -> Result<KeyValue<'_>, Error> {
        KeyValue::parse(&self.encoded).map_err(|_| Error::Changed(crate::snapshot::bbolt::Warning::Changed))
    }

    /// Its revision, and whether it deletes the key.
    ///
    /// # Errors
    ///
    /// As [`kv`](Self::kv).
    pub fn revision(&self) -> Result<(Revision, bool), Error> {
        Revision::parse(&self.revision_key).map_err(|_| Error::Changed(crate::snapshot::bbolt::Warning::Changed))
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Source([{} bytes])", self.encoded.len())
    }
}

/// As many bytes are read at once.
const BATCH_BYTES: u64 = 8 * 1024 * 1024;
const BATCH_RECORDS: usize = 8192;

/// The records that are to be written, read a batch at a time.
#[derive(Debug)]
pub struct Batches<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) places: Arc<[Place]>,
    pub(super) next: usize,
}

impl Batches<'_> {
    /// The next records, or nothing behind the last.
    ///
    /// # Errors
    ///
    /// When they cannot be read any more.
    pub fn next_batch(&mut self) -> Result<Option<Vec<Source>>, Error> {
        let rest = self.places.get(self.next..).unwrap_or_default();
        let mut bytes = 0;
        let mut pager = Pager::new(self.snapshot.db().input());
        let mut batch = Vec::new();
        for place in rest.iter().take(BATCH_RECORDS) {
            let record = pager.bytes(place.offset, u64::from(place.len) + u64::from(place.key_len))?;
            let (key, encoded) = record.split_at(usize::from(place.key_len).min(record.len()));
            batch.push(Source { revision_key: key.to_vec(), encoded: encoded.to_vec() });
            bytes += u64::from(place.len);
            if bytes > BATCH_BYTES {
                break;
            }
        }
        self.next += batch.len();
        Ok(Some(batch).filter(|batch| !batch.is_empty()))
    }
}
