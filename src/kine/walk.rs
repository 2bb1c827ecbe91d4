use std::cmp::Ordering;
use std::collections::VecDeque;

use rusqlite::types::Null;
use rusqlite::{Connection, ToSql};

use super::row::{self, COLUMNS, COMPACT_REV_KEY, MAX_VALUE_BYTES, Name, OLD_COLUMNS};
use super::{Error, Problems};
use crate::source::StoredValue;

/// As many rows are read at once.
const PAGE_ROWS: usize = 4096;
/// And as many bytes, unless one row has more.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

/// The newest rows of their names.
const NEWEST: &str = "NOT EXISTS (SELECT 1 FROM kine AS n WHERE n.name IS k.name AND n.id > k.id AND n.id <= ?4)";

/// Whatever else may be in the column, kine has deleted the key only if it is a number.
const NOT_DELETED: &str = "NOT (typeof(kv.deleted) = 'integer' AND kv.deleted <> 0)";

/// Names that are next to each other.
#[derive(Clone, Debug)]
enum Range {
    /// Every name.
    All,
    /// From one on, up to another.
    Between(Name, Name),
}

/// How far a walk has come.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    ranges: VecDeque<Range>,
    /// The last row that was read of the first range.
    after: Option<(Name, i64)>,
    /// What keys begin with, where the ranges do not say it.
    prefixes: Vec<Vec<u8>>,
    history: bool,
}

/// Some rows.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) values: Vec<StoredValue>,
    pub(super) problems: Problems,
    rows: usize,
    bytes: usize,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.rows >= PAGE_ROWS || self.bytes >= PAGE_BYTES
    }
}

impl Walk {
    pub(super) fn new(prefixes: &[Vec<u8>], history: bool) -> Self {
        let mut prefixes = prefixes.to_vec();
        prefixes.sort_unstable();
        prefixes.dedup_by(|later, kept| later.starts_with(kept));
        // What begins with a slash is no number, and SQLite makes none of it.
        let is_ranged = !prefixes.is_empty() && prefixes.iter().all(|prefix| prefix.starts_with(b"/"));
        let ranges = if is_ranged {
            let text = prefixes.iter().map(|prefix| range(prefix, Name::Text));
            text.chain(prefixes.iter().map(|prefix| range(prefix, Name::Blob))).collect()
        } else {
            VecDeque::from([Range::All])
        };
        let prefixes = if is_ranged { Vec::new() } else { prefixes };
        Self { ranges, after: None, prefixes, history }
    }

    pub(super) fn is_over(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Reads some rows of the revisions up to `revision`, in the order of their names.
    pub(super) fn next(
        &mut self,
        connection: &Connection,
        revision: i64,
    ) -> Result<Result<Batch, Error>, rusqlite::Error> {
        let mut batch = Batch::default();
        while let Some(range) = self.ranges.front().cloned() {
            // The rest of a name is asked for apart: SQLite finds the place behind a name and an ID only so.
            let steps: &[bool] = if self.history && self.after.is_some() { &[true, false] } else { &[false] };
            for same_name in steps {
                if let Some(error) = self.step(connection, &range, *same_name, revision, &mut batch)? {
                    return Ok(Err(error));
                }
                if batch.is_full() {
                    return Ok(Ok(batch));
                }
            }
            self.ranges.pop_front();
            self.after = None;
        }
        Ok(Ok(batch))
    }

    fn step(
        &mut self,
        connection: &Connection,
        range: &Range,
        same_name: bool,
        revision: i64,
        batch: &mut Batch,
    ) -> Result<Option<Error>, rusqlite::Error> {
        let sql = self.sql(range, same_name);
        let mut statement = connection.prepare(&sql)?;
        let (from, to): (&dyn ToSql, &dyn ToSql) = match (range, &self.after) {
            (Range::Between(_, to), Some((name, _))) => (name, to),
            (Range::Between(from, to), None) => (from, to),
            (Range::All, Some((name, _))) => (name, &Null),
            (Range::All, None) => (&Null, &Null),
        };
        let id = self.after.as_ref().map(|(_, id)| *id);
        let mut rows =
            statement.query(rusqlite::params![from, to, id, revision, PAGE_ROWS as i64, MAX_VALUE_BYTES as i64])?;
        let mut last = self.after.clone();
        while let Some(row) = rows.next()? {
            let (id, name) = row::place(row)?;
            // What comes out of order may come again, and without end.
            let name = name.filter(|name| {
                last.as_ref().is_none_or(|(before, after)| before.cmp(name).then(after.cmp(&id)) == Ordering::Less)
            });
            let Some(name) = name else { return Ok(Some(Error::Index { id })) };
            if self.wants(&name) {
                let values = row::values(row, id, &name, self.history, &mut batch.problems)?;
                batch.bytes += values.iter().map(|value| value.key.len() + value.value.len()).sum::<usize>();
                batch.values.extend(values);
            }
            batch.rows += 1;
            last = Some((name, id));
            if batch.is_full() {
                break;
            }
        }
        drop(rows);
        drop(statement);
        self.after = last;
        Ok(None)
    }

    fn wants(&self, name: &Name) -> bool {
        // Of what cannot be a key it is told whatever was asked for.
        let Ok(key) = name.key() else { return true };
        self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| key.starts_with(prefix))
    }

