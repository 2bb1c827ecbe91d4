use atrest::resource::{KeyLayout, Location, known_resources};
use atrest::storage::{
    DeleteOptions, GetOptions, JsonCodec, ListOptions, StorageError, Store, StoreWatchOptions, path_prefix, prepare_key,
};

use super::{TestTransformer, on_both, options, pod, unchanged};

#[test]
fn t01_test_prefix() {
    for (configured, effective) in [
        ("custom/prefix", "/custom/prefix/"),
        ("/custom//prefix//", "/custom/prefix/"),
        ("/registry", "/registry/"),
        ("", "/"),
    ] {
        assert_eq!(path_prefix(configured), effective);
    }
    assert_eq!(path_prefix("/a/./b/../c"), "/a/c/");
}

#[test]
fn t02_test_prepare_key() {
    let prepare = |key: &str, recursive| prepare_key("/first/second/", "/pods/", key, recursive);
    for good in ["/pods/foo", "/pods/foo/bar..baz/", "/pods/foo/bar..", "/pods/"] {
        let key = prepare(good, false).unwrap();
        assert!(key.starts_with("/first/second/") && key.ends_with(good), "{key}");
        assert!(prepare(good, true).unwrap().ends_with('/'));
    }
    assert_eq!(prepare("/pods", true).unwrap(), "/first/second/pods/");
    for bad in ["/pods", "..", ".", "/..", "/pods/../x", "/pods/.", "/pods/./bar", "../foo", "./foo", "/pods/.."] {
        assert!(matches!(prepare(bad, false), Err(StorageError::InvalidKey { .. })), "{bad}");
    }
}

#[test]
fn t03_test_invalid_keys() {
    on_both(async |fixture| {
        let key = "/foo/bar/../baz";
        let store = &fixture.store;
        let mut pod = pod("ns", "a");
        // What else is wrong is not looked at.
        atrest::storage::StoredObject::set_resource_version(&mut pod, "5".to_owned());
        let list = ListOptions { continue_token: "!".to_owned(), ..ListOptions::default() };
        let errors = [
            store.create(key, &pod, None).await.map(drop),
            store.get(key, &GetOptions { resource_version: "x".to_owned(), ..GetOptions::default() }).await.map(drop),
            store.get_list(key, &list).await.map(drop),
            store.guaranteed_update(key, false, None, None, unchanged()).await.map(drop),
            store.delete(key, DeleteOptions::default(), |_| Ok(())).await.map(drop),
            store
                .watch(key, StoreWatchOptions { resource_version: "x".to_owned(), ..StoreWatchOptions::default() })
                .map(drop),
        ];
        for error in errors {
            assert_eq!(error.unwrap_err().to_string(), r#"invalid key: "/foo/bar/../baz""#);
        }
        assert_eq!(fixture.calls("Range") + fixture.calls("Txn"), 0);
    });
}

#[test]
fn t04_run_test_key_schema() {
    on_both(async |fixture| {
        let store = &fixture.store;
        for (key, expected) in [
            ("", r#"empty key: """#),
            ("/", r#"empty key: "/""#),
            ("pods", r#"invalid key: "pods" lacks resource prefix: "/pods/""#),
            ("/pods.apps", r#"invalid key: "/pods.apps" lacks resource prefix: "/pods/""#),
            ("/foo/", r#"invalid key: "/foo/" lacks resource prefix: "/pods/""#),
        ] {
            let error = store.get(key, &GetOptions::default()).await.unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert_eq!(error.status(atrest::storage::Verb::Get).code, 500);
        }
        for recursive in [true, false] {
            let list = store.get_list("/pods", &ListOptions { recursive, ..ListOptions::default() }).await;
            let watch = store.watch("/pods", StoreWatchOptions { recursive, ..StoreWatchOptions::default() });
            assert_eq!((list.is_ok(), watch.is_ok()), (recursive, recursive));
        }
        for bad in ["", "/", "pods/"] {
            let mut options = options();
            bad.clone_into(&mut options.resource_prefix);
            assert!(Store::new(&fixture.client, JsonCodec, TestTransformer::default(), options).is_err(), "{bad}");
        }
    });
}

#[test]
fn t05_keys_are_mapped_back_to_their_resources() {
    let layout = KeyLayout::default();
    let resource = |key: &str| match layout.locate(key.as_bytes()) {
        Location::Object { resource, .. } => resource.to_string(),
        Location::NonRest { .. } => "no REST resource".to_owned(),
        Location::NonObject(_) => "no object".to_owned(),
        _ => "unknown".to_owned(),
    };
    let mut rows = 0;
    for row in known_resources() {
        let group_resource = row.resource.to_group_resource();
        let Ok(prefixes) =
            (atrest::resource::Selection { resources: vec![group_resource], ..Default::default() }).prefixes()
        else {
            continue;
        };
        for prefix in prefixes.iter().filter(|prefix| prefix.starts_with(b"/registry/")) {
            let directory = String::from_utf8(prefix.clone()).unwrap();
            let found = [format!("{directory}name"), format!("{directory}ns/name")].map(|key| resource(&key));
            let stored = row.resource.storage_location().to_string();
            assert!(found.contains(&stored), "{directory}: {found:?}, not {stored}");
            rows += 1;
        }
    }
    assert!(rows >= 68, "{rows}");
    for (key, expected) in [
        ("compact_rev_key", "no object"),
        ("/registry/health", "no object"),
        ("/registry/masterleases/2001:db8::1", "no REST resource"),
        ("/registry/ranges/servicenodeports", "no REST resource"),
        ("/registry/snapshot.storage.k8s.io/volumesnapshots/ns/n", "volumesnapshots.snapshot.storage.k8s.io"),
        ("/openshift.io/oauth/accesstokens/t", "oauthaccesstokens.oauth.openshift.io"),
        ("/registry/nobody/knows/this", "unknown"),
    ] {
        assert_eq!(resource(key), expected, "{key}");
    }
}

#[test]
fn t06_run_test_get_list_recursive_prefix() {
    on_both(async |fixture| {
        fixture.create("ns", "foo").await;
        fixture.create("ns", "foobar").await;
        fixture.create("nsx", "other").await;
        let list = async |key: &str, recursive| {
            let options = ListOptions { recursive, ..ListOptions::default() };
            super::names(&fixture.list(key, options).await.unwrap().items)
        };
        assert_eq!(list("/pods/ns/foo", true).await, Vec::<String>::new());
        assert_eq!(list("/pods/ns/foo", false).await, ["foo"]);
        assert_eq!(list("/pods/ns", true).await, ["foo", "foobar"]);
        assert_eq!(list("/pods/ns", false).await, Vec::<String>::new());
    });
}
