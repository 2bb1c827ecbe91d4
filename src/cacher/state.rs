use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::history::{CacheEvent, History};
use super::options::CacherOptions;
use super::watch::Sent;
use crate::storage::{Keyed, StorageError, StoredObject, Versioner, WatchEvent};

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
    by_scope: HashMap<Scope, HashMap<u64, Watcher<O>>>,
    scopes: HashMap<u64, Scope>,
}

/// Which keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    /// All that begin with this.
    Below(Arc<[u8]>),
    /// This one.
    Key(Arc<[u8]>),
}

impl Scope {
    pub(super) fn new(prefix: &str, recursive: bool) -> Self {
        let prefix = Arc::from(prefix.as_bytes());
        if recursive { Self::Below(prefix) } else { Self::Key(prefix) }
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::Below(prefix) => key.starts_with(prefix),
            Self::Key(only) => *key == **only,
        }
    }
}

struct Watcher<O> {
    sender: mpsc::Sender<Sent<O>>,
    bookmarks: bool,
}

/// Whom there was no room for, and for what.
pub(super) type Blocked<O> = Vec<(u64, mpsc::Sender<Sent<O>>, Vec<Arc<CacheEvent<O>>>)>;

impl<O> Watchers<O> {
    pub(super) fn len(&self) -> usize {
        self.scopes.len()
    }

    pub(super) fn add(&mut self, scope: Scope, sender: mpsc::Sender<Sent<O>>, bookmarks: bool) -> u64 {
        self.next += 1;
        self.scopes.insert(self.next, scope.clone());
        self.by_scope.entry(scope).or_default().insert(self.next, Watcher { sender, bookmarks });
        self.next
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<()> {
        let scope = self.scopes.remove(&id)?;
        let all = self.by_scope.get_mut(&scope)?;
        all.remove(&id);
        if all.is_empty() {
            self.by_scope.remove(&scope);
        }
        Some(())
    }

    fn clear(&mut self) {
        self.by_scope.clear();
        self.scopes.clear();
    }

    fn send(&self, event: &Arc<CacheEvent<O>>, blocked: &mut Blocked<O>) {
        let wanting = self.by_scope.iter().filter(|(scope, _)| scope.contains(&event.key));
        for (id, watcher) in wanting.flat_map(|(_, watchers)| watchers) {
            if let Some((_, _, waiting)) = blocked.iter_mut().find(|(blocked, ..)| blocked == id) {
                // Behind what it has not taken yet.
                waiting.push(Arc::clone(event));
                continue;
            }
            // Who has gone takes himself out.
            if let Err(mpsc::error::TrySendError::Full(_)) = watcher.sender.try_send(Sent::Event(Arc::clone(event))) {
                blocked.push((*id, watcher.sender.clone(), vec![Arc::clone(event)]));
            }
        }
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
            watchers: Watchers { next: 0, by_scope: HashMap::new(), scopes: HashMap::new() },
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

    /// The objects of a scope with their keys, in their order.
    pub(super) fn objects_in(&self, scope: &Scope) -> impl Iterator<Item = (&Arc<[u8]>, &Arc<O>)> {
        let (Scope::Below(begin) | Scope::Key(begin)) = scope;
        let range = self.objects.range::<[u8], _>((Bound::Included(&**begin), Bound::Unbounded));
        // The keys of a scope stand next to each other.
        range.take_while(|(key, _)| scope.contains(key))
    }

    /// A bookmark tells nothing that is lost when there is no room for it.
    pub(super) fn send_bookmarks(&self) {
        if self.revision == 0 {
            return;
        }
        let all = self.watchers.by_scope.values().flat_map(HashMap::values);
        for watcher in all.filter(|watcher| watcher.bookmarks) {
            _ = watcher.sender.try_send(Sent::Bookmark(self.revision));
        }
    }
}

impl<O: StoredObject> State<O> {
    /// Takes all changes of a revision in and passes them on at once, so that whoever comes in between has them either in his list or as
    /// events, and no list has some of them.
    pub(super) fn take(&mut self, changes: Vec<Keyed<O>>, blocked: &mut Blocked<O>) -> u64 {
        let mut taken = 0;
        for Keyed { key, revision, event } in changes {
            let object = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => Some(Arc::new(object)),
                WatchEvent::Deleted(_) => None,
                WatchEvent::Bookmark { .. } | WatchEvent::Error(_) => continue,
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
            self.watchers.send(&event, blocked);
            self.revision = self.revision.max(revision);
            taken += 1;
        }
        taken
    }
}
