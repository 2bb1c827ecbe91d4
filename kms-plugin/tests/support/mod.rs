//! What the integration tests share.
//!
//! A test binary takes it in by `#[path = "../support/mod.rs"] mod support;`.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]
#![allow(clippy::indexing_slicing, reason = "a test that panics has failed")]

pub(crate) mod conformance;
pub(crate) mod http;
pub(crate) mod install;
pub(crate) mod own_process;

use atrest::secret::Key;
use zeroize::Zeroizing;

/// A port of this machine that nobody listens on.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("it has an address").port()
}

/// A key of these bytes.
pub(crate) fn key(bytes: &[u8]) -> Key {
    Key::new(Zeroizing::new(bytes.to_vec()))
}
