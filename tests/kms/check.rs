//! `atrest kms check`: a good plugin passes, and each way to be broken is found by the check that is for it.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tonic::Code;

use crate::support::{Behaviour, TestKms};

fn run(kms: &TestKms, args: &[&str]) -> Output {
    let mut atrest = Command::new(env!("CARGO_BIN_EXE_atrest"));
    let endpoint = kms.endpoint();
    atrest.args(["kms", "check", "--endpoint", &endpoint, "--samples", "20"]).args(args);
    atrest.output().expect("the program can be started")
}

fn report(kms: &TestKms, args: &[&str]) -> (Option<i32>, Value) {
    let output = run(kms, &[args, &["-o", "json"]].concat());
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), report)
}

/// The checks that came to that, as API/NAME.
fn came_to(report: &Value, result: &str) -> Vec<String> {
    let checks = report["checks"].as_array().unwrap().iter().filter(|check| check["result"] == result);
    checks.map(|check| format!("{}/{}", check["api"].as_str().unwrap(), check["name"].as_str().unwrap())).collect()
}

#[test]
fn a_good_plugin_passes() {
    let kms = TestKms::start();
    let (code, report) = report(&kms, &["--api-version", "v2"]);
    assert_eq!((code, &report["ok"]), (Some(0), &true.into()), "{report:#}");
    let expected = [
        "socket/endpoint",
        "socket/permissions",
        "v2/status",
        "v2/version",
        "v2/healthz",
        "v2/key-id",
        "v2/stability",
        "v2/encrypt",
        "v2/encrypt-key-id",
        "v2/ciphertext",
        "v2/annotations",
        "v2/confidentiality",
        "v2/decrypt",
        "v2/tampered",
        "v2/unknown-key-id",
        "v2/survives",
        "v2/concurrency",
        "v2/latency-encrypt",
        "v2/latency-decrypt",
    ];
    let mut passed = came_to(&report, "pass");
    // Whatever the umask of whoever runs the tests.
    passed.retain(|name| name != "socket/permissions");
    assert_eq!(passed, expected.into_iter().filter(|name| *name != "socket/permissions").collect::<Vec<_>>());
    // The test's plugin is one of tonic, which takes no path for an authority.
    let mut warned = came_to(&report, "warn");
    warned.retain(|name| name != "socket/permissions");
    assert_eq!(warned, ["v2/authority"]);
    assert_eq!(report["latency"].as_array().unwrap().len(), 2);
    assert_eq!(report["kms_key_id_hash"], atrest::report::key_id_hash("kek-2"));
    assert!(!report.to_string().contains("kek-2"), "key IDs are never raw");
}

/// F1: no kube-apiserver could use KMS v1 of such a plugin, and nothing else told.
#[test]
fn a_plugin_that_resets_what_clients_of_kms_v1_send_fails() {
    let kms = TestKms::start();
    let (code, report) = report(&kms, &[]);
    assert_eq!((code, came_to(&report, "fail")), (Some(1), vec!["v1beta1/authority".to_owned()]), "{report:#}");
    let detail = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "authority").unwrap();
    let says =
        "the path of the socket is reset with PROTOCOL_ERROR, its percent-encoded form is reset with PROTOCOL_ERROR";
    assert!(detail["detail"].as_str().unwrap().contains(says), "{detail}");
}

