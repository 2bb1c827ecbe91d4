use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tonic::Code;

use crate::grpc::code_name;
use crate::report::key_id_hash;
use crate::transformer::{KeyLabel, KmsObserver, TransformationType};

/// kube-apiserver's metrics of KMS providers, by their names and with their labels and buckets.
///
/// They belong to whoever registers them: nothing here is global. `apiserver_id_hash` is empty, since this is no API server.
/// Upstream: `envelope/metrics` and `value/metrics.go`.
///
/// ```
/// use atrest::kms::{Metrics, Options};
/// use prometheus_client::registry::Registry;
///
/// let mut registry = Registry::default();
/// let options = Options { metrics: Some(Metrics::register(&mut registry)), ..Options::default() };
/// let mut text = String::new();
/// prometheus_client::encoding::text::encode(&mut text, &registry)?;
/// assert!(text.contains("# TYPE apiserver_storage_data_key_generation_duration_seconds histogram"));
/// # let _ = options;
/// # Ok::<(), std::fmt::Error>(())
/// ```
pub struct Metrics {
    latency: Family<CallLabels, Histogram, fn() -> Histogram>,
    key_ids: Family<KeyLabels, Counter>,
    key_ids_last: Family<KeyLabels, Gauge<f64, AtomicU64>>,
    status_key_ids_last: Family<StatusLabels, Gauge<f64, AtomicU64>>,
    invalid_key_ids: Family<InvalidLabels, Counter>,
    cache_misses: Counter,
    dek_source_cache_size: Family<ProviderLabels, Gauge>,
    dek_cache_fill_percent: Gauge<f64, AtomicU64>,
    dek_cache_inter_arrival: Family<TypeLabels, Histogram, fn() -> Histogram>,
    data_key_generation: Histogram,
    data_key_generation_failures: Counter,
    recent: Mutex<Recent>,
}

/// Of the label sets with a hash of a key ID, only so many are kept, those that were used last.
const MAX_KEY_IDS: usize = 100;

