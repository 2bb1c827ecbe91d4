//! `v2.KeyManagementService`.

use std::sync::Arc;
use std::time::Duration;

use atrest::kms::api::v2::{DecryptRequest, EncryptRequest, EncryptResponse, StatusRequest};
use atrest_kms_plugin::backend::{Error, Wrapped};
use atrest_kms_plugin::serve::StatusVersion;
use tonic::Code;

use crate::support::{Memory, Running};

type Fault = fn() -> Error;

fn encrypt(plaintext: &[u8]) -> EncryptRequest {
    EncryptRequest { plaintext: plaintext.to_vec(), uid: "u-1".to_owned() }
}

fn decrypt(answer: EncryptResponse) -> DecryptRequest {
    let EncryptResponse { ciphertext, key_id, annotations } = answer;
    DecryptRequest { ciphertext, uid: "u-2".to_owned(), key_id, annotations }
}

#[tokio::test]
async fn what_is_encrypted_is_decrypted_after_a_rotation_too() {
    let backend = Arc::new(Memory::local());
    let server = Running::start(backend.clone()).await;
    let mut client = server.v2();
    let first = client.encrypt(encrypt(b"seed one")).await.unwrap().into_inner();
    assert_eq!(first.key_id, "kek-1");
    assert_eq!(first.annotations["memory.test.atrest.io"], b"1");
    backend.rotate("kek-2");
    let second = client.encrypt(encrypt(b"seed two")).await.unwrap().into_inner();
    assert_eq!(second.key_id, "kek-2");
    for (answer, plaintext) in [(first, b"seed one"), (second, b"seed two")] {
        assert_eq!(client.decrypt(decrypt(answer)).await.unwrap().into_inner().plaintext, plaintext);
    }
}

#[tokio::test]
async fn a_rotation_of_a_local_backend_is_in_the_next_status() {
    let backend = Arc::new(Memory::local());
    let server =
        Running::start_with(backend.clone(), |options| options.timing.interval = Duration::from_secs(3600)).await;
    server.until_healthy().await;
    let mut client = server.v2();
    for key_id in ["kek-1", "kek-2", "kek-3"] {
        backend.rotate(key_id);
        let status = client.status(StatusRequest {}).await.unwrap().into_inner();
        assert_eq!((status.version.as_str(), status.healthz.as_str(), status.key_id.as_str()), ("v2", "ok", key_id));
    }
}

#[tokio::test]
async fn a_rotation_of_a_remote_backend_is_seen_by_what_it_encrypts() {
    let backend = Arc::new(Memory::remote());
    let server =
        Running::start_with(backend.clone(), |options| options.timing.interval = Duration::from_secs(3600)).await;
    server.until_healthy().await;
    let mut client = server.v2();
    assert_eq!(client.status(StatusRequest {}).await.unwrap().into_inner().key_id, "kek-1");
    backend.rotate("kek-2");
    assert_eq!(client.encrypt(encrypt(b"seed")).await.unwrap().into_inner().key_id, "kek-2");
    let mut condition = server.handle.condition();
    // echo -n kek-2 | sha256sum
    let expected = "sha256:3dd688dad3aaf7242a117d950be775877a42d56b8204151c2bc90a747ba261bf";
    let changed = condition.wait_for(|condition| condition.key_id_hash().as_deref() == Some(expected));
    tokio::time::timeout(Duration::from_secs(20), changed).await.unwrap().unwrap();
    assert_eq!(client.status(StatusRequest {}).await.unwrap().into_inner().key_id, "kek-2");
}

#[tokio::test]
async fn the_version_of_status_is_constant_and_can_be_chosen() {
    let change = |options: &mut atrest_kms_plugin::serve::Options| options.status_version = StatusVersion::V2Beta1;
    let server = Running::start_with(Arc::new(Memory::local()), change).await;
    let mut client = server.v2();
    for _ in 0..2 {
        assert_eq!(client.status(StatusRequest {}).await.unwrap().into_inner().version, "v2beta1");
    }
}

#[tokio::test]
async fn status_never_waits_for_a_remote_backend() {
    let backend = Arc::new(Memory::remote());
    let server = Running::start(backend.clone()).await;
    server.until_healthy().await;
    backend.fall_silent();
    server.until_problem("the KMS did not answer within 0.5 s").await;
    let calls = backend.calls.load(std::sync::atomic::Ordering::SeqCst);
    let mut client = server.v2();
    let mut answers = Vec::new();
    for _ in 0..20 {
        answers.push(client.status(StatusRequest {}).await.unwrap().into_inner());
    }
    for status in answers {
        assert_eq!(status.healthz, "the KMS did not answer within 0.5 s");
        assert_eq!(status.key_id, "kek-1", "the last one that is known");
    }
    // Those of the prober may have come in between, and none for each Status.
    assert!(backend.calls.load(std::sync::atomic::Ordering::SeqCst) - calls < 20);
}

#[tokio::test]
async fn a_server_starts_while_its_backend_is_down() {
    let backend = Arc::new(Memory::remote());
    backend.fail(Some(|| Error::Unavailable("connection refused".to_owned())));
    let server = Running::start(backend.clone()).await;
    server.until_problem("the KMS is not available: connection refused").await;
    let mut client = server.v2();
    let error = client.status(StatusRequest {}).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::Unavailable, "the KMS is not available: connection refused"));
    backend.fail(None);
    server.until_healthy().await;
    assert_eq!(client.status(StatusRequest {}).await.unwrap().into_inner().healthz, "ok");
}

