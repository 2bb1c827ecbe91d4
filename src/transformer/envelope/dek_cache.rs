use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::DekFailure;
use crate::transformer::{AesCbc, AesGcm, DataContext, Error, ExtendedNonceGcm, FromStorage, Transformer};

/// A decrypted DEK source, ready to open values.
pub(crate) enum Dek {
    /// KMS v1: the data is of AES-GCM since Kubernetes 1.25, and of AES-CBC before.
    V1 { gcm: AesGcm, cbc: Box<AesCbc> },
    /// KMS v2, type 0.
    Key(AesGcm),
    /// KMS v2, type 1.
    Seed(ExtendedNonceGcm),
}

impl fmt::Debug for Dek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dek([REDACTED])")
    }
}

impl Dek {
    pub(crate) fn open<'a>(&self, data: &'a [u8], context: DataContext<'_>) -> Result<FromStorage<'a>, Error> {
        match self {
            Self::Key(gcm) => gcm.transform_from_storage(data, context),
            Self::Seed(seed) => seed.transform_from_storage(data, context),
            Self::V1 { gcm, cbc } => gcm.transform_from_storage(data, context).or_else(|first| {
                match cbc.transform_from_storage(data, context) {
                    Ok(opened) => Ok(FromStorage { stale: true, ..opened }),
                    Err(second) => Err(Error::aggregate(vec![first, second]).unwrap_or(Error::AuthenticationFailed)),
                }
            }),
        }
    }
}

/// What became of a DEK source.
pub(crate) type Resolved = Result<Arc<Dek>, Arc<DekFailure>>;

/// The answers of a KMS, by [`super::DekSource::cache_key`].
///
/// The oldest are dropped when there are too many: of KMS v1 every value has a data key of its own.
#[derive(Debug)]
pub(crate) struct DekCache {
    limit: usize,
    entries: RwLock<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<Arc<[u8]>, Entry>,
    in_order: VecDeque<Arc<[u8]>>,
    key_bytes: usize,
}

#[derive(Debug)]
struct Entry {
    resolved: Resolved,
    at: Instant,
}

/// How many bytes of keys are kept: hostile envelopes have 34 KiB each.
const MAX_KEY_BYTES: usize = 64 * 1024 * 1024;
/// So long a failure that may pass is an answer, before it is asked again.
const FAILURE_HOLDS: Duration = Duration::from_secs(10);

impl DekCache {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, entries: RwLock::default() }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Resolved> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).by_key.get(key).map(|entry| entry.resolved.clone())
    }

    /// Whether there is an answer that need not be asked for again.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.by_key.get(key).is_some_and(|entry| match &entry.resolved {
            Err(failure) if !failure.is_final() => entry.at.elapsed() < FAILURE_HOLDS,
            _ => true,
        })
    }

    pub(crate) fn put(&self, key: Vec<u8>, resolved: Resolved) {
        let key: Arc<[u8]> = key.into();
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if entries.by_key.insert(Arc::clone(&key), Entry { resolved, at: Instant::now() }).is_none() {
            entries.key_bytes += key.len();
            entries.in_order.push_back(key);
        }
        while entries.in_order.len() > self.limit || (entries.key_bytes > MAX_KEY_BYTES && entries.in_order.len() > 1) {
            let Some(oldest) = entries.in_order.pop_front() else { break };
            entries.key_bytes -= oldest.len();
            entries.by_key.remove(&oldest);
        }
    }

    /// Forgets one answer.
    pub(crate) fn forget(&self, key: &[u8]) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if entries.by_key.remove(key).is_some() {
            entries.key_bytes -= key.len();
            entries.in_order.retain(|kept| &**kept != key);
        }
    }

    /// Forgets every failure, so that it is asked again.
    pub(crate) fn forget_failures(&self) {
        let mut guard = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let Entries { by_key, in_order, key_bytes } = &mut *guard;
        by_key.retain(|_, entry| entry.resolved.is_ok());
        in_order.retain(|key| by_key.contains_key(key));
        *key_bytes = in_order.iter().map(|key| key.len()).sum();
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).by_key.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_answers_are_dropped() {
        let cache = DekCache::new(2);
        let refused = || Err(Arc::new(DekFailure::Refused("no".to_owned())));
        for key in [b"a", b"b", b"a", b"c"] {
            cache.put(key.to_vec(), refused());
        }
        let has = |key: &[u8]| cache.contains(key);
        assert_eq!((has(b"a"), has(b"b"), has(b"c"), cache.len()), (false, true, true, 2));
    }

    #[test]
    fn an_answer_that_may_change_is_forgotten() {
        let cache = DekCache::new(2);
        cache.put(b"a".to_vec(), Err(Arc::new(DekFailure::Unavailable("down".to_owned()))));
        // Nobody is asked the same thing for each value of a page.
        assert!(cache.contains(b"a"));
        cache.forget_failures();
        assert_eq!((cache.contains(b"a"), cache.len()), (false, 0));
        cache.put(b"a".to_vec(), Err(Arc::new(DekFailure::Refused("no".to_owned()))));
        assert_eq!((cache.contains(b"a"), cache.len()), (true, 1));
    }

    /// 65,536 hostile envelopes of 34 KiB would have been 2 GiB.
    #[test]
    fn keys_are_bounded_in_bytes() {
        let cache = DekCache::new(100_000);
        for i in 0..3000_u32 {
            let mut key = vec![0; 34 * 1024];
            key.extend_from_slice(&i.to_be_bytes());
            cache.put(key, Err(Arc::new(DekFailure::NotAsked)));
        }
        assert_eq!(cache.len(), MAX_KEY_BYTES / (34 * 1024 + 4));
    }
}
