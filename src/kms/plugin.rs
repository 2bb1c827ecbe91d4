use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::{Client, Connection, Encrypted, Error, Metrics, Options, Status};
use crate::report::key_id_hash;
use crate::secret::Key;
use crate::transformer::envelope::{DekFailure, DekSource, MAX_KEY_ID_BYTES};
use crate::transformer::{KmsObserver, KmsProvider, WriteState};

/// A provider of the configuration and the plugin behind it.
#[derive(Debug)]
pub(super) struct Plugin {
    pub(super) provider: Arc<KmsProvider>,
    client: Client,
    /// Until when nobody asks again, and why: a plugin that is down holds up one call, not every one.
    down: Mutex<Option<(Instant, DekFailure)>>,
    retry_interval: Duration,
    /// Held while the status is asked for.
    status: tokio::sync::Mutex<()>,
    metrics: Option<Arc<Metrics>>,
}

/// How often a plugin is asked again that limits the rate, and how long is waited in between at first.
const THROTTLED_RETRIES: u32 = 7;
const THROTTLED_WAIT: Duration = Duration::from_millis(100);

impl Plugin {
    pub(super) fn new(provider: &Arc<KmsProvider>, options: &Options) -> Self {
        let named = options.endpoints.iter().find(|(name, _)| *name == provider.label().name);
        if let Some(metrics) = &options.metrics {
            provider.observe(Arc::clone(metrics) as Arc<dyn KmsObserver>);
        }
        let endpoint = named.map_or_else(|| provider.endpoint().clone(), |(_, endpoint)| endpoint.clone());
        Self {
            provider: Arc::clone(provider),
            client: Client::new(Connection::new(endpoint, provider.timeout())),
            down: Mutex::default(),
            retry_interval: options.retry_interval,
            status: tokio::sync::Mutex::new(()),
            metrics: options.metrics.clone(),
        }
    }

    /// Times a call of KMS v2.
    async fn timed<T>(&self, method: &'static str, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let begun = Instant::now();
        let result = call.await;
        if let Some(metrics) = &self.metrics {
            let code = match &result {
                Ok(_) => Some(tonic::Code::Ok),
                Err(error) => error.code(),
            };
            metrics.called(self.provider.label(), method, code, begun.elapsed());
        }
        result
    }

    async fn status(&self) -> Result<Status, Error> {
        let status = self.timed("Status", self.client.status()).await?;
        if let Some(metrics) = &self.metrics {
            match check_key_id(&status) {
                Ok(()) => metrics.status_named(self.provider.label(), &status.key_id),
                Err(_) => metrics.invalid_key_id(self.provider.label(), status.key_id.is_empty()),
            }
        }
        Ok(status)
    }

    /// A new data key, or a new seed.
    fn generate(&self) -> Result<Key, Error> {
        let begun = Instant::now();
        let key = random_key();
        if let Some(metrics) = &self.metrics {
            metrics.generated(key.as_ref().ok().map(|_| begun.elapsed()));
        }
        key
    }

    fn set_down(&self, failure: Option<&DekFailure>) {
        let mut down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        *down = failure.map(|failure| (Instant::now() + self.retry_interval, failure.clone()));
    }

    /// Why nobody is to be asked just now.
    fn is_down(&self) -> Option<DekFailure> {
        let down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        down.as_ref().filter(|(until, _)| Instant::now() < *until).map(|(_, failure)| failure.clone())
    }

    /// Learns the key ID by which values are current, unless it is known. A status with a valid key ID is enough to read by,
    /// whatever else the plugin says of its health.
    pub(super) async fn learn_status(&self) {
        if !self.provider.is_v2() || self.provider.has_status() {
            return;
        }
        let _one_at_a_time = self.status.lock().await;
        if self.provider.has_status() || self.is_down().is_some() {
            return;
        }
        let learned = match self.status().await {
            Ok(status) => {
                if let Err(error) = check_health(&status) {
                    tracing::warn!(provider = %self.provider.label(), "{error}");
                }
                check_key_id(&status).map(|()| status.key_id)
            }
            Err(error) => Err(error),
        };
        match learned {
            Ok(key_id) => self.provider.set_status(Ok(&key_id)),
            Err(error) => {
                let failure = match error.is_unavailable() {
                    true => DekFailure::NoStatus(error.chain()),
                    false => DekFailure::from(error),
                };
                self.set_down(Some(&failure));
                self.provider.set_status(Err(failure));
            }
        }
    }

