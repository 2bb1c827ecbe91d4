//! `v2.KeyManagementService`, for `apiVersion: v2` of an EncryptionConfiguration.

use std::sync::Arc;

use atrest::kms::api::v2::key_management_service_server::KeyManagementService;
use atrest::kms::api::v2::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, StatusRequest, StatusResponse,
};
use tonic::{Request, Response, Status};

use super::StatusVersion;
use super::service::Service;
use crate::backend::Wrapped;

#[derive(Debug)]
pub(super) struct V2 {
    pub(super) service: Arc<Service>,
    pub(super) status_version: StatusVersion,
}

impl V2 {
    async fn answer_status(&self) -> Result<StatusResponse, Status> {
        let service = &self.service;
        if service.backend.is_local() {
            service.health.ask_key_id(&*service.backend).await;
        }
        let (key_id, problem) = service.health.of_backend();
        // An empty ID would be taken for an answer.
        let Some(key_id) = key_id else {
            return Err(Status::unavailable(problem.unwrap_or_else(|| "the key is not known yet".to_owned())));
        };
        let healthz = problem.unwrap_or_else(|| "ok".to_owned());
        Ok(StatusResponse { version: self.status_version.as_str().to_owned(), healthz, key_id })
    }

    async fn answer_encrypt(&self, plaintext: Vec<u8>) -> Result<EncryptResponse, Status> {
        let Wrapped { ciphertext, key_id, annotations } = self.service.encrypt(plaintext).await?;
        Ok(EncryptResponse { ciphertext, key_id, annotations })
    }
}

#[tonic::async_trait]
impl KeyManagementService for V2 {
    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let call = self.service.metrics.call("/v2.KeyManagementService/Status");
        let result = self.answer_status().await;
        call.end(&result);
        self.service.journal.report("v2", "Status", "", result)
    }

    async fn encrypt(&self, request: Request<EncryptRequest>) -> Result<Response<EncryptResponse>, Status> {
        let call = self.service.metrics.call("/v2.KeyManagementService/Encrypt");
        let mut request = request.into_inner();
        let result = self.answer_encrypt(std::mem::take(&mut request.plaintext)).await;
        call.end(&result);
        self.service.journal.report("v2", "Encrypt", &request.uid, result)
    }

    async fn decrypt(&self, request: Request<DecryptRequest>) -> Result<Response<DecryptResponse>, Status> {
        let call = self.service.metrics.call("/v2.KeyManagementService/Decrypt");
        let DecryptRequest { ciphertext, uid, key_id, annotations } = request.into_inner();
        let result = self.service.decrypt(&Wrapped { ciphertext, key_id, annotations }).await;
        call.end(&result);
        self.service.journal.report(
            "v2",
            "Decrypt",
            &uid,
            result.map(|key| DecryptResponse { plaintext: key.expose().to_vec() }),
        )
    }
}
