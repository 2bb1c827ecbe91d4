//! One watch of etcd serves everybody.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use atrest::cacher::{CacheWatch, Cacher, CacherOptions};
use atrest::storage::{
    DeleteOptions, GetOptions, JsonCodec, JsonObject, ListOptions, Predicate, ResourceVersionMatch, StorageError,
    StoreWatchOptions, StoredObject as _, Verb, WatchEvent,
};

use crate::conformance::{Fixture, TestTransformer, etcd_key, key, name, named, not_named, on_both, revision};

type TestCacher = Cacher<JsonCodec, TestTransformer>;

async fn cacher(fixture: &Fixture, options: CacherOptions) -> TestCacher {
    let cacher = Cacher::start(fixture.store.clone(), options);
    cacher.wait_until_ready().await;
    cacher
}

fn from(resource_version: &str) -> StoreWatchOptions<JsonObject> {
    StoreWatchOptions { resource_version: resource_version.to_owned(), ..StoreWatchOptions::default() }
}

async fn next(watch: &mut CacheWatch<JsonObject>) -> (&'static str, String, i64) {
    let event = tokio::time::timeout(Duration::from_secs(20), watch.next()).await;
    match event.expect("an event comes").expect("the watch goes on") {
        WatchEvent::Added(pod) => ("ADDED", name(&pod), revision(&pod)),
        WatchEvent::Modified(pod) => ("MODIFIED", name(&pod), revision(&pod)),
        WatchEvent::Deleted(pod) => ("DELETED", name(&pod), revision(&pod)),
        WatchEvent::Bookmark { resource_version, initial_events_end } => {
            ("BOOKMARK", if initial_events_end { "end" } else { "" }.to_owned(), resource_version)
        }
        WatchEvent::Error(status) => ("ERROR", status.message, 0),
    }
}

/// The value of a metric of etcd itself.
fn of_etcd(fixture: &Fixture, metric: &str) -> u64 {
    let address = fixture.etcd.endpoint().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{metric} is there")).parse().unwrap()
}

#[test]
fn a_thousand_watchers_take_one_watch_of_etcd() {
    on_both(async |fixture| {
        let first = fixture.create("ns", "first").await;
        let cacher = cacher(&fixture, CacherOptions::default()).await;
        let mut watches = Vec::new();
        for _ in 0..1000 {
            watches.push(cacher.watch("/pods", from(first.resource_version())).await.unwrap());
        }
        assert_eq!(cacher.watchers(), 1000);
        let mut written = Vec::new();
        for number in 0..20 {
            let name = format!("pod-{number:02}");
            let created = fixture.create("ns", &name).await;
            written.push(("ADDED", name, revision(&created)));
        }
        for watch in &mut watches {
            for expected in &written {
                assert_eq!(next(watch).await, *expected);
            }
        }
        assert_eq!(of_etcd(&fixture, "etcd_debugging_mvcc_watcher_total"), 1);
        let watch = "grpc_client_started_total{grpc_type=\"bidi_stream\",grpc_service=\"etcdserverpb.Watch\",grpc_method=\"Watch\"}";
        assert_eq!(fixture.metric(watch), 1);
        drop(watches);
        assert_eq!(cacher.watchers(), 0);
    });
}

