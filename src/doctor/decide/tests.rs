//! Every row can be reached, and none says what the evidence does not show.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::doctor::evidence::{Clock, ConfigurationErrors, EtcdProbe, KmsProbe, MemberProbe, Timing, WriteProbe};
use crate::doctor::metrics::{Metrics, Scrape, targets};
use crate::doctor::{LogSummary, ManifestProblem};
use crate::report::DoctorSource;

/// A histogram with so many observations of one value, which lies right below an upper end.
fn histogram(text: &mut String, name: &str, labels: &str, observed: &[(f64, u32)]) {
    let comma = if labels.is_empty() { "" } else { "," };
    for end in [0.001, 0.004, 0.01, 0.05, 0.2, 0.5, 1.0, 5.0, 60.0, f64::INFINITY] {
        let count: u32 = observed.iter().filter(|(value, _)| *value <= end).map(|(_, count)| count).sum();
        let end = if end.is_infinite() { "+Inf".to_owned() } else { end.to_string() };
        writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{end}\"}} {count}").unwrap();
    }
}

/// A fast API server, but for these histograms.
fn apiserver(slow: &[(&str, &str, f64)], more: &str) -> String {
    let mut text = more.to_owned();
    for (name, labels) in [
        ("apiserver_request_sli_duration_seconds", "verb=\"GET\",scope=\"resource\""),
        ("apiserver_request_sli_duration_seconds", "verb=\"POST\",scope=\"resource\""),
        ("apiserver_request_sli_duration_seconds", "verb=\"LIST\",scope=\"namespace\""),
        ("etcd_request_duration_seconds", "operation=\"get\""),
        ("etcd_request_duration_seconds", "operation=\"update\""),
        ("etcd_request_duration_seconds", "operation=\"list\""),
        ("apiserver_storage_transformation_duration_seconds", "transformation_type=\"from_storage\""),
    ] {
        let seconds =
            slow.iter().find(|(other, of, _)| *other == name && labels.contains(of)).map_or(0.001, |slow| slow.2);
        histogram(&mut text, name, labels, &[(seconds, 100)]);
    }
    text
}

/// A fast etcd, but for these histograms.
fn etcd(slow: &[(&str, f64)], more: &str) -> String {
    let mut text = format!("{more}\netcd_server_has_leader 1\n");
    for name in ["etcd_disk_wal_fsync_duration_seconds", "etcd_disk_backend_commit_duration_seconds"] {
        let seconds = slow.iter().find(|(other, _)| *other == name).map_or(0.001, |slow| slow.1);
        histogram(&mut text, name, "", &[(seconds, 100)]);
    }
    text
}

#[derive(Default)]
struct Case {
    apiserver: Vec<String>,
    etcd: Vec<String>,
    log: &'static str,
    evidence: Evidence,
}

fn of_apiserver(slow: &[(&str, &str, f64)], more: &str) -> Case {
    Case { apiserver: vec![apiserver(slow, more)], ..Case::default() }
}

fn of_both(api: String, etcd: String) -> Case {
    Case { apiserver: vec![api], etcd: vec![etcd], ..Case::default() }
}

fn of_log(log: &'static str) -> Case {
    Case { log, ..Case::default() }
}

fn of_window(first: &str, last: &str) -> Case {
    let text =
        |cpu: u32, more: &str| format!("process_start_time_seconds 5\nprocess_cpu_seconds_total {cpu}\n{more}\n");
    Case { etcd: vec![text(1, first), text(2, last)], ..Case::default() }
}

fn of_probe(probe: EtcdProbe) -> Case {
    Case { evidence: Evidence { etcd: Some(probe), ..Evidence::default() }, ..Case::default() }
}

fn of_kms(error: &str) -> Case {
    let kms = KmsProbe {
        name: "k".to_owned(),
        endpoint: "unix:///s".to_owned(),
        error: Some(error.to_owned()),
        failed: Vec::new(),
        latency: Vec::new(),
        timeout: Duration::from_secs(3),
    };
    Case { evidence: Evidence { kms: vec![kms], ..Evidence::default() }, ..Case::default() }
}

fn two_members(a: u64, b: u64) -> EtcdProbe {
    let of = |cluster: u64| member(|member| member.cluster_id = cluster);
    EtcdProbe { members: vec![of(a), of(b)], alarms: Some(Vec::new()), ..EtcdProbe::default() }
}

fn source(kind: &'static str) -> DoctorSource {
    DoctorSource { kind, name: "file".to_owned(), read: true, detail: String::new() }
}

