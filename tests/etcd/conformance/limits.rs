//! What a rotation leaves alone, and where it ends.

use std::collections::BTreeMap;

use atrest::source::StoredValue;
use atrest::storage::{Error, Refusal, Rewrap, RewrapOptions, Sealed};

use super::Counted;
use crate::fixture::*;
use crate::support::{Etcd, KeyValue, Version};

const KEY: &str = "/registry/secrets/a/x";

/// The same with a library, key by key, is in `rekey::what_has_no_transformer_is_never_written`.
#[test]
fn t56_what_api_servers_store_in_the_clear_is_never_written() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        let workshop = Workshop::new();
        workshop.file("config.yaml", &config("'*.*'", &[&format!("aesgcm k {K1}"), "identity"]));
        let lease = etcd.client().grant_lease(600);
        for key in ["masterleases/10.0.0.1", "peerserverleases/apiserver-x"] {
            etcd.client().put_with_lease(format!("/registry/{key}"), object("Endpoints", "a", "x", "x"), lease);
        }
        for key in ["/registry/ranges/serviceips", "/registry/ranges/servicenodeports", "/registry/health"] {
            etcd.client().put(key, object("RangeAllocation", "a", "x", "x"));
        }
        etcd.client().put("compact_rev_key", "17");
        etcd.client().put("compact_rev_key_apiserver", "1|17");
        let before = everything(&etcd);
        etcd.client().put(KEY, secret("a", "x", "s"));
        let args = ["-q", "-o", "json", "--yes", "--no-journal", "--encryption-provider-config", "config.yaml"];
        assert_eq!(workshop.run(&etcd, "rekey", args).json(0)["rewritten"], 1);
        let mut after = everything(&etcd);
        assert!(after.remove(KEY.as_bytes()).unwrap().value().starts_with(b"k8s:enc:aesgcm:v1:k:"));
        let states = |all: &BTreeMap<Vec<u8>, KeyValue>| {
            all.iter().map(|(key, kv)| format!("{} {:?}", key.escape_ascii(), state(kv))).collect::<Vec<_>>()
        };
        assert_eq!(states(&after), states(&before));
    }
}

/// Of the command line it is tested in `large`.
#[test]
fn t57_what_is_too_large_is_not_tried_and_what_etcd_refuses_is_the_same() {
    let limit = RewrapOptions::default().max_request_bytes;
    // What is left for the value beside two copies of the key and 512 bytes.
    let fits = limit - 2 * KEY.len() - 512;
    let into = |len: usize| move |_: &StoredValue| Ok::<_, Refusal<()>>(Sealed::Value(vec![b'x'; len]));
    for version in Version::ALL {
        for (argument, len, requested, transactions) in [
            ("--max-request-bytes=1572864", fits + 1, Some(limit + 1), 0),
            ("--max-request-bytes=1572864", fits, None, 1),
            ("--max-request-bytes=65536", 70_000, Some(70_000 + 2 * KEY.len() + 512), 1),
        ] {
            let etcd = Etcd::builder(version).arg(argument).start();
            etcd.client().put(KEY, "old!x");
            let before = etcd.client().get(KEY).unwrap();
            block_on(async {
                let counted = Counted::new(client(&etcd).await);
                let value = counted.client.get(KEY.as_bytes()).await.unwrap().unwrap();
                let rewrapped = counted.client.rewrap(value, RewrapOptions::default(), into(len)).await.unwrap();
                let stored = etcd.client().get(KEY).unwrap();
                match (rewrapped, requested) {
                    (Rewrap::TooLarge { value, request_bytes }, Some(requested)) => {
                        assert_eq!((value.value.as_slice(), request_bytes), (&b"old!x"[..], requested));
                        assert_eq!(state(&stored), state(&before));
                    }
                    (Rewrap::Rewritten { .. }, None) => assert_eq!((stored.value().len(), stored.version()), (fits, 2)),
                    (other, _) => panic!("{other:?}"),
                }
                assert_eq!(counted.calls(), (1, transactions));
            });
        }
    }
}

