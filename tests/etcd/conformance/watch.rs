use std::time::Duration;

use atrest::source::StoredValue;
use atrest::storage::{
    DeleteOptions, Event, EventKind, JsonObject, OnFailure, Predicate, StorageError, StoreWatchOptions,
    StoredObject as _, WatchEvent, WatchStream,
};
use serde_json::json;

use super::{Fixture, PREFIX, etcd_key, key, next, nothing, on_both, on_both_with, pod, revision, seen};

fn from(resource_version: &str) -> StoreWatchOptions<JsonObject> {
    StoreWatchOptions { resource_version: resource_version.to_owned(), ..StoreWatchOptions::default() }
}

fn status(event: &WatchEvent<JsonObject>) -> (u16, &'static str, String) {
    match event {
        WatchEvent::Error(status) => (status.code, status.reason, status.message.clone()),
        other => panic!("no error: {other:?}"),
    }
}

#[test]
fn t39_run_test_watch_from_zero() {
    on_both(async |fixture| {
        let created = fixture.create("ns", "a").await;
        let mut watch = fixture.watch(from("0"));
        assert_eq!(seen(&next(&mut watch).await), ("ADDED", "a".to_owned(), revision(&created)));
        let modified = revision(&fixture.set("ns", "a", "1").await.object);
        assert_eq!(seen(&next(&mut watch).await), ("MODIFIED", "a".to_owned(), modified));
        let compacted = revision(&fixture.set("ns", "a", "2").await.object);
        let last = revision(&fixture.set("ns", "a", "3").await.object);
        fixture.etcd.client().compact(compacted);
        assert_eq!(seen(&next(&mut fixture.watch(from(""))).await), ("ADDED", "a".to_owned(), last));
        let mut old = fixture.watch(from(created.resource_version()));
        let (code, reason, message) = status(&next(&mut old).await);
        assert_eq!((code, reason), (410, "Expired"));
        assert_eq!(message, "The resourceVersion for the provided watch is too old.");
        assert_eq!(old.next().await, None);
        // etcd takes this start, and has not what was there before.
        let mut edge = fixture.watch(from(&(compacted - 1).to_string()));
        let (code, reason, message) = status(&next(&mut edge).await);
        assert_eq!((code, reason), (500, "InternalError"));
        assert!(message.contains("etcd event received with PrevKv=nil"), "{message}");
    });
}

#[test]
fn t40_what_comes_during_the_initial_list_comes_by_the_watch() {
    on_both(async |fixture| {
        for name in ["a", "b"] {
            fixture.create("ns", name).await;
        }
        let client = fixture.etcd.client();
        let value = [PREFIX, &serde_json::to_vec(pod("ns", "aa").fields()).unwrap()].concat();
        fixture.transformer.on_open(move || {
            if client.get(etcd_key("ns", "aa")).is_none() {
                client.put(etcd_key("ns", "aa"), value.clone());
            }
        });
        let mut watch = fixture.watch(from(""));
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(seen(&next(&mut watch).await));
        }
        // It would stand between them, had it been listed.
        assert_eq!(
            all.iter().map(|(kind, name, _)| (*kind, name.as_str())).collect::<Vec<_>>(),
            [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "aa")]
        );
        assert!(all[2].2 > watch.initial_revision());
    });
}

#[test]
fn t41_run_watch_semantics() {
    on_both(async |fixture| {
        for name in ["b", "a"] {
            fixture.create("ns", name).await;
        }
        let other = fixture.create("other", "z").await;
        let global = revision(&other);
        for (version, initial, bookmarks, added, bookmark) in [
            ("", None, false, true, false),
            ("0", None, true, true, false),
            ("1", None, true, false, false),
            ("", Some(false), true, false, false),
            ("1", Some(false), true, false, false),
            ("", Some(true), false, true, false),
            ("", Some(true), true, true, true),
            ("0", Some(true), true, true, true),
            ("1", Some(true), true, true, true),
        ] {
            // From revision 1 on, everything is still in etcd's history.
            let options =
                StoreWatchOptions { send_initial_events: initial, allow_watch_bookmarks: bookmarks, ..from(version) };
            let mut watch = fixture.store.watch("/pods/ns/", options).unwrap();
            let mut events = Vec::new();
            let by_history = version == "1" && initial != Some(true);
            if added || by_history {
                events.push(seen(&next(&mut watch).await));
                events.push(seen(&next(&mut watch).await));
            }
            let what = format!("{version:?} {initial:?} {bookmarks}");
            if added {
                // In the order of the keys, and not in that of the revisions.
                assert_eq!(events.iter().map(|event| event.1.as_str()).collect::<Vec<_>>(), ["a", "b"], "{what}");
            }
            if by_history {
                assert_eq!(events.iter().map(|event| event.1.as_str()).collect::<Vec<_>>(), ["b", "a"], "{what}");
            }
            if bookmark {
                // Of the whole store: it has the write of another namespace.
                assert_eq!(seen(&next(&mut watch).await), ("BOOKMARK", "end".to_owned(), global), "{what}");
            }
            nothing(&mut watch).await;
        }
    });
}

