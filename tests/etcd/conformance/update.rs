use std::sync::{Arc, Barrier};

use atrest::storage::{
    Codec as _, JsonCodec, JsonObject, LeasePolicy, Preconditions, ResponseMeta, StorageError, StoreWatchOptions,
    StoredObject as _, Verb,
};
use serde_json::json;

use super::{Fixture, Own, PREFIX, etcd_key, key, next, on_both, pod, revision, seen, unchanged};
use crate::fixture::block_on;
use crate::support::{Etcd, Version};

fn text(pod: &JsonObject) -> &str {
    pod.fields().get("spec").and_then(|spec| spec["text"].as_str()).unwrap_or("")
}

fn with_text(mut pod: JsonObject, text: &str) -> JsonObject {
    pod.fields_mut().insert("spec".to_owned(), json!({ "text": text }));
    pod
}

#[test]
fn t11_run_test_guaranteed_update() {
    on_both(async |fixture| {
        let update = |ignore| fixture.store.guaranteed_update("/pods/ns/foo", ignore, None, None, unchanged());
        assert!(update(false).await.unwrap_err().is_not_found());
        let mut seen_empty = false;
        let created = fixture
            .store
            .guaranteed_update("/pods/ns/foo", true, None, None, |object: JsonObject, meta: ResponseMeta| {
                seen_empty = object.fields().is_empty() && meta.resource_version == 0;
                Ok((pod("ns", "foo"), LeasePolicy::Upstream(None)))
            })
            .await
            .unwrap();
        assert!(seen_empty && created.written);
        assert_eq!(revision(&created.object), fixture.stored("ns", "foo").unwrap().mod_revision());
    });
}

#[test]
fn t12_same_data_is_not_written() {
    on_both(async |fixture| {
        let created = fixture.create("ns", "foo").await;
        let before = fixture.calls("Txn");
        let same = fixture.store.guaranteed_update(&key("ns", "foo"), false, None, None, unchanged()).await.unwrap();
        assert_eq!((same.written, &same.object, fixture.calls("Txn")), (false, &created, before));
    });
}

#[test]
fn t13_a_self_link_is_no_change() {
    on_both(async |fixture| {
        fixture.create("ns", "foo").await;
        let before = fixture.calls("Txn");
        let link = |mut pod: JsonObject, _| {
            pod.fields_mut()["metadata"]["selfLink"] = json!("/api/v1/x");
            Ok((pod, LeasePolicy::Upstream(None)))
        };
        let same = fixture.store.guaranteed_update(&key("ns", "foo"), false, None, None, link).await.unwrap();
        assert_eq!((same.written, fixture.calls("Txn")), (false, before));
        assert!(same.object.fields()["metadata"].get("selfLink").is_none());
    });
}

#[test]
fn t14_stale_data_is_written_again() {
    on_both(async |fixture| {
        let created = fixture.create("ns", "foo").await;
        fixture.transformer.stale(true);
        let written = fixture.store.guaranteed_update(&key("ns", "foo"), false, None, None, unchanged()).await.unwrap();
        assert!(written.written);
        assert!(revision(&written.object) > revision(&created));
        assert_eq!(fixture.stored("ns", "foo").unwrap().version(), 2);
        // What the caller gives says nothing of that: it is read.
        let cached = Some(written.object.clone());
        let again = fixture.store.guaranteed_update(&key("ns", "foo"), false, None, cached, unchanged()).await.unwrap();
        assert!(again.written);
    });
}

#[test]
fn t15_uid_preconditions() {
    on_both(async |fixture| {
        fixture.create("ns", "foo").await;
        let uid = |uid: &str| Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let mut calls = 0;
        let update = |pod: JsonObject, _: ResponseMeta| {
            calls += 1;
            Ok((with_text(pod, "x"), LeasePolicy::Upstream(None)))
        };
        let other = uid("other");
        let refused = fixture.store.guaranteed_update(&key("ns", "foo"), false, Some(&other), None, update).await;
        let refused = refused.unwrap_err();
        assert_eq!((refused.is_conflict(), refused.status(Verb::Update).code, calls), (true, 409, 0));
        assert_eq!(
            refused.to_string(),
            "StorageError: invalid object, Code: 4, Key: /registry/pods/ns/foo, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: other, UID in object meta: uid-ns-foo"
        );
        let same = uid("uid-ns-foo");
        let update = |pod: JsonObject, _: ResponseMeta| Ok((with_text(pod, "x"), LeasePolicy::Upstream(None)));
        let done = fixture.store.guaranteed_update(&key("ns", "foo"), false, Some(&same), None, update).await.unwrap();
        assert_eq!(text(&done.object), "x");
        // A precondition on the resource version is a conflict at once, and no retry.
        let old = Preconditions { uid: None, resource_version: Some("1".to_owned()) };
        let refused = fixture.store.guaranteed_update(&key("ns", "foo"), false, Some(&old), None, unchanged()).await;
        assert!(refused.unwrap_err().is_conflict());
        // Nothing is there that could fulfil one.
        let refused = fixture.store.guaranteed_update(&key("ns", "bar"), true, Some(&same), None, unchanged()).await;
        assert!(refused.unwrap_err().is_conflict());
    });
}

