//! `atrest snapshot inspect`, `residue`, `diff` and `history`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::fixture::{Dir, LOCAL, etcd, json_of, local_config, unpacked, with_keys};
use crate::run::{atrest, decode};

fn inspect(name: &str) -> Value {
    json_of(&atrest(&["snapshot", "inspect", &etcd(name), "-o", "json"], b"").exits(0))
}

/// Some fields of a report.
fn fields(report: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| (*name, report[*name].clone())).map(|(name, value)| (name.to_owned(), value)).collect()
}

const FACTS: [&str; 10] = [
    "file_size",
    "total_size",
    "revision",
    "compacted_revision",
    "interrupted_compaction",
    "status_hash",
    "status_revision",
    "total_keys",
    "live_keys",
    "consistent_index",
];

/// The hashes, revisions and counts are those that `etcdutl snapshot status` prints.
#[test]
fn the_facts_are_those_of_etcd() {
    let history = inspect("valid/v351-history.db");
    assert_eq!(
        fields(&history, &FACTS),
        json!({
            "file_size": 57376, "total_size": 57344, "revision": 46, "compacted_revision": null,
            "interrupted_compaction": null, "status_hash": 0x72a3_7752, "status_revision": 46, "total_keys": 54,
            "live_keys": 19, "consistent_index": 50,
        })
    );
    let free = |free: u64, total: u64| {
        format!(
            "{free} of {total} pages are free and may hold what was deleted or overwritten: `atrest snapshot residue` \
             looks"
        )
    };
    assert_eq!(history["warnings"], json!([free(2, 14)]));
    assert_eq!(
        history["keys"],
        json!([
            {"key": "aescbc/key1", "kms_key_id_hash": null, "live": 4, "history": 9},
            {"key": "aesgcm/k3", "kms_key_id_hash": null, "live": 1, "history": 0},
            {"key": "identity", "kms_key_id_hash": null, "live": 7, "history": 15},
            {"key": "kms-v2/prov", "kms_key_id_hash": null, "live": 1, "history": 0},
            {"key": "secretbox/key2", "kms_key_id_hash": null, "live": 6, "history": 0},
        ])
    );
    let compacted = inspect("valid/v351-compacted.db");
    assert_eq!(
        fields(&compacted, &FACTS),
        json!({
            "file_size": 77856, "total_size": 77824, "revision": 46, "compacted_revision": 46,
            "interrupted_compaction": null, "status_hash": 0xa8bb_303c_u32, "status_revision": 45, "total_keys": 28,
            "live_keys": 19, "consistent_index": 51,
        })
    );
    assert_eq!(compacted["warnings"], json!([free(10, 19)]));
}

