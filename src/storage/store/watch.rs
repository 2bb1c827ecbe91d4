use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::codec::Codec;
use super::error::{Status, StorageError, Verb};
use super::options::Predicate;
use super::transformer::StorageTransformer;
use super::versioner::Versioner;
use super::{Operation, Store, shown};
use crate::source::StoredValue;
use crate::storage::{Error, Event, EventKind, KeyRange, WatchOptions, Watched};

/// What to watch, and from when.
#[derive(Clone, Debug)]
pub struct StoreWatchOptions<O> {
    /// `resourceVersion`: changes after it are wanted. Without one, or with `0`, what is there comes first, as additions.
    pub resource_version: String,
    /// `sendInitialEvents`: whether what is there comes first, whatever the resource version is.
    pub send_initial_events: Option<bool>,
    /// `allowWatchBookmarks`: whether the end of what is there is told.
    pub allow_watch_bookmarks: bool,
    /// Whether etcd is to say how far it is when nothing changes, as bookmarks.
    pub progress_notify: bool,
    /// Whether the key is what others begin with, or one object.
    pub recursive: bool,
    /// Which objects. What begins to match is added, and what ceases to is deleted.
    pub predicate: Predicate<O>,
    /// What becomes of the watch when an object cannot be read.
    pub on_failure: OnFailure,
}

impl<O> Default for StoreWatchOptions<O> {
    fn default() -> Self {
        Self {
            resource_version: String::new(),
            send_initial_events: None,
            allow_watch_bookmarks: false,
            progress_notify: false,
            recursive: true,
            predicate: Predicate::everything(),
            on_failure: OnFailure::End,
        }
    }
}

/// What becomes of a watch when an object cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// It ends with an error, as upstream's does.
    #[default]
    End,
    /// The error is an event, and it goes on.
    Report,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent<O> {
    /// An object that was not there, or not selected.
    Added(O),
    /// An object that was changed.
    Modified(O),
    /// An object that was deleted, or is not selected any longer: as it was last, with the revision of the event.
    Deleted(O),
    /// Everything up to this revision was sent.
    Bookmark {
        /// The revision.
        resource_version: i64,
        /// Whether this is the end of what was there when the watch began (annotation `k8s.io/initial-events-end`).
        initial_events_end: bool,
    },
    /// Something cannot be read. Unless it is [`OnFailure::Report`]ed, nothing follows.
    Error(Status),
}

/// The events of a watch. Dropped, or [stopped](WatchStream::stop), it asks etcd for nothing more.
///
/// At most [`WatchStream::BUFFER`] events wait to be taken; then etcd is read no further, and keeps them.
#[derive(Debug)]
pub struct WatchStream<O> {
    events: mpsc::Receiver<Keyed<O>>,
    task: JoinHandle<()>,
    progress: mpsc::Sender<()>,
    start: Arc<AtomicI64>,
}

/// An event, with what etcd says of it: objects need not say it.
#[derive(Debug)]
pub(crate) struct Keyed<O> {
    /// The etcd key; empty where there is none.
    pub(crate) key: Vec<u8>,
    /// The revision of the change.
    pub(crate) revision: i64,
    pub(crate) event: WatchEvent<O>,
}

impl<O> WatchStream<O> {
    /// How many events wait to be taken at most.
    pub const BUFFER: usize = 100;

    /// The next event; nothing when the watch has ended.
    pub async fn next(&mut self) -> Option<WatchEvent<O>> {
        Some(self.events.recv().await?.event)
    }

    /// The same with the key of its object.
    pub(crate) async fn next_keyed(&mut self) -> Option<Keyed<O>> {
        self.events.recv().await
    }

    /// The same for those who poll.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<WatchEvent<O>>> {
        self.events.poll_recv(context).map(|keyed| keyed.map(|keyed| keyed.event))
    }

    /// Ends the watch. Events that wait already can still be taken.
    pub fn stop(&self) {
        self.task.abort();
    }

    /// Has etcd say how far it is (upstream `RequestWatchProgress`).
    pub fn request_progress(&self) {
        _ = self.progress.try_send(());
    }

    /// The revision at which what was there was listed; 0 when that was not asked for, or is not done yet.
    #[must_use]
    pub fn initial_revision(&self) -> i64 {
        self.start.load(Ordering::Relaxed)
    }
}

