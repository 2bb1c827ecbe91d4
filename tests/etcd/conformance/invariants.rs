//! What a rotation owes to those whose objects it rewrites.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use atrest::source::StoredValue;
use atrest::storage::{Client, Error, Refusal, Rewrap, RewrapOptions, Sealed, Written};
use etcd_client::{Txn, TxnOp, WatchOptions};

use super::Counted;
use crate::connection::forwarder::Forwarder;
use crate::fixture::*;
use crate::support::{Etcd, Version};

const KEY: &str = "/registry/secrets/a/x";

/// Seals what begins with `old!` anew, and takes `new!` for current.
fn seal(value: &StoredValue) -> Result<Sealed, Refusal<&'static str>> {
    match (value.value.strip_prefix(b"old!"), value.value.strip_prefix(b"new!")) {
        (Some(rest), _) => Ok(Sealed::Value([b"new!", rest].concat())),
        (_, Some(_)) => Ok(Sealed::Current),
        _ => Err(Refusal("unreadable")),
    }
}

/// Reads a key and rewraps it. Something happens each time after it was judged and before it is written.
async fn rewrap_while(client: &Client, mut meanwhile: impl FnMut(u32)) -> Result<Rewrap<&'static str>, Error> {
    let value = client.get(KEY.as_bytes()).await?.unwrap();
    let mut judged = 0;
    let rewrapped = client.rewrap(value, RewrapOptions::default(), |value| {
        let sealed = seal(value);
        judged += 1;
        meanwhile(judged);
        sealed
    });
    rewrapped.await
}

async fn rewrap(client: &Client) -> Result<Rewrap<&'static str>, Error> {
    rewrap_while(client, |_| ()).await
}

#[test]
fn t22_what_others_write_between_the_read_and_the_transaction_is_what_stays() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        let theirs = etcd.client();
        block_on(async {
            theirs.put(KEY, "old!ours");
            let counted = Counted::new(client(&etcd).await);
            let mut written = 0;
            let rewrapped = rewrap_while(&counted.client, |judged| {
                if judged <= 3 {
                    written = theirs.put(KEY, format!("old!theirs {judged}"));
                }
            });
            match rewrapped.await.unwrap() {
                Rewrap::Rewritten { old, new } => {
                    assert_eq!((old.value.as_slice(), old.mod_revision), (&b"old!theirs 3"[..], written));
                    assert_eq!((new.value.as_slice(), new.mod_revision), (&b"new!theirs 3"[..], written + 1));
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(theirs.get(KEY).unwrap().value(), b"new!theirs 3");
            // What was stored in between came with the failed transaction.
            assert_eq!(counted.calls(), (1, 4));

            theirs.put(KEY, "old!ours");
            let counted = Counted::new(client(&etcd).await);
            let rewrapped = rewrap_while(&counted.client, |_| _ = theirs.put(KEY, "new!theirs")).await.unwrap();
            assert!(matches!(rewrapped, Rewrap::AlreadyCurrent), "{rewrapped:?}");
            assert_eq!(theirs.get(KEY).unwrap().value(), b"new!theirs");
            assert_eq!(counted.calls(), (1, 1));

            theirs.put(KEY, "old!ours");
            let counted = Counted::new(client(&etcd).await);
            let rewrapped = rewrap_while(&counted.client, |_| assert!(theirs.delete(KEY))).await.unwrap();
            assert!(matches!(rewrapped, Rewrap::Gone), "{rewrapped:?}");
            assert!(theirs.get(KEY).is_none());
            assert_eq!(counted.calls(), (1, 1));
        });
    }
}

