//! `/metrics` of API servers and of etcd: the text format of Prometheus and OpenMetrics, and what is asked of it.
//!
//! What is read comes from a file that somebody sent, so it is bounded and nothing of it is trusted: a line that is no
//! sample is counted and left out.

mod histogram;
mod parse;
mod target;

pub use histogram::{Histogram, Quantile};
pub use parse::{Labels, Metrics};
pub use target::{Scrape, Target, targets};