impl<O> Drop for WatchStream<O> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How many keys are read at once of what is there.
const SYNC_PAGE: i64 = 10_000;
const TOO_OLD: &str = "The resourceVersion for the provided watch is too old.";

impl<C: Codec, T: StorageTransformer> Store<C, T> {
    /// Watches the objects below a key, or the one under it (upstream `Watch`). It goes on over restarts of etcd and loses no event.
    ///
    /// # Errors
    ///
    /// [`StorageError::InvalidKey`] and [`StorageError::BadRequest`]. What happens later is an event.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn watch(
        &self,
        key: &str,
        options: StoreWatchOptions<C::Object>,
    ) -> Result<WatchStream<C::Object>, StorageError> {
        self.watch_with(key, options, Marks::None)
    }

    /// The same, with a bookmark behind all changes of a revision: only then is it known that there are no more of it.
    pub(crate) fn watch_marked(
        &self,
        key: &str,
        options: StoreWatchOptions<C::Object>,
    ) -> Result<WatchStream<C::Object>, StorageError> {
        self.watch_with(key, options, Marks::Wanted)
    }

    fn watch_with(
        &self,
        key: &str,
        options: StoreWatchOptions<C::Object>,
        marks: Marks,
    ) -> Result<WatchStream<C::Object>, StorageError> {
        let key = self.prepare_key(key, options.recursive)?;
        let asked = Versioner.parse_resource_version(&options.resource_version)?;
        let asked = i64::try_from(asked).unwrap_or(i64::MAX);
        let (sender, events) = mpsc::channel(WatchStream::<C::Object>::BUFFER);
        let (progress, requests) = mpsc::channel(1);
        let start = Arc::new(AtomicI64::new(0));
        let watching = Watching { store: self.clone(), key, options, marks, sender, start: Arc::clone(&start) };
        let task = tokio::spawn(watching.run(asked, requests));
        Ok(WatchStream { events, task, progress, start })
    }
}

/// Whether the end of a revision is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marks {
    None,
    Wanted,
}

/// Nobody takes the events any longer.
struct Gone;

/// Why a watch ends.
enum End {
    Gone,
    Error(StorageError),
}

impl From<Gone> for End {
    fn from(Gone: Gone) -> Self {
        Self::Gone
    }
}

impl From<StorageError> for End {
    fn from(error: StorageError) -> Self {
        Self::Error(error)
    }
}

struct Watching<C: Codec, T> {
    store: Store<C, T>,
    key: String,
    options: StoreWatchOptions<C::Object>,
    marks: Marks,
    sender: mpsc::Sender<Keyed<C::Object>>,
    start: Arc<AtomicI64>,
}

impl Event {
    /// Makes sure that what was there before a change is known, where something was (upstream `parseEvent`). etcd takes a watch that
    /// begins at the compacted revision, and has not what was before it.
    ///
    /// # Errors
    ///
    /// [`StorageError::NoPreviousValue`].
    pub fn check_previous(&self) -> Result<(), StorageError> {
        if self.kind == EventKind::Created || self.previous.is_some() {
            return Ok(());
        }
        Err(StorageError::NoPreviousValue { key: shown(&self.value.key), revision: self.revision() })
    }
}

impl<C: Codec, T: StorageTransformer> Watching<C, T> {
    async fn run(self, asked: i64, requests: mpsc::Receiver<()>) {
        if let Err(End::Error(error)) = self.watch(asked, requests).await {
            _ = self.send(WatchEvent::Error(error.status(Verb::Watch))).await;
        }
    }

    async fn send(&self, event: WatchEvent<C::Object>) -> Result<(), Gone> {
        self.send_of(Vec::new(), 0, event).await
    }

    async fn send_of(&self, key: Vec<u8>, revision: i64, event: WatchEvent<C::Object>) -> Result<(), Gone> {
        self.sender.send(Keyed { key, revision, event }).await.map_err(|_| Gone)
    }