    /// Has a DEK source decrypted, and tells the provider.
    pub(super) async fn resolve(&self, source: &DekSource) {
        if self.provider.is_v2() && !self.provider.has_status() {
            // As upstream: without a status nothing is read, and so nothing is asked.
            return;
        }
        if let Some(failure) = self.is_down() {
            return self.provider.put_dek(source, Err(failure));
        }
        match self.decrypt(source).await {
            Ok(plaintext) => {
                self.set_down(None);
                self.provider.put_dek(source, Ok(&plaintext));
            }
            Err(error) => {
                let failure = DekFailure::from(error);
                tracing::debug!(provider = %self.provider.label(), error = %failure, "a DEK source was not decrypted");
                if failure.is_transient() {
                    self.set_down(Some(&failure));
                }
                self.provider.put_dek(source, Err(failure));
            }
        }
    }

    async fn decrypt(&self, source: &DekSource) -> Result<Key, Error> {
        let mut wait = THROTTLED_WAIT;
        for _ in 0..THROTTLED_RETRIES {
            match self.decrypt_once(source).await {
                Err(error) if error.code() == Some(tonic::Code::ResourceExhausted) => {
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                }
                result => return result,
            }
        }
        self.decrypt_once(source).await
    }

    async fn decrypt_once(&self, source: &DekSource) -> Result<Key, Error> {
        match source {
            DekSource::V1 { encrypted_dek } => self.client.v1_decrypt(encrypted_dek).await,
            DekSource::V2 { encrypted_dek_source, key_id, annotations, .. } => {
                let encrypted = Encrypted {
                    ciphertext: encrypted_dek_source.clone(),
                    key_id: key_id.clone(),
                    annotations: annotations.clone(),
                };
                self.timed("Decrypt", self.client.decrypt(&encrypted)).await
            }
        }
    }

    /// A status by which values may be written.
    pub(super) async fn healthy_status(&self) -> Result<Status, Error> {
        let status = self.status().await?;
        check_key_id(&status)?;
        check_health(&status)?;
        Ok(status)
    }

    /// Has a new seed encrypted by the key that the status names, and writes by it from now on.
    pub(super) async fn renew_write_state(&self, status: &Status, validity: Duration) -> Result<(), Error> {
        let valid_until = Instant::now() + validity;
        let seed = self.generate()?;
        let answer = self.timed("Encrypt", self.client.encrypt(&seed)).await?;
        if answer.key_id != status.key_id {
            return Err(Error::KeyIdMismatch {
                encrypt: key_id_hash(&answer.key_id),
                status: key_id_hash(&status.key_id),
            });
        }
        let state = WriteState::new(&seed, answer.ciphertext, answer.key_id, answer.annotations)?;
        self.provider.set_status(Ok(&status.key_id));
        self.provider.set_write_state(state, valid_until);
        Ok(())
    }

    /// KMS v1: a data key for one write.
    pub(super) async fn add_fresh_dek(&self) -> Result<(), Error> {
        let dek = self.generate()?;
        let encrypted = self.client.v1_encrypt(&dek).await?;
        // A key of 32 bytes is always one of AES.
        self.provider.add_fresh_dek(&dek, encrypted).map_err(|failure| Error::Unhealthy(failure.to_string()))
    }
}

/// 32 random bytes: a data key, or a seed.
pub(super) fn random_key() -> Result<Key, Error> {
    let mut bytes = Zeroizing::new(vec![0; 32]);
    getrandom::fill(&mut bytes).map_err(Error::Randomness)?;
    Ok(Key::new(bytes))
}

fn check_key_id(status: &Status) -> Result<(), Error> {
    match status.key_id.len() {
        0 => Err(Error::Unhealthy("Status answers an empty key ID".to_owned())),
        n if n > MAX_KEY_ID_BYTES => {
            Err(Error::Unhealthy(format!("Status answers a key ID of {n} bytes, more than {MAX_KEY_ID_BYTES}")))
        }
        _ => Ok(()),
    }
}

fn check_health(status: &Status) -> Result<(), Error> {
    if !matches!(status.version.as_str(), "v2" | "v2beta1") {
        let version: String = status.version.chars().take(64).collect();
        return Err(Error::Unhealthy(format!("Status answers the version {version:?}, neither v2 nor v2beta1")));
    }
    if status.healthz != "ok" {
        let healthz: String = status.healthz.chars().take(300).collect();
        return Err(Error::Unhealthy(format!("Status answers healthz {healthz:?}")));
    }
    Ok(())
}
