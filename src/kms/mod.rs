//! KMS plugins: what kube-apiserver asks of them, over a unix socket.
//!
//! [`Kms`] has a client for each KMS provider of a configuration, and tells the providers what the plugins answer: values are then
//! opened and sealed without any I/O. Upstream: `k8s.io/apiserver/pkg/storage/value/encrypt/envelope`.

pub mod api;
pub mod check;
mod client;
mod connection;
mod error;
mod keeper;
mod metrics;
mod patience;
mod plugin;
mod resolver;

use std::sync::Arc;
use std::time::Duration;

pub use crate::grpc::code_name;
pub use client::{Client, Encrypted, Status};
pub use connection::Connection;
pub use error::Error;
pub use metrics::Metrics;
pub use resolver::Kms;

use crate::config::Endpoint;

/// How plugins are asked. The defaults are kube-apiserver's, where it has the setting.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many calls are under way at once, over all plugins.
    pub concurrency: usize,
    /// Sockets in place of those in the configuration, by the name of the provider.
    pub endpoints: Vec<(String, Endpoint)>,
    /// How often the status is asked for while something is written.
    pub status_interval: Duration,
    /// How soon after a failure it is asked for again.
    pub retry_interval: Duration,
    /// How long one goes on asking a plugin that has answered before and does not answer now, as while it restarts.
    pub patience: Duration,
    /// How long after the last healthy status values are still written.
    pub write_validity: Duration,
    /// What is counted, where it is.
    pub metrics: Option<Arc<Metrics>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            concurrency: 16,
            endpoints: Vec::new(),
            status_interval: Duration::from_secs(60),
            retry_interval: Duration::from_secs(10),
            patience: Duration::from_secs(30),
            write_validity: Duration::from_secs(180),
            metrics: None,
        }
    }
}
