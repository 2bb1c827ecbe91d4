//! What a stranger's first night with the program showed.

use atrest::rekey::{self, Error};
use atrest::report::NoProgress;
use atrest::transformer::envelope::NoKms;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::fixture::*;
use crate::support::{Etcd, Version};

/// The key that was to write had the right name and the wrong bytes: a rotation wrote 10 values that no API server could read,
/// called 28 good ones damaged, and said that the old key could go.
#[test]
fn a_key_that_opens_nothing_of_what_names_it_does_not_write() {
    let etcd = Etcd::start(Version::V3_5);
    let cluster = config("secrets", &[&format!("aesgcm k2 {K2}"), &format!("aescbc k1 {K1}")]);
    let before = config("secrets", &[&format!("aescbc k1 {K1}")]);
    let mut values = Vec::new();
    for (i, text) in [&cluster, &cluster, &before].iter().enumerate() {
        let name = format!("s{i}");
        let key = secret_key("a", &name).into_bytes();
        values.push((key.clone(), sealed(&transformers(text), &key, &secret("a", &name, "x"))));
    }
    put_all(&etcd, values.clone());
    let wrong_text = config("secrets", &[&format!("aesgcm k2 {K1}"), &format!("aescbc k1 {K1}")]);
    let wrong = transformers(&wrong_text);
    let selections = [everywhere(), atrest::resource::Selection { namespace: Some("a".into()), ..everywhere() }];
    for selection in &selections {
        let options = rekey::Options { transformers: &wrong, selection, source: String::new(), trusted: &[] };
        let stop = AtomicBool::new(false);
        let refused = block_on(async {
            rekey::execute(&client(&etcd).await, &wrong, &Arc::new(NoKms), &options, execution(8), &NoProgress, &stop)
                .await
        });
        assert!(matches!(&refused, Err(Error::WrongWriteKey { key, values: 2 }) if key == "aesgcm/k2"), "{refused:?}");
    }
    for (key, value) in values {
        assert_eq!(etcd.client().get(key).unwrap().value(), value);
    }
    let workshop = Workshop::new();
    workshop.file("wrong.yaml", &wrong_text);
    let plan = workshop.run(&etcd, "rekey", ["-q", "--encryption-provider-config", "wrong.yaml"]);
    assert_eq!(plan.code, Some(1));
    assert!(plan.stdout.contains("aesgcm/k2 in the configuration opens none of the 2 values"), "{}", plan.stdout);
    let run =
        workshop.run(&etcd, "rekey", ["-q", "--yes", "--no-journal", "--encryption-provider-config", "wrong.yaml"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""));
    // The right file rewrites the one that is stale.
    assert_eq!(rekey(&etcd, &transformers(&cluster)).rewritten, 1);
}

/// On an empty etcd, or the wrong one, the answer was that the key could go.
#[test]
fn what_was_not_found_proves_nothing() {
    let etcd = Etcd::start(Version::V3_5);
    etcd.client().put("/rancher/secrets/a/x", b"x".to_vec());
    let workshop = Workshop::new();
    workshop.file("config.yaml", &config("secrets", &[&format!("aesgcm k2 {K2}"), &format!("aescbc k1 {K1}")]));
    let file = ["-q", "-o", "json", "--encryption-provider-config", "config.yaml"];
    let answer = workshop.run(&etcd, "verify", file.iter().chain(&["--removable", "aescbc/k1"])).json(1);
    assert_eq!(answer["removable"]["removable"], "unknown");
    assert_eq!(answer["notes"][0], "nothing is stored below /kubernetes.io/, /openshift.io/, /registry/");
    assert_ne!(answer["revision"], 0);
    for (command, args) in
        [("verify", ["--expect", "current", "-n", "typo"]), ("scan", ["--expect", "encrypted", "-n", "typo"])]
    {
        let report = workshop.run(&etcd, command, file.iter().chain(&args)).json(1);
        assert_eq!(
            report["notes"][0],
            "nothing matches the selection (--resource, -n, --prefix): is it spelled right?"
        );
    }
}

/// What lies below a resource and is no object was never rewritten, and reported as stale without a reason.
#[test]
fn a_key_that_is_no_object_s_is_said_to_be_left() {
    let etcd = Etcd::start(Version::V3_5);
    let key = "/registry/secrets/a/b/c";
    etcd.client().put(key, secret("a", "b", "x"));
    let report = rekey(&etcd, &transformers(&config("secrets", &[&format!("aescbc k1 {K1}"), "identity"])));
    assert_eq!((report.rewritten, report.still_stale, report.not_objects.len()), (0, Some(0), 1));
    assert!(report.not_objects[0].message.starts_with("not the key of an object"));
    assert_eq!(report.keys_in_use, ["identity", "aescbc/k1"]);
}

