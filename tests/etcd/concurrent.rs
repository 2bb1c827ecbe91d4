//! Rotation while API servers go on reading and writing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use atrest::source::StoredValue;
use atrest::storage::{Client, Refusal, Rewrap, RewrapOptions, Sealed, Written};
use atrest::transformer::ResourceTransformers;

use crate::fixture::{
    K1, K2, block_on, client, config, everything, everywhere, execution, opened, put_all, rekey_with, sealed, secret,
    secret_key, transformers,
};
use crate::support::{Etcd, Version};

/// An API server that has not got the new configuration's order yet: it reads both keys and writes the old one.
fn before() -> Arc<ResourceTransformers> {
    transformers(&config("secrets", &[&format!("aescbc old {K1}"), &format!("aesgcm new {K2}")]))
}

/// An API server that writes the new key.
fn after() -> Arc<ResourceTransformers> {
    transformers(&config("secrets", &[&format!("aesgcm new {K2}"), &format!("aescbc old {K1}")]))
}

fn name(i: usize) -> String {
    format!("s-{i:04}")
}

fn key(i: usize) -> String {
    secret_key("a", &name(i))
}

fn fill(etcd: &Etcd, count: usize) {
    let before = before();
    let value = |i| sealed(&before, key(i).as_bytes(), &secret("a", &name(i), "0"));
    put_all(etcd, (0..count).map(|i| (key(i).into_bytes(), value(i))).collect());
}

/// Adds one to the number in an object, as often as it can until it is told to stop, and says how often that was.
///
/// Whoever overwrites an update with an older value makes the number smaller than the count.
async fn count_up(client: Client, i: usize, server: Arc<ResourceTransformers>, stop: Arc<AtomicBool>) -> (usize, u64) {
    let key = key(i).into_bytes();
    let mut count = 0;
    let mut known: Option<StoredValue> = None;
    while !stop.load(Ordering::Relaxed) {
        let value = match known.take() {
            Some(value) => value,
            None => client.get(&key).await.unwrap().unwrap(),
        };
        assert_eq!(opened(&server, &key, &value.value).0, secret("a", &name(i), &count.to_string()));
        let next = sealed(&server, &key, &secret("a", &name(i), &(count + 1).to_string()));
        match client.optimistic_put(&key, next, value.mod_revision, value.lease).await.unwrap() {
            Written::Done { .. } => count += 1,
            Written::Conflict { current } => known = current,
        }
        tokio::task::yield_now().await;
    }
    (i, count)
}

/// No update is lost, and what is deleted stays deleted.
#[test]
fn writers_lose_no_update_and_deleted_keys_stay_deleted() {
    const COUNT: usize = 120;
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        fill(&etcd, COUNT);
        let counts: BTreeMap<usize, u64> = block_on(async {
            let client = client(&etcd).await;
            let stop = Arc::new(AtomicBool::new(false));
            let mut writers = tokio::task::JoinSet::new();
            // Every second object; one half of the servers is not restarted yet.
            for i in (0..COUNT).step_by(2) {
                let server = if i % 4 == 0 { before() } else { after() };
                writers.spawn(count_up(client.clone(), i, server, Arc::clone(&stop)));
            }
            let deleter = {
                let client = client.clone();
                tokio::spawn(async move {
                    for i in (1..COUNT).step_by(4) {
                        loop {
                            let value = client.get(key(i).as_bytes()).await.unwrap().unwrap();
                            let deleted = client.optimistic_delete(key(i).as_bytes(), value.mod_revision).await;
                            if matches!(deleted.unwrap(), Written::Done { .. }) {
                                break;
                            }
                        }
                    }
                })
            };
            let report = rekey_with(&client, &after(), &everywhere(), execution(32)).await;
            assert!(report.complete && report.verified);
            assert_eq!((report.unreadable.len(), report.too_large.len()), (0, 0));
            // Objects that are written all the time may stay contended; nothing else may fail.
            assert!(report.failed.iter().all(|row| row.message.contains("again and again")), "{:?}", report.failed);
            deleter.await.unwrap();
            stop.store(true, Ordering::Relaxed);
            let counts = writers.join_all().await.into_iter().collect();
            // Once all servers write the new key, the next run leaves nothing.
            let report = rekey_with(&client, &after(), &everywhere(), execution(32)).await;
            assert_eq!((report.still_stale, report.failed.len(), report.gone), (Some(0), 0, 0));
            counts
        });
        assert!(counts.values().sum::<u64>() > 0);
        let all = everything(&etcd);
        assert_eq!(all.len(), COUNT - COUNT / 4);
        for i in 0..COUNT {
            let Some(kv) = all.get(key(i).as_bytes()) else {
                assert_eq!(i % 4, 1, "{} is gone", key(i));
                continue;
            };
            let count = counts.get(&i).copied().unwrap_or(0);
            assert_eq!(
                opened(&after(), kv.key(), kv.value()),
                (secret("a", &name(i), &count.to_string()), false),
                "{}",
                key(i)
            );
        }
    }
}

