//! The backend `aws` against moto's server, and against answers that moto cannot be made to give.

#![allow(clippy::indexing_slicing, reason = "a test that panics has failed, helpers included")]

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod keys;
mod moto;
