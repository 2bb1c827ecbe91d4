//! `atrest doctor`: recorded and composed situations, each with its one right answer; files alone; URLs; error texts.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::fixture::{Dir, json_of};
use crate::run::{File, K1, Run, atrest, command, config, finish, provider};

/// A folder of `tests/vectors/doctor`, with all files that are in it.
fn situation(name: &str, more: &[&str]) -> Run {
    let mut args = vec!["doctor".to_owned()];
    let folder = format!("tests/vectors/doctor/{name}");
    let entries = std::fs::read_dir(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(&folder)).expect(name);
    let mut files: Vec<_> =
        entries.map(|entry| entry.expect(name).file_name().into_string().expect("a name")).collect();
    files.sort_unstable();
    for file in files {
        let flag = match file.as_str() {
            "apiserver.metrics" | "apiserver.first.metrics" => "--apiserver-metrics",
            "etcd.metrics" | "etcd.first.metrics" => "--etcd-metrics",
            "apiserver.log" | "etcd.log" => "--log",
            other => panic!("{folder}/{other}"),
        };
        args.extend([flag.to_owned(), format!("{folder}/{file}")]);
    }
    let args: Vec<_> = args.iter().map(String::as_str).chain(more.iter().copied()).collect();
    atrest(&args, b"")
}

#[test]
fn each_situation_has_one_right_answer() {
    for (name, answer, axis, further) in [
        ("apply-behind", "apply-behind", "mvcc", &["log-text"][..]),
        ("backend-commit", "backend-commit", "backend", &[]),
        ("cache-reinitializing", "cache-reinitializing", "apiserver-cache", &["transformation-failed"]),
        ("flowcontrol", "flowcontrol", "apiserver-admission", &[]),
        ("kms", "kms", "kms", &[]),
        ("kms-cold-cache", "kms-cold-cache", "kms", &[]),
        ("leader-lost", "raft-leader", "raft", &[]),
        ("lease-burst", "lease-expiry", "lease", &[]),
        ("list-filtering", "list-filtering", "apiserver-serialization", &[]),
        ("network-to-etcd", "network-to-etcd", "network", &[]),
        ("quota", "quota", "mvcc", &[]),
        ("request-too-large", "request-too-large", "request-limit", &[]),
        ("slow-watchers", "slow-watchers", "watch", &[]),
        ("transformation-failed", "transformation-failed", "transformer", &[]),
        ("wal-fsync", "wal-fsync", "wal", &[]),
        ("webhook", "webhook", "apiserver-admission", &[]),
    ] {
        // What is as it should be is told, and is no finding.
        let code = if ["kms-cold-cache", "lease-burst"].contains(&name) { 0 } else { 1 };
        let report = json_of(&situation(name, &["-o", "json"]).exits(code));
        let found = (report.pointer("/answer/row"), report.pointer("/answer/axis"));
        assert_eq!(found, (Some(&json!(answer)), Some(&json!(axis))), "{name}: {report:#}");
        let rows: Vec<_> = report["findings"].as_array().expect("rows").iter().map(|row| &row["row"]).collect();
        assert_eq!(rows, further, "{name}");
        assert!(!report["answer"]["evidence"].as_array().expect("figures").is_empty(), "{name}");
    }
}

#[test]
fn of_a_healthy_cluster_nothing_is_found() {
    let run = situation("healthy", &[]).exits(0);
    assert_eq!(
        run.text().lines().next(),
        Some("nothing found: no row of the decision table holds by what was looked at")
    );
    let report = json_of(&situation("healthy", &["-o", "json"]).exits(0));
    assert_eq!(
        (&report["answer"], &report["findings"], &report["schema_version"]),
        (&Value::Null, &json!([]), &json!(1))
    );
}