#[test]
fn t23_a_rewrap_changes_the_value_and_nothing_else() {
    let before = transformers(&config("events", &[&format!("aescbc old {K1}")]));
    let after = transformers(&config("events", &[&format!("aesgcm new {K2}"), &format!("aescbc old {K1}")]));
    let key = "/registry/events/a/x";
    // Neither the blank in front nor the order of the fields is what an encoder would write.
    let plaintext = [b" ".to_vec(), object("Event", "a", "x", "\u{0}\u{1f600}"), b"\n".to_vec()].concat();
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        let lease = etcd.client().grant_lease(600);
        etcd.client().put(key, "before");
        etcd.client().put_with_lease(key, sealed(&before, key.as_bytes(), &plaintext), lease);
        let old = etcd.client().get(key).unwrap();
        block_on(async {
            let counted = Counted::new(client(&etcd).await);
            let report = rekey_with(&counted.client, &after, &everywhere(), execution(4)).await;
            assert_eq!((report.rewritten, report.already_current, report.still_stale), (1, 0, Some(0)));
            assert_eq!(counted.calls().1, 1);
            let new = etcd.client().get(key).unwrap();
            assert_eq!(opened(&after, new.key(), new.value()), (plaintext.clone(), false));
            assert_eq!((new.create_revision(), new.lease(), new.version()), (old.create_revision(), lease, 3));
            assert_eq!(new.mod_revision(), old.mod_revision() + 1);

            let counted = Counted::new(client(&etcd).await);
            let report = rekey_with(&counted.client, &after, &everywhere(), execution(4)).await;
            assert_eq!((report.rewritten, report.already_current), (0, 1));
            assert_eq!(counted.calls().1, 0);
            assert_eq!(state(&etcd.client().get(key).unwrap()), state(&new));
        });
    }
}

/// Where the connection is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cut {
    BeforeRequest,
    BeforeAnswer,
}

/// A way to etcd that is cut by the first request, or by the first answer, after it was armed.
fn cut_when_armed(etcd: &Etcd, cut: Cut, armed: &Arc<AtomicBool>) -> Forwarder {
    let (armed, etcd_client) = (Arc::clone(armed), etcd.client());
    let passed = std::sync::Mutex::new((0, 0));
    Forwarder::new(etcd.port(), move |traffic| {
        let before = std::mem::replace(&mut *passed.lock().unwrap(), (traffic.requests, traffic.answers));
        if !armed.load(Ordering::SeqCst) {
            return true;
        }
        match cut {
            Cut::BeforeRequest => traffic.requests == before.0,
            Cut::BeforeAnswer if traffic.answers == before.1 => true,
            Cut::BeforeAnswer => {
                // Whatever came back: what was asked for is done when nobody hears of it.
                until("the write", || (etcd_client.get(KEY)?.version() == 2).then_some(()));
                false
            }
        }
    })
}

#[test]
fn t24_a_write_whose_outcome_is_unknown_is_settled_by_reading_and_counts_once() {
    for version in Version::ALL {
        for (cut, transactions) in [(Cut::BeforeRequest, 2), (Cut::BeforeAnswer, 1)] {
            let etcd = Etcd::start(version);
            etcd.client().put(KEY, "old!x");
            let armed = Arc::new(AtomicBool::new(false));
            block_on(async {
                let way = cut_when_armed(&etcd, cut, &armed);
                let counted = loop {
                    let client = client_of(&[way.endpoint(), etcd.endpoint()], Duration::from_secs(30)).await;
                    // On a machine that is busy, the other may have answered first.
                    if client.status().await.unwrap().endpoint.contains(&way.endpoint()) {
                        break Counted::new(client);
                    }
                };
                let rewrapped = rewrap_while(&counted.client, |_| armed.store(true, Ordering::SeqCst)).await.unwrap();
                let stored = etcd.client().get(KEY).unwrap();
                match rewrapped {
                    Rewrap::Rewritten { old, new } => {
                        assert_eq!((old.value.as_slice(), new.value.as_slice()), (&b"old!x"[..], &b"new!x"[..]));
                        assert_eq!(new.mod_revision, stored.mod_revision());
                    }
                    other => panic!("{other:?}"),
                }
                assert_eq!((stored.value(), stored.version()), (&b"new!x"[..], 2));
                assert!(way.is_dead(), "{cut:?}");
                assert_eq!(counted.calls().1, transactions, "{cut:?}");
                let again = rewrap(&counted.client).await.unwrap();
                assert!(matches!(again, Rewrap::AlreadyCurrent), "{again:?}");
            });
        }
    }
}

