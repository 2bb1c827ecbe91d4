//! Keys, their versions and their key IDs.

use std::time::Duration;

use atrest_kms_plugin::backend::vault::{Options, Vault};
use atrest_kms_plugin::backend::{Backend as _, Error};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::json;

use crate::bao::{Bao, options, with_key_id};
use crate::support::{conformance, key};

fn unknown(key_id: &str) -> Error {
    Error::UnknownKey { key_id_hash: atrest::report::key_id_hash(key_id) }
}

#[tokio::test]
async fn aes_gcm_conforms() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let older = bao.open("kek").encrypt(&key(b"older")).await.expect("it encrypts");
    assert!(older.ciphertext.starts_with(b"vault:v1:"));
    bao.rotate("kek").await;
    conformance::check(&bao.open("kek"), &older).await;
}

#[tokio::test]
async fn chacha20_poly1305_conforms() {
    let bao = Bao::start().await;
    bao.post("transit/keys/kek", json!({ "type": "chacha20-poly1305" })).await;
    let older = bao.open("kek").encrypt(&key(b"older")).await.expect("it encrypts");
    bao.rotate("kek").await;
    conformance::check(&bao.open("kek"), &older).await;
}

#[tokio::test]
async fn the_key_id_is_mount_name_version_and_the_time_it_was_made() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    bao.rotate("kek").await;
    let described = bao.admin(Method::GET, "transit/keys/kek", None).await;
    let made = described["data"]["keys"]["2"].as_u64().expect("a time");
    assert_eq!(bao.open("kek").current_key_id().await, Ok(format!("vault:transit/kek/v2/{made}")));
}

#[tokio::test]
async fn a_rotation_is_seen_at_a_reload_and_old_versions_decrypt() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let backend = bao.open("kek");
    let old = backend.encrypt(&key(&[1; 32])).await.expect("it encrypts");
    bao.rotate("kek").await;
    assert_eq!(backend.current_key_id().await.as_ref(), Ok(&old.key_id), "it was read a moment ago");
    backend.reload().await.expect("it can be read");
    let new = backend.encrypt(&key(&[2; 32])).await.expect("it encrypts");
    assert!(new.key_id.starts_with("vault:transit/kek/v2/"), "{}", new.key_id);
    assert!(new.ciphertext.starts_with(b"vault:v2:"));
    assert_eq!(backend.current_key_id().await.as_ref(), Ok(&new.key_id));
    assert_eq!(backend.decrypt(&old).await, Ok(key(&[1; 32])));
    assert_eq!(backend.decrypt(&new).await, Ok(key(&[2; 32])));
}

/// Two plugins, one rotation: the other API server's values have a key ID that this plugin has not seen yet.
#[tokio::test]
async fn a_version_that_another_plugin_saw_first_decrypts() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let (first, second) = (bao.open("kek"), bao.open("kek"));
    first.current_key_id().await.expect("it is known");
    bao.rotate("kek").await;
    let new = second.encrypt(&key(&[2; 32])).await.expect("it encrypts");
    assert!(new.ciphertext.starts_with(b"vault:v2:"));
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(first.decrypt(&new).await, Ok(key(&[2; 32])));
}

/// `min_encryption_version` was raised with the rotation, and Encrypt failed until the key was read again, half a minute later.
#[tokio::test]
async fn a_rotation_that_forbids_the_old_version_is_followed_at_once() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let backend = bao.open("kek");
    backend.current_key_id().await.expect("it is known");
    bao.rotate("kek").await;
    bao.configure("kek", json!({ "min_encryption_version": 2 })).await;
    let wrapped = backend.encrypt(&key(&[1; 32])).await.expect("it encrypts");
    assert!(wrapped.key_id.starts_with("vault:transit/kek/v2/"), "{}", wrapped.key_id);
    assert!(wrapped.ciphertext.starts_with(b"vault:v2:"));
    assert_eq!(backend.current_key_id().await.as_ref(), Ok(&wrapped.key_id));
    assert_eq!(backend.decrypt(&wrapped).await, Ok(key(&[1; 32])));
}

