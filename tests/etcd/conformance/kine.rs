//! t54: all of the tool against a server that is as narrow as kine.

use std::time::Duration;

use atrest::source::Source as _;
use atrest::storage::{
    Client, CompactorState, DeleteOptions, Error, GetOptions, JsonCodec, KeyRange, LeaseManager, LeaseOptions,
    LeasePolicy, ListOptions, Ranges, StorageError, Store, StoreWatchOptions, WatchEvent, WatchOptions, Watched,
};
use etcd_client::{Compare, CompareOp, PutOptions, SortOrder, SortTarget, Txn, TxnOp};
use serde_json::json;

use super::{TestStore, TestTransformer, key, named, names, next, pod, revision, seen};
use crate::connection::forwarder::Forwarder;
use crate::fixture::*;
use crate::support::{Etcd, Kine, SeenTxn, Shape, Version};

/// A narrow server before an etcd.
fn on_kine(mut test: impl AsyncFnMut(&Etcd, &Kine)) {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        let kine = Kine::in_front_of(&etcd);
        block_on(test(&etcd, &kine));
    }
}

async fn client_at(kine: &Kine) -> Client {
    client_of(&[kine.endpoint()], Duration::from_secs(30)).await
}

fn store(client: &Client) -> (TestStore, TestTransformer) {
    let transformer = TestTransformer::default();
    (Store::new(client, JsonCodec, transformer.clone(), super::options()).unwrap(), transformer)
}

/// That nothing was refused, and that every transaction wrote one key.
fn assert_all_taken(kine: &Kine) {
    assert_eq!(kine.refused(), Vec::<String>::new());
    for SeenTxn { shape, writes } in kine.transactions() {
        assert!(shape.is_some() && writes.len() == 1, "{shape:?} of {writes:?}");
    }
}

