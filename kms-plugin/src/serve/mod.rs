//! Serves a backend to kube-apiserver: both versions of the API on one unix socket, and health endpoints beside it.
//!
//! ```text
//! client ── unix socket ── listener ── connection ── authority ── tonic ─┬─ v2 ──────┐
//!           (socket)       (whose?)    (counted)     (rewritten)         └─ v1beta1 ─┴─ service ── backend
//!                                                                          Status ◀── health ◀── probe ─┘
//! ```
//!
//! A backend that fails never ends the server: it answers with errors, and says in Status and at `/readyz` what is wrong.

pub mod authority;
mod connection;
mod health;
mod limits;
mod listener;
mod metrics;
mod server;
mod service;
mod socket;
mod v1beta1;
mod v2;

use tonic::{Response, Status};

pub use connection::Peer;
pub use health::{Condition, Timing};
pub use server::{Error, Handle, HealthAddress, Options, Server, StatusVersion};
pub use socket::{Access, Error as SocketError};

/// The longest UID that is logged. kube-apiserver's have 36 bytes.
const MAX_LOGGED_UID_CHARS: usize = 64;

/// Logs the end of a call.
fn report<T>(api: &str, method: &str, uid: &str, result: Result<T, Status>) -> Result<Response<T>, Status> {
    let uid: String = uid.chars().take(MAX_LOGGED_UID_CHARS).collect();
    match &result {
        Ok(_) => tracing::debug!(api, method, ?uid, "done"),
        Err(status) => tracing::warn!(api, method, ?uid, code = ?status.code(), "failed: {:?}", status.message()),
    }
    result.map(Response::new)
}
