//! What is done with backups: each operation takes a snapshot and returns a report.

mod diff;
mod export;
mod history;
mod inspect;
pub mod residue;
mod rewrite;

pub use diff::diff;
pub use export::{Export, ExportError, Exported};
pub use history::history;
pub use inspect::{inspect, not_yet_in_db};
pub use rewrite::{Change, Error, RewriteOptions, rewrite};