#[test]
fn the_answer_is_the_first_line_and_evidence_and_steps_follow() {
    let run = situation("wal-fsync", &[]).exits(1);
    let lines: Vec<_> = run.text().lines().collect();
    assert_eq!(lines[0], "WAL: writes are slow because the disk is slow to sync etcd's log");
    let source = "tests/vectors/doctor/wal-fsync/apiserver.metrics, since the server started";
    assert_eq!(lines[1], format!("  p99 of etcd create (580 calls): 385.5 ms ({source})"));
    assert!(lines.iter().any(|line| line.starts_with("  p99 of WAL fsync (2960 calls): ")), "{lines:?}");
    let next = lines.iter().position(|line| *line == "next:").expect("next");
    assert_eq!(lines[next + 1], "  1. what else writes to that disk (`iostat -x 1`): give etcd one of its own");
    assert_eq!(situation("wal-fsync", &["-o", "name"]).exits(1).text(), "wal-fsync\n");
    assert_eq!(situation("wal-fsync", &["-o", "ndjson"]).exits(1).lines().len(), 1);
    assert!(situation("wal-fsync", &["-o", "yaml"]).exits(1).text().contains("row: wal-fsync\n"));
    assert!(situation("wal-fsync", &["-o", "csv"]).exits(1).text().starts_with("what,value,source\n"));
}

#[test]
fn one_reading_is_of_a_lifetime_and_two_are_a_window() {
    let vectors = "tests/vectors/doctor/lease-burst";
    let (first, last) = (format!("{vectors}/etcd.first.metrics"), format!("{vectors}/etcd.metrics"));
    // The order in which they are named does not matter.
    let run = atrest(&["doctor", "--etcd-metrics", &last, "--etcd-metrics", &first, "-o", "json"], b"").exits(0);
    let report = json_of(&run);
    assert_eq!(
        report["answer"]["evidence"][0],
        json!({"what": "deletes", "value": 2200, "unit": "count", "source": format!("{last}, between the two readings")})
    );
    let report = json_of(&atrest(&["doctor", "--etcd-metrics", &last, "-o", "json"], b"").exits(0));
    assert_eq!(report["answer"], Value::Null);
    let row =
        report["not_known"].as_array().expect("rows").iter().find(|row| row["row"] == "lease-expiry").expect("the row");
    assert_eq!(row["missing"], json!(["a second reading of etcd (--etcd-metrics twice)"]));
}

#[test]
fn a_log_is_read_from_standard_input_and_its_keys_are_named() {
    let log = b"E1130 02:11:07.1 1 x.go:1] unable to transform key \"/registry/secrets/a/b\": invalid padding on input\x1b[31m\n";
    let run = atrest(&["doctor", "--log", "-"], log).exits(1);
    assert!(run.text().starts_with("transformer: stored values do not open"), "{}", run.text());
    assert!(
        run.text().contains("\n  1 × invalid-padding: transformer, 1130 02:11:07.1, /registry/secrets/a/b\n"),
        "{}",
        run.text()
    );
    assert!(!run.text().contains('\u{1b}'));
}

#[test]
fn what_cannot_be_read_is_told_and_ends_nothing() {
    let run = atrest(&["doctor", "--etcd-metrics", "/nowhere", "-o", "json"], b"").exits(3);
    assert_eq!(
        json_of(&run)["sources"],
        json!([{"kind": "etcd-metrics", "name": "/nowhere", "read": false, "detail": "No such file or directory (os error 2)"}])
    );
    let run = atrest(&["doctor", "--etcd-metrics", "/nowhere"], b"").exits(3);
    assert_eq!(run.text().lines().next(), Some("no answer: nothing of what was named could be read"));
    let healthy = "tests/vectors/doctor/healthy/etcd.metrics";
    let run =
        atrest(&["doctor", "--etcd-metrics", healthy, "--log", "/nowhere", "--apiserver-metrics", "Cargo.toml"], b"")
            .exits(4);
    let unread = run.text().split("could not be read:\n").nth(1).expect("a list");
    assert_eq!(
        unread,
        "  log /nowhere: No such file or directory (os error 2)\n  apiserver-metrics Cargo.toml: no metrics in the text format of Prometheus\n"
    );
    // What another server counts is not what this one has not counted.
    let other = "tests/vectors/doctor/webhook/apiserver.metrics";
    let run = atrest(&["doctor", "--etcd-metrics", other, "-o", "json"], b"").exits(3);
    assert_eq!(json_of(&run)["sources"][0]["detail"], "these are no metrics of etcd");
    // A finding is a finding, whatever else could not be read.
    assert_eq!(situation("quota", &["--manifest", "/nowhere", "-o", "name"]).exits(1).text(), "quota\n");
}

