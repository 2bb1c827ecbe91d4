use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::storage::requests::CompactRevision;
use crate::storage::{Client, Error};

/// Compacts etcd as API servers do, beside them: of all that take part, one wins each interval (upstream `etcd3/compact.go`).
///
/// History stays for between one and two intervals. What was seen a whole interval ago is compacted, so that the first round never
/// compacts. Dropped with its last copy, it stops.
#[derive(Clone, Debug)]
pub struct Compactor {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    compacted: Arc<AtomicI64>,
    task: Option<AbortHandle>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Where a compactor is: the version of `compact_rev_key` that it expects, and the revision that it compacts next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactorState {
    /// The version of `compact_rev_key`.
    pub version: i64,
    /// The revision of the store one round ago; 0 in the first.
    pub revision: i64,
}

impl CompactorState {
    /// One round: the state after it, and the revision that is known to be compacted, where one is.
    ///
    /// # Errors
    ///
    /// What etcd says. The round is then to be made again.
    pub async fn round(self, client: &Client) -> Result<(Self, Option<i64>), Error> {
        match client.write_compact_revision(self.version, self.revision).await? {
            CompactRevision::Lost { version, compacted, revision } => {
                Ok((Self { version, revision }, Some(compacted).filter(|revision| *revision > 0)))
            }
            CompactRevision::Won { revision } => {
                let next = Self { version: self.version + 1, revision };
                if self.revision == 0 {
                    return Ok((next, None));
                }
                match client.compact(self.revision).await {
                    // etcd compacts by itself too, where it is told to.
                    Ok(()) | Err(Error::Compacted) => {
                        tracing::debug!(revision = self.revision, "compacted");
                        Ok((next, Some(self.revision)))
                    }
                    Err(error) => {
                        // The key is written: whoever is next compacts what is between.
                        tracing::warn!(%error, revision = self.revision, "etcd was not compacted");
                        Ok((next, None))
                    }
                }
            }
        }
    }
}

impl Compactor {
    /// Compacts every interval; never when it is 0, as with `--etcd-compaction-interval=0`.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    #[must_use]
    pub fn start(client: &Client, interval: Duration) -> Self {
        let compacted = Arc::new(AtomicI64::new(0));
        if interval.is_zero() {
            return Self { shared: Arc::new(Shared { compacted, task: None }) };
        }
        let (client, known) = (client.clone(), Arc::clone(&compacted));
        let task = tokio::spawn(async move {
            let mut state = CompactorState::default();
            loop {
                tokio::time::sleep(interval).await;
                match state.round(&client).await {
                    Ok((next, found)) => {
                        state = next;
                        known.fetch_max(found.unwrap_or(0), Ordering::Relaxed);
                    }
                    Err(error) => tracing::warn!(%error, "etcd was not compacted"),
                }
            }
        });
        Self { shared: Arc::new(Shared { compacted, task: Some(task.abort_handle()) }) }
    }

    /// The highest revision that is known to be compacted, by this one or by others; 0 when none is.
    #[must_use]
    pub fn compact_revision(&self) -> i64 {
        self.shared.compacted.load(Ordering::Relaxed)
    }

    /// Whether there is anything to do: not with an interval of 0.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.shared.task.as_ref().is_some_and(|task| !task.is_finished())
    }
}
