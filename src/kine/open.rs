use std::fmt::Write as _;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::config::DbConfig;
use rusqlite::ffi::ErrorCode;
use rusqlite::{Connection, OpenFlags, ffi};

use super::{Error, schema};

/// For so long a lock is waited for. Kine itself waits for 5 s, or for 30.
const PATIENCE: Duration = Duration::from_secs(2);

/// A database that is open.
pub(super) struct Opened {
    pub(super) connection: Connection,
    /// The file itself, behind all links: what belongs to it is beside it.
    pub(super) path: PathBuf,
    /// What the file looked like, when it is read without locks.
    pub(super) seen: Option<Seen>,
}

/// What a file looked like that nobody was to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    bytes: u64,
    modified: Option<SystemTime>,
    log_bytes: u64,
}

impl Seen {
    pub(super) fn now(path: &Path) -> io::Result<Self> {
        let file = std::fs::metadata(path)?;
        Ok(Self { bytes: file.len(), modified: file.modified().ok(), log_bytes: len(&beside(path, "-wal")) })
    }
}

pub(super) fn open(path: &Path) -> Result<Opened, Error> {
    let failed = |source| Error::Open { path: path.to_owned(), source };
    let file = std::fs::canonicalize(path).map_err(failed)?;
    let kind = std::fs::metadata(&file).map_err(failed)?.file_type();
    if kind.is_dir() {
        return Err(Error::Directory { path: path.to_owned() });
    }
    // Opening a pipe would wait for somebody to write to it.
    if !kind.is_file() {
        return Err(Error::NotSqlite { path: path.to_owned() });
    }
    let has_index = beside(&file, "-shm").exists();
    let has_log = len(&beside(&file, "-wal")) > 0;
    // As long as a database is open in this mode there is the index, and where there is none nobody has it open.
    if !has_index && !has_log && is_in_wal_mode(&file).map_err(failed)? {
        return unlocked(path, file);
    }
    match connect(&file, false) {
        Ok(connection) => Ok(Opened { connection, path: file, seen: None }),
        Err(error) if cannot_create(&error) => match (is_in_wal_mode(&file).map_err(failed)?, has_log) {
            (true, true) => Err(Error::NoSharedMemory { path: file }),
            // An index without a log, on a medium that cannot be written to: a copy.
            (true, false) => unlocked(path, file),
            (false, _) => Err(of_sqlite(error, path)),
        },
        Err(error) => Err(of_sqlite(error, path)),
    }
}

fn unlocked(path: &Path, file: PathBuf) -> Result<Opened, Error> {
    let seen = Seen::now(&file).map_err(|source| Error::Open { path: path.to_owned(), source })?;
    let connection = connect(&file, true).map_err(|error| of_sqlite(error, path))?;
    Ok(Opened { connection, path: file, seen: Some(seen) })
}

fn connect(file: &Path, immutable: bool) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(uri(file, immutable), flags)?;
    connection.busy_timeout(PATIENCE)?;
    // Nothing that the file's author wrote into the schema is run.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    // SQLite opens the file when something is read of it.
    schema::check(&connection)?;
    Ok(connection)
}

/// SQLite takes a name that is a URI for one in any case, and `:memory:` for no file.
fn uri(file: &Path, immutable: bool) -> String {
    let mut uri = "file://".to_owned();
    for byte in file.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            // Writing to a string does not fail.
            byte => drop(write!(uri, "%{byte:02x}")),
        }
    }
    if immutable {
        uri.push_str("?immutable=1");
    }
    uri
}

/// Whether the header says so ("Read version", <https://www.sqlite.org/fileformat.html>).
///
/// SQLite tells it only after it has created the files that belong to this mode.
fn is_in_wal_mode(file: &Path) -> io::Result<bool> {
    let mut header = [0; 20];
    match File::open(file)?.read_exact(&mut header) {
        Ok(()) => Ok(header.starts_with(b"SQLite format 3\0") && header.last() == Some(&2)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn len(file: &Path) -> u64 {
    std::fs::metadata(file).as_ref().map_or(0, Metadata::len)
}

/// Whether SQLite could not create the files that belong to WAL mode, or not write to them.
fn cannot_create(error: &rusqlite::Error) -> bool {
    use ffi::{SQLITE_READONLY_CANTINIT, SQLITE_READONLY_CANTLOCK, SQLITE_READONLY_DIRECTORY};
    let of_the_mode = [SQLITE_READONLY_CANTINIT, SQLITE_READONLY_CANTLOCK, SQLITE_READONLY_DIRECTORY];
    error
        .sqlite_error()
        .is_some_and(|error| error.code == ErrorCode::CannotOpen || of_the_mode.contains(&error.extended_code))
}

/// What an error means for whoever named the file.
pub(super) fn of_sqlite(error: rusqlite::Error, path: &Path) -> Error {
    let extended = error.sqlite_error().map(|error| error.extended_code);
    match (error.sqlite_error_code(), extended) {
        (Some(ErrorCode::NotADatabase), _) => Error::NotSqlite { path: path.to_owned() },
        (_, Some(ffi::SQLITE_READONLY_ROLLBACK | ffi::SQLITE_READONLY_RECOVERY)) => Error::Unfinished,
        (Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked), _) => Error::Busy { waited: PATIENCE },
        _ => Error::Sqlite(error),
    }
}
