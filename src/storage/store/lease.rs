use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::codec::Codec;
use super::error::StorageError;
use super::transformer::StorageTransformer;
use super::{Metrics, Store};
use crate::storage::{Client, Error};

/// Which lease a key gets when it is written.
///
/// Only Events and the API servers' own leases of masters and peers have one. The Lease objects of `coordination.k8s.io`, by which nodes
/// and leaders show that they live, are ordinary keys: they expire for those who read them, and never in etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeasePolicy {
    /// As upstream: one of so many seconds, or none. None takes away the lease that the key has.
    Upstream(Option<u64>),
    /// The one that the key has.
    Preserve,
}

/// How leases are shared between keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// For how long a lease is used again at most, in seconds (`--lease-reuse-duration-seconds`).
    pub reuse_duration_seconds: u64,
    /// For how long at most, as a part of its time to live in percent.
    pub reuse_duration_percent: u64,
    /// To how many keys one lease is attached at most.
    pub max_object_count: u64,
}

impl Default for LeaseOptions {
    fn default() -> Self {
        Self { reuse_duration_seconds: 60, reuse_duration_percent: 5, max_object_count: 1000 }
    }
}

impl LeaseOptions {
    /// For how long a lease of so many seconds is used again, in seconds.
    #[must_use]
    pub const fn reuse_seconds(&self, ttl: u64) -> u64 {
        let share = ttl.saturating_mul(self.reuse_duration_percent) / 100;
        if share < self.reuse_duration_seconds { share } else { self.reuse_duration_seconds }
    }
}

/// Grants leases, and uses the last one again for keys that are to live about as long (upstream `leaseManager`).
///
/// A lease is granted for longer than was asked for, by the time in which it is used again. Below 20 seconds that is none: then every
/// call grants a lease.
pub struct LeaseManager {
    client: Client,
    options: LeaseOptions,
    metrics: Option<Arc<Metrics>>,
    last: Mutex<Last>,
}

/// The longest time that etcd takes, in seconds.
const MAX_TTL: u64 = 9_000_000_000;

#[derive(Clone, Copy, Default)]
struct Last {
    id: i64,
    expires: Option<Instant>,
    /// Attempts to attach a key, those too that failed.
    objects: u64,
}

impl std::fmt::Debug for LeaseManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseManager").field("options", &self.options).finish_non_exhaustive()
    }
}

impl LeaseManager {
    /// A manager that has granted nothing yet.
    #[must_use]
    pub fn new(client: Client, options: LeaseOptions, metrics: Option<Arc<Metrics>>) -> Self {
        Self { client, options, metrics, last: Mutex::default() }
    }

    /// The ID of a lease that lives at least so many seconds.
    ///
    /// # Errors
    ///
    /// When etcd grants none.
    pub async fn get_lease(&self, ttl: u64) -> Result<i64, Error> {
        let ttl = ttl.min(MAX_TTL);
        let mut last = self.last.lock().await;
        let now = Instant::now();
        let (wanted, reuse) = (Duration::from_secs(ttl), Duration::from_secs(self.options.reuse_seconds(ttl)));
        last.objects += 1;
        let fits = last.expires.is_some_and(|expires| now + wanted < expires && now + wanted + reuse > expires);
        if fits && last.objects <= self.options.max_object_count {
            return Ok(last.id);
        }
        let granted = (ttl + reuse.as_secs()).min(MAX_TTL);
        let id = self.client.grant_lease(i64::try_from(granted).unwrap_or(i64::MAX)).await?;
        if let Some(metrics) = &self.metrics {
            metrics.lease_replaced(last.objects);
        }
        *last = Last { id, expires: Some(now + wanted + reuse), objects: 1 };
        Ok(id)
    }

    /// How many keys were attached to the last lease.
    pub async fn attached(&self) -> u64 {
        self.last.lock().await.objects
    }
}

impl<C: Codec, T: StorageTransformer> Store<C, T> {
    /// The lease of a write.
    pub(super) async fn lease(&self, policy: LeasePolicy, stored: Option<i64>) -> Result<i64, StorageError> {
        match policy {
            LeasePolicy::Upstream(None | Some(0)) => Ok(0),
            LeasePolicy::Upstream(Some(ttl)) => Ok(self.inner.leases.get_lease(ttl).await?),
            LeasePolicy::Preserve => Ok(stored.unwrap_or(0)),
        }
    }

    /// The manager of its leases.
    #[must_use]
    pub fn leases(&self) -> &LeaseManager {
        &self.inner.leases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestGetReuseDurationSeconds.
    #[test]
    fn leases_are_used_again_for_a_twentieth_of_their_time_and_a_minute_at_most() {
        let options = LeaseOptions::default();
        for (ttl, reuse) in [(3600, 60), (1000, 50), (19, 0), (20, 1), (15, 0), (0, 0), (1201, 60)] {
            assert_eq!(options.reuse_seconds(ttl), reuse, "{ttl}");
        }
    }
}
