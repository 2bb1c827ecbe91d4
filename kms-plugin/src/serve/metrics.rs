//! What the plugin counts, as OpenMetrics. All names begin with `atrest_kms_plugin_`.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use atrest::kms::code_name;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tonic::Code;

/// A call, with the labels of `apiserver_envelope_encryption_kms_operations_latency_seconds`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    /// The path, as `/v2.KeyManagementService/Decrypt`.
    method_name: &'static str,
    /// As Go writes it.
    grpc_status_code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BackendFailure {
    backend: &'static str,
    operation: &'static str,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KeyId {
    key_id_hash: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
    backend: &'static str,
}

/// What the plugin counts.
pub(super) struct Metrics {
    registry: Registry,
    backend: &'static str,
    requests: Family<Call, Counter>,
    latency: Family<Call, Histogram, fn() -> Histogram>,
    backend_errors: Family<BackendFailure, Counter>,
    key_id: Family<KeyId, Gauge>,
    last_probe: Gauge<f64, AtomicU64>,
    warning: Gauge,
    /// Calls that have begun and not ended.
    pub(super) open_calls: Gauge,
    /// Connections that are open.
    pub(super) connections: Gauge,
    /// Connections that were not accepted: another user's, or too many.
    pub(super) refused_connections: Counter,
}

impl Metrics {
    pub(super) fn new(backend: &'static str) -> Self {
        let latency: fn() -> Histogram = || Histogram::new(exponential_buckets(0.0001, 2.0, 20));
        let mut metrics = Self {
            registry: Registry::with_prefix("atrest_kms_plugin"),
            backend,
            requests: Family::default(),
            latency: Family::new_with_constructor(latency),
            backend_errors: Family::default(),
            key_id: Family::default(),
            last_probe: Gauge::default(),
            warning: Gauge::default(),
            open_calls: Gauge::default(),
            connections: Gauge::default(),
            refused_connections: Counter::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("requests", "Calls of the gRPC services", self.requests.clone());
        registry.register_with_unit("request_duration", "Time of a call", Unit::Seconds, self.latency.clone());
        registry.register("backend_errors", "Errors of the KMS behind", self.backend_errors.clone());
        registry.register("key_id_hash_info", "The key that encrypts: a hash of its ID", self.key_id.clone());
        let help = "When the last probe succeeded, in Unix time";
        registry.register_with_unit("last_successful_probe_timestamp", help, Unit::Seconds, self.last_probe.clone());
        let help = "1 while the backend finds something wrong although it works";
        registry.register("backend_warning", help, self.warning.clone());
        registry.register("open_calls", "Calls that have begun and not ended", self.open_calls.clone());
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register("refused_connections", "Connections not accepted", self.refused_connections.clone());
        let build = Info::new(Build { version: env!("CARGO_PKG_VERSION"), backend: self.backend });
        registry.register("build", "The version, and the backend", build);
    }

    /// A call that begins now.
    pub(super) fn call(&self, method_name: &'static str) -> Observation<'_> {
        self.open_calls.inc();
        // A call that is dropped without an end was given up by the client, or took too long.
        Observation { metrics: self, method_name, began: Instant::now(), code: Code::Cancelled }
    }

    pub(super) fn backend_error(&self, operation: &'static str, kind: &'static str) {
        self.backend_errors.get_or_create(&BackendFailure { backend: self.backend, operation, kind }).inc();
    }

    pub(super) fn set_key_id_hash(&self, key_id_hash: &str) {
        self.key_id.clear();
        self.key_id.get_or_create(&KeyId { key_id_hash: key_id_hash.to_owned() }).set(1);
    }

    pub(super) fn set_warning(&self, is_given: bool) {
        self.warning.set(is_given.into());
    }

    pub(super) fn probe_succeeded(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_probe.set(now.as_secs_f64());
    }

    /// All of it in the text format of OpenMetrics 1.0.
    pub(super) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Counts a call when it is dropped.
#[derive(Debug)]
pub(super) struct Observation<'m> {
    metrics: &'m Metrics,
    method_name: &'static str,
    began: Instant,
    code: Code,
}

impl Observation<'_> {
    pub(super) fn end<T>(mut self, result: &Result<T, tonic::Status>) {
        self.code = result.as_ref().err().map_or(Code::Ok, tonic::Status::code);
    }
}

impl Drop for Observation<'_> {
    fn drop(&mut self) {
        self.metrics.open_calls.dec();
        let call = Call { method_name: self.method_name, grpc_status_code: code_name(self.code) };
        self.metrics.requests.get_or_create(&call).inc();
        self.metrics.latency.get_or_create(&call).observe(self.began.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_method_and_code() {
        let metrics = Metrics::new("keyring");
        metrics.call("/v2.KeyManagementService/Encrypt").end(&Ok(()));
        metrics.call("/v2.KeyManagementService/Encrypt").end::<()>(&Err(tonic::Status::not_found("")));
        drop(metrics.call("/v2.KeyManagementService/Decrypt"));
        metrics.backend_error("decrypt", "throttled");
        metrics.set_key_id_hash("sha256:aa");
        metrics.set_key_id_hash("sha256:bb");
        let text = metrics.text().unwrap();
        let lines: Vec<_> = text.lines().collect();
        for expected in [
            r#"atrest_kms_plugin_requests_total{method_name="/v2.KeyManagementService/Encrypt",grpc_status_code="OK"} 1"#,
            r#"atrest_kms_plugin_requests_total{method_name="/v2.KeyManagementService/Encrypt",grpc_status_code="NotFound"} 1"#,
            r#"atrest_kms_plugin_requests_total{method_name="/v2.KeyManagementService/Decrypt",grpc_status_code="Canceled"} 1"#,
            r#"atrest_kms_plugin_backend_errors_total{backend="keyring",operation="decrypt",kind="throttled"} 1"#,
            r#"atrest_kms_plugin_key_id_hash_info{key_id_hash="sha256:bb"} 1"#,
            "# TYPE atrest_kms_plugin_request_duration_seconds histogram",
            "atrest_kms_plugin_connections 0",
            "# EOF",
        ] {
            assert!(lines.contains(&expected), "{expected} is not in\n{text}");
        }
        let build = r#"atrest_kms_plugin_build_info{version=""#;
        assert!(text.contains(build) && !text.contains("sha256:aa"), "{text}");
        let buckets = lines.iter().filter(|line| line.contains("_bucket{") && line.contains("Canceled")).count();
        assert_eq!(buckets, 21, "twenty, and the one without a limit");
        assert!(text.contains(r#"le="0.0001""#) && text.contains(r#"le="52.4288""#), "{text}");
    }
}
