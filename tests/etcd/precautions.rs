//! What a stranger's first night with the program showed.

use atrest::rekey::{self, Error};
use atrest::report::NoProgress;
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
            rekey::execute(&store(&etcd).await, &wrong, &options, execution(8), &NoProgress, &stop).await
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
