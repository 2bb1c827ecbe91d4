//! Keys in a file of this machine: [`crate::keyring`].
//!
//! Whoever asks for the current key, or for one that is not known, gets the file as it is now: its metadata are looked at each
//! time, which takes a microsecond, and it is read again when they have changed. A file that cannot be read changes nothing; it is
//! logged once, tried again every five seconds, and shown by [`Backend::warning`].
//!
//! So does a file that lacks a key of this process, and does not say that it was retired: an older copy. What this process holds may be
//! the last copy of that key. It stays in force as a whole, for encrypting too, until the file has all keys again or the process ends.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use atrest::causes::Chain;
use atrest::report::key_id_hash;
use atrest::secret::Key;

use super::{Backend, Error, Wrapped};
use crate::keyring::{self, Keyring, MAX_PLAINTEXT, Opener, Ring, Signature};

/// When a file that could not be read is tried again although it looks the same.
const RETRY: Duration = Duration::from_secs(5);

/// Wraps DEK sources by the keys of one file.
#[derive(Debug)]
pub struct KeyringBackend(Arc<Inner>);

struct Inner {
    path: PathBuf,
    opener: Opener,
    keyring: RwLock<Arc<Keyring>>,
    watch: Mutex<Watch>,
    /// Held while the file is read again; others wait for that without a thread.
    reading: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct Watch {
    /// Of the file that was last read, or could not be; none when there was no file.
    seen: Option<Signature>,
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Failure {
    text: String,
    at: Instant,
}

impl KeyringBackend {
    /// Reads a keyring, to serve its keys.
    ///
    /// # Errors
    ///
    /// When it cannot be read or opened.
    pub fn open(path: &Path, opener: Opener) -> Result<Self, keyring::Error> {
        let keyring = Keyring::open(path, &opener)?;
        let watch = Watch { seen: keyring.signature(), ..Watch::default() };
        Ok(Self(Arc::new(Inner {
            path: path.to_owned(),
            opener,
            keyring: RwLock::new(Arc::new(keyring)),
            watch: Mutex::new(watch),
            reading: Arc::default(),
        })))
    }

    /// The keys as the file has them now.
    async fn refreshed(&self) -> Arc<Keyring> {
        if self.0.is_unseen() {
            // What it logs and keeps is all that there is to say of a failure.
            _ = self.read_again(false).await;
        }
        self.0.keyring()
    }

    /// A passphrase takes a fifth of a second, so it is not done where requests are.
    async fn read_again(&self, although_seen: bool) -> Result<(), Error> {
        let reading = Arc::clone(&self.0.reading).lock_owned().await;
        // While this waited, another may have done it.
        if !although_seen && !self.0.is_unseen() {
            return Ok(());
        }
        let inner = Arc::clone(&self.0);
        let read = tokio::task::spawn_blocking(move || {
            // Even when nobody waits for the outcome any more.
            let _reading = reading;
            inner.read_again()
        });
        read.await.map_err(|error| Error::Unavailable(format!("reading the keyring was given up: {error}")))?
    }
}

#[tonic::async_trait]
impl Backend for KeyringBackend {
    fn name(&self) -> &'static str {
        "keyring"
    }

    fn is_local(&self) -> bool {
        true
    }

    async fn current_key_id(&self) -> Result<String, Error> {
        let keyring = self.refreshed().await;
        let current = keyring.ring().current().map_err(unusable)?;
        Ok(current.id.as_str().to_owned())
    }

    async fn encrypt(&self, plaintext: &Key) -> Result<Wrapped, Error> {
        match plaintext.len() {
            0 => return Err(Error::InvalidRequest("there is nothing to encrypt")),
            len if len > MAX_PLAINTEXT => return Err(Error::InvalidRequest("more than 984 bytes to encrypt")),
            _ => {}
        }
        let keyring = self.refreshed().await;
        let current = keyring.ring().current().map_err(unusable)?;
        let ciphertext = current.kek.wrap(&current.id, plaintext.expose()).map_err(unusable)?;
        Ok(Wrapped { ciphertext, key_id: current.id.as_str().to_owned(), annotations: BTreeMap::new() })
    }

    async fn decrypt(&self, wrapped: &Wrapped) -> Result<Key, Error> {
        let mut keyring = self.0.keyring();
        if keyring.ring().get(&wrapped.key_id).is_none() {
            keyring = self.refreshed().await;
        }
        let ring = keyring.ring();
        let Some(entry) = ring.get(&wrapped.key_id) else {
            let key_id_hash = key_id_hash(&wrapped.key_id);
            return Err(match ring.get_retired(&wrapped.key_id) {
                Some(retired) => Error::KeyUnusable(format!("{key_id_hash} was retired on {}", retired.when())),
                None => Error::UnknownKey { key_id_hash },
            });
        };
        entry.kek.unwrap(&entry.id, &wrapped.ciphertext).map(Key::new).ok_or(Error::AuthenticationFailed)
    }

    async fn reload(&self) -> Result<(), Error> {
        self.read_again(true).await
    }

    fn warning(&self) -> Option<String> {
        self.0.watch().failure.as_ref().map(|failure| failure.text.clone())
    }
}

impl Inner {
    fn keyring(&self) -> Arc<Keyring> {
        Arc::clone(&self.keyring.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn watch(&self) -> std::sync::MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the file is another than that which was tried last, or it is time to try that again.
    fn is_unseen(&self) -> bool {
        let signature = Signature::at(&self.path).ok();
        let watch = self.watch();
        watch.seen != signature || watch.failure.as_ref().is_some_and(|failure| failure.at.elapsed() >= RETRY)
    }

    fn read_again(&self) -> Result<(), Error> {
        let before = Signature::at(&self.path).ok();
        let old = self.keyring();
        let read = old.reopen(&self.path, &self.opener).map_err(|error| Chain(&error).to_string());
        match read.and_then(|new| lacks_nothing(old.ring(), new)) {
            Ok(new) => {
                self.replace(&old, new);
                Ok(())
            }
            Err(reason) => {
                let text = format!("{}: {reason}; the keys that were read before stay in force", self.path.display());
                let mut watch = self.watch();
                let is_known = watch.seen == before && watch.failure.as_ref().is_some_and(|known| known.text == text);
                watch.seen = before;
                watch.failure = Some(Failure { text: text.clone(), at: Instant::now() });
                if !is_known {
                    tracing::error!("{text}");
                }
                Err(Error::Unavailable(text))
            }
        }
    }

    fn replace(&self, old: &Keyring, new: Keyring) {
        let (before, now) = (old.ring(), new.ring());
        let mut watch = self.watch();
        watch.seen = new.signature();
        watch.failure = None;
        let current = |keyring: &keyring::Ring| keyring.current().map(|key| key.id.hash()).unwrap_or_default();
        tracing::info!(
            keyring = %self.path.display(),
            keys = now.keys().count(),
            current = current(now),
            before = current(before),
            "read the keyring again"
        );
        drop(watch);
        *self.keyring.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("path", &self.path).field("keyring", &self.keyring()).finish_non_exhaustive()
    }
}

/// The new one, unless a key of the old ring is gone or is another one in it, and was not retired.
fn lacks_nothing(old: &Ring, new: Keyring) -> Result<Keyring, String> {
    let now = new.ring();
    let is_there = |id: &str| now.get(id).map(|entry| &entry.kek) == old.get(id).map(|entry| &entry.kek);
    let lost = old.keys().filter(|key| !is_there(key.id.as_str()) && now.get_retired(key.id.as_str()).is_none());
    let hashes: Vec<_> = lost.map(|key| key.id.hash()).collect();
    if hashes.is_empty() {
        return Ok(new);
    }
    Err(format!(
        "it lacks {} that it had before and that were not retired ({}), so it is taken for an older file: put the newer one back",
        if hashes.len() == 1 { "1 key".to_owned() } else { format!("{} keys", hashes.len()) },
        hashes.join(", ")
    ))
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn unusable(error: keyring::Error) -> Error {
    Error::KeyUnusable(Chain(&error).to_string())
}
