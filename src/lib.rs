//! Encryption at rest of Kubernetes objects in etcd.

pub mod config;
pub mod resource;
pub mod secret;

/// The version of this library and of the programs built on it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