#[test]
fn watchers_begin_with_what_is_there_or_with_what_they_missed() {
    on_both(async |fixture| {
        let a = revision(&fixture.create("ns", "a").await);
        fixture.create("other", "z").await;
        let cacher = cacher(&fixture, CacherOptions::default()).await;
        let b = revision(&fixture.create("ns", "b").await);
        let changed = revision(&fixture.set("ns", "a", "1").await.object);
        let deleted =
            fixture.store.delete(&key("ns", "b"), DeleteOptions::default(), |_| Ok(())).await.unwrap().unwrap();
        let fresh = GetOptions { resource_version: deleted.resource_version().to_owned(), ..GetOptions::default() };
        cacher.get(&key("ns", "a"), &fresh).await.unwrap();
        let mut state = cacher.watch("/pods/ns", from("0")).await.unwrap();
        assert_eq!(next(&mut state).await, ("ADDED", "a".to_owned(), changed));
        let options = StoreWatchOptions { send_initial_events: Some(true), allow_watch_bookmarks: true, ..from("") };
        let mut listed = cacher.watch("/pods/ns", options).await.unwrap();
        assert_eq!(next(&mut listed).await.0, "ADDED");
        assert_eq!(next(&mut listed).await, ("BOOKMARK", "end".to_owned(), revision(&deleted)));
        let mut missed = cacher.watch("/pods/ns", from(&(b - 1).to_string())).await.unwrap();
        for expected in [("ADDED", "b", b), ("MODIFIED", "a", changed), ("DELETED", "b", revision(&deleted))] {
            assert_eq!(next(&mut missed).await, (expected.0, expected.1.to_owned(), expected.2));
        }
        // What was before the cache was filled is not in its history.
        let old = cacher.watch("/pods/ns", from(&(a - 1).to_string())).await.unwrap_err();
        assert!(old.is_expired());
        assert!(old.to_string().starts_with(&format!("too old resource version: {} (", a - 1)), "{old}");
        assert_eq!((old.status(Verb::Watch).code, old.status(Verb::Watch).reason), (410, "Expired"));
        // A selector turns changes into additions and deletions.
        let with = Predicate::new(|pod: &JsonObject| pod.fields().get("spec").is_some_and(|spec| spec["text"] == "in"));
        let options = StoreWatchOptions { predicate: with, ..from(deleted.resource_version()) };
        let mut selected = cacher.watch("/pods/ns", options).await.unwrap();
        fixture.set("ns", "a", "out").await;
        let added = revision(&fixture.set("ns", "a", "in").await.object);
        let gone = revision(&fixture.set("ns", "a", "out").await.object);
        assert_eq!(next(&mut selected).await, ("ADDED", "a".to_owned(), added));
        assert_eq!(next(&mut selected).await, ("DELETED", "a".to_owned(), gone));
    });
}

#[test]
fn the_history_holds_so_many_changes_and_no_more() {
    on_both(async |fixture| {
        let options = CacherOptions { min_history: 4, max_history: 8, ..CacherOptions::default() };
        let first = fixture.create("ns", "a").await;
        let cacher = cacher(&fixture, options).await;
        let mut last = 0;
        for number in 0..20 {
            last = revision(&fixture.set("ns", "a", &number.to_string()).await.object);
        }
        let fresh = GetOptions { resource_version: last.to_string(), ..GetOptions::default() };
        assert_eq!(revision(&cacher.get(&key("ns", "a"), &fresh).await.unwrap()), last);
        assert_eq!(cacher.len(), (1, 8));
        let old = cacher.watch("/pods", from(first.resource_version())).await.unwrap_err();
        assert_eq!(old.to_string(), format!("too old resource version: {} ({})", revision(&first), last - 8));
        let mut watch = cacher.watch("/pods", from(&(last - 8).to_string())).await.unwrap();
        for back in (0..8).rev() {
            assert_eq!(next(&mut watch).await.2, last - back);
        }
        assert_eq!(fixture.metric("watch_cache_capacity{group=\"\",resource=\"pods\"}"), 8);
    });
}

/// A watcher that does not take its events is cut off, and the others are not held up.
#[test]
fn a_slow_watcher_is_cut_off_and_goes_on_where_it_was() {
    on_both(async |fixture| {
        let first = fixture.create("ns", "first").await;
        let cacher = cacher(&fixture, CacherOptions { watcher_buffer: 10, ..CacherOptions::default() }).await;
        let mut slow = cacher.watch("/pods", from(first.resource_version())).await.unwrap();
        let mut quick = cacher.watch("/pods", from(first.resource_version())).await.unwrap();
        let mut written = Vec::new();
        for number in 0..40 {
            let created = fixture.create("ns", &format!("pod-{number:02}")).await;
            written.push(revision(&created));
            assert_eq!(next(&mut quick).await.2, revision(&created));
        }
        assert_eq!(cacher.watchers(), 1);
        assert_eq!(fixture.metric("apiserver_terminated_watchers_total{group=\"\",resource=\"pods\"}"), 1);
        let mut seen = Vec::new();
        while let Some(event) = slow.next().await {
            let WatchEvent::Added(pod) = event else { panic!("{event:?}") };
            seen.push(revision(&pod));
        }
        assert!((10..=11).contains(&seen.len()), "{seen:?}");
        let mut again = cacher.watch("/pods", from(&seen.last().unwrap().to_string())).await.unwrap();
        while seen.len() < written.len() {
            seen.push(next(&mut again).await.2);
        }
        assert_eq!(seen, written);
    });
}

