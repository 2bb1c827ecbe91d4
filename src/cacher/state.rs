use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::history::{CacheEvent, History};
use super::options::CacherOptions;
use super::watch::Sent;
use crate::storage::{StorageError, StoredObject, Versioner, WatchEvent};

/// What a cache holds.
pub(super) struct State<O> {
    pub(super) objects: BTreeMap<Arc<[u8]>, Arc<O>>,
    pub(super) history: History<O>,
    pub(super) watchers: Watchers<O>,
    pub(super) budget: Budget,
    /// Up to which everything is known; 0 when the cache is not filled.
    pub(super) revision: i64,
    failed: Option<(Instant, String)>,
    began: Instant,
}

/// Those who watch, by what their keys begin with: a change is compared with each of these, and not with each watcher.
pub(super) struct Watchers<O> {
    next: u64,
    by_prefix: HashMap<Arc<[u8]>, HashMap<u64, Watcher<O>>>,
    prefixes: HashMap<u64, Arc<[u8]>>,
}

struct Watcher<O> {
    sender: mpsc::Sender<Sent<O>>,
    bookmarks: bool,
}

/// Whom there was no room for.
pub(super) type Blocked<O> = Vec<(u64, mpsc::Sender<Sent<O>>)>;

impl<O> Watchers<O> {
    pub(super) fn len(&self) -> usize {
        self.prefixes.len()
    }

    pub(super) fn add(&mut self, prefix: &[u8], sender: mpsc::Sender<Sent<O>>, bookmarks: bool) -> u64 {
        self.next += 1;
        let prefix: Arc<[u8]> = Arc::from(prefix);
        self.prefixes.insert(self.next, Arc::clone(&prefix));
        self.by_prefix.entry(prefix).or_default().insert(self.next, Watcher { sender, bookmarks });
        self.next
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<()> {
        let prefix = self.prefixes.remove(&id)?;
        let all = self.by_prefix.get_mut(&prefix)?;
        all.remove(&id);
        if all.is_empty() {
            self.by_prefix.remove(&prefix);
        }
        Some(())
    }

    fn clear(&mut self) {
        self.by_prefix.clear();
        self.prefixes.clear();
    }

    fn send(&self, event: &Arc<CacheEvent<O>>) -> Blocked<O> {
        let mut blocked = Vec::new();
        let wanting = self.by_prefix.iter().filter(|(prefix, _)| event.key.starts_with(prefix));
        for (id, watcher) in wanting.flat_map(|(_, watchers)| watchers) {
            // Who has gone takes himself out.
            if let Err(mpsc::error::TrySendError::Full(_)) = watcher.sender.try_send(Sent::Event(Arc::clone(event))) {
                blocked.push((*id, watcher.sender.clone()));
            }
        }
        blocked
    }
}

/// How long slow watchers may hold up the others (upstream `timeBudget`).
pub(super) struct Budget {
    left: Duration,
    refill: Duration,
    max: Duration,
    at: Instant,
}

impl Budget {
    /// What there is now.
    pub(super) fn take(&mut self) -> Duration {
        let now = Instant::now();
        let earned = self.refill.mul_f64(now.duration_since(self.at).as_secs_f64());
        self.left = (self.left + earned).min(self.max);
        self.at = now;
        self.left
    }

    pub(super) fn used(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }
}

impl<O> State<O> {
    pub(super) fn new(options: &CacherOptions) -> Self {
        let now = Instant::now();
        let max = options.max_dispatch_budget;
        Self {
            objects: BTreeMap::new(),
            history: History::new(options),
            watchers: Watchers { next: 0, by_prefix: HashMap::new(), prefixes: HashMap::new() },
            budget: Budget { left: max, refill: options.dispatch_budget, max, at: now },
            revision: 0,
            failed: None,
            began: now,
        }
    }

    /// Whether it is filled. The longer it is not, the later one is to ask again.
    pub(super) fn ready(&self) -> Result<(), StorageError> {
        if self.revision > 0 {
            return Ok(());
        }
        let since = self.failed.as_ref().map_or(self.began, |(at, _)| *at);
        let wait = (0.06 * since.elapsed().as_secs_f64()).exp().clamp(1.0, 30.0);
        let message = self.failed.as_ref().map_or("the cache is being filled", |(_, why)| why).to_owned();
        // From 1 to 30.
        let retry_after_seconds = (1..=30).rev().find(|seconds| f64::from(*seconds) <= wait).unwrap_or(1);
        Err(StorageError::NotReady { message, retry_after_seconds })
    }

    /// Everything is thrown away, and every watch is ended.
    pub(super) fn fail(&mut self, why: String) {
        self.objects.clear();
        self.history.clear(0);
        self.watchers.clear();
        self.revision = 0;
        let since = self.failed.as_ref().map_or_else(Instant::now, |(at, _)| *at);
        self.failed = Some((since, why));
    }

    pub(super) fn fill(&mut self, objects: Vec<(Vec<u8>, O)>, revision: i64) {
        self.objects = objects.into_iter().map(|(key, object)| (Arc::from(key), Arc::new(object))).collect();
        self.history.clear(revision);
        self.revision = revision;
        self.failed = None;
    }

    pub(super) fn advance(&mut self, revision: i64) {
        if self.revision > 0 {
            self.revision = self.revision.max(revision);
        }
    }

    /// A bookmark tells nothing that is lost when there is no room for it.
    pub(super) fn send_bookmarks(&self) {
        if self.revision == 0 {
            return;
        }
        let all = self.watchers.by_prefix.values().flat_map(HashMap::values);
        for watcher in all.filter(|watcher| watcher.bookmarks) {
            _ = watcher.sender.try_send(Sent::Bookmark(self.revision));
        }
    }
}

impl<O: StoredObject> State<O> {
    /// Takes a change in and passes it on at once, so that whoever comes in between has it either in his list or as an event.
    pub(super) fn take(&mut self, key: Vec<u8>, event: WatchEvent<O>) -> Option<(Arc<CacheEvent<O>>, Blocked<O>)> {
        let revision_of =
            |object: &O| i64::try_from(Versioner.object_resource_version(object).unwrap_or(0)).unwrap_or(0);
        let (object, revision) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let revision = revision_of(&object);
                (Some(Arc::new(object)), revision)
            }
            WatchEvent::Deleted(object) => (None, revision_of(&object)),
            WatchEvent::Bookmark { .. } | WatchEvent::Error(_) => return None,
        };
        let key: Arc<[u8]> = Arc::from(key);
        let before = match &object {
            Some(object) => self.objects.insert(Arc::clone(&key), Arc::clone(object)),
            None => self.objects.remove(&key),
        };
        let previous = before.map(|before| {
            let mut previous = (*before).clone();
            Versioner.update_object(&mut previous, revision);
            Arc::new(previous)
        });
        let event = Arc::new(CacheEvent { revision, key, object, previous, at: Instant::now() });
        self.history.push(Arc::clone(&event));
        let blocked = self.watchers.send(&event);
        Some((event, blocked))
    }
}
