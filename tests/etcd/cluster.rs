//! Watches over three members, of which some are killed, stopped, or behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use atrest::resource::GroupResource;
use atrest::storage::{
    Client, Error, Event, EventKind, JsonCodec, JsonObject, KeyRange, ListOptions, Store, StoreOptions,
    StoreWatchOptions, StoredObject as _, WatchEvent, WatchOptions, WatchStream, Watched, Written,
};
use atrest::transformer::Identity;
use serde_json::json;

use crate::fixture::{block_on, client_of};
use crate::support::{Cluster, Version};

const PODS: &[u8] = b"/registry/pods/";

/// One change, as a watch should see it. The revision of a deletion whose answer was lost is not known.
#[derive(Clone, Debug)]
struct Change {
    kind: EventKind,
    name: String,
    /// What was written; of a deletion what was there before.
    number: u64,
    revision: Option<i64>,
}

/// What a watch has seen.
type Seen = (EventKind, String, u64, i64);

fn etcd_key(name: &str) -> Vec<u8> {
    [PODS, b"ns/", name.as_bytes()].concat()
}

fn pod(name: &str, number: u64) -> Vec<u8> {
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "ns"}, "number": number})
        .to_string()
        .into_bytes()
}

async fn client(endpoints: &[String]) -> Client {
    client_of(endpoints, Duration::from_secs(2)).await
}

fn store(client: &Client) -> Store<JsonCodec, Identity> {
    Store::new(client, JsonCodec, Identity, StoreOptions::new(GroupResource::new("", "pods"), "/pods/")).unwrap()
}

/// Creates, changes and deletes pods, one write after the other.
struct Writer {
    client: Client,
    number: u64,
    /// The revision and the number of what is there.
    there: BTreeMap<String, (i64, u64)>,
    done: Vec<Change>,
}

impl Writer {
    fn new(client: Client) -> Self {
        Self { client, number: 0, there: BTreeMap::new(), done: Vec::new() }
    }

    /// One write. One whose outcome is not known is made again: at most one of the two can be done, since both expect the same revision.
    async fn write(&mut self) {
        self.number += 1;
        let name = format!("pod-{}", self.number % 5);
        let key = etcd_key(&name);
        let before = self.there.get(&name).copied();
        let change = |kind, number, revision| Change { kind, name: name.clone(), number, revision };
        let done = match before {
            Some((revision, number)) if self.number.is_multiple_of(7) => {
                let revision = self.settle(&key, revision, None).await;
                self.there.remove(&name);
                change(EventKind::Deleted, number, revision)
            }
            _ => {
                let expected = before.map_or(0, |(revision, _)| revision);
                let revision = self.settle(&key, expected, Some(pod(&name, self.number))).await;
                let revision = revision.expect("what is there has a revision");
                self.there.insert(name.clone(), (revision, self.number));
                let kind = if before.is_some() { EventKind::Modified } else { EventKind::Created };
                change(kind, self.number, Some(revision))
            }
        };
        self.done.push(done);
    }

