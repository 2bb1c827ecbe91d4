//! What needs a real etcd. `cargo xtask setup` brings both versions; without them these tests fail.

#![cfg(feature = "etcd")]

#[path = "../support/mod.rs"]
mod support;

mod connection;
mod harness;
