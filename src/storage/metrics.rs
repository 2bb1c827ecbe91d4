use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::resource::GroupResource;
use crate::transformer::TransformationType;

/// kube-apiserver's metrics of its storage layer, by their names and with their labels and buckets.
///
/// They belong to whoever registers them: nothing here is global. Upstream: `etcd3/metrics`, `value/metrics.go`, `cacher/metrics`, and
/// the client's `grpc_client_*`.
///
/// ```
/// use atrest::storage::Metrics;
/// use prometheus_client::registry::Registry;
///
/// let mut registry = Registry::default();
/// let metrics = Metrics::register(&mut registry);
/// let mut text = String::new();
/// prometheus_client::encoding::text::encode(&mut text, &registry)?;
/// assert!(text.contains("# TYPE etcd_lease_object_counts histogram"));
/// # let _ = metrics;
/// # Ok::<(), std::fmt::Error>(())
/// ```
pub struct Metrics {
    duration: Histograms<RequestLabels>,
    requests: Family<RequestLabels, Counter>,
    errors: Family<RequestLabels, Counter>,
    objects: Family<ObjectsLabels, Gauge>,
    resource_objects: Family<ResourceLabels, Gauge>,
    resource_size: Family<ResourceLabels, Gauge>,
    events: Family<ResourceLabels, Counter>,
    bookmarks: Family<ResourceLabels, Counter>,
    lease_objects: Histogram,
    lists: Family<ResourceLabels, Counter>,
    fetched: Family<ResourceLabels, Counter>,
    evaluated: Family<ResourceLabels, Counter>,
    returned: Family<ResourceLabels, Counter>,
    decode_errors: Family<ResourceLabels, Counter>,
    size: Family<ClusterLabels, Gauge>,
    started: Family<MethodLabels, Counter>,
    handled: Family<HandledLabels, Counter>,
    sent: Family<MethodLabels, Counter>,
    received: Family<MethodLabels, Counter>,
    transformation: Histograms<TransformationLabels>,
    transformations: Family<TransformationStatusLabels, Counter>,
    pub(crate) cache: CacheMetrics,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Those of the watch cache.
pub(crate) struct CacheMetrics {
    pub(crate) received: Family<ResourceLabels, Counter>,
    pub(crate) dispatched: Family<ResourceLabels, Counter>,
    pub(crate) resource_version: Family<ResourceLabels, Gauge>,
    pub(crate) initializations: Family<ResourceLabels, Counter>,
    pub(crate) read_wait: Histograms<ResourceLabels>,
    pub(crate) init_events: Family<ResourceLabels, Counter>,
    pub(crate) terminated_watchers: Family<ResourceLabels, Counter>,
    pub(crate) lists: Family<ResourceLabels, Counter>,
    pub(crate) fetched: Family<ResourceLabels, Counter>,
    pub(crate) returned: Family<ResourceLabels, Counter>,
    pub(crate) capacity: Family<ResourceLabels, Gauge>,
    pub(crate) capacity_increases: Family<ResourceLabels, Counter>,
    pub(crate) capacity_decreases: Family<ResourceLabels, Counter>,
}

/// What a request to etcd was for (`etcd_request_duration_seconds`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Operation {
    /// One key was read.
    Get,
    /// A range was read.
    List,
    /// A key was created.
    Create,
    /// A key was written by a compare-and-swap, also when that was lost.
    Update,
    /// A key was deleted.
    Delete,
    /// Keys were counted.
    ListWithCount,
    /// Keys were read without their values.
    ListOnlyKeys,
}

impl Operation {
    const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::ListWithCount => "listWithCount",
            Self::ListOnlyKeys => "listOnlyKeys",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    operation: &'static str,
    group: String,
    resource: String,
}

/// Of which resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ResourceLabels {
    group: String,
    resource: String,
}

