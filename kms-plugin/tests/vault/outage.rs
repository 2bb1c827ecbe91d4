//! Servers that are down, sealed, slow or busy.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use atrest_kms_plugin::backend::vault::{Options, Vault};
use atrest_kms_plugin::backend::{Backend as _, Error};

use crate::bao::{Bao, options};
use crate::support::http::{Answer, Stub};
use crate::support::{free_port, key};

fn unavailable(text: &str) -> Error {
    Error::Unavailable(text.to_owned())
}

#[tokio::test]
async fn the_plugin_starts_before_the_server() {
    let port = free_port();
    let dir = tempfile::tempdir().expect("a folder");
    let token_file = dir.path().join("token");
    let options =
        Options { vault_token_file: Some(token_file.clone()), ..options(&format!("http://127.0.0.1:{port}"), "kek") };
    let backend = Vault::open(&options).expect("the options are right");
    let text = format!("cannot read {}: No such file or directory (os error 2)", token_file.display());
    assert_eq!(backend.current_key_id().await, Err(Error::Credentials(text)));
    std::fs::write(&token_file, "x").expect("a file");
    assert_eq!(backend.current_key_id().await, Err(unavailable("Connection refused (os error 111)")));

    let bao = Bao::start_at(port).await;
    bao.make_key("kek").await;
    std::fs::write(&token_file, bao.make_token(serde_json::json!({})).await).expect("a file");
    let wrapped = backend.encrypt(&key(&[1; 32])).await.expect("it is there");
    assert_eq!(backend.decrypt(&wrapped).await, Ok(key(&[1; 32])));
}

#[tokio::test]
async fn a_sealed_server_is_called_so_and_used_again() {
    let bao = Bao::start().await;
    bao.make_key("kek").await;
    let backend = bao.open("kek");
    let wrapped = backend.encrypt(&key(&[1; 32])).await.expect("it encrypts");
    bao.seal().await;
    assert_eq!(backend.decrypt(&wrapped).await, Err(unavailable("the Vault is sealed")));
    assert_eq!(backend.reload().await, Err(unavailable("the Vault is sealed")));
    bao.unseal().await;
    assert_eq!(backend.decrypt(&wrapped).await, Ok(key(&[1; 32])));
}

/// A server in memory comes back with other keys: the old ones are gone, and that is told.
#[tokio::test]
async fn a_server_that_was_restarted_is_used_again() {
    let mut bao = Bao::start().await;
    bao.make_key("kek").await;
    let backend = bao.open("kek");
    let old = backend.encrypt(&key(&[1; 32])).await.expect("it encrypts");
    bao.stop();
    assert_eq!(backend.decrypt(&old).await, Err(unavailable("Connection refused (os error 111)")));
    let again = Bao::start_at(bao.port()).await;
    // The times have seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    again.make_key("kek").await;
    let key_id_hash = atrest::report::key_id_hash(&old.key_id);
    assert_eq!(backend.decrypt(&old).await, Err(Error::UnknownKey { key_id_hash }));
    let new = backend.encrypt(&key(&[2; 32])).await.expect("it encrypts");
    assert_eq!(backend.decrypt(&new).await, Ok(key(&[2; 32])));
}

#[tokio::test]
async fn tls_is_checked() {
    let bao = Bao::start_with_tls().await;
    bao.make_key("kek").await;
    let mut options = bao.options("kek");
    let foreign = Vault::open(&options).expect("the options are right").current_key_id().await;
    assert_eq!(foreign, Err(unavailable("invalid peer certificate: UnknownIssuer")));
    options.vault_ca_file = Some(bao.ca_file());
    let backend = Vault::open(&options).expect("the options are right");
    let wrapped = backend.encrypt(&key(&[1; 32])).await.expect("it encrypts");
    assert_eq!(backend.decrypt(&wrapped).await, Ok(key(&[1; 32])));
}

#[tokio::test]
async fn a_server_that_does_not_answer_costs_no_more_than_the_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("it has an address"));
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("token"), "x").expect("a file");
    let options = Options {
        vault_token_file: Some(dir.path().join("token")),
        vault_timeout: Duration::from_millis(300),
        ..options(&address, "kek")
    };
    let backend = Vault::open(&options).expect("the options are right");
    let start = Instant::now();
    assert_eq!(backend.current_key_id().await, Err(unavailable("the Vault did not answer in time")));
    assert!((300..10_000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
}

fn stub(status: u16, headers: &[&str], body: &str) -> (Stub, tempfile::TempDir, Vault) {
    let (headers, body) = (headers.iter().map(|&line| line.to_owned()).collect::<Vec<_>>(), body.to_owned());
    let stub = Stub::start(move |_, _| Answer { status, headers: headers.clone(), body: body.clone() });
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("token"), "s.token-of-the-stub").expect("a file");
    let options = Options { vault_token_file: Some(dir.path().join("token")), ..options(&stub.address, "kek") };
    let backend = Vault::open(&options).expect("the options are right");
    (stub, dir, backend)
}

#[tokio::test]
async fn a_server_that_limits_requests_is_left_alone_as_long_as_it_wants() {
    let (stub, _dir, backend) =
        stub(429, &["Retry-After: 3"], r#"{"errors":["request path: rate limit quota exceeded"]}"#);
    let first = Error::Throttled { retry_after: Some(Duration::from_secs(3)) };
    assert_eq!(backend.current_key_id().await, Err(first));
    for _ in 0..10 {
        let refused = backend.current_key_id().await;
        assert!(matches!(refused, Err(Error::Throttled { retry_after: Some(left) }) if left < Duration::from_secs(3)));
    }
    assert_eq!(stub.requests(), 1);
}

#[tokio::test]
async fn other_answers_are_told_in_their_words() {
    let told = async |status, headers: &[&str], body: &str| stub(status, headers, body).2.current_key_id().await;
    let answer = told(500, &[], r#"{"errors":["internal error"]}"#).await;
    assert_eq!(answer, Err(unavailable("the Vault answered 500: internal error")));
    let answer = told(503, &[], r#"{"errors":["Vault is sealed"]}"#).await;
    assert_eq!(answer, Err(unavailable("the Vault is sealed")));
    let answer = told(502, &[], "<html>").await;
    assert_eq!(answer, Err(unavailable("the Vault answered 502: no reason")));
    let answer = told(307, &["Location: http://127.0.0.1:1/v1/x"], "").await;
    assert_eq!(answer, Err(unavailable("the Vault answers with a redirection: name its active node")));
    let answer = told(200, &[], "not JSON").await;
    let text = "the answer to the look-up of the token is not what Vault answers";
    assert_eq!(answer, Err(unavailable(text)));
}
