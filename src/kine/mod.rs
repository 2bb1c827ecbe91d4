//! The database of kine, which k3s keeps its objects in instead of in etcd: one table of SQLite, read without kine.
//!
//! ```text
//! kine   a row for each change of each key; its ID is the revision
//!   id               the revision of the change
//!   name             the key
//!   created          1 if the key did not exist before
//!   deleted          1 if the change is a deletion; `value` is then a copy of what was deleted
//!   create_revision  the revision of the creation; in the row that creates the key it is not set
//!   prev_revision    the ID of the row of the same key before, 0 if there was none
//!   lease            a time to live in seconds: kine has no leases, and takes the number of one for its duration
//!   value            what was written
//!   old_value        the value of the row before
//! ```
//!
//! A key is what its last row says. Two kinds of rows are not keys: `compact_rev_key`, whose `prev_revision` is the
//! compacted revision, and `gap-N`, which takes up revision N because nothing else did. A compaction removes rows that
//! were superseded, and rows that note deletions. What it removes is still in the `old_value` of the row that came
//! after it, until that is removed too. Sources: kine's `pkg/drivers/sqlite`, `pkg/drivers/generic` and
//! `pkg/logstructured/sqllog`.
//!
//! Kine counts no versions, and tells its clients 0; so do the values here, and with them the number of writes in a
//! report.
//!
//! # Locks
//!
//! The file is opened read-only, and each page of values is a short transaction. In the mode that k3s uses (WAL)
//! readers and writers do not wait for each other. In the other mode kine has to wait for the end of a page, and a page
//! for the end of a transaction, for two seconds: then [`Error::Busy`] says so.
//!
//! | beside the database | it is read |
//! |---|---|
//! | `-wal` and `-shm`: it is in use, or was | with SQLite's locks, the log included |
//! | a `-wal` with content, but no `-shm` | likewise; SQLite creates the `-shm`, for which it must be allowed to |
//! | neither, and the header says WAL: a copy, or k3s is stopped | without locks, and without leaving files beside it |
//! | a `-shm` without a log, where nothing can be written | likewise |
//! | neither, and the header says otherwise | with SQLite's locks |
//!
//! When a file that is read without locks changes after all, reading ends with [`Error::Changed`]. A copy that was made
//! without its `-wal` lacks what was written last, and nothing in it says so.
//!
//! To see the header of a database without `-shm`, [`Kine::open`] opens and closes the file, which gives up POSIX locks
//! that the same process holds: a program that writes to the same database by itself, and not in WAL mode, must not do
//! so meanwhile.
//!
//! Everything in the table may have been written to harm: SQLite keeps any type in any column. What cannot be read is
//! told with its row and column, as [`Problems`].

mod error;
mod open;
mod row;
mod schema;
mod values;
mod walk;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rusqlite::Connection;

pub use error::{Error, Layout};
pub use row::{BadRow, Found, MAX_NAME_BYTES, MAX_VALUE_BYTES, Problems};
pub use values::{Values, View};

use open::{Opened, Seen};

/// A database of kine.
pub struct Kine {
    connection: Mutex<Connection>,
    path: PathBuf,
    seen: Option<Seen>,
}

impl std::fmt::Debug for Kine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kine").field("path", &self.path).field("locks", &self.seen.is_none()).finish_non_exhaustive()
    }
}

impl Kine {
    /// Opens a database, which is called `state.db` by k3s and by kine. Nothing is written to it.
    ///
    /// # Errors
    ///
    /// When it is none, or not kine's, or cannot be read, or stays locked for more than two seconds.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let Opened { connection, path, seen } = open::open(path)?;
        let kine = Self { connection: Mutex::new(connection), path, seen };
        kine.read(schema::verdict)??;
        Ok(kine)
    }

    /// The file, behind all links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is read with SQLite's locks, because somebody may write to it.
    #[must_use]
    pub fn takes_locks(&self) -> bool {
        self.seen.is_none()
    }

    /// The revision of the store: the ID of its last row, 0 without rows.
    ///
    /// # Errors
    ///
    /// When the database cannot be read.
    pub fn head(&self) -> Result<i64, Error> {
        self.read(schema::head)
    }

    /// The first revision that can be read; 0 when nothing was compacted yet.
    ///
    /// # Errors
    ///
    /// When the database cannot be read.
    pub fn compacted(&self) -> Result<i64, Error> {
        self.read(schema::compacted)
    }

    /// Reads something in one transaction.
    fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>) -> Result<T, Error> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |error| open::of_sqlite(error, &self.path);
        let transaction = connection.unchecked_transaction().map_err(failed)?;
        let result = read(&transaction);
        // Nothing was written that could be kept.
        let finished = transaction.finish();
        // Half of a change looks like damage.
        if self.seen.is_some_and(|seen| Seen::now(&self.path).ok() != Some(seen)) {
            return Err(Error::Changed);
        }
        let value = result.map_err(failed)?;
        finished.map_err(failed)?;
        Ok(value)
    }
}
