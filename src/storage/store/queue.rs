use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

use crate::secret::Opened;

/// Lets those who have lost a key to somebody else try again one after the other.
///
/// Without it, of all writers of a hot key one wins each round, and all others have made a transaction for nothing. Whoever has not lost
/// yet waits for nobody.
#[derive(Default)]
pub(super) struct Queues(Arc<Mutex<Waiting>>);

type Waiting = HashMap<String, Arc<tokio::sync::Mutex<Option<Left>>>>;

/// What the one before has written. It may be old already: the next write finds out.
#[derive(Clone)]
pub(super) struct Left {
    pub(super) revision: i64,
    pub(super) data: Arc<Opened>,
    pub(super) lease: i64,
}

/// A turn. Dropped, the next one has it.
pub(super) struct Turn {
    all: Arc<Mutex<Waiting>>,
    key: String,
    guard: Option<OwnedMutexGuard<Option<Left>>>,
    /// Whether somebody else had it before: what was read then may be old.
    pub(super) waited: bool,
}

impl Turn {
    /// What the one before has written.
    pub(super) fn left(&mut self) -> Option<Left> {
        self.guard.as_mut()?.take()
    }

    /// For the next one.
    pub(super) fn leave(&mut self, left: Left) {
        if let Some(guard) = &mut self.guard {
            **guard = Some(left);
        }
    }
}

impl Queues {
    /// Waits for a turn.
    pub(super) async fn turn(&self, key: &str) -> Turn {
        let lock = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(key.to_owned()).or_default())
        };
        let mut turn = Turn { all: Arc::clone(&self.0), key: key.to_owned(), guard: None, waited: false };
        turn.guard = match Arc::clone(&lock).try_lock_owned() {
            Ok(guard) => Some(guard),
            Err(_) => {
                turn.waited = true;
                Some(lock.lock_owned().await)
            }
        };
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.guard = None;
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever waits has another reference.
        if all.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            all.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn turns_come_one_after_the_other_and_leave_nothing() {
        let queues = Queues::default();
        let first = queues.turn("a").await;
        assert!(!first.waited && !queues.turn("b").await.waited);
        let mut second = std::pin::pin!(queues.turn("a"));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(first);
        let second = second.await;
        assert!(second.waited);
        drop(second);
        let mut given_up = Box::pin(queues.turn("a"));
        let held = queues.turn("a").await;
        assert!(given_up.as_mut().poll(&mut context).is_pending());
        drop(given_up);
        drop(held);
        assert!(queues.0.lock().unwrap().is_empty());
    }
}