/// A key was said to be removable although a value of a newer format names it, one outside of the layout does, and one whose name
/// another resource's key begins with.
#[test]
fn a_key_may_be_named_where_nobody_looked() {
    let etcd = Etcd::start(Version::V3_5);
    let workshop = Workshop::new();
    let entries: [(&str, &[&str]); 2] = [
        ("secrets", &[&format!("aesgcm new {K2}"), &format!("aescbc a {K1}")]),
        ("configmaps", &[&format!("aescbc a:b {K3}")]),
    ];
    workshop.file("config.yaml", &config_of(&entries));
    let ask = |key: &str, code: i32| {
        let args = ["-q", "-o", "json", "--encryption-provider-config", "config.yaml", "--removable", key];
        workshop.run(&etcd, "verify", args).json(code)["removable"].clone()
    };
    etcd.client().put("/registry/secrets/x/y", sealed_by(&config("secrets", &[&format!("aesgcm new {K2}")])));
    assert_eq!(ask("aescbc/a", 0)["removable"], "yes");
    etcd.client().put("/registry/secrets/x/newer", b"k8s:enc:aescbc:v2:a:0123456789".to_vec());
    assert_eq!(ask("aescbc/a", 1)["removable"], "unknown");
    etcd.client().delete("/registry/secrets/x/newer");
    etcd.client().put("/k8s/prod/secrets/x/elsewhere", b"k8s:enc:aescbc:v1:a:0123456789".to_vec());
    assert_eq!(ask("aescbc/a", 1)["removable"], "no");
    etcd.client().delete("/k8s/prod/secrets/x/elsewhere");
    etcd.client().put("/registry/secrets/x/colon", b"k8s:enc:aescbc:v1:a:b:0123456789abcdef".to_vec());
    for key in ["aescbc/a", "aescbc/a:b"] {
        assert_eq!((&ask(key, 1)["removable"], &ask(key, 1)["needed_by"]), (&"no".into(), &1.into()), "{key}");
    }
}

fn sealed_by(text: &str) -> Vec<u8> {
    sealed(&transformers(text), b"/registry/secrets/x/y", &secret("x", "y", "z"))
}

/// E14. One namespace that may not be written ended the rotation of all.
#[test]
fn one_denied_object_does_not_stop_the_rest() {
    let etcd = Etcd::builder(Version::V3_5).auth_enabled("root-password").start();
    let (old, new) = (
        config("secrets", &[&format!("aescbc old {K1}")]),
        config("secrets", &[&format!("aesgcm new {K2}"), &format!("aescbc old {K1}")]),
    );
    let server = transformers(&old);
    for namespace in ["a", "b", "c"] {
        for i in 0..3 {
            let name = format!("s{i}");
            let key = secret_key(namespace, &name);
            etcd.client().put(key.clone(), sealed(&server, key.as_bytes(), &secret(namespace, &name, "x")));
        }
    }
    for args in [
        &["role", "add", "rotator"][..],
        &["role", "grant-permission", "rotator", "--prefix=true", "read", "/"],
        &["role", "grant-permission", "rotator", "--prefix=true", "readwrite", "/registry/secrets/a/"],
        &["role", "grant-permission", "rotator", "--prefix=true", "readwrite", "/registry/secrets/c/"],
        &["user", "add", "rotator:pw"],
        &["user", "grant-role", "rotator", "rotator"],
    ] {
        let ran = etcd.etcdctl(args);
        assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    let workshop = Workshop::new();
    workshop.file("config.yaml", &new);
    let ran = std::process::Command::new(env!("CARGO_BIN_EXE_atrest"))
        .current_dir(workshop.path())
        .args(["rekey", "-q", "-o", "json", "--yes", "--no-journal", "--concurrency", "2", "--user", "rotator:pw"])
        .args(["--encryption-provider-config", "config.yaml", "--endpoints", &etcd.endpoint()])
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(ran.status.code(), Some(4), "{report}");
    assert_eq!((&report["rewritten"], &report["complete"]), (&6.into(), &true.into()));
    assert_eq!(report["failed"].as_array().unwrap().len(), 3);
}
