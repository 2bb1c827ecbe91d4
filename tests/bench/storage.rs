//! The storage layer on one etcd, against the bare client in the same run: reading one object, listing 10,000, updating one alone and
//! contended, and a watch cache with a growing number of watchers.
//!
//! `cargo xtask bench --bench storage`. Objects are secrets of about 1 KiB under aesgcm, as kube-apiserver encodes them. "Bare" is the same
//! requests by etcd's client and opening the same values on one core after the other, and looking at nothing.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use atrest::cacher::{Cacher, CacherOptions};
use atrest::config::{Options as ConfigOptions, load};
use atrest::resource::GroupResource;
use atrest::storage::{
    Client, ConnectOptions, Encryption, GetOptions, LeasePolicy, ListOptions, RawCodec, RawObject, ResponseMeta, Store,
    StoreOptions, StoreWatchOptions, StoredObject as _, WatchEvent,
};
use atrest::transformer::{DataContext, ResourceTransformers};
use support::{Etcd, Version};
use tokio::task::JoinSet;

type Secrets = Store<RawCodec, Encryption>;

fn transformers() -> Arc<ResourceTransformers> {
    let key = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=";
    let text = format!(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  \
         providers:\n  - aesgcm: {{keys: [{{name: key1, secret: {key}}}]}}\n"
    );
    let loaded = load(text.as_bytes(), &ConfigOptions::default()).expect("a valid configuration");
    Arc::new(ResourceTransformers::from_configurations(&[loaded.config]).expect("usable keys"))
}

/// A Secret of about 1 KiB, as kube-apiserver encodes it.
fn secret(name: &str, filling: u8) -> RawObject {
    let field = |number: u8, bytes: &[u8]| {
        let mut out = vec![number << 3 | 2];
        prost::encoding::encode_varint(bytes.len() as u64, &mut out);
        out.extend_from_slice(bytes);
        out
    };
    let metadata = [field(1, name.as_bytes()), field(3, b"default")].concat();
    let data = [field(1, b"payload"), field(2, &[filling; 900])].concat();
    let raw = [field(1, &metadata), field(2, &data), field(3, b"Opaque")].concat();
    let type_meta = [field(1, b"v1"), field(2, b"Secret")].concat();
    RawObject::new([b"k8s\0".to_vec(), field(1, &type_meta), field(2, &raw), field(3, b""), field(4, b"")].concat())
}

fn key(number: usize) -> String {
    format!("/secrets/default/benchmark-{number:06}")
}

fn etcd_key(number: usize) -> Vec<u8> {
    format!("/registry{}", key(number)).into_bytes()
}

/// The median.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The time below which 99 of 100 are.
fn p99(times: &mut [Duration]) -> Duration {
    times.sort();
    times.get(times.len() * 99 / 100).or(times.last()).copied().unwrap_or_default()
}

/// How many watches etcd itself counts.
fn watches_of(endpoint: &str) -> u64 {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(endpoint.trim_start_matches("http://")).expect("etcd");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("etcd");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("etcd");
    let count = text.lines().find_map(|line| line.strip_prefix("etcd_debugging_mvcc_watcher_total "));
    count.and_then(|count| count.parse().ok()).expect("etcd counts them")
}

struct Bench {
    endpoint: String,
    client: Client,
    store: Secrets,
    transformers: Arc<ResourceTransformers>,
    rounds: usize,
}

impl Bench {
    fn store_with(&self, change: impl FnOnce(&mut StoreOptions)) -> Secrets {
        let resource = GroupResource::new("", "secrets");
        let mut options = StoreOptions::new(resource.clone(), "/secrets");
        change(&mut options);
        let encryption = Encryption::new(Arc::clone(&self.transformers), resource);
        Store::new(&self.client, RawCodec, encryption, options).expect("a store")
    }

    async fn seed(&self, count: usize) {
        let mut creates = JoinSet::new();
        for number in 0..count {
            if creates.len() >= 64 {
                creates.join_next().await.expect("a create").expect("no panic");
            }
            let store = self.store.clone();
            creates.spawn(async move {
                let name = format!("benchmark-{number:06}");
                store.create(&key(number), &secret(&name, 0x6b), None).await.expect("it is created");
            });
        }
        while creates.join_next().await.is_some() {}
    }

