//! What the commands do, print, and refuse.

use atrest::report::key_id_hash;
use atrest_kms_plugin::keyring::State;
use serde_json::json;

use crate::folder::{Folder, keyring, states};

#[test]
fn keygen_makes_one_key_and_shows_it() {
    let folder = Folder::new();
    let run = folder.run(&["keygen", "--plain", "--keyring", "k", "-o", "json"]).exits(0);
    let id = run.key_id();
    assert_eq!(states(&keyring(&folder.path("k"))), [(id.clone(), State::Current)]);
    let created = run.json()["keys"][0]["created"].clone();
    let date = created.as_str().unwrap()[..10].replace('-', "");
    assert!(id.starts_with(&format!("kr-{date}-")) && id.len() == 28, "{id}");
    let expected = json!({
        "keyring": "k",
        "seal": "none",
        "keys": [{"key_id": id, "key_id_hash": key_id_hash(&id), "created": created, "state": "current"}],
        "retired": [],
    });
    assert_eq!((run.json(), run.stderr.as_str()), (expected, ""));
}

#[test]
fn list_shows_what_python_wrote() {
    let folder = Folder::new();
    folder.vector("plain.json");
    let run = folder.run(&["list", "--keyring", "plain.json"]).exits(0);
    let hash = key_id_hash;
    let expected = format!(
        "\
KEY ID                        STATE         CREATED                    RETIRED               HASH
kr-20260131-0123456789abcdef  decrypt-only  2026-01-31T10:00:00Z                             {}
kr-20260228-fedcba9876543210  current       2026-02-28T11:30:00+01:00                        {}
named.by_hand-3               staged        2026-03-01T00:00:00.25Z                          {}
kr-20251224-00000000deadbeef  retired       2025-12-24T18:00:00Z       2026-02-01T09:00:00Z  {}
",
        hash("kr-20260131-0123456789abcdef"),
        hash("kr-20260228-fedcba9876543210"),
        hash("named.by_hand-3"),
        hash("kr-20251224-00000000deadbeef"),
    );
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), (expected.as_str(), ""));
    let json = folder.run(&["list", "--keyring", "plain.json", "-o", "json"]).exits(0).json();
    let expected = json!({
        "key_id": "kr-20251224-00000000deadbeef",
        "key_id_hash": hash("kr-20251224-00000000deadbeef"),
        "created": "2025-12-24T18:00:00Z",
        "retired": "2026-02-01T09:00:00Z",
    });
    assert_eq!(json["retired"], json!([expected]));
    assert_eq!(json["keys"][2]["state"], "staged");
}

#[test]
fn rotate_makes_a_key_that_encrypts() {
    let folder = Folder::new();
    let path = folder.keygen("k");
    let first = states(&keyring(&path))[0].0.clone();
    let second = folder.run(&["rotate", "--keyring", "k", "-o", "json"]).exits(0).key_id();
    assert_eq!(states(&keyring(&path)), [(first, State::DecryptOnly), (second, State::Current)]);
}

#[test]
fn rotate_at_once_says_what_it_takes() {
    let folder = Folder::new();
    folder.keygen("k");
    let expected = "atrest-kms-plugin: warning: the new key encrypts at once: a plugin with another copy of the keyring cannot decrypt what \
                    this one encrypts; with several nodes, `rotate --stage`, copy the keyring to each, then `rotate --activate`\n";
    assert_eq!(folder.run(&["rotate", "--keyring", "k"]).exits(0).stderr, expected);
    assert_eq!(folder.run(&["rotate", "--stage", "--keyring", "k"]).exits(0).stderr, "");
    assert_eq!(folder.run(&["rotate", "--activate", "--keyring", "k"]).exits(0).stderr, "");
}

