use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

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
    by_key: HashMap<Arc<[u8]>, Resolved>,
    in_order: VecDeque<Arc<[u8]>>,
}

impl DekCache {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, entries: RwLock::default() }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Resolved> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).by_key.get(key).cloned()
    }

    /// Whether there is an answer that stays what it is.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.by_key.get(key).is_some_and(|resolved| !matches!(resolved, Err(failure) if failure.is_transient()))
    }

    pub(crate) fn put(&self, key: Vec<u8>, resolved: Resolved) {
        let key: Arc<[u8]> = key.into();
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if entries.by_key.insert(Arc::clone(&key), resolved).is_none() {
            entries.in_order.push_back(key);
        }
        while entries.in_order.len() > self.limit {
            let Some(oldest) = entries.in_order.pop_front() else { break };
            entries.by_key.remove(&oldest);
        }
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
    fn an_answer_that_may_change_is_asked_for_again() {
        let cache = DekCache::new(2);
        cache.put(b"a".to_vec(), Err(Arc::new(DekFailure::Unavailable("down".to_owned()))));
        assert!(!cache.contains(b"a"));
        assert!(matches!(cache.get(b"a"), Some(Err(failure)) if failure.is_transient()));
        cache.put(b"a".to_vec(), Err(Arc::new(DekFailure::Refused("no".to_owned()))));
        assert_eq!((cache.contains(b"a"), cache.len()), (true, 1));
    }
}
