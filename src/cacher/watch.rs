use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::history::CacheEvent;
use super::state::Scope;
use super::{Cacher, Shared};
use crate::storage::{
    Codec, Predicate, StorageError, StorageTransformer, StoreWatchOptions, StoredObject, Versioner, WatchEvent,
};

/// What a watcher is sent.
pub(super) enum Sent<O> {
    Event(Arc<CacheEvent<O>>),
    Bookmark(i64),
}

/// The events of a watcher of the cache. Objects are shared with all other watchers.
///
/// It ends without an error when the watcher was too slow, or the cache is filled anew: the watch is then begun again after the last
/// revision that was seen.
pub struct CacheWatch<O> {
    id: u64,
    shared: Arc<Shared<O>>,
    /// What was there before the watch began.
    initial: VecDeque<Sent<O>>,
    /// The bookmark behind it, where one is wanted.
    end: Option<i64>,
    events: mpsc::Receiver<Sent<O>>,
    predicate: Predicate<O>,
    /// What is of this revision or before was seen elsewhere: the cache may be behind it.
    after: i64,
    ended: bool,
}

impl<O> std::fmt::Debug for CacheWatch<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheWatch").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<O> Drop for CacheWatch<O> {
    fn drop(&mut self) {
        _ = self.shared.write().watchers.remove(self.id);
    }
}

impl<O: StoredObject> CacheWatch<O> {
    /// The next event; nothing when the watch has ended. Events that are not selected are passed over.
    pub async fn next(&mut self) -> Option<WatchEvent<Arc<O>>> {
        loop {
            let sent = match self.initial.pop_front() {
                Some(sent) => sent,
                None => {
                    if let Some(resource_version) = self.end.take() {
                        return Some(WatchEvent::Bookmark { resource_version, initial_events_end: true });
                    }
                    if self.ended {
                        return None;
                    }
                    let Some(sent) = self.events.recv().await else {
                        self.ended = true;
                        continue;
                    };
                    sent
                }
            };
            match sent {
                Sent::Event(event) if event.revision <= self.after => {}
                Sent::Bookmark(resource_version) if resource_version < self.after => {}
                Sent::Bookmark(resource_version) => {
                    return Some(WatchEvent::Bookmark { resource_version, initial_events_end: false });
                }
                Sent::Event(event) => {
                    if let Some(event) = self.selected(&event) {
                        return Some(event);
                    }
                }
            }
        }
    }

    /// What a change is to this watcher.
    fn selected(&self, event: &CacheEvent<O>) -> Option<WatchEvent<Arc<O>>> {
        let matching = |object: &Option<Arc<O>>| {
            object.as_ref().filter(|object| self.predicate.is_empty() || self.predicate.matches(object)).cloned()
        };
        match (matching(&event.object), matching(&event.previous)) {
            (Some(object), None) => Some(WatchEvent::Added(object)),
            (Some(object), Some(_)) => Some(WatchEvent::Modified(object)),
            (None, Some(previous)) => Some(WatchEvent::Deleted(previous)),
            (None, None) => None,
        }
    }
}

impl<C: Codec, T: StorageTransformer> Cacher<C, T> {
    /// Watches the objects below a key, or the one under it, from the cache. `on_failure` and `progress_notify` are the cache's own.
    ///
    /// Initial events that are asked for without a resource version are as fresh as etcd: where etcd does not tell how far it is (before
    /// 3.4.31 and 3.5.13), that is known only of a resource that was just written, and otherwise refused after a while.
    ///
    /// # Errors
    ///
    /// [`StorageError::Expired`] with "too old resource version" when the history does not reach back so far,
    /// [`StorageError::NotReady`] when the cache is not filled, [`StorageError::TooLargeResourceVersion`] when it does not come as far
    /// in time as the initial events are wanted to be, and of the key.
    pub async fn watch(
        &self,
        key: &str,
        options: StoreWatchOptions<C::Object>,
    ) -> Result<CacheWatch<C::Object>, StorageError> {
        let prefix = self.store.prepare_key(key, options.recursive)?;
        let asked = Versioner.parse_resource_version(&options.resource_version)?;
        let asked = i64::try_from(asked).unwrap_or(i64::MAX);
        self.readiness_check()?;
        let initial = options.send_initial_events.unwrap_or(asked == 0);
        if options.send_initial_events == Some(true) {
            // As fresh as a list would be.
            let wanted = match options.resource_version.as_str() {
                "" => i64::try_from(self.store.get_current_resource_version().await?).unwrap_or(i64::MAX),
                _ => asked,
            };
            self.wait_until_fresh(wanted).await?;
        }
        let (sender, events) = mpsc::channel(self.shared.options.watcher_buffer.max(1));
        let mut state = self.shared.write();
        state.ready()?;
        let scope = Scope::new(&prefix, options.recursive);
        let mut queue = VecDeque::new();
        if initial {
            queue.extend(state.objects_in(&scope).map(|(key, object)| {
                let revision = Versioner.object_resource_version(&**object).unwrap_or(0);
                Sent::Event(Arc::new(CacheEvent {
                    revision: i64::try_from(revision).unwrap_or(0),
                    key: Arc::clone(key),
                    object: Some(Arc::clone(object)),
                    previous: None,
                    at: tokio::time::Instant::now(),
                }))
            }));
        } else if asked > 0 {
            let since = state.history.since(asked).map_err(|oldest| StorageError::Expired {
                message: format!("too old resource version: {asked} ({oldest})"),
                continue_token: None,
            })?;
            queue.extend(since.filter(|event| scope.contains(&event.key)).map(|event| Sent::Event(Arc::clone(event))));
        }
        if let Some(metrics) = &self.shared.metrics {
            metrics.cache.init_events.get_or_create(&self.shared.labels).inc_by(queue.len() as u64);
        }
        let end = state.revision;
        let wants_end = options.send_initial_events == Some(true) && options.allow_watch_bookmarks;
        let id = state.watchers.add(scope, sender, options.allow_watch_bookmarks);
        drop(state);
        Ok(CacheWatch {
            id,
            shared: Arc::clone(&self.shared),
            initial: queue,
            end: wants_end.then_some(end),
            events,
            predicate: options.predicate,
            after: if initial { 0 } else { asked },
            ended: false,
        })
    }
}