#[test]
fn etcd_that_is_down_is_an_answer() {
    let run =
        atrest(&["doctor", "--endpoints", "http://127.0.0.1:1", "--dial-timeout", "2s", "-o", "json"], b"").exits(1);
    let report = json_of(&run);
    assert_eq!(report["answer"]["row"], "etcd-unreachable");
    assert_eq!(report["answer"]["evidence"][0]["value"], "connection refused");
    assert_eq!(report["sources"][0]["read"], false);
}

#[test]
fn without_an_endpoint_etcd_is_not_asked_and_a_variable_names_one() {
    let healthy = "tests/vectors/doctor/healthy/etcd.metrics";
    let run = |endpoints: Option<&str>| {
        let mut command = command(&["doctor", "--etcd-metrics", healthy, "--dial-timeout", "2s", "-o", "json"]);
        endpoints.map(|endpoints| command.env("ETCDCTL_ENDPOINTS", endpoints));
        json_of(&finish(command, b""))["sources"].as_array().expect("sources").len()
    };
    assert_eq!((run(None), run(Some("")), run(Some("http://127.0.0.1:1"))), (1, 1, 2));
}

#[test]
fn the_configuration_and_its_plugins_are_looked_at() {
    let good = config(&[&provider("secretbox", "key1", K1)]);
    let report = json_of(&atrest(&["doctor", "--encryption-provider-config", good.path(), "-o", "json"], b"").exits(0));
    assert_eq!(report["measured"][0]["what"], "p50 of sealing");
    assert_eq!(report["measured"][0]["source"], "secretbox/key1, 1024 bytes, measured here");
    let bad = config(&["aescbc: {keys: [{name: a, secret: hunter2}]}"]);
    let run = atrest(&["doctor", "--encryption-provider-config", bad.path(), "-o", "json"], b"").exits(1);
    assert_eq!(json_of(&run)["answer"]["row"], "configuration-invalid");
    assert!(!run.text().contains("hunter2") && !run.stderr.contains("hunter2"));
    let kms = config(&["kms: {apiVersion: v2, name: cloud, endpoint: 'unix:///nowhere/kms.sock', timeout: 1s}"]);
    let report = json_of(&atrest(&["doctor", "--encryption-provider-config", kms.path(), "-o", "json"], b"").exits(1));
    assert_eq!(report["answer"]["row"], "kms-socket");
    assert_eq!(report["answer"]["evidence"][0]["source"], "cloud at unix:///nowhere/kms.sock");
}

