//! What needs a real etcd. `cargo xtask setup` brings both versions; without them these tests fail.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed, helpers included")]

#[path = "../support/mod.rs"]
mod support;

mod cacher;
mod cluster;
mod concurrent;
mod conformance;
mod connection;
mod doctor;
mod fixture;
mod harness;
mod interrupted;
mod kms;
mod large;
mod metrics;
mod overrides;
mod precautions;
mod rekey;
mod scan;
mod snapshot;
mod verify;
mod watch;
