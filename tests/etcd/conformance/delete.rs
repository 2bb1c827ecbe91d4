use atrest::storage::{DeleteOptions, JsonObject, Preconditions, StorageError, StoredObject as _, Verb};

use super::{Own, etcd_key, key, on_both, pod, revision};

fn cached(object: &JsonObject) -> DeleteOptions<JsonObject> {
    DeleteOptions { cached: Some(object.clone()), ..DeleteOptions::default() }
}

fn text(pod: &JsonObject) -> &str {
    pod.fields().get("spec").and_then(|spec| spec["text"].as_str()).unwrap_or("")
}

#[test]
fn t25_run_test_unconditional_delete() {
    on_both(async |fixture| {
        let created = fixture.create("ns", "foo").await;
        let uid = |uid: &str| Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() };
        let wrong = DeleteOptions { preconditions: Some(uid("other")), ..DeleteOptions::default() };
        let refused = fixture.store.delete(&key("ns", "foo"), wrong, |_| Ok(())).await.unwrap_err();
        assert_eq!((refused.is_conflict(), refused.status(Verb::Delete).code), (true, 409));
        let right = DeleteOptions { preconditions: Some(uid("uid-ns-foo")), ..DeleteOptions::default() };
        let mut deleted = fixture.store.delete(&key("ns", "foo"), right, |_| Ok(())).await.unwrap().unwrap();
        assert!(revision(&deleted) > revision(&created));
        assert_eq!(revision(&deleted), fixture.etcd.client().revision());
        deleted.set_resource_version(created.resource_version().to_owned());
        assert_eq!(deleted, created);
        let missing = fixture.store.delete(&key("ns", "foo"), DeleteOptions::default(), |_| Ok(())).await.unwrap_err();
        assert!(missing.is_not_found());
    });
}

#[test]
fn t26_run_test_delete_with_suggestion_and_conflict() {
    on_both(async |fixture| {
        let old = fixture.create("ns", "foo").await;
        fixture.set("ns", "foo", "new").await;
        let deleted = fixture.store.delete(&key("ns", "foo"), cached(&old), |_| Ok(())).await.unwrap().unwrap();
        assert_eq!(text(&deleted), "new");
        let gone = fixture.store.delete(&key("ns", "foo"), cached(&old), |_| Ok(())).await.unwrap_err();
        assert!(gone.is_not_found());
    });
}

#[test]
fn t27_run_test_delete_with_conflict() {
    on_both(async |fixture| {
        fixture.create("ns", "foo").await;
        let mut seen = Vec::new();
        let validate = |pod: &JsonObject| {
            seen.push(text(pod).to_owned());
            if seen.len() == 1 {
                let changed = serde_json::json!({"metadata": {"name": "foo"}, "spec": {"text": "meanwhile"}});
                let value = [super::PREFIX, changed.to_string().as_bytes()].concat();
                fixture.etcd.client().put(etcd_key("ns", "foo"), value);
            }
            Ok(())
        };
        let deleted =
            fixture.store.delete(&key("ns", "foo"), DeleteOptions::default(), validate).await.unwrap().unwrap();
        assert_eq!((seen, text(&deleted)), (vec![String::new(), "meanwhile".to_owned()], "meanwhile"));
    });
}

#[test]
fn t28_run_test_validate_deletion_with_suggestion() {
    on_both(async |fixture| {
        let old = fixture.create("ns", "foo").await;
        let live = fixture.set("ns", "foo", "live").await.object;
        let only = |wanted: &'static str, calls: &mut u64| {
            *calls += 1;
            move |pod: &JsonObject| if text(pod) == wanted { Ok(()) } else { Err(Own("not this one").into()) }
        };
        let mut calls = 0;
        // Only the suggestion is valid: what is stored decides.
        let refused = fixture.store.delete(&key("ns", "foo"), cached(&old), only("", &mut calls)).await.unwrap_err();
        assert!(matches!(refused, StorageError::Rejected { .. }), "{refused}");
        // Nothing is read when the suggestion is what is stored and is not valid.
        let before = fixture.calls("Range");
        let refused = fixture.store.delete(&key("ns", "foo"), cached(&live), only("", &mut calls)).await.unwrap_err();
        assert_eq!((refused.to_string().as_str(), fixture.calls("Range") - before), ("not this one", 1));
        // Only what is stored is valid.
        let deleted = fixture.store.delete(&key("ns", "foo"), cached(&old), only("live", &mut calls)).await.unwrap();
        assert_eq!(text(&deleted.unwrap()), "live");
    });
}

/// KEP-3926, as 1.37 has it: only what cannot be read is deleted so, whatever it has become in between.
#[test]
fn what_is_expected_to_be_unreadable_and_is_readable_is_not_deleted() {
    on_both(async |fixture| {
        let unsafe_deletion = || DeleteOptions { expect_unreadable: true, ..DeleteOptions::default() };
        let created = fixture.create("ns", "foo").await;
        let refused = fixture.store.delete(&key("ns", "foo"), unsafe_deletion(), |_| Ok(())).await.unwrap_err();
        assert!(refused.is_conflict(), "{refused}");
        assert!(
            refused
                .to_string()
                .ends_with("unsafe deletion is not allowed because the object is decodable from storage")
        );
        fixture.etcd.client().put(etcd_key("ns", "foo"), "nobody can read this");
        let refused = fixture.store.delete(&key("ns", "foo"), cached(&created), |_| Ok(())).await.unwrap_err();
        assert_eq!(refused.status(Verb::Delete).reason, "InternalError");
        let deleted =
            fixture.store.delete(&key("ns", "foo"), unsafe_deletion(), |_| panic!("nothing to validate")).await;
        assert_eq!(deleted.unwrap(), None);
        assert!(fixture.stored("ns", "foo").is_none());
        let missing = fixture.store.delete(&key("ns", "foo"), unsafe_deletion(), |_| Ok(())).await.unwrap_err();
        assert!(missing.is_not_found());
        assert_eq!(pod("ns", "foo").uid(), "uid-ns-foo");
    });
}