#[test]
fn the_manifest_is_compared_with_the_configuration() {
    let kms = config(&["kms: {apiVersion: v2, name: cloud, endpoint: 'unix:///run/kms/kms.sock', timeout: 1s}"]);
    let manifest = |mounts: &str| {
        File::new(format!(
            "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: kube-apiserver\n    command: [kube-apiserver, --encryption-provider-config=/etc/enc/enc.yaml]\n    \
             volumeMounts: {mounts}\n  volumes: [{{name: enc, hostPath: {{path: /etc/kubernetes/enc}}}}, {{name: run, hostPath: {{path: /run/kms}}}}]\n"
        ))
    };
    let run = |mounts: &str, more: &[&str]| {
        let manifest = manifest(mounts);
        let args = ["doctor", "--manifest", manifest.path(), "--encryption-provider-config", kms.path(), "-o", "name"];
        atrest(&[&args[..], more].concat(), b"").exits(1).text().to_owned()
    };
    let enc = "{name: enc, mountPath: /etc/enc}";
    // The plugin does not run here: that is the last of it.
    assert_eq!(run("[]", &[]), "manifest\nkms-socket-mount\nkms-socket\n");
    assert_eq!(run(&format!("[{enc}]"), &[]), "kms-socket-mount\nkms-socket\n");
    let both = format!("[{enc}, {{name: run, mountPath: /run/kms}}]");
    assert_eq!(run(&both, &[]), "kms-socket\n");
    assert_eq!(run(&both, &["--kms-endpoint", "cloud=unix:///var/lib/other.sock"]), "kms-socket-mount\nkms-socket\n");
    // A name that the configuration does not have was taken for another plugin.
    let args = ["doctor", "--encryption-provider-config", kms.path(), "--kms-endpoint", "clod=unix:///s.sock"];
    assert_eq!(
        atrest(&args, b"").exits(2).stderr,
        "atrest: error: --kms-endpoint clod=…: no KMS provider of the configuration has that name\n"
    );
    let broken = File::new("a: [");
    let report = json_of(&atrest(&["doctor", "--manifest", broken.path(), "-o", "json"], b"").exits(3));
    assert_eq!(report["sources"][0]["read"], false);
}

/// A server that answers so many requests, and the requests.
fn serve(answers: Vec<String>) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/metrics", listener.local_addr().expect("an address"));
    let served = std::thread::spawn(move || {
        let answer = |answer: String| {
            let (mut connection, _) = listener.accept().expect("a connection");
            let mut request = Vec::new();
            let mut part = [0; 4096];
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                let read = connection.read(&mut part).expect("a request");
                request.extend_from_slice(&part[..read]);
            }
            connection.write_all(answer.as_bytes()).expect("an answer");
            String::from_utf8(request).expect("text")
        };
        answers.into_iter().map(answer).collect()
    });
    (url, served)
}

