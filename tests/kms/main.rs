//! KMS plugins: the client, envelopes, and `kms check`.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed, helpers included")]

#[path = "../support/mod.rs"]
mod support;

mod check;
mod client;
mod generated;
mod many;
mod metrics;
mod specification;