#[test]
fn t42_test_too_large_resource_version_error_for_watch_list() {
    on_both(async |fixture| {
        let options = StoreWatchOptions { send_initial_events: Some(true), ..from("102") };
        match next(&mut fixture.watch(options)).await {
            WatchEvent::Error(status) => {
                assert_eq!((status.code, status.causes[0].kind), (504, "ResourceVersionTooLarge"));
                assert!((1..=4).contains(&status.retry_after_seconds), "{}", status.retry_after_seconds);
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn t43_run_test_watch_delete_event_object_have_latest_rv() {
    on_both(async |fixture| {
        let created = fixture.create("ns", "a").await;
        let mut watch = fixture.watch(from(created.resource_version()));
        let deleted =
            fixture.store.delete(&key("ns", "a"), DeleteOptions::default(), |_| Ok(())).await.unwrap().unwrap();
        assert_eq!(seen(&next(&mut watch).await), ("DELETED", "a".to_owned(), revision(&deleted)));
        assert_eq!(revision(&deleted), fixture.etcd.client().revision());
    });
}

#[test]
fn t44_run_watch_error_is_blocking_further_events() {
    on_both(async |fixture| {
        let first = fixture.create("ns", "a").await;
        fixture.etcd.client().put(etcd_key("ns", "bad"), "nobody can read this");
        fixture.create("ns", "b").await;
        for _ in 0..10 {
            let mut watch = fixture.watch(from(first.resource_version()));
            assert_eq!(status(&next(&mut watch).await).0, 500);
            assert_eq!(watch.next().await, None);
        }
        // Whoever asks for it is told, and sees what follows.
        let going_on = StoreWatchOptions { on_failure: OnFailure::Report, ..from(first.resource_version()) };
        let mut watch = fixture.watch(going_on);
        assert_eq!(status(&next(&mut watch).await).1, "InternalError");
        assert_eq!(seen(&next(&mut watch).await).1, "b");
    });
}

#[test]
fn t45_run_test_watch_with_unsafe_delete() {
    let gate = |options: &mut atrest::storage::StoreOptions| options.allow_unsafe_malformed_object_deletion = true;
    on_both_with(gate, async |fixture| {
        let created = fixture.create("ns", "a").await;
        let mut watch = fixture.watch(from(created.resource_version()));
        nothing(&mut watch).await;
        fixture.transformer.fail(true);
        let refused = fixture.store.delete(&key("ns", "a"), DeleteOptions::default(), |_| Ok(())).await.unwrap_err();
        assert!(refused.is_corrupt() && refused.to_string().contains("corrupt object"), "{refused}");
        let unsafe_deletion = DeleteOptions { expect_unreadable: true, ..DeleteOptions::default() };
        assert_eq!(fixture.store.delete(&key("ns", "a"), unsafe_deletion, |_| Ok(())).await.unwrap(), None);
        let (code, reason, message) = status(&next(&mut watch).await);
        assert_eq!((code, reason), (500, "StorageReadError"));
        assert!(message.contains("saw a DELETED event, but object data is corrupt"), "{message}");
    });
}

#[test]
fn t46_test_parse_event() {
    on_both(async |fixture| {
        // A creation needs nothing that was there before, also not when it is the second one of its key.
        let first = fixture.create("ns", "a").await;
        let deleted =
            fixture.store.delete(&key("ns", "a"), DeleteOptions::default(), |_| Ok(())).await.unwrap().unwrap();
        let second = fixture.create("ns", "a").await;
        let mut watch = fixture.watch(from(&(revision(&first) - 1).to_string()));
        for expected in [("ADDED", &first), ("DELETED", &deleted), ("ADDED", &second)] {
            assert_eq!(seen(&next(&mut watch).await), (expected.0, "a".to_owned(), revision(expected.1)));
        }
    });
    let stored = |mod_revision| StoredValue {
        key: b"/registry/pods/ns/a".to_vec(),
        value: Vec::new(),
        create_revision: 1,
        mod_revision,
        version: 1,
        lease: 0,
    };
    for (kind, previous, good) in [
        (EventKind::Created, None, true),
        (EventKind::Modified, Some(stored(1)), true),
        (EventKind::Modified, None, false),
        (EventKind::Deleted, Some(stored(1)), true),
        (EventKind::Deleted, None, false),
    ] {
        let event = Event { kind, value: stored(2), previous };
        assert_eq!(event.check_previous().is_ok(), good, "{event:?}");
    }
}

#[test]
fn t47_run_test_watch_context_cancel() {
    on_both(async |fixture| {
        let first = fixture.create("ns", "first").await;
        let mut watch = fixture.watch(from(first.resource_version()));
        nothing(&mut watch).await;
        watch.stop();
        assert_eq!(watch.next().await, None);
        let mut watch = fixture.watch(from(first.resource_version()));
        for number in 0..21 {
            fixture.create("ns", &format!("pod-{number:02}")).await;
        }
        assert_eq!(seen(&next(&mut watch).await).1, "pod-00");
        tokio::time::sleep(Duration::from_millis(300)).await;
        watch.stop();
        let mut delivered = 1;
        while let Some(event) = watch.next().await {
            assert_eq!(seen(&event).1, format!("pod-{delivered:02}"));
            delivered += 1;
        }
        assert!(delivered >= 11, "{delivered}");
    });
}

#[test]
fn t48_a_selector_turns_modifications_into_additions_and_deletions() {
    on_both(async |fixture| {
        let predicate =
            Predicate::new(|pod: &JsonObject| pod.fields().get("spec").is_some_and(|spec| spec["text"] == "in"));
        let options = StoreWatchOptions { predicate, ..from("1") };
        let mut watch = fixture.watch(options);
        let with = |name: &str, text: &str| {
            let mut pod = pod("ns", name);
            pod.fields_mut().insert("spec".to_owned(), json!({ "text": text }));
            pod
        };
        let create = async |name: &str, text: &str| {
            revision(&fixture.store.create(&key("ns", name), &with(name, text), None).await.unwrap())
        };
        let set = async |name: &str, text: &str| revision(&fixture.set("ns", name, text).await.object);
        let delete = async |name: &str| {
            let deleted = fixture.store.delete(&key("ns", name), DeleteOptions::default(), |_| Ok(())).await;
            revision(&deleted.unwrap().unwrap())
        };
        let mut expected = vec![("ADDED", "a", create("a", "in").await)];
        create("b", "out").await;
        set("b", "out too").await;
        expected.push(("ADDED", "b", set("b", "in").await));
        let mut again = pod("ns", "b");
        again.fields_mut().insert("spec".to_owned(), json!({ "text": "in", "more": 1 }));
        let value = [PREFIX, &serde_json::to_vec(again.fields()).unwrap()].concat();
        expected.push(("MODIFIED", "b", fixture.etcd.client().put(etcd_key("ns", "b"), value)));
        // The old object, with the revision of the event.
        expected.push(("DELETED", "a", set("a", "out").await));
        delete("a").await;
        expected.push(("DELETED", "b", delete("b").await));
        expected.push(("ADDED", "c", create("c", "in").await));
        for (kind, name, revision) in expected {
            let event = next(&mut watch).await;
            assert_eq!(seen(&event), (kind, name.to_owned(), revision));
            if let WatchEvent::Deleted(pod) = event {
                assert_eq!(pod.fields()["spec"]["text"], "in");
            }
        }
        nothing(&mut watch).await;
    });
}

#[test]
fn a_watch_of_one_object_shows_no_other() {
    on_both(async |fixture| {
        let first = fixture.create("ns", "a").await;
        let options = StoreWatchOptions { recursive: false, ..from(first.resource_version()) };
        let mut watch = fixture.store.watch(&key("ns", "a"), options).unwrap();
        fixture.create("ns", "ab").await;
        let changed = revision(&fixture.set("ns", "a", "1").await.object);
        assert_eq!(seen(&next(&mut watch).await), ("MODIFIED", "a".to_owned(), changed));
        let options = StoreWatchOptions { recursive: false, ..from("") };
        let mut watch = fixture.store.watch(&key("ns", "a"), options).unwrap();
        assert_eq!(seen(&next(&mut watch).await), ("ADDED", "a".to_owned(), changed));
        nothing(&mut watch).await;
    });
}

/// What a watch has seen must be what etcd's history holds, whatever has happened to etcd.
async fn all_of(watch: &mut WatchStream<JsonObject>, last: i64) -> Vec<(&'static str, String, i64)> {
    let mut all = Vec::new();
    loop {
        let event = seen(&next(watch).await);
        let done = event.2 >= last;
        if event.0 != "BOOKMARK" {
            all.push(event);
        }
        if done {
            return all;
        }
    }
}

#[test]
fn a_watch_goes_on_when_etcd_is_restarted_and_nothing_is_lost_or_comes_twice() {
    on_both(async |mut fixture| {
        let first = fixture.create("ns", "first").await;
        let mut watch = fixture.watch(from(first.resource_version()));
        let mut written = Vec::new();
        for round in 0..3 {
            for number in 0..20 {
                let name = format!("pod-{round}-{number:02}");
                written.push(("ADDED", name.clone(), revision(&fixture.create("ns", &name).await)));
            }
            tokio::task::block_in_place(|| {
                fixture.etcd.kill();
                fixture.etcd.restart();
            });
        }
        written.push(("ADDED", "last".to_owned(), revision(&created_after_a_while(&fixture, "last").await)));
        let last = written.last().unwrap().2;
        assert_eq!(all_of(&mut watch, last).await, written);
        nothing(&mut watch).await;
    });
}

/// The first writes after a restart may fail.
async fn created_after_a_while(fixture: &Fixture, name: &str) -> JsonObject {
    loop {
        match fixture.store.create(&key("ns", name), &pod("ns", name), None).await {
            Ok(created) => return created,
            Err(StorageError::UnknownOutcome { .. } | StorageError::Etcd(_)) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(StorageError::KeyExists { .. }) => {
                return fixture.store.get(&key("ns", name), &atrest::storage::GetOptions::default()).await.unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// A watcher that does not take its events holds up nobody, and loses nothing.
#[test]
fn a_slow_watcher_gets_everything_in_the_end() {
    on_both(async |fixture| {
        let first = fixture.create("ns", "first").await;
        let mut watch = fixture.watch(from(first.resource_version()));
        let mut large = pod("ns", "large");
        large.fields_mut().insert("data".to_owned(), json!("x".repeat(500_000)));
        let mut revisions = vec![revision(&fixture.store.create("/pods/ns/large", &large, None).await.unwrap())];
        for number in 0..150 {
            let update = |mut pod: JsonObject, _| {
                pod.fields_mut().insert("number".to_owned(), json!(number));
                Ok((pod, atrest::storage::LeasePolicy::Upstream(None)))
            };
            let updated = fixture.store.guaranteed_update("/pods/ns/large", false, None, None, update).await.unwrap();
            revisions.push(revision(&updated.object));
        }
        let seen: Vec<_> =
            all_of(&mut watch, *revisions.last().unwrap()).await.into_iter().map(|event| event.2).collect();
        assert_eq!(seen, revisions);
    });
}

/// etcd was restored from an older snapshot while somebody watched, and he waited for a revision that comes again much later: what was
/// written in between he never saw.
#[test]
fn a_watch_ends_when_etcd_has_gone_back() {
    for version in crate::support::Version::ALL {
        crate::fixture::block_on(async {
            let etcd = crate::support::Etcd::start(version);
            let mut fixture = Fixture::new(etcd, |_| {}).await;
            let first = fixture.create("ns", "a").await;
            let copy = tempfile::tempdir().unwrap();
            let old = copy.path().join("old");
            tokio::task::block_in_place(|| {
                fixture.etcd.kill();
                copy_all(&fixture.etcd.data_dir(), &old);
                fixture.etcd.restart();
            });
            let mut watch = fixture.watch(from(first.resource_version()));
            for number in 0..5 {
                fixture.set("ns", "a", &number.to_string()).await;
                next(&mut watch).await;
            }
            tokio::task::block_in_place(|| {
                fixture.etcd.kill();
                std::fs::remove_dir_all(fixture.etcd.data_dir()).unwrap();
                copy_all(&old, &fixture.etcd.data_dir());
                fixture.etcd.restart();
            });
            let (code, reason, _) = status(&next(&mut watch).await);
            assert_eq!((code, reason), (410, "Expired"));
            assert_eq!(watch.next().await, None);
        });
    }
}

fn copy_all(from: &std::path::Path, to: &std::path::Path) {
    let copied = std::process::Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}
