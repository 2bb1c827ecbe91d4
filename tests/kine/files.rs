use std::error::Error as _;
use std::path::Path;
use std::time::{Duration, Instant};

use atrest::kine::{Error, Kine, Layout, Values};
use rusqlite::Connection;

use crate::fixture::{Database, Journal, SCHEMA, clean, files, value, view};

fn error(path: &Path) -> Error {
    Kine::open(path).expect_err("it cannot be opened")
}

fn layout(schema: &str) -> Layout {
    match error(&Database::with_schema(Journal::Wal, schema).path()) {
        Error::Layout(layout) => layout,
        error => panic!("{error}"),
    }
}

#[test]
fn a_database_in_use_is_read_with_its_log() {
    let database = Database::new(Journal::Wal);
    database.put("/registry/a", b"v", 0);
    assert_eq!(files(database.path().parent().unwrap()), ["state.db", "state.db-shm", "state.db-wal"]);
    let kine = database.kine();
    assert!(kine.takes_locks());
    assert_eq!(clean(&kine, &view(None)), [value("/registry/a", b"v", 2, 2, 0)]);
    // A writer in the middle of a transaction is no hindrance, and what it has not finished is not there.
    database.connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    database.put("/registry/b", b"v", 0);
    assert_eq!(Kine::open(&database.path()).unwrap().head().unwrap(), 2);
    assert_eq!(kine.head().unwrap(), 2);
    database.connection.execute_batch("COMMIT").unwrap();
    assert_eq!(kine.head().unwrap(), 3);
}

#[test]
fn a_copy_is_read_without_leaving_files_beside_it() {
    for journal in Journal::ALL {
        let database = Database::new(journal);
        database.put("/registry/a", b"v", 0);
        let (directory, path) = database.close();
        assert_eq!(files(directory.path()), ["state.db"]);
        let before = std::fs::read(&path).unwrap();
        let kine = std::sync::Arc::new(Kine::open(&path).unwrap());
        assert_eq!(kine.takes_locks(), journal == Journal::Rollback);
        assert_eq!(kine.path(), path.canonicalize().unwrap());
        assert_eq!(clean(&kine, &view(None)), [value("/registry/a", b"v", 2, 2, 0)]);
        drop(kine);
        assert_eq!(files(directory.path()), ["state.db"]);
        assert!(std::fs::read(&path).unwrap() == before);
    }
}

#[test]
fn a_copy_with_its_log_is_read_with_the_log() {
    let database = Database::new(Journal::Wal);
    database.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    database.put("/registry/a", b"v", 0);
    let copies = tempfile::tempdir().unwrap();
    for name in ["state.db", "state.db-wal"] {
        std::fs::copy(database.path().with_file_name(name), copies.path().join(name)).unwrap();
    }
    let path = copies.path().join("state.db");
    let kine = std::sync::Arc::new(Kine::open(&path).unwrap());
    assert_eq!(clean(&kine, &view(None)), [value("/registry/a", b"v", 2, 2, 0)]);
    drop(kine);
    // Where SQLite cannot keep its index, the log is not left out.
    std::fs::remove_file(copies.path().join("state.db-shm")).unwrap();
    let nowhere = copies.path().join("missing/file");
    std::os::unix::fs::symlink(&nowhere, copies.path().join("state.db-shm")).unwrap();
    let error = error(&path);
    assert!(matches!(&error, Error::NoSharedMemory { path: found } if found.ends_with("state.db")), "{error:?}");
    // Without its log it is an older database.
    std::fs::remove_file(copies.path().join("state.db-shm")).unwrap();
    std::fs::remove_file(copies.path().join("state.db-wal")).unwrap();
    assert_eq!(Kine::open(&path).unwrap().head().unwrap(), 1);
}