impl Case {
    fn diagnose(self) -> DoctorReport {
        let scrapes = |texts: &[String]| {
            let scrape = |(i, text): (usize, &String)| Scrape {
                name: format!("m{i}"),
                metrics: Metrics::parse(text.as_bytes()),
                at: None,
            };
            targets(texts.iter().enumerate().map(scrape).collect())
        };
        let mut evidence = self.evidence;
        evidence.apiservers = scrapes(&self.apiserver);
        evidence.etcd_metrics = scrapes(&self.etcd);
        if !self.log.is_empty() {
            evidence.log = Some(LogSummary::read("log", &mut self.log.as_bytes()).unwrap());
        }
        diagnose(evidence)
    }
}

fn member(change: impl FnOnce(&mut MemberProbe)) -> MemberProbe {
    let mut member = MemberProbe {
        endpoint: "http://a:2379".to_owned(),
        version: "3.6.8".to_owned(),
        member_id: 1,
        leader: 1,
        ..MemberProbe::default()
    };
    change(&mut member);
    member
}

const S: &str = "apiserver_request_sli_duration_seconds";
const E: &str = "etcd_request_duration_seconds";
const T: &str = "apiserver_storage_transformation_duration_seconds";
const FSYNC: &str = "etcd_disk_wal_fsync_duration_seconds";
const COMMIT: &str = "etcd_disk_backend_commit_duration_seconds";

fn with_histogram(text: &str, name: &str, labels: &str, seconds: f64) -> String {
    let mut text = text.to_owned();
    histogram(&mut text, name, labels, &[(seconds, 100)]);
    text
}

