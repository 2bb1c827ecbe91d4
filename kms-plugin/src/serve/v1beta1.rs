//! `v1beta1.KeyManagementService`, for `apiVersion: v1` of an EncryptionConfiguration.
//!
//! This version has no field for a key ID, so the `cipher` carries all of it:
//!
//! ```text
//! 00 61 74 72 31                       the bytes 0 and "atr1"
//! protobuf of v2.EncryptResponse       ciphertext = 1, key_id = 2, annotations = 3
//! ```
//!
//! kube-apiserver keeps it with a length of two bytes; it has at most 36 KiB.

use std::sync::Arc;

use atrest::kms::api::v1beta1::key_management_service_server::KeyManagementService;
use atrest::kms::api::v1beta1::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, VersionRequest, VersionResponse,
};
use atrest::kms::api::v2;
use prost::Message as _;
use tonic::{Request, Response, Status};

use super::service::Service;
use crate::backend::Wrapped;

const VERSION: &str = "v1beta1";
const MAGIC: &[u8] = b"\0atr1";

#[derive(Debug)]
pub(super) struct V1Beta1 {
    pub(super) service: Arc<Service>,
}

impl V1Beta1 {
    async fn answer_encrypt(&self, version: &str, plain: Vec<u8>) -> Result<EncryptResponse, Status> {
        check_version(version)?;
        let wrapped = self.service.encrypt(plain).await?;
        Ok(EncryptResponse { cipher: to_cipher(wrapped) })
    }

    async fn answer_decrypt(&self, version: &str, cipher: &[u8]) -> Result<DecryptResponse, Status> {
        check_version(version)?;
        let wrapped =
            from_cipher(cipher).ok_or_else(|| Status::invalid_argument("the cipher is not of this plugin"))?;
        let key = self.service.decrypt(&wrapped).await?;
        Ok(DecryptResponse { plain: key.expose().to_vec() })
    }
}

#[tonic::async_trait]
impl KeyManagementService for V1Beta1 {
    async fn version(&self, request: Request<VersionRequest>) -> Result<Response<VersionResponse>, Status> {
        let call = self.service.metrics.call("/v1beta1.KeyManagementService/Version");
        let result = check_version(&request.get_ref().version).map(|()| VersionResponse {
            version: VERSION.to_owned(),
            runtime_name: env!("CARGO_PKG_NAME").to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
        });
        call.end(&result);
        self.service.journal.report(VERSION, "Version", "", result)
    }

    async fn encrypt(&self, request: Request<EncryptRequest>) -> Result<Response<EncryptResponse>, Status> {
        let call = self.service.metrics.call("/v1beta1.KeyManagementService/Encrypt");
        let mut request = request.into_inner();
        let plain = std::mem::take(&mut request.plain);
        let result = self.answer_encrypt(&request.version, plain).await;
        call.end(&result);
        self.service.journal.report(VERSION, "Encrypt", "", result)
    }

    async fn decrypt(&self, request: Request<DecryptRequest>) -> Result<Response<DecryptResponse>, Status> {
        let call = self.service.metrics.call("/v1beta1.KeyManagementService/Decrypt");
        let request = request.into_inner();
        let result = self.answer_decrypt(&request.version, &request.cipher).await;
        call.end(&result);
        self.service.journal.report(VERSION, "Decrypt", "", result)
    }
}

/// kube-apiserver sends it with every request.
fn check_version(version: &str) -> Result<(), Status> {
    if version == VERSION {
        return Ok(());
    }
    Err(Status::invalid_argument("the request's version is not v1beta1"))
}

fn to_cipher(wrapped: Wrapped) -> Vec<u8> {
    let Wrapped { ciphertext, key_id, annotations } = wrapped;
    let message = v2::EncryptResponse { ciphertext, key_id, annotations };
    [MAGIC, &message.encode_to_vec()].concat()
}

fn from_cipher(cipher: &[u8]) -> Option<Wrapped> {
    let message = cipher.strip_prefix(MAGIC)?;
    let v2::EncryptResponse { ciphertext, key_id, annotations } = v2::EncryptResponse::decode(message).ok()?;
    Some(Wrapped { ciphertext, key_id, annotations })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cipher_is_the_magic_and_an_encrypt_response() {
        let wrapped = Wrapped {
            ciphertext: b"cc".to_vec(),
            key_id: "k1".to_owned(),
            annotations: [("a.b".to_owned(), b"v".to_vec())].into(),
        };
        let cipher = to_cipher(wrapped.clone());
        assert_eq!(cipher, b"\0atr1\x0a\x02cc\x12\x02k1\x1a\x08\x0a\x03a.b\x12\x01v");
        assert_eq!(from_cipher(&cipher), Some(wrapped));
        assert_eq!(from_cipher(b""), None);
        assert_eq!(from_cipher(b"atr1"), None);
        assert_eq!(from_cipher(b"\0atr1\x0a\x05cc"), None);
    }

    proptest! {
        #[test]
        fn any_cipher_is_read_or_refused(tail in proptest::collection::vec(any::<u8>(), 0..200), has_magic in any::<bool>()) {
            let cipher = if has_magic { [MAGIC, &tail].concat() } else { tail };
            if let Some(wrapped) = from_cipher(&cipher) {
                let again = to_cipher(wrapped.clone());
                prop_assert_eq!(from_cipher(&again), Some(wrapped));
            }
        }
    }
}
