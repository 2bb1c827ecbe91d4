//! Upstream's metrics, by their names, labels and buckets.

use std::collections::BTreeSet;

use atrest::resource::GroupResource;
use atrest::storage::{
    DeleteOptions, Encryption, GetOptions, JsonCodec, ListOptions, Store, StoreOptions, StoreWatchOptions,
};

use crate::conformance::{etcd_key, key, name, next, not_named, on_both, pod, unchanged};
use crate::fixture::{K1, K2, K3, config, sealed, transformers};

/// The upper bounds of a histogram, as they are printed.
fn buckets(text: &str, name: &str) -> Vec<String> {
    let mut all = Vec::new();
    for line in text.lines().filter(|line| line.starts_with(&format!("{name}_bucket{{"))) {
        let bound = line.split("le=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        if !all.contains(&bound) {
            all.push(bound);
        }
    }
    all
}

#[test]
fn requests_are_counted_by_upstream_s_names() {
    on_both(async |fixture| {
        let store = &fixture.store;
        fixture.create("ns", "a").await;
        fixture.create("ns", "b").await;
        store.create(&key("ns", "a"), &pod("ns", "a"), None).await.unwrap_err();
        store.get(&key("ns", "a"), &GetOptions::default()).await.unwrap();
        store.get(&key("ns", "x"), &GetOptions::default()).await.unwrap_err();
        fixture.set("ns", "a", "1").await;
        store.guaranteed_update(&key("ns", "a"), false, None, None, unchanged()).await.unwrap();
        fixture.list("/pods", ListOptions { predicate: not_named("a"), ..ListOptions::default() }).await.unwrap();
        store.stats().await.unwrap();
        store.count().await.unwrap();
        let mut watch = fixture.watch(StoreWatchOptions::default());
        next(&mut watch).await;
        next(&mut watch).await;
        fixture.set("ns", "b", "1").await;
        next(&mut watch).await;
        drop(watch);
        store.delete(&key("ns", "b"), DeleteOptions::default(), |_| Ok(())).await.unwrap();
        let of = |operation: &str| {
            fixture.metric(&format!("etcd_requests_total{{operation=\"{operation}\",group=\"\",resource=\"pods\"}}"))
        };
        // Reads for updates and the one for the deletion too; a comparison that failed is a success.
        assert_eq!(["create", "get", "update", "list", "delete"].map(of), [3, 6, 2, 2, 1]);
        assert_eq!(["listWithCount", "listOnlyKeys"].map(of), [1, 1]);
        let of_list = |name: &str| {
            fixture.metric(&format!("apiserver_storage_list_{name}_total{{group=\"\",resource=\"pods\"}}"))
        };
        assert_eq!(fixture.metric("apiserver_storage_list_total{group=\"\",resource=\"pods\"}"), 1);
        assert_eq!(["fetched_objects", "evaluated_objects", "returned_objects"].map(of_list), [2, 2, 1]);
        assert_eq!(fixture.metric("apiserver_storage_events_received_total{group=\"\",resource=\"pods\"}"), 1);
        assert_eq!(fixture.metric("apiserver_resource_objects{group=\"\",resource=\"pods\"}"), 2);
        let text = fixture.metrics();
        let bounds = "0.005 0.025 0.05 0.1 0.2 0.4 0.6 0.8 1.0 1.25 1.5 2.0 3.0 4.0 5.0 6.0 8.0 10.0 15.0 20.0 30.0 45.0 60.0 +Inf";
        assert_eq!(buckets(&text, "etcd_request_duration_seconds").join(" "), bounds);
        assert_eq!(fixture.metric("etcd_request_errors_total{operation=\"get\",group=\"\",resource=\"pods\"}"), 0);
        let handled = "grpc_client_handled_total{grpc_type=\"unary\",grpc_service=\"etcdserverpb.KV\",grpc_method=\"Txn\",grpc_code=\"OK\"}";
        assert_eq!(fixture.metric(handled), 6);
        // What cannot be opened or decoded.
        fixture.etcd.client().put(etcd_key("ns", "c"), "test!no JSON");
        store.get(&key("ns", "c"), &GetOptions::default()).await.unwrap_err();
        assert_eq!(fixture.metric("apiserver_storage_decode_errors_total{group=\"\",resource=\"pods\"}"), 1);
        fixture.etcd.client().put(etcd_key("ns", "c"), "nobody can read this");
        store.get(&key("ns", "c"), &GetOptions::default()).await.unwrap_err();
        assert_eq!(fixture.metric("apiserver_storage_decode_errors_total{group=\"\",resource=\"pods\"}"), 1);
        // Compacted: an error of etcd.
        let first = fixture.etcd.client().revision() - 1;
        fixture.etcd.client().compact(first + 1);
        let exact = ListOptions {
            resource_version: first.to_string(),
            resource_version_match: Some(atrest::storage::ResourceVersionMatch::Exact),
            ..ListOptions::default()
        };
        fixture.list("/pods", exact).await.unwrap_err();
        assert_eq!(fixture.metric("etcd_request_errors_total{operation=\"list\",group=\"\",resource=\"pods\"}"), 1);
    });
}

