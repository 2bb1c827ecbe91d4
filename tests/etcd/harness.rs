//! The tests' own tools do what they say.

use std::ffi::OsString;
use std::process::Output;

use crate::support::{Algorithm, Etcd, KeyEncoding, Pki, Request, Version, vector, vector_lines};

const LOCAL: &str = "snapshots/local.db.gz";

/// What etcdctl printed, which must have worked.
fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// What etcdctl complained of, which must have failed.
fn complained(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn flags(flags: &[(&str, &std::path::Path)], etcd: &Etcd) -> Vec<OsString> {
    let mut all = vec!["--endpoints".into(), etcd.endpoint().into(), "--command-timeout=300ms".into()];
    all.extend(flags.iter().flat_map(|(flag, file)| [OsString::from(flag), file.as_os_str().to_owned()]));
    all
}

/// Whether etcdctl, which waits out its time, is refused and that is why. On a busy machine its time may be up too early.
fn refused(etcd: &Etcd, with: &[OsString], why: impl Fn(&str) -> bool) -> bool {
    (0..20).any(|_| why(&complained(&etcd.etcdctl_with(with, &["get", "/a"]))))
}

#[test]
fn both_versions_start_and_are_what_they_say() {
    for (version, expected) in Version::ALL.into_iter().zip(["3.4.", "3.5."]) {
        let etcd = Etcd::start(version);
        let status = said(&etcd.etcdctl(&["endpoint", "status", "--write-out=json"]));
        assert!(status.contains(&format!(r#""version":"{expected}"#)), "{status}");
    }
}

#[test]
fn bytes_are_kept_with_their_lease_and_history() {
    for version in Version::ALL {
        let server = Etcd::start(version);
        let etcd = server.client();
        let lease = etcd.grant_lease(600);
        let first = etcd.put_with_lease("/a", [0, 255, 10], lease);
        let second = etcd.put("/b", "x");
        etcd.put("/b", "y");
        assert_eq!(etcd.get("/a").unwrap().value(), [0, 255, 10]);
        assert_eq!(etcd.get("/a").unwrap().lease(), lease);
        assert_eq!(etcd.get("/a").unwrap().mod_revision(), first);
        assert_eq!(etcd.get_at("/b", second).unwrap().value(), b"x");
        assert!(etcd.get("/c").is_none());
        assert!((1..=600).contains(&etcd.lease_ttl(lease)));
        assert_eq!(etcd.lease_keys(lease), [b"/a"]);
        assert_eq!(etcd.leases(), [lease]);
        assert_eq!(etcd.get_prefix("").len(), 2);
        assert!(etcd.delete("/a"));
        assert!(!etcd.delete("/a"));
        assert_eq!(etcd.revision(), second + 2);
        etcd.compact(second + 1);
        // Its length, a multiple of the pages', is followed by its hash.
        assert_eq!(etcd.snapshot().len() % 512, 32);
    }
}

#[tokio::test]
async fn the_blocking_client_may_be_used_in_asynchronous_tests() {
    let etcd = Etcd::start(Version::V3_5);
    etcd.client().put("/a", "1");
    let answer = etcd.client().connect().await.get("/a", None).await.unwrap();
    assert_eq!(answer.count(), 1);
}

#[test]
fn a_restored_snapshot_has_every_key_with_its_revisions_and_lease() {
    let expected = vector_lines("snapshots/local.expected.jsonl");
    for version in Version::ALL {
        let etcd = Etcd::builder(version).restored_from(vector(LOCAL)).start();
        let stored = etcd.client().get_prefix("/registry/");
        assert_eq!(stored.len(), expected.len());
        for (stored, expected) in stored.iter().zip(&expected) {
            assert_eq!(stored.key_str().unwrap(), expected["key"]);
            assert_eq!(stored.create_revision(), expected["create_revision"]);
            assert_eq!(stored.mod_revision(), expected["mod_revision"]);
            assert_eq!(stored.version(), expected["version"]);
            assert_eq!(stored.lease().to_string(), expected["lease"].as_str().unwrap());
            assert_eq!(stored.value().len(), expected["stored_len"]);
        }
        let leases = etcd.client().leases();
        assert!(stored.iter().all(|kv| kv.lease() == 0 || leases.contains(&kv.lease())), "{leases:?}");
    }
}

#[test]
fn a_killed_etcd_comes_back_with_its_data_on_its_port() {
    for version in Version::ALL {
        let mut etcd = Etcd::start(version);
        let endpoint = etcd.endpoint();
        etcd.client().put("/a", "1");
        etcd.kill();
        complained(&etcd.etcdctl_with(&flags(&[], &etcd), &["get", "/a"]));
        etcd.restart();
        assert_eq!(etcd.endpoint(), endpoint);
        assert_eq!(said(&etcd.etcdctl(&["get", "/a", "--print-value-only"])), "1");
        etcd.restart();
        assert_eq!(etcd.client().get("/a").unwrap().value(), b"1");
    }
}

#[test]
fn a_paused_etcd_answers_when_it_is_resumed() {
    let etcd = Etcd::start(Version::V3_5);
    etcd.client().put("/a", "1");
    etcd.pause();
    complained(&etcd.etcdctl_with(&flags(&[], &etcd), &["get", "/a"]));
    etcd.resume();
    assert_eq!(etcd.client().get("/a").unwrap().value(), b"1");
}

#[test]
fn a_password_is_asked_for() {
    for version in Version::ALL {
        let mut etcd = Etcd::builder(version).auth_enabled("correct horse").start();
        assert_eq!(said(&etcd.etcdctl(&["put", "/a", "1"])), "OK");
        assert_eq!(etcd.client().get("/a").unwrap().value(), b"1");
        assert!(refused(&etcd, &flags(&[], &etcd), |stderr| stderr.contains("user name is empty")));
        etcd.restart();
        assert_eq!(etcd.client().get("/a").unwrap().value(), b"1");
    }
}

#[test]
fn tls_is_served_to_who_trusts_the_authority() {
    let (pki, other) = (Pki::new(), Pki::new());
    for version in Version::ALL {
        let etcd = Etcd::builder(version).tls(&pki, pki.server()).start();
        assert_eq!(said(&etcd.etcdctl(&["put", "/a", "1"])), "OK");
        assert_eq!(etcd.client().get("/a").unwrap().value(), b"1");
        // etcdctl 3.4 says only that time is up.
        let why = |_: &str| etcd.log().contains("remote error: tls: bad certificate");
        assert!(refused(&etcd, &flags(&[("--cacert", other.ca())], &etcd), why));
    }
}

#[test]
fn a_client_certificate_is_asked_for() {
    let (pki, other) = (Pki::new(), Pki::new());
    for version in Version::ALL {
        let etcd = Etcd::builder(version).tls(&pki, pki.server()).client_cert_auth().start();
        assert_eq!(said(&etcd.etcdctl(&["put", "/a", "1"])), "OK");
        let (foreign, expired) = (other.client("root"), pki.issue(&Request::client("root").expired()));
        let ca = ("--cacert", pki.ca());
        let strangers = [
            (vec![ca], "didn't provide a certificate"),
            (vec![ca, ("--cert", &foreign.cert), ("--key", &foreign.key)], "unknown authority"),
            (vec![ca, ("--cert", &expired.cert), ("--key", &expired.key)], "has expired"),
        ];
        for (stranger, reason) in strangers {
            // The client is told nothing, or that time is up.
            assert!(refused(&etcd, &flags(&stranger, &etcd), |_| etcd.log().contains(reason)), "{reason}");
        }
    }
}

#[test]
fn client_keys_of_every_kind_are_good() {
    let pki = Pki::new();
    let etcd = Etcd::builder(Version::V3_5).tls(&pki, pki.server()).client_cert_auth().start();
    for algorithm in Algorithm::ALL {
        for encoding in [KeyEncoding::Pkcs8, KeyEncoding::Traditional] {
            let client = pki.issue(&Request::client("root").algorithm(algorithm).encoding(encoding));
            let kind = match (encoding, algorithm) {
                (KeyEncoding::Pkcs8, _) => "",
                (KeyEncoding::Traditional, Algorithm::Rsa2048) => "RSA ",
                (KeyEncoding::Traditional, _) => "EC ",
            };
            let pem = std::fs::read_to_string(&client.key).unwrap();
            assert!(pem.starts_with(&format!("-----BEGIN {kind}PRIVATE KEY-----\n")), "{algorithm:?} {encoding:?}");
            let client = [("--cacert", pki.ca()), ("--cert", &client.cert), ("--key", &client.key)];
            let mut with = flags(&client, &etcd);
            with.push("--command-timeout=5s".into());
            let answer = etcd.etcdctl_with(&with, &["put", "/a", "1"]);
            assert_eq!(said(&answer), "OK", "{algorithm:?} {encoding:?}");
        }
    }
}

#[test]
fn servers_with_bad_certificates_start_and_are_refused() {
    let pki = Pki::new();
    let bad = [Request::server(&["other.example"]), Request::server(&[]), Request::server(&["127.0.0.1"]).expired()];
    for request in bad {
        let etcd = Etcd::builder(Version::V3_5).tls(&pki, pki.issue(&request)).start();
        etcd.client().put("/a", "1");
        assert!(
            refused(&etcd, &flags(&[("--cacert", pki.ca())], &etcd), |stderr| stderr.contains("x509")),
            "{request:?}"
        );
    }
}

#[test]
fn ipv6_and_unix_sockets_are_served() {
    for version in Version::ALL {
        let etcd = Etcd::builder(version).ipv6().start();
        assert!(etcd.endpoint().starts_with("http://[::1]:"));
        assert_eq!(said(&etcd.etcdctl(&["put", "/a", "1"])), "OK");
        let etcd = Etcd::builder(version).unix_socket().start();
        assert_eq!(said(&etcd.etcdctl(&["put", "/a", "1"])), "OK");
        assert!(etcd.socket().exists());
    }
}

#[test]
fn an_argument_reaches_etcd() {
    for version in Version::ALL {
        let etcd = Etcd::builder(version).arg("--max-request-bytes=1024").start();
        let refusal = complained(&etcd.etcdctl(&["put", "/a", &"x".repeat(4096)]));
        assert!(refusal.contains("request is too large"), "{refusal}");
    }
}

#[test]
#[should_panic(expected = "etcd does not start")]
fn an_etcd_that_does_not_start_is_a_failure() {
    Etcd::builder(Version::V3_5).arg("--no-such-flag").start();
}
