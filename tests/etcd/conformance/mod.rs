//! What kube-apiserver's own tests ask of `storage.Interface`, one by one, against both versions of etcd. Each is named after the test
//! of upstream that it follows, or after the fact that it holds.

mod create;
mod delete;
mod invariants;
mod keys;
mod kine;
mod leases;
mod limits;
mod list;
mod update;
mod watch;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atrest::resource::GroupResource;
use atrest::secret::Plaintext;
use atrest::storage::{
    Client, JsonCodec, JsonObject, LeasePolicy, List, ListOptions, Metrics, Predicate, StorageError, Store,
    StoreOptions, StoreWatchOptions, StoredObject as _, Updated, WatchEvent, WatchStream,
};
use atrest::transformer::{DataContext, Error, FromStorage, Transformer};
use prometheus_client::registry::Registry;
use serde_json::json;

use super::fixture::{block_on, client};
use crate::support::{Etcd, Version};

/// Puts a prefix in front of what is stored. It can be told to find everything stale, or to fail.
#[derive(Clone, Default)]
pub(crate) struct TestTransformer(Arc<Switches>);

#[derive(Default)]
struct Switches {
    stale: AtomicBool,
    fail: AtomicBool,
    opened: AtomicU64,
    on_open: Mutex<Option<Box<dyn Fn() + Send>>>,
}

pub(crate) const PREFIX: &[u8] = b"test!";

impl std::fmt::Debug for TestTransformer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestTransformer")
    }
}

impl TestTransformer {
    pub(crate) fn stale(&self, stale: bool) {
        self.0.stale.store(stale, Ordering::SeqCst);
    }

    pub(crate) fn fail(&self, fail: bool) {
        self.0.fail.store(fail, Ordering::SeqCst);
    }

    /// How often it was asked to open something since it was asked this the last time.
    pub(crate) fn take_opened(&self) -> u64 {
        self.0.opened.swap(0, Ordering::SeqCst)
    }

    /// Does something whenever a value is opened.
    pub(crate) fn on_open(&self, action: impl Fn() + Send + 'static) {
        *self.0.on_open.lock().unwrap() = Some(Box::new(action));
    }
}

impl Transformer for TestTransformer {
    fn transform_from_storage<'a>(&self, data: &'a [u8], _: DataContext<'_>) -> Result<FromStorage<'a>, Error> {
        self.0.opened.fetch_add(1, Ordering::SeqCst);
        if let Some(action) = &*self.0.on_open.lock().unwrap() {
            action();
        }
        match data.strip_prefix(PREFIX) {
            Some(rest) if !self.0.fail.load(Ordering::SeqCst) => {
                Ok(FromStorage::new(Plaintext::Stored(rest), self.0.stale.load(Ordering::SeqCst)))
            }
            _ => Err(Error::NoMatchingPrefix),
        }
    }

    fn transform_to_storage(&self, plaintext: &[u8], _: DataContext<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        out.extend_from_slice(PREFIX);
        out.extend_from_slice(plaintext);
        Ok(())
    }
}

pub(crate) type TestStore = Store<JsonCodec, TestTransformer>;

/// A running etcd with an empty store of pods.
pub(crate) struct Fixture {
    pub(crate) etcd: Etcd,
    pub(crate) client: Client,
    pub(crate) store: TestStore,
    pub(crate) transformer: TestTransformer,
    registry: Registry,
}

impl Fixture {
    pub(crate) async fn new(etcd: Etcd, change: impl FnOnce(&mut StoreOptions)) -> Self {
        let mut registry = Registry::default();
        let mut options = options();
        options.metrics = Some(Metrics::register(&mut registry));
        change(&mut options);
        let transformer = TestTransformer::default();
        let client = client(&etcd).await;
        let store = Store::new(&client, JsonCodec, transformer.clone(), options).unwrap();
        Self { etcd, client, store, transformer, registry }
    }

    /// How many calls of that method were made so far.
    pub(crate) fn calls(&self, method: &str) -> u64 {
        calls_of(&self.registry, method)
    }

    /// The value of a metric; 0 when there is none.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        metric_of(&self.registry, name)
    }

    pub(crate) fn metrics(&self) -> String {
        text_of(&self.registry)
    }

    /// Creates a pod, and gives it as it is stored.
    pub(crate) async fn create(&self, namespace: &str, name: &str) -> JsonObject {
        self.store.create(&key(namespace, name), &pod(namespace, name), None).await.unwrap()
    }

    /// Stores many values in few transactions.
    pub(crate) async fn put_all(&self, values: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) {
        let mut client = self.etcd.client().connect().await;
        let puts: Vec<_> = values.map(|(key, value)| etcd_client::TxnOp::put(key, value, None)).collect();
        for puts in puts.chunks(100) {
            client.txn(etcd_client::Txn::new().and_then(puts)).await.unwrap();
        }
    }

    /// What is stored under a key of a pod.
    pub(crate) fn stored(&self, namespace: &str, name: &str) -> Option<etcd_client::KeyValue> {
        self.etcd.client().get(etcd_key(namespace, name))
    }

    /// Sets a field of a pod.
    pub(crate) async fn set(&self, namespace: &str, name: &str, text: &str) -> Updated<JsonObject> {
        let text = text.to_owned();
        let update = move |mut pod: JsonObject, _| {
            pod.fields_mut().insert("spec".to_owned(), json!({ "text": text }));
            Ok((pod, LeasePolicy::Upstream(None)))
        };
        self.store.guaranteed_update(&key(namespace, name), false, None, None, update).await.unwrap()
    }

    pub(crate) async fn list(
        &self,
        key: &str,
        options: ListOptions<JsonObject>,
    ) -> Result<List<JsonObject>, StorageError> {
        self.store.get_list(key, &options).await
    }

    pub(crate) fn watch(&self, options: StoreWatchOptions<JsonObject>) -> WatchStream<JsonObject> {
        self.store.watch("/pods/", options).unwrap()
    }
}

