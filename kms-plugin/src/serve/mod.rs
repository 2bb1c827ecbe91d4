//! Serves a backend to kube-apiserver: both versions of the API on one unix socket, and health endpoints beside it.
//!
//! ```text
//! client ── unix socket ── listener ── connection ── authority ── tonic ─┬─ v2 ──────┐
//!           (kept_socket)  (whose?)    (counted)     (rewritten) (intake)└─ v1beta1 ─┴─ service ── backend
//!                                                                          Status ◀── health ◀── probe ─┘
//! ```
//!
//! A backend that fails never ends the server: it answers with errors, and says in Status and at `/readyz` what is wrong.

pub mod authority;
mod connection;
mod health;
mod intake;
mod journal;
mod kept_socket;
mod late;
mod limits;
mod listener;
mod metrics;
mod server;
mod service;
mod socket;
mod v1beta1;
mod v2;

pub use connection::Peer;
pub use health::{Condition, Timing};
pub use late::LateBackend;
pub use server::{Error, Handle, HealthAddress, Options, Patience, Server, StatusVersion};
pub use socket::{Access, Error as SocketError};
