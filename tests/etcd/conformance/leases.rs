use std::collections::BTreeSet;
use std::time::Duration;

use atrest::resource::GroupResource;
use atrest::storage::{
    Compactor, CompactorState, JsonCodec, LeaseManager, LeaseOptions, Stats, Store, StoreOptions, StoreWatchOptions,
    StoredObject as _,
};

use super::{PREFIX, TestTransformer, etcd_key, key, next, on_both, on_both_with, pod, seen};

#[test]
fn t49_test_get_reuse_duration_seconds_and_lease_max_object_count() {
    let options = LeaseOptions::default();
    assert_eq!([3600, 1000, 15].map(|ttl| options.reuse_seconds(ttl)), [60, 50, 0]);
    on_both(async |fixture| {
        let two = LeaseOptions { max_object_count: 2, ..options };
        let manager = LeaseManager::new(fixture.client.clone(), two, None);
        let mut granted = Vec::new();
        let mut counted = Vec::new();
        for _ in 0..3 {
            granted.push(manager.get_lease(1000).await.unwrap());
            counted.push(manager.attached().await);
        }
        assert_eq!(counted, [1, 2, 1]);
        assert!(granted[0] == granted[1] && granted[1] != granted[2], "{granted:?}");
        let left = fixture.etcd.client().lease_ttl(granted[0]);
        assert!((1045..=1050).contains(&left), "{left}");
        // Below 20 seconds nothing is used again: the API servers' own leases are new ones every time.
        let manager = LeaseManager::new(fixture.client.clone(), options, None);
        let short: BTreeSet<_> = [manager.get_lease(15).await.unwrap(), manager.get_lease(15).await.unwrap()].into();
        assert_eq!(short.len(), 2);
        // More than etcd takes; it was a panic.
        assert_eq!(manager.get_lease(u64::MAX).await.unwrap(), manager.get_lease(u64::MAX).await.unwrap());
        // Another time to live needs another lease.
        let long = manager.get_lease(3600).await.unwrap();
        assert_eq!(manager.get_lease(3600).await.unwrap(), long);
        assert_ne!(manager.get_lease(100).await.unwrap(), long);
    });
}

#[test]
fn t50_all_keys_of_a_lease_go_in_one_revision_and_in_order() {
    on_both(async |fixture| {
        for name in ["c", "a", "b"] {
            fixture.store.create(&key("ns", name), &pod("ns", name), Some(1)).await.unwrap();
        }
        // Each has a lease of its own: for this they need one together.
        let lease = fixture.etcd.client().grant_lease(2);
        let mut last = 0;
        for name in ["c", "a", "b"] {
            let value = [PREFIX, &serde_json::to_vec(pod("ns", name).fields()).unwrap()].concat();
            last = fixture.etcd.client().put_with_lease(etcd_key("ns", name), value, lease);
        }
        let from = StoreWatchOptions { resource_version: last.to_string(), ..StoreWatchOptions::default() };
        let mut watch = fixture.watch(from);
        let mut gone = Vec::new();
        for _ in 0..3 {
            gone.push(seen(&next(&mut watch).await));
        }
        assert_eq!(
            gone.iter().map(|(kind, name, _)| (*kind, name.as_str())).collect::<Vec<_>>(),
            [("DELETED", "a"), ("DELETED", "b"), ("DELETED", "c")]
        );
        assert_eq!(gone.iter().map(|event| event.2).collect::<BTreeSet<_>>().len(), 1);
    });
}

