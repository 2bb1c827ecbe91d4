//! kube-apiserver's `storage.Interface` for the objects of one resource (upstream `etcd3.store`).

mod codec;
mod compactor;
mod continue_token;
mod delete;
mod error;
mod get;
mod key;
mod lease;
mod list;
mod options;
mod queue;
mod state;
mod stats;
mod transformer;
mod update;
mod versioner;
mod watch;

use std::sync::Arc;
use std::time::Instant;

pub use codec::{BoxError, Codec, JsonCodec, JsonObject, RawCodec, RawObject, StoredObject};
pub use compactor::{Compactor, CompactorState};
pub use continue_token::{InvalidContinue, decode_continue, encode_continue};
pub use delete::DeleteOptions;
pub use error::{Cause, Status, StorageError, Verb};
pub use get::GetOptions;
pub use key::{path_prefix, prepare_key};
pub use lease::{LeaseManager, LeaseOptions, LeasePolicy};
pub use list::{Corrupt, CorruptItem, List};
pub use options::{Compatibility, ListOptions, Preconditions, Predicate, ResourceVersionMatch, StoreOptions};
pub use stats::Stats;
pub use transformer::{Encryption, StorageTransformer};
pub use update::{ResponseMeta, Updated};
pub use versioner::{InvalidResourceVersion, Versioner};
pub(crate) use watch::Keyed;
pub use watch::{OnFailure, StoreWatchOptions, WatchEvent, WatchStream};

use super::client::Client;
use super::metrics::{Metrics, Operation};
use crate::resource::GroupResource;
use crate::secret::{Opened, Plaintext};
use crate::source::StoredValue;
use crate::transformer::{DataContext, FromStorage, TransformationType};
use queue::Queues;
use stats::Sizes;

/// The objects of one resource in etcd.
///
/// Keys are those of upstream: below the path prefix, beginning with the prefix of the resource, as `/pods/default/web`.
pub struct Store<C, T> {
    inner: Arc<Inner<C, T>>,
}

struct Inner<C, T> {
    client: Client,
    codec: C,
    transformer: T,
    options: StoreOptions,
    path_prefix: String,
    resource_prefix: String,
    leases: LeaseManager,
    sizes: Sizes,
    queues: Queues,
}

impl<C, T> Clone for Store<C, T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<C, T> std::fmt::Debug for Store<C, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

impl<C: Codec, T: StorageTransformer> Store<C, T> {
    /// A store of the objects below a prefix of the resource. Nothing is asked of etcd.
    ///
    /// # Errors
    ///
    /// [`StorageError::InvalidKey`] when the prefix of the resource is empty, `/`, or does not begin with a slash.
    pub fn new(client: &Client, codec: C, transformer: T, options: StoreOptions) -> Result<Self, StorageError> {
        let resource_prefix = options.resource_prefix.clone();
        let why = match resource_prefix.as_str() {
            "" => Some("resourcePrefix cannot be empty".to_owned()),
            "/" => Some("resourcePrefix cannot be /".to_owned()),
            prefix if !prefix.starts_with('/') => Some("resourcePrefix needs to start from /".to_owned()),
            _ => None,
        };
        if let Some(message) = why {
            return Err(StorageError::InvalidKey { message });
        }
        let client = match &options.metrics {
            Some(metrics) => client.clone().with_metrics(Arc::clone(metrics)),
            None => client.clone(),
        };
        let leases = LeaseManager::new(client.clone(), options.leases, options.metrics.clone());
        let inner = Inner {
            path_prefix: path_prefix(&options.path_prefix),
            resource_prefix,
            client,
            codec,
            transformer,
            leases,
            sizes: Sizes::new(options.estimates_sizes),
            queues: Queues::default(),
            options,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What reads and writes the resource versions of objects.
    #[must_use]
    pub const fn versioner(&self) -> Versioner {
        Versioner
    }

    /// The codec.
    #[must_use]
    pub fn codec(&self) -> &C {
        &self.inner.codec
    }

    /// The transformer.
    #[must_use]
    pub fn transformer(&self) -> &T {
        &self.inner.transformer
    }

    /// The client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &StoreOptions {
        &self.inner.options
    }

    /// Whether requests can be made: always. A cache in front of the store may not be filled yet.
    ///
    /// # Errors
    ///
    /// None; of a cache in front of it, when it is not filled.
    pub const fn readiness_check(&self) -> Result<(), StorageError> {
        Ok(())
    }

    /// The highest revision of which this process knows that it is compacted; 0 when it knows of none.
    #[must_use]
    pub fn compact_revision(&self) -> i64 {
        self.inner.options.compactor.as_ref().map_or(0, Compactor::compact_revision)
    }

    /// The etcd key of an object, or what the etcd keys of a range begin with.
    ///
    /// # Errors
    ///
    /// [`StorageError::InvalidKey`].
    pub fn prepare_key(&self, key: &str, recursive: bool) -> Result<String, StorageError> {
        prepare_key(&self.inner.path_prefix, &self.inner.resource_prefix, key, recursive)
    }

    fn resource(&self) -> &GroupResource {
        &self.inner.options.resource
    }

    fn metrics(&self) -> Option<&Arc<Metrics>> {
        self.inner.options.metrics.as_ref()
    }

    /// Makes a request, and counts it.
    async fn request<R>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<R, super::Error>>,
    ) -> Result<R, super::Error> {
        let begun = Instant::now();
        let result = call.await;
        if let Some(metrics) = self.metrics() {
            metrics.request(operation, self.resource(), begun, result.is_err());
        }
        result
    }