#[test]
fn t16_a_precondition_is_judged_on_what_is_stored() {
    on_both(async |fixture| {
        let old = fixture.create("ns", "foo").await;
        let live = fixture.set("ns", "foo", "1").await.object;
        let version = Preconditions { uid: None, resource_version: Some(live.resource_version().to_owned()) };
        let before = fixture.calls("Range");
        let update = |pod: JsonObject, _: ResponseMeta| Ok((with_text(pod, "2"), LeasePolicy::Upstream(None)));
        let done = fixture.store.guaranteed_update(&key("ns", "foo"), false, Some(&version), Some(old), update).await;
        let done = done.unwrap();
        assert_eq!((text(&done.object), done.calls, fixture.calls("Range") - before), ("2", 1, 1));
    });
}

/// Holds one writer inside its function until another has finished.
#[test]
fn t17_run_test_guaranteed_update_with_conflict() {
    on_both(async |fixture| {
        fixture.create("ns", "foo").await;
        let before = fixture.calls("Range");
        let (reached, finished) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (store, held) = (fixture.store.clone(), (Arc::clone(&reached), Arc::clone(&finished)));
        let first = tokio::spawn(async move {
            let mut calls = 0;
            let update = move |pod: JsonObject, _: ResponseMeta| {
                calls += 1;
                if calls == 1 {
                    tokio::task::block_in_place(|| {
                        held.0.wait();
                        held.1.wait();
                    });
                }
                let text = format!("{}first", text(&pod));
                Ok((with_text(pod, &text), LeasePolicy::Upstream(None)))
            };
            store.guaranteed_update("/pods/ns/foo", false, None, None, update).await.unwrap()
        });
        tokio::task::block_in_place(|| reached.wait());
        let second = fixture.set("ns", "foo", "second").await;
        tokio::task::block_in_place(|| finished.wait());
        let first = first.await.unwrap();
        assert_eq!((first.calls, first.conflicts, text(&first.object)), (2, 1, "secondfirst"));
        assert_eq!((second.calls, second.conflicts), (1, 0));
        // Each has read once; what was read by the transaction that failed was enough for the second try.
        assert_eq!(fixture.calls("Range") - before, 2);
    });
}

#[test]
fn t18_run_test_guaranteed_update_with_suggestion_and_conflict() {
    on_both(async |fixture| {
        let old = fixture.create("ns", "foo").await;
        fixture.set("ns", "foo", "live").await;
        let mut calls = 0;
        let update = |pod: JsonObject, _: ResponseMeta| {
            calls += 1;
            match text(&pod) {
                "live" => Ok((with_text(pod, "done"), LeasePolicy::Upstream(None))),
                _ => Err(Own("409: this is old").into()),
            }
        };
        let done = fixture.store.guaranteed_update(&key("ns", "foo"), false, None, Some(old), update).await.unwrap();
        assert_eq!((text(&done.object), calls), ("done", 2));
        let mut calls = 0;
        let refuse = |_: JsonObject, _: ResponseMeta| {
            calls += 1;
            Err(Own("never").into())
        };
        let cached = Some(done.object);
        let refused =
            fixture.store.guaranteed_update(&key("ns", "foo"), false, None, cached, refuse).await.unwrap_err();
        assert!(matches!(refused, StorageError::Rejected { .. }));
        assert_eq!((refused.to_string().as_str(), calls), ("never", 1));
    });
}

#[test]
fn t19_run_test_guaranteed_update_checks_stored_data() {
    on_both(async |fixture| {
        let canonical = JsonCodec.encode(&pod("ns", "foo")).unwrap();
        let stored = [PREFIX, b" ", &canonical].concat();
        let revision = fixture.etcd.client().put(etcd_key("ns", "foo"), stored);
        let mut cached = pod("ns", "foo");
        cached.set_resource_version(revision.to_string());
        let update = async |cached: &JsonObject| {
            let cached = Some(cached.clone());
            fixture.store.guaranteed_update(&key("ns", "foo"), false, None, cached, unchanged()).await.unwrap()
        };
        let first = update(&cached).await;
        assert!(first.written);
        assert_eq!(fixture.stored("ns", "foo").unwrap().value(), [PREFIX, &canonical].concat());
        let second = update(&first.object).await;
        assert_eq!((second.written, &second.object), (false, &first.object));
        fixture.transformer.stale(true);
        assert!(update(&first.object).await.written);
    });
}

