//! Encryption at rest of Kubernetes objects in etcd.

pub mod config;
pub mod object;
pub mod protobuf;
#[cfg(feature = "etcd")]
pub mod rekey;
pub mod report;
pub mod resource;
pub mod scan;
pub mod secret;
pub mod source;
#[cfg(feature = "etcd")]
pub mod storage;
pub mod transformer;
pub mod verify;

/// The version of this library and of the programs built on it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