#[derive(Default)]
struct Recent {
    used: VecDeque<KeyLabels>,
    status: VecDeque<StatusLabels>,
    last_arrival: [Option<Instant>; 2],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    provider_name: String,
    method_name: String,
    grpc_status_code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KeyLabels {
    transformation_type: &'static str,
    provider_name: String,
    key_id_hash: String,
    apiserver_id_hash: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    provider_name: String,
    key_id_hash: String,
    apiserver_id_hash: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InvalidLabels {
    provider_name: String,
    error: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProviderLabels {
    provider_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TypeLabels {
    transformation_type: &'static str,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// New metrics, in a registry of the caller's.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Arc<Self> {
        let latency: fn() -> Histogram = || Histogram::new(exponential_buckets(0.0001, 2.0, 20));
        let inter_arrival: fn() -> Histogram = || Histogram::new(exponential_buckets(60.0, 2.0, 10));
        let metrics = Self {
            latency: Family::new_with_constructor(latency),
            key_ids: Family::default(),
            key_ids_last: Family::default(),
            status_key_ids_last: Family::default(),
            invalid_key_ids: Family::default(),
            cache_misses: Counter::default(),
            dek_source_cache_size: Family::default(),
            dek_cache_fill_percent: Gauge::default(),
            dek_cache_inter_arrival: Family::new_with_constructor(inter_arrival),
            data_key_generation: Histogram::new(exponential_buckets(5e-6, 2.0, 14)),
            data_key_generation_failures: Counter::default(),
            recent: Mutex::default(),
        };
        let envelope = registry.sub_registry_with_prefix("apiserver_envelope_encryption");
        let name = "kms_operations_latency_seconds";
        envelope.register(name, "Time that calls of a KMS v2 plugin took", metrics.latency.clone());
        envelope.register("key_id_hash", "Values opened and sealed, by KMS key ID", metrics.key_ids.clone());
        let name = "key_id_hash_last_timestamp_seconds";
        envelope.register(name, "When a KMS key ID was used last, in Unix time", metrics.key_ids_last.clone());
        let name = "key_id_hash_status_last_timestamp_seconds";
        envelope.register(
            name,
            "When Status named a KMS key ID last, in Unix time",
            metrics.status_key_ids_last.clone(),
        );
        let name = "invalid_key_id_from_status";
        envelope.register(name, "Answers of Status with a key ID that cannot be used", metrics.invalid_key_ids.clone());
        let name = "dek_source_cache_size";
        envelope.register(name, "DEK sources of KMS v2 that are kept", metrics.dek_source_cache_size.clone());
        let name = "dek_cache_fill_percent";
        envelope.register(name, "How full the cache of KMS v1 is, from 0 to 1", metrics.dek_cache_fill_percent.clone());
        let name = "dek_cache_inter_arrival_time_seconds";
        envelope.register(name, "Time between two new data keys of KMS v1", metrics.dek_cache_inter_arrival.clone());
        let storage = registry.sub_registry_with_prefix("apiserver_storage");
        let name = "envelope_transformation_cache_misses";
        storage.register(name, "Data keys that a KMS had to decrypt", metrics.cache_misses.clone());
        let name = "data_key_generation_duration_seconds";
        storage.register(name, "Time that making a data key or a seed took", metrics.data_key_generation.clone());
        let name = "data_key_generation_failures";
        storage.register(
            name,
            "Data keys and seeds that could not be made",
            metrics.data_key_generation_failures.clone(),
        );
        Arc::new(metrics)
    }

    /// A call of KMS v2; upstream does not time those of v1.
    pub(super) fn called(&self, provider: &KeyLabel, method: &str, code: Option<Code>, took: Duration) {
        let labels = CallLabels {
            provider_name: provider.name.clone(),
            method_name: format!("/v2.KeyManagementService/{method}"),
            grpc_status_code: code.map_or_else(|| "unknown-non-grpc".to_owned(), |code| code_name(code).to_owned()),
        };
        self.latency.get_or_create(&labels).observe(took.as_secs_f64());
    }

    pub(super) fn status_named(&self, provider: &KeyLabel, key_id: &str) {
        let labels = StatusLabels {
            provider_name: provider.name.clone(),
            key_id_hash: key_id_hash(key_id),
            apiserver_id_hash: "",
        };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(evicted) = touch(&mut recent.status, &labels) {
            self.status_key_ids_last.remove(&evicted);
        }
        self.status_key_ids_last.get_or_create(&labels).set(now());
    }

    /// A status with a key ID that is empty or too long.
    pub(super) fn invalid_key_id(&self, provider: &KeyLabel, is_empty: bool) {
        let error = if is_empty { "empty" } else { "too_long" };
        self.invalid_key_ids.get_or_create(&InvalidLabels { provider_name: provider.name.clone(), error }).inc();
    }

    /// A data key, or a seed, was made or could not be.
    pub(super) fn generated(&self, took: Option<Duration>) {
        match took {
            Some(took) => self.data_key_generation.observe(took.as_secs_f64()),
            None => {
                self.data_key_generation_failures.inc();
            }
        }
    }
}

impl KmsObserver for Metrics {
    fn used(&self, provider: &KeyLabel, transformation_type: TransformationType, key_id: &str) {
        let labels = KeyLabels {
            transformation_type: transformation_type.name(),
            provider_name: provider.name.clone(),
            key_id_hash: key_id_hash(key_id),
            apiserver_id_hash: "",
        };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(evicted) = touch(&mut recent.used, &labels) {
            self.key_ids.remove(&evicted);
            self.key_ids_last.remove(&evicted);
        }
        self.key_ids.get_or_create(&labels).inc();
        self.key_ids_last.get_or_create(&labels).set(now());
    }

    fn cached(&self, provider: &KeyLabel, transformation_type: TransformationType, size: usize, limit: usize) {
        if transformation_type == TransformationType::FromStorage {
            self.cache_misses.inc();
        }
        if provider.provider == crate::transformer::ProviderKind::KmsV2 {
            let labels = ProviderLabels { provider_name: provider.name.clone() };
            self.dek_source_cache_size.get_or_create(&labels).set(i64::try_from(size).unwrap_or(i64::MAX));
            return;
        }
        self.dek_cache_fill_percent.set(size as f64 / limit.max(1) as f64);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let [from, to] = &mut recent.last_arrival;
        let last = if transformation_type == TransformationType::FromStorage { from } else { to };
        let since = last.replace(Instant::now()).map_or(Duration::ZERO, |last| last.elapsed());
        let labels = TypeLabels { transformation_type: transformation_type.name() };
        self.dek_cache_inter_arrival.get_or_create(&labels).observe(since.as_secs_f64());
    }
}

/// Makes a label set the last one used; gives the one that is dropped for it.
fn touch<L: Clone + PartialEq>(recent: &mut VecDeque<L>, labels: &L) -> Option<L> {
    // Nearly always it is the last one.
    match recent.iter().rposition(|known| known == labels) {
        Some(at) if at + 1 == recent.len() => return None,
        Some(at) => {
            recent.remove(at);
        }
        None => {}
    }
    recent.push_back(labels.clone());
    if recent.len() > MAX_KEY_IDS { recent.pop_front() } else { None }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transformer::ProviderKind;

    #[test]
    fn a_hundred_key_ids_are_kept_and_the_rest_is_forgotten() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let provider = KeyLabel::new(ProviderKind::KmsV2, "cloud");
        for i in 0..150 {
            metrics.used(&provider, TransformationType::FromStorage, "kek-0");
            metrics.used(&provider, TransformationType::FromStorage, &format!("kek-{i}"));
            metrics.status_named(&provider, &format!("kek-{i}"));
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let lines = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!(lines("apiserver_envelope_encryption_key_id_hash_total{"), 100);
        assert_eq!(lines("apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds{"), 100);
        assert_eq!(lines("apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{"), 100);
        let of_kek_0 = format!(
            "apiserver_envelope_encryption_key_id_hash_total{{transformation_type=\"from_storage\",provider_name=\"cloud\",\
             key_id_hash=\"{}\",apiserver_id_hash=\"\"}} 151",
            key_id_hash("kek-0")
        );
        assert!(text.lines().any(|line| line == of_kek_0), "{text}");
        assert!(!text.contains("kek-"), "key IDs are never raw");
    }
}