/// A case for each row, whose answer it is.
fn cases() -> Vec<(&'static str, Case)> {
    let all_slow: &[(&str, &str, f64)] = &[(E, "get", 0.5), (E, "update", 0.5), (E, "list", 5.0)];
    let writes_slow: &[(&str, &str, f64)] = &[(E, "update", 0.5)];
    let mut cold = apiserver(
        &[(S, "GET", 5.0)],
        "process_start_time_seconds 5\nprocess_cpu_seconds_total 9\napiserver_envelope_encryption_dek_source_cache_size 60\n",
    );
    cold.push_str("apiserver_envelope_encryption_kms_operations_latency_seconds_count{method_name=\"/v2.KeyManagementService/Decrypt\",grpc_status_code=\"OK\"} 50\n");
    let warm = "process_start_time_seconds 5\nprocess_cpu_seconds_total 1\n".to_owned();
    vec![
        (
            "no-encryption-config",
            Case {
                evidence: Evidence {
                    sources: vec![source("manifest")],
                    manifest: vec![ManifestProblem::NoEncryptionConfig],
                    configuration: vec![ConfigurationErrors { path: PathBuf::from("enc.yaml"), errors: Vec::new() }],
                    ..Evidence::default()
                },
                ..Case::default()
            },
        ),
        (
            "configuration-invalid",
            Case {
                evidence: Evidence {
                    configuration: vec![ConfigurationErrors {
                        path: PathBuf::from("enc.yaml"),
                        errors: vec!["3:5: x".to_owned()],
                    }],
                    ..Evidence::default()
                },
                ..Case::default()
            },
        ),
        (
            "manifest",
            Case {
                evidence: Evidence {
                    sources: vec![source("manifest")],
                    manifest: vec![ManifestProblem::NoCompaction],
                    ..Evidence::default()
                },
                ..Case::default()
            },
        ),
        (
            "kms-socket-mount",
            Case {
                evidence: Evidence {
                    sources: vec![source("manifest")],
                    manifest: vec![ManifestProblem::SocketNotMounted { provider: "k".to_owned(), path: "/s".into() }],
                    ..Evidence::default()
                },
                ..Case::default()
            },
        ),
        (
            "etcd-unreachable",
            of_probe(EtcdProbe {
                members: vec![member(|member| member.error = Some("connection refused".to_owned()))],
                ..EtcdProbe::default()
            }),
        ),
        (
            "flowcontrol",
            of_apiserver(
                &[(S, "GET", 5.0)],
                "apiserver_flowcontrol_rejected_requests_total{priority_level=\"a\",reason=\"queue-full\"} 3\n",
            ),
        ),
        (
            "webhook",
            of_apiserver(
                &[(S, "POST", 5.0)],
                &with_histogram(
                    "",
                    "apiserver_admission_webhook_admission_duration_seconds",
                    "name=\"w\",operation=\"CREATE\"",
                    5.0,
                ),
            ),
        ),
        (
            "list-filtering",
            of_apiserver(
                &[(S, "LIST", 60.0)],
                "apiserver_storage_list_fetched_objects_total{resource=\"pods\"} 1e6\napiserver_storage_list_returned_objects_total{resource=\"pods\"} 10\n",
            ),
        ),
        (
            "cache-reinitializing",
            of_apiserver(
                &[],
                "apiserver_request_total{code=\"429\",verb=\"LIST\",resource=\"secrets\"} 7\napiserver_watch_cache_initializations_total{resource=\"secrets\"} 40\n",
            ),
        ),
        (
            "cache-behind",
            of_apiserver(
                &[],
                &with_histogram(
                    "apiserver_request_total{code=\"504\",verb=\"GET\"} 70\n",
                    "apiserver_watch_cache_read_wait_seconds",
                    "",
                    5.0,
                ),
            ),
        ),
        ("watchers-terminated", of_apiserver(&[], "apiserver_terminated_watchers_total{resource=\"pods\"} 700\n")),
        (
            "cache-inconsistent",
            of_apiserver(&[], "apiserver_storage_consistency_checks_total{resource=\"pods\",status=\"failure\"} 1\n"),
        ),
        (
            "transformation-failed",
            of_apiserver(
                &[],
                "apiserver_request_total{code=\"500\",verb=\"GET\",resource=\"secrets\"} 7\n\
                 apiserver_storage_transformation_operations_total{resource=\"secrets\",status=\"unknown-non-grpc\",transformation_type=\"from_storage\",transformer_prefix=\"unknown\"} 7\n",
            ),
        ),
        (
            "decode-failed",
            of_apiserver(&[], "apiserver_storage_decode_errors_total{resource=\"widgets\",group=\"a.b\"} 7\n"),
        ),
        ("kms-socket", of_kms("connect: No such file or directory (os error 2)")),
        (
            "kms",
            of_apiserver(
                &[(T, "from_storage", 0.5)],
                &with_histogram(
                    "",
                    "apiserver_envelope_encryption_kms_operations_latency_seconds",
                    "provider_name=\"k\",method_name=\"/v2.KeyManagementService/Decrypt\",grpc_status_code=\"OK\"",
                    0.5,
                ),
            ),
        ),
        ("kms-cold-cache", Case { apiserver: vec![warm, cold], ..Case::default() }),
        (
            "network-to-etcd",
            of_both(
                apiserver(all_slow, "grpc_client_handled_total{grpc_code=\"Unavailable\",grpc_method=\"Range\"} 7\n"),
                etcd(&[], ""),
            ),
        ),
        (
            "raft-leader",
            of_both(
                apiserver(all_slow, ""),
                etcd(&[], "etcd_server_leader_changes_seen_total 17\netcd_server_heartbeat_send_failures_total 90\n"),
            ),
        ),
        ("wal-fsync", of_both(apiserver(writes_slow, ""), etcd(&[(FSYNC, 0.05)], ""))),
        ("backend-commit", of_both(apiserver(writes_slow, ""), etcd(&[(COMMIT, 0.2)], ""))),
        (
            "apply-behind",
            Case {
                etcd: vec![etcd(
                    &[],
                    "etcd_server_proposals_pending 500\netcd_server_proposals_committed_total 9000\netcd_server_proposals_applied_total 4100\n",
                )],
                ..Case::default()
            },
        ),
        (
            "read-index",
            of_both(apiserver(&[(E, "get", 0.5)], ""), etcd(&[], "etcd_server_slow_read_indexes_total 400\n")),
        ),
        ("large-store", of_both(apiserver(&[(E, "list", 5.0)], ""), etcd(&[], "etcd_debugging_mvcc_keys_total 3e6\n"))),
        (
            "quota",
            Case {
                etcd: vec![etcd(&[], "etcd_debugging_server_alarms{server_id=\"1\",alarm_type=\"NOSPACE\"} 1\n")],
                ..Case::default()
            },
        ),
        (
            "slow-watchers",
            Case {
                etcd: vec![etcd(
                    &[],
                    "etcd_debugging_mvcc_slow_watcher_total 4\netcd_debugging_mvcc_pending_events_total 90\n",
                )],
                ..Case::default()
            },
        ),
        (
            "lease-expiry",
            of_window(
                "etcd_mvcc_delete_total 5\netcd_debugging_server_lease_expired_total 1",
                "etcd_mvcc_delete_total 2005\netcd_debugging_server_lease_expired_total 3",
            ),
        ),
        (
            "lease-grants",
            of_window(
                "etcd_debugging_lease_granted_total 5\netcd_debugging_mvcc_events_total 1",
                "etcd_debugging_lease_granted_total 205\netcd_debugging_mvcc_events_total 9",
            ),
        ),
        ("request-too-large", of_log("E1130 00:00:00.0 1 x.go:1] etcdserver: request is too large\n")),
        ("two-clusters", of_probe(two_members(1, 2))),
        (
            "corrupt-alarm",
            of_probe(EtcdProbe {
                members: vec![member(|_| {})],
                alarms: Some(vec![("1".to_owned(), "CORRUPT")]),
                ..EtcdProbe::default()
            }),
        ),
        (
            "quota-near",
            of_probe(EtcdProbe {
                members: vec![member(|member| (member.db_size, member.db_size_in_use, member.quota) = (85, 80, 100))],
                alarms: Some(Vec::new()),
                write: Some(WriteProbe {
                    key: "k".to_owned(),
                    times: Timing::default(),
                    error: None,
                    no_space: false,
                    removed: true,
                }),
                ..EtcdProbe::default()
            }),
        ),
        (
            "kms-checks",
            Case {
                evidence: Evidence {
                    kms: vec![KmsProbe {
                        name: "k".to_owned(),
                        endpoint: "unix:///s".to_owned(),
                        error: None,
                        failed: vec![("v2/key-id".to_owned(), "empty".to_owned())],
                        latency: vec![("Decrypt", Duration::from_millis(1), Duration::from_millis(2))],
                        timeout: Duration::from_secs(3),
                    }],
                    ..Evidence::default()
                },
                ..Case::default()
            },
        ),
        (
            "clock",
            Case {
                evidence: Evidence {
                    clocks: vec![Clock { source: "https://a".to_owned(), ahead_seconds: -61, uncertain_seconds: 1 }],
                    ..Evidence::default()
                },
                ..Case::default()
            },
        ),
        ("quota-over", of_log("mvcc: database space exceeded\n{\"msg\":\"alarm disarmed\",\"alarm\":\"NOSPACE\"}\n")),
        (
            "encryption-off",
            Case {
                evidence: Evidence {
                    sources: vec![source("manifest")],
                    manifest: vec![ManifestProblem::NoEncryptionConfig],
                    ..Evidence::default()
                },
                ..Case::default()
            },
        ),
    ]
}

