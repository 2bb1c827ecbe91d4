//! What both versions of the API do, in the words of neither.

use std::sync::Arc;

use atrest::secret::Key;
use atrest::transformer::envelope;
use tokio::sync::Semaphore;
use tonic::Status;
use zeroize::Zeroizing;

use super::health::Health;
use super::journal::Journal;
use super::limits::{check_plaintext, check_wrapped};
use super::metrics::Metrics;
use crate::backend::{self, Backend, Wrapped};

/// So many calls may be with the backend at a time; more wait.
const MAX_CALLS: usize = 256;

/// The backend, and what is counted and known about it.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) health: Arc<Health>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) journal: Arc<Journal>,
    calls: Semaphore,
}

impl Service {
    pub(super) fn new(
        backend: Arc<dyn Backend>,
        health: Arc<Health>,
        metrics: Arc<Metrics>,
        journal: Arc<Journal>,
    ) -> Self {
        Self { backend, health, metrics, journal, calls: Semaphore::new(MAX_CALLS) }
    }

    /// Encrypts by the current key. What comes in and what goes out keeps to the limits.
    pub(super) async fn encrypt(&self, plaintext: Vec<u8>) -> Result<Wrapped, Status> {
        let plaintext = Key::new(Zeroizing::new(plaintext));
        check_plaintext(plaintext.len()).map_err(|error| invalid_request(&error))?;
        let _call = self.call().await?;
        let wrapped = self.backend.encrypt(&plaintext).await.map_err(|error| self.failed("encrypt", &error))?;
        check_wrapped(&wrapped).map_err(|error| invalid_answer(&error))?;
        self.health.key_id_was(&wrapped.key_id);
        Ok(wrapped)
    }

    /// Decrypts by the key that encrypted.
    pub(super) async fn decrypt(&self, wrapped: &Wrapped) -> Result<Key, Status> {
        check_wrapped(wrapped).map_err(|error| invalid_request(&error))?;
        let _call = self.call().await?;
        let plaintext = self.backend.decrypt(wrapped).await.map_err(|error| self.failed("decrypt", &error))?;
        check_plaintext(plaintext.len()).map_err(|error| invalid_answer(&error))?;
        Ok(plaintext)
    }

    async fn call(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Status> {
        self.calls.acquire().await.map_err(|_| Status::unavailable("the plugin is about to end"))
    }

    fn failed(&self, operation: &'static str, error: &backend::Error) -> Status {
        self.metrics.backend_error(operation, kind(error));
        let is_the_request_s = matches!(
            error,
            backend::Error::UnknownKey { .. }
                | backend::Error::AuthenticationFailed
                | backend::Error::InvalidRequest(_)
        );
        if !is_the_request_s {
            self.health.look_again();
        }
        status(error)
    }
}

fn invalid_request(error: &envelope::Error) -> Status {
    Status::invalid_argument(error.to_string())
}

/// The backend's answer would make values that nobody can read.
fn invalid_answer(error: &envelope::Error) -> Status {
    Status::internal(format!("the backend's answer is invalid: {error}"))
}

/// What an error is called in metrics.
pub(super) fn kind(error: &backend::Error) -> &'static str {
    match error {
        backend::Error::UnknownKey { .. } => "unknown_key",
        backend::Error::AuthenticationFailed => "authentication_failed",
        backend::Error::InvalidRequest(_) => "invalid_request",
        backend::Error::Throttled { .. } => "throttled",
        backend::Error::Credentials(_) => "credentials",
        backend::Error::KeyUnusable(_) => "key_unusable",
        backend::Error::Configuration(_) => "configuration",
        backend::Error::Unavailable(_) => "unavailable",
    }
}

fn status(error: &backend::Error) -> Status {
    let message = match error {
        backend::Error::Throttled { retry_after: Some(pause) } => {
            format!("{error}: wait for {} s", pause.as_secs_f64().ceil())
        }
        error => error.to_string(),
    };
    match error {
        backend::Error::UnknownKey { .. } => Status::not_found(message),
        backend::Error::AuthenticationFailed | backend::Error::InvalidRequest(_) => Status::invalid_argument(message),
        backend::Error::Throttled { .. } => Status::resource_exhausted(message),
        backend::Error::Credentials(_) => Status::unauthenticated(message),
        backend::Error::KeyUnusable(_) | backend::Error::Configuration(_) => Status::failed_precondition(message),
        backend::Error::Unavailable(_) => Status::unavailable(message),
    }
}
