use std::path::{Path, PathBuf};
use std::sync::Arc;

use atrest::kine::{Error, Kine, Problems, Values, View};
use atrest::source::StoredValue;
use rusqlite::{Connection, OptionalExtension as _, params};
use tempfile::TempDir;

/// Kine's table and its indexes, as of version 0.11 and later (`pkg/drivers/sqlite`).
pub(crate) const SCHEMA: &str = "
    CREATE TABLE kine (id INTEGER PRIMARY KEY AUTOINCREMENT, name INTEGER, created INTEGER, deleted INTEGER,
        create_revision INTEGER, prev_revision INTEGER, lease INTEGER, value BLOB, old_value BLOB);
    CREATE INDEX kine_name_index ON kine (name);
    CREATE INDEX kine_name_id_index ON kine (name, id);
    CREATE INDEX kine_id_deleted_index ON kine (id, deleted);
    CREATE INDEX kine_prev_revision_index ON kine (prev_revision);
    CREATE UNIQUE INDEX kine_name_prev_revision_uindex ON kine (name, prev_revision);";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Journal {
    Wal,
    Rollback,
}

impl Journal {
    pub(crate) const ALL: [Self; 2] = [Self::Wal, Self::Rollback];
}

/// A database that is written as kine does it.
pub(crate) struct Database {
    directory: TempDir,
    pub(crate) connection: Connection,
}

/// A row: its ID, when its key was created, whether it is a deletion, and its value.
type Last = (i64, i64, bool, Vec<u8>);

impl Database {
    /// A database with the row in which kine notes the compacted revision: revision 1.
    pub(crate) fn new(journal: Journal) -> Self {
        let database = Self::with_schema(journal, SCHEMA);
        assert_eq!(database.insert("compact_rev_key", (true, false), 0, 0, 0, Some(b""), None), 1);
        database
    }

    pub(crate) fn with_schema(journal: Journal, schema: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let connection = Connection::open(directory.path().join("state.db")).unwrap();
        let mode = match journal {
            Journal::Wal => "wal",
            Journal::Rollback => "delete",
        };
        connection.pragma_update(None, "synchronous", false).unwrap();
        connection.pragma_update(None, "journal_mode", mode).unwrap();
        connection.execute_batch(schema).unwrap();
        Self { directory, connection }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("state.db")
    }

    pub(crate) fn kine(&self) -> Arc<Kine> {
        Arc::new(Kine::open(&self.path()).unwrap())
    }

    /// Closes it, and leaves the file.
    pub(crate) fn close(self) -> (TempDir, PathBuf) {
        let path = self.path();
        self.connection.close().unwrap();
        (self.directory, path)
    }

    #[allow(clippy::too_many_arguments, reason = "a row has as many columns")]
    pub(crate) fn insert(
        &self,
        name: &str,
        (created, deleted): (bool, bool),
        create_revision: i64,
        prev_revision: i64,
        lease: i64,
        value: Option<&[u8]>,
        old_value: Option<&[u8]>,
    ) -> i64 {
        let sql = "INSERT INTO kine (name, created, deleted, create_revision, prev_revision, lease, value, old_value) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        self.connection
            .execute(sql, params![name, created, deleted, create_revision, prev_revision, lease, value, old_value])
            .unwrap();
        self.connection.last_insert_rowid()
    }

    fn last(&self, key: &str) -> Option<Last> {
        let sql = "SELECT id, iif(created, id, create_revision), deleted, value FROM kine WHERE name = ?1 \
                   ORDER BY id DESC LIMIT 1";
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        self.connection.query_row(sql, [key], read).optional().unwrap()
    }

    /// Creates or updates a key.
    pub(crate) fn put(&self, key: &str, value: &[u8], lease: i64) -> i64 {
        match self.last(key) {
            None => self.insert(key, (true, false), 0, 0, lease, Some(value), None),
            Some((id, _, true, old)) => self.insert(key, (true, false), 0, id, lease, Some(value), Some(&old)),
            Some((id, created, false, old)) => {
                self.insert(key, (false, false), created, id, lease, Some(value), Some(&old))
            }
        }
    }

    /// Deletes a key if it exists.
    pub(crate) fn delete(&self, key: &str) -> Option<i64> {
        let (id, created, _, old) = self.last(key).filter(|(.., deleted, _)| !deleted)?;
        Some(self.insert(key, (false, true), created, id, 0, Some(&old), Some(&old)))
    }

    /// Takes up the next revision.
    pub(crate) fn gap(&self) -> i64 {
        let id = self.head() + 1;
        let sql = "INSERT INTO kine VALUES (?1, ?2, 0, 1, 0, 0, 0, NULL, NULL)";
        self.connection.execute(sql, params![id, format!("gap-{id}")]).unwrap();
        id
    }

    pub(crate) fn head(&self) -> i64 {
        self.connection.query_row("SELECT max(id) FROM kine", [], |row| row.get(0)).unwrap()
    }

    /// Removes what was superseded or deleted up to a revision.
    pub(crate) fn compact(&self, revision: i64) {
        let transaction = self.connection.unchecked_transaction().unwrap();
        let superseded = "DELETE FROM kine WHERE id <= ?1 AND (deleted = 1 OR id IN (SELECT prev_revision FROM kine \
                          WHERE id <= ?1 AND name <> 'compact_rev_key'))";
        transaction.execute(superseded, [revision]).unwrap();
        transaction.execute("UPDATE kine SET prev_revision = ?1 WHERE name = 'compact_rev_key'", [revision]).unwrap();
        transaction.commit().unwrap();
    }
}

pub(crate) fn view(revision: Option<i64>) -> View {
    View { revision, ..View::default() }
}

pub(crate) fn history() -> View {
    View { history: true, ..View::default() }
}

pub(crate) fn below(prefixes: &[&[u8]]) -> View {
    View { prefixes: prefixes.iter().map(|prefix| prefix.to_vec()).collect(), ..View::default() }
}

/// Every value of a view, and what could not be read.
pub(crate) fn all(kine: &Arc<Kine>, view: &View) -> Result<(Vec<StoredValue>, Problems), Error> {
    let mut values = Values::new(kine, view)?;
    let mut found = Vec::new();
    while let Some(mut page) = values.next_values()? {
        assert!(!page.is_empty());
        found.append(&mut page);
    }
    assert!(matches!(values.next_values(), Ok(None)));
    Ok((found, values.problems().clone()))
}

/// Every value of a view that can be read completely.
pub(crate) fn clean(kine: &Arc<Kine>, view: &View) -> Vec<StoredValue> {
    let (values, problems) = all(kine, view).unwrap();
    assert_eq!(problems, Problems::default());
    values
}

pub(crate) fn value(key: &str, value: &[u8], create_revision: i64, mod_revision: i64, lease: i64) -> StoredValue {
    StoredValue {
        key: key.as_bytes().to_vec(),
        value: value.to_vec(),
        create_revision,
        mod_revision,
        version: 0,
        lease,
    }
}

pub(crate) fn keys(values: &[StoredValue]) -> Vec<String> {
    values.iter().map(|value| value.key.escape_ascii().to_string()).collect()
}

/// The names of the files beside the database, and its own.
pub(crate) fn files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}
