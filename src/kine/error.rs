use std::io;
use std::path::PathBuf;

/// Why a database of kine cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be found or looked at. For whoever named it.
    #[error("{}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It is a directory: k3s has the file in `/var/lib/rancher/k3s/server/db/state.db`.
    #[error("{} is a directory, and not the database itself (k3s calls it state.db)", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// A file of another program, or an encrypted one.
    #[error("{} is not a SQLite database", path.display())]
    NotSqlite {
        /// The file.
        path: PathBuf,
    },
    /// A SQLite database of something else.
    #[error("a SQLite database without the table `kine`; {}", tables_of(.tables))]
    NoTable {
        /// The tables that there are, the first of them.
        tables: Vec<String>,
    },
    /// A table `kine` that is not kine's.
    #[error("the table `kine` is not as kine creates it: {0}")]
    Layout(Layout),
    /// A writer holds the lock. Later it can be read.
    #[error("the database is locked by a program that writes to it; nothing was read in {} s", waited.as_secs())]
    Busy {
        /// For how long it was tried.
        waited: std::time::Duration,
    },
    /// A transaction of a writer that died has to be undone first, and only a writer may.
    #[error(
        "the database was left in the middle of a transaction: let kine start with it, or open a copy of it and of its \
         -journal with `sqlite3` once"
    )]
    Unfinished,
    /// The write-ahead log beside the file must be read, and SQLite has to write its index for that.
    #[error(
        "{}-wal belongs to the database, and SQLite cannot create {}-shm to read it: copy the files to a directory \
         that can be written to",
        path.display(),
        path.display()
    )]
    NoSharedMemory {
        /// The database.
        path: PathBuf,
    },
    /// Somebody has begun to write to a file that nobody had open.
    #[error("the file was changed while it was read")]
    Changed,
    /// The revision was compacted away.
    #[error("revision {asked} was compacted: the database has everything from revision {compacted} on")]
    Compacted {
        /// The revision that was asked for.
        asked: i64,
        /// The first that can be read.
        compacted: i64,
    },
    /// The revision is not in the database yet.
    #[error("revision {asked} is not in the database: its last is {head}")]
    FutureRevision {
        /// The revision that was asked for.
        asked: i64,
        /// The last that can be read.
        head: i64,
    },
    /// An index that is damaged, or was made to mislead: there may be rows that it does not lead to.
    #[error("the index of the names does not agree with the table at row {id}: the database is damaged")]
    Index {
        /// The ID of the row.
        id: i64,
    },
    /// SQLite cannot read the file: it is damaged, or the disk is.
    #[error("the database cannot be read")]
    Sqlite(#[source] rusqlite::Error),
}

/// What is different about a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Layout {
    /// It is a view or a virtual table.
    #[error("it is a {0}, and not a table with rows")]
    NotATable(String),
    /// Columns are missing.
    #[error("it has no column {}", .0.join(", "))]
    MissingColumns(Vec<&'static str>),
    /// The revision of a row is its number in SQLite.
    #[error("its column id is not an INTEGER PRIMARY KEY")]
    IdIsNoRowId,
    /// Without one each page would take a walk through the whole table.
    #[error("it has no index of the names: `CREATE INDEX kine_name_index ON kine (name)` in a copy makes one")]
    NoIndexOfNames,
    /// Names would be compared as what they are not.
    #[error("its text is {0}, and not UTF-8")]
    Encoding(String),
}

fn tables_of(tables: &[String]) -> String {
    match tables {
        [] => "it has no tables".to_owned(),
        tables => format!("its tables are: {}", tables.join(", ")),
    }
}
