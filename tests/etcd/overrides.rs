//! `--etcd-servers-overrides`: resources that are stored in an etcd of their own.

use serde_json::Value;

use crate::fixture::{
    K1, K2, Ran, Workshop, config, everything, journal, object, opened, sealed, secret, secret_key, transformers,
};
use crate::support::{Etcd, Version};

fn event_key(name: &str) -> String {
    format!("/registry/events/ns/{name}")
}

/// Secrets and an event that nobody looks for in the one, events in the other; all of them under the first key.
struct Pair {
    main: Etcd,
    events: Etcd,
    workshop: Workshop,
}

fn resources() -> &'static str {
    "secrets, events"
}

impl Pair {
    fn new(version: Version) -> Self {
        let (main, events) = (Etcd::start(version), Etcd::start(version));
        let old = transformers(&config(resources(), &[&format!("aesgcm key1 {K1}")]));
        let put = |etcd: &Etcd, key: String, plaintext: Vec<u8>| {
            let value = sealed(&old, key.as_bytes(), &plaintext);
            etcd.client().put(key, value);
        };
        for name in ["a", "b"] {
            put(&main, secret_key("ns", name), secret("ns", name, "hunter2"));
        }
        put(&main, event_key("left"), object("Event", "ns", "left", "x"));
        for name in ["1", "2", "3"] {
            put(&events, event_key(name), object("Event", "ns", name, "x"));
        }
        let workshop = Workshop::new();
        let both = [&*format!("aesgcm key2 {K2}"), &*format!("aesgcm key1 {K1}")];
        workshop.file("config.yaml", &config(resources(), &both));
        Self { main, events, workshop }
    }

    fn run(&self, command: &str, args: &[&str]) -> Ran {
        let overrides = format!("/events#{}", self.events.endpoint());
        let mut all = vec!["--etcd-servers-overrides", &overrides];
        all.extend(args);
        self.workshop.run(&self.main, command, all)
    }
}

fn groups(ran: &Ran) -> Vec<(String, u64)> {
    let report: Value = serde_json::from_str(&ran.stdout).expect(&ran.stderr);
    let groups = report["groups"].as_array().expect("there are groups");
    groups
        .iter()
        .map(|group| (group["resource"].as_str().unwrap().to_owned(), group["values"].as_u64().unwrap()))
        .collect()
}

#[test]
fn scan_and_verify_read_every_etcd_and_tell_what_nobody_reads() {
    for version in Version::ALL {
        let pair = Pair::new(version);
        let alone = pair.workshop.run(&pair.main, "scan", ["-o", "json"]);
        assert_eq!(groups(&alone), [("events".to_owned(), 1), ("secrets".to_owned(), 2)]);
        let scan = pair.run("scan", &["-o", "json"]);
        assert_eq!((groups(&scan), scan.code), (vec![("events".to_owned(), 4), ("secrets".to_owned(), 2)], Some(0)));
        let note = "1 values are where --etcd-servers-overrides has API servers look for others: none of them reads these (/registry/events/ns/left)";
        assert!(scan.stdout.contains(note), "{}", scan.stdout);
        let verify = pair.run("verify", &["--encryption-provider-config", "config.yaml", "-o", "json"]);
        let report: Value = serde_json::from_str(&verify.stdout).unwrap();
        assert_eq!((report["values"].as_u64(), report["classes"]["stale"].as_u64()), (Some(6), Some(6)), "{report}");
        assert!(report["source"].as_str().unwrap().contains("/events in etcd 3."), "{}", report["source"]);
        let get = pair.run("get", &["events", "-A", "--encryption-provider-config", "config.yaml", "-o", "name"]);
        assert_eq!(get.stdout, "event/1\nevent/2\nevent/3\n", "{}", get.stderr);
    }
}