#[test]
fn reads_are_as_fresh_as_they_are_asked_to_be() {
    on_both(async |fixture| {
        for name in ["a", "b", "c"] {
            fixture.create("ns", name).await;
        }
        let patience = Duration::from_millis(200);
        let cacher = cacher(&fixture, CacherOptions { freshness_patience: patience, ..CacherOptions::default() }).await;
        let list = async |options: ListOptions<JsonObject>| cacher.get_list("/pods", &options).await;
        let at = |version: &str| ListOptions { resource_version: version.to_owned(), ..ListOptions::default() };
        let names = |pods: &[Arc<JsonObject>]| pods.iter().map(|pod| name(pod)).collect::<Vec<_>>();
        let before = fixture.calls("Range");
        let any = list(at("0")).await.unwrap();
        assert_eq!((names(&any.items), fixture.calls("Range") - before), (vec!["a".into(), "b".into(), "c".into()], 0));
        // It ignores the limit at 0, as upstream does.
        assert_eq!(list(ListOptions { limit: 1, ..at("0") }).await.unwrap().items.len(), 3);
        let some = ListOptions { predicate: not_named("b"), ..at("0") };
        assert_eq!(names(&list(some).await.unwrap().items), ["a", "c"]);
        // This etcd does not tell how far it is: the most recent list is its own.
        let newest = revision(&fixture.create("ns", "d").await);
        let consistent = list(ListOptions { limit: 2, ..ListOptions::default() }).await.unwrap();
        assert_eq!(
            (consistent.items.len(), consistent.resource_version, consistent.remaining_item_count),
            (2, newest, Some(2))
        );
        let rest = ListOptions { continue_token: consistent.continue_token, ..ListOptions::default() };
        assert_eq!(names(&list(rest).await.unwrap().items), ["c", "d"]);
        let fresh = list(at(&newest.to_string())).await.unwrap();
        assert_eq!((fresh.items.len(), fresh.resource_version), (4, newest));
        let exact =
            ListOptions { resource_version_match: Some(ResourceVersionMatch::Exact), ..at(&(newest - 1).to_string()) };
        assert_eq!(list(exact).await.unwrap().items.len(), 3);
        let future = list(at(&(newest + 1000).to_string())).await.unwrap_err().status(Verb::List);
        assert_eq!((future.code, future.reason, future.retry_after_seconds), (504, "Timeout", 1));
        let get = async |name: &str, version: &str| {
            let options = GetOptions { resource_version: version.to_owned(), ..GetOptions::default() };
            cacher.get(&key("ns", name), &options).await
        };
        assert_eq!(revision(&get("d", "0").await.unwrap()), newest);
        assert_eq!(revision(&get("d", "").await.unwrap()), newest);
        assert!(get("x", "0").await.unwrap_err().is_not_found());
        let one = ListOptions { recursive: false, predicate: named(&["a"]), ..at("0") };
        assert_eq!(names(&cacher.get_list(&key("ns", "a"), &one).await.unwrap().items), ["a"]);
        let refused = cacher.get_list("/pods/../x", &at("0")).await.unwrap_err();
        assert!(matches!(refused, StorageError::InvalidKey { .. }));
    });
}

