//! `v1beta1.KeyManagementService`.

use std::sync::Arc;

use atrest::kms::api::v1beta1::{DecryptRequest, EncryptRequest, VersionRequest, VersionResponse};
use atrest::kms::api::v2;
use prost::Message as _;
use tonic::Code;

use crate::support::{Memory, Running};

fn encrypt(plain: &[u8]) -> EncryptRequest {
    EncryptRequest { version: "v1beta1".to_owned(), plain: plain.to_vec() }
}

fn decrypt(cipher: &[u8]) -> DecryptRequest {
    DecryptRequest { version: "v1beta1".to_owned(), cipher: cipher.to_vec() }
}

#[tokio::test]
async fn the_version_is_v1beta1() {
    let server = Running::start(Arc::new(Memory::local())).await;
    let mut client = server.v1beta1();
    let answer = client.version(VersionRequest { version: "v1beta1".to_owned() }).await.unwrap().into_inner();
    let expected = VersionResponse {
        version: "v1beta1".to_owned(),
        runtime_name: "atrest-kms-plugin".to_owned(),
        runtime_version: "0.1.0".to_owned(),
    };
    assert_eq!(answer, expected);
    for version in ["", "v1", "v2"] {
        let error = client.version(VersionRequest { version: version.to_owned() }).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{version:?}");
        let request = EncryptRequest { version: version.to_owned(), plain: b"ping".to_vec() };
        assert_eq!(client.encrypt(request).await.unwrap_err().code(), Code::InvalidArgument, "{version:?}");
    }
}

#[tokio::test]
async fn a_cipher_carries_its_key_id() {
    let backend = Arc::new(Memory::local());
    let server = Running::start(backend.clone()).await;
    let mut client = server.v1beta1();
    let cipher = client.encrypt(encrypt(b"ping")).await.unwrap().into_inner().cipher;
    let message = v2::EncryptResponse::decode(cipher.strip_prefix(b"\0atr1").unwrap()).unwrap();
    assert_eq!(message.key_id, "kek-1");
    backend.rotate("kek-2");
    assert_eq!(client.decrypt(decrypt(&cipher)).await.unwrap().into_inner().plain, b"ping");
    // What one API wrapped, the other opens: it is the same ciphertext.
    let v2::EncryptResponse { ciphertext, key_id, annotations } = message;
    let request = v2::DecryptRequest { ciphertext, uid: String::new(), key_id, annotations };
    assert_eq!(server.v2().decrypt(request).await.unwrap().into_inner().plaintext, b"ping");
}

#[tokio::test]
async fn a_cipher_of_another_plugin_or_a_damaged_one_is_refused() {
    let server = Running::start(Arc::new(Memory::local())).await;
    let mut client = server.v1beta1();
    let cipher = client.encrypt(encrypt(b"ping")).await.unwrap().into_inner().cipher;
    let mut flipped = cipher.clone();
    flipped[10] ^= 1;
    for damaged in [&b""[..], b"other", &cipher[1..], &cipher[..cipher.len() - 1], &flipped] {
        let error = client.decrypt(decrypt(damaged)).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    }
}