/// The test of the tests: what kine refuses is refused, so that what passes is no accident.
#[test]
fn t54_the_narrow_server_refuses_what_kine_refuses() {
    on_kine(async |_, kine| {
        let mut raw = etcd_client::Client::connect([kine.endpoint()], None).await.unwrap();
        let (put, get) = (|key: &str| TxnOp::put(key, "x", None), |key: &str| TxnOp::get(key, None));
        let delete = |key: &str| TxnOp::delete(key, None);
        let at = |key: &str, revision| vec![Compare::mod_revision(key, CompareOp::Equal, revision)];
        let txn = |when: Vec<Compare>, then: Vec<TxnOp>, or_else: Vec<TxnOp>| {
            Txn::new().when(when).and_then(then).or_else(or_else)
        };
        let unsupported = "etcdserver: unsupported operations in txn request";
        for refused in [
            txn(vec![], vec![put("a")], vec![]),
            txn(at("a", 0), vec![put("a"), put("b")], vec![]),
            txn(at("a", 1), vec![put("a")], vec![]),
            txn([at("a", 0), at("b", 0)].concat(), vec![put("a")], vec![get("a")]),
            txn(vec![Compare::version("a", CompareOp::Equal, 0)], vec![put("a")], vec![get("a")]),
            txn(vec![Compare::mod_revision("a", CompareOp::Greater, 0)], vec![put("a")], vec![get("a")]),
            txn(at("a", 1), vec![delete("a")], vec![]),
            txn(at("a", 1), vec![put("a"), delete("b")], vec![get("a")]),
        ] {
            match raw.txn(refused).await.unwrap_err() {
                etcd_client::Error::GRpcStatus(status) => {
                    assert_eq!((status.code(), status.message()), (tonic::Code::InvalidArgument, unsupported));
                }
                other => panic!("{other}"),
            }
        }
        assert!(kine.transactions().iter().all(|seen| seen.shape.is_none()));
        let options = || etcd_client::GetOptions::new().with_prefix();
        for (refused, what) in [
            (raw.get("a", Some(options().with_serializable())).await.err(), "serializable is unsupported"),
            (
                raw.get("a", Some(options().with_sort(SortTarget::Mod, SortOrder::Descend))).await.err(),
                "sortOrder is unsupported",
            ),
            (raw.get("a", Some(options().with_min_mod_revision(1))).await.err(), "minModRevision is unsupported"),
            (raw.get("a", Some(options().with_max_create_revision(1))).await.err(), "maxCreateRevision is unsupported"),
            (
                raw.get("a", Some(etcd_client::GetOptions::new().with_limit(2))).await.err(),
                "limit of a single key is unsupported",
            ),
            (raw.put("a", "x", None).await.err(), "put is not supported"),
            (raw.delete("a", None).await.err(), "delete is not supported"),
            (raw.lease_revoke(1).await.err(), "lease revoke is not supported"),
            (raw.lease_time_to_live(1, None).await.err(), "lease time to live is not supported"),
            (raw.leases().await.err(), "lease leases is not supported"),
            (raw.hash_kv(0).await.err(), "hash kv is not supported"),
            (raw.defragment().await.err(), "defragment is not supported"),
            (
                raw.alarm(etcd_client::AlarmAction::Get, etcd_client::AlarmType::None, None).await.err(),
                "alarm is not supported",
            ),
        ] {
            match refused {
                Some(etcd_client::Error::GRpcStatus(status)) => {
                    assert_eq!(status.message(), what);
                }
                other => panic!("{what}: {other:?}"),
            }
        }
        raw.get("a", Some(etcd_client::GetOptions::new().with_limit(1))).await.unwrap();
        assert_eq!(raw.lease_grant(300, None).await.unwrap().id(), 300);
        let lease_given = |lease| PutOptions::new().with_lease(lease);
        let created = txn(at("a", 0), vec![TxnOp::put("a", "x", Some(lease_given(300)))], vec![]);
        let created = raw.txn(created).await.unwrap().header().unwrap().revision();
        let lease = async |raw: &mut etcd_client::Client| raw.get("a", None).await.unwrap().kvs()[0].lease();
        assert_eq!(lease(&mut raw).await, 300);
        // What `ignore_lease` would keep is dropped.
        let update = TxnOp::put("a", "y", Some(PutOptions::new().with_ignore_lease()));
        assert!(raw.txn(txn(at("a", created), vec![update], vec![get("a")])).await.unwrap().succeeded());
        assert_eq!(lease(&mut raw).await, 0);
        let create = TxnOp::put("b", "y", Some(PutOptions::new().with_ignore_lease()));
        raw.txn(txn(at("b", 0), vec![create], vec![])).await.unwrap_err();
    });
}