#[test]
fn every_row_can_be_the_answer() {
    let mut reached = Vec::new();
    for (row, case) in cases() {
        let report = case.diagnose();
        let answer = report.answer.unwrap_or_else(|| panic!("{row}: {:#?}", report.not_known));
        assert_eq!(answer.row, row);
        assert!(!answer.evidence.is_empty() && !answer.next.is_empty(), "{answer:#?}");
        reached.push((answer.row, answer.axis));
    }
    assert_eq!(reached, rows().collect::<Vec<_>>());
}

#[test]
fn without_evidence_nothing_is_claimed_and_every_row_says_what_is_missing() {
    let report = Case::default().diagnose();
    assert_eq!((report.answer, report.findings.len()), (None, 0));
    assert_eq!(
        report.not_known.iter().map(|row| row.row).collect::<Vec<_>>(),
        rows().map(|(row, _)| row).collect::<Vec<_>>()
    );
    assert!(report.not_known.iter().all(|row| !row.missing.is_empty() && row.hints.is_empty()));
}

#[test]
fn healthy_servers_have_no_finding() {
    let report = of_both(apiserver(&[], ""), etcd(&[], "")).diagnose();
    assert_eq!((report.answer, report.findings.len()), (None, 0));
}

/// Over weeks every server has seen a restart, a slow client, a webhook that was away and a rotation.
#[test]
fn what_has_gathered_over_weeks_is_no_finding() {
    let api = "apiserver_request_total{code=\"429\",verb=\"LIST\",resource=\"pods\"} 90\n\
        apiserver_request_total{code=\"500\",verb=\"POST\",resource=\"pods\"} 9\n\
        apiserver_request_total{code=\"504\",verb=\"GET\",resource=\"pods\"} 60\n\
        apiserver_watch_cache_initializations_total{resource=\"pods\"} 1\n\
        apiserver_watch_cache_initializations_total{resource=\"secrets\"} 1\n\
        apiserver_watch_cache_initializations_total{resource=\"nodes\"} 1\n\
        apiserver_watch_cache_consistent_read_total{resource=\"pods\",fallback=\"true\"} 30\n\
        apiserver_terminated_watchers_total{resource=\"pods\"} 40\n\
        apiserver_flowcontrol_rejected_requests_total{priority_level=\"a\"} 5\n\
        apiserver_storage_transformation_operations_total{resource=\"secrets\",status=\"unknown-non-grpc\",transformation_type=\"from_storage\",transformer_prefix=\"k8s:enc:aescbc:v1:\"} 900\n\
        apiserver_storage_transformation_operations_total{resource=\"secrets\",status=\"OK\",transformation_type=\"from_storage\",transformer_prefix=\"k8s:enc:aescbc:v1:\"} 90000\n\
        apiserver_storage_transformation_operations_total{resource=\"secrets\",status=\"Unavailable\",transformation_type=\"to_storage\"} 3\n\
        apiserver_envelope_encryption_kms_operations_latency_seconds_count{method_name=\"/v2.KeyManagementService/Status\",grpc_status_code=\"Unavailable\"} 4\n\
        grpc_client_handled_total{grpc_code=\"Unavailable\"} 40\n";
    let member = "etcd_server_leader_changes_seen_total 2\netcd_server_slow_apply_total 300\netcd_server_proposals_failed_total 3\n\
        etcd_server_heartbeat_send_failures_total 12\netcd_mvcc_delete_total 9e6\netcd_debugging_lease_granted_total 9e5\n";
    let report = of_both(apiserver(&[], api), etcd(&[], member)).diagnose();
    assert_eq!((report.answer, report.findings), (None, Vec::new()));
}

