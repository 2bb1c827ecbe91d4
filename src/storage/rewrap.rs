use std::fmt;

use super::client::{Client, Written};
use super::error::Error;
use crate::source::StoredValue;

/// What is to be stored in place of a value.
pub enum Sealed {
    /// The value is already as it should be.
    Current,
    /// These bytes, which were opened again and found to hold the same plaintext.
    Value(Vec<u8>),
}

/// Why a value is left as it is. Written by whoever judges values; never written to etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal<R>(pub R);

/// Says how long the value is: where `identity` writes, it is plaintext.
impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Current => f.write_str("Current"),
            Self::Value(value) => write!(f, "Value([{} bytes])", value.len()),
        }
    }
}

/// What became of one key.
#[derive(Debug)]
pub enum Rewrap<R> {
    /// The value was replaced.
    Rewritten {
        /// What was there before.
        old: StoredValue,
        /// What is stored now.
        new: StoredValue,
    },
    /// Somebody else had already stored it as it should be, or it was so from the beginning.
    AlreadyCurrent,
    /// The key is gone, and stays gone.
    Gone,
    /// The value cannot be opened or must not be written again.
    Refused {
        /// The value in question.
        value: StoredValue,
        /// Why.
        reason: R,
    },
    /// The new value would be larger than etcd takes.
    TooLarge {
        /// The value in question.
        value: StoredValue,
        /// The size of the request in bytes.
        request_bytes: usize,
    },
    /// Others wrote the key again and again in between.
    Contended,
}

/// The limits of a rewrap.
#[derive(Clone, Copy, Debug)]
pub struct RewrapOptions {
    /// etcd's `--max-request-bytes`.
    pub max_request_bytes: usize,
}

impl Default for RewrapOptions {
    fn default() -> Self {
        Self { max_request_bytes: 1_572_864 }
    }
}

/// What a transaction needs beside the value and two copies of the key, rounded up.
const REQUEST_OVERHEAD: usize = 512;

/// How often a key is tried that others write at the same time.
const MAX_CONFLICTS: u32 = 32;

impl Client {
    /// Stores a value again, sealed anew, unless somebody changes the key in between; then what they wrote is judged.
    ///
    /// `seal` opens a stored value and seals its plaintext. It is called for each value that is met under the key, so what
    /// is written is never older than what it replaces. The lease is kept.
    ///
    /// # Errors
    ///
    /// When etcd stays unavailable, is full, or refuses. The key then holds either its old value or the new one.
    pub async fn rewrap<R>(
        &self,
        value: StoredValue,
        options: RewrapOptions,
        mut seal: impl FnMut(&StoredValue) -> Result<Sealed, Refusal<R>>,
    ) -> Result<Rewrap<R>, Error> {
        let mut value = value;
        for _ in 0..MAX_CONFLICTS {
            let new_value = match seal(&value) {
                Ok(Sealed::Current) => return Ok(Rewrap::AlreadyCurrent),
                Ok(Sealed::Value(new_value)) => new_value,
                Err(Refusal(reason)) => return Ok(Rewrap::Refused { value, reason }),
            };
            let request_bytes = new_value.len() + 2 * value.key.len() + REQUEST_OVERHEAD;
            if request_bytes > options.max_request_bytes {
                return Ok(Rewrap::TooLarge { value, request_bytes });
            }
            match self.put_and_confirm(&value, &new_value).await {
                Ok(Written::Done { revision }) => {
                    let version = value.version + 1;
                    let new = StoredValue { value: new_value, mod_revision: revision, version, ..value.clone() };
                    return Ok(Rewrap::Rewritten { old: value, new });
                }
                Ok(Written::Conflict { current: Some(current) }) => value = current,
                Ok(Written::Conflict { current: None }) => return Ok(Rewrap::Gone),
                Err(Error::RequestTooLarge) => return Ok(Rewrap::TooLarge { value, request_bytes }),
                Err(error) => return Err(error),
            }
        }
        Ok(Rewrap::Contended)
    }

    /// A put whose outcome is known: when the answer is lost, the key is read to see whether the value arrived.
    async fn put_and_confirm(&self, value: &StoredValue, new_value: &[u8]) -> Result<Written, Error> {
        let mut backoff = self.backoff();
        loop {
            let generation = self.generation().await;
            let put = self.optimistic_put(&value.key, new_value.to_vec(), value.mod_revision, value.lease).await;
            let lost = match put {
                Ok(Written::Conflict { current: Some(current) }) => return Ok(conflict_or_own(current, new_value)),
                // The write that fills the database is made, and answered as if it were not (`quotaApplierV3.Txn`).
                Err(Error::NoSpace) => {
                    return match self.get(&value.key).await? {
                        Some(current) if current.mod_revision == value.mod_revision => Err(Error::NoSpace),
                        Some(current) => Ok(conflict_or_own(current, new_value)),
                        None => Ok(Written::Conflict { current: None }),
                    };
                }
                Err(error) if error.is_transient() => error,
                result => return result,
            };
            tracing::debug!(error = %lost, "the outcome of a write is unknown; reading the key");
            if !backoff.wait().await {
                return Err(lost);
            }
            self.reconnect(generation).await;
            match self.get(&value.key).await? {
                None => return Ok(Written::Conflict { current: None }),
                // Not arrived; should it still arrive, then either that put or the next one fails its comparison.
                Some(current) if current.mod_revision == value.mod_revision => {}
                Some(current) => return Ok(conflict_or_own(current, new_value)),
            }
        }
    }
}

/// The nonce of a new value is ours alone, so equal bytes are our own write, of which we had not heard.
fn conflict_or_own(current: StoredValue, new_value: &[u8]) -> Written {
    if current.value == new_value {
        Written::Done { revision: current.mod_revision }
    } else {
        Written::Conflict { current: Some(current) }
    }
}
