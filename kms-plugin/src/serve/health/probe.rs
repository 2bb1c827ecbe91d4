//! A round trip through the backend, again and again: a KMS that encrypts may still not decrypt.

use std::sync::Arc;
use std::time::Duration;

use atrest::secret::Key;
use atrest::transformer::envelope;
use zeroize::Zeroizing;

use super::Health;
use crate::backend::{self, Backend};
use crate::serve::limits::check_wrapped;
use crate::serve::service::kind;

const PROBE_BYTES: usize = 32;

/// When the backend is probed. A tenth more or less is left to chance, so that many plugins do not ask one KMS together.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// After a success.
    pub interval: Duration,
    /// After a failure.
    pub interval_after_failure: Duration,
    /// At the least, when there is a reason to look again.
    pub least: Duration,
    /// A probe that takes longer has failed.
    pub timeout: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(30),
            interval_after_failure: Duration::from_secs(10),
            least: Duration::from_secs(1),
            timeout: Duration::from_secs(10),
        }
    }
}

/// What is wrong, as the answer to Status says it.
#[derive(Debug, thiserror::Error)]
pub(in crate::serve) enum ProbeError {
    #[error(transparent)]
    Backend(backend::Error),
    #[error("the KMS did not answer within {} s", timeout.as_secs_f64())]
    Timeout { timeout: Duration },
    #[error("the backend's answer is invalid: {0}")]
    InvalidAnswer(envelope::Error),
    #[error("what was decrypted is not what was encrypted")]
    OtherPlaintext,
    #[error("the backend encrypts by another key than it says")]
    OtherKey,
    #[error("the operating system gives no random bytes")]
    Random(#[source] getrandom::Error),
    #[error("the backend panicked: this is a bug")]
    Panicked(#[source] tokio::task::JoinError),
}

/// Probes the backend until this is dropped.
pub(in crate::serve) async fn probe_for_ever(backend: Arc<dyn Backend>, health: Arc<Health>, timing: Timing) {
    loop {
        let result = probe_once(&backend, &health, timing.timeout).await;
        let pause = if result.is_ok() { timing.interval } else { timing.interval_after_failure };
        health.probe_ended(result);
        health.set_warning(backend.warning());
        tokio::time::sleep(timing.least).await;
        let pause = with_chance(pause).saturating_sub(timing.least);
        // Whether it is over or somebody has asked makes no difference.
        _ = tokio::time::timeout(pause, health.wake.notified()).await;
    }
}

/// In a task of its own: whatever happens there, probing goes on.
async fn probe_once(
    backend: &Arc<dyn Backend>,
    health: &Arc<Health>,
    timeout: Duration,
) -> Result<Option<String>, ProbeError> {
    let (backend, health) = (Arc::clone(backend), Arc::clone(health));
    let mut task = tokio::spawn(async move {
        let key_id = probe(&*backend, &health).await?;
        if !backend.is_local() {
            return Ok(Some(key_id));
        }
        // Status asks such a backend too, and may have heard of a newer key while the probe went on.
        health.ask_key_id(&*backend).await;
        Ok(None)
    });
    match tokio::time::timeout(timeout, &mut task).await {
        Ok(Ok(result)) => result,
        Ok(Err(error)) => Err(ProbeError::Panicked(error)),
        Err(_) => {
            task.abort();
            Err(ProbeError::Timeout { timeout })
        }
    }
}

/// Encrypts, decrypts and compares. The ID of the key.
async fn probe(backend: &dyn Backend, health: &Health) -> Result<String, ProbeError> {
    let failed = |operation| {
        move |error: backend::Error| {
            health.metrics.backend_error(operation, kind(&error));
            ProbeError::Backend(error)
        }
    };
    let before = backend.current_key_id().await.map_err(failed("current_key_id"))?;
    let mut bytes = Zeroizing::new(vec![0; PROBE_BYTES]);
    getrandom::fill(&mut bytes).map_err(ProbeError::Random)?;
    let plaintext = Key::new(bytes);
    let wrapped = backend.encrypt(&plaintext).await.map_err(failed("encrypt"))?;
    check_wrapped(&wrapped).map_err(ProbeError::InvalidAnswer)?;
    let opened = backend.decrypt(&wrapped).await.map_err(failed("decrypt"))?;
    if opened != plaintext {
        return Err(ProbeError::OtherPlaintext);
    }
    if wrapped.key_id == before {
        return Ok(before);
    }
    // The key may have been rotated in between.
    let after = backend.current_key_id().await.map_err(failed("current_key_id"))?;
    if wrapped.key_id == after { Ok(after) } else { Err(ProbeError::OtherKey) }
}

/// A tenth more or less.
fn with_chance(pause: Duration) -> Duration {
    let chance = getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX));
    pause.mul_f64(0.9 + 0.2 * chance)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::backend::Wrapped;
    use crate::serve::metrics::Metrics;

    /// A keyring that is rotated, and asked by Status, while a probe is with it.
    #[derive(Debug, Default)]
    struct Rotating {
        is_rotated: AtomicBool,
        health: OnceLock<Arc<Health>>,
    }

    #[tonic::async_trait]
    impl Backend for Rotating {
        fn name(&self) -> &'static str {
            "keyring"
        }

        fn is_local(&self) -> bool {
            true
        }

        async fn current_key_id(&self) -> Result<String, backend::Error> {
            Ok(if self.is_rotated.load(Ordering::SeqCst) { "new" } else { "old" }.to_owned())
        }

        async fn encrypt(&self, plaintext: &Key) -> Result<Wrapped, backend::Error> {
            let key_id = self.current_key_id().await?;
            Ok(Wrapped { ciphertext: plaintext.expose().to_vec(), key_id, annotations: BTreeMap::new() })
        }

        async fn decrypt(&self, wrapped: &Wrapped) -> Result<Key, backend::Error> {
            self.is_rotated.store(true, Ordering::SeqCst);
            let health = self.health.get().unwrap();
            health.ask_key_id(self).await;
            assert_eq!(health.of_backend().0.as_deref(), Some("new"));
            Ok(Key::new(Zeroizing::new(wrapped.ciphertext.clone())))
        }
    }

    /// The old ID came back with the probe's end, and stayed until the next Status.
    #[tokio::test]
    async fn a_probe_that_a_rotation_overtakes_does_not_put_the_old_key_back() {
        let health = Arc::new(Health::new(Arc::new(Metrics::new("keyring"))));
        let rotating = Arc::new(Rotating::default());
        rotating.health.set(Arc::clone(&health)).unwrap();
        let backend: Arc<dyn Backend> = rotating;
        health.ask_key_id(&*backend).await;
        assert_eq!(health.of_backend().0.as_deref(), Some("old"));
        health.probe_ended(probe_once(&backend, &health, Duration::from_secs(20)).await);
        assert_eq!(health.of_backend(), (Some("new".to_owned()), None));
    }
}