#[test]
fn rekey_rotates_every_etcd_and_has_one_report() {
    for version in Version::ALL {
        let pair = Pair::new(version);
        let args = ["--encryption-provider-config", "config.yaml", "-o", "json"];
        let plan: Value = serde_json::from_str(&pair.run("rekey", &args).stdout).unwrap();
        assert_eq!(plan["to_rewrite"], 6);
        let done = pair.run("rekey", &[&args[..], &["--yes", "--journal", "journal.jsonl"]].concat());
        let report: Value = serde_json::from_str(&done.stdout).expect(&done.stderr);
        assert_eq!(
            (done.code, &report["rewritten"], &report["still_stale"]),
            (Some(0), &6.into(), &0.into()),
            "{report}"
        );
        let new = transformers(&config(resources(), &[&format!("aesgcm key2 {K2}")]));
        for etcd in [&pair.main, &pair.events] {
            for (key, kv) in everything(etcd) {
                assert!(!opened(&new, &key, kv.value()).1);
            }
        }
        // Each has a journal of its own, and a second run goes on with both.
        let lines = |name: &str| journal(&pair.workshop.path().join(name)).len();
        assert_eq!((lines("journal.jsonl"), lines("journal.jsonl.2")), (3, 3));
        let again = pair.run("rekey", &[&args[..], &["--yes", "--journal", "journal.jsonl"]].concat());
        assert_eq!((again.code, &again.json(0)["rewritten"]), (Some(0), &0.into()), "{}", again.stderr);
        // The same etcd twice would be counted twice.
        let twice = format!("/events#{}", pair.main.endpoint());
        let twice = pair.workshop.run(&pair.main, "scan", ["--etcd-servers-overrides", &twice]);
        assert_eq!(twice.code, Some(2));
        assert!(twice.stderr.contains("is one of --endpoints: leave it out"), "{}", twice.stderr);
        // One etcd that cannot be reached is told, and nothing is written.
        let overrides = "/events#http://127.0.0.1:1";
        let refused = ["--etcd-servers-overrides", overrides, "--dial-timeout", "1s", "--yes", "--no-journal"];
        let refused = [&args[..], &refused].concat();
        let refused = pair.workshop.run(&pair.main, "rekey", refused);
        assert_eq!(refused.code, Some(3), "{}", refused.stderr);
        let which = "this is about the etcd of /events, which --etcd-servers-overrides names";
        assert!(refused.stderr.contains(which), "{}", refused.stderr);
        // Revisions are of one etcd.
        let watch = pair.run("watch", &["--since-revision", "1"]);
        assert_eq!(watch.code, Some(2));
        assert!(watch.stderr.contains("is stored in several: name the resources of one"), "{}", watch.stderr);
        let watch = pair.run("watch", &["events", "--since-revision", "1", "--max-events", "1", "-o", "name"]);
        assert_eq!((watch.code, watch.stdout.as_str()), (Some(1), "/registry/events/ns/1\n"), "{}", watch.stderr);
        assert_eq!(pair.run("scan", &["--revision", "1"]).code, Some(2));
    }
}

#[test]
fn a_set_of_snapshots_has_one_report() {
    let pair = Pair::new(Version::V3_5);
    for (name, etcd) in [("main.db", &pair.main), ("events.db", &pair.events)] {
        std::fs::write(pair.workshop.path().join(name), etcd.client().snapshot()).unwrap();
    }
    let run = |command: &str, args: &[&str]| {
        let mut atrest = std::process::Command::new(env!("CARGO_BIN_EXE_atrest"));
        atrest.current_dir(pair.workshop.path()).args([command, "--snapshot", "main.db"]);
        let output = atrest.args(args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let overrides = ["--etcd-servers-overrides", "/events#events.db"];
    let (code, stdout, stderr) = run("scan", &[&overrides[..], &["-o", "json"]].concat());
    let report: Value = serde_json::from_str(&stdout).expect(&stderr);
    assert_eq!((code, &report["values"], &report["encrypted"]), (Some(0), &6.into(), &6.into()));
    let (code, _, stderr) = run("scan", &["--etcd-servers-overrides", "/events#http://127.0.0.1:1"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("name the file of the other etcd: /events#events.db"), "{stderr}");
    let (code, _, stderr) = run("scan", &["--etcd-servers-overrides", "events"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("\"events\" is not group/resource#servers"), "{stderr}");
}
