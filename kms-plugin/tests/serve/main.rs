//! The server as its clients see it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed, helpers included")]

#[path = "../support/server/mod.rs"]
mod support;

mod authority;
mod conformance;
mod examples;
mod grpcio;
mod health;
mod hostile;
mod http2;
mod listener;
mod process;
mod v1beta1;
mod v2;
