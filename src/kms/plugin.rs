use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::connection::said;
use super::patience::Patience;
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
    patience: Patience,
    /// Held while the status is learned.
    learning: tokio::sync::Mutex<()>,
    metrics: Option<Arc<Metrics>>,
    /// The seed that writes, and what the KMS made of it.
    written_by: tokio::sync::Mutex<Option<(Key, Encrypted)>>,
}

/// What has no `stop` of its own.
static NEVER: AtomicBool = AtomicBool::new(false);

impl Plugin {
    pub(super) fn new(provider: &Arc<KmsProvider>, options: &Options) -> Self {
        let named = options.endpoints.iter().find(|(name, _)| is_named(provider, name));
        if let Some(metrics) = &options.metrics {
            provider.observe(Arc::clone(metrics) as Arc<dyn KmsObserver>);
        }
        let endpoint = named.map_or_else(|| provider.endpoint().clone(), |(_, endpoint)| endpoint.clone());
        Self {
            provider: Arc::clone(provider),
            client: Client::new(Connection::new(endpoint, provider.timeout())),
            patience: Patience::new(options.patience, options.retry_interval),
            learning: tokio::sync::Mutex::new(()),
            metrics: options.metrics.clone(),
            written_by: tokio::sync::Mutex::new(None),
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

    /// Learns the key ID by which values are current, unless it is known. A status with a valid key ID is enough to read by,
    /// whatever else the plugin says of its health.
    pub(super) async fn learn_status(&self, stop: &AtomicBool) {
        if !self.provider.is_v2() || self.provider.has_status() {
            return;
        }
        let _one_at_a_time = self.learning.lock().await;
        if self.provider.has_status() {
            return;
        }
        let learned = match self.patience.call(stop, || self.status()).await {
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
            Err(error) if error.is_unavailable() => {
                self.provider.set_status(Err(DekFailure::NoStatus(error.chain())));
            }
            Err(error) => self.provider.set_status(Err(DekFailure::from(error))),
        }
    }

    /// Has a DEK source decrypted, and tells the provider.
    pub(super) async fn resolve(&self, source: &DekSource, stop: &AtomicBool) {
        if self.provider.is_v2() && !self.provider.has_status() {
            // As upstream: without a status nothing is read, and so nothing is asked.
            return;
        }
        let mut answer = self.patience.call(stop, || self.decrypt(source)).await;
        if matches!(&answer, Err(error) if error.is_unexplained()) {
            // Many plugins answer every error so, also one that passes.
            tokio::time::sleep(FAILED_WAIT).await;
            answer = self.patience.call(stop, || self.decrypt(source)).await;
        }
        match answer {
            Ok(plaintext) => self.provider.put_dek(source, Ok(&plaintext)),
            Err(Error::Stopped) => {}
            Err(error) => {
                let failure = DekFailure::from(error);
                tracing::debug!(provider = %self.provider.label(), error = %failure, "a DEK source was not decrypted");
                self.provider.put_dek(source, Err(failure));
            }
        }
    }

    async fn decrypt(&self, source: &DekSource) -> Result<Key, Error> {
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
        let status = self.patience.call(&NEVER, || self.status()).await?;
        check_key_id(&status)?;
        check_health(&status)?;
        Ok(status)
    }

    /// Has a new seed encrypted by the key that the status names, makes sure that the KMS gives it back, and writes by it from
    /// now on.
    pub(super) async fn renew_write_state(&self, status: &Status, validity: Duration) -> Result<(), Error> {
        let valid_until = Instant::now() + validity;
        let seed = self.generate()?;
        let encrypt = || self.timed("Encrypt", self.client.encrypt(&seed));
        let answer = self.patience.call(&NEVER, encrypt).await?;
        if answer.key_id != status.key_id {
            return Err(Error::KeyIdMismatch {
                encrypt: key_id_hash(&answer.key_id),
                status: key_id_hash(&status.key_id),
            });
        }
        let state =
            WriteState::new(&seed, answer.ciphertext.clone(), answer.key_id.clone(), answer.annotations.clone())?;
        let decrypt = || self.timed("Decrypt", self.client.decrypt(&answer));
        given_back(&seed, self.patience.call(&NEVER, decrypt).await)?;
        self.provider.set_status(Ok(&status.key_id));
        self.provider.set_write_state(state, valid_until);
        *self.written_by.lock().await = Some((seed, answer));
        Ok(())
    }

    /// Has what was written by decrypted once more; and takes a new seed when the key is another by now.
    pub(super) async fn confirm(&self, validity: Duration) -> Result<(), Error> {
        let status = self.healthy_status().await?;
        {
            let written_by = self.written_by.lock().await;
            let Some((seed, answer)) = &*written_by else { return Ok(()) };
            let decrypt = || self.timed("Decrypt", self.client.decrypt(answer));
            given_back(seed, self.patience.call(&NEVER, decrypt).await)?;
        }
        if self.provider.key_id().is_ok_and(|key_id| key_id == status.key_id) {
            return Ok(());
        }
        self.renew_write_state(&status, validity).await
    }

    /// KMS v1: a data key for one write.
    pub(super) async fn add_fresh_dek(&self) -> Result<(), Error> {
        let dek = self.generate()?;
        let encrypted = self.patience.call(&NEVER, || self.client.v1_encrypt(&dek)).await?;
        // A key of 32 bytes is always one of AES.
        self.provider.add_fresh_dek(&dek, encrypted).map_err(|failure| Error::Unhealthy(failure.to_string()))
    }

    /// KMS v1: makes sure that the KMS gives back what it encrypts.
    pub(super) async fn check_round_trip(&self) -> Result<(), Error> {
        let dek = self.generate()?;
        let encrypted = self.patience.call(&NEVER, || self.client.v1_encrypt(&dek)).await?;
        given_back(&dek, self.patience.call(&NEVER, || self.client.v1_decrypt(&encrypted)).await)
    }
}

/// How long is waited before a plugin is asked again that failed without saying why.
const FAILED_WAIT: Duration = Duration::from_millis(100);

/// Whether an endpoint is for a provider: it names it as `cloud-kms`, or as `kms-v2/cloud-kms`.
pub(super) fn is_named(provider: &KmsProvider, name: &str) -> bool {
    provider.label().name == name || provider.label().to_string() == name
}

fn given_back(key: &Key, answer: Result<Key, Error>) -> Result<(), Error> {
    match answer {
        Ok(decrypted) if decrypted == *key => Ok(()),
        Ok(_) => Err(Error::NotGivenBack("Decrypt answers other bytes than were encrypted".to_owned())),
        Err(error) if error.is_unavailable() => Err(error),
        Err(error) => Err(Error::NotGivenBack(error.chain())),
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
        let version = said(&status.version, Some(&status.key_id));
        return Err(Error::Unhealthy(format!("Status answers the version {version:?}, neither v2 nor v2beta1")));
    }
    if status.healthz != "ok" {
        let healthz = said(&status.healthz, Some(&status.key_id));
        return Err(Error::Unhealthy(format!("Status answers healthz {healthz:?}")));
    }
    Ok(())
}
