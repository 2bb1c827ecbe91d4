use super::codec::{BoxError, Codec};
use super::error::StorageError;
use super::get::unknown_outcome;
use super::options::Preconditions;
use super::state::Expect;
use super::transformer::StorageTransformer;
use super::{Operation, Store};
use crate::secret::Plaintext;
use crate::storage::Written;

/// How to delete an object.
#[derive(Clone, Debug)]
pub struct DeleteOptions<O> {
    /// What must hold of it.
    pub preconditions: Option<Preconditions>,
    /// What the caller believes to be stored.
    pub cached: Option<O>,
    /// Deletes what can *not* be read, and nothing else (KEP-3926; `ExpectTransformOrDecodeError` of 1.37): of an object that can be
    /// read this is refused, also when it was repaired in between, and of one whose KMS does not answer too. Whether the keys are all
    /// that there are, is for the caller to know. No validation is made, since there is nothing to validate.
    pub expect_unreadable: bool,
}

impl<O> Default for DeleteOptions<O> {
    fn default() -> Self {
        Self { preconditions: None, cached: None, expect_unreadable: false }
    }
}

impl<C: Codec, T: StorageTransformer> Store<C, T> {
    /// Deletes an object, and gives it as it was, with the revision of the deletion (upstream `Delete`). Nothing is given of one that
    /// cannot be read.
    ///
    /// `validate` sees the object before it is deleted, and again whenever somebody else has changed it in between.
    ///
    /// # Errors
    ///
    /// [`StorageError::KeyNotFound`], [`StorageError::InvalidObject`], [`StorageError::Rejected`] with the error of `validate`,
    /// [`StorageError::UnknownOutcome`] when the answer was lost, and what etcd says.
    pub async fn delete(
        &self,
        key: &str,
        options: DeleteOptions<C::Object>,
        mut validate: impl FnMut(&C::Object) -> Result<(), BoxError>,
    ) -> Result<Option<C::Object>, StorageError> {
        let key = self.prepare_key(key, false)?;
        if options.expect_unreadable && options.preconditions.is_some() {
            let message =
                "nothing can be expected of an object that cannot be read: leave the preconditions out".to_owned();
            return Err(StorageError::BadRequest { message });
        }
        let expect = if options.expect_unreadable { Expect::Unreadable } else { Expect::Readable };
        let read = || self.read_state(&key, false, expect);
        // What somebody believes of an object that nobody can read says nothing.
        let cached = options.cached.filter(|_| !options.expect_unreadable);
        let mut current = cached.is_none();
        let mut state = match cached {
            Some(object) => self.state_from_object(object)?,
            None => read().await?,
        };
        loop {
            let checked = match (&state.object, &options.preconditions) {
                (Some(object), Some(conditions)) => conditions.check(&key, Some(object)),
                _ => Ok(()),
            };
            let validated = checked.and_then(|()| match &state.object {
                Some(object) => validate(object).map_err(|source| StorageError::Rejected { source }),
                None => Ok(()),
            });
            if let Err(error) = validated {
                if current {
                    return Err(error);
                }
                let believed = state.revision;
                state = read().await?;
                current = true;
                if state.revision == believed {
                    return Err(error);
                }
                continue;
            }
            let delete = self.inner.client.optimistic_delete(key.as_bytes(), state.revision);
            let written = self.request(Operation::Delete, delete).await;
            match written.map_err(|error| unknown_outcome(&key, state.revision, error))? {
                Written::Done { revision } => {
                    self.inner.sizes.forget(key.as_bytes());
                    if state.object.is_none() {
                        return Ok(None);
                    }
                    return self.decode_counted(key.as_bytes(), Plaintext::Stored(&state.data), revision).map(Some);
                }
                Written::Conflict { current: stored } => {
                    state = self.state_of(&key, stored, false, expect).await?;
                    current = true;
                }
            }
        }
    }
}
