//! Measures what runs: etcd, KMS plugins, and the transformers on this machine.

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "kms")]
mod kms;
mod transformer;

#[cfg(feature = "etcd")]
pub use etcd::{THROW_AWAY, etcd};
#[cfg(feature = "kms")]
pub use kms::kms;
pub use transformer::transformers;