    /// Alternating rounds of the bare work and ours, and the medians.
    async fn compare(&self, what: &str, each: usize, bare: impl AsyncFn(), ours: impl AsyncFn()) {
        let (mut bares, mut ourses) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            let begun = Instant::now();
            bare().await;
            bares.push(begun.elapsed());
            let begun = Instant::now();
            ours().await;
            ourses.push(begun.elapsed());
        }
        let (bare, ours) = (median(bares), median(ourses));
        let rate = |time: Duration| each as f64 / time.as_secs_f64();
        println!(
            "  {what:<30} {:>9.0}/s, bare {:>9.0}/s: {:.2} of it",
            rate(ours),
            rate(bare),
            bare.as_secs_f64() / ours.as_secs_f64()
        );
    }

    async fn gets(&self, count: usize) {
        let list = self.transformers.transformer_for_resource("", "secrets");
        let bare = async || {
            for number in 0..count {
                let value = self.client.get(&etcd_key(number)).await.expect("etcd").expect("it is there");
                list.open(&value.value, DataContext::new(&value.key)).expect("it opens");
            }
        };
        let ours = async || {
            for number in 0..count {
                self.store.get(&key(number), &GetOptions::default()).await.expect("it is there");
            }
        };
        self.compare("get, one after the other", count, bare, ours).await;
    }

    async fn lists(&self, count: usize) {
        let list = self.transformers.transformer_for_resource("", "secrets");
        let bare = async || {
            let page = self.client.list(b"/registry/secrets/", None, 0, 0).await.expect("etcd");
            let opened =
                page.values.iter().filter(|value| list.open(&value.value, DataContext::new(&value.key)).is_ok());
            assert_eq!(opened.count(), count);
        };
        let ours = async || {
            let all = self.store.get_list("/secrets", &ListOptions::default()).await.expect("a list");
            assert_eq!(all.items.len(), count);
        };
        self.compare(&format!("list of {count}, objects"), count, bare, ours).await;
    }

    async fn updates(&self, count: usize) {
        let list = self.transformers.transformer_for_resource("", "secrets");
        let flip = |object: RawObject, _: ResponseMeta| {
            let filling = if object.data().contains(&0x6b) && object.data().windows(9).any(|part| part == [0x6b; 9]) {
                0x6c
            } else {
                0x6b
            };
            Ok((secret("benchmark-000000", filling), LeasePolicy::Upstream(None)))
        };
        let bare = async || {
            for _ in 0..count {
                let value = self.client.get(&etcd_key(0)).await.expect("etcd").expect("it is there");
                let (opened, _) = list.open(&value.value, DataContext::new(&value.key)).expect("it opens");
                let mut sealed = Vec::new();
                list.seal(&opened.data, DataContext::new(&value.key), &mut sealed).expect("it seals");
                let put = self.client.optimistic_put(&value.key, sealed, value.mod_revision, value.lease);
                assert!(matches!(put.await, Ok(atrest::storage::Written::Done { .. })));
            }
        };
        let ours = async || {
            for _ in 0..count {
                let updated = self.store.guaranteed_update(&key(0), false, None, None, flip).await.expect("an update");
                assert!(updated.written);
            }
        };
        self.compare("guaranteed_update, alone", count, bare, ours).await;
    }

    async fn contended(&self, writers: usize, each: usize) {
        for queues in [true, false] {
            let store = self.store_with(|options| options.queues_conflicts = queues);
            let begun = Instant::now();
            let mut tasks = JoinSet::new();
            for writer in 0..writers {
                let store = store.clone();
                tasks.spawn(async move {
                    let mut conflicts = 0;
                    for update in 0..each {
                        let change = |_: RawObject, _: ResponseMeta| {
                            let name = format!("benchmark-{writer}-{update}");
                            Ok((secret(&name, 0x6b), LeasePolicy::Upstream(None)))
                        };
                        let done = store.guaranteed_update(&key(1), false, None, None, change).await;
                        conflicts += done.expect("an update").conflicts;
                    }
                    conflicts
                });
            }
            let mut conflicts = 0;
            while let Some(lost) = tasks.join_next().await {
                conflicts += lost.expect("no panic");
            }
            let updates = (writers * each) as f64;
            let how = if queues { "queued" } else { "as upstream" };
            println!(
                "  {:<30} {:>9.0}/s, {:.2} transactions for an update",
                format!("{writers} writers of a key, {how}"),
                updates / begun.elapsed().as_secs_f64(),
                (updates + conflicts as f64) / updates
            );
        }
    }

    /// Events to so many watchers of one cache: how many a second, and how late they come.
    async fn fan_out(&self, watchers: usize, events: usize) {
        let options = CacherOptions { watcher_buffer: events + 1, ..CacherOptions::default() };
        let cacher = Cacher::start(self.store.clone(), options);
        cacher.wait_until_ready().await;
        let begin = Instant::now();
        let mut tasks = JoinSet::new();
        for _ in 0..watchers {
            let from =
                StoreWatchOptions { resource_version: cacher.revision().to_string(), ..StoreWatchOptions::default() };
            let mut watch = cacher.watch("/secrets", from).await.expect("a watch");
            tasks.spawn(async move {
                let mut seen = Vec::with_capacity(events);
                while seen.len() < events {
                    match watch.next().await {
                        Some(WatchEvent::Modified(object)) => {
                            let revision: i64 = object.resource_version().parse().expect("a revision");
                            seen.push((revision, begin.elapsed()));
                        }
                        other => assert!(other.is_some(), "the watch goes on"),
                    }
                }
                seen
            });
        }
        let mut written = std::collections::HashMap::new();
        let begun = Instant::now();
        for number in 0..events {
            let change = |_: RawObject, _: ResponseMeta| {
                Ok((secret(&format!("benchmark-x{number}"), 0x6b), LeasePolicy::Upstream(None)))
            };
            let updated = self.store.guaranteed_update(&key(2), false, None, None, change).await.expect("an update");
            // The answer comes when the event does: what is measured is how much later a watcher has it.
            written.insert(updated.object.resource_version().parse::<i64>().expect("a revision"), begin.elapsed());
        }
        let watches = watches_of(&self.endpoint);
        let mut delays = Vec::with_capacity(watchers * events);
        while let Some(seen) = tasks.join_next().await {
            for (revision, at) in seen.expect("no panic") {
                let sent = written.get(&revision).copied().unwrap_or_default();
                delays.push(at.saturating_sub(sent));
            }
        }
        let took = begun.elapsed().as_secs_f64();
        println!(
            "  {:<30} {:>9.0} events/s delivered, {:>6.0} writes/s, p99 delay {:.1} ms, {watches} watch of etcd",
            format!("fan-out to {watchers} watchers"),
            (watchers * events) as f64 / took,
            events as f64 / took,
            p99(&mut delays).as_secs_f64() * 1000.0
        );
    }
}

