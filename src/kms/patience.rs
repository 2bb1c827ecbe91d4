use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Error;

/// How long one goes on asking a plugin that does not answer.
///
/// A plugin that has answered before may be restarting, or limit the rate: its callers wait for it together, while one of them at a
/// time asks again. When it has not answered for long, or has never answered, it is given up: its callers fail at once, and now and
/// then one asks again.
#[derive(Debug)]
pub(super) struct Patience {
    longest: Duration,
    retry_interval: Duration,
    state: Mutex<State>,
    /// Held by the one who asks a plugin that does not answer.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether the plugin has ever answered.
    answered: bool,
    down: Option<Down>,
}

#[derive(Debug)]
struct Down {
    since: Instant,
    /// When it was given up, or last asked after that.
    given_up: Option<Instant>,
    why: String,
}

/// How soon a plugin is asked again at first.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// What to do before a call.
enum Before {
    Call,
    /// It does not answer: wait for one's turn.
    Wait,
    GivenUp(String),
}

impl Patience {
    pub(super) fn new(longest: Duration, retry_interval: Duration) -> Self {
        Self { longest, retry_interval, state: Mutex::default(), turn: tokio::sync::Mutex::new(()) }
    }

    fn state<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes a call, again and again as long as there is patience.
    pub(super) async fn call<T, F: Future<Output = Result<T, Error>>>(
        &self,
        stop: &AtomicBool,
        call: impl Fn() -> F,
    ) -> Result<T, Error> {
        let mut wait = FIRST_WAIT;
        loop {
            let turn = match self.before() {
                Before::Call => None,
                Before::GivenUp(why) => return Err(Error::GivenUp(why)),
                Before::Wait => Some(self.turn.lock().await),
            };
            // Whoever had the turn before may know better.
            if turn.is_some() && !matches!(self.before(), Before::Wait) {
                continue;
            }
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            let error = match call().await {
                Err(error) if error.is_unavailable() => error,
                result => {
                    self.state(|state| *state = State { answered: true, down: None });
                    return result;
                }
            };
            if self.is_given_up_after(&error) {
                return Err(error);
            }
            tracing::debug!(error = %error.chain(), "the plugin does not answer; asking again");
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    fn before(&self) -> Before {
        self.state(|state| match &mut state.down {
            None => Before::Call,
            Some(Down { given_up: None, .. }) => Before::Wait,
            Some(Down { given_up: Some(last), .. }) if last.elapsed() >= self.retry_interval => {
                // This caller asks; for the others it stays given up.
                *last = Instant::now();
                Before::Call
            }
            Some(down) => Before::GivenUp(down.why.clone()),
        })
    }

    fn is_given_up_after(&self, error: &Error) -> bool {
        self.state(|state| {
            // To limit the rate is to answer.
            state.answered |= error.code() == Some(tonic::Code::ResourceExhausted);
            let answered = state.answered;
            let since = Instant::now();
            let down = state.down.get_or_insert_with(|| Down { since, given_up: None, why: String::new() });
            down.why = error.chain();
            if !answered || down.since.elapsed() >= self.longest {
                down.given_up.get_or_insert_with(Instant::now);
            }
            down.given_up.is_some()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    static NEVER: AtomicBool = AtomicBool::new(false);

    fn timeout() -> Error {
        Error::Timeout { method: "Decrypt", timeout: Duration::from_millis(1), limit: "the test's" }
    }

    #[tokio::test]
    async fn a_plugin_that_never_answered_is_given_up_at_once_and_asked_again_later() {
        let patience = Patience::new(Duration::from_secs(30), Duration::from_secs(10));
        let calls = AtomicU32::new(0);
        let fail = || {
            calls.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Err::<(), _>(timeout()))
        };
        assert!(matches!(patience.call(&NEVER, fail).await, Err(Error::Timeout { .. })));
        assert!(matches!(patience.call(&NEVER, fail).await, Err(Error::GivenUp(_))));
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }

    /// One slow call made everything after it unreadable for ten seconds, although the plugin was healthy again.
    #[tokio::test]
    async fn a_plugin_that_has_answered_is_waited_for() {
        let patience = Patience::new(Duration::from_secs(30), Duration::from_secs(10));
        patience.call(&NEVER, || std::future::ready(Ok(()))).await.unwrap();
        let calls = AtomicU32::new(0);
        let twice = || {
            std::future::ready(match calls.fetch_add(1, Ordering::SeqCst) {
                0 | 1 => Err(timeout()),
                _ => Ok(7),
            })
        };
        assert_eq!(patience.call(&NEVER, twice).await.unwrap(), 7);
        assert_eq!(calls.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn patience_ends() {
        let patience = Patience::new(Duration::from_millis(250), Duration::from_secs(10));
        patience.call(&NEVER, || std::future::ready(Ok(()))).await.unwrap();
        let begun = Instant::now();
        let error = patience.call(&NEVER, || std::future::ready(Err::<(), _>(timeout()))).await.unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }));
        assert!(begun.elapsed() >= Duration::from_millis(250) && begun.elapsed() < Duration::from_secs(5));
        let stopped = AtomicBool::new(true);
        assert!(matches!(patience.call(&stopped, || std::future::ready(Ok(()))).await, Err(Error::GivenUp(_))));
    }

    #[tokio::test]
    async fn nobody_is_asked_after_the_stop() {
        let patience = Patience::new(Duration::from_secs(30), Duration::from_secs(10));
        let stopped = AtomicBool::new(true);
        assert!(matches!(patience.call(&stopped, || std::future::ready(Ok(()))).await, Err(Error::Stopped)));
    }
}
