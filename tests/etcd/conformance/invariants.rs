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
