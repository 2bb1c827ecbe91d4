use std::sync::Arc;

use rayon::prelude::*;

use super::bbolt::{Pager, Warning};
use super::key_value::KeyValue;
use super::live::{self, Place, View};
use super::{Error, Problems, Snapshot};
use crate::source::{Page, Source, StoredValue};

/// The values of a snapshot, as a source.
#[derive(Debug)]
pub struct Values {
    snapshot: Arc<Snapshot>,
    places: Arc<Vec<Place>>,
    next: usize,
    revision: i64,
    incomplete: bool,
    problems: Arc<Problems>,
}

/// As many values are read at once.
const PAGE_VALUES: usize = 4096;
/// And as many bytes, unless one value is larger.
const PAGE_BYTES: u64 = 8 * 1024 * 1024;

impl Values {
    /// Finds the values of a view. The file is walked once; the values are read when they are asked for.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or the revision is not in it.
    pub fn new(snapshot: &Arc<Snapshot>, view: &View) -> Result<Self, Error> {
        let live::Found { places, revision, incomplete, problems } = live::find(snapshot, view)?;
        Ok(Self {
            snapshot: Arc::clone(snapshot),
            places: Arc::new(places),
            next: 0,
            revision,
            incomplete,
            problems: Arc::new(problems),
        })
    }

    /// The same values once more.
    #[must_use]
    pub fn again(&self) -> Self {
        Self {
            snapshot: Arc::clone(&self.snapshot),
            places: Arc::clone(&self.places),
            problems: Arc::clone(&self.problems),
            ..*self
        }
    }

    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether records of that revision may have been compacted away.
    #[must_use]
    pub const fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    /// What could not be read.
    #[must_use]
    pub fn problems(&self) -> &Problems {
        &self.problems
    }

    /// The next values, read on all cores.
    ///
    /// # Errors
    ///
    /// When they cannot be read any more.
    pub fn next_values(&mut self) -> Result<Option<Vec<StoredValue>>, Error> {
        let rest = self.places.get(self.next..).unwrap_or_default();
        let mut bytes = 0;
        let fitting = rest.iter().take(PAGE_VALUES).take_while(|place| {
            let first = bytes == 0;
            bytes += u64::from(place.len).max(1);
            first || bytes <= PAGE_BYTES
        });
        let count = fitting.count();
        let Some(places) = rest.get(..count).filter(|places| !places.is_empty()) else { return Ok(None) };
        // Not fewer to a thread than are worth it: neighbours are read together.
        let parts = places.par_chunks(places.len().div_ceil(rayon::current_num_threads()).max(64));
        let values: Result<Vec<_>, Error> = parts.map(|places| self.read(places)).collect();
        self.next += count;
        Ok(Some(values?.into_iter().flatten().collect()))
    }

    fn read(&self, places: &[Place]) -> Result<Vec<StoredValue>, Error> {
        let mut pager = Pager::new(self.snapshot.db().input());
        places
            .iter()
            .map(|place| {
                let encoded = pager.bytes(place.offset, u64::from(place.len))?;
                // It was one when the file was walked.
                let kv = KeyValue::parse(encoded).map_err(|_| Error::Changed(Warning::Changed))?;
                Ok(stored_value(&kv))
            })
            .collect()
    }
}

/// A copy of a record, as etcd hands it to its clients.
pub(crate) fn stored_value(kv: &KeyValue<'_>) -> StoredValue {
    StoredValue {
        key: kv.key.to_vec(),
        value: kv.value.to_vec(),
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        lease: kv.lease,
    }
}

impl Source for Values {
    type Error = Error;

    async fn next_page(&mut self) -> Result<Option<Page>, Error> {
        let revision = self.revision;
        Ok(self.next_values()?.map(|values| Page { values, revision }))
    }

    fn expected(&self) -> Option<u64> {
        Some(self.places.len() as u64)
    }

    fn revision(&self) -> Option<i64> {
        Some(self.revision)
    }

    fn is_consistent(&self) -> bool {
        true
    }
}
