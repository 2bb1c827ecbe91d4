//! Several endpoints, of which some fail, and passwords whose proof grows old.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_client::{Txn, TxnOp};

use super::forwarder::Forwarder;
use super::{DIAL_TIMEOUT, Dead, Scan, atrest, listener, outcome};
use crate::support::{Etcd, Version};

const COUNT: usize = 2000;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(future)
}

/// Stores objects of 1 KiB.
fn fill(etcd: &Etcd) {
    let client = etcd.client();
    let store = async {
        let mut client = client.connect().await;
        let numbers: Vec<usize> = (0..COUNT).collect();
        for numbers in numbers.chunks(100) {
            let puts: Vec<_> = numbers.iter().map(|number| put(*number)).collect();
            client.txn(Txn::new().and_then(puts)).await.expect("etcd takes the values");
        }
    };
    block_on(store);
}

fn put(number: usize) -> TxnOp {
    let object = serde_json::json!({
        "kind": "Secret",
        "apiVersion": "v1",
        "metadata": { "name": format!("s{number}"), "namespace": "default" },
        "data": { "a": "A".repeat(900) },
    });
    TxnOp::put(format!("/registry/secrets/default/s{number}"), format!("{object}\n"), None)
}

fn configuration(dir: &tempfile::TempDir) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let path = dir.path().join("config.yaml");
    let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
                - resources: [secrets]\n  providers:\n  - secretbox:\n      keys:\n      - name: key1\n        \
                secret: QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=\n  - identity: {}\n";
    std::fs::write(&path, text).expect("the file can be written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("the file is ours");
    path
}

fn counts_all(stdout: &str) {
    assert!(stdout.contains(&COUNT.to_string()) || stdout.contains("2,000"), "{stdout}");
}

#[test]
fn a_dead_endpoint_costs_no_time() {
    let etcd = Etcd::start(Version::V3_5);
    let dead = Dead::new();
    for dead in [dead.to_string(), "unix:///nowhere.sock".to_owned()] {
        let outcome = Scan::of(&format!("{dead},{}", etcd.endpoint())).flag("--output", "json").run();
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
        assert!(outcome.stdout.contains(&etcd.endpoint()), "{}", outcome.stdout);
        assert!(outcome.took < Duration::from_secs(2), "{:?}", outcome.took);
    }
}

#[test]
fn a_silent_endpoint_is_overtaken() {
    let (etcd, stuck, silent) = (Etcd::start(Version::V3_5), Etcd::start(Version::V3_4), listener());
    stuck.pause();
    for silent in [silent.local_addr().unwrap().to_string(), stuck.endpoint()] {
        let outcome = Scan::of(&format!("{silent},{}", etcd.endpoint())).run();
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
        assert!(outcome.took < DIAL_TIMEOUT, "{:?}", outcome.took);
    }
    stuck.resume();
}

#[test]
fn an_endpoint_with_another_mistake_is_passed_over() {
    let pki = crate::support::Pki::new();
    let etcd = Etcd::builder(Version::V3_5).tls(&pki, pki.server()).start();
    let other =
        Etcd::builder(Version::V3_5).tls(&crate::support::Pki::new(), crate::support::Pki::new().server()).start();
    Scan::of(&format!("{},{}", other.endpoint(), etcd.endpoint())).ca(pki.ca()).works();
}

#[test]
fn a_scan_goes_on_by_another_endpoint() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        fill(&etcd);
        let (dying, other) =
            (Forwarder::new(etcd.port(), |traffic| traffic.answers < 500_000), Forwarder::new(etcd.port(), |_| true));
        let stdout = Scan::of(&format!("{},{}", dying.endpoint(), other.endpoint())).works();
        assert!(dying.is_dead());
        counts_all(&stdout);
    }
}

#[test]
fn a_scan_goes_on_by_the_same_endpoint_when_etcd_comes_back() {
    let mut etcd = Etcd::start(Version::V3_5);
    fill(&etcd);
    let reached = std::sync::Arc::new(AtomicBool::new(false));
    let slow = {
        let reached = std::sync::Arc::clone(&reached);
        Forwarder::new(etcd.port(), move |traffic| {
            if traffic.answers > 500_000 && !reached.swap(true, Ordering::SeqCst) {
                std::thread::sleep(Duration::from_secs(1));
            }
            true
        })
    };
    let scan = std::thread::spawn({
        let endpoint = slow.endpoint();
        move || Scan::of(&endpoint).works()
    });
    while !reached.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(5));
    }
    etcd.kill();
    std::thread::sleep(Duration::from_secs(2));
    etcd.restart();
    counts_all(&scan.join().unwrap());
}