    async fn watch(&self, asked: i64, mut requests: mpsc::Receiver<()>) -> Result<(), End> {
        let initial = self.options.send_initial_events.unwrap_or(asked == 0);
        let begin = if initial {
            if asked > 0 {
                self.has_come_so_far(asked).await?;
            }
            let revision = self.sync().await?;
            self.start.store(revision, Ordering::Relaxed);
            if self.options.send_initial_events == Some(true) && self.options.allow_watch_bookmarks {
                self.send(WatchEvent::Bookmark { resource_version: revision, initial_events_end: true }).await?;
            }
            revision
        } else if asked == 0 {
            i64::try_from(self.store.get_current_resource_version().await?).unwrap_or(i64::MAX)
        } else {
            asked
        };
        let range = match self.options.recursive {
            true => KeyRange::prefix(self.key.as_bytes()),
            false => KeyRange::key(self.key.as_bytes()),
        };
        let progress_notify = self.options.progress_notify;
        let start_revision = begin.saturating_add(1);
        let options = WatchOptions { start_revision, previous: true, progress_notify };
        let mut watch = self.store.inner.client.watch(range, options);
        loop {
            let watched = tokio::select! {
                watched = watch.next() => watched,
                Some(()) = requests.recv() => {
                    watch.request_progress().await.map_err(StorageError::Etcd)?;
                    continue;
                }
                () = self.sender.closed() => return Err(End::Gone),
            };
            match watched {
                Ok(Watched::Events(events)) => self.events(events).await?,
                Ok(Watched::Progress { revision }) => {
                    if let Some(metrics) = self.store.metrics() {
                        metrics.bookmark(self.store.resource());
                    }
                    self.send(WatchEvent::Bookmark { resource_version: revision, initial_events_end: false }).await?;
                }
                // Of what came since, nothing is known either.
                Err(Error::Compacted | Error::WentBack { .. }) => {
                    let message = TOO_OLD.to_owned();
                    return Err(StorageError::Expired { message, continue_token: None }.into());
                }
                Err(error) => return Err(StorageError::Etcd(error).into()),
            }
        }
    }

