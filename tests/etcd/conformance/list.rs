use atrest::storage::{
    Compatibility, Corrupt, DeleteOptions, GetOptions, JsonObject, List, ListOptions, Predicate, ResourceVersionMatch,
    StorageError, StoredObject as _, Verb, decode_continue, encode_continue,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{Fixture, PREFIX, etcd_key, key, name, names, not_named, on_both, on_both_with, pod, unchanged};

fn limited(limit: i64) -> ListOptions<JsonObject> {
    ListOptions { limit, ..ListOptions::default() }
}

fn at(resource_version: &str) -> ListOptions<JsonObject> {
    ListOptions { resource_version: resource_version.to_owned(), ..ListOptions::default() }
}

fn exact(resource_version: i64) -> ListOptions<JsonObject> {
    let resource_version_match = Some(ResourceVersionMatch::Exact);
    ListOptions { resource_version_match, ..at(&resource_version.to_string()) }
}

fn go_on(list: &List<JsonObject>, limit: i64) -> ListOptions<JsonObject> {
    ListOptions { continue_token: list.continue_token.clone(), ..limited(limit) }
}

async fn refused(fixture: &Fixture, options: ListOptions<JsonObject>) -> atrest::storage::Status {
    fixture.list("/pods", options).await.unwrap_err().status(Verb::List)
}

#[test]
fn t29_run_test_list_continuation() {
    on_both(async |fixture| {
        for name in ["a", "b", "c"] {
            fixture.create("ns", name).await;
        }
        let before = fixture.calls("Range");
        let first = fixture.list("/pods", limited(1)).await.unwrap();
        assert_eq!((names(&first.items), first.remaining_item_count), (vec!["a".to_owned()], Some(2)));
        assert_eq!(fixture.calls("Range") - before, 1);
        // What comes later is not in the list.
        fixture.create("ns", "d").await;
        let before = fixture.calls("Range");
        let rest = fixture.list("/pods", go_on(&first, 0)).await.unwrap();
        assert_eq!(
            (names(&rest.items), rest.resource_version),
            (vec!["b".to_owned(), "c".to_owned()], first.resource_version)
        );
        assert_eq!((rest.continue_token.as_str(), rest.remaining_item_count), ("", None));
        assert_eq!(fixture.calls("Range") - before, 1);
        let second = fixture.list("/pods", go_on(&first, 1)).await.unwrap();
        assert_eq!((names(&second.items), second.remaining_item_count), (vec!["b".to_owned()], Some(1)));
        let (start, revision) = decode_continue(&second.continue_token, "/registry/pods/").unwrap();
        assert_eq!((start.as_str(), revision), ("/registry/pods/ns/b\0", first.resource_version));
        let third = fixture.list("/pods", go_on(&second, 1)).await.unwrap();
        assert_eq!((names(&third.items), third.continue_token.as_str()), (vec!["c".to_owned()], ""));
    });
}

#[test]
fn t30_run_test_list_continuation_with_filter() {
    on_both(async |fixture| {
        for (namespace, name) in [("1", "foo"), ("2", "bar"), ("3", "foo"), ("4", "foo")] {
            fixture.create(namespace, name).await;
        }
        let place =
            |pod: &JsonObject| format!("{}/{}", pod.fields()["metadata"]["namespace"].as_str().unwrap(), name(pod));
        let options = ListOptions { predicate: not_named("bar"), ..limited(2) };
        let before = fixture.calls("Range");
        fixture.transformer.take_opened();
        let first = fixture.list("/pods", options.clone()).await.unwrap();
        assert_eq!(first.items.iter().map(place).collect::<Vec<_>>(), ["1/foo", "3/foo"]);
        assert_eq!((fixture.calls("Range") - before, fixture.transformer.take_opened()), (2, 3));
        assert!(!first.continue_token.is_empty() && first.remaining_item_count.is_none());
        let before = fixture.calls("Range");
        let options = ListOptions { continue_token: first.continue_token, ..options };
        let second = fixture.list("/pods", options).await.unwrap();
        assert_eq!(second.items.iter().map(place).collect::<Vec<_>>(), ["4/foo"]);
        assert_eq!((second.continue_token.as_str(), fixture.calls("Range") - before), ("", 1));
    });
}

#[test]
fn t31_run_test_list_rare_object() {
    on_both(async |fixture| {
        let values = (0..1000).map(|number| {
            let name = format!("pod-{number:04}");
            let value = serde_json::to_vec(pod("ns", &name).fields()).unwrap();
            (etcd_key("ns", &name).into_bytes(), [PREFIX, &value].concat())
        });
        fixture.put_all(values).await;
        let before = fixture.calls("Range");
        let options = ListOptions { predicate: super::named(&["pod-0999"]), ..limited(1) };
        let list = fixture.list("/pods", options).await.unwrap();
        assert_eq!((names(&list.items), list.continue_token.as_str()), (vec!["pod-0999".to_owned()], ""));
        // 1 + 2 + 4 + … + 512 are more than 1000.
        assert_eq!(fixture.calls("Range") - before, 10);
    });
}

#[test]
fn t32_run_test_list_inconsistent_continuation() {
    on_both(async |fixture| {
        for name in ["a", "b", "c"] {
            fixture.create("ns", name).await;
        }
        let first = fixture.list("/pods", limited(1)).await.unwrap();
        fixture.set("ns", "b", "new").await;
        let compacted = fixture.etcd.client().revision();
        fixture.etcd.client().compact(compacted);
        let expired = refused(&fixture, go_on(&first, 0)).await;
        assert_eq!((expired.code, expired.reason), (410, "Expired"));
        assert!(
            expired
                .message
                .starts_with("The provided continue parameter is too old to display a consistent list result.")
        );
        let token = expired.continue_token.unwrap();
        assert_eq!(decode_continue(&token, "/registry/pods/").unwrap(), ("/registry/pods/ns/a\0".to_owned(), -1));
        let second = fixture.list("/pods", ListOptions { continue_token: token, ..limited(1) }).await.unwrap();
        assert_eq!(names(&second.items), ["b"]);
        assert!(second.resource_version >= compacted);
        let (_, revision) = decode_continue(&second.continue_token, "/registry/pods/").unwrap();
        assert_eq!(revision, second.resource_version);
        assert_eq!(names(&fixture.list("/pods", go_on(&second, 0)).await.unwrap().items), ["c"]);
    });
}

#[test]
fn t33_run_test_compact_revision() {
    on_both(async |fixture| {
        fixture.create("ns", "a").await;
        fixture.set("ns", "a", "1").await;
        let compacted = fixture.etcd.client().revision();
        fixture.set("ns", "a", "2").await;
        fixture.etcd.client().compact(compacted);
        let expired = refused(&fixture, exact(compacted - 1)).await;
        assert_eq!(
            (expired.code, expired.message.as_str()),
            (410, "The resourceVersion for the provided list is too old.")
        );
        assert_eq!(expired.continue_token, None);
        let list = fixture.list("/pods", exact(compacted)).await.unwrap();
        assert_eq!(
            (list.resource_version, &list.items[0].fields()["spec"]["text"]),
            (compacted, &serde_json::json!("1"))
        );
    });
}

#[test]
fn t34_run_test_list() {
    on_both(async |fixture| {
        fixture.create("ns", "a").await;
        let first = fixture.create("ns", "b").await;
        let revision = super::revision(&first);
        let latest = super::revision(&fixture.create("ns", "c").await);
        let list = async |options| fixture.list("/pods", options).await.unwrap();
        assert_eq!(refused(&fixture, at("invalid")).await.code, 400);
        let page = list(limited(1)).await;
        let both = refused(&fixture, ListOptions { resource_version: "1".to_owned(), ..go_on(&page, 1) }).await;
        let message = "specifying resource version is not allowed when using continue";
        assert_eq!((both.code, both.message.as_str()), (400, message));
        let zero = list(ListOptions { resource_version: "0".to_owned(), ..go_on(&page, 1) }).await;
        assert_eq!(names(&zero.items), ["b"]);
        let future = refused(&fixture, exact(latest + 1000)).await;
        assert_eq!((future.code, future.causes[0].kind), (504, "ResourceVersionTooLarge"));
        assert_eq!(refused(&fixture, at(&(latest + 1000).to_string())).await.code, 504);
        let token = |rv: i64, start: &str| {
            let json = format!(r#"{{"v":"meta.k8s.io/v1","rv":{rv},"start":"{start}"}}"#);
            ListOptions { continue_token: URL_SAFE_NO_PAD.encode(json), ..ListOptions::default() }
        };
        for bad in [token(0, "ns/a"), token(1, ""), token(1, "../secrets/ns/a"), token(1, "ns/../../x")] {
            let bad = refused(&fixture, bad).await;
            assert_eq!(bad.code, 400);
            assert!(bad.message.starts_with("invalid continue token: continue key is not valid: "), "{}", bad.message);
        }
        // With a limit, a version alone has always been meant exactly.
        let exactly = list(ListOptions { resource_version: revision.to_string(), ..limited(10) }).await;
        assert_eq!((names(&exactly.items), exactly.resource_version), (vec!["a".to_owned(), "b".to_owned()], revision));
        let newer = list(at(&revision.to_string())).await;
        assert_eq!((names(&newer.items).len(), newer.resource_version), (3, latest));
        let not_older = Some(ResourceVersionMatch::NotOlderThan);
        let newer = ListOptions { resource_version_match: not_older, ..at(&revision.to_string()) };
        assert_eq!(list(ListOptions { limit: 10, ..newer }).await.items.len(), 3);
        assert!(fixture.store.get_list("/pods/other/", &ListOptions::default()).await.unwrap().items.is_empty());
        encode_continue(b"/registry/secrets/a", "/registry/pods/", 1).unwrap_err();
    });
}

#[test]
fn t35_run_test_list_resource_version_match() {
    on_both(async |fixture| {
        for number in 0..5 {
            fixture.create("ns", &format!("pod-{number}")).await;
        }
        let revision = fixture.etcd.client().revision();
        let (client, writes) = (fixture.etcd.client(), std::sync::atomic::AtomicU64::new(0));
        fixture.transformer.on_open(move || {
            let number = writes.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let value = serde_json::to_vec(pod("ns", &format!("later-{number}")).fields()).unwrap();
            client.put(etcd_key("ns", &format!("later-{number}")), [PREFIX, &value].concat());
        });
        let first = fixture.list("/pods", exact(revision)).await.unwrap();
        let second = fixture.list("/pods", exact(revision)).await.unwrap();
        assert_eq!((first.items.len(), &first.items), (5, &second.items));
        // The pages of one list are of one revision too.
        let paged = ListOptions { predicate: Predicate::new(|pod| name(pod) != "pod-0"), ..limited(4) };
        let paged = fixture.list("/pods", paged).await.unwrap();
        assert_eq!(names(&paged.items), ["later-0", "later-1", "later-2", "later-3"]);
    });
}

#[test]
fn t36_run_test_transformation_failure() {
    on_both(async |fixture| {
        let good = fixture.create("ns", "good").await;
        let foreign = serde_json::to_vec(pod("ns", "bad").fields()).unwrap();
        let revision = fixture.etcd.client().put(etcd_key("ns", "bad"), [b"other!", &foreign[..]].concat());
        let store = &fixture.store;
        let internal = |error: StorageError, verb| {
            let status = error.status(verb);
            assert_eq!((status.code, status.reason), (500, "InternalError"), "{error}");
            status.message
        };
        let list = internal(fixture.list("/pods", ListOptions::default()).await.unwrap_err(), Verb::List);
        let unable =
            r#"Internal error occurred: unable to transform key "/registry/pods/ns/bad": no matching prefix found"#;
        assert_eq!(list, unable);
        let get = internal(store.get("/pods/ns/bad", &GetOptions::default()).await.unwrap_err(), Verb::Get);
        assert_eq!(get, "Internal error occurred: no matching prefix found");
        let update = store.guaranteed_update("/pods/ns/bad", false, None, None, unchanged()).await;
        internal(update.unwrap_err(), Verb::Update);
        let mut cached = pod("ns", "bad");
        cached.set_resource_version(revision.to_string());
        let update = store.guaranteed_update("/pods/ns/bad", false, None, Some(cached), unchanged()).await;
        internal(update.unwrap_err(), Verb::Update);
        internal(store.delete("/pods/ns/bad", DeleteOptions::default(), |_| Ok(())).await.unwrap_err(), Verb::Delete);
        assert_eq!(store.get("/pods/ns/good", &GetOptions::default()).await.unwrap(), good);
        assert_eq!(fixture.stored("ns", "bad").unwrap().mod_revision(), revision);
    });
}

async fn with_bad_ones(fixture: &Fixture, good: usize, bad: usize) {
    let values = (0..good + bad).map(|number| {
        let name = format!("pod-{number:04}");
        let value = serde_json::to_vec(pod("ns", &name).fields()).unwrap();
        let prefix = if number < bad { b"bad!!" } else { PREFIX };
        (etcd_key("ns", &name).into_bytes(), [prefix, &value].concat())
    });
    fixture.put_all(values).await;
}

#[test]
fn t37_corrupt_objects_are_collected() {
    let with_gate = |compatibility| {
        move |options: &mut atrest::storage::StoreOptions| {
            options.allow_unsafe_malformed_object_deletion = true;
            options.compatibility = compatibility;
        }
    };
    for (bad, compatibility, causes, too_many) in [
        (3, Compatibility::V1_36, 3, false),
        (150, Compatibility::V1_36, 101, true),
        (100, Compatibility::V1_36, 100, false),
        (100, Compatibility::V1_37, 101, true),
    ] {
        on_both_with(with_gate(compatibility), async |fixture| {
            with_bad_ones(&fixture, 2, bad).await;
            let status = refused(&fixture, ListOptions::default()).await;
            assert_eq!((status.code, status.reason, status.causes.len()), (500, "StorageReadError", causes));
            assert_eq!(
                (status.causes[0].kind, status.causes[0].field.as_str()),
                ("UnexpectedServerResponse", "/registry/pods/ns/pod-0000")
            );
            assert!(status.causes[0].message.contains("data from the storage is not transformable revision=0: "));
            assert_eq!(status.causes.last().unwrap().kind == "FieldValueTooMany", too_many);
            // A scanner is told all of them, and gets the others.
            let all = ListOptions { corrupt: Corrupt::Collect, ..ListOptions::default() };
            let all = fixture.list("/pods", all).await.unwrap();
            assert_eq!((all.items.len(), all.corrupt.len()), (2, bad));
            assert_eq!(all.corrupt[0].key, b"/registry/pods/ns/pod-0000");
            let get = fixture.store.get(&key("ns", "pod-0000"), &GetOptions::default()).await.unwrap_err();
            assert!(get.is_corrupt());
            assert!(
                get.to_string().starts_with("StorageError: corrupt object, Code: 7, Key: /registry/pods/ns/pod-0000, ")
            );
            assert_eq!(get.status(Verb::Get).reason, "InternalError");
        });
    }
}

#[test]
fn t38_test_linearized_read_revision_invariant() {
    on_both(async |fixture| {
        fixture.create("ns", "a").await;
        let list = async || fixture.list("/pods", ListOptions::default()).await.unwrap().resource_version;
        let before = list().await;
        for _ in 0..5 {
            let current = fixture.store.get_current_resource_version().await.unwrap();
            assert_eq!(i64::try_from(current), Ok(before));
        }
        assert_eq!(list().await, before);
    });
}

/// A list that takes several answers, because one would be larger than is taken, was read at the latest revision from the second on.
#[test]
fn a_list_in_several_answers_is_of_one_revision() {
    on_both(async |fixture| {
        let large = |name: &str, filling: &str| {
            let mut pod = pod("ns", name);
            pod.fields_mut().insert("data".to_owned(), filling.repeat(1_000_000).into());
            pod
        };
        for number in 0..40 {
            let name = format!("pod-{number:02}");
            fixture.store.create(&key("ns", &name), &large(&name, "a"), None).await.unwrap();
        }
        let revision = fixture.etcd.client().revision();
        let change = |_: JsonObject, _: atrest::storage::ResponseMeta| {
            Ok((large("pod-39", "b"), atrest::storage::LeasePolicy::Upstream(None)))
        };
        fixture.store.guaranteed_update("/pods/ns/pod-39", false, None, None, change).await.unwrap();
        let list = fixture.list("/pods", exact(revision)).await.unwrap();
        assert_eq!((list.items.len(), list.resource_version), (40, revision));
        assert_eq!(list.items[39].fields()["data"].as_str().unwrap().get(..1), Some("a"));
    });
}

#[test]
fn what_remains_is_counted_also_when_some_cannot_be_read() {
    on_both(async |fixture| {
        with_bad_ones(&fixture, 11, 5).await;
        let options = ListOptions { corrupt: Corrupt::Collect, ..limited(10) };
        let first = fixture.list("/pods", options).await.unwrap();
        assert_eq!((first.items.len(), first.corrupt.len(), first.remaining_item_count), (10, 5, Some(1)));
    });
}

/// So many objects are opened on all cores, and are in order all the same.
#[test]
fn a_list_of_fifty_thousand_is_in_the_order_of_its_keys() {
    crate::fixture::block_on(async {
        let etcd = crate::support::Etcd::builder(crate::support::Version::V3_5).arg("--unsafe-no-fsync").start();
        let fixture = Fixture::new(etcd, |_| {}).await;
        let values = (0..50_001).map(|number| {
            let name = format!("pod-{number:05}");
            let value = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
            (etcd_key("ns", &name).into_bytes(), [PREFIX, value.as_bytes()].concat())
        });
        fixture.put_all(values).await;
        let before = fixture.calls("Range");
        let list = fixture.list("/pods", ListOptions::default()).await.unwrap();
        assert_eq!((list.items.len(), fixture.calls("Range") - before), (50_001, 1));
        assert!(list.items.iter().enumerate().all(|(number, pod)| name(pod) == format!("pod-{number:05}")));
        // One that cannot be read fails all of it.
        fixture.etcd.client().put(etcd_key("ns", "pod-40000"), "nobody can read this");
        assert_eq!(refused(&fixture, ListOptions::default()).await.reason, "InternalError");
    });
}