fn text_of(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

fn metric_of(registry: &Registry, name: &str) -> u64 {
    let text = text_of(registry);
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |value| value.trim().parse().unwrap())
}

fn calls_of(registry: &Registry, method: &str) -> u64 {
    metric_of(
        registry,
        &format!(
            "grpc_client_started_total{{grpc_type=\"unary\",grpc_service=\"etcdserverpb.KV\",grpc_method=\"{method}\"}}"
        ),
    )
}

/// A client whose calls are counted.
pub(crate) struct Counted {
    pub(crate) client: Client,
    registry: Registry,
}

impl Counted {
    pub(crate) fn new(client: Client) -> Self {
        let mut registry = Registry::default();
        Self { client: client.with_metrics(Metrics::register(&mut registry)), registry }
    }

    /// How many reads and how many transactions there were so far.
    pub(crate) fn calls(&self) -> (u64, u64) {
        (calls_of(&self.registry, "Range"), calls_of(&self.registry, "Txn"))
    }
}

pub(crate) fn options() -> StoreOptions {
    StoreOptions::new(GroupResource::new("", "pods"), "/pods/")
}

/// Runs a test on both versions of etcd.
pub(crate) fn on_both(test: impl AsyncFn(Fixture)) {
    on_both_with(|_| {}, test);
}

/// The same, with other options.
pub(crate) fn on_both_with(change: impl Fn(&mut StoreOptions), test: impl AsyncFn(Fixture)) {
    for version in Version::ALL {
        block_on(async { test(Fixture::new(Etcd::start(version), &change).await).await });
    }
}

pub(crate) fn key(namespace: &str, name: &str) -> String {
    format!("/pods/{namespace}/{name}")
}

pub(crate) fn etcd_key(namespace: &str, name: &str) -> String {
    format!("/registry{}", key(namespace, name))
}

pub(crate) fn pod(namespace: &str, name: &str) -> JsonObject {
    JsonObject::from(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{namespace}-{name}")},
    }))
}

pub(crate) fn name(pod: &JsonObject) -> String {
    pod.fields().get("metadata").map_or(String::new(), |metadata| metadata["name"].as_str().unwrap_or("").to_owned())
}

pub(crate) fn names(pods: &[JsonObject]) -> Vec<String> {
    pods.iter().map(name).collect()
}

pub(crate) fn revision(pod: &JsonObject) -> i64 {
    pod.resource_version().parse().unwrap()
}

pub(crate) fn named(wanted: &'static [&'static str]) -> Predicate<JsonObject> {
    Predicate::new(move |pod| wanted.contains(&name(pod).as_str()))
}

pub(crate) fn not_named(unwanted: &'static str) -> Predicate<JsonObject> {
    Predicate::new(move |pod| name(pod) != unwanted)
}

/// What an update does that changes nothing.
pub(crate) fn unchanged()
-> impl FnMut(JsonObject, atrest::storage::ResponseMeta) -> Result<(JsonObject, LeasePolicy), atrest::storage::BoxError>
{
    |pod, _| Ok((pod, LeasePolicy::Upstream(None)))
}

/// The next event, which must come soon.
pub(crate) async fn next(watch: &mut WatchStream<JsonObject>) -> WatchEvent<JsonObject> {
    let event = tokio::time::timeout(Duration::from_secs(20), watch.next()).await;
    event.expect("an event comes").expect("the watch goes on")
}

/// That no event comes for a while.
pub(crate) async fn nothing(watch: &mut WatchStream<JsonObject>) {
    let event = tokio::time::timeout(Duration::from_millis(300), watch.next()).await;
    assert!(event.is_err(), "{event:?}");
}

/// The kind of an event, and the name and revision of its object.
pub(crate) fn seen(event: &WatchEvent<JsonObject>) -> (&'static str, String, i64) {
    match event {
        WatchEvent::Added(pod) => ("ADDED", name(pod), revision(pod)),
        WatchEvent::Modified(pod) => ("MODIFIED", name(pod), revision(pod)),
        WatchEvent::Deleted(pod) => ("DELETED", name(pod), revision(pod)),
        WatchEvent::Bookmark { resource_version, initial_events_end } => {
            ("BOOKMARK", if *initial_events_end { "end" } else { "" }.to_owned(), *resource_version)
        }
        WatchEvent::Error(status) => ("ERROR", format!("{} {}", status.code, status.reason), 0),
    }
}

/// An error of the caller's own.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Own(pub(super) &'static str);