/// That the next run does what is left is tested in `interrupted`.
#[test]
fn t58_a_full_database_ends_a_run() {
    let (before, after) = (
        transformers(&config("secrets", &[&format!("aescbc old {K1}")])),
        transformers(&config("secrets", &[&format!("aesgcm new {K2}"), &format!("aescbc old {K1}")])),
    );
    for version in Version::ALL {
        let etcd = Etcd::builder(version).arg("--quota-backend-bytes=2097152").start();
        etcd.client().put(KEY, sealed(&before, KEY.as_bytes(), &secret("a", "x", "s")));
        block_on(async {
            let mut raw = etcd.client().connect().await;
            while raw.put("/filling", vec![b'x'; 256 * 1024], None).await.is_ok() {}
            let stored = etcd.client().get(KEY).unwrap();
            let counted = Counted::new(client(&etcd).await);
            let value = counted.client.get(KEY.as_bytes()).await.unwrap().unwrap();
            let new = |_: &StoredValue| Ok::<_, Refusal<()>>(Sealed::Value(b"new".to_vec()));
            let full = counted.client.rewrap(value, RewrapOptions::default(), new).await;
            assert!(matches!(full, Err(Error::NoSpace)), "{full:?}");
            // Read once more, since the write that fills the database is made and answered so too.
            assert_eq!(counted.calls(), (2, 1));
            let report = rekey_with(&counted.client, &after, &everywhere(), execution(1)).await;
            assert_eq!((report.rewritten, report.failed.len(), report.complete), (0, 1, false));
            let note = "stopped: the database of etcd has reached its quota (NOSPACE): compact and defragment etcd, disarm the \
                        alarm with `etcdctl alarm disarm`, then run this again";
            assert_eq!(report.notes[0], note);
            assert_eq!(state(&etcd.client().get(KEY).unwrap()), state(&stored));
        });
    }
}

/// A journal that was gone on with after a restore, or by mistake on another cluster, told of writes that etcd did not have.
#[test]
fn t58_a_journal_is_of_one_cluster_and_not_of_the_future() {
    let old = config("secrets", &[&format!("aescbc old {K1}")]);
    let workshop = Workshop::new();
    workshop.file("config.yaml", &config("secrets", &[&format!("aesgcm new {K2}"), &format!("aescbc old {K1}")]));
    let args = ["-q", "-o", "json", "--yes", "--journal", "journal", "--encryption-provider-config", "config.yaml"];
    let filled = |etcd: Etcd, times: usize| {
        for _ in 0..times {
            etcd.client().put(KEY, sealed(&transformers(&old), KEY.as_bytes(), &secret("a", "x", "s")));
        }
        etcd
    };
    let path = workshop.path().join("journal");
    for version in Version::ALL {
        let etcd = filled(Etcd::start(version), 5);
        assert_eq!(workshop.run(&etcd, "rekey", args).json(0)["rewritten"], 1);
        etcd.client().put(KEY, sealed(&transformers(&old), KEY.as_bytes(), &secret("a", "x", "s")));
        assert_eq!(workshop.run(&etcd, "rekey", args).json(0)["rewritten"], 1);
        let lines = journal(&path);
        let cluster = lines[0]["cluster_id"].as_str().unwrap().to_owned();
        assert!(etcd.log().contains(&cluster), "{cluster}");
        assert_eq!(
            (lines.len(), &lines[1]["cluster_id"], &lines[1]["new_revision"]),
            (2, &cluster.clone().into(), &9.into())
        );

        let other = filled(Etcd::builder(version).arg("--initial-cluster-token=other").start(), 9);
        // The tests' clusters have one ID, as those that are restored may have.
        let earlier = filled(Etcd::start(version), 3);
        for (etcd, why) in [
            (&other, format!("journal is of the cluster {cluster}, and etcd is of ")),
            (&earlier, "journal has a write of revision 9, and etcd has only come to 4".to_owned()),
        ] {
            let revision = etcd.client().revision();
            let ran = workshop.run(etcd, "rekey", args);
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:#?}");
            assert!(ran.stderr.contains(&why), "{}", ran.stderr);
            assert!(ran.stderr.contains("hint: name another file with --journal"), "{}", ran.stderr);
            assert_eq!((etcd.client().revision(), journal(&path).len()), (revision, 2));
        }
        std::fs::remove_file(&path).unwrap();
    }
}