#[test]
fn nothing_has_to_be_written_to_read_a_copy() {
    use std::os::unix::fs::PermissionsExt as _;

    let database = Database::new(Journal::Wal);
    database.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    database.put("/registry/a", b"v", 0);
    let [log, index] = ["state.db-wal", "state.db-shm"];
    for (beside, head) in [(&[][..], Ok(1)), (&[index], Ok(1)), (&[log, index], Ok(2)), (&[log], Err(()))] {
        let copies = tempfile::tempdir().unwrap();
        for name in std::iter::once(&"state.db").chain(beside) {
            let copy = copies.path().join(name);
            std::fs::copy(database.path().with_file_name(name), &copy).unwrap();
            std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o444)).unwrap();
        }
        std::fs::set_permissions(copies.path(), std::fs::Permissions::from_mode(0o555)).unwrap();
        // Root may write in spite of that, and then there is no case that fails.
        let writable = std::fs::write(copies.path().join("x"), b"").is_ok();
        let read = Kine::open(&copies.path().join("state.db")).and_then(|kine| kine.head());
        match head {
            Ok(head) => assert_eq!(read.unwrap(), head, "{beside:?}"),
            Err(()) if writable => assert_eq!(read.unwrap(), 2),
            Err(()) => assert!(matches!(read, Err(Error::NoSharedMemory { .. }))),
        }
        std::fs::set_permissions(copies.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn an_index_without_a_log_that_cannot_be_used_is_done_without() {
    let database = Database::new(Journal::Wal);
    let (directory, path) = database.close();
    std::fs::write(directory.path().join("state.db-shm"), [0; 32768]).unwrap();
    std::os::unix::fs::symlink(directory.path().join("missing/file"), directory.path().join("state.db-wal")).unwrap();
    let kine = Kine::open(&path).unwrap();
    assert_eq!((kine.takes_locks(), kine.head().unwrap()), (false, 1));
}

#[test]
fn a_change_of_a_file_that_nobody_had_open_is_noticed() {
    let (_directory, path) = Database::new(Journal::Wal).close();
    let kine = std::sync::Arc::new(Kine::open(&path).unwrap());
    let mut values = Values::new(&kine, &view(None)).unwrap();
    let writer = Connection::open(&path).unwrap();
    writer.execute("INSERT INTO kine (name, value) VALUES ('/registry/a', 'v')", []).unwrap();
    assert!(matches!(values.next_values(), Err(Error::Changed)));
    assert!(matches!(kine.head(), Err(Error::Changed)));
    assert_eq!(Kine::open(&path).unwrap().head().unwrap(), 2);
}

#[test]
fn a_lock_is_waited_for_and_not_for_long() {
    let database = Database::new(Journal::Rollback);
    let kine = database.kine();
    let mut values = Values::new(&kine, &view(None)).unwrap();
    database.connection.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let began = Instant::now();
    let error = kine.head().unwrap_err();
    assert_eq!(error.to_string(), "the database is locked by a program that writes to it; nothing was read in 2 s");
    assert!((Duration::from_secs(1)..Duration::from_secs(10)).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert!(matches!(values.next_values(), Err(Error::Busy { .. })));
    database.connection.execute_batch("COMMIT").unwrap();
    assert!(matches!(values.next_values(), Ok(None)));
    assert_eq!(kine.head().unwrap(), 1);
}

#[test]
fn a_transaction_that_was_never_finished_is_told() {
    let database = Database::new(Journal::Rollback);
    database.connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA cache_size = 5; BEGIN IMMEDIATE").unwrap();
    for number in 0..100 {
        database.put(&format!("/registry/{number}"), &[7; 1000], 0);
    }
    let copies = tempfile::tempdir().unwrap();
    for name in ["state.db", "state.db-journal"] {
        std::fs::copy(database.path().with_file_name(name), copies.path().join(name)).unwrap();
    }
    let error = error(&copies.path().join("state.db"));
    assert!(matches!(error, Error::Unfinished), "{error:?}");
}

#[test]
fn other_files_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    let missing = error(&path);
    assert!(matches!(&missing, Error::Open { .. }) && missing.source().is_some());
    assert!(matches!(error(directory.path()), Error::Directory { .. }));
    std::fs::write(&path, b"").unwrap();
    assert_eq!(error(&path).to_string(), "a SQLite database without the table `kine`; it has no tables");
    std::fs::write(&path, [b'x'; 4096]).unwrap();
    assert_eq!(error(&path).to_string(), format!("{} is not a SQLite database", path.display()));
    std::fs::write(&path, b"SQLite format 3\0").unwrap();
    assert!(matches!(error(&path), Error::NotSqlite { .. } | Error::Sqlite(_) | Error::NoTable { .. }));
    assert!(matches!(error(Path::new("/dev/null")), Error::NotSqlite { .. }));
    assert_eq!(files(directory.path()), ["x"]);
    let other = Database::with_schema(Journal::Wal, "CREATE TABLE key_value (id INTEGER); CREATE TABLE \"b\nc\" (x)");
    let error = error(&other.path());
    assert!(matches!(&error, Error::NoTable { tables } if tables == &["key_value", "b\nc"]), "{error}");
}

#[test]
fn a_table_that_is_not_kines_is_told() {
    assert_eq!(layout("CREATE VIEW kine AS SELECT 1 AS id"), Layout::NotATable("view".to_owned()));
    assert_eq!(layout("CREATE VIRTUAL TABLE kine USING fts5 (id, name)"), Layout::NotATable("virtual".to_owned()));
    assert_eq!(
        layout("CREATE TABLE kine (id INTEGER PRIMARY KEY, name, created, deleted, create_revision, value)"),
        Layout::MissingColumns(vec!["prev_revision", "lease", "old_value"])
    );
    assert_eq!(layout(&SCHEMA.replace("INTEGER PRIMARY KEY AUTOINCREMENT", "INTEGER")), Layout::IdIsNoRowId);
    let without = SCHEMA.replace(" AUTOINCREMENT", "").replace("old_value BLOB)", "old_value BLOB) WITHOUT ROWID");
    assert_eq!(layout(&without), Layout::IdIsNoRowId);
    assert_eq!(layout(SCHEMA.split(';').next().unwrap()), Layout::NoIndexOfNames);
    assert_eq!(
        layout(&SCHEMA.replace("name INTEGER", "name TEXT COLLATE NOCASE")),
        Layout::NoIndexOfNames,
        "names that differ in case are different keys"
    );
    assert_eq!(layout(&format!("PRAGMA encoding = 'UTF-16le'; {SCHEMA}")), Layout::Encoding("UTF-16le".to_owned()));
    assert_eq!(
        Error::Layout(Layout::MissingColumns(vec!["lease", "old_value"])).to_string(),
        "the table `kine` is not as kine creates it: it has no column lease, old_value"
    );
}

#[test]
fn the_first_versions_of_kine_had_fewer_indexes() {
    let schema: Vec<_> =
        SCHEMA.split(';').filter(|part| !part.contains("_id_") && !part.contains("kine_prev")).collect();
    let schema = schema.join(";");
    assert_eq!(schema.matches("INDEX").count(), 2);
    let database = Database::with_schema(Journal::Rollback, &schema);
    database.put("/registry/a", b"v", 0);
    assert_eq!(clean(&database.kine(), &view(None)), [value("/registry/a", b"v", 1, 1, 0)]);
}

#[test]
fn a_file_may_have_any_name() {
    let (directory, path) = Database::new(Journal::Wal).close();
    for name in [":memory:", "file:x?mode=memory", "a b?immutable=1#%41", "\u{e4}\\.db"] {
        let odd = directory.path().join(name);
        std::fs::copy(&path, &odd).unwrap();
        assert_eq!(Kine::open(&odd).unwrap().head().unwrap(), 1, "{name}");
    }
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(Kine::open(&link).unwrap().path(), path.canonicalize().unwrap());
}