    /// Puts a value, or deletes, until that is known to be done, and gives its revision where that can be known.
    async fn settle(&self, key: &[u8], expected: i64, value: Option<Vec<u8>>) -> Option<i64> {
        let mut unknown = false;
        loop {
            let written = match &value {
                Some(value) => self.client.optimistic_put(key, value.clone(), expected, 0).await,
                None => self.client.optimistic_delete(key, expected).await,
            };
            match written {
                Ok(Written::Done { revision }) => return Some(revision),
                Ok(Written::Conflict { current }) => {
                    assert!(unknown, "nobody else writes");
                    assert_eq!(current.as_ref().map(|current| &current.value), value.as_ref());
                    return current.map(|current| current.mod_revision);
                }
                Err(error) => {
                    assert!(error.is_transient(), "{error}");
                    unknown = true;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Writes until it is told to stop.
    async fn run(mut self, stop: Arc<AtomicBool>) -> Self {
        while !stop.load(Ordering::SeqCst) {
            self.write().await;
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        self
    }
}

fn number_of(value: &[u8]) -> u64 {
    let object: serde_json::Value = serde_json::from_slice(value).unwrap();
    object["number"].as_u64().unwrap()
}

fn raw(event: &Event) -> Seen {
    let name = String::from_utf8(event.value.key.clone()).unwrap().rsplit('/').next().unwrap().to_owned();
    let value = if event.kind == EventKind::Deleted { event.previous.as_ref().unwrap() } else { &event.value };
    (event.kind, name, number_of(&value.value), event.revision())
}

fn object(event: &WatchEvent<JsonObject>) -> Option<Seen> {
    let (kind, pod) = match event {
        WatchEvent::Added(pod) => (EventKind::Created, pod),
        WatchEvent::Modified(pod) => (EventKind::Modified, pod),
        WatchEvent::Deleted(pod) => (EventKind::Deleted, pod),
        WatchEvent::Bookmark { .. } => return None,
        WatchEvent::Error(status) => panic!("{status:?}"),
    };
    let name = pod.fields()["metadata"]["name"].as_str().unwrap().to_owned();
    Some((kind, name, pod.fields()["number"].as_u64().unwrap(), pod.resource_version().parse().unwrap()))
}

/// How often those who follow look whether they are at the end.
const LOOK_UP: Duration = Duration::from_millis(100);

/// Follows a watch of etcd until it has seen a revision; how far it is can be asked meanwhile.
async fn follow_raw(client: Client, from: i64, until: Arc<AtomicI64>, at: Arc<AtomicI64>) -> (Vec<Seen>, u64) {
    let options = WatchOptions { start_revision: from, previous: true, ..WatchOptions::default() };
    let mut watch = client.watch(KeyRange::prefix(PODS), options);
    let mut seen = Vec::new();
    while at.load(Ordering::SeqCst) < until.load(Ordering::SeqCst) {
        // Dropping the future loses nothing.
        if let Ok(watched) = tokio::time::timeout(LOOK_UP, watch.next()).await
            && let Watched::Events(events) = watched.unwrap()
        {
            seen.extend(events.iter().map(raw));
            at.store(seen.last().unwrap().3, Ordering::SeqCst);
        }
    }
    (seen, watch.reconnects())
}

async fn follow_store(
    store: Store<JsonCodec, Identity>,
    from: i64,
    until: Arc<AtomicI64>,
    at: Arc<AtomicI64>,
) -> Vec<Seen> {
    let options = StoreWatchOptions { resource_version: (from - 1).to_string(), ..StoreWatchOptions::default() };
    let mut watch = store.watch("/pods/", options).unwrap();
    let mut seen: Vec<Seen> = Vec::new();
    while at.load(Ordering::SeqCst) < until.load(Ordering::SeqCst) {
        if let Ok(event) = tokio::time::timeout(LOOK_UP, watch.next()).await
            && let Some(event) = object(&event.expect("it goes on"))
        {
            at.store(event.3, Ordering::SeqCst);
            seen.push(event);
        }
    }
    seen
}

/// That a watch has seen what was written: all of it, once, and in order.
fn assert_same(seen: &[Seen], done: &[Change]) {
    for (position, (seen, done)) in seen.iter().zip(done).enumerate() {
        let (kind, name, number, revision) = seen;
        assert_eq!((kind, name, number), (&done.kind, &done.name, &done.number), "event {position}");
        assert_eq!(*revision, done.revision.unwrap_or(*revision), "event {position}");
    }
    assert_eq!(seen.len(), done.len());
    assert!(seen.windows(2).all(|pair| pair[0].3 < pair[1].3));
}

/// How many writes are made when all members are there again.
const TAIL: usize = 20;

/// All members are killed one after the other, and then the leader, while everybody goes on.
#[test]
fn a_watch_over_three_members_loses_nothing_while_they_are_killed() {
    std::thread::scope(|scope| {
        for version in Version::ALL {
            scope.spawn(move || watched_while_members_are_killed(version));
        }
    });
}

fn watched_while_members_are_killed(version: Version) {
    let mut cluster = Cluster::start(version);
    let endpoints = cluster.endpoints();
    let first = cluster.client(0).put(etcd_key("first"), pod("first", 0)) + 1;
    let until = Arc::new(AtomicI64::new(i64::MAX));
    let [raw_at, store_at] = [(); 2].map(|()| Arc::new(AtomicI64::new(first - 1)));
    let stop = Arc::new(AtomicBool::new(false));
    let (done, (raw_seen, reconnects), store_seen) = block_on(async {
        let watching = client(&endpoints).await;
        let raw = tokio::spawn(follow_raw(watching.clone(), first, until.clone(), raw_at.clone()));
        let objects = tokio::spawn(follow_store(store(&watching), first, until.clone(), store_at.clone()));
        let writer = tokio::spawn(Writer::new(client(&endpoints).await).run(stop.clone()));
        let compacting = client(&endpoints).await;
        let mut compacted = 0;
        for victim in [Some(0), Some(1), Some(2), None] {
            let victim = victim.unwrap_or_else(|| tokio::task::block_in_place(|| cluster.leader()));
            tokio::task::block_in_place(|| cluster.kill(victim));
            tokio::time::sleep(Duration::from_secs(2)).await;
            // Only what both have seen, or they would be told that they are too late.
            let seen = raw_at.load(Ordering::SeqCst).min(store_at.load(Ordering::SeqCst));
            // The first try may go to the member that was killed.
            for _ in 0..3 {
                match compacting.compact(seen).await {
                    Ok(()) => compacted += 1,
                    Err(error) if error.is_transient() => {
                        tokio::time::sleep(Duration::from_millis(500)).await;
                        continue;
                    }
                    Err(error) => assert!(matches!(error, Error::Compacted), "{error}"),
                }
                break;
            }
            tokio::task::block_in_place(|| cluster.restart(victim));
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
        assert!(compacted > 0);
        stop.store(true, Ordering::SeqCst);
        let mut writer = writer.await.unwrap();
        // What is certainly not compacted. The end is a write whose revision is known.
        let more = writer.done.len() + TAIL;
        while writer.done.len() < more || writer.done.last().unwrap().revision.is_none() {
            writer.write().await;
        }
        until.store(writer.done.last().unwrap().revision.unwrap(), Ordering::SeqCst);
        let end = async { (raw.await.unwrap(), objects.await.unwrap()) };
        let (raw, objects) = tokio::time::timeout(Duration::from_secs(90), end).await.expect("both come to the end");
        (writer.done, raw, objects)
    });
    assert!(done.len() > 100, "{}", done.len());
    assert!(reconnects > 0);
    assert_same(&raw_seen, &done);
    assert_same(&store_seen, &done);
    // What etcd has not compacted says the same.
    let tail = &store_seen[store_seen.len() - TAIL..];
    let history = block_on(async {
        let at = Arc::new(AtomicI64::new(0));
        follow_raw(client(&endpoints[1..2]).await, tail[0].3, until, at).await.0
    });
    assert_eq!(history, tail);
}

/// It takes connections, and answers nothing: only keep-alive can tell.
#[test]
fn a_member_that_is_stopped_does_not_stall_a_watch_for_ever() {
    std::thread::scope(|scope| {
        for version in Version::ALL {
            scope.spawn(move || watched_while_a_member_is_stopped(version));
        }
    });
}

fn watched_while_a_member_is_stopped(version: Version) {
    let mut cluster = Cluster::start(version);
    let first = cluster.client(0).put(etcd_key("first"), pod("first", 0)) + 1;
    block_on(async {
        // The others come after the first.
        let watching = client(&cluster.endpoints()).await;
        let options = StoreWatchOptions { resource_version: (first - 1).to_string(), ..StoreWatchOptions::default() };
        let mut watch = store(&watching).watch("/pods/", options).unwrap();
        let mut writer = Writer::new(client(&cluster.endpoints()[1..]).await);
        writer.write().await;
        let mut seen = vec![next(&mut watch, 20).await];
        let stopped = Instant::now();
        tokio::task::block_in_place(|| cluster.pause(0));
        while writer.done.len() < 20 {
            writer.write().await;
        }
        while seen.len() < 20 {
            seen.push(next(&mut watch, 120).await);
        }
        let took = stopped.elapsed();
        assert!(took < Duration::from_secs(60), "{took:?}");
        tokio::task::block_in_place(|| cluster.resume(0));
        writer.write().await;
        seen.push(next(&mut watch, 20).await);
        assert_same(&seen, &writer.done);
    });
}

async fn next(watch: &mut WatchStream<JsonObject>, seconds: u64) -> Seen {
    let event = tokio::time::timeout(Duration::from_secs(seconds), watch.next()).await;
    object(&event.expect("an event comes").expect("it goes on")).expect("it is no bookmark")
}

/// What a watcher has missed is gone: it is told so, and not given what is left.
#[test]
fn a_watcher_that_was_cut_off_for_longer_than_history_lists_again() {
    for version in Version::ALL {
        let mut cluster = Cluster::start(version);
        let first = cluster.client(0).put(etcd_key("first"), pod("first", 0)) + 1;
        block_on(async {
            // It knows one member, and the writer the others.
            let watching = client(&cluster.endpoints()[..1]).await;
            let store = store(&watching);
            let from = |revision: i64| {
                let resource_version = revision.to_string();
                store.watch("/pods/", StoreWatchOptions { resource_version, ..StoreWatchOptions::default() }).unwrap()
            };
            let mut watch = from(first - 1);
            let options = WatchOptions { start_revision: first, ..WatchOptions::default() };
            let mut raw = watching.watch(KeyRange::prefix(PODS), options);
            let mut writer = Writer::new(client(&cluster.endpoints()[1..]).await);
            writer.write().await;
            let seen = next(&mut watch, 20).await;
            assert!(matches!(raw.next().await.unwrap(), Watched::Events(events) if events.len() == 1));

            tokio::task::block_in_place(|| cluster.kill(0));
            while writer.done.len() < 20 {
                writer.write().await;
            }
            let compacted = writer.done[15].revision.unwrap();
            writer.client.compact(compacted).await.unwrap();
            tokio::task::block_in_place(|| cluster.restart(0));

            let event = tokio::time::timeout(Duration::from_secs(60), watch.next()).await.unwrap();
            match event {
                Some(WatchEvent::Error(status)) => assert_eq!((status.code, status.reason), (410, "Expired")),
                other => panic!("{other:?}"),
            }
            assert_eq!(watch.next().await, None);
            let expired = tokio::time::timeout(Duration::from_secs(60), raw.next()).await.unwrap();
            assert!(matches!(expired, Err(Error::Compacted)), "{expired:?}");
            assert_eq!((raw.next_revision(), raw.compact_revision()), (seen.3 + 1, compacted));

            let list = store.get_list("/pods/", &ListOptions::default()).await.unwrap();
            let listed: BTreeMap<_, _> = list
                .items
                .iter()
                .map(|pod| (pod.fields()["metadata"]["name"].as_str().unwrap().to_owned(), pod))
                .filter(|(name, _)| name != "first")
                .map(|(name, pod)| {
                    (name, (pod.resource_version().parse().unwrap(), pod.fields()["number"].as_u64().unwrap()))
                })
                .collect();
            assert_eq!(listed, writer.there);
            let mut again = from(list.resource_version);
            let before = writer.done.len();
            let mut seen = Vec::new();
            for _ in 0..10 {
                writer.write().await;
                seen.push(next(&mut again, 20).await);
            }
            assert_same(&seen, &writer.done[before..]);
        });
    }
}