    fn sql(&self, range: &Range, same_name: bool) -> String {
        let old = if self.history { format!(", {OLD_COLUMNS}") } else { String::new() };
        let from = match (&self.after, range) {
            (Some(_), _) if same_name => "k.name IS ?1 AND k.id > ?3",
            (Some(_), _) => "k.name > ?1",
            (None, Range::Between(..)) => "k.name >= ?1",
            (None, Range::All) => "k.name IS NOT NULL",
        };
        let to = if matches!(range, Range::Between(..)) { " AND k.name < ?2" } else { "" };
        let live = if self.history { String::new() } else { format!(" AND {NEWEST} AND {NOT_DELETED}") };
        // An index has what is said of `k`. SQLite does not look up a row of this join before that is decided.
        format!(
            "SELECT {COLUMNS}{old} FROM kine AS k CROSS JOIN kine AS kv ON kv.id = k.id \
             WHERE {from}{to} AND k.id <= ?4{live} ORDER BY k.name, k.id LIMIT ?5"
        )
    }

    /// How many values there will be; the history's are not counted.
    pub(super) fn count(&self, connection: &Connection, revision: i64) -> Result<Option<u64>, rusqlite::Error> {
        if self.history || !self.prefixes.is_empty() {
            return Ok(None);
        }
        let mut count: i64 = 0;
        for range in &self.ranges {
            let (from, to): (&dyn ToSql, &dyn ToSql) = match range {
                Range::Between(from, to) => (from, to),
                Range::All => (&Null, &Null),
            };
            let bounds = match range {
                Range::Between(..) => "k.name >= ?1 AND k.name < ?2",
                Range::All => "k.name IS NOT NULL AND ?1 IS ?2",
            };
            let bounds = format!("{bounds} AND k.name <> ?3 AND k.id <= ?4 AND {NEWEST}");
            // Of the deleted keys there are few, and an index says which: else each name would have to be looked up.
            let deleted = "k.id IN (SELECT d.id FROM kine AS d WHERE d.deleted <> 0 AND typeof(d.deleted) = 'integer')";
            for (sign, which) in [(1, String::new()), (-1, format!(" AND {deleted}"))] {
                let sql = format!("SELECT count(*) FROM kine AS k WHERE {bounds}{which}");
                let found: i64 =
                    connection
                        .query_row(&sql, rusqlite::params![from, to, COMPACT_REV_KEY, revision], |row| row.get(0))?;
                count += sign * found;
            }
        }
        Ok(u64::try_from(count).ok())
    }
}

/// The names that begin with a prefix, which is not empty.
fn range(prefix: &[u8], name: impl Fn(Vec<u8>) -> Name) -> Range {
    let mut end = prefix.to_vec();
    while end.pop_if(|last| *last == 0xFF).is_some() {}
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    Range::Between(name(prefix.to_vec()), name(end))
}