/// Judges as a rotation does, and does something to the key between the judgement and the write.
async fn rewrap_while(etcd: &Etcd, mut meanwhile: impl FnMut(u64) + Send) -> (Rewrap<&'static str>, u64) {
    let client = client(etcd).await;
    let value = client.get(key(0).as_bytes()).await.unwrap().unwrap();
    let calls = AtomicU64::new(0);
    let server = after();
    let rewrapped = client
        .rewrap(value, RewrapOptions::default(), |value| {
            let call = calls.fetch_add(1, Ordering::SeqCst);
            let list = server.transformer_for_resource("", "secrets");
            let context = atrest::transformer::DataContext::new(&value.key);
            let Ok((opened, _)) = list.open(&value.value, context) else { return Err(Refusal("unreadable")) };
            if !opened.stale {
                return Ok(Sealed::Current);
            }
            let sealed = sealed(&server, &value.key, &opened.data);
            meanwhile(call);
            Ok(Sealed::Value(sealed))
        })
        .await
        .unwrap();
    (rewrapped, calls.into_inner())
}

/// What decides is what is stored at the time of the write, however often that changes.
#[test]
fn what_changed_in_between_is_judged_again() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        fill(&etcd, 1);
        let client = etcd.client();
        let put_old =
            |text: &str| client.put(key(0), sealed(&before(), key(0).as_bytes(), &secret("a", &name(0), text)));
        let text = |etcd: &Etcd| {
            let kv = etcd.client().get(key(0)).unwrap();
            opened(&after(), kv.key(), kv.value())
        };
        block_on(async {
            // Changed under the old key: the new text is kept, and rewritten in the second try.
            let mut revision = 0;
            let (rewrapped, calls) = rewrap_while(&etcd, |call| {
                if call == 0 {
                    revision = put_old("changed");
                }
            })
            .await;
            assert_eq!(calls, 2);
            assert!(matches!(rewrapped, Rewrap::Rewritten { old, .. } if old.mod_revision == revision));
            assert_eq!(text(&etcd), (secret("a", &name(0), "changed"), false));

            // Written under the new key meanwhile: nothing is left to do.
            put_old("old again");
            let mut revision = 0;
            let (rewrapped, calls) = rewrap_while(&etcd, |_| {
                revision = client.put(key(0), sealed(&after(), key(0).as_bytes(), &secret("a", &name(0), "theirs")));
            })
            .await;
            assert_eq!(calls, 2);
            assert!(matches!(rewrapped, Rewrap::AlreadyCurrent), "{rewrapped:?}");
            assert_eq!(client.get(key(0)).unwrap().mod_revision(), revision);

            // Damaged meanwhile: left as it is.
            put_old("old again");
            let (rewrapped, _) = rewrap_while(&etcd, |_| _ = client.put(key(0), "k8s:enc:aescbc:v1:old:short")).await;
            assert!(matches!(rewrapped, Rewrap::Refused { reason: "unreadable", .. }), "{rewrapped:?}");
            assert_eq!(client.get(key(0)).unwrap().value(), b"k8s:enc:aescbc:v1:old:short");

            // Deleted meanwhile: stays deleted.
            put_old("old again");
            let (rewrapped, calls) = rewrap_while(&etcd, |_| assert!(client.delete(key(0)))).await;
            assert_eq!(calls, 1);
            assert!(matches!(rewrapped, Rewrap::Gone), "{rewrapped:?}");
            assert!(client.get(key(0)).is_none());

            // Deleted and made anew: another object of the same name, judged by itself.
            put_old("first");
            let (rewrapped, calls) = rewrap_while(&etcd, |call| {
                if call == 0 {
                    client.delete(key(0));
                    put_old("second");
                }
            })
            .await;
            assert_eq!(calls, 2);
            assert!(matches!(rewrapped, Rewrap::Rewritten { .. }), "{rewrapped:?}");
            assert_eq!(text(&etcd), (secret("a", &name(0), "second"), false));
            assert_eq!(client.get(key(0)).unwrap().version(), 2);

            // Changed for ever: given up, with what the others wrote.
            put_old("0");
            let (rewrapped, calls) = rewrap_while(&etcd, |call| _ = put_old(&call.to_string())).await;
            assert!(matches!(rewrapped, Rewrap::Contended), "{rewrapped:?}");
            assert_eq!(calls, 32);
            assert_eq!(text(&etcd), (secret("a", &name(0), "31"), true));
        });
    }
}

/// A lease that runs out between the read and the write takes its key with it: there is nothing to write, and no error.
#[test]
fn a_lease_that_ends_in_between_ends_its_key() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        let client = etcd.client();
        let lease = client.grant_lease(600);
        client.put_with_lease(key(0), sealed(&before(), key(0).as_bytes(), &secret("a", &name(0), "x")), lease);
        block_on(async {
            let (rewrapped, calls) = rewrap_while(&etcd, |_| {
                assert!(etcd.etcdctl(&["lease", "revoke", &format!("{lease:x}")]).status.success());
            })
            .await;
            assert!(matches!(rewrapped, Rewrap::Gone), "{rewrapped:?}");
            assert_eq!(calls, 1);
        });
        assert!(client.get(key(0)).is_none());
    }
}

/// Two rotations at once are as good as one.
#[test]
fn two_rotations_at_once_write_every_value_once() {
    let etcd = Etcd::start(Version::V3_5);
    fill(&etcd, 300);
    let (first, second) = block_on(async {
        let (one, other) = (client(&etcd).await, client(&etcd).await);
        let (after, everywhere) = (after(), everywhere());
        tokio::join!(
            rekey_with(&one, &after, &everywhere, execution(16)),
            rekey_with(&other, &after, &everywhere, execution(16))
        )
    });
    assert_eq!(first.rewritten + second.rewritten, 300);
    assert_eq!((first.failed.len(), second.failed.len()), (0, 0));
    assert_eq!((first.still_stale, second.still_stale), (Some(0), Some(0)));
    assert!(everything(&etcd).values().all(|kv| kv.version() == 2));
}
