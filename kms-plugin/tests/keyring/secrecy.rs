//! No key and no passphrase is in anything that is printed, nor in a file that is sealed.

use atrest_kms_plugin::backend::keyring::KeyringBackend;
use atrest_kms_plugin::backend::{Backend as _, Wrapped};
use atrest_kms_plugin::keyring::{Document, Keyring, Opener};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use crate::folder::{Folder, PASSPHRASE, Run, by_passphrase, finish, vectors};

/// The keys of `plain.json`, of which any part is recognised.
const KEYS: [&[u8; 32]; 3] =
    [b"ZQJXVKWYzqjxvkwyQZXJKVYWqzxjkvyw", b"JQZWKXVYjqzwkxvyWJKQVXZYwjkqvxzy", b"XKQJVWZYxkqjvwzyKXJQWVYZkxjqwvyz"];

/// Parts of a secret, in every form in which it could be printed.
fn forms(secret: &[u8]) -> Vec<String> {
    let mut forms = Vec::new();
    let mut encoded = vec![STANDARD.encode(secret), URL_SAFE_NO_PAD.encode(secret)];
    // The same in the middle of something longer.
    encoded.extend([1, 2].map(|shift| STANDARD.encode(&secret[shift..])));
    for text in encoded {
        forms.extend(text.as_bytes().windows(10).map(|part| String::from_utf8_lossy(part).into_owned()));
    }
    for part in secret.windows(6) {
        forms.push(String::from_utf8_lossy(part).into_owned());
        forms.push(hex::encode(part));
        forms.push(part.iter().map(u8::to_string).collect::<Vec<_>>().join(", "));
    }
    forms
}

fn all_forms() -> Vec<String> {
    KEYS.iter().flat_map(|key| forms(*key)).chain(forms(PASSPHRASE.as_bytes())).collect()
}

#[track_caller]
fn assert_silent(what: &str, text: &str, forms: &[String]) {
    let found = forms.iter().find(|form| text.contains(form.as_str()));
    assert!(found.is_none(), "{what}: {found:?} in {text}");
}

#[test]
fn a_leak_would_be_seen() {
    let text = std::fs::read_to_string(vectors().join("plain.json")).unwrap();
    for key in KEYS {
        assert!(forms(key).iter().any(|form| text.contains(form)));
    }
    assert!(forms(PASSPHRASE.as_bytes()).iter().any(|form| format!("x{PASSPHRASE:?}").contains(form)));
}

#[test]
fn commands_show_no_key_and_no_passphrase() {
    let forms = all_forms();
    let folder = Folder::new();
    folder.vector("plain.json");
    folder.write("p", format!("{PASSPHRASE}\n"));
    folder.write("wrong", "a passphrase of another keyring");
    let run = |args: &[&str]| -> Run {
        let run = finish(folder.command(&[args, &["--keyring", "plain.json"]].concat()).env("RUST_LOG", "trace"));
        assert_silent(&format!("{args:?}"), &run.stdout, &forms);
        assert_silent(&format!("{args:?}"), &run.stderr, &forms);
        run
    };
    run(&["list"]).exits(0);
    run(&["list", "-o", "json"]).exits(0);
    run(&["keygen", "--plain"]).exits(1);
    run(&["list", "--passphrase-file", "p"]).exits(2);
    run(&["rotate", "-o", "json"]).exits(0);
    run(&["retire", "kr-20260131-0123456789abcdef"]).exits(1);
    run(&["retire", "kr-20260131-0123456789abcdef", "--yes", "--force"]).exits(0);
    run(&["reseal", "--new-passphrase-file", "p"]).exits(0);
    let sealed = std::fs::read_to_string(folder.path("plain.json")).unwrap();
    assert_silent("the sealed file", &sealed, &forms);
    for id in ["kr-20260228-fedcba9876543210", "decrypt-only", "retired"] {
        assert!(!sealed.contains(id), "{id} in {sealed}");
    }
    run(&["list"]).exits(2);
    run(&["list", "--passphrase-file", "wrong"]).exits(3);
    run(&["rotate", "--passphrase-file", "p", "--stage"]).exits(0);
    run(&["list", "--passphrase-file", "p", "-o", "json"]).exits(0);
}

/// serde's own messages quote what they did not expect.
#[test]
fn a_broken_file_is_not_quoted() {
    let forms = all_forms();
    let whole = std::fs::read(vectors().join("plain.json")).unwrap();
    let check = |text: &[u8]| {
        if let Err(error) = Document::parse(text) {
            assert_silent("parse", &format!("{error} {error:?} {error:#?}"), &forms);
        }
    };
    for at in 0..whole.len() {
        check(&whole[..at]);
        for byte in [b'"', b'\\', b'{', b'}', b'[', b',', b':', b'0', b'x', 0, 0xff] {
            let mut changed = whole.clone();
            changed[at] = byte;
            check(&changed);
        }
    }
    // A key where something else should be.
    let text = String::from_utf8(whole).unwrap();
    let key = STANDARD.encode(KEYS[0]);
    for (from, to) in [
        ("\"current\"", format!("\"{key}\"")),
        ("\"none\"", format!("\"{key}\"")),
        ("\"version\": 1", format!("\"version\": \"{key}\"")),
        ("\"retired\": [", format!("\"{key}\": [")),
        ("\"2026-01-31T10:00:00Z\"", format!("\"{key}\"")),
        ("\"kr-20260131-0123456789abcdef\"", format!("\"{key}\"")),
        ("\"atrest-keyring\"", format!("\"{key}\"")),
    ] {
        let changed = text.replacen(from, &to, 1);
        assert_ne!(changed, text, "{from}");
        let error = Document::parse(changed.as_bytes()).unwrap_err();
        assert_silent(from, &format!("{error} {error:?}"), &forms);
    }
}

#[tokio::test]
async fn debug_and_errors_show_no_key() {
    let forms = all_forms();
    let folder = Folder::new();
    let plain = folder.vector("plain.json");
    let keyring = Keyring::open(&plain, &Opener::Plain).unwrap();
    assert_silent("keyring", &format!("{keyring:?} {keyring:#?} {:?}", keyring.ring()), &forms);
    let document = Document::parse(&std::fs::read(&plain).unwrap()).unwrap();
    assert_silent("document", &format!("{document:?} {document:#?}"), &forms);
    let opener = by_passphrase(folder.write("p", PASSPHRASE));
    let backend = KeyringBackend::open(&folder.vector("passphrase.json"), opener).unwrap();
    assert_silent("backend", &format!("{backend:?} {backend:#?}"), &forms);
    // Nor do the errors of requests name a key by anything but its hash.
    for key_id in ["kr-20251224-00000000deadbeef", "kr-20260228-fedcba9876543210", "named.by_hand-3", "no-such-key"] {
        let wrapped = Wrapped { ciphertext: KEYS[1].to_vec(), key_id: key_id.to_owned(), annotations: [].into() };
        let error = backend.decrypt(&wrapped).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(!text.contains(key_id), "{text}");
        assert_silent("error", &text, &forms);
    }
}