fn ok(date: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

#[test]
fn a_url_that_is_given_twice_is_read_twice_and_clocks_are_compared() {
    let scrape = |cpu: u32, deletes: u32| {
        format!(
            "process_start_time_seconds 5\nprocess_cpu_seconds_total {cpu}\netcd_mvcc_delete_total {deletes}\netcd_debugging_lease_revoked_total {cpu}\n"
        )
    };
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let (url, served) = serve(vec![ok(date, &scrape(1, 10)), ok(date, &scrape(2, 5010))]);
    let run = atrest(&["doctor", "--etcd-metrics", &url, "--etcd-metrics", &url, "--window", "1s", "-o", "json"], b"")
        .exits(1);
    let report = json_of(&run);
    assert_eq!(report["answer"]["row"], "lease-expiry");
    assert_eq!(report["answer"]["evidence"][0]["source"], format!("{url}, within 1 s"));
    assert_eq!(report["findings"][0]["row"], "clock");
    assert_eq!(served.join().expect("a server").len(), 2);
}

#[test]
fn an_answer_that_is_no_scrape_is_told() {
    let (url, served) = serve(vec!["HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_owned()]);
    let report = json_of(&atrest(&["doctor", "--apiserver-metrics", &url, "-o", "json"], b"").exits(3));
    assert_eq!(report["sources"][0]["detail"], "HTTP 403 Forbidden");
    served.join().expect("a server");
}

#[test]
fn a_token_is_not_sent_without_tls() {
    let token = File::new("hunter2\n");
    let run = atrest(
        &[
            "doctor",
            "--apiserver-metrics",
            "http://127.0.0.1:1/metrics",
            "--metrics-token-file",
            token.path(),
            "-o",
            "json",
        ],
        b"",
    )
    .exits(3);
    assert_eq!(json_of(&run)["sources"][0]["detail"], "the token of --metrics-token-file is not sent without TLS");
    assert!(!run.text().contains("hunter2") && !run.stderr.contains("hunter2"));
}

/// An address without its scheme was a file that is not there, and a wrong path a mere 404.
#[test]
fn what_is_wrong_with_a_url_is_hinted_at() {
    let detail = |args: &[&str]| {
        let report = json_of(&atrest(&[&["doctor", "-o", "json"], args].concat(), b"").exits(3));
        report["sources"][0]["detail"].as_str().expect("text").to_owned()
    };
    assert_eq!(
        detail(&["--etcd-metrics", "127.0.0.1:1/metrics"]),
        "No such file or directory (os error 2); a URL begins with http:// or https://"
    );
    let (url, served) = serve(vec!["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned()]);
    assert_eq!(detail(&["--etcd-metrics", &url]), "HTTP 404 Not Found: is it …/metrics?");
    served.join().expect("a server");
}

/// A slow disk was "nothing found" with 0, far above the row that it points to.
#[test]
fn what_points_somewhere_is_the_first_line() {
    let run = atrest(&["doctor", "--etcd-metrics", "tests/vectors/doctor/wal-fsync/etcd.metrics"], b"").exits(1);
    let first = run.text().lines().next().expect("a line");
    assert!(
        first.starts_with(
            "perhaps WAL: writes are slow because the disk is slow to sync etcd's log: p99 of WAL fsync (2960 calls): "
        ),
        "{first}"
    );
    assert!(
        first.ends_with(
            "; what is missing to be sure: API server metrics (--apiserver-metrics), or a running etcd (--endpoints)"
        ),
        "{first}"
    );
    assert!(!run.text().contains("nothing found"), "{}", run.text());
}

/// Without the flag in the manifest nothing was found, also beside the configuration that belongs there.
#[test]
fn a_manifest_without_encryption_is_told() {
    let manifest = File::new(
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: kube-apiserver\n    command: [kube-apiserver, --etcd-servers=http://127.0.0.1:2379]\n",
    );
    let run = atrest(&["doctor", "--manifest", manifest.path()], b"").exits(0);
    assert_eq!(
        run.text().lines().next(),
        Some(
            "API server configuration: this API server has no --encryption-provider-config: it stores everything in the clear (no fault)"
        )
    );
    let good = config(&[&provider("secretbox", "key1", K1)]);
    let both = ["doctor", "--manifest", manifest.path(), "--encryption-provider-config", good.path()];
    let run = atrest(&both, b"").exits(1);
    assert!(
        run.text().starts_with("API server configuration: this API server has no --encryption-provider-config: it reads and writes everything in the clear, and fails"),
        "{}",
        run.text()
    );
}

/// Random bytes and an empty file were logs without a fault.
#[test]
fn logs_are_read_or_said_not_to_be() {
    let dir = Dir::new();
    let (empty, binary) = (dir.write("empty", b""), dir.write("binary", b"\0\x01\x02\n\0"));
    let full = dir.write("etcd.log", b"etcdserver: mvcc: database space exceeded\nx\n");
    let slow = dir.write("slow.log", b"slow fdatasync\n");
    let run = atrest(&["doctor", "--log", &empty, "--log", &binary], b"").exits(3);
    assert_eq!(
        run.text(),
        format!(
            "no answer: nothing of what was named could be read\n{}could not be read:\n  log {empty}: it is empty\n  log {binary}: it is no text\n",
            run.text().split_once('\n').and_then(|(_, rest)| rest.split_once("could not be read:")).expect("a list").0
        )
    );
    let run = atrest(&["doctor", "--log", &slow, "--log", &full], b"").exits(1);
    assert!(run.text().starts_with("MVCC: The database file has reached"), "{}", run.text());
    assert!(run.text().contains("\nalso:\n  WAL: "), "{}", run.text());
    assert!(
        run.text().contains(&format!("\nread: log {full}: 2 lines, 1 with a known error text\n")),
        "{}",
        run.text()
    );
}

#[test]
fn wrong_usage_is_told() {
    let run = atrest(&["doctor"], b"").exits(2);
    assert_eq!(
        run.stderr,
        "atrest: error: there is nothing to look at: name --endpoints, --apiserver-metrics, --etcd-metrics, --log, --manifest, \
         --encryption-provider-config or --kms-endpoint\n"
    );
    let healthy = "tests/vectors/doctor/healthy/etcd.metrics";
    for (args, error) in [
        (&["--write-probe", "--etcd-metrics", healthy][..], "--write-probe needs --endpoints"),
        (&["--etcd-metrics", "ftp://a/b"], "--etcd-metrics: a URL is http:// or https://; a file is named by its path"),
        (
            &["--etcd-metrics", "https://u:hunter2@a/b"],
            "--etcd-metrics: no user and no password can stand in the URL: use --metrics-cert or --metrics-token-file",
        ),
        (
            &["--endpoints", "ftp://a"],
            "--endpoints: \"ftp://a\" is not an endpoint: the scheme must be http, https, unix or unixs",
        ),
    ] {
        let run = atrest(&[&["doctor"], args].concat(), b"").exits(2);
        assert_eq!(run.stderr, format!("atrest: error: {error}\n"));
    }
}

#[test]
fn texts_are_explained() {
    let text =
        "Internal error occurred: unable to transform key \"/registry/secrets/team-a/db\": no matching prefix found";
    let run = atrest(&["doctor", "explain", text], b"").exits(0);
    assert!(
        run.text().starts_with("transformer: No provider of the configuration has the prefix of the stored value"),
        "{}",
        run.text()
    );
    assert!(run.text().contains("`atrest scan --prefix /registry/secrets/team-a/db`"), "{}", run.text());
    let report = json_of(
        &atrest(&["doctor", "explain", "-", "-o", "json"], b"etcdserver: mvcc: database space exceeded\n").exits(0),
    );
    assert_eq!(
        (&report["known"], &report["explanations"][0]["id"], &report["explanations"][0]["axis"]),
        (&json!(true), &json!("no-space"), &json!("mvcc"))
    );
    for (text, id) in [
        ("illegal base64 data at input byte 3", "encrypted-read-as-object"),
        ("invalid padding on input", "invalid-padding"),
        ("no matching prefix found", "no-matching-prefix"),
        ("cipher: message authentication failed", "authentication-failed"),
        ("too old resource version", "resource-version-too-old"),
        ("410", "status-410"),
        ("504", "status-504"),
    ] {
        assert_eq!(atrest(&["doctor", "explain", text, "-o", "name"], b"").exits(0).text(), format!("{id}\n"));
    }
}

#[test]
fn a_text_that_is_not_known_says_what_to_collect() {
    let run = atrest(&["doctor", "explain", "hunter2"], b"").exits(1);
    assert!(run.text().starts_with("this text is not known. To find out, collect:\n"), "{}", run.text());
    assert!(!run.text().contains("hunter2"));
    assert_eq!(
        atrest(&["doctor", "explain", "-"], b" \n").exits(2).stderr,
        "atrest: error: there is no text to explain\n"
    );
}

#[test]
fn hostile_files_end_in_no_panic() {
    let dir = Dir::new();
    for (i, bytes) in [&b"\0\xff\xfe"[..], b"a{", b"a_bucket{le=\"NaN\"} NaN\na 1e999\n", b"{{{{{{", b"- - - - -"]
        .into_iter()
        .enumerate()
    {
        let file = dir.write(&format!("f{i}"), bytes);
        let args =
            ["doctor", "--etcd-metrics", &file, "--apiserver-metrics", &file, "--log", &file, "--manifest", &file];
        let status = atrest(&args, b"").status.expect("it ends by itself");
        assert!([3, 4].contains(&status), "{status}");
    }
}
