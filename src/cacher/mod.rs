//! A watch cache: one list and one watch of etcd for as many readers and watchers as there are (upstream `storage/cacher`).
//!
//! It holds the objects of one resource, and the last of their changes. Reads are answered from it when it is fresh enough, and by the
//! store otherwise. Watchers get what they have missed from the history; when that does not reach back so far they are told that their
//! resource version is too old, and begin with a list. Whoever does not take his events is cut off, so that he holds up nobody else,
//! and goes on from the last one that he took.

mod history;
mod options;
mod read;
mod state;
mod watch;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

pub use options::CacherOptions;
pub use watch::CacheWatch;

use crate::storage::{
    Codec, Keyed, Metrics, ResourceLabels, StorageError, StorageTransformer, Store, StoreWatchOptions, StoredObject,
    WatchEvent,
};
use state::{Blocked, State};

/// The objects of one resource, kept up to date by one watch of etcd.
pub struct Cacher<C: Codec, T> {
    store: Store<C, T>,
    shared: Arc<Shared<C::Object>>,
    task: JoinHandle<()>,
}

/// What the cache and its watchers share.
struct Shared<O> {
    state: RwLock<State<O>>,
    /// How far the cache is; those who wait for a revision wait here.
    revision: tokio::sync::watch::Sender<i64>,
    /// Somebody waits for a revision that etcd has not told of.
    wants_progress: tokio::sync::Notify,
    /// Whether etcd tells how far it is when it is asked.
    tells_progress: AtomicBool,
    options: CacherOptions,
    labels: ResourceLabels,
    metrics: Option<Arc<Metrics>>,
}

impl<O> Shared<O> {
    fn read(&self) -> RwLockReadGuard<'_, State<O>> {
        self.state.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<O>> {
        self.state.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Empties the cache and ends its watches.
    fn fail(&self, why: String) {
        self.write().fail(why);
        _ = self.revision.send_replace(0);
    }
}

impl<C: Codec, T> std::fmt::Debug for Cacher<C, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cacher").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

impl<C: Codec, T> Drop for Cacher<C, T> {
    fn drop(&mut self) {
        self.task.abort();
        // Nobody is to wait for events that never come.
        self.shared.fail("the cache is gone".to_owned());
    }
}

/// Between two bookmarks.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
/// Between two attempts to fill a cache.
const PAUSE: Duration = Duration::from_secs(1);

impl<C: Codec, T: StorageTransformer> Cacher<C, T> {
    /// A cache in front of a store. It begins to be filled at once. Dropped, it ends its watches.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    #[must_use]
    pub fn start(store: Store<C, T>, options: CacherOptions) -> Self {
        let shared = Arc::new(Shared {
            state: RwLock::new(State::new(&options)),
            revision: tokio::sync::watch::Sender::new(0),
            wants_progress: tokio::sync::Notify::new(),
            tells_progress: AtomicBool::new(false),
            labels: ResourceLabels::of(&store.options().resource),
            metrics: store.options().metrics.clone(),
            options,
        });
        let task = tokio::spawn(run(store.clone(), Arc::clone(&shared)));
        Self { store, shared, task }
    }

    /// The store behind it, for writing.
    #[must_use]
    pub fn store(&self) -> &Store<C, T> {
        &self.store
    }

    /// Whether the cache is filled.
    ///
    /// # Errors
    ///
    /// [`StorageError::NotReady`] as long as it is not.
    pub fn readiness_check(&self) -> Result<(), StorageError> {
        self.shared.read().ready()
    }

    /// Waits until the cache is filled.
    pub async fn wait_until_ready(&self) {
        let mut revision = self.shared.revision.subscribe();
        // The sender lives as long as this.
        _ = revision.wait_for(|revision| *revision > 0).await;
    }

    /// The revision up to which the cache has seen everything; 0 when it is not filled.
    #[must_use]
    pub fn revision(&self) -> i64 {
        *self.shared.revision.borrow()
    }

    /// How many watchers there are.
    #[must_use]
    pub fn watchers(&self) -> usize {
        self.shared.read().watchers.len()
    }

    /// How many objects, and how many of their last changes, are held.
    #[must_use]
    pub fn len(&self) -> (usize, usize) {
        let state = self.shared.read();
        (state.objects.len(), state.history.len())
    }

    /// Whether no object is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.read().objects.is_empty()
    }
}