/// Why a transaction has one key: a watch that ends between two keys of one revision never hears of the second.
///
/// Our own writes cannot be so: see [`each_way_to_write_takes_one_key`], and what a narrow server has seen of the whole tool in `t54_*`.
#[test]
fn t53_of_two_keys_in_one_revision_a_resumed_watch_misses_the_second() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        block_on(async {
            let mut raw = etcd.client().connect().await;
            let puts = ["a", "b"].map(|name| TxnOp::put(format!("/registry/pods/ns/{name}"), name, None));
            let written = raw.txn(Txn::new().and_then(puts)).await.unwrap().header().unwrap().revision();
            let later = raw.put("/registry/pods/ns/c", "c", None).await.unwrap().header().unwrap().revision();
            assert_eq!(later, written + 1);
            let mut from = async |revision: i64, count: usize| {
                let options = WatchOptions::new().with_prefix().with_start_revision(revision);
                let mut stream = raw.watch("/registry/pods/", Some(options)).await.unwrap();
                let mut seen = Vec::new();
                while seen.len() < count {
                    let answer = tokio::time::timeout(Duration::from_secs(20), stream.message()).await;
                    let answer = answer.expect("an answer comes").unwrap().unwrap();
                    seen.extend(answer.events().iter().map(|event| {
                        let kv = event.kv().unwrap();
                        (String::from_utf8(kv.value().to_vec()).unwrap(), kv.mod_revision())
                    }));
                }
                seen
            };
            let (a, b, c) = (("a".to_owned(), written), ("b".to_owned(), written), ("c".to_owned(), later));
            assert_eq!(from(written, 3).await, [a, b, c.clone()]);
            // It has seen "a", so it goes on at the next revision.
            assert_eq!(from(written + 1, 1).await, [c]);
        });
    }
}

/// Compiles only while each takes one key.
#[expect(dead_code, reason = "that it compiles is all")]
async fn each_way_to_write_takes_one_key(client: &Client, key: &[u8], value: StoredValue) -> Result<(), Error> {
    let (Written::Done { .. } | Written::Conflict { .. }) = client.optimistic_create(key, Vec::new(), 0).await?;
    let (Written::Done { .. } | Written::Conflict { .. }) = client.optimistic_put(key, Vec::new(), 1, 0).await?;
    let (Written::Done { .. } | Written::Conflict { .. }) = client.optimistic_delete(key, 1).await?;
    client.rewrap(value, RewrapOptions::default(), seal).await?;
    Ok(())
}

/// That what is sealed is opened again first is tested beside `ResourceTransformer::seal_and_reopen`.
#[test]
fn t55_what_does_not_verify_is_never_written() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        etcd.client().put(KEY, "old!x");
        let before = etcd.client().get(KEY).unwrap();
        block_on(async {
            let counted = Counted::new(client(&etcd).await);
            let value = counted.client.get(KEY.as_bytes()).await.unwrap().unwrap();
            let refuse = |_: &StoredValue| Err(Refusal("it opens to something else"));
            let rewrapped = counted.client.rewrap(value, RewrapOptions::default(), refuse).await.unwrap();
            assert!(matches!(rewrapped, Rewrap::Refused { reason: "it opens to something else", .. }), "{rewrapped:?}");
            assert_eq!(counted.calls(), (1, 0));
        });
        assert_eq!(state(&etcd.client().get(KEY).unwrap()), state(&before));

        // In the clear, this plaintext would be taken for a ciphertext, and opened to something else.
        let encrypting = transformers(&config("secrets", &[&format!("aescbc k {K1}")]));
        let inner = sealed(&encrypting, KEY.as_bytes(), &secret("a", "x", "s"));
        etcd.client().put(KEY, sealed(&encrypting, KEY.as_bytes(), &inner));
        let before = etcd.client().get(KEY).unwrap();
        let decrypting = transformers(&config("secrets", &["identity", &format!("aescbc k {K1}")]));
        let report = rekey(&etcd, &decrypting);
        assert_eq!((report.rewritten, report.unreadable.len() + report.failed.len()), (0, 1));
        assert_eq!(state(&etcd.client().get(KEY).unwrap()), state(&before));
    }
}

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
        let states = |all: &std::collections::BTreeMap<Vec<u8>, crate::support::KeyValue>| {
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
