use rusqlite::Connection;

use super::row::COMPACT_REV_KEY;
use super::{Error, Layout, Problems};

/// The columns that kine has had since its first version (`pkg/drivers/sqlite`).
const COLUMNS: [&str; 9] =
    ["id", "name", "created", "deleted", "create_revision", "prev_revision", "lease", "value", "old_value"];

/// How many tables of another database are named.
const MAX_TABLES: usize = 100;

/// Whether there is a table `kine`, and its rows can be read by their names, in order.
pub(super) fn check(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
}

/// What is wrong with the table, if anything.
pub(super) fn verdict(connection: &Connection) -> Result<Result<(), Error>, rusqlite::Error> {
    let encoding: String = connection.query_row("SELECT encoding FROM pragma_encoding", [], |row| row.get(0))?;
    let table: Option<(String, bool)> = first(
        connection,
        "SELECT type, wr FROM pragma_table_list WHERE schema = 'main' AND name = 'kine' COLLATE NOCASE",
        |row| Ok((lossy(row, 0)?, row.get::<_, i64>(1)? != 0)),
    )?;
    let Some((kind, without_rowid)) = table else {
        return Ok(Err(Error::NoTable { tables: tables(connection)? }));
    };
    if kind != "table" {
        return Ok(Err(Error::Layout(Layout::NotATable(kind))));
    }
    let mut present = Vec::new();
    let mut id_is_row_id = false;
    let mut statement = connection.prepare("SELECT lower(name), upper(type), pk FROM pragma_table_info('kine')")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let name = lossy(row, 0)?;
        id_is_row_id |= name == "id" && lossy(row, 1)? == "INTEGER" && row.get::<_, i64>(2)? == 1;
        present.push(name);
    }
    let missing: Vec<_> = COLUMNS.into_iter().filter(|column| !present.iter().any(|name| name == column)).collect();
    let problem = match () {
        () if !missing.is_empty() => Layout::MissingColumns(missing),
        () if without_rowid || !id_is_row_id => Layout::IdIsNoRowId,
        () if encoding != "UTF-8" => Layout::Encoding(encoding),
        () if !has_index_of_names(connection)? => Layout::NoIndexOfNames,
        () => return Ok(Ok(())),
    };
    Ok(Err(Error::Layout(problem)))
}

fn tables(connection: &Connection) -> Result<Vec<String>, rusqlite::Error> {
    let mut statement = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite^_%' ESCAPE '^'")?;
    let mut rows = statement.query([])?;
    let mut tables = Vec::new();
    while let Some(row) = rows.next()?.filter(|_| tables.len() < MAX_TABLES) {
        tables.push(lossy(row, 0)?);
    }
    Ok(tables)
}

/// Behind the names an index has the IDs, whether they are named or not.
fn has_index_of_names(connection: &Connection) -> Result<bool, rusqlite::Error> {
    let found = first(
        connection,
        "SELECT 1 FROM pragma_index_list('kine') AS list JOIN pragma_index_xinfo(list.name) AS part \
         WHERE list.partial = 0 AND part.seqno = 0 AND lower(part.name) = 'name' AND part.desc = 0 \
         AND part.coll = 'BINARY'",
        |_| Ok(()),
    )?;
    Ok(found.is_some())
}

/// The revision of the store: kine takes the largest ID for it.
pub(super) fn head(connection: &Connection) -> Result<i64, rusqlite::Error> {
    Ok(connection.query_row("SELECT max(id) FROM kine", [], |row| row.get::<_, Option<i64>>(0))?.unwrap_or(0))
}

/// The compacted revision, 0 when nothing was compacted. Of two rows, which a bug of kine has left, the larger counts.
pub(super) fn compacted(connection: &Connection) -> Result<i64, rusqlite::Error> {
    let sql = "SELECT max(prev_revision) FROM kine WHERE name = ?1 AND typeof(prev_revision) = 'integer'";
    Ok(connection.query_row(sql, [COMPACT_REV_KEY], |row| row.get::<_, Option<i64>>(0))?.unwrap_or(0))
}

/// What no walk comes by: rows without a name, and a compacted revision that is none.
pub(super) fn unreachable(connection: &Connection, head: i64) -> Result<Problems, rusqlite::Error> {
    let mut problems = Problems::default();
    let mut statement = connection.prepare("SELECT id FROM kine WHERE name IS NULL AND id <= ?1")?;
    let mut rows = statement.query([head])?;
    while let Some(row) = rows.next()? {
        problems.add(row.get(0)?, "name", super::Found::Null);
    }
    let mut statement = connection
        .prepare("SELECT id, prev_revision FROM kine WHERE name = ?1 AND typeof(prev_revision) <> 'integer'")?;
    let mut rows = statement.query([COMPACT_REV_KEY])?;
    while let Some(row) = rows.next()? {
        problems.add(row.get(0)?, "prev_revision", super::Found::of(row.get_ref(1)?));
    }
    Ok(problems)
}

fn first<T>(
    connection: &Connection,
    sql: &str,
    read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>, rusqlite::Error> {
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    rows.next()?.map(read).transpose()
}

/// Names in a schema are whatever somebody wrote there.
fn lossy(row: &rusqlite::Row<'_>, index: usize) -> rusqlite::Result<String> {
    Ok(match row.get_ref(index)? {
        rusqlite::types::ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    })
}
