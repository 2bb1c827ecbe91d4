//! Files and ciphertexts that other programs made.

use std::collections::BTreeMap;

use atrest::secret::Key;
use atrest_kms_plugin::backend::keyring::KeyringBackend;
use atrest_kms_plugin::backend::{Backend as _, Error, Wrapped};
use atrest_kms_plugin::keyring::{Keyring, Opener, State, rfc3339};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::folder::{Folder, PASSPHRASE, by_passphrase, vectors};

/// What both files hold.
fn assert_keys(keyring: &Keyring) {
    let keys: Vec<_> =
        keyring.ring().keys().map(|key| (key.id.as_str().to_owned(), rfc3339(key.created), key.state)).collect();
    let expected = [
        ("kr-20260131-0123456789abcdef", "2026-01-31T10:00:00Z", State::DecryptOnly),
        ("kr-20260228-fedcba9876543210", "2026-02-28T11:30:00+01:00", State::Current),
        ("named.by_hand-3", "2026-03-01T00:00:00.25Z", State::Staged),
    ];
    assert_eq!(keys, expected.map(|(id, created, state)| (id.to_owned(), created.to_owned(), state)));
    let retired: Vec<_> =
        keyring.ring().retired().iter().map(|key| (key.id.as_str(), rfc3339(key.created), key.when())).collect();
    let expected =
        ("kr-20251224-00000000deadbeef", "2025-12-24T18:00:00Z".to_owned(), "2026-02-01T09:00:00Z".to_owned());
    assert_eq!(retired, [expected]);
}

struct Case {
    plaintext: Vec<u8>,
    wrapped: Wrapped,
}

fn cases() -> Vec<Case> {
    let text = std::fs::read_to_string(vectors().join("wrapped.jsonl")).expect("wrapped.jsonl");
    let bytes = |value: &Value| hex::decode(value.as_str().expect("text")).expect("hex");
    let cases = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect(line);
        Case {
            plaintext: bytes(&line["plaintext"]),
            wrapped: Wrapped {
                ciphertext: bytes(&line["ciphertext"]),
                key_id: line["key_id"].as_str().expect("text").to_owned(),
                annotations: BTreeMap::new(),
            },
        }
    });
    cases.collect()
}

async fn assert_opens_all(backend: &KeyringBackend) {
    let cases = cases();
    assert_eq!(cases.len(), 9);
    for case in &cases {
        let key = backend.decrypt(&case.wrapped).await.unwrap();
        assert_eq!(key, Key::new(Zeroizing::new(case.plaintext.clone())), "{}", case.wrapped.key_id);
        for other in cases.iter().filter(|other| other.wrapped.key_id != case.wrapped.key_id) {
            let moved = Wrapped { key_id: other.wrapped.key_id.clone(), ..case.wrapped.clone() };
            let error = backend.decrypt(&moved).await.unwrap_err();
            assert!(matches!(error, Error::AuthenticationFailed), "{error}");
        }
    }
    assert_eq!(backend.current_key_id().await.unwrap(), "kr-20260228-fedcba9876543210");
}

#[tokio::test]
async fn a_keyring_that_python_wrote() {
    let folder = Folder::new();
    let path = folder.vector("plain.json");
    assert_keys(&Keyring::open(&path, &Opener::Plain).unwrap());
    assert_opens_all(&KeyringBackend::open(&path, Opener::Plain).unwrap()).await;
}

#[tokio::test]
async fn a_keyring_that_libsodium_sealed() {
    let folder = Folder::new();
    let path = folder.vector("passphrase.json");
    let opener = by_passphrase(folder.write("passphrase", PASSPHRASE));
    assert_keys(&Keyring::open(&path, &opener).unwrap());
    assert_opens_all(&KeyringBackend::open(&path, opener).unwrap()).await;
}

/// Whatever the layout of the JSON: only what the fields say is authenticated.
#[test]
fn a_sealed_keyring_in_another_layout() {
    let folder = Folder::new();
    let text = std::fs::read_to_string(vectors().join("passphrase.json")).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    let path = folder.write("pretty", serde_json::to_string_pretty(&value).unwrap());
    assert_keys(&Keyring::open(&path, &by_passphrase(folder.write("passphrase", PASSPHRASE))).unwrap());
}