#[test]
fn what_surprises_after_a_restore_is_warned_of() {
    let auth = inspect("valid/v351-auth-enabled.db");
    assert_eq!(
        auth["warnings"][0],
        "auth is on: a cluster that is restored asks for a user, which kube-apiserver has not by default"
    );
    assert_eq!(
        fields(&auth["cluster"], &["auth_enabled", "users", "roles", "alarms"]),
        json!({"auth_enabled": true, "users": ["alice", "root"], "roles": ["reader"], "alarms": []})
    );
    let alarm = inspect("hazard/nospace-alarm.db.gz");
    assert_eq!(alarm["cluster"]["alarms"], json!(["NOSPACE"]));
    assert_eq!(
        alarm["warnings"],
        json!(["the alarm NOSPACE is on: a cluster that is restored refuses writes until `etcdctl alarm disarm`"])
    );
    let bumped = inspect("datadir/v368-restored-bumped-db.gz");
    assert_eq!(
        fields(&bumped, &["revision", "compacted_revision", "interrupted_compaction", "live_keys", "trailer"]),
        json!({
            "revision": 1046, "compacted_revision": null, "interrupted_compaction": 1046, "live_keys": 19,
            "trailer": {"state": "missing", "zeros": 16_781_312},
        })
    );
    assert_eq!(
        bumped["warnings"][1],
        "a compaction at revision 1046 was not finished: etcd goes on with it, and some records up to there may be gone"
    );
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// What is printed of the groups of a residue report.
fn groups(csv: &str) -> Vec<&str> {
    csv.lines().skip(1).collect()
}

#[test]
fn free_pages_of_a_compacted_file_hold_what_was_overwritten() {
    let file = etcd("valid/v351-compacted.db");
    let run = atrest(&["snapshot", "residue", &file, "-o", "csv"], b"").exits(1);
    assert_eq!(
        groups(run.text()),
        [
            ",live,(not Kubernetes),identity,-,2,11,0",
            ",live,leases.coordination.k8s.io,identity,-,1,21,0",
            ",live,masterleases (never encrypted),identity,-,1,2,0",
            ",live,pods,identity,-,1,19,0",
            ",live,secrets,aescbc/key1,-,4,12236,0",
            ",live,secrets,aesgcm/k3,-,1,69,0",
            "!,live,secrets,identity,-,1,48,0",
            ",live,secrets,kms-v2/prov,-,1,26,0",
            ",live,secrets,secretbox/key2,-,6,444,0",
            ",free-pages,(not Kubernetes),identity,-,2,11,2",
            ",free-pages,configmaps,identity,-,1,62,0",
            ",free-pages,leases.coordination.k8s.io,identity,-,2,34,1",
            ",free-pages,masterleases (never encrypted),identity,-,1,2,1",
            ",free-pages,pods,identity,-,1,19,1",
            ",free-pages,secrets,aescbc/key1,-,13,12875,4",
            ",free-pages,secrets,aesgcm/k3,-,1,69,1",
            "!,free-pages,secrets,identity,-,14,11886,1",
            ",free-pages,secrets,kms-v2/prov,-,1,26,1",
            ",free-pages,secrets,secretbox/key2,-,6,444,6",
        ]
    );
    // The values of free page 4 were carved from it by another program as well.
    let expected = std::fs::read_to_string(etcd("expected/v351-compacted.free.jsonl")).expect("a file");
    let carved = expected.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let of_page_4: Vec<_> = carved
        .filter(|record| record["page"] == 4)
        .filter_map(|record| record["value"]["b64"].as_str().map(decode))
        .filter(|value| contains(value, b"PLAINTEXT-demo-password"))
        .collect();
    assert_eq!(of_page_4.len(), 12);
    let report = json_of(&atrest(&["snapshot", "residue", &file, "-o", "json"], b"").exits(1));
    assert_eq!((&report["unwanted"], &report["complete"]), (&json!(15), &json!(true)));
    // Nothing is left in a file that was written anew.
    let defragged = atrest(&["snapshot", "residue", &etcd("valid/v351-defragged.db"), "-o", "csv"], b"").exits(1);
    assert!(groups(defragged.text()).iter().all(|line| line.contains(",live,")), "{}", defragged.text());
}

/// A data directory of etcd 3.5.1, and what an operator leaves in one.
fn data_dir() -> Dir {
    let dir = Dir::new();
    dir.write("member/snap/db", unpacked(&etcd("datadir/v351-member-snap-db.gz")));
    dir.write(
        "member/wal/0000000000000000-0000000000000000.wal",
        unpacked(&etcd("wal/v351-0000000000000000-0000000000000000.wal")),
    );
    dir.write(
        "member/snap/0000000000000001-0000000000000001.snap",
        unpacked(&etcd("datadir/v351-restored-0000000000000001-0000000000000001.snap")),
    );
    dir.write("member/wal/x.broken", b"k8s:enc:aescbc:v1:old:0123456789abcdef0123456789abcdef");
    dir.write("member/snap/db.tmp.1", unpacked(&etcd("valid/v351-compacted.db")));
    dir
}

#[test]
fn a_data_directory_is_looked_through_to_the_last_file() {
    let dir = data_dir();
    let path = dir.arg("");
    let before = dir.files();
    let run = atrest(&["snapshot", "residue", "--data-dir", &path, "-o", "json"], b"").exits(1);
    let report = json_of(&run);
    let group = |place: &str, key: &str| -> Vec<(String, u64, bool)> {
        let groups = report["groups"].as_array().expect("groups").iter();
        let of_place = groups.filter(|group| group["place"] == place && group["key"] == key);
        let shown = of_place.map(|group| {
            let resource = group["resource"].as_str().expect("a resource").to_owned();
            (resource, group["values"].as_u64().expect("a count"), group["unwanted"] == true)
        });
        shown.collect()
    };
    assert_eq!(group("history", "identity").last(), Some(&("secrets".to_owned(), 13, true)));
    assert_eq!(group("wal", "identity").last(), Some(&("secrets".to_owned(), 14, true)));
    // The branch of a transaction that was not taken was never in the database.
    assert_eq!(group("wal-other-branch", "identity"), [("secrets".to_owned(), 1, true)]);
    let examples = report["examples"].as_array().expect("examples");
    let never = examples.iter().find(|example| example["place"] == "wal-other-branch").expect("an example");
    assert_eq!((&never["key"], &never["bytes"]), (&json!("/registry/secrets/team-b/never"), &json!(27)));
    assert_eq!(
        group("left-file", "identity"),
        [("configmaps".to_owned(), 1, false), ("pods".to_owned(), 2, false), ("secrets".to_owned(), 14, true)]
    );
    assert_eq!(group("left-file", "aescbc/old"), [("(unknown)".to_owned(), 1, false)]);
    let files: Vec<_> =
        report["files"].as_array().expect("files").iter().map(|file| file.as_str().expect("a path")).collect();
    for name in before.iter().filter(|name| !name.ends_with('/')) {
        assert!(files.contains(&dir.arg(name).as_str()), "{name} in {files:?}");
    }
    let forms = [STANDARD.encode("PLAINTEXT-"), hex::encode("PLAINTEXT"), "PLAINTEXT".to_owned()];
    for form in ["table", "wide", "json", "ndjson", "yaml", "csv", "name"] {
        let run = atrest(&["-vv", "snapshot", "residue", "--data-dir", &path, "-o", form], b"").exits(1);
        for hidden in &forms {
            assert!(!run.text().contains(hidden) && !run.stderr.contains(hidden), "{form}: {}", run.text());
        }
    }
    assert_eq!(dir.files(), before);
}

#[test]
fn a_data_directory_has_no_hash_and_a_log() {
    let dir = data_dir();
    let run = atrest(&["scan", "--data-dir", &dir.arg("")], b"").exits(0);
    let note = "an entry of the write-ahead log is not in the database yet, and is left out here: `atrest snapshot inspect` \
                names them\n";
    assert_eq!(run.stderr, format!("atrest: warning: data directory {}: {note}", dir.arg("")));
    let ended = format!("\n17 values at revision 46: 12 encrypted, 5 in the clear\nnote: {note}");
    assert!(run.text().ends_with(&ended), "{}", run.text());
    let report = json_of(&atrest(&["snapshot", "inspect", "--data-dir", &dir.arg(""), "-o", "json"], b"").exits(0));
    assert_eq!(report["not_yet_in_db"], json!(["51: compaction 46"]));
    assert_eq!(
        report["warnings"],
        json!([
            "2 of 14 pages are free and may hold what was deleted or overwritten: `atrest snapshot residue` looks",
            "an entry of the write-ahead log is not in the database yet: etcd applies it when it starts",
        ])
    );
}

#[test]
fn a_diff_of_two_revisions_says_what_became_of_each_object() {
    let file = etcd("valid/v351-history.db");
    let run = atrest(
        &["snapshot", "diff", &file, "--from-revision", "14", "-o", "csv", "--resource", "pods,configmaps"],
        b"",
    );
    let run = run.exits(1);
    assert_eq!(
        run.text(),
        "what,key,revisions,changes\nadded,/registry/configmaps/team-a/empty,- -> 15,\nremoved,\
         /registry/configmaps/team-a/settings,14 -> -,\nadded,/registry/pods/team-b/web-0,- -> 16,\n"
    );
    let same = atrest(&["snapshot", "diff", &file, &etcd("valid/v351-compacted.db")], b"").exits(0);
    assert_eq!(
        same.text(),
        format!(
            "{file} at revision 46 -> {} at revision 46: no difference, 17 the same\n",
            etcd("valid/v351-compacted.db")
        )
    );
    // A data directory is as good as a file.
    let dir = data_dir();
    atrest(&["snapshot", "diff", &file, &dir.arg("")], b"").exits(0);
}

#[test]
fn a_history_has_every_revision_and_shows_what_changed_when_that_is_asked_for() {
    let config = local_config();
    let key = "/registry/secrets/team-b/touched";
    let args = ["snapshot", "history", key, "--snapshot", LOCAL];
    let revealed = with_keys(&config, &[&args[..], &["--reveal"]].concat()).exits(0);
    assert_eq!(
        revealed.text(),
        "\
88.0  created  2026-11-29T16:38:08Z  identity (stale, 218 bytes)
    by kubectl-create
117.0  changed  2026-11-29T16:38:15Z  aescbc/key0 (stale, 327 bytes)
    by kubectl-patch
    .data.gen: MA== -> MQ==
145.0  changed  2026-11-29T16:38:21Z  aescbc/key1 (stale, 327 bytes)
    by kubectl-patch
    .data.gen: MQ== -> Mg==
173.0  changed  2026-11-29T16:38:27Z  aescbc/key2 (stale, 327 bytes)
    by kubectl-patch
    .data.gen: Mg== -> Mw==
201.0  changed  2026-11-29T16:38:33Z  secretbox/box1 (stale, 346 bytes)
    by kubectl-patch
    .data.gen: Mw== -> NA==
229.0  changed  2026-11-29T16:38:40Z  aesgcm/gcm1 (current, 331 bytes)
    by kubectl-patch
    .data.gen: NA== -> NQ==

/registry/secrets/team-b/touched: 6 revisions in snapshot tests/vectors/snapshots/local.db.gz
"
    );
    let hidden = json_of(&with_keys(&config, &[&args[..], &["-o", "json"]].concat()).exits(0));
    let change = &hidden["revisions"][1]["changes"][0];
    assert_eq!(change["path"], ".data.gen");
    assert_ne!(change["from"], "MA==");
    assert_ne!(change["from"], change["to"]);
    let none = with_keys(&config, &["snapshot", "history", "/registry/x", "--snapshot", LOCAL]).exits(1);
    assert_eq!(none.text(), "/registry/x: no revision of it is in this file\n");
    // Without a configuration they cannot be read, and are listed all the same.
    let file = etcd("valid/v351-history.db");
    let run = atrest(&["snapshot", "history", "/registry/secrets/team-a/s10", "--snapshot", &file], b"").exits(1);
    assert_eq!(run.text(), S10.replace("FILE", &file));
}

/// Deletions are revisions too.
const S10: &str = "\
11.0  created  -  identity (garbage, 52 bytes)
28.0  changed  -  aescbc/key1 (no-provider, 71 bytes)
46.0  deleted  -  -

/registry/secrets/team-a/s10: 3 revisions in snapshot FILE
";

/// A line for each row, and then the report without them.
#[test]
fn rows_are_lines_of_ndjson() {
    let (file, later) = (etcd("valid/v351-history.db"), etcd("valid/v351-compacted.db"));
    let lines = |args: &[&str], code| -> Vec<Value> {
        let run = atrest(&[args, &["-o", "ndjson"]].concat(), b"").exits(code);
        run.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let diff = lines(&["snapshot", "diff", &file, "--from-revision", "14", "--resource", "pods,configmaps"], 1);
    assert_eq!(diff.len(), 4);
    assert_eq!((&diff[0]["difference"], &diff[3]["rows"]), (&json!("added"), &json!([])));
    let history = lines(&["snapshot", "history", "/registry/secrets/team-a/s11", "--snapshot", &file], 1);
    assert_eq!(history.iter().filter(|line| line["event"].is_string()).count() + 1, history.len());
    let residue = lines(&["snapshot", "residue", &later], 1);
    assert!(residue.len() > 2 && residue[0]["place"].is_string(), "{residue:?}");
}