    /// Opens a stored value. What it takes was asked of the KMS before.
    fn open<'v>(&self, value: &'v StoredValue) -> Result<FromStorage<'v>, StorageError> {
        let begun = Instant::now();
        let result = self.inner.transformer.open(&value.value, DataContext::new(&value.key));
        if let Some(metrics) = self.metrics() {
            let took = begun.elapsed();
            for (prefix, ok) in self.inner.transformer.attempts(&value.value, result.as_ref()) {
                let status = if ok { "OK" } else { "unknown-non-grpc" };
                metrics.transformation(self.resource(), TransformationType::FromStorage, &prefix, status, took);
            }
        }
        result.map_err(|source| self.corrupt(&value.key, 0, StorageError::Internal { key: None, source }))
    }

    /// Turns a plaintext into what is stored.
    async fn seal(&self, plaintext: &[u8], key: &str) -> Result<Vec<u8>, StorageError> {
        let internal = |source| StorageError::Internal { key: None, source };
        let begun = Instant::now();
        let mut sealed = Vec::new();
        let context = DataContext::new(key.as_bytes());
        let prepared = self.inner.transformer.prepare_write().await;
        let result = prepared.and_then(|()| self.inner.transformer.seal(plaintext, context, &mut sealed));
        if let Some(metrics) = self.metrics() {
            let (took, status) = (begun.elapsed(), if result.is_ok() { "OK" } else { "unknown-non-grpc" });
            for prefix in self.inner.transformer.write_prefixes() {
                metrics.transformation(self.resource(), TransformationType::ToStorage, &prefix, status, took);
            }
        }
        result.map_err(internal)?;
        Ok(sealed)
    }

    /// The object in a plaintext, with its revision.
    fn decode(&self, key: &[u8], data: Plaintext<'_>, revision: i64) -> Result<C::Object, StorageError> {
        match self.inner.codec.decode_owned(data) {
            Ok(mut object) => {
                Versioner.update_object(&mut object, revision);
                Ok(object)
            }
            Err(source) => {
                let error = StorageError::Decode { key: shown(key), source };
                Err(self.corrupt(key, revision, error))
            }
        }
    }

    /// The same, counted as upstream does: of everything but watches.
    fn decode_counted(&self, key: &[u8], data: Plaintext<'_>, revision: i64) -> Result<C::Object, StorageError> {
        let decoded = self.decode(key, data, revision);
        if let (Err(_), Some(metrics)) = (&decoded, self.metrics()) {
            metrics.decode_error(self.resource());
        }
        decoded
    }

    /// With the gate for it, whatever cannot be read is told as corrupt.
    fn corrupt(&self, key: &[u8], resource_version: i64, error: StorageError) -> StorageError {
        if !self.inner.options.allow_unsafe_malformed_object_deletion {
            return error;
        }
        StorageError::CorruptObject { key: shown(key), resource_version, source: Box::new(error) }
    }

    /// What is stored of an object.
    fn encode(&self, object: &C::Object) -> Result<Opened, StorageError> {
        let mut stored = object.clone();
        Versioner.prepare_object_for_storage(&mut stored);
        let data = self.inner.codec.encode(&stored).map_err(|source| StorageError::Encode { source })?;
        Ok(Opened::new(data))
    }
}

fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
