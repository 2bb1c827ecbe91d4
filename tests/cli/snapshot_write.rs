//! `atrest snapshot rekey`, `redact` and `decrypt`: what is written, and what is left when nothing is.

use serde_json::{Value, json};

use crate::fixture::{Dir, LOCAL, etcd, json_of, local_config, mode, unpacked, with_keys};
use crate::run::{Run, atrest, config, provider};

/// Writes a new snapshot of [`LOCAL`].
fn write(command: &str, out: &str, more: &[&str]) -> Run {
    with_keys(&local_config(), &[&["snapshot", command, LOCAL, "--out", out, "-o", "json"], more].concat())
}

/// How many values of a resource are under each key.
fn census(file: &str, resource: &str) -> Vec<(String, u64)> {
    let report = json_of(&atrest(&["scan", "--snapshot", file, "--resource", resource, "-o", "json"], b"").exits(0));
    let rows = report["groups"].as_array().expect("rows").iter();
    let shown = rows.map(|row| {
        let (provider, key) = (row["provider"].as_str(), row["key_name"].as_str());
        let label = [provider.expect("a provider"), key.expect("a name")].join("/");
        (label.trim_end_matches('/').to_owned(), row["values"].as_u64().expect("a count"))
    });
    shown.collect()
}

#[test]
fn everything_is_under_the_first_provider() {
    let dir = Dir::new();
    let out = dir.arg("new.db");
    let report = json_of(&write("rekey", &out, &[]).exits(0));
    assert_eq!(
        [&report["records_before"], &report["records"], &report["replaced"], &report["dropped"], &report["revision"]],
        [&json!(240), &json!(240), &json!(68), &json!(0), &json!(241)]
    );
    assert_eq!(dir.files(), ["new.db"]);
    assert_eq!(mode(&out), 0o600);
    for (resource, count) in [("secrets", 43), ("configmaps", 13), ("widgets.stable.example.com", 6)] {
        assert_eq!(census(&out, resource), [("aesgcm/gcm1".to_owned(), count)], "{resource}");
    }
    // The hash is that of the file, and the objects are the same.
    atrest(&["snapshot", "inspect", &out], b"").exits(0);
    let objects =
        |file: &str| with_keys(&local_config(), &["get", "--snapshot", file, "--reveal", "-o", "json"]).exits(0).stdout;
    assert!(objects(&out) == objects(LOCAL));
    let diff = with_keys(&local_config(), &["snapshot", "diff", LOCAL, &out]).exits(0);
    assert!(
        diff.text().starts_with(&format!("{LOCAL} at revision 241 -> {out} at revision 241: no difference, ")),
        "{}",
        diff.text()
    );
}

#[test]
fn decrypted_is_in_the_clear_and_warned_of_in_any_case() {
    let dir = Dir::new();
    let out = dir.arg("clear.db");
    let run = with_keys(&local_config(), &["-q", "snapshot", "decrypt", LOCAL, "--out", &out]).exits(0);
    assert_eq!(
        run.stderr,
        format!(
            "atrest: warning: {out} will hold every secret in the clear: keep it where only you can read it, and \
             destroy it when it has served\n"
        )
    );
    assert_eq!(mode(&out), 0o600);
    assert_eq!(census(&out, "secrets"), [("identity".to_owned(), 43)]);
    let bytes = std::fs::read(&out).expect("a file");
    assert!(bytes.windows(10).any(|window| window == b"p@ss-p1-0-"));
}