/// After `bao secrets move transit/ kms/` no key had the ID that values are stored under, since the mount is in it.
#[tokio::test]
async fn values_stay_readable_when_the_engine_moves_to_another_mount() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let old = bao.open("kek").encrypt(&key(&[1; 32])).await.expect("it encrypts");
    assert!(old.key_id.starts_with("vault:transit/kek/v1/"), "{}", old.key_id);
    bao.move_mount("transit", "team-a/kms").await;
    let options = Options { vault_mount: "team-a/kms".to_owned(), ..bao.options("kek") };
    let backend = Vault::open(&options).expect("the options are right");
    let new = backend.encrypt(&key(&[2; 32])).await.expect("it encrypts");
    assert_eq!(new.key_id, old.key_id.replace("transit", "team-a/kms"));
    assert_eq!(backend.decrypt(&old).await, Ok(key(&[1; 32])));
    assert_eq!(backend.decrypt(&new).await, Ok(key(&[2; 32])));
    // The ID is authenticated as it is stored.
    assert_eq!(backend.decrypt(&with_key_id(&old, &new.key_id)).await, Err(Error::AuthenticationFailed));
    let elsewhere = old.key_id.replace("transit", "elsewhere");
    assert_eq!(backend.decrypt(&with_key_id(&old, &elsewhere)).await, Err(Error::AuthenticationFailed));
    // A key of the same name in the engine that is at the old mount now is another one.
    bao.post("sys/mounts/transit", json!({ "type": "transit" })).await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    bao.make_key("kek").await;
    assert_eq!(bao.open("kek").decrypt(&old).await, Err(unknown(&old.key_id)));
}

#[tokio::test]
async fn a_version_below_the_minimum_is_told_and_works_again_when_allowed() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let old = bao.open("kek").encrypt(&key(&[1; 32])).await.expect("it encrypts");
    bao.rotate("kek").await;
    bao.configure("kek", json!({ "min_decryption_version": 2 })).await;
    let backend = bao.open("kek");
    let text = "key \"kek\": version 1 is below min_decryption_version, which is 2";
    assert_eq!(backend.decrypt(&old).await, Err(Error::KeyUnusable(text.to_owned())));
    bao.configure("kek", json!({ "min_decryption_version": 1 })).await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(backend.decrypt(&old).await, Ok(key(&[1; 32])));

    // After it was read that version 1 may decrypt, the server says that it may not.
    bao.configure("kek", json!({ "min_decryption_version": 2 })).await;
    let text = "ciphertext or signature version is disallowed by policy (too old)";
    assert_eq!(backend.decrypt(&old).await, Err(Error::KeyUnusable(text.to_owned())));
}

#[tokio::test]
async fn a_key_made_anew_under_its_name_is_another_key() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let backend = bao.open("kek");
    let old = backend.encrypt(&key(&[1; 32])).await.expect("it encrypts");
    bao.delete_key("kek").await;
    let gone = "encryption key not found";
    assert_eq!(backend.decrypt(&old).await, Err(Error::KeyUnusable(gone.to_owned())));
    // The times have seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    bao.make_key("kek").await;

    // The first plugin believes that the key is the old one, and finds out.
    assert_eq!(backend.decrypt(&old).await, Err(unknown(&old.key_id)));
    let new = backend.encrypt(&key(&[2; 32])).await.expect("it encrypts");
    assert_ne!(new.key_id, old.key_id);
    assert_eq!(backend.decrypt(&new).await, Ok(key(&[2; 32])));
    assert_eq!(bao.open("kek").decrypt(&old).await, Err(unknown(&old.key_id)));
}

/// kube-apiserver would keep a value that nobody can decrypt.
#[tokio::test]
async fn a_key_replaced_behind_the_plugin_does_not_encrypt_under_the_old_id() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let backend = bao.open("kek");
    backend.current_key_id().await.expect("it is known");
    bao.delete_key("kek").await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    bao.make_key("kek").await;
    let text = "the key \"kek\" was replaced while it encrypted";
    assert_eq!(backend.encrypt(&key(&[1; 32])).await, Err(Error::KeyUnusable(text.to_owned())));
    let wrapped = backend.encrypt(&key(&[1; 32])).await.expect("it knows the new one");
    assert_eq!(backend.decrypt(&wrapped).await, Ok(key(&[1; 32])));
}

#[tokio::test]
async fn a_key_that_is_not_there_is_told() {
    let bao = Bao::start().await;
    let text = "there is no key \"kek\" at \"transit\"";
    assert_eq!(bao.open("kek").current_key_id().await, Err(Error::KeyUnusable(text.to_owned())));
}

