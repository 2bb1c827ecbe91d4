//! etcd's write-ahead log: every request that a member ever got, until its segment is purged.
//!
//! The log outlives what it says. A value that was overwritten, compacted and defragmented away is still in the segment
//! it was first written to, and a small cluster keeps its first segment for ever. It also holds what was never applied:
//! the branch of a transaction that was not taken, the value that a comparison names, and entries of a leader that lost
//! its office.
//!
//! ```text
//! Directory     the segments of a `member/wal`, and what else lies there
//! Wal           the opened segments, or segments in memory
//! Records       one record after the other, damage, and bytes that belong to none
//! Index         which entries count, which were discarded, what is committed
//! Request       what an entry asks for, and every value in it
//! RaftSnapshot  a `.snap` file of `member/snap`
//! ```
//!
//! No request says whether it was applied; an [`Index`] says which entries count and are committed.
//!
//! ```
//! use atrest::snapshot::wal::{Fate, Index, Mode, Request, Wal};
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/etcd/wal/two-segments");
//! let wal = Wal::open(path.as_ref())?;
//! let index = Index::build(&wal, Mode::Salvage)?;
//! let mut overridden = Vec::new();
//! index.visit(&wal, |indexed, entry| {
//!     let request = Request::parse(&entry);
//!     if indexed.fate == Fate::Discarded {
//!         request.for_each_value(|value| overridden.push((indexed.index, request.to_string(), value.value.len())));
//!     }
//! })?;
//! assert_eq!(overridden, [(22, "put /registry/secrets/demo/overridden".to_owned(), 20)]);
//! # Ok::<(), atrest::snapshot::wal::Error>(())
//! ```
//!
//! Sources: etcd `server/storage/wal` (framing and checksums), `walpb/record.proto`, `raft/raftpb/raft.proto`,
//! `api/etcdserverpb/{rpc,raft_internal,etcdserver}.proto`.

mod directory;
mod error;
mod frame;
mod index;
mod item;
mod reader;
mod record;
pub mod request;
mod snap;
mod window;

use std::fmt;
use std::ops::Deref;

pub use directory::{Directory, Remnant, RemnantKind, Segment, Wal};
pub use error::Error;
pub use frame::MAX_RECORD_BYTES;
pub use index::{Fate, Index, IndexedEntry, MAX_KEPT};
pub use item::{Check, Corruption, Damage, DamageKind, End, Item, Leftover, LeftoverPlace, Mode, Position};
pub use reader::Records;
pub use record::{Entry, EntryType, HardState, Metadata, Record, RecordKind, Snapshot};
pub use request::Request;
pub use snap::{RaftSnapshot, SnapError};

/// Bytes that may hold a secret in the clear. `Debug` says how many there are.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Redacted<'a>(pub &'a [u8]);

impl Deref for Redacted<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl fmt::Debug for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} bytes]", self.0.len())
    }
}

/// An etcd key: printed as text, what is not ASCII escaped.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key<'a>(pub &'a [u8]);

impl Deref for Key<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}