#[test]
fn t54_the_store_needs_no_more_than_kine_has() {
    on_kine(async |etcd, kine| {
        let client = client_at(kine).await;
        let (store, transformer) = store(&client);
        for name in ["a", "b", "c", "d"] {
            let created = store.create(&key("ns", name), &pod("ns", name), Some(1000)).await.unwrap();
            assert_eq!(store.get(&key("ns", name), &GetOptions::default()).await.unwrap(), created);
        }
        let exists = store.create(&key("ns", "a"), &pod("ns", "a"), None).await;
        assert!(matches!(exists, Err(StorageError::KeyExists { .. })), "{exists:?}");
        let stored = async |name: &str| client.get(super::etcd_key("ns", name).as_bytes()).await.unwrap().unwrap();
        // A twentieth longer than was asked for; its lease is its time to live.
        assert_eq!(stored("a").await.lease, 1050);

        let page =
            |limit, token: &str| ListOptions { limit, continue_token: token.to_owned(), ..ListOptions::default() };
        let first = store.get_list("/pods/", &page(3, "")).await.unwrap();
        assert_eq!(
            (names(&first.items), first.remaining_item_count),
            (vec!["a".into(), "b".into(), "c".into()], Some(1))
        );
        let rest = store.get_list("/pods/", &page(0, &first.continue_token)).await.unwrap();
        assert_eq!((names(&rest.items), rest.resource_version), (vec!["d".to_owned()], first.resource_version));
        let last = ListOptions { predicate: named(&["d"]), ..page(1, "") };
        assert_eq!(names(&store.get_list("/pods/", &last).await.unwrap().items), ["d"]);
        assert_eq!(store.count().await.unwrap(), 4);

        let from =
            StoreWatchOptions { resource_version: rest.resource_version.to_string(), ..StoreWatchOptions::default() };
        let mut watch = store.watch("/pods/", from).unwrap();
        let set = |policy| {
            move |mut pod: atrest::storage::JsonObject, _| {
                pod.fields_mut().insert("spec".to_owned(), json!({"text": format!("{policy:?}")}));
                Ok((pod, policy))
            }
        };
        let mut others = Some(());
        let racing = |mut pod: atrest::storage::JsonObject, _: atrest::storage::ResponseMeta| {
            if others.take().is_some() {
                // Another one changes it first.
                let value = [super::PREFIX, &serde_json::to_vec(super::pod("ns", "a").fields()).unwrap()].concat();
                etcd.client().put_with_lease(super::etcd_key("ns", "a"), value, 0);
            }
            pod.fields_mut().insert("n".to_owned(), json!(1));
            Ok((pod, LeasePolicy::Preserve))
        };
        let updated = store.guaranteed_update(&key("ns", "a"), false, None, None, racing).await.unwrap();
        assert_eq!((updated.written, updated.conflicts), (true, 1));
        let kept =
            store.guaranteed_update(&key("ns", "b"), false, None, None, set(LeasePolicy::Preserve)).await.unwrap();
        assert_eq!(stored("b").await.lease, 1050);
        let policy = LeasePolicy::Upstream(None);
        let dropped = store.guaranteed_update(&key("ns", "c"), false, None, None, set(policy)).await.unwrap();
        assert_eq!(stored("c").await.lease, 0);
        let make = |_, _| Ok((pod("ns", "new"), policy));
        let new = store.guaranteed_update(&key("ns", "new"), true, None, None, make).await.unwrap();
        transformer.stale(true);
        let unchanged =
            store.guaranteed_update(&key("ns", "new"), false, None, None, super::unchanged()).await.unwrap();
        transformer.stale(false);
        let mut validated = 0;
        let validate = |_: &_| {
            validated += 1;
            if validated == 1 {
                let value = [super::PREFIX, &serde_json::to_vec(pod("ns", "d").fields()).unwrap()].concat();
                etcd.client().put(super::etcd_key("ns", "d"), value);
            }
            Ok(())
        };
        let deleted = store.delete(&key("ns", "d"), DeleteOptions::default(), validate).await.unwrap().unwrap();
        assert_eq!(validated, 2);
        for (kind, name, expected) in [
            ("MODIFIED", "a", revision(&updated.object) - 1),
            ("MODIFIED", "a", revision(&updated.object)),
            ("MODIFIED", "b", revision(&kept.object)),
            ("MODIFIED", "c", revision(&dropped.object)),
            ("ADDED", "new", revision(&new.object)),
            ("MODIFIED", "new", revision(&unchanged.object)),
            ("MODIFIED", "d", revision(&deleted) - 1),
            ("DELETED", "d", revision(&deleted)),
        ] {
            assert_eq!(seen(&next(&mut watch).await), (kind, name.to_owned(), expected));
        }
        assert_all_taken(kine);
    });
}