#[tokio::test]
async fn keys_that_cannot_authenticate_the_key_id_are_refused() {
    let bao = Bao::start().await;
    bao.post("transit/keys/rsa", json!({ "type": "rsa-2048" })).await;
    bao.post("transit/keys/derived", json!({ "type": "aes256-gcm96", "derived": true })).await;
    let refused = |text: &str| Err(Error::KeyUnusable(text.to_owned()));
    let text = "key \"rsa\": a key of the type \"rsa-2048\" cannot authenticate the key ID";
    assert_eq!(bao.open("rsa").encrypt(&key(&[1; 32])).await, refused(text));
    let text = "key \"derived\": it is derived, and nothing gives the context";
    assert_eq!(bao.open("derived").encrypt(&key(&[1; 32])).await, refused(text));
}

#[tokio::test]
async fn only_keys_that_are_configured_decrypt() {
    let bao = Bao::start().await;
    bao.make_key("old").await;
    bao.make_key("new").await;
    let old = bao.open("old").encrypt(&key(&[1; 32])).await.expect("it encrypts");
    assert_eq!(bao.open("new").decrypt(&old).await, Err(unknown(&old.key_id)));
    let options = Options { vault_decrypt_key: vec!["old".to_owned()], ..bao.options("new") };
    let both = Vault::open(&options).expect("the options are right");
    assert_eq!(both.decrypt(&old).await, Ok(key(&[1; 32])));
    for key_id in ["", "vault:", "vault:transit/old/v1/0", "vault:sys/old/v1/1", "vault:transit/../old/v1/1"] {
        assert_eq!(both.decrypt(&with_key_id(&old, key_id)).await, Err(unknown(key_id)), "{key_id}");
    }
}

#[tokio::test]
async fn the_key_id_is_the_associated_data() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let backend = bao.open("kek");
    let wrapped = backend.encrypt(&key(&[1; 32])).await.expect("it encrypts");
    let ciphertext = String::from_utf8(wrapped.ciphertext.clone()).expect("text");
    let request = json!({ "ciphertext": ciphertext, "associated_data": STANDARD.encode(&wrapped.key_id) });
    let opened = bao.post("transit/decrypt/kek", request).await;
    assert_eq!(opened["data"]["plaintext"], STANDARD.encode([1; 32]));

    // What somebody else encrypted by the same key is not taken for ours.
    let foreign = bao.post("transit/encrypt/kek", json!({ "plaintext": STANDARD.encode([1; 32]) })).await;
    let mut other = wrapped;
    other.ciphertext = foreign["data"]["ciphertext"].as_str().expect("text").as_bytes().to_vec();
    assert_eq!(backend.decrypt(&other).await, Err(Error::AuthenticationFailed));
}

#[tokio::test]
async fn options_that_make_no_sense_are_refused_at_once() {
    let refused = |change: fn(&mut Options)| {
        let mut options = options("http://127.0.0.1:1", "kek");
        options.vault_token_file = Some("/nonexistent".into());
        change(&mut options);
        match Vault::open(&options) {
            Err(Error::Configuration(text)) => text,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(|o| o.vault_addr = None), "--vault-addr is required");
    assert_eq!(refused(|o| o.vault_key = None), "--vault-key is required");
    let text = "--vault-token-file, or --vault-role-id with --vault-secret-id-file, is required";
    assert_eq!(refused(|o| o.vault_token_file = None), text);
    let text = "--vault-token-file excludes --vault-role-id and --vault-secret-id-file";
    assert_eq!(refused(|o| o.vault_role_id = Some("x".to_owned())), text);
    assert_eq!(
        refused(|o| o.vault_key = Some("../sys/seal".to_owned())),
        "\"../sys/seal\" is no name of a transit key"
    );
    assert_eq!(refused(|o| o.vault_mount = "a//b".to_owned()), "--vault-mount: \"a//b\" is no path of a mount");
    let text = "--vault-addr \"unix:///run/bao.sock\": neither http:// nor https://";
    assert_eq!(refused(|o| o.vault_addr = Some("unix:///run/bao.sock".to_owned())), text);
    let text = "--vault-addr has more than a scheme, a host, a port and a path";
    assert_eq!(refused(|o| o.vault_addr = Some("http://user:pass@127.0.0.1".to_owned())), text);
    let text = "/nonexistent: No such file or directory (os error 2)";
    assert_eq!(refused(|o| o.vault_ca_file = Some("/nonexistent".into())), text);
}