#[test]
fn what_exists_is_replaced_only_when_that_is_asked_for() {
    let dir = Dir::new();
    let out = dir.write("there", "precious");
    for command in ["rekey", "decrypt"] {
        let run = write(command, &out, &["-q"]).exits(2);
        assert!(
            run.stderr.ends_with(&format!(
                "atrest: error: {out} exists\natrest: hint: name another file with --out, or replace it with --force\n"
            )),
            "{}",
            run.stderr
        );
        assert_eq!(run.text(), "");
        assert_eq!(std::fs::read_to_string(&out).expect("a file"), "precious");
    }
    write("rekey", &out, &["--force"]).exits(0);
    assert_eq!((dir.files(), mode(&out)), (vec!["there".to_owned()], 0o600));
    assert_eq!(census(&out, "secrets"), [("aesgcm/gcm1".to_owned(), 43)]);
    // Not even that replaces what is read.
    let run = with_keys(&local_config(), &["snapshot", "rekey", &out, "--out", &out, "--force"]).exits(2);
    assert_eq!(run.stderr, format!("atrest: error: {out} is the snapshot itself\n"));
    let nowhere = dir.arg("no/such/directory.db");
    let run = write("rekey", &nowhere, &[]).exits(4);
    assert!(
        run.stderr.starts_with(&format!("atrest: error: cannot write {nowhere}: No such file or directory")),
        "{}",
        run.stderr
    );
    assert_eq!(dir.files(), ["there"]);
}

/// Neither the values under key1 nor those of the KMS can be read by this.
fn wrong_config() -> crate::run::File {
    config(&[&provider("secretbox", "key2", crate::run::K2), "identity: {}"])
}

#[test]
fn nothing_is_written_when_a_value_cannot_be_read() {
    let dir = Dir::new();
    let out = dir.arg("new.db");
    let config = config(&[&provider("aesgcm", "gcm1", "REREREREREREREREREREREREREREREREREREREREREQ="), "identity: {}"]);
    let args = ["snapshot", "rekey", LOCAL, "--out", &out];
    let run = with_keys(&config, &[&args[..], &["-o", "json"]].concat()).exits(1);
    let report = json_of(&run);
    let counts = ["unreadable_values", "target", "records"].map(|field| report[field].clone());
    assert_eq!(counts, [json!(47), json!(""), json!(0)]);
    // Of every revision: 32 of secrets, and what is encrypted of resources that the configuration does not name.
    let unreadable = report["unreadable"].as_array().expect("findings");
    let of = |resource: &str| unreadable.iter().filter(|row| row["resource"] == resource).count();
    assert_eq!([of("secrets"), of("configmaps"), of("widgets.stable.example.com")], [32, 10, 5]);
    assert!(unreadable.iter().all(|row| row["class"] == "no-provider"), "{unreadable:#?}");
    let table = with_keys(&config, &args).exits(1);
    let last = table.text().lines().last().expect("a line");
    assert_eq!(last, "nothing was written: 47 values cannot be read (--keep-unreadable leaves them as they are)");
    assert_eq!(dir.files(), [""; 0]);
    // They are kept when that is asked for, and it is a finding still.
    let run = with_keys(&config, &[&args[..], &["--keep-unreadable", "-o", "json"]].concat()).exits(1);
    assert_eq!([&json_of(&run)["unreadable_values"], &json_of(&run)["records"]], [&json!(47), &json!(240)]);
    assert_eq!(
        census(&out, "secrets"),
        [
            ("aescbc/key0".to_owned(), 7),
            ("aescbc/key1".to_owned(), 7),
            ("aescbc/key2".to_owned(), 7),
            ("aesgcm/gcm1".to_owned(), 15),
            ("secretbox/box1".to_owned(), 7),
        ]
    );
}

#[test]
fn a_snapshot_that_may_be_damaged_is_not_passed_on() {
    let dir = Dir::new();
    let wrong = dir.write("wrong", unpacked(&etcd("corrupt/c04-sha-mismatch.db.gz")));
    let damaged = dir.write("damaged", unpacked(&etcd("corrupt/c10-branch-child-out-of-range.db.gz")));
    let (config, out) = (wrong_config(), dir.arg("new.db"));
    let run = with_keys(&config, &["snapshot", "rekey", &wrong, "--out", &out]).exits(3);
    assert_eq!(
        (run.text(), run.stderr.as_str()),
        (
            "",
            format!(
                "atrest: error: {wrong}: the snapshot may be damaged: SHA-256 does not match: the file is not as it \
                 was written\natrest: hint: --skip-hash-check takes it all the same: look at it with `atrest snapshot \
                 inspect` first\n"
            )
            .as_str()
        )
    );
    let run = with_keys(&config, &["snapshot", "rekey", &damaged, "--salvage", "--out", &out]).exits(3);
    assert_eq!(
        run.stderr,
        format!(
            "atrest: error: {damaged}: a damaged snapshot cannot be rewritten: what is left of it would pass for the \
             whole\natrest: hint: leave --salvage out; `atrest snapshot export --salvage` saves what is left as \
             objects\n"
        )
    );
    assert_eq!(dir.files(), ["damaged", "wrong"]);
}

