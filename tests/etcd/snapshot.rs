//! Files that we wrote, restored and run by etcd; and files of a running etcd, read by us.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use atrest::snapshot::{Input, Options, Order, Snapshot, Values, View};
use serde_json::Value;

use crate::fixture::{KMS_CONFIG, LOCAL, LOCAL_CONFIG};
use crate::support::{Etcd, KeyValue, TestKms, Version, vector};

/// Runs the program, and gives what it printed.
fn atrest(args: &[&str], code: i32) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_atrest"))
        .args(args)
        .env_remove("ETCDCTL_ENDPOINTS")
        .output()
        .expect("the program can be started");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{out}\n{err}");
    out.into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path")
}

fn gzip(path: &Path) -> PathBuf {
    let packed = path.with_extension("gz");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&std::fs::read(path).expect("a file")).expect("gzip");
    std::fs::write(&packed, gzip.finish().expect("gzip")).expect("a file");
    packed
}

/// What a server says of itself: the hash of its keys, and at which revision it was compacted.
fn hash_kv(etcd: &Etcd) -> (u32, i64) {
    let output = etcd.etcdctl(&["endpoint", "hashkv", "--write-out=json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let answer = &answer[0]["HashKV"];
    (
        u32::try_from(answer["hash"].as_u64().expect("a hash")).expect("32 bits"),
        answer["compact_revision"].as_i64().unwrap_or(-1),
    )
}

/// Key, create and mod revision, version, and value.
type Live = (Vec<u8>, i64, i64, i64, Vec<u8>);

fn live(snapshot: &Arc<Snapshot>) -> Vec<Live> {
    let view = View { order: Order::Keys, ..View::default() };
    let mut values = Values::new(snapshot, &view).expect("values");
    let mut live = Vec::new();
    while let Some(page) = values.next_values().expect("values") {
        live.extend(
            page.into_iter()
                .map(|value| (value.key, value.create_revision, value.mod_revision, value.version, value.value)),
        );
    }
    live
}

fn of_server(etcd: &Etcd) -> Vec<Live> {
    let row =
        |kv: KeyValue| (kv.key().to_vec(), kv.create_revision(), kv.mod_revision(), kv.version(), kv.value().to_vec());
    etcd.client().get_prefix("/").into_iter().map(row).collect()
}

/// A snapshot of a running server, as it would be saved.
fn snapshot_of(etcd: &Etcd) -> Arc<Snapshot> {
    Arc::new(Snapshot::from_input(Input::from(etcd.client().snapshot()), Options::default()).expect("a snapshot"))
}

/// Restores a file, runs etcd on it, and does what a cluster does: writes, compacts, defragments.
fn run(version: Version, file: &Path) {
    let written = Arc::new(Snapshot::open(file, Options::default()).expect("a snapshot"));
    let etcd = Etcd::builder(version).restored_from(gzip(file)).start();
    let mut expected = live(&written);
    expected.retain(|row| row.0.starts_with(b"/"));
    assert_eq!(of_server(&etcd), expected, "{version:?}");
    assert_eq!(etcd.client().revision(), written.head().expect("a revision"));
    let (hash, compacted) = hash_kv(&etcd);
    let ours = snapshot_of(&etcd);
    assert_eq!((hash, compacted), (ours.hash_kv(None).expect("a hash"), ours.meta().compacted().unwrap_or(-1)));
    // Half of the keys are overwritten, a third deleted, so that compaction thins out every page.
    for (number, row) in expected.iter().enumerate() {
        match number % 6 {
            0 | 2 | 4 => _ = etcd.client().put(row.0.clone(), row.4.clone()),
            1 | 3 => _ = etcd.client().delete(row.0.clone()),
            _ => {}
        }
    }
    let revision = etcd.client().revision();
    etcd.client().compact(revision);
    let defragged = etcd.etcdctl(&["defrag"]);
    assert!(defragged.status.success(), "{}", String::from_utf8_lossy(&defragged.stderr));
    etcd.client().put("/after", "1");
    // What was the last state of a key when the store was compacted, and is not any longer, was hashed.
    if let [(overwritten, ..), (deleted, ..), ..] = &of_server(&etcd)[..] {
        etcd.client().put(overwritten.clone(), "2");
        etcd.client().delete(deleted.clone());
    }
    let ours = snapshot_of(&etcd);
    assert_eq!(hash_kv(&etcd), (ours.hash_kv(None).expect("a hash"), revision));
    let now: Vec<_> = live(&ours).into_iter().filter(|row| row.0.starts_with(b"/")).collect();
    assert_eq!(of_server(&etcd), now);
}

#[test]
fn a_rewritten_snapshot_is_restored_and_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    let (local, config) = (vector(LOCAL), vector(LOCAL_CONFIG));
    let out = |name: &str| directory.path().join(name);
    let (rekeyed, short, redacted, plain) = (out("rekeyed.db"), out("short.db"), out("redacted.db"), out("plain.db"));
    let keys = ["--encryption-provider-config", text(&config)];
    let rewrite = |command: &str, target: &Path, more: &[&str]| {
        atrest(&[&["snapshot", command, text(&local), "--out", text(target)], more].concat(), 0)
    };
    rewrite("rekey", &rekeyed, &keys);
    rewrite("rekey", &short, &[&keys[..], &["--drop-history"]].concat());
    rewrite("redact", &redacted, &["--resource", "secrets"]);
    rewrite("decrypt", &plain, &keys);
    for file in [&rekeyed, &short, &redacted, &plain] {
        Version::ALL.into_iter().for_each(|version| run(version, file));
    }
    let verified = atrest(&["verify", "--snapshot", text(&rekeyed), keys[0], keys[1], "--expect", "current"], 0);
    assert!(verified.contains("160 values at revision 241: 160 current, 0 stale, 0 unreadable or wrong"), "{verified}");
    // Nothing is left of any other key, neither in the history nor anywhere else in the file.
    let bytes = std::fs::read(&rekeyed).expect("a file");
    for marker in ["k8s:enc:aescbc", "k8s:enc:secretbox"] {
        assert!(!bytes.windows(marker.len()).any(|part| part == marker.as_bytes()), "{marker}");
    }
    let census = atrest(&["scan", "--snapshot", text(&plain), "--history"], 0);
    assert!(census.contains(": 0 encrypted, "), "{census}");
}

#[test]
fn trees_of_several_levels_survive_compaction() {
    let directory = tempfile::tempdir().expect("a directory");
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        let client = etcd.client();
        for round in 0..3 {
            for number in 0..700 {
                let value = vec![b'a' + round; 100 + number % 900];
                client.put(format!("/registry/configmaps/ns-{}/name-{number:05}", number % 7), value);
            }
        }
        let original = snapshot_of(&etcd);
        for (name, drop_history) in [("history", false), ("head", true)] {
            let target = directory.path().join(format!("{name}-{version:?}.db"));
            let options = atrest::snapshot::RebuildOptions { drop_history, ..Default::default() };
            let mut rebuild =
                atrest::snapshot::Rebuild::begin(&original, None, &target, options).expect("a file is begun");
            let mut batches = rebuild.batches();
            while let Some(batch) = batches.next_batch().expect("records") {
                batch.iter().for_each(|record| rebuild.put(record, None).expect("a record"));
            }
            rebuild.finish(|_| Ok(None)).expect("a file");
            run(version, &target);
        }
    }
}