impl ResourceLabels {
    pub(crate) fn of(resource: &GroupResource) -> Self {
        Self { group: resource.group.clone(), resource: resource.resource.clone() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectsLabels {
    resource: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterLabels {
    storage_cluster_id: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TransformationLabels {
    transformation_type: &'static str,
    transformer_prefix: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TransformationStatusLabels {
    resource: String,
    transformation_type: &'static str,
    transformer_prefix: String,
    status: &'static str,
}

/// A method of etcd's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    grpc_type: &'static str,
    grpc_service: &'static str,
    grpc_method: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandledLabels {
    grpc_type: &'static str,
    grpc_service: &'static str,
    grpc_method: &'static str,
    grpc_code: &'static str,
}

/// A method of etcd's API.
#[derive(Clone, Copy, Debug)]
pub(super) struct Method(MethodLabels);

impl Method {
    pub(super) const RANGE: Self = Self::unary("etcdserverpb.KV", "Range");
    pub(super) const TXN: Self = Self::unary("etcdserverpb.KV", "Txn");
    pub(super) const COMPACT: Self = Self::unary("etcdserverpb.KV", "Compact");
    pub(super) const DELETE_RANGE: Self = Self::unary("etcdserverpb.KV", "DeleteRange");
    pub(super) const LEASE_GRANT: Self = Self::unary("etcdserverpb.Lease", "LeaseGrant");
    pub(super) const LEASES: Self = Self::unary("etcdserverpb.Lease", "LeaseLeases");
    pub(super) const ALARM: Self = Self::unary("etcdserverpb.Maintenance", "Alarm");
    pub(super) const STATUS: Self = Self::unary("etcdserverpb.Maintenance", "Status");
    pub(super) const WATCH: Self =
        Self(MethodLabels { grpc_type: "bidi_stream", grpc_service: "etcdserverpb.Watch", grpc_method: "Watch" });

    const fn unary(service: &'static str, method: &'static str) -> Self {
        Self(MethodLabels { grpc_type: "unary", grpc_service: service, grpc_method: method })
    }
}

/// A call that is under way.
pub(super) struct Call<'m> {
    metrics: &'m Metrics,
    method: Method,
}

impl Call<'_> {
    pub(super) fn finish(self, error: Option<&etcd_client::Error>) {
        let code = match error {
            None => "OK",
            Some(etcd_client::Error::GRpcStatus(status)) => crate::grpc::code_name(status.code()),
            Some(etcd_client::Error::TransportError(_)) => "Unavailable",
            Some(_) => "Unknown",
        };
        self.finish_with(code);
    }

    pub(super) fn finish_with(self, code: &'static str) {
        let MethodLabels { grpc_type, grpc_service, grpc_method } = self.method.0;
        let labels = HandledLabels { grpc_type, grpc_service, grpc_method, grpc_code: code };
        self.metrics.handled.get_or_create(&labels).inc();
        if code == "OK" {
            self.metrics.received.get_or_create(&self.method.0).inc();
        }
    }
}

/// Upper bounds in seconds, as upstream has them for requests.
const REQUEST_BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// The same for waiting until a cache is fresh.
const READ_WAIT_BUCKETS: [f64; 13] = [0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0];

const LEASE_BUCKETS: [f64; 7] = [10.0, 50.0, 100.0, 500.0, 1000.0, 2500.0, 5000.0];

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// New metrics, in a registry of the caller's. Counters are registered without `_total`, which the text format adds.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Arc<Self> {
        let requests: fn() -> Histogram = || Histogram::new(REQUEST_BUCKETS);
        let read_wait: fn() -> Histogram = || Histogram::new(READ_WAIT_BUCKETS);
        let transformation: fn() -> Histogram = || Histogram::new(exponential_buckets(5e-6, 2.0, 25));
        let cache = CacheMetrics {
            received: Family::default(),
            dispatched: Family::default(),
            resource_version: Family::default(),
            initializations: Family::default(),
            read_wait: Family::new_with_constructor(read_wait),
            init_events: Family::default(),
            terminated_watchers: Family::default(),
            lists: Family::default(),
            fetched: Family::default(),
            returned: Family::default(),
            capacity: Family::default(),
            capacity_increases: Family::default(),
            capacity_decreases: Family::default(),
        };
        let metrics = Self {
            duration: Family::new_with_constructor(requests),
            requests: Family::default(),
            errors: Family::default(),
            objects: Family::default(),
            resource_objects: Family::default(),
            resource_size: Family::default(),
            events: Family::default(),
            bookmarks: Family::default(),
            lease_objects: Histogram::new(LEASE_BUCKETS),
            lists: Family::default(),
            fetched: Family::default(),
            evaluated: Family::default(),
            returned: Family::default(),
            decode_errors: Family::default(),
            size: Family::default(),
            started: Family::default(),
            handled: Family::default(),
            sent: Family::default(),
            received: Family::default(),
            transformation: Family::new_with_constructor(transformation),
            transformations: Family::default(),
            cache,
        };
        metrics.register_requests(registry);
        metrics.register_lists(registry);
        metrics.register_grpc(registry);
        metrics.cache.register(registry);
        Arc::new(metrics)
    }

    fn register_requests(&self, registry: &mut Registry) {
        registry.register("etcd_request_duration_seconds", "Time that requests to etcd took", self.duration.clone());
        registry.register("etcd_requests", "Requests to etcd", self.requests.clone());
        registry.register("etcd_request_errors", "Requests to etcd that failed", self.errors.clone());
        registry.register("etcd_bookmark", "Progress notifications of etcd", self.bookmarks.clone());
        let name = "etcd_lease_object_counts";
        registry.register(name, "Objects that were attached to one lease", self.lease_objects.clone());
    }

    fn register_lists(&self, registry: &mut Registry) {
        let mut with = |name: &str, help: &str, family: &Family<ResourceLabels, Counter>| {
            registry.register(name, help, family.clone());
        };
        with("apiserver_storage_events_received", "Events of etcd's watches", &self.events);
        with("apiserver_storage_list", "Lists that were read from storage", &self.lists);
        with("apiserver_storage_list_fetched_objects", "Objects that were read for lists", &self.fetched);
        with("apiserver_storage_list_evaluated_objects", "Objects that were tested by a selector", &self.evaluated);
        with("apiserver_storage_list_returned_objects", "Objects that lists returned", &self.returned);
        with("apiserver_storage_decode_errors", "Stored objects that could not be decoded", &self.decode_errors);
        let name = "apiserver_storage_objects";
        registry.register(name, "Objects that are stored; -1 when they could not be counted", self.objects.clone());
        let name = "apiserver_resource_objects";
        let help = "Objects that are stored; -1 when they could not be counted";
        registry.register(name, help, self.resource_objects.clone());
        let name = "apiserver_resource_size_estimate_bytes";
        registry.register(name, "Estimated size of all objects that are stored", self.resource_size.clone());
        let name = "apiserver_storage_size_bytes";
        registry.register(name, "Size of the database of etcd", self.size.clone());
        let name = "apiserver_storage_transformation_duration_seconds";
        registry.register(name, "Time that transformations took, those that succeeded", self.transformation.clone());
        let name = "apiserver_storage_transformation_operations";
        registry.register(name, "Transformations", self.transformations.clone());
    }

    fn register_grpc(&self, registry: &mut Registry) {
        registry.register("grpc_client_started", "Calls of etcd that began", self.started.clone());
        registry.register("grpc_client_handled", "Calls of etcd that ended", self.handled.clone());
        registry.register("grpc_client_msg_sent", "Messages that were sent to etcd", self.sent.clone());
        registry.register("grpc_client_msg_received", "Messages that came from etcd", self.received.clone());
    }

    pub(super) fn call(&self, method: Method) -> Call<'_> {
        self.started.get_or_create(&method.0).inc();
        self.sent.get_or_create(&method.0).inc();
        Call { metrics: self, method }
    }

    /// A message of a stream.
    pub(super) fn received(&self, method: Method) {
        self.received.get_or_create(&method.0).inc();
    }

    /// One request to etcd, without the transformation and the decoding of what it brought. A comparison that failed is a success.
    pub(super) fn request(&self, operation: Operation, resource: &GroupResource, begun: Instant, failed: bool) {
        let labels = RequestLabels {
            operation: operation.name(),
            group: resource.group.clone(),
            resource: resource.resource.clone(),
        };
        self.duration.get_or_create(&labels).observe(begun.elapsed().as_secs_f64());
        self.requests.get_or_create(&labels).inc();
        if failed {
            self.errors.get_or_create(&labels).inc();
        }
    }

    pub(super) fn list(&self, resource: &GroupResource, fetched: usize, evaluated: usize, returned: usize) {
        let labels = ResourceLabels::of(resource);
        self.lists.get_or_create(&labels).inc();
        self.fetched.get_or_create(&labels).inc_by(fetched as u64);
        self.evaluated.get_or_create(&labels).inc_by(evaluated as u64);
        self.returned.get_or_create(&labels).inc_by(returned as u64);
    }

    pub(super) fn decode_error(&self, resource: &GroupResource) {
        self.decode_errors.get_or_create(&ResourceLabels::of(resource)).inc();
    }

    pub(super) fn events(&self, resource: &GroupResource, count: usize) {
        self.events.get_or_create(&ResourceLabels::of(resource)).inc_by(count as u64);
    }

    pub(super) fn bookmark(&self, resource: &GroupResource) {
        self.bookmarks.get_or_create(&ResourceLabels::of(resource)).inc();
    }

    pub(super) fn lease_replaced(&self, objects: u64) {
        self.lease_objects.observe(objects as f64);
    }

    /// What is stored of a resource; nothing when it could not be counted.
    pub(super) fn stats(&self, resource: &GroupResource, counted: Option<(i64, i64)>) {
        let labels = ResourceLabels::of(resource);
        let (count, size) = counted.map_or((-1, -1), |(count, average)| (count, count.saturating_mul(average)));
        self.objects.get_or_create(&ObjectsLabels { resource: resource.to_string() }).set(count);
        self.resource_objects.get_or_create(&labels).set(count);
        self.resource_size.get_or_create(&labels).set(size);
    }

    /// The size of a database, by its number in the list of clusters (`etcd-0`).
    pub fn database_size(&self, cluster: usize, bytes: i64) {
        self.size.get_or_create(&ClusterLabels { storage_cluster_id: format!("etcd-{cluster}") }).set(bytes);
    }

    /// One attempt of one provider. Only those that succeed have a duration.
    pub(super) fn transformation(
        &self,
        resource: &GroupResource,
        kind: TransformationType,
        prefix: &str,
        status: &'static str,
        took: Duration,
    ) {
        let (transformation_type, transformer_prefix) = (kind.name(), prefix.to_owned());
        if status == "OK" {
            let labels = TransformationLabels { transformation_type, transformer_prefix: prefix.to_owned() };
            self.transformation.get_or_create(&labels).observe(took.as_secs_f64());
        }
        let resource = resource.to_string();
        let labels = TransformationStatusLabels { resource, transformation_type, transformer_prefix, status };
        self.transformations.get_or_create(&labels).inc();
    }
}

impl CacheMetrics {
    fn register(&self, registry: &mut Registry) {
        let cache = registry.sub_registry_with_prefix("apiserver_watch_cache");
        cache.register("events_received", "Events that came into the watch cache", self.received.clone());
        cache.register("events_dispatched", "Events that the watch cache passed on", self.dispatched.clone());
        cache.register("resource_version", "How far the watch cache is", self.resource_version.clone());
        cache.register("initializations", "How often the watch cache was filled", self.initializations.clone());
        cache.register("read_wait_seconds", "Time waited until the cache was fresh", self.read_wait.clone());
        let help = "Events that watches began with";
        registry.register("apiserver_init_events", help, self.init_events.clone());
        let help = "Watches that were ended because they were too slow";
        registry.register("apiserver_terminated_watchers", help, self.terminated_watchers.clone());
        registry.register("apiserver_cache_list", "Lists from the watch cache", self.lists.clone());
        let help = "Objects that were read from the watch cache for lists";
        registry.register("apiserver_cache_list_fetched_objects", help, self.fetched.clone());
        let help = "Objects that lists from the watch cache returned";
        registry.register("apiserver_cache_list_returned_objects", help, self.returned.clone());
        registry.register("watch_cache_capacity", "Events that the history can hold", self.capacity.clone());
        let help = "How often the history was enlarged";
        registry.register("watch_cache_capacity_increase", help, self.capacity_increases.clone());
        let help = "How often the history was made smaller";
        registry.register("watch_cache_capacity_decrease", help, self.capacity_decreases.clone());
    }
}