    /// A watch from a revision that is not there yet would say nothing, and not why.
    async fn has_come_so_far(&self, asked: i64) -> Result<(), StorageError> {
        let current = i64::try_from(self.store.get_current_resource_version().await?).unwrap_or(i64::MAX);
        if asked <= current {
            return Ok(());
        }
        // Not all at once: between 1 and 4 seconds, by the revision that was asked for.
        let jitter = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), asked) % 4;
        let retry_after_seconds = 1 + u32::try_from(jitter).unwrap_or(0);
        Err(StorageError::TooLargeResourceVersion { asked, current, retry_after_seconds })
    }

    /// Sends what is there, all of one revision, and gives that.
    async fn sync(&self) -> Result<i64, End> {
        let client = &self.store.inner.client;
        let prefix = self.key.as_bytes();
        let mut revision = 0;
        let mut at: Option<Vec<u8>> = None;
        loop {
            let values = if self.options.recursive {
                let list = client.list(prefix, at.as_deref(), SYNC_PAGE, revision);
                let page = self.store.request(Operation::List, list).await;
                let page = page.map_err(|error| self.sync_failed(error, at.as_deref()))?;
                let more = (page.values.len() as i64) < page.count;
                revision = if revision == 0 { page.revision } else { revision };
                at = page.values.last().filter(|_| more).map(|last| [&last.key[..], b"\0"].concat());
                page.values
            } else {
                let got = self.store.request(Operation::Get, client.get_at(prefix, 0)).await;
                let got = got.map_err(|error| self.sync_failed(error, None))?;
                revision = got.revision;
                got.value.into_iter().collect()
            };
            let created = values.into_iter().map(|value| Event { kind: EventKind::Created, value, previous: None });
            self.transform_and_send(created.collect(), Marks::None).await?;
            if at.is_none() {
                return Ok(revision);
            }
        }
    }

    /// Upstream tells it as it does of a list that goes on.
    fn sync_failed(&self, error: Error, at: Option<&[u8]>) -> StorageError {
        match error {
            Error::Compacted => super::list::compacted_continue(at, &self.key),
            error => StorageError::Etcd(error),
        }
    }

    async fn events(&self, events: Vec<Event>) -> Result<(), End> {
        if let Some(metrics) = self.store.metrics() {
            metrics.events(self.store.resource(), events.len());
        }
        self.transform_and_send(events, self.marks).await
    }

    /// Tells that everything of a revision was sent.
    async fn mark(&self, resource_version: i64, marks: Marks) -> Result<(), Gone> {
        if marks == Marks::Wanted {
            self.send(WatchEvent::Bookmark { resource_version, initial_events_end: false }).await?;
        }
        Ok(())
    }

    async fn transform_and_send(&self, events: Vec<Event>, marks: Marks) -> Result<(), End> {
        let needs_previous = |event: &Event| event.kind == EventKind::Deleted || !self.options.predicate.is_empty();
        let values: Vec<&StoredValue> = events
            .iter()
            .flat_map(|event| {
                let value = Some(&event.value).filter(|_| event.kind != EventKind::Deleted);
                value.into_iter().chain(event.previous.as_ref().filter(|_| needs_previous(event)))
            })
            .collect();
        self.store.inner.transformer.prepare_read(&values).await;
        let mut last = None;
        for event in events {
            let revision = event.revision();
            if let Some(last) = last.replace(revision).filter(|last| *last != revision) {
                self.mark(last, marks).await?;
            }
            match self.transform(&event) {
                Ok(Some(sent)) => self.send_of(event.value.key, revision, sent).await?,
                Ok(None) => {}
                Err(error) if self.options.on_failure == OnFailure::Report => {
                    self.send_of(event.value.key, revision, WatchEvent::Error(error.status(Verb::Watch))).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(last) = last {
            self.mark(last, marks).await?;
        }
        Ok(())
    }

    /// What an event is to those who selected (upstream `watchChan.transform`).
    fn transform(&self, event: &Event) -> Result<Option<WatchEvent<C::Object>>, StorageError> {
        let matches =
            |object: &Option<C::Object>| object.as_ref().is_some_and(|object| self.options.predicate.matches(object));
        event.check_previous()?;
        let is_deletion = event.kind == EventKind::Deleted;
        let current = if is_deletion { None } else { Some(self.object(&event.value, event.revision())?) };
        let previous = match &event.previous {
            Some(previous) if is_deletion || !self.options.predicate.is_empty() => {
                Some(self.previous(previous, event.revision(), is_deletion)?)
            }
            _ => None,
        };
        Ok(match event.kind {
            EventKind::Created if matches(&current) => current.map(WatchEvent::Added),
            EventKind::Deleted if matches(&previous) => previous.map(WatchEvent::Deleted),
            EventKind::Modified if self.options.predicate.is_empty() => current.map(WatchEvent::Modified),
            EventKind::Modified => match (matches(&current), matches(&previous)) {
                (true, true) => current.map(WatchEvent::Modified),
                (true, false) => current.map(WatchEvent::Added),
                (false, true) => previous.map(WatchEvent::Deleted),
                (false, false) => None,
            },
            EventKind::Created | EventKind::Deleted => None,
        })
    }

    fn object(&self, value: &StoredValue, revision: i64) -> Result<C::Object, StorageError> {
        self.store.inner.sizes.note(&value.key, value.value.len());
        let opened = self.store.open(value)?;
        // Upstream does not count what a watch cannot decode.
        self.store.decode(&value.key, opened.data, revision)
    }

    /// What was there before has the revision of the event, so that it is newer than all that was sent.
    fn previous(&self, value: &StoredValue, revision: i64, is_deletion: bool) -> Result<C::Object, StorageError> {
        if is_deletion {
            self.store.inner.sizes.forget(&value.key);
        }
        let gate = self.store.inner.options.allow_unsafe_malformed_object_deletion;
        let opened = self.store.open(value).map_err(|error| match error {
            error if gate && is_deletion => StorageError::CorruptDeletion { source: Box::new(error) },
            error => error,
        })?;
        self.store.decode(&value.key, opened.data, revision)
    }
}
