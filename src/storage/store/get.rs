use super::codec::Codec;
use super::error::StorageError;
use super::lease::LeasePolicy;
use super::transformer::StorageTransformer;
use super::versioner::Versioner;
use super::{Operation, Store};
use crate::secret::Plaintext;
use crate::storage::{Error, Written};

/// How to read one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// `resourceVersion`: the store must have come so far. What is read is always the latest.
    pub resource_version: String,
    /// Whether an object that is not there is an empty one, and no error.
    pub ignore_not_found: bool,
}

impl<C: Codec, T: StorageTransformer> Store<C, T> {
    /// Reads one object, as it is now (upstream `Get`).
    ///
    /// # Errors
    ///
    /// [`StorageError::KeyNotFound`], [`StorageError::TooLargeResourceVersion`], [`StorageError::Internal`] when it cannot be opened,
    /// [`StorageError::Decode`] when it is no object, and what etcd says.
    pub async fn get(&self, key: &str, options: &GetOptions) -> Result<C::Object, StorageError> {
        let key = self.prepare_key(key, false)?;
        let response = self.request(Operation::Get, self.inner.client.get_at(key.as_bytes(), 0)).await?;
        check_minimum(&options.resource_version, response.revision)?;
        let Some(value) = response.value else {
            return match options.ignore_not_found {
                true => Ok(self.inner.codec.new_object()),
                false => Err(StorageError::KeyNotFound { key }),
            };
        };
        self.inner.sizes.note(&value.key, value.value.len());
        self.inner.transformer.prepare_read(&[&value]).await;
        let opened = self.open(&value)?;
        self.decode_counted(&value.key, opened.data, value.mod_revision)
    }

    /// Stores a new object (upstream `Create`), for so many seconds where a time is given, and gives it with its revision.
    ///
    /// # Errors
    ///
    /// [`StorageError::KeyExists`], [`StorageError::ResourceVersionSet`], [`StorageError::UnknownOutcome`] when the answer of etcd was lost,
    /// and what etcd says.
    pub async fn create(&self, key: &str, object: &C::Object, ttl: Option<u64>) -> Result<C::Object, StorageError> {
        let key = self.prepare_key(key, false)?;
        if Versioner.object_resource_version(object).is_ok_and(|version| version != 0) {
            return Err(StorageError::ResourceVersionSet);
        }
        let data = self.encode(object)?;
        let lease = self.lease(LeasePolicy::Upstream(ttl), Some(0)).await?;
        let sealed = self.seal(&data, &key).await?;
        let len = sealed.len();
        let put = self.inner.client.optimistic_create(key.as_bytes(), sealed, lease);
        let written = self.request(Operation::Create, put).await.map_err(|error| unknown_outcome(&key, 0, error))?;
        let Written::Done { revision } = written else { return Err(StorageError::KeyExists { key }) };
        self.inner.sizes.note(key.as_bytes(), len);
        self.decode_counted(key.as_bytes(), Plaintext::Stored(&data), revision)
    }

    /// The revision of the store: linearizable, so that it is at least that of every write that was answered before (upstream
    /// `GetCurrentResourceVersion`).
    ///
    /// # Errors
    ///
    /// What etcd says.
    pub async fn get_current_resource_version(&self) -> Result<u64, StorageError> {
        let key = self.prepare_key(&self.inner.resource_prefix, false)?;
        let response = self.request(Operation::Get, self.inner.client.get_at(key.as_bytes(), 0)).await?;
        match u64::try_from(response.revision) {
            Ok(revision) if revision > 0 => Ok(revision),
            _ => Err(StorageError::BadRequest {
                message: "the current resource version must be greater than 0".to_owned(),
            }),
        }
    }
}

/// The store must have come as far as was asked for.
pub(super) fn check_minimum(resource_version: &str, revision: i64) -> Result<(), StorageError> {
    if resource_version.is_empty() {
        return Ok(());
    }
    let asked = Versioner.parse_resource_version(resource_version)?;
    match u64::try_from(revision) {
        Ok(current) if asked <= current => Ok(()),
        _ => Err(StorageError::TooLargeResourceVersion {
            asked: i64::try_from(asked).unwrap_or(i64::MAX),
            current: revision,
            retry_after_seconds: 0,
        }),
    }
}

/// A write that was not answered may have been made.
pub(super) fn unknown_outcome(key: &str, expected_revision: i64, error: Error) -> StorageError {
    match error {
        // The write that fills the database is made, and answered as if it were not.
        Error::Unavailable { .. } | Error::NoSpace => {
            StorageError::UnknownOutcome { key: key.to_owned(), expected_revision, source: Box::new(error) }
        }
        error => StorageError::Etcd(error),
    }
}
