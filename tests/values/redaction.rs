//! `Debug` of whatever holds a key or a plaintext shows no byte of it.

use std::fmt::Debug;
use std::time::Duration;

use atrest::config::{Options, load};
use atrest::secret::{Key, Opened, Password, Plaintext};
use atrest::source::{Page, StoredValue};
use atrest::storage::{ConnectOptions, TlsOptions};
use atrest::transformer::{
    AesCbc, AesGcm, DataContext, Engine, NoMatch, PrefixTransformer, PrefixTransformers, ProviderKind, Secretbox,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::setup::{KEY, configuration, file, identity, provider, secrets, transformers};

/// Text of which any four bytes are recognised wherever they turn up.
const SECRET: &[u8; 32] = b"ZQJXVKWYzqjxvkwyQZXJKVYWqzxjkvyw";

fn key() -> Key {
    Key::new(Zeroizing::new(SECRET.to_vec()))
}

/// Whether a text holds four bytes of the secret in a row, in any form in which bytes are printed.
fn leak(text: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let list = |window: &[u8], form: fn(&u8) -> String| window.iter().map(form).collect::<Vec<_>>().join(", ");
    let base64 = STANDARD.encode(SECRET);
    let windows = SECRET.windows(4).flat_map(|window| {
        [
            String::from_utf8_lossy(window).into_owned(),
            list(window, u8::to_string),
            list(window, |byte| format!("0x{byte:x}")),
            list(window, |byte| format!("{byte:x}")),
        ]
    });
    let decoded = windows.clone().find(|form| text.contains(form));
    let hex = SECRET.windows(4).map(hex::encode).find(|form| lower.contains(form));
    let encoded = (0..base64.len() - 6).map(|at| base64[at..at + 6].to_owned()).find(|form| text.contains(form));
    // One byte a line, as `{:#?}` prints a list.
    let spread = SECRET.windows(4).map(|window| list(window, u8::to_string).replace(' ', ""));
    let lines: String = text.split_whitespace().collect();
    decoded.or(hex).or(encoded).or_else(|| spread.clone().find(|form| lines.contains(form)))
}

fn assert_redacted(what: &str, value: &dyn Debug) {
    for text in [format!("{value:?}"), format!("{value:#?}"), format!("{value:x?}"), format!("{value:X?}")] {
        assert_eq!(leak(&text), None, "{what}: {text}");
    }
}

#[test]
fn a_leak_would_be_seen() {
    let bytes = SECRET.to_vec();
    let base64 = STANDARD.encode(SECRET);
    for text in [
        format!("{bytes:?}"),
        format!("{bytes:#?}"),
        format!("{bytes:x?}"),
        format!("{bytes:02X?}").to_lowercase(),
        hex::encode(SECRET),
        hex::encode_upper(SECRET),
        base64,
        String::from_utf8_lossy(SECRET).into_owned(),
    ] {
        assert_ne!(leak(&text), None, "{text}");
    }
    assert_eq!(leak("Key([REDACTED], 32 bytes)"), None);
}

#[test]
fn ciphers_and_keys_are_redacted() {
    assert_redacted("Key", &key());
    assert_redacted("AesCbc", &AesCbc::new(&key()).expect("a key"));
    assert_redacted("AesGcm", &AesGcm::new(&key()).expect("a key"));
    assert_redacted("AesGcm of RustCrypto", &AesGcm::with_engine(&key(), Engine::RustCrypto).expect("a key"));
    assert_redacted("AesGcm of ring", &AesGcm::with_engine(&key(), Engine::Ring).expect("a key"));
    assert_redacted("AesGcm of AWS-LC", &AesGcm::with_engine(&key(), Engine::AwsLc).expect("a key"));
    for len in [16, 24] {
        let short = Key::new(Zeroizing::new(SECRET[..len].to_vec()));
        assert_redacted("AesCbc", &AesCbc::new(&short).expect("a key"));
        assert_redacted("AesGcm", &AesGcm::new(&short).expect("a key"));
        assert_redacted("AesGcm", &AesGcm::with_engine(&short, Engine::RustCrypto).expect("a key"));
    }
    assert_redacted("Secretbox", &Secretbox::new(&key()).expect("a key"));
    assert_redacted("Password", &Password::new(String::from_utf8_lossy(SECRET).into_owned()));
}

#[test]
fn lists_of_transformers_are_redacted() {
    let entry = PrefixTransformer {
        prefix: b"k8s:enc:aescbc:v1:key1:".to_vec(),
        transformer: Box::new(AesCbc::new(&key()).expect("a key")),
    };
    assert_redacted("PrefixTransformer", &entry);
    assert_redacted("PrefixTransformers", &PrefixTransformers::new(vec![entry], NoMatch::Key(ProviderKind::AesCbc)));
    let all = secrets(&[
        provider("aescbc", &[("a", SECRET)]),
        provider("aesgcm", &[("b", SECRET)]),
        provider("secretbox", &[("c", SECRET)]),
        identity(),
    ]);
    assert_redacted("ResourceTransformers", &all);
    assert_redacted("ResourceTransformer", all.transformer_for_resource("", "secrets"));
    assert_eq!(all.keys().count(), 3);
    for (id, key) in all.keys() {
        assert_redacted("KeyId", &id);
        assert_redacted("ConfiguredKey", key);
        assert_redacted("ConfiguredKey", &all.key(id));
    }
    for (_, list) in all.lists() {
        assert_redacted("ProviderKeys", &list.providers());
    }
}

#[test]
fn configurations_are_redacted() {
    let text = file(&[(
        "secrets",
        &[
            provider("aescbc", &[("a", SECRET)]),
            provider("aesgcm", &[("b", SECRET)]),
            provider("secretbox", &[("c", SECRET)]),
        ],
    )]);
    let config = configuration(&text);
    assert_redacted("EncryptionConfiguration", &config);
    for entry in &config.resources {
        assert_redacted("ResourceConfiguration", entry);
        for provider in &entry.providers {
            assert_redacted("ProviderConfiguration", provider);
            assert_eq!(provider.keys()[0].secret.expose(), SECRET);
            assert_redacted("NamedKey", &provider.keys()[0]);
        }
    }
    assert_redacted("Loaded", &load(text.as_bytes(), &Options::default()));
    let broken = text.replace("kind:", "kinds:");
    assert_redacted("Invalid", &load(broken.as_bytes(), &Options::default()));
    assert_redacted("ResourceTransformers", &transformers(&[&text, &text]));
}

#[test]
fn options_of_a_connection_are_redacted() {
    let options = ConnectOptions {
        interrupted: &atrest::storage::NEVER,
        endpoints: vec!["http://127.0.0.1:2379".parse().expect("an endpoint")],
        tls: TlsOptions::default(),
        user: Some(("root".to_owned(), Password::new(String::from_utf8_lossy(SECRET).into_owned()))),
        dial_timeout: Duration::from_secs(1),
        command_timeout: Duration::from_secs(1),
    };
    assert_redacted("ConnectOptions", &options);
}

#[test]
fn values_are_redacted() {
    let value = StoredValue {
        key: KEY.to_vec(),
        value: SECRET.to_vec(),
        create_revision: 1,
        mod_revision: 2,
        version: 1,
        lease: 0,
    };
    assert_redacted("StoredValue", &value);
    assert_redacted("Page", &Page { values: vec![value], revision: 2 });
    assert_redacted("Plaintext", &Plaintext::Stored(SECRET));
    assert_redacted("Opened", &Opened::new(SECRET.to_vec()));
    assert_redacted("Plaintext", &Plaintext::Opened(Opened::new(SECRET.to_vec())));
    let all = secrets(&[identity()]);
    let list = all.transformer_for_resource("", "secrets");
    assert_redacted("FromStorage", &list.open(SECRET, DataContext::new(KEY)).expect("plaintext"));
}