/// Each way to be broken is found by the check that is for it, and by no other.
#[test]
fn each_broken_plugin_fails_the_check_that_is_for_it() {
    type Break = fn(&mut Behaviour);
    let table: [(&str, Break, &[&str]); 12] = [
        ("empty key ID", |kms| kms.encrypt_key_id = Some(String::new()), &["v2/encrypt-key-id"]),
        ("empty key ID in Status", |kms| kms.status_key_id = Some(String::new()), &["v2/key-id", "v2/encrypt-key-id"]),
        ("key ID mismatch", |kms| kms.encrypt_key_id = Some("kek-1".into()), &["v2/encrypt-key-id"]),
        ("wrong version", |kms| kms.version = "v2alpha1".into(), &["v2/version"]),
        ("not ok", |kms| kms.healthz = "OK".into(), &["v2/healthz"]),
        ("slow", |kms| kms.delay = Duration::from_millis(300), &["v2/latency-encrypt", "v2/latency-decrypt"]),
        ("oversize annotation", |kms| kms.annotation = Some(("a.io".into(), vec![0; 32 * 1024])), &["v2/annotations"]),
        ("annotation that is no domain", |kms| kms.annotation = Some(("foo".into(), vec![])), &["v2/annotations"]),
        ("old key refused", |kms| kms.forgets_old_keys = true, &["v2/stored"]),
        ("encrypts nothing", |kms| kms.encrypt_fails = Some((Code::Internal, "no".into())), &["v2/encrypt"]),
        (
            "decrypts nothing",
            |kms| kms.decrypt_fails = Some((Code::PermissionDenied, "no".into())),
            &["v2/decrypt", "v2/concurrency", "v2/latency-decrypt", "v2/stored"],
        ),
        ("throws", |kms| kms.fails = Some((Code::Internal, "panic".into())), &["v2/status"]),
    ];
    let dir = tempfile::tempdir().unwrap();
    let value = old_value(&dir);
    for (name, behaviour, expected) in table {
        let kms = TestKms::start();
        kms.set(behaviour);
        let args = ["--api-version", "v2", "--timeout", "200ms", "--value", value.to_str().unwrap()];
        let (code, report) = report(&kms, &args);
        assert_eq!(
            (code, came_to(&report, "fail")),
            (Some(1), expected.iter().map(|name| (*name).to_owned()).collect()),
            "{name}"
        );
        assert_eq!(report["ok"], false, "{name}");
    }
}

/// A value of kek-1 as `etcdctl get` prints it, while kek-2 encrypts.
fn old_value(dir: &tempfile::TempDir) -> PathBuf {
    let lines = crate::support::vector_lines("values/open.jsonl");
    let line = lines.iter().find(|line| line["id"] == "kmsv2/hand-made-ok").unwrap();
    let data = STANDARD.decode(line["data"].as_str().unwrap()).unwrap();
    let path = dir.path().join("value");
    std::fs::write(&path, [b"/registry/secrets/default/x\n".as_slice(), &data, b"\n"].concat()).unwrap();
    path
}

#[test]
fn a_stored_value_of_an_older_key_is_decrypted() {
    let (kms, dir) = (TestKms::start(), tempfile::tempdir().unwrap());
    let value = old_value(&dir);
    let (code, report) = report(&kms, &["--api-version", "v2", "--value", value.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{report:#}");
    let check = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "stored").unwrap();
    let hash = atrest::report::key_id_hash("kek-1");
    assert_eq!(check["detail"], format!("the DEK source of a stored value under key ID {hash} is decrypted"));
}

#[test]
fn what_is_no_plugin_is_said_to_be_none() {
    let dir = tempfile::tempdir().unwrap();
    let check = |endpoint: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_atrest"))
            .args(["kms", "check", "--timeout", "1s", "--endpoint", endpoint])
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, stderr) = check(&format!("unix://{}/none.sock", dir.path().display()));
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("No such file or directory") && stderr.contains("atrest: hint: "), "{stderr}");
    let (code, stderr) = check("unix://@none");
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("names no socket"), "{stderr}");
    let (code, stderr) = check("tcp://127.0.0.1:1");
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("only unix is supported"), "{stderr}");
}

/// F10: a socket of the abstract namespace works, and everybody may use it.
#[test]
fn an_abstract_socket_is_looked_at_and_warned_of() {
    let name = format!("@atrest-check-{}", std::process::id());
    let kms = TestKms::start_at(name.as_ref());
    let (code, report) = report(&kms, &["--api-version", "v2"]);
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!(came_to(&report, "warn"), ["socket/endpoint"], "an authority like @name is taken by all");
}

#[test]
fn people_see_a_table() {
    let kms = TestKms::start();
    kms.set(|kms| kms.healthz = "the HSM is on fire".into());
    let output = run(&kms, &["--api-version", "v2"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("fail    v2      healthz"), "{text}");
    assert!(text.contains("\"the HSM is on fire\": anything but ok is not healthy"), "{text}");
    assert!(text.contains("1 failed: kube-apiserver cannot use it as it is"), "{text}");
    let names = run(&kms, &["--api-version", "v2", "-o", "name"]);
    assert_eq!(String::from_utf8(names.stdout).unwrap(), "v2/healthz\n");
}