#[test]
fn t54_leases_and_compactions() {
    on_kine(async |etcd, kine| {
        let client = client_at(kine).await;
        let manager = LeaseManager::new(client.clone(), LeaseOptions::default(), None);
        assert_eq!([manager.get_lease(15).await.unwrap(), manager.get_lease(1000).await.unwrap()], [15, 1050]);
        // Two that are not the same have the same name; what matters is the time.
        assert_eq!([manager.get_lease(1000).await.unwrap(), manager.get_lease(15).await.unwrap()], [1050, 15]);

        let (store, _) = store(&client);
        let first = revision(&store.create(&key("ns", "a"), &pod("ns", "a"), None).await.unwrap());
        let (state, compacted) = CompactorState::default().round(&client).await.unwrap();
        assert_eq!((state, compacted), (CompactorState { version: 1, revision: first + 1 }, None));
        let update = |mut pod: atrest::storage::JsonObject, _| {
            pod.fields_mut().insert("n".to_owned(), json!(1));
            Ok((pod, LeasePolicy::Upstream(None)))
        };
        store.guaranteed_update(&key("ns", "a"), false, None, None, update).await.unwrap();
        let (next_state, compacted) = state.round(&client).await.unwrap();
        assert_eq!((next_state.version, compacted), (2, Some(first + 1)));
        let (lost, known) = state.round(&client).await.unwrap();
        assert_eq!((lost.version, known), (2, Some(first + 1)));
        assert!(matches!(client.get_at(b"/registry/pods/ns/a", first).await, Err(Error::Compacted)));
        let stored = etcd.client().get("compact_rev_key_apiserver").unwrap();
        assert_eq!(stored.value_str().unwrap(), format!("2|{}", first + 1));
        let mut old = store
            .watch("/pods/", StoreWatchOptions { resource_version: "1".into(), ..StoreWatchOptions::default() })
            .unwrap();
        assert!(matches!(next(&mut old).await, WatchEvent::Error(status) if status.code == 410));
        assert_all_taken(kine);
        let shapes: Vec<_> = kine.transactions().into_iter().filter_map(|seen| seen.shape).collect();
        assert_eq!(shapes, [Shape::Create, Shape::Compact, Shape::Update, Shape::Compact, Shape::Compact]);
    });
}

/// kine says no revision when it takes a watch. We took that for revision 0, and a watch of what comes from now on, whose connection was
/// lost before the first event, began again with all of history.
#[test]
fn a_watch_from_now_on_does_not_begin_with_history_when_it_is_resumed() {
    on_kine(async |etcd, kine| {
        let old = etcd.client().put("/registry/pods/ns/old", "old");
        let cut = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let way = {
            let cut = cut.clone();
            Forwarder::new(kine.port(), move |_| !cut.load(std::sync::atomic::Ordering::SeqCst))
        };
        let client = client_of(&[way.endpoint(), kine.endpoint()], Duration::from_secs(30)).await;
        let mut watch = client.watch(KeyRange::prefix(b"/registry/pods/"), WatchOptions::default());
        let nothing = tokio::time::timeout(Duration::from_secs(2), watch.next()).await;
        assert!(nothing.is_err(), "{nothing:?}");
        assert_eq!(watch.next_revision(), old + 1);
        cut.store(true, std::sync::atomic::Ordering::SeqCst);
        let new = etcd.client().put("/registry/pods/ns/new", "new");
        match tokio::time::timeout(Duration::from_secs(20), watch.next()).await.unwrap().unwrap() {
            Watched::Events(events) => {
                let seen: Vec<_> =
                    events.iter().map(|event| (event.value.value.as_slice(), event.revision())).collect();
                assert_eq!(seen, [(&b"new"[..], new)]);
            }
            other => panic!("{other:?}"),
        }
        assert!(way.is_dead());
    });
}

const ARGS: [&str; 5] = ["-q", "-o", "json", "--encryption-provider-config", "config.yaml"];

#[test]
fn t54_a_rotation_needs_no_more_than_kine_has() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        let kine = Kine::in_front_of(&etcd);
        rotate(&etcd, &kine);
        assert_all_taken(&kine);
    }
}

