//! Snapshots and data directories of etcd, read without etcd.
//!
//! ```text
//! file    gzip, zstd, ZIP, or as it is; a trailer with its SHA-256
//! bbolt   pages, buckets, keys and values
//! mvcc    the bucket `key`: a record for each change of each key, ordered by revision
//! ```
//!
//! Everything here reads bytes that may have been damaged, or made to harm: lengths are checked before use, nothing is allocated
//! for bytes that are not there, and a walk ends after as much work as the file is long. No lock is taken or waited for.

pub mod bbolt;
mod carve;
mod data_dir;
mod error;
mod hash;
mod input;
mod key_value;
mod live;
mod open;
mod rebuild;
mod records;
mod remnants;
mod revision;
pub mod schema;
mod trailer;
mod values;
pub mod wal;

use std::path::Path;

pub use bbolt::{MetaChoice, Mode};
pub use carve::{Carved, FreePage};
pub use data_dir::DataDir;
pub use error::{Compression, Error, Foreign, Unverified};
pub use hash::Status;
pub use input::Input;
pub use key_value::KeyValue;
pub use live::{Order, View};
pub use rebuild::{Batches, KeyFilter, Rebuild, RebuildOptions, Rebuilt, Source as RebuildSource, directory_of};
pub use records::{BadRecord, Problems, Record, RecordError, RecordKind};
pub use remnants::{Kept, Marker, Remnants, Removed};
pub use revision::{InvalidRevision, Revision};
pub use trailer::Trailer;
pub use values::Values;
pub(crate) use values::stored_value;

use schema::StoreMeta;

/// How a snapshot is opened.
pub type Options = bbolt::Options;

/// A snapshot of etcd: a bbolt database with etcd's buckets.
#[derive(Debug)]
pub struct Snapshot {
    db: bbolt::Db,
    meta: StoreMeta,
}

impl Snapshot {
    /// Opens a file: a snapshot or a copy of a database, compressed or not, or standard input for `-`.
    ///
    /// # Errors
    ///
    /// When it is none, or is damaged and read strictly.
    pub fn open(path: &Path, options: Options) -> Result<Self, Error> {
        Self::from_input(open::open(path)?, options)
    }

    /// Reads bytes that are a database.
    ///
    /// # Errors
    ///
    /// When they are none, or are damaged and read strictly.
    pub fn from_input(input: Input, options: Options) -> Result<Self, Error> {
        let db = bbolt::Db::open(input, options)?;
        let meta = StoreMeta::read(&db)?;
        Ok(Self { db, meta })
    }

    /// The database.
    #[must_use]
    pub const fn db(&self) -> &bbolt::Db {
        &self.db
    }

    /// What etcd notes of the store.
    #[must_use]
    pub const fn meta(&self) -> &StoreMeta {
        &self.meta
    }

    /// The revision of the store.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn head(&self) -> Result<i64, Error> {
        let mut last = None;
        self.records(&mut Problems::default(), |record| {
            last = Some(record.revision.main);
            std::ops::ControlFlow::Continue(())
        })?;
        Ok(self.meta.head(last))
    }

    /// Compares the hash behind the pages.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn trailer(&self) -> Result<Trailer, Error> {
        // Of two states the pages of the later one are in the file too, whichever is read.
        let metas = self.db.metas().iter().flatten().filter(|meta| meta.page_size == self.db.meta().page_size);
        let largest = metas.max_by_key(|meta| meta.high_water).unwrap_or(self.db.meta());
        Ok(Trailer::check(self.db.input(), largest)?)
    }
}
