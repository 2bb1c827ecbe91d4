//! `atrest doctor` on a running etcd, on one that is full, and on one that is down.

use serde_json::{Value, json};

use crate::fixture::{Workshop, until};
use crate::support::{Etcd, Pki, TestKms, Version};

const THROW_AWAY: &str = "/atrest.doctor/";

fn figure<'a>(report: &'a Value, what: &str) -> &'a Value {
    let figures = report["measured"].as_array().expect("figures");
    figures.iter().find(|figure| figure["what"] == what).unwrap_or_else(|| panic!("{what}: {report:#}"))
}

/// Everything that is or was below the throw-away key's prefix.
fn left(etcd: &Etcd) -> usize {
    etcd.client().get_prefix(THROW_AWAY).len()
}

#[test]
fn a_running_etcd_is_measured_and_nothing_is_written() {
    for version in Version::ALL {
        let (etcd, workshop) = (Etcd::start(version), Workshop::new());
        etcd.client().put("compact_rev_key", "1");
        let before = etcd.client().revision();
        let report = workshop.run(&etcd, "doctor", ["-o", "json"]).json(0);
        assert_eq!(report["answer"], Value::Null, "{report:#}");
        assert_eq!(report["sources"][0]["read"], true);
        for what in [
            "p50 of linearizable read (100 calls)",
            "p99 of linearizable read (100 calls)",
            "p99 of serializable read (100 calls)",
            "connection",
        ] {
            assert!(figure(&report, what)["value"].as_f64().expect("seconds") > 0.0);
        }
        assert_eq!(figure(&report, "alarms")["value"], 0);
        assert_eq!(figure(&report, "leases")["value"], 0);
        assert!(figure(&report, "database file")["value"].as_u64().expect("bytes") > 0);
        assert_eq!(figure(&report, "revisions since API servers compacted last")["value"].as_i64(), Some(before - 1));
        assert!(figure(&report, "etcd")["value"].as_str().expect("text").contains("(leader, term "));
        assert_eq!(etcd.client().revision(), before);
    }
}

#[test]
fn a_write_probe_leaves_nothing_behind() {
    for version in Version::ALL {
        let (etcd, workshop) = (Etcd::start(version), Workshop::new());
        let ran = workshop.run(&etcd, "doctor", ["--write-probe", "-o", "json"]);
        let report = ran.json(0);
        assert!(ran.stderr.starts_with("atrest: warning: writing /atrest.doctor/"), "{}", ran.stderr);
        assert!(figure(&report, "p99 of compare and swap (100 calls)")["value"].as_f64().expect("seconds") > 0.0);
        assert_eq!(figure(&report, "throw-away key")["value"], "removed");
        // A hundred writes and a delete, and the first revision.
        assert_eq!((left(&etcd), etcd.client().revision()), (0, 102));
    }
}

#[test]
fn an_etcd_that_is_full_is_the_answer() {
    let etcd = Etcd::builder(Version::V3_5).arg("--quota-backend-bytes=4194304").start();
    let workshop = Workshop::new();
    let value = "x".repeat(120_000);
    until("the quota", || {
        let put = etcd.etcdctl(&["put", "/registry/configmaps/a/b", &value]);
        (!put.status.success()).then_some(())
    });
    let report = workshop.run(&etcd, "doctor", ["--write-probe", "-o", "json"]).json(1);
    assert_eq!((&report["answer"]["row"], &report["answer"]["axis"]), (&json!("quota"), &json!("mvcc")));
    let alarm =
        report["answer"]["evidence"].as_array().expect("figures").iter().find(|figure| figure["what"] == "alarm");
    assert_eq!(alarm.expect("the alarm")["value"], "NOSPACE");
    assert_eq!(figure(&report, "write")["value"], "the database of etcd has reached its quota (NOSPACE)");
    assert_eq!(figure(&report, "throw-away key")["value"], "removed");
    assert_eq!(left(&etcd), 0);
}

#[test]
fn metrics_of_a_running_etcd_are_read_by_url() {
    let (etcd, workshop) = (Etcd::start(Version::V3_5), Workshop::new());
    let url = format!("{}/metrics", etcd.endpoint());
    let args = ["--etcd-metrics", &url, "--etcd-metrics", &url, "--window", "1s", "-o", "json"];
    let report = workshop.run(&etcd, "doctor", args).json(0);
    let sources: Vec<_> = report["sources"]
        .as_array()
        .expect("sources")
        .iter()
        .map(|source| (&source["kind"], &source["read"]))
        .collect();
    assert_eq!(
        sources,
        [
            (&json!("etcd-metrics"), &json!(true)),
            (&json!("etcd-metrics"), &json!(true)),
            (&json!("etcd"), &json!(true))
        ]
    );
    assert_eq!(figure(&report, "quota")["value"], 2_147_483_648_u64);
    let known: Vec<_> = report["not_known"].as_array().expect("rows").iter().map(|row| &row["row"]).collect();
    assert!(!known.contains(&&json!("lease-expiry")) && !known.contains(&&json!("clock")), "{known:?}");
}