#[tokio::test]
async fn a_backend_that_does_not_decrypt_is_not_healthy() {
    let backend = Arc::new(Memory::local());
    let server = Running::start(backend.clone()).await;
    server.until_healthy().await;
    backend.fail_decrypt(Some(|| Error::KeyUnusable("pending deletion".to_owned())));
    server.until_problem("pending deletion").await;
    let mut client = server.v2();
    client.encrypt(encrypt(b"seed")).await.unwrap();
    let status = client.status(StatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.healthz, "the key cannot be used: pending deletion");
    assert_eq!(status.key_id, "kek-1");
}

#[tokio::test]
async fn a_backend_that_panics_ends_nothing() {
    let backend = Arc::new(Memory::remote());
    let server = Running::start(backend.clone()).await;
    server.until_healthy().await;
    backend.fail(Some(|| panic!("a bug of the backend")));
    server.until_problem("the backend panicked: this is a bug").await;
    let mut client = server.v2();
    // Its stream is reset, and nothing else.
    assert_eq!(client.encrypt(encrypt(b"seed")).await.unwrap_err().code(), Code::Cancelled);
    let status = client.status(StatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.healthz, "the backend panicked: this is a bug");
    backend.fail(None);
    server.until_healthy().await;
    assert_eq!(client.encrypt(encrypt(b"seed")).await.unwrap().into_inner().key_id, "kek-1");
}

#[tokio::test]
async fn each_error_of_the_backend_has_its_code() {
    let backend = Arc::new(Memory::local());
    let server = Running::start(backend.clone()).await;
    let mut client = server.v2();
    let answer = client.encrypt(encrypt(b"seed")).await.unwrap().into_inner();
    let faults: [(Fault, Code, &str); 7] = [
        (|| Error::UnknownKey { key_id_hash: "sha256:aa".to_owned() }, Code::NotFound, "no key has the ID sha256:aa"),
        (|| Error::AuthenticationFailed, Code::InvalidArgument, "the ciphertext is not of this key, or it is damaged"),
        (|| Error::InvalidRequest("no"), Code::InvalidArgument, "invalid request: no"),
        (
            || Error::Throttled { retry_after: Some(Duration::from_millis(1500)) },
            Code::ResourceExhausted,
            "the KMS limits the rate of requests: wait for 2 s",
        ),
        (
            || Error::Credentials("expired".to_owned()),
            Code::Unauthenticated,
            "the KMS refuses our credentials: expired",
        ),
        (|| Error::KeyUnusable("disabled".to_owned()), Code::FailedPrecondition, "the key cannot be used: disabled"),
        (|| Error::Unavailable("down".to_owned()), Code::Unavailable, "the KMS is not available: down"),
    ];
    for (fault, code, message) in faults {
        backend.fail(Some(fault));
        let encrypted = client.encrypt(encrypt(b"seed")).await.unwrap_err();
        assert_eq!((encrypted.code(), encrypted.message()), (code, message));
        let decrypted = client.decrypt(decrypt(answer.clone())).await.unwrap_err();
        assert_eq!((decrypted.code(), decrypted.message()), (code, message));
    }
}

#[tokio::test]
async fn requests_over_the_limits_are_refused() {
    let server = Running::start(Arc::new(Memory::local())).await;
    let mut client = server.v2();
    for plaintext in [vec![], vec![7; 4097]] {
        let error = client.encrypt(encrypt(&plaintext)).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    }
    let good = client.encrypt(encrypt(b"seed")).await.unwrap().into_inner();
    let with = |change: fn(&mut DecryptRequest)| {
        let mut request = decrypt(good.clone());
        change(&mut request);
        request
    };
    let cases = [
        with(|request| request.ciphertext.clear()),
        with(|request| request.ciphertext.resize(1025, 0)),
        with(|request| request.key_id.clear()),
        with(|request| request.key_id = "k".repeat(1025)),
        with(|request| _ = request.annotations.insert("simple".to_owned(), vec![])),
        with(|request| _ = request.annotations.insert("a.b".to_owned(), vec![0; 32 * 1024])),
    ];
    for request in cases {
        let error = client.decrypt(request).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    }
    let error = client.encrypt(encrypt(&vec![7; 300 * 1024])).await.unwrap_err();
    assert_eq!(error.code(), Code::OutOfRange, "{error}");
}

#[tokio::test]
async fn an_answer_that_kube_apiserver_refuses_is_an_error_of_ours() {
    let backend = Arc::new(Memory::local());
    let server = Running::start(backend.clone()).await;
    let mut client = server.v2();
    let wrapped = |ciphertext: usize, key_id: &str, annotation: &str| Wrapped {
        ciphertext: vec![1; ciphertext],
        key_id: key_id.to_owned(),
        annotations: [(annotation.to_owned(), vec![])].into(),
    };
    for (answer, words) in [
        (wrapped(1025, "k", "a.b"), "the field encryptedDEKSource has 1025 bytes"),
        (wrapped(0, "k", "a.b"), "the field encryptedDEKSource is empty"),
        (wrapped(1, "", "a.b"), "the field keyID is empty"),
        (wrapped(1, "k", "simple"), "not a fully qualified domain name"),
    ] {
        backend.answer(Some(answer));
        let error = client.encrypt(encrypt(b"seed")).await.unwrap_err();
        assert_eq!(error.code(), Code::Internal, "{error}");
        assert!(error.message().contains(words), "{error}");
    }
    server.until_problem("the backend's answer is invalid").await;
}
