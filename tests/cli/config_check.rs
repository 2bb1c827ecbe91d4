//! `atrest config check`

use serde_json::json;

use crate::run::{File, K1, atrest, config, provider, vectors};

fn vector(name: &str) -> String {
    vectors().join("config/files").join(name).to_str().expect("a path").to_owned()
}

fn check(args: &[&str], stdin: &[u8]) -> crate::run::Run {
    atrest(&[&["--quiet", "config", "check"], args].concat(), stdin)
}

#[test]
fn a_good_file_is_good() {
    let file = vector("ok-aescbc-identity.yaml");
    let run = check(&[&file], b"").exits(0);
    assert_eq!((run.text(), run.stderr.as_str()), ("ok: kube-apiserver accepts the file; it covers secrets\n", ""));
    let run = check(&[&file, "-o", "json"], b"").exits(0);
    let report: serde_json::Value = serde_json::from_str(run.text()).expect("JSON");
    assert_eq!(report, json!({"ok": true, "resources": ["secrets"], "errors": [], "warnings": []}));
}

#[test]
fn every_error_of_a_bad_file_is_told_with_its_place() {
    let file = config(&[&provider("aescbc", "key1", "AQEB"), "identity: {}", &provider("secretbox", "", K1)]);
    let run = check(&[file.path(), "-o", "json"], b"").exits(2);
    let report: serde_json::Value = serde_json::from_str(run.text()).expect("JSON");
    assert_eq!(
        report,
        json!({
            "ok": false,
            "resources": [],
            "errors": [
                {
                    "path": "resources[0].providers[0].aescbc.keys[0].secret",
                    "line": 6,
                    "column": 44,
                    "message": "the key is 3 bytes long, expected 16, 24 or 32",
                },
                {
                    "path": "resources[0].providers[2].secretbox.keys[0].name",
                    "line": 8,
                    "column": 31,
                    "message": "the name of a key is required",
                },
            ],
            "warnings": [],
        })
    );
    assert_eq!(run.stderr, "");
}

#[test]
fn the_table_has_the_hints_too() {
    let run = check(&[&vector("aescbc-key-31-bytes.yaml")], b"").exits(2);
    assert_eq!(
        run.text(),
        "\
Errors:
9:17  resources[0].providers[0].aescbc.keys[0].secret
    the key is 31 bytes long, expected 16, 24 or 32
    make a new key: head -c 32 /dev/urandom | base64

kube-apiserver does not accept the file
"
    );
}

#[test]
fn automatic_reload_has_rules_of_its_own() {
    let file = vector("kms-two-same-name-v1.yaml");
    check(&[&file], b"").exits(0);
    let run = check(&[&file, "--automatic-reload", "-o", "json"], b"").exits(2);
    let report: serde_json::Value = serde_json::from_str(run.text()).expect("JSON");
    assert_eq!(report["ok"], false);
    assert_eq!(report["errors"][0]["path"], "resources[0].providers[1].kms.name");
}

#[test]
fn a_dash_is_standard_input() {
    let text = std::fs::read(vector("ok-aescbc-identity.yaml")).expect("a file");
    assert_eq!(check(&["-"], &text).exits(0).text(), "ok: kube-apiserver accepts the file; it covers secrets\n");
    let run = check(&["-", "-o", "json"], b"").exits(2);
    let report: serde_json::Value = serde_json::from_str(run.text()).expect("JSON");
    assert_eq!(report["errors"][0]["message"], "the file is empty");
}

#[test]
fn the_other_forms_hold_the_same() {
    let file = vector("aescbc-key-31-bytes.yaml");
    let run = check(&[&file, "-o", "ndjson"], b"").exits(2);
    assert_eq!(run.lines()[0]["errors"][0]["line"], 9);
    assert_eq!(
        check(&[&file, "-o", "csv"], b"").exits(2).text(),
        "place,field,message\n9:17,resources[0].providers[0].aescbc.keys[0].secret,\"the key is 31 bytes long, expected \
         16, 24 or 32\nmake a new key: head -c 32 /dev/urandom | base64\"\n"
    );
    assert!(check(&[&file, "-o", "yaml"], b"").exits(2).text().starts_with("ok: false\nresources: []\nerrors:\n"));
    let good = vector("ok-aescbc-identity.yaml");
    assert_eq!(check(&[&good, "-o", "name"], b"").exits(0).text(), "secrets\n");
}

#[test]
fn who_can_read_the_file_can_read_the_keys() {
    let file = config(&[&provider("aescbc", "key1", K1)]);
    let path = file.path();
    let warning = |mode: &str| {
        format!("atrest: warning: {path} holds keys and others than its owner can read it (mode {mode})\n")
    };
    for (mode, expected) in
        [(0o600, String::new()), (0o640, warning("640")), (0o604, warning("604")), (0o644, warning("644"))]
    {
        file.set_mode(mode);
        assert_eq!(atrest(&["config", "check", path], b"").exits(0).stderr, expected);
        assert_eq!(check(&[path], b"").exits(0).stderr, "");
        let args = [
            "encrypt",
            "--encryption-provider-config",
            path,
            "--resource",
            "secrets",
            "--key",
            "/registry/secrets/a/b",
        ];
        assert_eq!(atrest(&args, b"x").exits(0).stderr, expected);
        assert_eq!(atrest(&[&["-q"], &args[..]].concat(), b"x").exits(0).stderr, "");
    }
}

#[test]
fn a_file_that_is_no_text_is_refused() {
    for bytes in [&b"\xff\xfe\0k"[..], b"\0", b"{", b"- - - -"] {
        let file = File::new(bytes);
        let run = check(&[file.path(), "-o", "json"], b"").exits(2);
        let report: serde_json::Value = serde_json::from_str(run.text()).expect("JSON");
        assert_eq!(report["ok"], false, "{bytes:?}");
        assert_ne!(report["errors"], json!([]), "{bytes:?}");
    }
}
