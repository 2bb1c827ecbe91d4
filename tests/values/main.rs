//! Single stored values: what kube-apiserver wrote, what it makes of damaged ones, and what we write.

mod conformance;
mod envelopes;
#[cfg(feature = "kms")]
#[allow(dead_code, clippy::indexing_slicing, reason = "a part of it is used here")]
#[path = "../support/kms.rs"]
mod kms;
mod objects;
mod open;
mod properties;
mod redaction;
mod resources;
mod sealed;
mod setup;
mod spec;
