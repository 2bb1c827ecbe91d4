use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::Cacher;
use super::state::Scope;
use crate::storage::{
    Codec, GetOptions, List, ListOptions, ResourceVersionMatch, StorageError, StorageTransformer, Versioner,
    encode_continue,
};

/// How often etcd is asked how far it is while somebody waits for that.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

impl<C: Codec, T: StorageTransformer> Cacher<C, T> {
    /// Reads one object: from the cache when a resource version is given, as fresh as that or fresher, and else from etcd.
    ///
    /// # Errors
    ///
    /// As [`Store::get`](crate::storage::Store::get), and [`StorageError::NotReady`].
    pub async fn get(&self, key: &str, options: &GetOptions) -> Result<Arc<C::Object>, StorageError> {
        if options.resource_version.is_empty() {
            return self.store.get(key, options).await.map(Arc::new);
        }
        let etcd_key = self.store.prepare_key(key, false)?;
        let asked = Versioner.parse_resource_version(&options.resource_version)?;
        if let Err(StorageError::NotReady { .. }) = self.readiness_check() {
            return self.store.get(key, options).await.map(Arc::new);
        }
        self.wait_until_fresh(i64::try_from(asked).unwrap_or(i64::MAX)).await?;
        let found = {
            let state = self.shared.read();
            // It may have been emptied in between.
            state.ready().map(|()| state.objects.get(etcd_key.as_bytes()).cloned())
        };
        let Ok(found) = found else { return self.store.get(key, options).await.map(Arc::new) };
        match found {
            Some(object) => Ok(object),
            None if options.ignore_not_found => Ok(Arc::new(self.store.codec().new_object())),
            None => Err(StorageError::KeyNotFound { key: etcd_key }),
        }
    }

    /// Lists objects from the cache where it has them, and from etcd otherwise: of an exact revision, and where a list goes on.
    ///
    /// Without a resource version the list is as fresh as one of etcd: etcd is asked for its revision, and the cache waited for. Where
    /// etcd does not tell how far it is (before 3.4.31 and 3.5.13), or the cache does not come so far in time, etcd is read.
    ///
    /// # Errors
    ///
    /// As [`Store::get_list`](crate::storage::Store::get_list), and [`StorageError::NotReady`].
    pub async fn get_list(
        &self,
        key: &str,
        options: &ListOptions<C::Object>,
    ) -> Result<List<Arc<C::Object>>, StorageError> {
        let prefix = self.store.prepare_key(key, options.recursive)?;
        let asked = i64::try_from(Versioner.parse_resource_version(&options.resource_version)?).unwrap_or(i64::MAX);
        let exact = match options.resource_version_match {
            Some(ResourceVersionMatch::Exact) => true,
            Some(ResourceVersionMatch::NotOlderThan) => false,
            None => options.limit > 0 && options.recursive && asked > 0,
        };
        if exact || !options.continue_token.is_empty() {
            return self.list_stored(key, options).await;
        }
        let fresh = if options.resource_version.is_empty() {
            self.is_consistent().await?
        } else {
            self.readiness_check()?;
            self.wait_until_fresh(asked).await?;
            true
        };
        if !fresh {
            return self.list_stored(key, options).await;
        }
        self.list_cached(&prefix, options)
    }

    async fn list_stored(
        &self,
        key: &str,
        options: &ListOptions<C::Object>,
    ) -> Result<List<Arc<C::Object>>, StorageError> {
        let List { items, resource_version, continue_token, remaining_item_count, corrupt } =
            self.store.get_list(key, options).await?;
        let items = items.into_iter().map(Arc::new).collect();
        Ok(List { items, resource_version, continue_token, remaining_item_count, corrupt })
    }

    /// Whether the cache has come as far as etcd is now.
    async fn is_consistent(&self) -> Result<bool, StorageError> {
        if !self.shared.tells_progress.load(Ordering::Relaxed) || self.readiness_check().is_err() {
            return Ok(false);
        }
        let current = self.store.get_current_resource_version().await?;
        Ok(self.wait_until_fresh(i64::try_from(current).unwrap_or(i64::MAX)).await.is_ok())
    }

    /// Waits until the cache has seen everything up to a revision.
    pub(super) async fn wait_until_fresh(&self, asked: i64) -> Result<(), StorageError> {
        let mut revision = self.shared.revision.subscribe();
        if *revision.borrow() >= asked {
            return Ok(());
        }
        let begun = Instant::now();
        let deadline = begun + self.shared.options.freshness_patience;
        let asks = self.shared.tells_progress.load(Ordering::Relaxed);
        loop {
            if asks {
                self.shared.wants_progress.notify_one();
            }
            let until = if asks { deadline.min(Instant::now() + PROGRESS_INTERVAL) } else { deadline };
            let came = tokio::time::timeout_at(until, revision.wait_for(|revision| *revision >= asked)).await;
            let is_late = Instant::now() >= deadline;
            if !matches!(came, Ok(Ok(_))) && !is_late {
                continue;
            }
            if let Some(metrics) = &self.shared.metrics {
                let waited = begun.elapsed().as_secs_f64();
                metrics.cache.read_wait.get_or_create(&self.shared.labels).observe(waited);
            }
            return match came {
                Ok(Ok(_)) => Ok(()),
                _ => {
                    let current = self.revision();
                    Err(StorageError::TooLargeResourceVersion { asked, current, retry_after_seconds: 1 })
                }
            };
        }
    }

    fn list_cached(
        &self,
        prefix: &str,
        options: &ListOptions<C::Object>,
    ) -> Result<List<Arc<C::Object>>, StorageError> {
        let state = self.shared.read();
        state.ready()?;
        let revision = state.revision;
        // Upstream gives all at resource version 0, whatever the limit is.
        let limited = options.limit > 0 && options.resource_version.is_empty() && options.recursive;
        let limit = if limited { usize::try_from(options.limit).unwrap_or(usize::MAX) } else { usize::MAX };
        let (mut items, mut fetched, mut last, mut more) = (Vec::new(), 0, None, 0);
        for (key, object) in state.objects_in(&Scope::new(prefix, options.recursive)) {
            fetched += 1;
            if items.len() >= limit {
                more += 1;
                continue;
            }
            last = Some(Arc::clone(key));
            if options.predicate.matches(object) {
                items.push(Arc::clone(object));
            }
        }
        drop(state);
        if let Some(metrics) = &self.shared.metrics {
            metrics.cache.lists.get_or_create(&self.shared.labels).inc();
            metrics.cache.fetched.get_or_create(&self.shared.labels).inc_by(fetched);
            metrics.cache.returned.get_or_create(&self.shared.labels).inc_by(items.len() as u64);
        }
        let continue_token = match last.filter(|_| more > 0) {
            Some(last) => encode_continue(&[&last[..], b"\0"].concat(), prefix, revision)
                .map_err(|error| StorageError::InvalidKey { message: error.to_string() })?,
            None => String::new(),
        };
        let remaining_item_count = (more > 0 && options.predicate.is_empty()).then_some(more);
        Ok(List { items, resource_version: revision, continue_token, remaining_item_count, corrupt: Vec::new() })
    }
}
