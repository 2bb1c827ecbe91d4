//! Log lines that clients cause, so many of a kind and then their number: a burst of calls is not a burst of lines.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tonic::{Response, Status};

/// So many lines of a kind are written in a period.
const LINES: u64 = 10;
/// After that time the number of those that were not written is.
const PERIOD: Duration = Duration::from_secs(10);
/// The longest UID that is logged. kube-apiserver's have 36 bytes.
const MAX_LOGGED_UID_CHARS: usize = 64;

/// What a client can make the server log. All of it is bounded in number: nothing in it is of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Accepted.
    Connection,
    /// Refused, for this reason.
    Refused(&'static str),
    /// accept(2) has failed.
    NotAccepted,
    /// A call has failed.
    Failed { api: &'static str, method: &'static str, code: i32 },
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection => f.write_str("connections"),
            Self::Refused(reason) => write!(f, "refused connections: {reason}"),
            Self::NotAccepted => f.write_str("connections that could not be accepted"),
            Self::Failed { api, method, code } => {
                write!(f, "failed calls of {api} {method}: {:?}", tonic::Code::from_i32(*code))
            }
        }
    }
}

/// Counts the lines of each kind in the present period.
#[derive(Debug, Default)]
pub(super) struct Journal(Mutex<BTreeMap<Kind, u64>>);

impl Journal {
    /// Whether one more of this kind is to be logged.
    pub(super) fn admits(&self, kind: Kind) -> bool {
        let mut counts = self.counts();
        let count = counts.entry(kind).or_default();
        *count = count.saturating_add(1);
        *count <= LINES
    }

    /// Begins another period. The kinds of which not all were logged in the last one, and how many were not.
    fn turn(&self) -> Vec<(Kind, u64)> {
        let counts = std::mem::take(&mut *self.counts());
        counts.into_iter().filter(|(_, count)| *count > LINES).map(|(kind, count)| (kind, count - LINES)).collect()
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<Kind, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs the numbers, period after period, until this is dropped.
    pub(super) async fn count_for_ever(self: Arc<Self>) {
        loop {
            tokio::time::sleep(PERIOD).await;
            for (kind, count) in self.turn() {
                match kind {
                    Kind::Connection => tracing::info!("{count} more in {} s: {kind}", PERIOD.as_secs()),
                    _ => tracing::warn!("{count} more in {} s: {kind}", PERIOD.as_secs()),
                }
            }
        }
    }

    /// Logs the end of a call.
    pub(super) fn report<T>(
        &self,
        api: &'static str,
        method: &'static str,
        uid: &str,
        result: Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        let uid: String = uid.chars().take(MAX_LOGGED_UID_CHARS).collect();
        match &result {
            Ok(_) => tracing::debug!(api, method, ?uid, "done"),
            Err(status) => {
                let code = status.code();
                if self.admits(Kind::Failed { api, method, code: code.into() }) {
                    tracing::warn!(api, method, ?uid, ?code, "failed: {:?}", status.message());
                } else {
                    tracing::debug!(api, method, ?uid, ?code, "failed: {:?}", status.message());
                }
            }
        }
        result.map(Response::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_burst_the_first_are_logged_and_the_others_counted() {
        let journal = Journal::default();
        let failed = Kind::Failed { api: "v2", method: "Decrypt", code: 3 };
        let admitted = (0..25).filter(|_| journal.admits(failed)).count();
        assert_eq!(admitted, 10);
        assert!(journal.admits(Kind::Connection), "another kind has lines of its own");
        assert!(journal.admits(Kind::Failed { api: "v2", method: "Decrypt", code: 5 }), "so has another code");
        assert_eq!(journal.turn(), [(failed, 15)]);
        assert_eq!(journal.turn(), []);
        assert!(journal.admits(failed), "and the next period");
        assert_eq!(failed.to_string(), "failed calls of v2 Decrypt: InvalidArgument");
        assert_eq!(Kind::Refused("too many").to_string(), "refused connections: too many");
    }
}
