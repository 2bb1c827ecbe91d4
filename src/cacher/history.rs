use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::options::CacherOptions;

/// A change, as watchers get it.
pub(super) struct CacheEvent<O> {
    pub(super) revision: i64,
    pub(super) key: Arc<[u8]>,
    /// None of a deletion.
    pub(super) object: Option<Arc<O>>,
    /// What was there before, with the revision of the change.
    pub(super) previous: Option<Arc<O>>,
    pub(super) at: Instant,
}

/// The last changes (upstream `watchCacheHistory`): as many as came in the time in which a watcher may come back, between two limits.
pub(super) struct History<O> {
    events: VecDeque<Arc<CacheEvent<O>>>,
    capacity: usize,
    min: usize,
    max: usize,
    freshness: Duration,
    /// Watches from this revision on can be served.
    oldest: i64,
    increases: u64,
    decreases: u64,
}

impl<O> History<O> {
    pub(super) fn new(options: &CacherOptions) -> Self {
        let min = options.min_history.max(1);
        Self {
            events: VecDeque::new(),
            capacity: min,
            min,
            max: options.max_history.max(min),
            freshness: options.event_freshness,
            oldest: 0,
            increases: 0,
            decreases: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// How many fit in, and how often that was doubled and halved since this was asked the last time.
    pub(super) fn take_sizes(&mut self) -> (usize, u64, u64) {
        (self.capacity, std::mem::take(&mut self.increases), std::mem::take(&mut self.decreases))
    }

    /// Begins anew behind a list.
    pub(super) fn clear(&mut self, revision: i64) {
        self.events.clear();
        self.oldest = revision;
    }

    pub(super) fn push(&mut self, event: Arc<CacheEvent<O>>) {
        self.resize(event.at);
        while self.events.len() >= self.capacity {
            if let Some(dropped) = self.events.pop_front() {
                self.oldest = self.oldest.max(dropped.revision);
            }
        }
        self.events.push_back(event);
    }

    fn resize(&mut self, now: Instant) {
        if self.events.len() < self.capacity {
            return;
        }
        let age = |event: Option<&Arc<CacheEvent<O>>>| event.map(|event| now.duration_since(event.at));
        if age(self.events.front()).is_some_and(|age| age < self.freshness) && self.capacity < self.max {
            self.capacity = (self.capacity * 2).min(self.max);
            self.increases += 1;
        } else if self.capacity > self.min {
            // Three quarters of it are older than anybody needs.
            let quarter = self.events.len() - self.capacity / 4;
            if age(self.events.get(quarter)).is_some_and(|age| age > self.freshness) {
                self.capacity = (self.capacity / 2).max(self.min);
                self.decreases += 1;
            }
        }
    }

    /// The changes after a revision, unless some of them are not there any more; then the oldest revision after which all are.
    pub(super) fn since(&self, revision: i64) -> Result<impl Iterator<Item = &Arc<CacheEvent<O>>>, i64> {
        if revision < self.oldest {
            return Err(self.oldest);
        }
        let first = self.events.partition_point(|event| event.revision <= revision);
        Ok(self.events.range(first..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(revision: i64, at: Instant) -> Arc<CacheEvent<()>> {
        Arc::new(CacheEvent { revision, key: Arc::from(&b"/a"[..]), object: None, previous: None, at })
    }

    fn history() -> History<()> {
        History::new(&CacherOptions { min_history: 4, max_history: 16, ..CacherOptions::default() })
    }

    fn revisions(history: &History<()>, after: i64) -> Result<Vec<i64>, i64> {
        history.since(after).map(|events| events.map(|event| event.revision).collect())
    }

    #[test]
    fn what_came_after_a_revision_is_there_or_it_is_said_that_it_is_not() {
        let mut history = history();
        history.clear(10);
        let now = Instant::now();
        let old = now.checked_sub(Duration::from_secs(600)).unwrap();
        (11..=14).for_each(|revision| history.push(event(revision, old)));
        assert_eq!(revisions(&history, 10), Ok(vec![11, 12, 13, 14]));
        assert_eq!(revisions(&history, 12), Ok(vec![13, 14]));
        assert_eq!(revisions(&history, 99), Ok(vec![]));
        assert_eq!(revisions(&history, 9), Err(10));
        history.push(event(15, now));
        assert_eq!((revisions(&history, 10), revisions(&history, 11)), (Err(11), Ok(vec![12, 13, 14, 15])));
    }

    #[test]
    fn it_grows_while_its_events_are_young_and_shrinks_when_they_are_old() {
        let mut history = history();
        let begin = Instant::now();
        (1..=40).for_each(|revision| history.push(event(revision, begin)));
        assert_eq!((history.take_sizes(), history.len()), ((16, 2, 0), 16));
        // A revision of which nothing more is known than that some of its changes are gone cannot be the start.
        assert_eq!(revisions(&history, 23), Err(24));
        let later = begin + Duration::from_secs(80);
        history.push(event(41, later));
        assert_eq!((history.take_sizes(), history.len()), ((8, 0, 1), 8));
        assert_eq!(revisions(&history, 33), Ok((34..=41).collect()));
    }
}
