use std::sync::Arc;

use super::codec::{BoxError, Codec};
use super::error::StorageError;
use super::get::unknown_outcome;
use super::lease::LeasePolicy;
use super::options::Preconditions;
use super::queue::{Left, Turn};
use super::state::{Expect, ObjectState};
use super::transformer::StorageTransformer;
use super::{Operation, Store};
use crate::secret::{Opened, Plaintext};
use crate::storage::Written;

/// What is known of an object beside itself (`storage.ResponseMeta`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseMeta {
    /// Its time to live in seconds. The store of upstream never knows it: it is always 0.
    pub ttl: u64,
    /// The revision of its key; 0 when there is none.
    pub resource_version: i64,
}

/// An object that was updated, and what that took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Updated<O> {
    /// The object as it is stored now.
    pub object: O,
    /// Whether it was written. What does not change and is not stale is not.
    pub written: bool,
    /// How often somebody else had written the key in between, and all was done again. This is what hot objects cost.
    pub conflicts: u64,
    /// How often the update function was called.
    pub calls: u64,
}

impl<C: Codec, T: StorageTransformer> Store<C, T> {
    fn state_left(&self, key: &str, left: &Left) -> Result<ObjectState<C::Object>, StorageError> {
        let object = Some(self.decode_counted(key.as_bytes(), Plaintext::Stored(&left.data), left.revision)?);
        let data = Opened::new(left.data.to_vec());
        Ok(ObjectState { object, revision: left.revision, data, stale: false, lease: Some(left.lease) })
    }

    /// Changes an object by a function, until nobody else has changed it in between (upstream `GuaranteedUpdate`).
    ///
    /// `update` gets the object as it is, or an empty one where it is not there and `ignore_not_found` is set, and gives it as it is to
    /// be, with its lease. It may be called several times. `cached` is what the caller believes to be stored; it is never trusted: an
    /// error on it, and a change of nothing, are judged again on what is stored.
    ///
    /// A failed precondition is [`StorageError::InvalidObject`] at once. A lost compare-and-swap is tried again, without end and without a
    /// pause, with what the failed transaction has read: whoever wants to give up drops the future. [`Updated::conflicts`] tells how
    /// often that was. With [`StoreOptions::queues_conflicts`](super::StoreOptions), those of this store that have lost wait for each
    /// other.
    ///
    /// **The trap of the lease:** with [`LeasePolicy::Upstream`]`(None)` the key loses the lease that it has, as upstream does it, whatever
    /// the comment of its interface says: an Event that is updated so stays for ever. [`LeasePolicy::Preserve`] keeps it.
    ///
    /// # Errors
    ///
    /// [`StorageError::KeyNotFound`], [`StorageError::InvalidObject`], [`StorageError::Rejected`] with the error of `update`,
    /// [`StorageError::UnknownOutcome`] when the answer to a write was lost, and what etcd says.
    pub async fn guaranteed_update(
        &self,
        key: &str,
        ignore_not_found: bool,
        preconditions: Option<&Preconditions>,
        cached: Option<C::Object>,
        mut update: impl FnMut(C::Object, ResponseMeta) -> Result<(C::Object, LeasePolicy), BoxError>,
    ) -> Result<Updated<C::Object>, StorageError> {
        let key = self.prepare_key(key, false)?;
        let read = || self.read_state(&key, ignore_not_found, Expect::Readable);
        let mut current = cached.is_none();
        let mut state = match cached {
            Some(object) => self.state_from_object(object)?,
            None => read().await?,
        };
        let (mut conflicts, mut calls) = (0, 0);
        let mut turn: Option<Turn> = None;
        loop {
            let Some(object) = state.object.clone() else { return Err(StorageError::KeyNotFound { key }) };
            if let Err(error) = preconditions.map_or(Ok(()), |conditions| conditions.check(&key, Some(&object))) {
                if current {
                    return Err(error);
                }
                state = read().await?;
                current = true;
                continue;
            }
            calls += 1;
            let meta = ResponseMeta { ttl: 0, resource_version: state.revision };
            let (updated, policy) = match update(object, meta) {
                Ok(updated) => updated,
                Err(source) if current => return Err(StorageError::Rejected { source }),
                Err(source) => {
                    let believed = state.revision;
                    state = read().await?;
                    current = true;
                    if state.revision == believed {
                        return Err(StorageError::Rejected { source });
                    }
                    continue;
                }
            };
            let data = self.encode(&updated)?;
            if !state.stale && *data == *state.data {
                // Only what is stored can say that nothing has to be written.
                if !current {
                    state = read().await?;
                    current = true;
                    if *data != *state.data {
                        continue;
                    }
                }
                if !state.stale {
                    let object = self.decode_counted(key.as_bytes(), Plaintext::Stored(&state.data), state.revision)?;
                    return Ok(Updated { object, written: false, conflicts, calls });
                }
            }
            if policy == LeasePolicy::Preserve && state.lease.is_none() {
                state = read().await?;
                current = true;
                continue;
            }
            let sealed = self.seal(&data, &key).await?;
            let lease = self.lease(policy, state.lease).await?;
            let len = sealed.len();
            let put = self.inner.client.optimistic_put(key.as_bytes(), sealed, state.revision, lease);
            let written = self.request(Operation::Update, put).await;
            match written.map_err(|error| unknown_outcome(&key, state.revision, error))? {
                Written::Done { revision } => {
                    self.inner.sizes.note(key.as_bytes(), len);
                    if let Some(turn) = &mut turn {
                        turn.leave(Left { revision, data: Arc::new(Opened::new(data.to_vec())), lease });
                    }
                    let object = self.decode_counted(key.as_bytes(), Plaintext::Stored(&data), revision)?;
                    return Ok(Updated { object, written: true, conflicts, calls });
                }
                Written::Conflict { current: stored } => {
                    tracing::debug!(key, conflicts, "somebody else has written the key");
                    conflicts += 1;
                    current = true;
                    if self.inner.options.queues_conflicts && turn.is_none() {
                        let turn = turn.insert(self.inner.queues.turn(&key).await);
                        if turn.waited {
                            // Those before have written. What they leave is no more than a belief, as one of the caller's.
                            current = false;
                            state = match turn.left() {
                                Some(left) => self.state_left(&key, &left)?,
                                None => {
                                    current = true;
                                    read().await?
                                }
                            };
                            continue;
                        }
                    }
                    state = self.state_of(&key, stored, ignore_not_found, Expect::Readable).await?;
                }
            }
        }
    }
}