/// Who looks from far away has slow reads of his own.
#[test]
fn what_the_api_server_sees_counts_before_what_is_measured_here() {
    let slow = || Timing::new(vec![Duration::from_millis(300); 20]);
    let probe = || EtcdProbe {
        members: vec![member(|_| {})],
        linearizable: slow(),
        serializable: slow(),
        ..EtcdProbe::default()
    };
    let mut case = of_both(
        apiserver(&[], ""),
        etcd(&[], "etcd_server_leader_changes_seen_total 9\netcd_server_heartbeat_send_failures_total 90\n"),
    );
    case.evidence.etcd = Some(probe());
    assert_eq!(case.diagnose().answer, None);
    let mut alone = of_probe(probe());
    alone.etcd =
        vec![etcd(&[], "etcd_server_leader_changes_seen_total 9\netcd_server_heartbeat_send_failures_total 90\n")];
    assert_eq!(alone.diagnose().answer.map(|answer| answer.row), Some("raft-leader"));
}

#[test]
fn a_confirmation_without_its_symptom_is_a_hint_and_no_answer() {
    let report = Case { etcd: vec![etcd(&[(FSYNC, 0.05)], "")], ..Case::default() }.diagnose();
    assert_eq!(report.answer, None);
    let row = report.not_known.iter().find(|row| row.row == "wal-fsync").unwrap();
    assert_eq!(row.missing, ["API server metrics (--apiserver-metrics)", "a running etcd (--endpoints)"]);
    assert_eq!(row.hints[0].what, "p99 of WAL fsync (100 calls)");
}

#[test]
fn the_first_row_answers_and_the_others_follow() {
    let case = of_both(
        apiserver(&[(E, "update", 0.5)], "apiserver_storage_consistency_checks_total{status=\"failure\"} 1\n"),
        etcd(&[(FSYNC, 0.05)], ""),
    );
    let report = case.diagnose();
    assert_eq!(report.answer.map(|answer| answer.row), Some("cache-inconsistent"));
    assert_eq!(report.findings.iter().map(|finding| finding.row).collect::<Vec<_>>(), ["wal-fsync"]);
}

#[test]
fn a_few_calls_tell_nothing() {
    let mut text = String::new();
    histogram(&mut text, FSYNC, "", &[(0.5, 5)]);
    let report = of_both(apiserver(&[(E, "update", 0.5)], ""), text).diagnose();
    assert_eq!(report.answer, None);
    let row = report.not_known.iter().find(|row| row.row == "wal-fsync").unwrap();
    assert_eq!(row.missing, [format!("more of {FSYNC}")]);
}

#[test]
fn what_is_normal_over_weeks_is_told_of_a_window_only() {
    let leases = "etcd_mvcc_delete_total 2000000\netcd_debugging_server_lease_expired_total 30000\netcd_debugging_lease_granted_total 99999\n";
    let report = Case { etcd: vec![etcd(&[], leases)], ..Case::default() }.diagnose();
    assert_eq!(report.answer, None);
    let row = report.not_known.iter().find(|row| row.row == "lease-expiry").unwrap();
    assert!(row.missing.contains(&"a second reading of etcd (--etcd-metrics twice)".to_owned()), "{row:?}");
}

#[test]
fn a_log_alone_answers_by_its_most_frequent_text() {
    let report =
        of_log("etcdserver: leader changed\nfailed calling webhook x\netcdserver: leader changed\n").diagnose();
    let answer = report.answer.unwrap();
    assert_eq!((answer.row, answer.axis), ("log-text", Axis::Raft));
    assert_eq!(
        report.log.iter().map(|text| (text.explanation, text.count)).collect::<Vec<_>>(),
        [("lost-leader", 2), ("webhook", 1)]
    );
}