#[test]
fn metrics_are_read_with_tls_and_a_client_certificate() {
    let pki = Pki::new();
    let etcd = Etcd::builder(Version::V3_5).tls(&pki, pki.server()).client_cert_auth().start();
    let (url, client) = (format!("{}/metrics", etcd.endpoint()), pki.client("root"));
    let (ca, cert, key) = (pki.ca().to_str().unwrap(), client.cert.to_str().unwrap(), client.key.to_str().unwrap());
    let run = |args: &[&str]| {
        let args = ["-o", "json", "--etcd-metrics", &url].into_iter().chain(args.iter().copied());
        Workshop::new().run(&etcd, "doctor", args)
    };
    // etcd does not ask for a token, and takes one.
    let workshop = Workshop::new();
    let token = workshop.file("token", "hunter2\n");
    let token = token.to_str().unwrap();
    let all = ["--metrics-cacert", ca, "--metrics-cert", cert, "--metrics-key", key, "--metrics-token-file", token];
    let report = run(&all).json(0);
    assert_eq!(
        (&report["sources"][0]["kind"], &report["sources"][0]["read"]),
        (&json!("etcd-metrics"), &json!(true)),
        "{report:#}"
    );
    let report = run(&["--metrics-cert", cert, "--metrics-key", key]).json(4);
    assert!(report["sources"][0]["detail"].as_str().unwrap().contains("certificate"), "{report:#}");
    let report = run(&["--metrics-cacert", ca]).json(4);
    assert_eq!(report["sources"][0]["read"], false, "{report:#}");
}

#[test]
fn a_kms_plugin_is_asked_and_a_broken_one_is_the_answer() {
    let (kms, etcd, workshop) = (TestKms::start(), Etcd::start(Version::V3_5), Workshop::new());
    let report = workshop.run(&etcd, "doctor", ["--kms-endpoint", &kms.endpoint(), "-o", "json"]).json(0);
    assert_eq!(report["answer"], Value::Null, "{report:#}");
    for what in ["p99 of Encrypt", "p99 of Decrypt"] {
        assert!(figure(&report, what)["value"].as_f64().expect("seconds") > 0.0);
    }
    kms.set(|behaviour| behaviour.healthz = "the token has expired".to_owned());
    let report = workshop.run(&etcd, "doctor", ["--kms-endpoint", &kms.endpoint(), "-o", "json"]).json(1);
    assert_eq!(
        (&report["answer"]["row"], &report["answer"]["axis"]),
        (&json!("kms-checks"), &json!("kms")),
        "{report:#}"
    );
    assert_eq!(report["answer"]["evidence"][0]["what"], "v2/healthz");
}

#[test]
fn an_etcd_that_went_down_or_does_not_answer_is_the_answer() {
    let (mut etcd, workshop) = (Etcd::start(Version::V3_5), Workshop::new());
    etcd.pause();
    let report = workshop.run(&etcd, "doctor", ["--write-probe", "--dial-timeout", "2s", "-o", "json"]).json(1);
    assert_eq!(report["answer"]["row"], "etcd-unreachable");
    etcd.resume();
    etcd.kill();
    let report = workshop.run(&etcd, "doctor", ["--dial-timeout", "2s", "-o", "json"]).json(1);
    assert_eq!(report["answer"]["evidence"][0]["value"], "connection refused");
}

/// Endpoints of two clusters looked healthy.
#[test]
fn endpoints_of_two_clusters_are_the_answer() {
    // The ID is made of the peers' names, their URLs and this token; all test servers have the same of the first two.
    let other = Etcd::builder(Version::V3_5).arg("--initial-cluster-token=other").start();
    let etcd = Etcd::start(Version::V3_5);
    let both = format!("{},{}", etcd.endpoint(), other.endpoint());
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_atrest"))
        .args(["doctor", "--endpoints", &both, "-o", "json"])
        .output()
        .expect("atrest");
    let report: Value = serde_json::from_slice(&run.stdout).expect("JSON");
    assert_eq!((run.status.code(), &report["answer"]["row"]), (Some(1), &json!("two-clusters")), "{report:#}");
    assert_ne!(report["answer"]["evidence"][0]["value"], report["answer"]["evidence"][1]["value"]);
}

/// https on an etcd without TLS was told as rustls has it, and the first step was whether etcd runs.
#[test]
fn a_wrong_scheme_is_told() {
    let etcd = Etcd::start(Version::V3_5);
    let https = etcd.endpoint().replace("http://", "https://");
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_atrest"))
        .args(["doctor", "--endpoints", &https, "--etcd-metrics", &format!("{https}/metrics"), "--dial-timeout", "5s"])
        .args(["-o", "json"])
        .output()
        .expect("atrest");
    let report: Value = serde_json::from_slice(&run.stdout).expect("JSON");
    let detail = report["sources"][0]["detail"].as_str().expect("text");
    assert!(detail.starts_with("the server seems not to speak TLS: is http:// meant?"), "{report:#}");
    assert_eq!(report["answer"]["row"], "etcd-unreachable");
    let first = report["answer"]["next"][0].as_str().expect("text");
    assert!(first.starts_with("the scheme: that etcd speaks no TLS"), "{report:#}");
}
