//! Leaving a KMS alone for a while, shared by all requests.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Error;

/// The first pause when the KMS does not say how long; it doubles with each refusal that follows.
const FIRST: Duration = Duration::from_millis(500);

/// A longer one would outlast what made the KMS refuse.
const LONGEST: Duration = Duration::from_secs(10);

/// Begins when the KMS limits the rate of requests; while it lasts, requests fail here.
#[derive(Debug, Default)]
pub(super) struct Pause(Mutex<Option<Running>>);

#[derive(Clone, Copy, Debug)]
struct Running {
    until: Instant,
    len: Duration,
}

impl Pause {
    /// Fails while the pause lasts.
    pub(super) fn check(&self, now: Instant) -> Result<(), Error> {
        let running = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match running.and_then(|running| running.until.checked_duration_since(now)).filter(|left| !left.is_zero()) {
            Some(left) => Err(Error::Throttled { retry_after: Some(left) }),
            None => Ok(()),
        }
    }

    /// Begins a pause: of the length that the KMS asks for, else twice the last one's.
    pub(super) fn begin(&self, now: Instant, asked: Option<Duration>) -> Error {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let len = match (asked, *running) {
            (Some(asked), _) => asked.min(LONGEST),
            // Requests that were under way when it began say no more than the first.
            (None, Some(last)) if last.until > now => last.len,
            (None, Some(last)) => last.len.saturating_mul(2).min(LONGEST),
            (None, None) => FIRST,
        };
        let until = now.checked_add(len).unwrap_or(now);
        *running = Some(Running { until, len });
        Error::Throttled { retry_after: Some(len) }
    }

    /// A request succeeded: the next pause is a short one again.
    pub(super) fn end(&self, now: Instant) {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One that began before the pause does not end it.
        if running.is_some_and(|running| running.until <= now) {
            *running = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttled(milliseconds: u64) -> Error {
        Error::Throttled { retry_after: Some(Duration::from_millis(milliseconds)) }
    }

    #[test]
    fn pauses_double_up_to_ten_seconds_and_are_short_again_after_a_success() {
        let pause = Pause::default();
        let mut now = Instant::now();
        for expected in [500, 1000, 2000, 4000, 8000, 10_000, 10_000] {
            assert_eq!(pause.check(now), Ok(()));
            assert_eq!(pause.begin(now, None), throttled(expected));
            assert_eq!(pause.check(now + Duration::from_millis(100)), Err(throttled(expected - 100)));
            now += Duration::from_millis(expected);
        }
        pause.end(now);
        assert_eq!(pause.begin(now, None), throttled(500));
    }

    #[test]
    fn refusals_of_requests_that_were_under_way_do_not_double_it() {
        let pause = Pause::default();
        let now = Instant::now();
        assert_eq!(pause.begin(now, None), throttled(500));
        assert_eq!(pause.begin(now + Duration::from_millis(10), None), throttled(500));
        pause.end(now + Duration::from_millis(20));
        assert_eq!(pause.check(now + Duration::from_millis(20)), Err(throttled(490)));
    }

    #[test]
    fn the_kms_may_ask_for_another_length_within_reason() {
        let pause = Pause::default();
        let now = Instant::now();
        assert_eq!(pause.begin(now, Some(Duration::from_secs(3))), throttled(3000));
        assert_eq!(pause.begin(now, Some(Duration::from_secs(3600))), throttled(10_000));
    }
}
