//! `atrest watch`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::fixture::{K1, K2, Workshop, config, sealed, secret, secret_key, transformers};
use crate::support::{Etcd, Version};

/// A running watch, and its lines.
struct Watching {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Watching {
    fn start(workshop: &Workshop, etcd: &Etcd, args: &[&str]) -> Self {
        let mut atrest = workshop.atrest(etcd, "watch");
        let config = ["--encryption-provider-config", "config.yaml", "-o", "ndjson"];
        let mut child = atrest.args(config).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().expect("a line comes").unwrap()).unwrap()
    }

    /// The exit code, and what was said.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        let mut said = String::new();
        std::io::Read::read_to_string(self.child.stderr.as_mut().unwrap(), &mut said).unwrap();
        (code, said)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// What a line says, without the object.
fn short(line: &Value) -> Value {
    json!([line["type"], line["revision"], line["name"], line["key_name"], line["class"]])
}

fn workshop() -> Workshop {
    let workshop = Workshop::new();
    let both = [&*format!("aesgcm key2 {K2}"), &*format!("aesgcm key1 {K1}"), "identity"];
    workshop.file("config.yaml", &config("secrets", &both));
    workshop
}

fn put(etcd: &Etcd, key: &str, name: &str, password: &str) -> i64 {
    let secret_bytes = if key == K1 { "key1" } else { "key2" };
    let transformers = transformers(&config("secrets", &[&format!("aesgcm {secret_bytes} {key}")]));
    let etcd_key = secret_key("ns", name);
    let value = sealed(&transformers, etcd_key.as_bytes(), &secret("ns", name, password));
    etcd.client().put(etcd_key, value)
}

#[test]
fn changes_are_shown_decrypted_with_their_keys() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        let workshop = workshop();
        let first = put(&etcd, K1, "a", "aHVudGVyMg==");
        let since = (first - 1).to_string();
        let mut watching =
            Watching::start(&workshop, &etcd, &["secrets", "-A", "--since-revision", &since, "--max-events", "6"]);
        let added = watching.next();
        assert_eq!(short(&added), json!(["ADDED", first, "a", "key1", "stale"]));
        assert_eq!(added["object"]["data"]["password"], "[REDACTED, 7 bytes]");
        assert_eq!(added["object"]["metadata"]["resourceVersion"], first.to_string());
        // The same object under another key: only its encryption is another.
        let resealed = put(&etcd, K2, "a", "aHVudGVyMg==");
        let line = watching.next();
        assert_eq!(short(&line), json!(["MODIFIED", resealed, "a", "key2", "current"]));
        assert_eq!((&line["previous_key"], &line["changed"]), (&json!("aesgcm/key1"), &json!([])));
        // Data of the same length is redacted alike, and told to be other all the same.
        let changed = put(&etcd, K2, "a", "aHVudGVyMw==");
        let line = watching.next();
        assert_eq!(
            (&line["revision"], &line["changed"], &line["previous_key"]),
            (&json!(changed), &json!([".data.password"]), &Value::Null)
        );
        let bad =
            etcd.client().put(secret_key("ns", "bad"), "k8s:enc:aesgcm:v1:key2:nobody can read this at all, ever");
        assert_eq!(short(&watching.next()), json!(["ADDED", bad, "bad", "key2", "wrong-key"]));
        etcd.client()
            .put("/registry/pods/ns/p", r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"ns"}}"#);
        etcd.client().delete(secret_key("ns", "a"));
        let line = watching.next();
        assert_eq!(short(&line), json!(["DELETED", etcd.client().revision(), "a", "key2", "current"]));
        assert_eq!(line["object"]["metadata"]["name"], "a");
        let clear = etcd.client().put(secret_key("ns", "c"), secret("ns", "c", "x"));
        let line = watching.next();
        assert_eq!(short(&line), json!(["ADDED", clear, "c", Value::Null, "stale"]));
        assert_eq!(line["provider"], "identity");
        // What cannot be read is a finding.
        assert_eq!(watching.end().0, Some(1));
        let revealed = ["secrets", "a", "-n", "ns", "--reveal", "--since-revision", &since, "--max-events", "1"];
        let mut watching = Watching::start(&workshop, &etcd, &revealed);
        assert_eq!(watching.next()["object"]["data"]["password"], "aHVudGVyMg==");
        assert_eq!(watching.end().0, Some(0));
    }
}