fn main() {
    let smoke = std::env::args().any(|arg| arg == "--test");
    let etcd = Etcd::builder(Version::V3_5).arg("--unsafe-no-fsync").start();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let endpoint = etcd.endpoint().parse().expect("an endpoint");
        let client = Client::connect(ConnectOptions::new([endpoint])).await.expect("etcd answers");
        let transformers = transformers();
        let resource = GroupResource::new("", "secrets");
        let encryption = Encryption::new(Arc::clone(&transformers), resource.clone());
        let store =
            Store::new(&client, RawCodec, encryption, StoreOptions::new(resource, "/secrets")).expect("a store");
        let endpoint = etcd.endpoint();
        let bench = Bench { endpoint, client, store, transformers, rounds: if smoke { 1 } else { 5 } };
        let count = if smoke { 100 } else { 10_000 };
        bench.seed(count).await;
        println!("{count} secrets of 1 KiB under aesgcm, etcd 3.5.1 without fsync");
        bench.gets(if smoke { 10 } else { 2_000 }).await;
        bench.lists(count).await;
        bench.updates(if smoke { 10 } else { 1_000 }).await;
        bench.contended(16, if smoke { 2 } else { 100 }).await;
        for watchers in if smoke { vec![2, 4] } else { vec![1, 10, 100, 1_000] } {
            bench.fan_out(watchers, if smoke { 10 } else { 500 }).await;
        }
    });
}
