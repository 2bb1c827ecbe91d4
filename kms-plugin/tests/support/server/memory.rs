//! A backend with keys in memory, whose failures are ordered.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use atrest::secret::Key;
use atrest_kms_plugin::backend::{Backend, Error, Wrapped};
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

const NONCE_BYTES: usize = 24;

type Fault = fn() -> Error;

/// Keys by their IDs. The last one encrypts.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    keys: Mutex<Vec<(String, [u8; 32])>>,
    is_local: bool,
    /// What every call answers instead.
    fault: Mutex<Option<Fault>>,
    /// What Decrypt alone answers instead.
    decrypt_fault: Mutex<Option<Fault>>,
    /// What Encrypt answers instead, where it is to be wrong.
    answer: Mutex<Option<Wrapped>>,
    delay: Mutex<Duration>,
    warning: Mutex<Option<String>>,
    pub(crate) reloads: AtomicUsize,
    pub(crate) calls: AtomicUsize,
    is_silent: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test panics with it")
}

impl Memory {
    /// One that is asked for its key at every Status.
    pub(crate) fn local() -> Self {
        let memory = Self { is_local: true, ..Self::default() };
        memory.rotate("kek-1");
        memory
    }

    /// One like a KMS in the network.
    pub(crate) fn remote() -> Self {
        let memory = Self::default();
        memory.rotate("kek-1");
        memory
    }

    /// From now on another key encrypts.
    pub(crate) fn rotate(&self, key_id: &str) {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("random bytes");
        lock(&self.keys).push((key_id.to_owned(), bytes));
    }

    pub(crate) fn fail(&self, fault: Option<Fault>) {
        *lock(&self.fault) = fault;
    }

    pub(crate) fn fail_decrypt(&self, fault: Option<Fault>) {
        *lock(&self.decrypt_fault) = fault;
    }

    pub(crate) fn answer(&self, wrapped: Option<Wrapped>) {
        *lock(&self.answer) = wrapped;
    }

    pub(crate) fn warn(&self, warning: Option<&str>) {
        *lock(&self.warning) = warning.map(str::to_owned);
    }

    /// Each call takes so long.
    pub(crate) fn delay(&self, delay: Duration) {
        *lock(&self.delay) = delay;
    }

    /// From now on no call comes back.
    pub(crate) fn fall_silent(&self) {
        self.is_silent.store(true, Ordering::SeqCst);
    }

    async fn call(&self) -> Result<(), Error> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.is_silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let delay = *lock(&self.delay);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let fault = *lock(&self.fault);
        fault.map_or(Ok(()), |fault| Err(fault()))
    }

    fn current(&self) -> (String, [u8; 32]) {
        lock(&self.keys).last().cloned().expect("a key")
    }
}

#[tonic::async_trait]
impl Backend for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn is_local(&self) -> bool {
        self.is_local
    }

    async fn current_key_id(&self) -> Result<String, Error> {
        self.call().await?;
        Ok(self.current().0)
    }

    async fn encrypt(&self, plaintext: &Key) -> Result<Wrapped, Error> {
        self.call().await?;
        if let Some(wrapped) = lock(&self.answer).clone() {
            return Ok(wrapped);
        }
        let (key_id, key) = self.current();
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).expect("random bytes");
        let payload = Payload { msg: plaintext.expose(), aad: key_id.as_bytes() };
        let sealed = XChaCha20Poly1305::new(&key.into()).encrypt(&XNonce::from(nonce), payload).expect("sealed");
        let annotations = BTreeMap::from([("memory.test.atrest.io".to_owned(), b"1".to_vec())]);
        Ok(Wrapped { ciphertext: [&nonce[..], &sealed].concat(), key_id, annotations })
    }

    async fn decrypt(&self, wrapped: &Wrapped) -> Result<Key, Error> {
        self.call().await?;
        let fault = *lock(&self.decrypt_fault);
        if let Some(fault) = fault {
            return Err(fault());
        }
        let keys = lock(&self.keys);
        let Some((key_id, key)) = keys.iter().find(|(key_id, _)| *key_id == wrapped.key_id) else {
            return Err(Error::UnknownKey { key_id_hash: "sha256:of-the-test".to_owned() });
        };
        let (nonce, sealed) =
            wrapped.ciphertext.split_at_checked(NONCE_BYTES).ok_or(Error::InvalidRequest("the ciphertext is short"))?;
        let nonce: [u8; NONCE_BYTES] = nonce.try_into().expect("its length");
        let payload = Payload { msg: sealed, aad: key_id.as_bytes() };
        let opened = XChaCha20Poly1305::new(&(*key).into()).decrypt(&XNonce::from(nonce), payload);
        opened.map(|bytes| Key::new(Zeroizing::new(bytes))).map_err(|_| Error::AuthenticationFailed)
    }

    fn warning(&self) -> Option<String> {
        lock(&self.warning).clone()
    }

    async fn reload(&self) -> Result<(), Error> {
        self.reloads.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}
