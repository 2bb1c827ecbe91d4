use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::codec::Codec;
use super::error::StorageError;
use super::transformer::StorageTransformer;
use super::{Operation, Store};
use crate::source::StoredValue;

/// What is stored of a resource (`storage.Stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// How many objects.
    pub object_count: i64,
    /// How large their stored values are on average, in bytes, as far as they were seen; 0 when that is not estimated.
    pub estimated_average_object_size_bytes: i64,
}

/// The sizes of values that were seen (upstream `statsCache`).
pub(super) struct Sizes(Option<Mutex<HashMap<Vec<u8>, usize>>>);

impl Sizes {
    pub(super) fn new(estimates: bool) -> Self {
        Self(estimates.then(Mutex::default))
    }

    pub(super) fn note(&self, key: &[u8], size: usize) {
        let Some(sizes) = &self.0 else { return };
        note(&mut sizes.lock().unwrap_or_else(PoisonError::into_inner), key, size);
    }

    /// The same of a page.
    pub(super) fn note_all(&self, values: &[StoredValue]) {
        let Some(sizes) = &self.0 else { return };
        let mut sizes = sizes.lock().unwrap_or_else(PoisonError::into_inner);
        values.iter().for_each(|value| note(&mut sizes, &value.key, value.value.len()));
    }

    pub(super) fn forget(&self, key: &[u8]) {
        if let Some(sizes) = &self.0 {
            sizes.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        }
    }

    /// The average of the keys that are there; what is known of others is forgotten.
    fn average(&self, mut keys: Vec<Vec<u8>>) -> i64 {
        let Some(sizes) = &self.0 else { return 0 };
        let mut sizes = sizes.lock().unwrap_or_else(PoisonError::into_inner);
        keys.sort_unstable();
        sizes.retain(|key, _| keys.binary_search(key).is_ok());
        let sum: usize = sizes.values().sum();
        i64::try_from(sum.checked_div(sizes.len()).unwrap_or(0)).unwrap_or(i64::MAX)
    }
}

/// So many keys are kept at most: whoever never asks for the average is not to keep every key that there ever was.
const MAX_KEYS: usize = 1_000_000;

fn note(sizes: &mut HashMap<Vec<u8>, usize>, key: &[u8], size: usize) {
    if sizes.len() >= MAX_KEYS {
        sizes.clear();
    }
    match sizes.get_mut(key) {
        Some(known) => *known = size,
        None => _ = sizes.insert(key.to_vec(), size),
    }
}

impl<C: Codec, T: StorageTransformer> Store<C, T> {
    /// How many objects there are, and how large they are (upstream `Stats`).
    ///
    /// # Errors
    ///
    /// What etcd says. The metrics then say -1.
    pub async fn stats(&self) -> Result<Stats, StorageError> {
        let prefix = self.prepare_key(&self.inner.resource_prefix, true)?;
        let counted = if self.inner.options.estimates_sizes {
            let keys = self.request(Operation::ListOnlyKeys, self.inner.client.keys(prefix.as_bytes())).await;
            keys.map(|keys| Stats {
                object_count: i64::try_from(keys.len()).unwrap_or(i64::MAX),
                estimated_average_object_size_bytes: self.inner.sizes.average(keys),
            })
        } else {
            let count = self.request(Operation::ListWithCount, self.inner.client.count(prefix.as_bytes())).await;
            count.map(|object_count| Stats { object_count, estimated_average_object_size_bytes: 0 })
        };
        if let Some(metrics) = self.metrics() {
            let told = counted.as_ref().ok();
            let told = told.map(|stats| (stats.object_count, stats.estimated_average_object_size_bytes));
            metrics.stats(self.resource(), told);
        }
        Ok(counted?)
    }

    /// How many objects there are (upstream `Count`).
    ///
    /// # Errors
    ///
    /// What etcd says.
    pub async fn count(&self) -> Result<i64, StorageError> {
        let prefix = self.prepare_key(&self.inner.resource_prefix, true)?;
        Ok(self.request(Operation::ListWithCount, self.inner.client.count(prefix.as_bytes())).await?)
    }
}