/// Fills the cache and keeps it up to date, and begins anew when that fails.
async fn run<C: Codec, T: StorageTransformer>(store: Store<C, T>, shared: Arc<Shared<C::Object>>) {
    // Also when a codec or a selector of the caller's panics.
    let _ends = Ends(Arc::clone(&shared));
    loop {
        if let Ok(status) = store.client().status().await {
            shared.tells_progress.store(tells_progress(&status.version), Ordering::Relaxed);
        }
        let error = follow(&store, &shared).await;
        tracing::warn!(error, "the watch cache is filled anew");
        shared.fail(error);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Ends all watches with the task.
struct Ends<O>(Arc<Shared<O>>);

impl<O> Drop for Ends<O> {
    fn drop(&mut self) {
        self.0.fail("the cache is gone".to_owned());
    }
}

/// Follows one watch until it ends, and says why.
async fn follow<C: Codec, T: StorageTransformer>(store: &Store<C, T>, shared: &Arc<Shared<C::Object>>) -> String {
    let options = StoreWatchOptions {
        send_initial_events: Some(true),
        allow_watch_bookmarks: true,
        progress_notify: true,
        ..StoreWatchOptions::default()
    };
    let prefix = store.options().resource_prefix.clone();
    let mut watch = match store.watch_marked(&prefix, options) {
        Ok(watch) => watch,
        Err(error) => return error.to_string(),
    };
    let mut filling = Some(Vec::new());
    // The changes of a revision, until it is known that there are no more of it.
    let mut changes: Vec<Keyed<C::Object>> = Vec::new();
    let mut bookmarks = tokio::time::interval(shared.options.bookmark_interval.max(SHORTEST_INTERVAL));
    loop {
        let event = tokio::select! {
            event = watch.next_keyed() => event,
            () = shared.wants_progress.notified() => {
                watch.request_progress();
                continue;
            }
            _ = bookmarks.tick() => {
                shared.read().send_bookmarks();
                continue;
            }
        };
        let Some(keyed) = event else { return "the watch has ended".to_owned() };
        match (keyed.event, &mut filling) {
            (WatchEvent::Error(status), _) => return status.message,
            (WatchEvent::Bookmark { resource_version, initial_events_end }, _) => {
                if let Some(objects) = filling.take_if(|_| initial_events_end) {
                    shared.write().fill(objects, resource_version);
                    if let Some(metrics) = &shared.metrics {
                        metrics.cache.initializations.get_or_create(&shared.labels).inc();
                    }
                } else if !changes.is_empty() {
                    shared.take(std::mem::take(&mut changes)).await;
                }
                shared.advance(resource_version);
            }
            (WatchEvent::Added(object), Some(objects)) => objects.push((keyed.key, object)),
            (event, _) => changes.push(Keyed { event, ..keyed }),
        }
    }
}

impl<O: StoredObject> Shared<O> {
    /// Everything up to a revision is known.
    fn advance(&self, revision: i64) {
        self.write().advance(revision);
        self.revision.send_if_modified(|known| {
            let newer = revision > *known;
            *known = revision.max(*known);
            newer
        });
        if let Some(metrics) = &self.metrics {
            metrics.cache.resource_version.get_or_create(&self.labels).set(revision);
        }
    }

    /// Takes the changes of a revision in, and passes them on. Those who have no room for them are waited for a little, and then cut off.
    async fn take(&self, changes: Vec<Keyed<O>>) {
        let mut blocked = Blocked::new();
        {
            let mut state = self.write();
            let taken = state.take(changes, &mut blocked);
            if let Some(metrics) = &self.metrics {
                metrics.cache.received.get_or_create(&self.labels).inc_by(taken);
                metrics.cache.dispatched.get_or_create(&self.labels).inc_by(taken);
                let (capacity, increases, decreases) = state.history.take_sizes();
                let capacity = i64::try_from(capacity).unwrap_or(i64::MAX);
                metrics.cache.capacity.get_or_create(&self.labels).set(capacity);
                metrics.cache.capacity_increases.get_or_create(&self.labels).inc_by(increases);
                metrics.cache.capacity_decreases.get_or_create(&self.labels).inc_by(decreases);
            }
        }
        if blocked.is_empty() {
            return;
        }
        let deadline = Instant::now() + self.write().budget.take();
        for (id, sender, waiting) in blocked {
            let begun = Instant::now();
            let all = async {
                for event in waiting {
                    sender.send(watch::Sent::Event(event)).await.map_err(drop)?;
                }
                Ok::<(), ()>(())
            };
            let sent = tokio::time::timeout_at(deadline, all).await;
            let mut state = self.write();
            state.budget.used(begun.elapsed());
            if !matches!(sent, Ok(Ok(()))) && state.watchers.remove(id).is_some() {
                tracing::debug!(id, "a watcher was too slow");
                if let Some(metrics) = &self.metrics {
                    metrics.cache.terminated_watchers.get_or_create(&self.labels).inc();
                }
            }
        }
    }
}

/// Whether this etcd tells how far a watch is, and never before it has sent all up to there: from 3.4.31 and 3.5.13 on.
fn tells_progress(version: &str) -> bool {
    let mut parts = version.split(['.', '-', '+']).map(|part| part.parse::<u32>().unwrap_or(0));
    let (major, minor, patch) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    match (major, minor) {
        (3, 4) => patch >= 31,
        (3, 5) => patch >= 13,
        (3, minor) => minor >= 6,
        (major, _) => major > 3,
    }
}

#[cfg(test)]
mod tests {
    use super::tells_progress;

    #[test]
    fn progress_is_asked_for_where_it_can_be_relied_on() {
        for (version, tells) in [
            ("3.4.30", false),
            ("3.4.31", true),
            ("3.5.1", false),
            ("3.5.13", true),
            ("3.6.0", true),
            ("3.3.27", false),
            ("4.0.0", true),
            ("3.5.13-rc.0", true),
            ("", false),
        ] {
            assert_eq!(tells_progress(version), tells, "{version}");
        }
    }
}