/// A value that nobody can read takes the cache of the whole resource down, as with kube-apiserver, and it comes back by itself.
#[test]
fn a_value_that_cannot_be_read_ends_all_watches_and_the_cache_comes_back() {
    on_both(async |fixture| {
        fixture.create("ns", "a").await;
        let cacher = cacher(&fixture, CacherOptions::default()).await;
        let mut watch = cacher.watch("/pods", from("")).await.unwrap();
        assert_eq!(next(&mut watch).await.1, "a");
        fixture.etcd.client().put(etcd_key("ns", "bad"), "nobody can read this");
        assert!(tokio::time::timeout(Duration::from_secs(20), watch.next()).await.unwrap().is_none());
        let refused = loop {
            match cacher
                .get_list("/pods", &ListOptions { resource_version: "0".to_owned(), ..ListOptions::default() })
                .await
            {
                Err(refused) => break refused.status(Verb::List),
                Ok(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        assert_eq!((refused.code, refused.reason, refused.retry_after_seconds), (429, "TooManyRequests", 1));
        assert!(refused.message.starts_with("storage is (re)initializing: "), "{}", refused.message);
        // One object can still be read.
        cacher
            .get(&key("ns", "a"), &GetOptions { resource_version: "0".to_owned(), ..GetOptions::default() })
            .await
            .unwrap();
        fixture.etcd.client().delete(etcd_key("ns", "bad"));
        cacher.wait_until_ready().await;
        let mut watch = cacher.watch("/pods", from("")).await.unwrap();
        assert_eq!(next(&mut watch).await.1, "a");
        assert!(fixture.metric("apiserver_watch_cache_initializations_total{group=\"\",resource=\"pods\"}") >= 2);
    });
}

#[test]
fn bookmarks_tell_how_far_the_cache_is() {
    on_both(async |fixture| {
        let first = fixture.create("ns", "a").await;
        let options = CacherOptions { bookmark_interval: Duration::from_millis(100), ..CacherOptions::default() };
        let cacher = cacher(&fixture, options).await;
        let options = StoreWatchOptions { allow_watch_bookmarks: true, ..from(first.resource_version()) };
        let mut watch = cacher.watch("/pods/other", options).await.unwrap();
        let changed = revision(&fixture.set("ns", "a", "1").await.object);
        loop {
            let (kind, _, at) = next(&mut watch).await;
            assert_eq!(kind, "BOOKMARK");
            if at >= changed {
                break;
            }
        }
    });
}

/// A watch of one object was shown others whose names begin alike.
#[test]
fn a_watch_of_one_object_shows_no_other() {
    on_both(async |fixture| {
        let first = fixture.create("ns", "web").await;
        let cacher = cacher(&fixture, CacherOptions::default()).await;
        let options = StoreWatchOptions { recursive: false, ..from(first.resource_version()) };
        let mut watch = cacher.watch(&key("ns", "web"), options).await.unwrap();
        fixture.create("ns", "web-2").await;
        let changed = revision(&fixture.set("ns", "web", "1").await.object);
        assert_eq!(next(&mut watch).await, ("MODIFIED", "web".to_owned(), changed));
    });
}

/// Who has listed from etcd, and watches from there a cache that is behind, saw everything up to there once more.
#[test]
fn nothing_is_shown_that_was_seen_elsewhere() {
    on_both(async |fixture| {
        fixture.create("ns", "a").await;
        let cacher = cacher(&fixture, CacherOptions::default()).await;
        let mut last = 0;
        for number in 0..20 {
            last = revision(&fixture.set("ns", "a", &number.to_string()).await.object);
        }
        // Perhaps ahead of the cache, as somebody else may be.
        let mut watch = cacher.watch("/pods", from(&last.to_string())).await.unwrap();
        let changed = revision(&fixture.set("ns", "a", "last").await.object);
        assert_eq!(next(&mut watch).await, ("MODIFIED", "a".to_owned(), changed));
    });
}

/// Watchers of a cache that was dropped waited for ever.
#[test]
fn a_cache_that_is_dropped_ends_its_watches() {
    on_both(async |fixture| {
        fixture.create("ns", "a").await;
        let cacher = cacher(&fixture, CacherOptions::default()).await;
        let mut watch = cacher.watch("/pods", from("")).await.unwrap();
        assert_eq!(next(&mut watch).await.1, "a");
        drop(cacher);
        assert!(tokio::time::timeout(Duration::from_secs(5), watch.next()).await.unwrap().is_none());
    });
}