#[test]
fn t51_test_compact() {
    on_both(async |fixture| {
        let client = &fixture.client;
        let first = fixture.create("ns", "a").await.resource_version().parse::<i64>().unwrap();
        let (state, compacted) = CompactorState::default().round(client).await.unwrap();
        assert_eq!((state, compacted), (CompactorState { version: 1, revision: first + 1 }, None));
        for number in 0..3 {
            fixture.set("ns", "a", &number.to_string()).await;
        }
        let (second, compacted) = state.round(client).await.unwrap();
        assert_eq!((second.version, compacted), (2, Some(first + 1)));
        // TestCompactConflict: who comes second with the same state learns what the first has done, and compacts nothing.
        let (lost, known) = state.round(client).await.unwrap();
        assert_eq!((lost.version, known), (2, Some(first + 1)));
        let stored = fixture.etcd.client().get("compact_rev_key").unwrap();
        assert_eq!((stored.value_str().unwrap(), stored.version()), ((first + 1).to_string().as_str(), 2));
        let expired = client.get_at(b"/registry/pods/ns/a", first).await.unwrap_err();
        assert!(matches!(expired, atrest::storage::Error::Compacted), "{expired}");
        client.get_at(b"/registry/pods/ns/a", first + 1).await.unwrap();
        // TestCompactIntervalZero
        assert!(!Compactor::start(client, Duration::ZERO).is_running());
        let beside = Compactor::start(client, Duration::from_millis(50));
        while beside.compact_revision() == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut options = super::options();
        options.compactor = Some(beside.clone());
        let store = Store::new(client, JsonCodec, TestTransformer::default(), options).unwrap();
        assert!(store.compact_revision() > first);
    });
}

#[test]
fn t52_run_test_stats() {
    on_both(async |fixture| {
        assert_eq!(fixture.store.stats().await.unwrap(), Stats::default());
        let mut sizes = Vec::new();
        for name in ["a", "bb", "ccc"] {
            fixture.create("ns", name).await;
            sizes.push(fixture.stored("ns", name).unwrap().value().len());
            let stats = fixture.store.stats().await.unwrap();
            let mean = i64::try_from(sizes.iter().sum::<usize>() / sizes.len()).unwrap();
            let count = i64::try_from(sizes.len()).unwrap();
            assert_eq!((stats.object_count, stats.estimated_average_object_size_bytes), (count, mean));
        }
        assert_eq!(fixture.store.count().await.unwrap(), 3);
        fixture.etcd.client().delete(etcd_key("ns", "a"));
        let stats = fixture.store.stats().await.unwrap();
        assert_eq!(
            (stats.object_count, stats.estimated_average_object_size_bytes),
            (2, ((sizes[1] + sizes[2]) / 2) as i64)
        );
        assert_eq!(fixture.metric("apiserver_storage_objects{resource=\"pods\"}"), 2);
    });
    on_both_with(
        |options| options.estimates_sizes = false,
        async |fixture| {
            fixture.create("ns", "a").await;
            let stats = fixture.store.stats().await.unwrap();
            assert_eq!(stats, Stats { object_count: 1, estimated_average_object_size_bytes: 0 });
        },
    );
}

/// Nodes and leaders show that they live by objects called Lease. It is often said that each has a lease of etcd, and none has.
#[test]
fn lease_objects_have_no_lease_of_etcd_and_events_have() {
    on_both(async |fixture| {
        let of = |resource: GroupResource, prefix: &str| {
            Store::new(&fixture.client, JsonCodec, TestTransformer::default(), StoreOptions::new(resource, prefix))
                .unwrap()
        };
        let leases = of(GroupResource::new("coordination.k8s.io", "leases"), "/leases");
        leases.create("/leases/kube-node-lease/node-1", &pod("kube-node-lease", "node-1"), None).await.unwrap();
        let renew = |mut lease: atrest::storage::JsonObject, _| {
            lease
                .fields_mut()
                .insert("spec".to_owned(), serde_json::json!({"renewTime": "2026-01-01T00:00:00.000000Z"}));
            Ok((lease, atrest::storage::LeasePolicy::Upstream(None)))
        };
        let key = "/leases/kube-node-lease/node-1";
        leases.guaranteed_update(key, false, None, None, renew).await.unwrap();
        let stored = fixture.etcd.client().get("/registry/leases/kube-node-lease/node-1").unwrap();
        assert_eq!((stored.lease(), stored.version()), (0, 2));
        assert_eq!(fixture.etcd.client().leases(), Vec::<i64>::new());
        let events = of(GroupResource::new("", "events"), "/events");
        for name in ["a", "b"] {
            events.create(&format!("/events/ns/{name}"), &pod("ns", name), Some(3600)).await.unwrap();
        }
        let stored =
            ["a", "b"].map(|name| fixture.etcd.client().get(format!("/registry/events/ns/{name}")).unwrap().lease());
        assert!(stored[0] != 0 && stored[0] == stored[1]);
        let left = fixture.etcd.client().lease_ttl(stored[0]);
        assert!((3655..=3660).contains(&left), "{left}");
    });
}
