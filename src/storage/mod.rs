//! kube-apiserver's way of reading and writing etcd; the only room that writes there.
//!
//! Writes have the one shape that kube-apiserver uses and that kine accepts: one key in a transaction, compared by its
//! `mod_revision`, and read back by the same request when the comparison fails. The lease is always given explicitly.

mod client;
mod connector;
mod dial;
mod endpoint;
mod error;
mod failure;
mod maintenance;
mod range;
mod rewrap;
mod tls;

pub use client::{Client, ConnectOptions, NEVER, ServerStatus, Written};
pub use endpoint::{Address, Endpoint, InvalidEndpoint};
pub use error::Error;
pub use failure::{ConnectError, ConnectFailure};
pub use maintenance::{Alarm, MemberStatus};
pub use range::{KeyRange, Ranges};
pub use rewrap::{Refusal, Rewrap, RewrapOptions, Sealed};
pub use tls::{TlsError, TlsFailure, TlsOptions};
