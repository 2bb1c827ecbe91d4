//! The backend `vault` against OpenBao's server.

#![allow(clippy::indexing_slicing, reason = "a test that panics has failed, helpers included")]

#[path = "../support/mod.rs"]
mod support;

mod bao;
mod keys;
mod login;
mod outage;