#[test]
fn a_log_with_a_value_that_does_not_open_is_about_the_transformer() {
    let report = of_log("x: unable to transform key \"/registry/secrets/a/b\": invalid padding on input\n").diagnose();
    let answer = report.answer.unwrap();
    assert_eq!((answer.row, answer.axis), ("transformation-failed", Axis::Transformer));
    assert_eq!(report.findings, Vec::new());
    assert_eq!(report.log[0].keys, ["/registry/secrets/a/b"]);
}

#[test]
fn a_file_that_is_mostly_free_is_to_be_defragmented() {
    let with = |in_use: u64| {
        let size =
            |member: &mut MemberProbe| (member.db_size, member.db_size_in_use, member.quota) = (100, in_use, 100);
        let alarms = Some(vec![("1".to_owned(), "NOSPACE")]);
        let report = of_probe(EtcdProbe { members: vec![member(size)], alarms, ..EtcdProbe::default() }).diagnose();
        let answer = report.answer.unwrap();
        assert_eq!((answer.row, report.findings.len()), ("quota", 0));
        answer.next
    };
    assert_eq!(
        with(20),
        [
            "stop a rotation that is running",
            "most of the file is free: `etcdctl defrag` on one member after the other, the leader last",
            "`etcdctl alarm disarm`: the alarm stays until somebody does that"
        ]
    );
    let full = with(95);
    assert!(full[1].starts_with("compact: ") && full[2].starts_with("`etcdctl defrag`"), "{full:?}");
    assert!(full[4].starts_with("`etcdctl alarm disarm`"), "{full:?}");
}

/// After compacting and defragmenting, it still said that the file is full of data and something must be deleted.
#[test]
fn a_file_that_is_small_again_is_only_to_be_disarmed() {
    let next = |quota: u64| {
        let size = |member: &mut MemberProbe| (member.db_size, member.db_size_in_use, member.quota) = (10, 9, quota);
        let alarms = Some(vec![("1".to_owned(), "NOSPACE")]);
        let report = of_probe(EtcdProbe { members: vec![member(size)], alarms, ..EtcdProbe::default() }).diagnose();
        report.answer.unwrap().next
    };
    assert_eq!(next(100), ["the file is small again, and only the alarm is left: `etcdctl alarm disarm`"]);
    // Before 3.6 nobody knows whether it is small.
    assert!(next(0)[0].starts_with("the quota is not told"), "{:?}", next(0));
}

/// A quota of 2 GiB was shown as the endpoint's word, which etcd before 3.6 does not give.
#[test]
fn a_quota_that_nobody_tells_is_said_to_be_assumed() {
    let probe = || {
        let size = |member: &mut MemberProbe| (member.db_size, member.db_size_in_use) = (2_000_000_000, 1_900_000_000);
        EtcdProbe { members: vec![member(size)], alarms: Some(Vec::new()), ..EtcdProbe::default() }
    };
    let text = |figures: &[Figure]| {
        let quota = figures.iter().find(|figure| figure.what == "quota").unwrap();
        serde_json::to_value(&quota.value).unwrap()
    };
    let report = of_probe(probe()).diagnose();
    let answer = report.answer.unwrap();
    assert_eq!(
        (answer.row, text(&answer.evidence)),
        ("quota-near", "not known (etcd's default, 2 GiB, is assumed)".into())
    );
    assert_eq!(text(&report.measured), "not known (etcd's default is 2 GiB)");
    // Its metrics tell.
    let mut case = of_probe(probe());
    case.etcd = vec![etcd(&[], "etcd_server_quota_backend_bytes 8589934592\n")];
    let report = case.diagnose();
    assert_eq!((report.answer, text(&report.measured)), (None, 8_589_934_592_u64.into()));
}

#[test]
fn endpoints_of_one_cluster_are_well() {
    assert_eq!(of_probe(two_members(7, 7)).diagnose().answer, None);
    assert_eq!(of_probe(two_members(0, 7)).diagnose().answer, None);
}