#[test]
fn what_is_redacted_is_gone() {
    let dir = Dir::new();
    let out = dir.arg("new.db");
    let redact = |more: &[&str]| {
        atrest(&[&["snapshot", "redact", LOCAL, "--out", &out, "-o", "json", "--force"], more].concat(), b"")
    };
    let report = json_of(&redact(&["--resource", "secrets"]).exits(0));
    assert_eq!([&report["records"], &report["dropped"], &report["replaced"]], [&json!(190), &json!(50), &json!(0)]);
    assert_eq!(mode(&out), 0o600);
    let rest = atrest(&["scan", "--snapshot", &out, "--history", "--resource", "secrets", "-o", "json"], b"").exits(0);
    assert_eq!(json_of(&rest)["values"], 0);
    // Nor does the file hold the bytes anywhere.
    let bytes = std::fs::read(&out).expect("a file");
    assert!(!bytes.windows(18).any(|window| window == b"/registry/secrets/"));
    let report = json_of(
        &redact(&["--key", "/registry/secrets/team-b/touched", "--key", "/registry/configmaps/team-a/p0-cm-0"])
            .exits(0),
    );
    assert_eq!([&report["records"], &report["dropped"]], [&json!(233), &json!(7)]);
    let report = json_of(&redact(&["-n", "team-b", "--resource", "configmaps"]).exits(0));
    assert_eq!(report["dropped"], 4);
}

#[test]
fn a_redaction_that_selects_nothing_is_a_mistake() {
    let dir = Dir::new();
    let out = dir.arg("new.db");
    let run = atrest(&["snapshot", "redact", LOCAL, "--out", &out], b"").exits(2);
    assert_eq!(
        (run.text(), run.stderr.as_str()),
        (
            "",
            "atrest: error: nothing is selected: name what is to be left out with --key, --resource, -n or --prefix\n"
        )
    );
    assert_eq!(dir.files(), [""; 0]);
    let run = atrest(&["snapshot", "redact", LOCAL, "--out", &out, "--key", "/registry/nope"], b"").exits(1);
    assert_eq!(run.text().lines().last(), Some("note: no key of the snapshot is among those that were named"));
    assert_eq!(dir.files(), [""; 0]);
    let run = atrest(&["snapshot", "redact", LOCAL, "--out", &out, "--key", "/x", "--keep-unreadable"], b"").exits(2);
    assert!(run.stderr.contains("--replace-secret-data"), "{}", run.stderr);
}

#[test]
fn secrets_can_be_kept_without_what_they_keep() {
    let dir = Dir::new();
    let out = dir.arg("new.db");
    let report = json_of(&write("redact", &out, &["--replace-secret-data"]).exits(0));
    assert_eq!([&report["records"], &report["replaced"], &report["dropped"]], [&json!(240), &json!(49), &json!(0)]);
    let secret = |file: &str| -> Value {
        let args = ["get", "--snapshot", file, "secrets", "p1-app-0", "--reveal", "-o", "json"];
        json_of(&with_keys(&local_config(), &args).exits(0))
    };
    let (before, after) = (secret(LOCAL), secret(&out));
    assert_eq!(before["metadata"], after["metadata"]);
    for field in ["password", "username"] {
        let kept = crate::run::decode(after["data"][field].as_str().expect("text"));
        assert!(!kept.is_empty() && after["data"][field] != before["data"][field], "{after:#}");
    }
    // Without the keys they cannot be opened, and nothing is written.
    std::fs::remove_file(&out).expect("a file");
    let run =
        atrest(&["snapshot", "redact", LOCAL, "--out", &out, "--replace-secret-data", "-o", "json"], b"").exits(1);
    assert_eq!(json_of(&run)["unreadable_values"], 40);
    assert_eq!(dir.files(), [""; 0]);
}