#[test]
fn transformations_are_counted_by_provider() {
    on_both(async |fixture| {
        let configuration = transformers(&config(
            "secrets",
            &[&format!("aescbc key2 {K2}"), &format!("aescbc key1 {K1}"), &format!("secretbox box {K3}"), "identity"],
        ));
        let resource = GroupResource::new("", "secrets");
        let mut options = StoreOptions::new(resource.clone(), "/secrets");
        options.metrics = fixture.store.options().metrics.clone();
        let encryption = Encryption::new(configuration, resource);
        let store = Store::new(&fixture.client, JsonCodec, encryption, options).unwrap();
        store.create("/secrets/ns/a", &pod("ns", "a"), None).await.unwrap();
        let put = |name: &str, provider: &str| {
            let etcd_key = format!("/registry/secrets/ns/{name}");
            let plaintext = serde_json::to_vec(pod("ns", name).fields()).unwrap();
            let written = transformers(&config("secrets", &[provider]));
            fixture.etcd.client().put(&*etcd_key, sealed(&written, etcd_key.as_bytes(), &plaintext));
        };
        put("b", &format!("aescbc key1 {K1}"));
        put("c", &format!("secretbox box {K3}"));
        put("d", "identity");
        put("e", &format!("aesgcm gcm {K3}"));
        for (name_of, readable) in [("a", true), ("b", true), ("c", true), ("d", true), ("e", false)] {
            let got = store.get(&format!("/secrets/ns/{name_of}"), &GetOptions::default()).await;
            assert_eq!(got.as_ref().map(name).ok().as_deref() == Some(name_of), readable, "{got:?}");
        }
        let text = fixture.metrics();
        let prefix = "apiserver_storage_transformation_operations_total{resource=\"secrets\",";
        let counted: BTreeSet<_> = text.lines().filter_map(|line| line.strip_prefix(prefix)).collect();
        let expected = [
            // Written by the key of the first provider; upstream has keys in a list of their own, and counts them alike.
            r#"transformation_type="to_storage",transformer_prefix="k8s:enc:aescbc:v1:",status="OK"} 1"#,
            r#"transformation_type="to_storage",transformer_prefix="key2:",status="OK"} 1"#,
            r#"transformation_type="from_storage",transformer_prefix="k8s:enc:aescbc:v1:",status="OK"} 2"#,
            // Both providers of AES-CBC have tried to open b.
            r#"transformation_type="from_storage",transformer_prefix="k8s:enc:aescbc:v1:",status="unknown-non-grpc"} 1"#,
            r#"transformation_type="from_storage",transformer_prefix="key1:",status="OK"} 1"#,
            r#"transformation_type="from_storage",transformer_prefix="key2:",status="OK"} 1"#,
            // Its key is not one of the first's.
            r#"transformation_type="from_storage",transformer_prefix="unknown",status="unknown-non-grpc"} 2"#,
            r#"transformation_type="from_storage",transformer_prefix="k8s:enc:secretbox:v1:",status="OK"} 1"#,
            r#"transformation_type="from_storage",transformer_prefix="box:",status="OK"} 1"#,
            r#"transformation_type="from_storage",transformer_prefix="identity",status="OK"} 1"#,
        ];
        assert_eq!(counted, expected.into_iter().collect());
        let bounds = buckets(&text, "apiserver_storage_transformation_duration_seconds");
        assert_eq!((bounds.len(), bounds[0].as_str()), (26, "0.000005"));
        let last = bounds[24].parse::<f64>().unwrap();
        assert!((83.0..84.0).contains(&last), "{last}");
    });
}