/// 500 of 600 reads had failed, and nothing was found: without the requests that were answered 500 the row did not hold, and was not
/// even among those that are not known.
#[test]
fn operations_that_fail_are_never_fine() {
    let operations = |prefix: &str, status: &str, count: u32| {
        format!(
            "apiserver_storage_transformation_operations_total{{resource=\"secrets\",status=\"{status}\",transformation_type=\"from_storage\",transformer_prefix=\"{prefix}\"}} {count}\n"
        )
    };
    let row = |text: String| {
        let report = of_apiserver(&[], &text).diagnose();
        assert_eq!(report.answer, None);
        let hints = report.not_known.iter().find(|row| row.row == "transformation-failed").map(|row| row.hints.clone());
        hints.map(|hints| hints.into_iter().map(|figure| figure.what).collect::<Vec<_>>())
    };
    let aescbc = "k8s:enc:aescbc:v1:";
    for status in ["Unknown", "Internal", "unknown-non-grpc"] {
        assert_eq!(
            row(operations(aescbc, status, 500) + &operations(aescbc, "OK", 100)),
            Some(vec![format!("secrets not opened of 600, prefix {aescbc}, {status}")])
        );
    }
    let requests = "apiserver_request_total{code=\"200\",verb=\"GET\",resource=\"secrets\"} 9\n";
    assert_eq!(
        row(format!("{requests}{}", operations("unknown", "unknown-non-grpc", 100_000))),
        Some(vec!["secrets not opened of 100000, prefix unknown, unknown-non-grpc".to_owned()])
    );
    // The second key of a rotation: each read fails by one and opens by the other, and no request fails.
    assert_eq!(row(format!("{requests}{}{}", operations(aescbc, "Internal", 90), operations(aescbc, "OK", 100))), None);
    let first = "process_start_time_seconds 5\nprocess_cpu_seconds_total 1\n".to_owned();
    let last = "process_start_time_seconds 5\nprocess_cpu_seconds_total 2\n".to_owned();
    let window = Case {
        apiserver: vec![
            first + &operations(aescbc, "Internal", 5) + &operations(aescbc, "OK", 90_000),
            last + &operations(aescbc, "Internal", 9) + &operations(aescbc, "OK", 90_100),
        ],
        ..Case::default()
    };
    let report = window.diagnose();
    assert_eq!(report.perhaps().map(|row| row.row).collect::<Vec<_>>(), ["transformation-failed"]);
}

/// Seconds for each transformation by a KMS were "nothing found" without the plugin's own histogram.
#[test]
fn slow_transformations_of_a_kms_point_to_it() {
    let text =
        with_histogram("", T, "transformation_type=\"from_storage\",transformer_prefix=\"k8s:enc:kms:v2:k:\"", 5.0);
    let report = Case { apiserver: vec![text], ..Case::default() }.diagnose();
    assert_eq!(report.answer, None);
    let row = report.perhaps().next().unwrap();
    assert_eq!((row.row, row.hints[0].what.as_str()), ("kms", "p99 of from_storage by k8s:enc:kms:v2:k: (100 calls)"));
}

/// Writes that fail were "nothing found" too.
#[test]
fn writes_that_a_kms_fails_point_to_it() {
    let text = "apiserver_storage_transformation_operations_total{resource=\"secrets\",status=\"Internal\",transformation_type=\"to_storage\"} 500\n";
    let report = of_apiserver(&[], text).diagnose();
    let hints: Vec<_> = report.perhaps().map(|row| (row.row, row.hints[0].what.as_str())).collect();
    assert_eq!((report.answer.is_none(), hints), (true, vec![("kms", "to_storage Internal")]));
}

/// An API server without the flag had a manifest in which nothing was wrong.
#[test]
fn no_encryption_is_a_finding_when_others_encrypt_and_else_good_to_know() {
    let case = |log: &'static str| {
        let evidence = Evidence {
            sources: vec![source("manifest")],
            manifest: vec![ManifestProblem::NoEncryptionConfig],
            ..Evidence::default()
        };
        Case { evidence, log, ..Case::default() }
    };
    let report = case("").diagnose();
    assert!(!report.has_findings());
    assert_eq!(report.answer.map(|answer| answer.row), Some("encryption-off"));
    let mut with_metrics = case("");
    with_metrics.apiserver = vec![
        "apiserver_storage_transformation_operations_total{status=\"OK\",transformation_type=\"from_storage\",transformer_prefix=\"k8s:enc:secretbox:v1:\"} 9\n"
            .to_owned(),
    ];
    assert_eq!(with_metrics.diagnose().answer.map(|answer| answer.row), Some("no-encryption-config"));
    let report = case("x: illegal base64 data at input byte 3\n").diagnose();
    assert!(report.has_findings());
    let answer = report.answer.unwrap();
    assert_eq!((answer.row, answer.axis), ("no-encryption-config", Axis::Configuration));
}

/// A log with four faults gave one answer, the padding error, and NOSPACE stood below as a count.
#[test]
fn the_gravest_text_of_a_log_comes_first_and_the_others_follow() {
    let report = of_log(
        "unable to transform key \"/registry/secrets/a/b\": invalid padding on input\n\
         dial tcp 127.0.0.1:2379: connect: connection refused\n\
         slow fdatasync\n\
         {\"msg\":\"alarm raised\",\"alarm\":\"NOSPACE\"}\n",
    )
    .diagnose();
    let of = |finding: &Finding| (finding.row, finding.evidence[0].what.clone());
    assert_eq!(report.answer.as_ref().map(of), Some(("log-text", "lines of the log (no-space)".to_owned())));
    assert_eq!(
        report.findings.iter().map(of).collect::<Vec<_>>(),
        [
            ("transformation-failed", "lines of the log (invalid-padding)".to_owned()),
            ("log-text", "lines of the log (etcd-refused)".to_owned()),
            ("log-text", "lines of the log (slow-disk)".to_owned()),
        ]
    );
}

