use std::io;
use std::path::PathBuf;

/// Why a log cannot be read. Damage inside it is not an error but [`Item::Damage`](super::Item::Damage).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The directory cannot be listed: for the operator.
    #[error("cannot list {}", path.display())]
    ReadDir {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A segment cannot be opened: for the operator.
    #[error("cannot open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no segment in the directory.
    #[error("no segment of a write-ahead log in {}", path.display())]
    NoSegments {
        /// The directory.
        path: PathBuf,
    },
    /// Bytes that were there when the segment was opened cannot be read.
    #[error("cannot read {name} at byte {offset}")]
    Read {
        /// The segment's name.
        name: String,
        /// Where in it, in bytes.
        offset: u64,
        /// Why.
        source: io::Error,
    },
}
