//! What the integration tests share.
//!
//! A test binary takes it in by `#[path = "../support/mod.rs"] mod support;`.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]
#![allow(clippy::indexing_slicing, reason = "a test that panics has failed")]

pub(crate) mod conformance;
pub(crate) mod install;
pub(crate) mod own_process;

use atrest::secret::Key;
use zeroize::Zeroizing;

/// A key of these bytes.
pub(crate) fn key(bytes: &[u8]) -> Key {
    Key::new(Zeroizing::new(bytes.to_vec()))
}
