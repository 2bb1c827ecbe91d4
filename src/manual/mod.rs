//! Chapters about the use of this crate, with examples that are run.

#[cfg(feature = "etcd")]
pub mod storage;
