use std::time::Duration;

/// How large a cache may become, and how long it waits. The defaults are upstream's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacherOptions {
    /// So many changes are kept at first, and at least.
    pub min_history: usize,
    /// So many are kept at most.
    pub max_history: usize,
    /// Changes that are younger than this are kept, as far as there is room for them.
    pub event_freshness: Duration,
    /// How many events wait for a watcher before it is cut off.
    pub watcher_buffer: usize,
    /// How often those who want bookmarks get one.
    pub bookmark_interval: Duration,
    /// How long a read waits until the cache is fresh.
    pub freshness_patience: Duration,
    /// How long all slow watchers together may hold up the others, in a second.
    pub dispatch_budget: Duration,
    /// How much of that is saved at most.
    pub max_dispatch_budget: Duration,
}

impl Default for CacherOptions {
    fn default() -> Self {
        Self {
            min_history: 100,
            max_history: 100 * 1024,
            event_freshness: Duration::from_secs(75),
            watcher_buffer: 100,
            bookmark_interval: Duration::from_secs(60),
            freshness_patience: Duration::from_secs(3),
            dispatch_budget: Duration::from_millis(50),
            max_dispatch_budget: Duration::from_millis(100),
        }
    }
}