#[test]
fn t20_run_test_guaranteed_update_with_ttl() {
    on_both(async |fixture| {
        let update = |_: JsonObject, _: ResponseMeta| Ok((pod("ns", "foo"), LeasePolicy::Upstream(Some(1))));
        let created =
            fixture.store.guaranteed_update(&key("ns", "foo"), true, None, None, update).await.unwrap().object;
        let from = StoreWatchOptions { resource_version: created.resource_version().to_owned(), ..Default::default() };
        let mut watch = fixture.watch(from);
        assert_eq!(seen(&next(&mut watch).await).0, "DELETED");
    });
}

/// The trap: whoever updates an Event without a time makes it stay for ever.
#[test]
fn t21_an_update_without_a_ttl_detaches_the_lease() {
    on_both(async |fixture| {
        fixture.store.create(&key("ns", "foo"), &pod("ns", "foo"), Some(600)).await.unwrap();
        let lease = fixture.stored("ns", "foo").unwrap().lease();
        assert_ne!(lease, 0);
        let change = |policy| {
            move |pod: JsonObject, meta: ResponseMeta| {
                assert_eq!(meta.ttl, 0);
                Ok((with_text(pod, &format!("{policy:?}{}", meta.resource_version)), policy))
            }
        };
        let key = key("ns", "foo");
        let preserve = change(LeasePolicy::Preserve);
        let kept = fixture.store.guaranteed_update(&key, false, None, None, preserve).await.unwrap();
        assert_eq!(fixture.stored("ns", "foo").unwrap().lease(), lease);
        // A suggestion does not know its lease: it is read.
        let preserve = change(LeasePolicy::Preserve);
        fixture.store.guaranteed_update(&key, false, None, Some(kept.object), preserve).await.unwrap();
        assert_eq!(fixture.stored("ns", "foo").unwrap().lease(), lease);
        let upstream = change(LeasePolicy::Upstream(None));
        fixture.store.guaranteed_update(&key, false, None, None, upstream).await.unwrap();
        assert_eq!(fixture.stored("ns", "foo").unwrap().lease(), 0);
        assert_eq!(fixture.etcd.client().lease_keys(lease), Vec::<Vec<u8>>::new());
    });
}

/// Has so many writers add 1 to one counter, each so often, and gives the number of transactions for each update.
async fn amplification(fixture: &Fixture, writers: u64, updates: u64) -> f64 {
    let mut counter = pod("ns", "counter");
    counter.fields_mut().insert("count".to_owned(), json!(0));
    fixture.store.create(&key("ns", "counter"), &counter, None).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..writers {
        let store = fixture.store.clone();
        tasks.spawn(async move {
            let mut conflicts = 0;
            for _ in 0..updates {
                let add = |mut counter: JsonObject, _: ResponseMeta| {
                    let count = counter.fields()["count"].as_u64().unwrap();
                    counter.fields_mut().insert("count".to_owned(), json!(count + 1));
                    Ok((counter, LeasePolicy::Upstream(None)))
                };
                let done = store.guaranteed_update("/pods/ns/counter", false, None, None, add).await.unwrap();
                conflicts += done.conflicts;
            }
            conflicts
        });
    }
    let mut conflicts = 0;
    while let Some(lost) = tasks.join_next().await {
        conflicts += lost.unwrap();
    }
    let stored = fixture.stored("ns", "counter").unwrap();
    let json: serde_json::Value = serde_json::from_slice(stored.value().strip_prefix(PREFIX).unwrap()).unwrap();
    let writes = writers * updates;
    assert_eq!((json["count"].as_u64(), stored.version()), (Some(writes), i64::try_from(writes).unwrap() + 1));
    (writes + conflicts) as f64 / writes as f64
}

/// What hot objects cost. Every lost compare-and-swap is a retry, and no update is lost.
#[test]
fn sixty_four_writers_of_one_counter_lose_no_update() {
    block_on(async {
        let fixture = Fixture::new(Etcd::builder(Version::V3_5).arg("--unsafe-no-fsync").start(), |_| {}).await;
        let each = amplification(&fixture, 64, 1000).await;
        println!("64 writers, 1000 updates each: {each:.2} transactions for an update");
        assert!((1.0..4.0).contains(&each), "{each}");
    });
}

/// The same as upstream does it: whoever loses tries again at once.
#[test]
fn without_a_queue_each_update_costs_as_many_transactions_as_there_are_writers() {
    block_on(async {
        let change = |options: &mut atrest::storage::StoreOptions| options.queues_conflicts = false;
        let fixture = Fixture::new(Etcd::builder(Version::V3_5).arg("--unsafe-no-fsync").start(), change).await;
        let each = amplification(&fixture, 16, 50).await;
        println!("16 writers, 50 updates each, without a queue: {each:.2} transactions for an update");
        assert!((2.0..=16.0).contains(&each), "{each}");
    });
}
