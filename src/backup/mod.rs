//! What is done with backups: each operation takes a snapshot and returns a report.

mod inspect;
pub mod residue;
mod rewrite;

pub use inspect::inspect;
pub use rewrite::{Change, Error, RewriteOptions, rewrite};
