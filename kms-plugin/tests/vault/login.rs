//! Tokens: from files and by AppRole.

use std::time::{Duration, Instant};

use atrest_kms_plugin::backend::vault::{Options, Vault};
use atrest_kms_plugin::backend::{Backend as _, Error};
use serde_json::json;

use crate::bao::{Bao, options};
use crate::support::key;

fn denied(path: &str) -> Error {
    let text = format!("permission denied for {path}: a policy does not allow it, or the token is not valid");
    Error::Credentials(text)
}

async fn works(backend: &Vault) {
    let wrapped = backend.encrypt(&key(&[1; 32])).await.expect("it encrypts");
    assert_eq!(backend.decrypt(&wrapped).await, Ok(key(&[1; 32])));
}

/// Uses it until that time.
async fn works_for(backend: &Vault, time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        works(backend).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn with_token(bao: &Bao, more: serde_json::Value) -> (Vault, String) {
    let token = bao.make_token(more).await;
    let options = Options { vault_token_file: Some(bao.file("token", &token)), ..options(&bao.address(), "kek") };
    (Vault::open(&options).expect("the options are right"), token)
}

#[tokio::test]
async fn a_token_file_is_read_again_when_it_changes() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let (backend, token) = with_token(&bao, json!({ "ttl": "1h" })).await;
    works(&backend).await;

    bao.revoke(&token).await;
    let encrypted = backend.encrypt(&key(&[1; 32])).await;
    assert_eq!(encrypted, Err(denied("transit/encrypt/kek")));

    let token = bao.make_token(json!({})).await;
    bao.file("token", &token);
    works(&backend).await;
    std::fs::remove_file(bao.file("token", &token)).expect("it can be removed");
    works(&backend).await;
}

#[tokio::test]
async fn a_token_of_a_file_is_renewed() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let (backend, _) = with_token(&bao, json!({ "period": "4s" })).await;
    works_for(&backend, Duration::from_secs(9)).await;
    assert_eq!(backend.warning(), None);
}

#[tokio::test]
async fn a_token_of_a_file_that_cannot_be_renewed_is_told_before_it_expires() {
    ends_with_a_warning(json!({ "ttl": "9s", "renewable": false })).await;
}

#[tokio::test]
async fn a_token_of_a_file_that_is_too_old_to_be_renewed_is_told_before_it_expires() {
    ends_with_a_warning(json!({ "ttl": "6s", "explicit_max_ttl": "9s" })).await;
}

async fn ends_with_a_warning(token: serde_json::Value) {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let (backend, _) = with_token(&bao, token).await;
    works(&backend).await;
    assert_eq!(backend.warning(), None);
    let start = Instant::now();
    let warning = loop {
        if let Some(warning) = backend.warning() {
            break warning;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "it is not told");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(warning.starts_with("the token cannot be renewed, and expires in "), "{warning}");
    bao.file("token", &bao.make_token(json!({})).await);
    works(&backend).await;
    assert_eq!(backend.warning(), None);
}

#[tokio::test]
async fn a_role_logs_in_once() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let options = bao.options_with_role("kek", "1h", "2h").await;
    let before = bao.tokens().await.len();
    let backend = Vault::open(&options).expect("the options are right");
    let calls = (0..32).map(|_| works(&backend));
    futures::future::join_all(calls).await;
    assert_eq!(bao.tokens().await.len(), before + 1);
}

#[tokio::test]
async fn the_token_of_a_role_is_renewed() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let options = bao.options_with_role("kek", "4s", "1h").await;
    let backend = Vault::open(&options).expect("the options are right");
    works(&backend).await;
    let tokens = bao.tokens().await;
    works_for(&backend, Duration::from_secs(10)).await;
    assert_eq!(bao.tokens().await, tokens, "the same token lives more than twice its time");
}

#[tokio::test]
async fn a_role_logs_in_again_before_its_token_is_too_old_to_be_renewed() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let options = bao.options_with_role("kek", "4s", "6s").await;
    let backend = Vault::open(&options).expect("the options are right");
    works(&backend).await;
    let first = bao.tokens().await;
    works_for(&backend, Duration::from_secs(10)).await;
    assert_ne!(bao.tokens().await, first, "another token");
}

#[tokio::test]
async fn tokens_without_renewal_are_exchanged() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let options = bao.options_with_role("kek", "4s", "4s").await;
    bao.post("auth/approle/role/plugin", json!({ "token_type": "batch" })).await;
    let backend = Vault::open(&options).expect("the options are right");
    works_for(&backend, Duration::from_secs(9)).await;
}

#[tokio::test]
async fn a_role_whose_token_was_revoked_logs_in_within_the_call() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let options = bao.options_with_role("kek", "1h", "2h").await;
    let before = bao.tokens().await;
    let backend = Vault::open(&options).expect("the options are right");
    works(&backend).await;
    let ours: Vec<_> = bao.tokens().await.into_iter().filter(|accessor| !before.contains(accessor)).collect();
    // A younger token would be taken for one whose policy forbids it.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    for accessor in ours {
        bao.post("auth/token/revoke-accessor", json!({ "accessor": accessor })).await;
    }
    works(&backend).await;
}

#[tokio::test]
async fn a_wrong_secret_id_is_tried_once_until_its_file_changes() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let options = bao.options_with_role("kek", "1h", "2h").await;
    let backend = Vault::open(&options).expect("the options are right");
    bao.file("secret-id", "00000000-0000-0000-0000-000000000000");
    let text = "the login by AppRole was refused: invalid role or secret ID";
    let refused = Error::Credentials(text.to_owned());
    assert_eq!(backend.current_key_id().await, Err(refused.clone()));

    // The answer is repeated without asking: the server does not even answer now.
    bao.seal().await;
    assert_eq!(backend.current_key_id().await, Err(refused));
    bao.unseal().await;
    bao.file("secret-id", &bao.make_secret_id().await);
    works(&backend).await;
}

#[tokio::test]
async fn what_a_policy_forbids_is_told_and_does_not_make_logins() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let policy =
        r#"path "transit/keys/+" { capabilities = ["read"] } path "transit/encrypt/+" { capabilities = ["update"] }"#;
    bao.post("sys/policies/acl/kms", json!({ "policy": policy })).await;
    let options = bao.options_with_role("kek", "1h", "2h").await;
    let backend = Vault::open(&options).expect("the options are right");
    let wrapped = backend.encrypt(&key(&[1; 32])).await.expect("it may encrypt");
    let tokens = bao.tokens().await;
    for _ in 0..5 {
        assert_eq!(backend.decrypt(&wrapped).await, Err(denied("transit/decrypt/kek")));
    }
    assert_eq!(bao.tokens().await, tokens);
}

#[tokio::test]
async fn debug_output_shows_neither_token_nor_secret_id() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let (backend, token) = with_token(&bao, json!({})).await;
    works(&backend).await;
    let shown = format!("{backend:?}");
    assert!(shown.contains("Password([REDACTED])") && !shown.contains(&token), "{shown}");

    let options = bao.options_with_role("kek", "1h", "2h").await;
    let file = options.vault_secret_id_file.clone().expect("it is there");
    let secret_id = std::fs::read_to_string(file).expect("a file");
    let backend = Vault::open(&options).expect("the options are right");
    works(&backend).await;
    let shown = format!("{backend:?}");
    assert!(shown.contains("Password([REDACTED])") && !shown.contains(secret_id.trim()), "{shown}");
}