#[test]
fn a_staged_key_is_activated_by_a_second_command() {
    let folder = Folder::new();
    let path = folder.keygen("k");
    let first = states(&keyring(&path))[0].0.clone();
    let run = folder.run(&["rotate", "--activate", "--keyring", "k"]).exits(1);
    let expected = "atrest-kms-plugin: error: k: no key is staged\natrest-kms-plugin: hint: make a key by `rotate --stage`, or name \
                    one: `rotate --activate KEY_ID`\n";
    assert_eq!((run.stderr.as_str(), run.stdout.as_str()), (expected, ""));
    let second = folder.run(&["rotate", "--stage", "--keyring", "k", "-o", "json"]).exits(0).key_id();
    assert_eq!(states(&keyring(&path)), [(first.clone(), State::Current), (second.clone(), State::Staged)]);
    let third = folder.run(&["rotate", "--stage", "--keyring", "k", "-o", "json"]).exits(0).key_id();
    let run = folder.run(&["rotate", "--activate", "--keyring", "k"]).exits(1);
    assert!(run.stderr.starts_with("atrest-kms-plugin: error: k: 2 keys are staged: say which\n"), "{}", run.stderr);
    let run = folder.run(&["rotate", "--activate", &third, "--keyring", "k", "-o", "json"]).exits(0);
    assert_eq!((run.key_id(), run.json()["keys"][0]["state"].as_str()), (third.clone(), Some("current")));
    let expected = [(first, State::DecryptOnly), (second, State::Staged), (third, State::Current)];
    assert_eq!(states(&keyring(&path)), expected);
    folder.run(&["rotate", "--activate", "--stage", "--keyring", "k"]).exits(2);
}

#[test]
fn retire_wants_yes_and_says_who_knows_whether_it_is_safe() {
    let folder = Folder::new();
    let path = folder.keygen("k");
    let first = states(&keyring(&path))[0].0.clone();
    let run = folder.run(&["retire", &first, "--yes", "--keyring", "k"]).exits(1);
    let expected = format!(
        "atrest-kms-plugin: error: k: the key {first} is the current one\natrest-kms-plugin: hint: let another key encrypt first, by \
         `rotate`, and store everything again by `atrest rekey`\n"
    );
    assert_eq!(run.stderr, expected);
    folder.run(&["rotate", "--keyring", "k"]).exits(0);
    let before = std::fs::read(&path).unwrap();
    // API servers went on writing by the old key for minutes after a rotation, and what they wrote was lost with it.
    for args in [&["retire", &first][..], &["retire", &first, "--yes"]] {
        let run = folder.run(&[args, &["--keyring", "k"]].concat()).exits(1);
        let (error, hint) = run.stderr.split_once("wait ").expect("a time");
        let expected = format!(
            "atrest-kms-plugin: error: k: the key {first} has stopped encrypting less than 10 minutes ago\natrest-kms-plugin: hint: API \
             servers go on writing by it for some minutes: "
        );
        let (seconds, hint) = hint.split_once(' ').expect("a unit");
        let seconds: u64 = seconds.parse().expect("a number");
        assert!((500..=601).contains(&seconds), "{seconds}");
        let then = "s, ask `atrest verify --removable` again, then retire it; --force does not wait\n";
        assert_eq!((error, hint, run.stdout.as_str()), (expected.as_str(), then, ""));
    }
    let listed = folder.run(&["list", "--keyring", "k", "-o", "json"]).exits(0).json();
    let stopped = listed["keys"][0]["deactivated"].as_str().expect("a time").to_owned();
    assert_eq!((&listed["keys"][1]["created"], &listed["keys"][1]["deactivated"]), (&json!(stopped), &json!(null)));
    let earlier = String::from_utf8(before)
        .unwrap()
        .replace(&format!("\"deactivated\": \"{stopped}\""), "\"deactivated\": \"2026-01-31T10:00:00Z\"");
    std::fs::write(&path, &earlier).unwrap();
    let before = earlier.into_bytes();
    let run = folder.run(&["retire", &first, "--keyring", "k"]).exits(1);
    // A key ID that no value names is known for sure by its whole hash only.
    let hash = atrest::report::key_id_hash(&first);
    let expected = format!(
        "atrest-kms-plugin: error: {first} was not retired: what it encrypted would be lost\natrest-kms-plugin: hint: whether \
         nothing needs it any more is said by `atrest verify --encryption-provider-config FILE --removable {hash}`; then add --yes\n"
    );
    assert_eq!((run.stderr, run.stdout.as_str()), (expected, ""));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let run = folder.run(&["retire", &hash, "--yes", "--keyring", "k", "-o", "json"]).exits(0).json();
    assert_eq!((&run["retired"][0]["key_id"], &run["keys"]), (&json!(first), &json!([])));
    assert_eq!(states(&keyring(&path)).len(), 1);
    let when = run["retired"][0]["retired"].as_str().unwrap().to_owned();
    for args in [["retire", &first, "--yes"], ["retire", &first, "-otable"]] {
        let run = folder.run(&[&args[..], &["--keyring", "k"]].concat()).exits(1);
        assert_eq!(run.stderr, format!("atrest-kms-plugin: error: k: the key {first} was retired on {when}\n"));
    }
    let run = folder.run(&["retire", "other", "--yes", "--keyring", "k"]).exits(1);
    let expected =
        "atrest-kms-plugin: error: k: no key has the ID other\natrest-kms-plugin: hint: the keys are shown by `list`\n";
    assert_eq!(run.stderr, expected);
}

