//! kube-apiserver's way of reading and writing etcd; the only room that writes there.
//!
//! Writes have the one shape that kube-apiserver uses and that kine accepts: one key in a transaction, compared by its
//! `mod_revision`, and read back by the same request when the comparison fails. The lease is always given explicitly.
//!
//! [`Client`] makes the requests. [`Store`] is upstream's `storage.Interface` on top of it: objects in and out, through a [`Codec`] and a
//! [`StorageTransformer`]. The chapter [`manual::storage`](crate::manual::storage) has an example of each call.

mod client;
mod connector;
mod dial;
mod endpoint;
mod error;
mod failure;
mod maintenance;
mod metrics;
mod range;
mod requests;
mod rewrap;
mod store;
mod tls;
mod watch;

pub use client::{Client, ConnectOptions, NEVER, ServerStatus, Written};
pub use endpoint::{Address, Endpoint, InvalidEndpoint};
pub use error::Error;
pub use failure::{ConnectError, ConnectFailure};
pub use maintenance::{Alarm, MemberStatus};
pub(crate) use metrics::ResourceLabels;
pub use metrics::{Metrics, Operation};
pub use range::{KeyRange, Ranges};
pub use requests::{GetResponse, ListResponse};
pub use rewrap::{Refusal, Rewrap, RewrapOptions, Sealed};
pub(crate) use store::Keyed;
pub use store::{
    BoxError, Cause, Codec, Compactor, CompactorState, Compatibility, Corrupt, CorruptItem, DeleteOptions, Encryption,
    GetOptions, InvalidContinue, InvalidResourceVersion, JsonCodec, JsonObject, LeaseManager, LeaseOptions,
    LeasePolicy, List, ListOptions, OnFailure, Preconditions, Predicate, RawCodec, RawObject, ResourceVersionMatch,
    ResponseMeta, Stats, Status, StorageError, StorageTransformer, Store, StoreOptions, StoreWatchOptions,
    StoredObject, Updated, Verb, Versioner, WatchEvent, WatchStream, decode_continue, encode_continue, path_prefix,
    prepare_key,
};
pub use tls::{TlsError, TlsFailure, TlsOptions};
pub use watch::{Event, EventKind, Watch, WatchOptions, Watched};