#[test]
fn a_rekey_goes_on_by_another_endpoint() {
    let dir = tempfile::tempdir().unwrap();
    let config = configuration(&dir);
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        fill(&etcd);
        let (dying, other) =
            (Forwarder::new(etcd.port(), |traffic| traffic.requests < 500_000), Forwarder::new(etcd.port(), |_| true));
        let run = |args: &[&str], endpoints: &str| {
            let mut command = atrest();
            command.args(args).args(["--endpoints", endpoints]).arg("--encryption-provider-config").arg(&config);
            outcome(&mut command)
        };
        let endpoints = format!("{},{}", dying.endpoint(), other.endpoint());
        let rekeyed = run(&["rekey", "--yes", "--no-journal"], &endpoints);
        assert_eq!(rekeyed.code, Some(0), "{}{}", rekeyed.stdout, rekeyed.stderr);
        assert!(dying.is_dead());
        let verified = run(&["verify", "--expect", "current"], &etcd.endpoint());
        assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
        // Each was written once: no write was sent twice because its answer was lost.
        let stored = etcd.client().get_prefix("/registry/secrets/");
        assert_eq!(stored.iter().filter(|kv| kv.version() == 2).count(), COUNT);
    }
}

#[test]
fn a_scan_leaves_an_endpoint_that_answers_no_more() {
    let etcd = Etcd::start(Version::V3_5);
    fill(&etcd);
    let stuck = interrupted(&etcd, || std::thread::sleep(Duration::from_secs(3600)));
    let endpoints = format!("{},{}", stuck.endpoint(), etcd.endpoint());
    counts_all(&Scan::of(&endpoints).flag("--command-timeout", "2s").works());
}

/// A forwarder that acts once, in the middle of a scan.
fn interrupted(etcd: &Etcd, act: impl Fn() + Send + Sync + 'static) -> Forwarder {
    let done = AtomicBool::new(false);
    Forwarder::new(etcd.port(), move |traffic| {
        if traffic.answers > 500_000 && !done.swap(true, Ordering::SeqCst) {
            act();
        }
        true
    })
}

/// etcd forgets a user who is silent for five minutes.
#[test]
fn a_forgotten_user_authenticates_again() {
    for version in Version::ALL {
        let etcd = Etcd::builder(version).auth_enabled("correct horse").arg("--auth-token-ttl=1").start();
        fill(&etcd);
        let slow = interrupted(&etcd, || std::thread::sleep(Duration::from_secs(4)));
        counts_all(&Scan::of(&slow.endpoint()).flag("--user", "root:correct horse").works());
        assert!(etcd.log().contains("invalid auth token") || version == Version::V3_4, "the token did not expire");
    }
}

#[test]
fn a_password_that_was_changed_meanwhile_is_refused() {
    let etcd = Etcd::builder(Version::V3_5).auth_enabled("correct horse").arg("--auth-token-ttl=1").start();
    fill(&etcd);
    let client = etcd.client();
    let slow = interrupted(&etcd, move || {
        block_on(async { client.connect().await.user_change_password("root", "other").await }).unwrap();
        std::thread::sleep(Duration::from_secs(4));
    });
    let outcome = Scan::of(&slow.endpoint()).flag("--user", "root:correct horse").run();
    let error = "atrest: error: etcd does not accept the user \"root\" with this password\n\
                 atrest: hint: check --user, and --password or ETCDCTL_PASSWORD\n";
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(3), error));
}

/// A JSON web token is of one revision of the users and roles.
#[test]
fn a_change_of_users_is_survived() {
    let dir = tempfile::tempdir().unwrap();
    let (private, public) = (dir.path().join("jwt.pem"), dir.path().join("jwt.pub"));
    let openssl = |args: &[&str]| {
        let output = std::process::Command::new("openssl").args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let (private, public) = (private.to_str().unwrap(), public.to_str().unwrap());
    openssl(&["genrsa", "-traditional", "-out", private, "2048"]);
    openssl(&["rsa", "-in", private, "-pubout", "-out", public]);
    let token = format!("--auth-token=jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl=10m");
    for version in Version::ALL {
        let etcd = Etcd::builder(version).auth_enabled("correct horse").arg(&token).start();
        fill(&etcd);
        let client = etcd.client();
        let slow = interrupted(&etcd, move || {
            let client = client.clone();
            let add = async { client.connect().await.user_add("other", "x", None).await };
            block_on(add).unwrap();
        });
        counts_all(&Scan::of(&slow.endpoint()).flag("--user", "root:correct horse").works());
    }
}
