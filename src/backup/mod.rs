//! What is done with backups: each operation takes a snapshot and returns a report.

mod rewrite;

pub use rewrite::{Change, Error, RewriteOptions, rewrite};