/// Every connection began with a request that older releases of kine refuse: "what answers is not etcd: keysOnly is unsupported".
#[test]
fn t54_nor_more_than_kine_had() {
    let etcd = Etcd::start(Version::V3_5);
    let kine = Kine::older(&etcd);
    rotate(&etcd, &kine);
    assert_all_taken(&kine);
    block_on(async {
        let client = client_at(&kine).await;
        let expected = ["/registry/events/a/e-1000", "/registry/events/a/e-3600"].map(str::as_bytes);
        assert_eq!(client.keys(b"/registry/events/").await.unwrap(), expected);
        let mut source = Ranges::of_prefixes(&client, &[b"/registry/events/".to_vec()]).keys_only();
        let page = source.next_page().await.unwrap().unwrap();
        assert_eq!(page.values.iter().map(|value| value.key.as_slice()).collect::<Vec<_>>(), expected);
        assert!(source.next_page().await.unwrap().is_none());
    });
    assert_eq!(kine.refused(), ["keysOnly is unsupported", "keysOnly is unsupported"]);
}

fn rotate(etcd: &Etcd, kine: &Kine) {
    let (old, text) = (
        config("secrets,events", &[&format!("aescbc old {K1}")]),
        config("secrets,events", &[&format!("aesgcm new {K2}"), &format!("aescbc old {K1}")]),
    );
    let (before, after) = (transformers(&old), transformers(&text));
    let workshop = Workshop::new();
    workshop.file("config.yaml", &text);
    let plaintexts: Vec<_> =
        (0..100)
            .map(|i| (secret_key("a", &format!("s-{i:03}")), secret("a", &format!("s-{i:03}"), "x"), 0))
            .chain([1000, 3600].map(|ttl| {
                (format!("/registry/events/a/e-{ttl}"), object("Event", "a", &format!("e-{ttl}"), "x"), ttl)
            }))
            .collect();
    let value = |(key, plaintext, _): &(String, Vec<u8>, i64)| sealed(&before, key.as_bytes(), plaintext);
    block_on(async {
        let client = client_at(kine).await;
        for object in &plaintexts {
            client.optimistic_create(object.0.as_bytes(), value(object), object.2).await.unwrap();
        }
    });
    let run = |command: &str, more: &[&str], code: i32| {
        workshop.run_at(&kine.endpoint(), command, ARGS.iter().chain(more)).json(code)
    };
    assert_eq!(workshop.run_at(&kine.endpoint(), "scan", ["-q", "-o", "json"]).json(0)["values"], 102);
    assert_eq!(run("verify", &[], 0)["classes"], json!({"stale": 102}));
    assert_eq!(run("rekey", &[], 0)["to_rewrite"], 102);
    assert_eq!(run("verify", &["--expect", "current"], 1)["classes"], json!({"stale": 102}));
    let report = run("rekey", &["--yes", "--journal", "journal"], 0);
    assert_eq!((&report["rewritten"], &report["still_stale"], &report["failed"]), (&102.into(), &0.into(), &json!([])));
    assert_eq!(journal(&workshop.path().join("journal")).len(), 102);
    let again = run("rekey", &["--yes", "--journal", "journal"], 0);
    assert_eq!((&again["rewritten"], &again["already_current"]), (&0.into(), &102.into()));
    let removable = run("verify", &["--expect", "current", "--removable", "aescbc/old"], 0);
    assert_eq!(
        (&removable["classes"], &removable["removable"]["removable"]),
        (&json!({"current": 102}), &"yes".into())
    );
    block_on(async {
        let client = client_at(kine).await;
        for (key, plaintext, ttl) in &plaintexts {
            let stored = client.get(key.as_bytes()).await.unwrap().unwrap();
            assert_eq!(opened(&after, &stored.key, &stored.value), (plaintext.clone(), false));
            assert_eq!(stored.lease, *ttl, "{key}");
        }
    });
    for (key, ..) in &plaintexts {
        assert_eq!(etcd.client().get(key.clone()).unwrap().version(), 2);
    }
    let leased = etcd.client().get("/registry/events/a/e-3600").unwrap();
    assert!((3500..=3600).contains(&etcd.client().lease_ttl(leased.lease())));
}