#[test]
fn reseal_keeps_the_keys() {
    let folder = Folder::new();
    let path = folder.vector("plain.json");
    let before = states(&keyring(&path));
    folder.write("p1", "correct horse battery staple\n");
    folder.write("p2", "another one of some length");
    let list = |args: &[&str], seal: &str| {
        let json = folder.run(&[&["list", "-o", "json", "--keyring", "plain.json"], args].concat()).exits(0).json();
        assert_eq!((&json["seal"], json["keys"].as_array().map(Vec::len)), (&json!(seal), Some(3)));
    };
    folder.run(&["reseal", "--new-passphrase-file", "p1", "--keyring", "plain.json"]).exits(0);
    list(&["--passphrase-file", "p1"], "passphrase");
    let run = folder.run(&["list", "--keyring", "plain.json"]).exits(2);
    let expected = "atrest-kms-plugin: error: plain.json: it is sealed by a passphrase, which is not given\natrest-kms-plugin: hint: \
                    give --passphrase-file or --credential\n";
    assert_eq!(run.stderr, expected);
    let args = ["reseal", "--passphrase-file", "p1", "--new-passphrase-file", "p2", "--keyring", "plain.json"];
    folder.run(&args).exits(0);
    list(&["--passphrase-file", "p2"], "passphrase");
    let run = folder.run(&["list", "--passphrase-file", "p1", "--keyring", "plain.json"]).exits(3);
    let expected =
        "atrest-kms-plugin: error: plain.json: it does not open: the passphrase is wrong, or the file is damaged\n";
    assert_eq!(run.stderr, expected);
    folder.run(&["reseal", "--passphrase-file", "p2", "--new-plain", "--keyring", "plain.json"]).exits(0);
    list(&[], "none");
    let run = folder.run(&["list", "--passphrase-file", "p2", "--keyring", "plain.json"]).exits(2);
    let expected = "atrest-kms-plugin: error: plain.json: it is not sealed, although a passphrase is given\natrest-kms-plugin: hint: if \
                    you did not unseal it, somebody else put it there; if you did, leave the flag out\n";
    assert_eq!(run.stderr, expected);
    assert_eq!(states(&keyring(&path)), before);
}

#[test]
fn usage() {
    let folder = Folder::new();
    let run = folder.run(&["keygen", "--keyring", "k"]).exits(2);
    let expected = "atrest-kms-plugin: error: say how to seal it: --passphrase-file, --credential, --tpm or --plain\n";
    assert_eq!(run.stderr, expected);
    let run = folder.run(&["reseal", "--keyring", "k"]).exits(2);
    let expected = "atrest-kms-plugin: error: say how to seal it: --new-passphrase-file, --new-credential, --new-tpm or --new-plain\n";
    assert_eq!(run.stderr, expected);
    for args in [
        &["list", "--tpm-pcrs", "7"][..],
        &["keygen", "--plain", "--tpm-tcti", "x"],
        &["reseal", "--new-plain", "--tpm-pcrs=7"],
    ] {
        let run = folder.run(&[args, &["--keyring", "k"]].concat()).exits(2);
        let expected = "atrest-kms-plugin: error: k: --tpm-tcti and --tpm-pcrs are for keyrings that a TPM seals\n";
        assert_eq!(run.stderr, expected);
    }
    folder.run(&["keygen", "--keyring", "k", "--plain", "--tpm"]).exits(2);
    folder.run(&["keygen", "--keyring", "k", "--passphrase-file", "a", "--credential", "b"]).exits(2);
    folder.run(&["keygen", "--plain"]).exits(2);
    folder.run(&["list"]).exits(2);
    assert_eq!(folder.names(), [""; 0]);
}

#[cfg(not(feature = "tpm"))]
#[test]
fn without_support_for_a_tpm() {
    let folder = Folder::new();
    let run = folder.run(&["keygen", "--tpm", "--keyring", "k"]).exits(2);
    let expected = "atrest-kms-plugin: error: k: this program was built without support for TPMs\natrest-kms-plugin: hint: build it \
                    with `--features tpm`, which needs libtss2-dev\n";
    assert_eq!(run.stderr, expected);
}
