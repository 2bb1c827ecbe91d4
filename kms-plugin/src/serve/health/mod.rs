//! What is known about the backend and the socket: for Status, for the health endpoints, for the service manager.

pub(super) mod http;
mod probe;

use std::sync::Arc;

use atrest::report::key_id_hash;
use tokio::sync::{Mutex, Notify, watch};

pub use probe::Timing;
pub(super) use probe::{ProbeError, probe_for_ever};

use super::metrics::Metrics;
use crate::backend::Backend;

/// What is known about the backend and the socket, by whoever learns it.
#[derive(Debug)]
pub(super) struct Health {
    known: watch::Sender<Condition>,
    wake: Notify,
    /// Held from asking a local backend for its key until the answer is known, so that no older answer comes after a newer one.
    asking: Mutex<()>,
    metrics: Arc<Metrics>,
}

/// How the plugin is.
#[derive(Clone, PartialEq, Eq)]
pub struct Condition {
    /// The last ID that the backend gave.
    key_id: Option<String>,
    /// What is wrong with asking for the key's ID.
    key: Option<String>,
    /// What was wrong with the last probe.
    probe: Option<String>,
    /// What is wrong with the socket.
    socket: Option<String>,
    /// What the backend finds wrong although it works.
    warning: Option<String>,
}

impl Condition {
    fn at_start() -> Self {
        let probe = Some("the first probe has not ended".to_owned());
        Self { key_id: None, key: None, probe, socket: None, warning: None }
    }

    /// What is wrong, in words: nothing when all is well.
    pub fn problems(&self) -> impl Iterator<Item = &str> {
        self.backend_problem().into_iter().chain(self.socket.as_deref())
    }

    /// What is wrong although all works, as the backend says it.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// `sha256:` and the hash of the ID of the key that encrypts.
    #[must_use]
    pub fn key_id_hash(&self) -> Option<String> {
        self.key_id.as_deref().map(key_id_hash)
    }

    fn backend_problem(&self) -> Option<&str> {
        self.key.as_deref().or(self.probe.as_deref())
    }
}

impl std::fmt::Debug for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let problems: Vec<_> = self.problems().collect();
        f.debug_struct("Condition")
            .field("key_id_hash", &self.key_id_hash())
            .field("problems", &problems)
            .field("warning", &self.warning)
            .finish()
    }
}

impl Health {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            known: watch::Sender::new(Condition::at_start()),
            wake: Notify::new(),
            asking: Mutex::default(),
            metrics,
        }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Condition> {
        self.known.subscribe()
    }

    /// The key's ID, as far as it is known, and what is wrong with the backend.
    pub(super) fn of_backend(&self) -> (Option<String>, Option<String>) {
        let known = self.known.borrow();
        (known.key_id.clone(), known.backend_problem().map(str::to_owned))
    }

    /// Asks a backend that answers at once.
    pub(super) async fn ask_key_id(&self, backend: &dyn Backend) {
        let _asking = self.asking.lock().await;
        match backend.current_key_id().await {
            Ok(key_id) => {
                self.update(|known| known.key = None);
                self.set_key_id(key_id);
            }
            Err(error) => self.update(|known| known.key = Some(error.to_string())),
        }
        self.set_warning(backend.warning());
    }

    /// A value was encrypted by this key: when it is not the one that is known, it is time to look.
    pub(super) fn key_id_was(&self, key_id: &str) {
        if self.known.borrow().key_id.as_deref() != Some(key_id) {
            self.look_again();
        }
    }

    /// Makes the next probe come soon.
    pub(super) fn look_again(&self) {
        self.wake.notify_one();
    }

    pub(super) fn set_socket(&self, problem: Option<String>) {
        self.update(|known| known.socket = problem);
    }

    /// The ID is none where the backend was asked for it directly.
    fn probe_ended(&self, result: Result<Option<String>, ProbeError>) {
        match result {
            Ok(key_id) => {
                self.metrics.probe_succeeded();
                self.update(|known| (known.key, known.probe) = (None, None));
                if let Some(key_id) = key_id {
                    self.set_key_id(key_id);
                }
            }
            Err(error) => self.update(|known| known.probe = Some(error.to_string())),
        }
    }

    /// The backend logs it itself.
    fn set_warning(&self, warning: Option<String>) {
        self.metrics.set_warning(warning.is_some());
        self.update(|known| known.warning = warning);
    }

    fn set_key_id(&self, key_id: String) {
        let is_new = self.known.borrow().key_id.as_deref() != Some(key_id.as_str());
        if is_new {
            let key_id_hash = key_id_hash(&key_id);
            tracing::info!(key_id_hash, "this key encrypts now");
            self.metrics.set_key_id_hash(&key_id_hash);
            self.update(|known| known.key_id = Some(key_id));
        }
    }

    /// Changes what is known, and logs what has gone wrong or right.
    fn update(&self, change: impl FnOnce(&mut Condition)) {
        self.known.send_if_modified(|known| {
            let before = known.clone();
            change(known);
            for problem in known.problems().filter(|problem| !before.problems().any(|old| old == *problem)) {
                tracing::warn!("not healthy: {problem}");
            }
            if known.problems().next().is_none() && before.problems().next().is_some() {
                tracing::info!("healthy");
            }
            *known != before
        });
    }
}