#[test]
fn a_watch_survives_compaction_when_it_may_list_again() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        let workshop = workshop();
        let first = put(&etcd, K1, "a", "1");
        put(&etcd, K1, "gone", "1");
        etcd.client().delete(secret_key("ns", "gone"));
        put(&etcd, K1, "a", "2");
        let last = put(&etcd, K2, "b", "1");
        etcd.client().compact(last);
        let since = first.to_string();
        let refused = Watching::start(&workshop, &etcd, &["secrets", "--since-revision", &since]).end();
        assert_eq!(refused.0, Some(3));
        let said =
            format!("changes after revision {first} are compacted away; what is there begins at revision {last}");
        assert!(refused.1.contains(&said) && refused.1.contains("hint: with --relist"), "{}", refused.1);
        let args = ["secrets", "--since-revision", &since, "--relist", "--max-events", "3"];
        let mut watching = Watching::start(&workshop, &etcd, &args);
        let relisted = watching.next();
        assert_eq!((&relisted["type"], &relisted["revision"]), (&json!("RELISTED"), &json!(last)));
        assert_eq!(short(&watching.next()), json!(["ADDED", last - 1, "a", "key1", "stale"]));
        assert_eq!(short(&watching.next()), json!(["ADDED", last, "b", "key2", "current"]));
        let new = put(&etcd, K2, "c", "1");
        assert_eq!(short(&watching.next()), json!(["ADDED", new, "c", "key2", "current"]));
        let (code, said) = watching.end();
        assert_eq!(code, Some(4));
        assert!(said.contains("changes were compacted away before they were seen: some are missing"), "{said}");
    }
}

/// etcd is stopped while the watch runs, and what it has compacted meanwhile is made up for by a list: also what was deleted.
#[test]
fn what_has_gone_while_nobody_looked_is_told() {
    for version in Version::ALL {
        let mut etcd = Etcd::start(version);
        let workshop = workshop();
        put(&etcd, K2, "a", "1");
        put(&etcd, K2, "b", "1");
        let mut watching =
            Watching::start(&workshop, &etcd, &["secrets", "--list-first", "--relist", "--max-events", "5"]);
        assert_eq!([watching.next(), watching.next()].map(|line| line["name"].clone()), [json!("a"), json!("b")]);
        etcd.pause();
        // The watch cannot be served while etcd is stopped: it is cut off, and etcd goes on without it.
        etcd.resume();
        let changed = put(&etcd, K2, "a", "2");
        assert_eq!(short(&watching.next()), json!(["MODIFIED", changed, "a", "key2", "current"]));
        etcd.kill();
        etcd.restart();
        let again = put(&etcd, K2, "a", "3");
        assert_eq!(short(&watching.next()), json!(["MODIFIED", again, "a", "key2", "current"]));
        etcd.client().delete(secret_key("ns", "b"));
        assert_eq!(short(&watching.next())[0], "DELETED");
        assert_eq!(watching.end().0, Some(0));
    }
}

#[test]
fn a_table_has_a_line_for_each_change() {
    let etcd = Etcd::start(Version::V3_5);
    let workshop = workshop();
    put(&etcd, K1, "a", "1");
    put(&etcd, K2, "a", "1");
    let args = ["secrets", "--since-revision", "1", "--max-events", "2", "--encryption-provider-config", "config.yaml"];
    let ran = workshop.run(&etcd, "watch", args);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(
        ran.stdout,
        "  REVISION  EVENT     RESOURCE                          NAME                              KEY\n\
         \x20        2  ADDED     secrets                           ns/a                              aesgcm/key1  stale\n\
         \x20        3  MODIFIED  secrets                           ns/a                              aesgcm/key1 -> aesgcm/key2  (same object)\n"
    );
    let ran = workshop.run(&etcd, "watch", ["secrets", "--since-revision", "99"]);
    let said = "atrest: error: revision 99 is in the future: etcd is at 3\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(2), said));
    let ran = workshop.run(&etcd, "watch", ["secrets", "--for", "1s"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{}", ran.stderr);
}
