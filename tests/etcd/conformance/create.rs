use atrest::storage::{GetOptions, StorageError, StoreWatchOptions, StoredObject as _, Verb};
use serde_json::json;

use super::{PREFIX, key, next, on_both, pod, revision, seen};

#[test]
fn t07_run_test_create() {
    on_both(async |fixture| {
        let mut set = pod("ns", "foo");
        set.set_resource_version("1".to_owned());
        let refused = fixture.store.create(&key("ns", "foo"), &set, None).await.unwrap_err();
        assert_eq!(refused.to_string(), "resourceVersion should not be set on objects to be created");
        assert!(fixture.stored("ns", "foo").is_none());
        let mut linked = pod("ns", "foo");
        linked.fields_mut()["metadata"]["selfLink"] = json!("/api/v1/x");
        let out = fixture.store.create(&key("ns", "foo"), &linked, None).await.unwrap();
        let stored = fixture.stored("ns", "foo").unwrap();
        assert_eq!(revision(&out), stored.mod_revision());
        let json = stored.value().strip_prefix(PREFIX).unwrap();
        assert_eq!(serde_json::from_slice::<serde_json::Value>(json).unwrap(), json!(pod("ns", "foo").fields()));
    });
}

#[test]
fn t08_run_test_create_with_key_exist() {
    on_both(async |fixture| {
        fixture.create("ns", "foo").await;
        let before = fixture.calls("Range");
        let refused = fixture.store.create(&key("ns", "foo"), &pod("ns", "foo"), None).await.unwrap_err();
        assert!(matches!(refused, StorageError::KeyExists { .. }), "{refused}");
        assert_eq!(
            refused.to_string(),
            "StorageError: key exists, Code: 2, Key: /registry/pods/ns/foo, ResourceVersion: 0, AdditionalErrorMsg: "
        );
        let (create, update) = (refused.status(Verb::Create), refused.status(Verb::Update));
        assert_eq!(
            [(create.code, create.reason), (update.code, update.reason)],
            [(409, "AlreadyExists"), (409, "Conflict")]
        );
        assert_eq!(fixture.calls("Range"), before);
    });
}

#[test]
fn t09_run_test_create_with_ttl() {
    on_both(async |fixture| {
        let created = fixture.store.create(&key("ns", "foo"), &pod("ns", "foo"), Some(1)).await.unwrap();
        let from = StoreWatchOptions { resource_version: created.resource_version().to_owned(), ..Default::default() };
        let mut watch = fixture.watch(from);
        let (kind, name, deleted) = seen(&next(&mut watch).await);
        assert_eq!((kind, name.as_str()), ("DELETED", "foo"));
        assert!(deleted > revision(&created));
        assert!(fixture.stored("ns", "foo").is_none());
    });
}

#[test]
fn t10_run_test_get() {
    on_both(async |fixture| {
        let first = fixture.create("ns", "foo").await;
        let updated = fixture.set("ns", "foo", "x").await.object;
        let get = async |name: &str, resource_version: &str, ignore_not_found| {
            let options = GetOptions { resource_version: resource_version.to_owned(), ignore_not_found };
            fixture.store.get(&key("ns", name), &options).await
        };
        for version in ["", "0", first.resource_version(), updated.resource_version()] {
            assert_eq!(get("foo", version, false).await.unwrap(), updated, "{version}");
        }
        let missing = get("bar", "", false).await.unwrap_err();
        assert_eq!((missing.is_not_found(), missing.status(Verb::Get).code), (true, 404));
        let empty = get("bar", "", true).await.unwrap();
        assert!(empty.fields().is_empty());
        let invalid = get("foo", "abc", false).await.unwrap_err().status(Verb::Get);
        assert_eq!((invalid.code, invalid.reason), (400, "BadRequest"));
        assert!(invalid.message.contains("invalid resource version"), "{}", invalid.message);
        let large = get("foo", &i64::MAX.to_string(), false).await.unwrap_err().status(Verb::Get);
        assert_eq!((large.code, large.reason, large.causes[0].kind), (504, "Timeout", "ResourceVersionTooLarge"));
        assert!(large.message.starts_with("Timeout: Too large resource version: 9223372036854775807, current: "));
        assert!(!String::from_utf8_lossy(fixture.stored("ns", "foo").unwrap().value()).contains("resourceVersion"));
    });
}