/// The first step for https on an etcd without TLS was whether it runs.
#[test]
fn a_wrong_scheme_is_the_first_step() {
    let first = |error: &str| {
        let members = vec![member(|member| member.error = Some(error.to_owned()))];
        of_probe(EtcdProbe { members, ..EtcdProbe::default() }).diagnose().answer.unwrap().next[0].clone()
    };
    assert!(first("the server does not speak TLS").starts_with("the scheme: that etcd speaks no TLS"));
    assert!(first("the server speaks TLS").starts_with("the scheme: that etcd speaks TLS"));
    assert!(first("connection refused").starts_with("is etcd running there?"));
}

#[test]
fn a_member_of_an_unknown_quota_is_not_measured_by_a_guess() {
    let large = |member: &mut MemberProbe| member.db_size = 3 << 30;
    let report = of_probe(EtcdProbe { members: vec![member(large)], ..EtcdProbe::default() }).diagnose();
    assert_eq!(report.answer, None);
}

#[test]
fn a_plugin_that_does_not_answer_here_is_the_kms() {
    let report = of_kms("no connection").diagnose();
    let answer = report.answer.unwrap();
    assert_eq!((answer.row, answer.axis, report.findings), ("kms", Axis::Kms, Vec::new()));
    // A socket that is not there was a slow plugin, and the steps were about throttling; and it was told three times.
    for error in ["No such file or directory (os error 2)", "tcp connect error: Connection refused (os error 111)"] {
        let report = of_kms(error).diagnose();
        let answer = report.answer.unwrap();
        assert_eq!((answer.row, report.findings), ("kms-socket", Vec::new()));
        assert!(answer.next[0].starts_with("start the plugin"), "{:?}", answer.next);
    }
}

proptest! {
    /// Whatever the figures are, there is a report, and JSON has room for it.
    #[test]
    fn no_figures_make_it_panic(lines in proptest::collection::vec((0..NAMES.len(), 0..LABELS.len(), 0..VALUES.len()), 0..40), split in 0..40_usize) {
        let lines: Vec<_> = lines
            .into_iter()
            .map(|(name, labels, value)| format!("{}{} {}\n", NAMES[name], LABELS[labels], VALUES[value]))
            .collect();
        let (first, last) = lines.split_at(split.min(lines.len()));
        let text = |cpu: u32, lines: &[String]| format!("process_start_time_seconds 5\nprocess_cpu_seconds_total {cpu}\n{}", lines.concat());
        let both = || vec![text(1, first), text(2, last)];
        let report = Case { apiserver: both(), etcd: both(), ..Case::default() }.diagnose();
        let json = serde_json::to_string(&report).unwrap();
        prop_assert!(!json.contains("\"value\":null"));
    }
}

const NAMES: [&str; 16] = [
    "apiserver_request_sli_duration_seconds_bucket",
    "apiserver_request_total",
    "apiserver_watch_cache_initializations_total",
    "apiserver_storage_list_fetched_objects_total",
    "apiserver_storage_transformation_operations_total",
    "apiserver_envelope_encryption_kms_operations_latency_seconds_bucket",
    "apiserver_envelope_encryption_dek_source_cache_size",
    "etcd_request_duration_seconds_bucket",
    "etcd_disk_wal_fsync_duration_seconds_bucket",
    "etcd_disk_wal_fsync_duration_seconds_sum",
    "etcd_server_proposals_pending",
    "etcd_server_proposals_committed_total",
    "etcd_mvcc_db_total_size_in_bytes",
    "etcd_server_quota_backend_bytes",
    "etcd_mvcc_delete_total",
    "etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds_bucket",
];

const LABELS: [&str; 7] = [
    "",
    "{le=\"0.1\"}",
    "{le=\"+Inf\"}",
    "{le=\"-1e308\"}",
    "{le=\"1e308\"}",
    "{verb=\"LIST\",scope=\"cluster\",code=\"500\",operation=\"get\",le=\"5\"}",
    "{method_name=\"/\",transformation_type=\"from_storage\",status=\"x\"}",
];

const VALUES: [&str; 8] = ["0", "1", "1e9", "-7", "NaN", "+Inf", "-Inf", "1e308"];
