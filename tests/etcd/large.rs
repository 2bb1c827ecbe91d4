//! Large values: pages are bounded by bytes, and what etcd does not take is not tried.

use std::sync::Arc;

use atrest::transformer::ResourceTransformers;

use crate::fixture::{K1, K2, Workshop, config, everything, opened, put_all, sealed, secret_key, transformers};
use crate::support::{Etcd, Version};

/// A Secret in protobuf, as nearly all of them are stored: magic, `runtime.Unknown`, and in it the object.
fn secret(name: &str, len: usize) -> Vec<u8> {
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        let mut len = bytes.len();
        while len > 0x7f {
            out.push(len.to_le_bytes()[0] | 0x80);
            len >>= 7;
        }
        out.push(len.to_le_bytes()[0]);
        out.extend_from_slice(bytes);
        out
    }
    let metadata = [field(1, name.as_bytes()), field(3, b"a")].concat();
    let data = [field(1, b"password"), field(2, &vec![b'x'; len])].concat();
    let object = [field(1, &metadata), field(2, &data)].concat();
    let type_meta = [field(1, b"v1"), field(2, b"Secret")].concat();
    [b"k8s\0".to_vec(), field(1, &type_meta), field(2, &object)].concat()
}

fn old() -> Arc<ResourceTransformers> {
    transformers(&config("secrets", &[&format!("aesgcm old {K1}")]))
}

fn new_text() -> String {
    config("secrets", &[&format!("aesgcm new {K2}"), &format!("aesgcm old {K1}")])
}

const ARGS: [&str; 5] = ["-q", "-o", "json", "--encryption-provider-config", "config.yaml"];

fn args(more: &[&'static str]) -> Vec<&'static str> {
    ARGS.into_iter().chain(more.iter().copied()).collect()
}

/// J7. One answer of etcd with all of them would have 200 MiB.
#[test]
fn two_hundred_values_of_a_mebibyte() {
    let etcd = Etcd::start(Version::V3_5);
    let workshop = Workshop::new();
    workshop.file("config.yaml", &new_text());
    let old = old();
    let name = |i: usize| format!("large-{i:03}");
    let value = |i: usize| secret(&name(i), 1024 * 1024 - 400);
    let key = |i: usize| secret_key("a", &name(i)).into_bytes();
    put_all(&etcd, (0..200).map(|i| (key(i), sealed(&old, &key(i), &value(i)))).collect());
    let bytes: u64 = everything(&etcd).values().map(|kv| kv.value().len() as u64).sum();
    assert!(bytes > 199 * 1024 * 1024, "{bytes}");

    let scan = workshop.run(&etcd, "scan", ["-q", "-o", "json"]).json(0);
    assert_eq!((scan["values"].as_u64(), scan["groups"][0]["bytes"].as_u64()), (Some(200), Some(bytes)));
    assert_eq!(scan["single_revision"], true);
    let verify = workshop.run(&etcd, "verify", args(&[])).json(0);
    assert_eq!(verify["classes"], serde_json::json!({"stale": 200}));
    let rekey = workshop.run(&etcd, "rekey", args(&["--yes", "--no-journal"])).json(0);
    assert_eq!((rekey["rewritten"].as_u64(), rekey["still_stale"].as_u64()), (Some(200), Some(0)));
    let new = transformers(&new_text());
    for (i, kv) in everything(&etcd).values().enumerate() {
        assert_eq!(kv.key(), key(i));
        assert!(opened(&new, kv.key(), kv.value()) == (value(i), false), "{}", name(i));
        assert_eq!(kv.version(), 2);
    }
}

/// An object that fits in the clear may not fit encrypted. It is told, and the rest goes on.
#[test]
fn what_would_be_too_large_is_told_and_not_tried() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        let workshop = Workshop::new();
        let config = config("secrets", &[&format!("aesgcm new {K2}"), "identity"]);
        workshop.file("config.yaml", &config);
        let key = |name: &str| secret_key("a", name);
        // Stored in the clear it is just below etcd's limit for a request.
        let large = secret("large", 1_572_864 - 170);
        etcd.client().put(key("large"), large.clone());
        etcd.client().put(key("small"), secret("small", 1));
        let report = workshop.run(&etcd, "rekey", args(&["--yes", "--no-journal"])).json(1);
        assert_eq!((report["rewritten"].as_u64(), report["still_stale"].as_u64()), (Some(1), Some(1)));
        assert_eq!(report["failed"], serde_json::json!([]));
        assert_eq!(report["too_large"].as_array().unwrap().len(), 1);
        assert_eq!(report["too_large"][0]["key"], key("large"));
        let message = report["too_large"][0]["message"].as_str().unwrap();
        assert!(message.contains("more than 1572864 (--max-request-bytes)"), "{message}");
        assert!(etcd.client().get(key("large")).unwrap().value() == large);
        assert!(!etcd.log().contains("request is too large"), "it was tried");
        // The flag is what we believe of etcd. If etcd does not take it, that is told, and is no failure of the run.
        let report =
            workshop.run(&etcd, "rekey", args(&["--yes", "--no-journal", "--max-request-bytes", "4000000"])).json(1);
        assert_eq!(report["failed"], serde_json::json!([]));
        let message = report["too_large"][0]["message"].as_str().unwrap();
        assert!(message.contains("etcd refuses it as too large"), "{message}");
    }
}

#[test]
fn with_a_higher_limit_a_larger_object_is_rewritten() {
    for version in Version::ALL {
        let etcd = Etcd::builder(version).arg("--max-request-bytes=8000000").start();
        let workshop = Workshop::new();
        workshop.file("config.yaml", &new_text());
        let key = secret_key("a", "large");
        let plaintext = secret("large", 6_000_000);
        // More than a client takes by default, so the answer to a conflict would be too.
        put_all(&etcd, vec![(key.clone().into_bytes(), sealed(&old(), key.as_bytes(), &plaintext))]);
        let refused = workshop.run(&etcd, "rekey", args(&["--yes", "--no-journal"])).json(1);
        assert_eq!((refused["rewritten"].as_u64(), refused["too_large"].as_array().unwrap().len()), (Some(0), 1));
        let report =
            workshop.run(&etcd, "rekey", args(&["--yes", "--no-journal", "--max-request-bytes", "8000000"])).json(0);
        assert_eq!(report["rewritten"], 1);
        let kv = etcd.client().get(key.clone()).unwrap();
        assert!(opened(&transformers(&new_text()), key.as_bytes(), kv.value()) == (plaintext, false));
    }
}