#[test]
fn a_data_directory_is_read_while_etcd_runs() {
    for version in Version::ALL {
        let etcd = Etcd::builder(version).restored_from(vector(LOCAL)).start();
        let data_dir = etcd.data_dir();
        let args = ["scan", "--data-dir", text(&data_dir), "--by", "provider", "-q"];
        // While etcd writes what it has just elected, the file changes: that is exit code 4, and a note.
        let is_quiet = || {
            let output =
                Command::new(env!("CARGO_BIN_EXE_atrest")).args(args).output().expect("the program can be started");
            output.status.code() == Some(0)
        };
        assert!((0..20).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(500));
            is_quiet()
        }));
        let out = atrest(&args, 0);
        assert!(out.contains("160 values at revision 241"), "{out}");
    }
}

/// The configuration of the clusters with a KMS, and the flags that say where its plugin is.
fn kms_flags(kms: &TestKms) -> Vec<String> {
    let config = vector(KMS_CONFIG);
    let mut flags = vec!["--encryption-provider-config".to_owned(), text(&config).to_owned()];
    for name in ["cloud-kms", "legacy-kms"] {
        flags.extend(["--kms-endpoint".to_owned(), format!("{name}={}", kms.endpoint())]);
    }
    flags
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_cluster_of_eight_generations_is_read_offline() {
    let kms = TestKms::start();
    let flags = kms_flags(&kms);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let healthy = vector("snapshots/healthy.db.gz");
    let out = atrest(&[&["verify", "--snapshot", text(&healthy), "-o", "ndjson"], &flags[..]].concat(), 0);
    let rows = json_lines(&out);
    let mut rows: std::collections::BTreeMap<_, _> = rows
        .iter()
        .filter(|row| row["key"].is_string())
        .map(|row| (row["key"].as_str().expect("a key"), row))
        .collect();
    for line in crate::support::vector_lines("snapshots/healthy.expected.jsonl") {
        let row = rows.remove(line["key"].as_str().expect("a key")).expect("a row");
        let expected = if line["stale"] == true { "stale" } else { "current" };
        assert_eq!((&row["class"], &row["mod_revision"]), (&expected.into(), &line["mod_revision"]), "{line}");
    }
    assert_eq!(rows.len(), 0, "{rows:?}");
    let plain = atrest(&[&["verify", "--snapshot", text(&healthy)], &flags[..]].concat(), 0);
    assert!(plain.ends_with("213 of 213 values readable with this configuration\n"), "{plain}");
}

#[test]
fn every_damaged_value_has_its_class_offline() {
    let kms = TestKms::start();
    let flags = kms_flags(&kms);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let damaged = vector("snapshots/damaged.db.gz");
    let out = atrest(&[&["verify", "--snapshot", text(&damaged), "-o", "ndjson"], &flags[..]].concat(), 1);
    let rows = json_lines(&out);
    let class = |key: &str| rows.iter().find(|row| row["key"] == key).map(|row| row["class"].clone());
    let wanted = crate::support::vector_lines("snapshots/damaged.classes.jsonl");
    assert_eq!(wanted.len(), 33);
    for line in wanted {
        let class = class(line["key"].as_str().expect("a key")).expect("a row");
        assert!(line["classes"].as_array().expect("classes").contains(&class), "{line}: {class}");
    }
}

#[test]
fn objects_are_those_that_kubectl_showed() {
    let kms = TestKms::start();
    let flags = kms_flags(&kms);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let healthy = vector("snapshots/healthy.db.gz");
    let out = atrest(&[&["get", "--reveal", "-o", "ndjson", "--snapshot", text(&healthy)], &flags[..]].concat(), 0);
    let found: std::collections::BTreeMap<_, _> =
        json_lines(&out).into_iter().map(|line| (line["key"].to_string(), line["object"].clone())).collect();
    let expected = crate::support::vector_lines("snapshots/healthy.objects.jsonl");
    assert_eq!(expected.len(), 124);
    // One was written again between the snapshot, whose last revision is 330, and kubectl.
    let is_later = |line: &Value| {
        let revision = line["object"]["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<i64>().ok());
        revision > Some(330)
    };
    let (later, expected): (Vec<_>, Vec<_>) = expected.into_iter().partition(is_later);
    assert_eq!(
        later.iter().map(|line| &line["key"]).collect::<Vec<_>>(),
        ["/registry/endpointslices/default/kubernetes"]
    );
    for line in expected {
        assert_eq!(found[&line["key"].to_string()], line["object"], "{}", line["key"]);
    }
}

#[test]
fn a_snapshot_is_rewritten_under_the_key_of_a_kms() {
    let kms = TestKms::start();
    let flags = kms_flags(&kms);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let directory = tempfile::tempdir().expect("a directory");
    let (healthy, out) = (vector("snapshots/healthy.db.gz"), directory.path().join("new.db"));
    let rewritten = [&["snapshot", "rekey", text(&healthy), "--out", text(&out), "-o", "json"], &flags[..]].concat();
    let report: Value = serde_json::from_str(&atrest(&rewritten, 0)).expect("JSON");
    assert_eq!((&report["records"], &report["unreadable_values"]), (&329.into(), &0.into()));
    // One seed for the whole run, whatever the number of values.
    assert_eq!(kms.counts()[1], 1);
    let verified = atrest(&[&["verify", "--snapshot", text(&out), "--expect", "current"], &flags[..]].concat(), 0);
    assert!(verified.ends_with("213 of 213 values readable with this configuration\n"), "{verified}");
    let census =
        atrest(&["scan", "--snapshot", text(&out), "--history", "--by", "provider", "--resource", "secrets"], 0);
    assert!(!census.contains("aescbc") && !census.contains("secretbox") && !census.contains("identity"), "{census}");
}
