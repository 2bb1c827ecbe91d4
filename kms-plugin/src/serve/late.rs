//! A backend that cannot be opened yet: kube-apiserver hears why, and needs no plugin that starts again and again.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use atrest::secret::Key;

use crate::backend::{Backend, Error, Wrapped};

type Open = dyn Fn() -> Result<Arc<dyn Backend>, String> + Send + Sync;

/// A backend that answers with the reason until it can be opened, which [`reload`](Backend::reload) tries.
pub struct LateBackend {
    name: &'static str,
    is_local: bool,
    open: Arc<Open>,
    opened: OnceLock<Arc<dyn Backend>>,
    reason: Mutex<String>,
    /// Held while it is opened.
    opening: tokio::sync::Mutex<()>,
}

impl LateBackend {
    /// One that could not be opened for this reason. `open` may take its time, and gives the reason when it fails again.
    pub fn new(
        name: &'static str,
        is_local: bool,
        reason: String,
        open: impl Fn() -> Result<Arc<dyn Backend>, String> + Send + Sync + 'static,
    ) -> Self {
        let (open, opening) = (Arc::new(open), tokio::sync::Mutex::default());
        Self { name, is_local, open, opened: OnceLock::new(), reason: Mutex::new(reason), opening }
    }

    /// Whether it was opened.
    pub fn is_open(&self) -> bool {
        self.opened.get().is_some()
    }

    fn backend(&self) -> Result<&dyn Backend, Error> {
        self.opened.get().map(|backend| &**backend).ok_or_else(|| self.unavailable())
    }

    fn unavailable(&self) -> Error {
        Error::Unavailable(self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn set_reason(&self, reason: String) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }
}

#[tonic::async_trait]
impl Backend for LateBackend {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_local(&self) -> bool {
        self.is_local
    }

    async fn current_key_id(&self) -> Result<String, Error> {
        self.backend()?.current_key_id().await
    }

    async fn encrypt(&self, plaintext: &Key) -> Result<Wrapped, Error> {
        self.backend()?.encrypt(plaintext).await
    }

    async fn decrypt(&self, wrapped: &Wrapped) -> Result<Key, Error> {
        self.backend()?.decrypt(wrapped).await
    }

    /// Opens it, or has it read its keys again when it is open.
    async fn reload(&self) -> Result<(), Error> {
        let _opening = self.opening.lock().await;
        if let Some(backend) = self.opened.get() {
            return backend.reload().await;
        }
        let open = Arc::clone(&self.open);
        // A passphrase takes a fifth of a second.
        match tokio::task::spawn_blocking(move || open()).await {
            Ok(Ok(backend)) => {
                _ = self.opened.set(backend);
                return Ok(());
            }
            Ok(Err(reason)) => self.set_reason(reason),
            Err(error) => self.set_reason(format!("opening it was given up: {error}")),
        }
        Err(self.unavailable())
    }

    fn warning(&self) -> Option<String> {
        self.opened.get().and_then(|backend| backend.warning())
    }
}

impl fmt::Debug for LateBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LateBackend")
            .field("name", &self.name)
            .field("opened", &self.opened.get())
            .finish_non_exhaustive()
    }
}
