use std::borrow::Cow;
use std::cmp::Ordering;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Row, ToSql};

use crate::source::StoredValue;

/// Longer values are not read. Kubernetes' are 1.5 MiB at most, and a request of kine's 2 MiB.
pub const MAX_VALUE_BYTES: u64 = 64 * 1024 * 1024;

/// Longer names are not read.
pub const MAX_NAME_BYTES: u64 = 1024 * 1024;

/// The row in which kine notes the compacted revision, as its `prev_revision` (`pkg/logstructured/sqllog`).
pub(super) const COMPACT_REV_KEY: &str = "compact_rev_key";

/// What the names of rows begin with that take up a revision and nothing else (`pkg/drivers/generic`, `Fill`).
const GAP: &[u8] = b"gap-";

/// Something that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// The row.
    pub id: i64,
    /// The column.
    pub column: &'static str,
    /// What is in it.
    pub found: Found,
}

/// What is in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Null,
    /// A number.
    Integer,
    /// A floating point number.
    Real,
    /// Text.
    Text,
    /// Bytes.
    Blob,
    /// More than is read.
    TooLong {
        /// How long it is, in bytes.
        bytes: u64,
    },
}

impl Found {
    pub(super) fn of(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(_) => Self::Integer,
            ValueRef::Real(_) => Self::Real,
            ValueRef::Text(_) => Self::Text,
            ValueRef::Blob(_) => Self::Blob,
        }
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Integer => f.write_str("an integer"),
            Self::Real => f.write_str("a floating point number"),
            Self::Text => f.write_str("text"),
            Self::Blob => f.write_str("a blob"),
            Self::TooLong { bytes } => write!(f, "{bytes} bytes long, which is more than is read"),
        }
    }
}

impl std::fmt::Display for BadRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "row {}: {} is {}", self.id, self.column, self.found)
    }
}

/// How many problems are kept; all are counted.
const KEPT: usize = 1000;

/// What could not be read.
///
/// Of a row without a readable name or value there is no value. Where it is only a number beside it, the value is
/// yielded all the same, with 0 for the number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    /// The first of them.
    pub rows: Vec<BadRow>,
    /// How many there are.
    pub bad_rows: u64,
}

impl Problems {
    /// Whether everything could be read.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.bad_rows == 0
    }

    /// A line for each, the first of them.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.rows.iter().map(ToString::to_string).collect()
    }

    pub(super) fn add(&mut self, id: i64, column: &'static str, found: Found) {
        self.bad_rows += 1;
        if self.rows.len() < KEPT {
            self.rows.push(BadRow { id, column, found });
        }
    }

    pub(super) fn append(&mut self, later: Self) {
        self.bad_rows += later.bad_rows;
        let room = KEPT.saturating_sub(self.rows.len());
        self.rows.extend(later.rows.into_iter().take(room));
    }
}

/// A name, as it is stored: the column is declared INTEGER, and so SQLite turns text that looks like a number into one.
#[derive(Clone, Debug)]
pub(super) enum Name {
    Integer(i64),
    Real(f64),
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

impl Name {
    pub(super) fn of(value: ValueRef<'_>) -> Option<Self> {
        match value {
            ValueRef::Null => None,
            ValueRef::Integer(number) => Some(Self::Integer(number)),
            ValueRef::Real(number) => Some(Self::Real(number)),
            ValueRef::Text(text) => Some(Self::Text(text.to_vec())),
            ValueRef::Blob(bytes) => Some(Self::Blob(bytes.to_vec())),
        }
    }

    /// The key, where there is one.
    pub(super) fn key(&self) -> Result<Cow<'_, [u8]>, Found> {
        match self {
            Self::Text(name) | Self::Blob(name) if name.len() as u64 > MAX_NAME_BYTES => {
                Err(Found::TooLong { bytes: name.len() as u64 })
            }
            Self::Text(name) | Self::Blob(name) => Ok(Cow::Borrowed(name)),
            Self::Integer(number) => Ok(Cow::Owned(number.to_string().into_bytes())),
            // Of its text there may be more than one.
            Self::Real(_) => Err(Found::Real),
        }
    }

    /// The order of SQLite: numbers, text by its bytes, blobs.
    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) | (Self::Blob(a), Self::Blob(b)) => a.cmp(b),
            (Self::Integer(a), Self::Integer(b)) => a.cmp(b),
            _ => match (self.number(), other.number()) {
                (Some(a), Some(b)) => a.total_cmp(&b),
                _ => self.rank().cmp(&other.rank()),
            },
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "numbers so large are nobody's names")]
    fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(number) => Some(*number as f64),
            Self::Real(number) => Some(*number),
            Self::Text(_) | Self::Blob(_) => None,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Integer(_) | Self::Real(_) => 0,
            Self::Text(_) => 1,
            Self::Blob(_) => 2,
        }
    }
}

impl ToSql for Name {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Real(number) => ValueRef::Real(*number),
            Self::Text(text) => ValueRef::Text(text),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// The columns that [`place`] and [`values`] read, by their positions. `?6` is [`MAX_VALUE_BYTES`].
pub(super) const COLUMNS: &str = "k.id, k.name, kv.created, kv.deleted, kv.create_revision, kv.prev_revision, \
     kv.lease, octet_length(kv.value), CASE WHEN octet_length(kv.value) <= ?6 THEN kv.value END, \
     kv.name IS k.name";

/// Two more of the history: what was there before, unless the row that it came from is still there and holds the same.
pub(super) const OLD_COLUMNS: &str = "CASE WHEN octet_length(kv.old_value) > 0 AND NOT EXISTS (\
     SELECT 1 FROM kine AS p WHERE p.id = kv.prev_revision AND p.name IS kv.name AND p.value IS kv.old_value\
     ) THEN octet_length(kv.old_value) END, \
     CASE WHEN octet_length(kv.old_value) <= ?6 THEN kv.old_value END";

/// The ID of a row and its name, which the index has; no name where the table has another.
pub(super) fn place(row: &Row<'_>) -> rusqlite::Result<(i64, Option<Name>)> {
    let agrees: i64 = row.get(9)?;
    Ok((row.get(0)?, Name::of(row.get_ref(1)?).filter(|_| agrees != 0)))
}

/// The values in a row: what was there before, if nothing else holds it any more, and what was written.
pub(super) fn values(
    row: &Row<'_>,
    id: i64,
    name: &Name,
    history: bool,
    problems: &mut Problems,
) -> rusqlite::Result<Vec<StoredValue>> {
    let key = match name.key() {
        Ok(key) => key,
        Err(found) => {
            problems.add(id, "name", found);
            return Ok(Vec::new());
        }
    };
    let value = bytes(row, 7)?;
    // Kine's own. Whatever else is hidden in such a row is a value like others.
    let is_own = (key.as_ref() == COMPACT_REV_KEY.as_bytes() || key.starts_with(GAP))
        && (matches!(value, Ok(None)) || matches!(value, Ok(Some(b""))));
    if is_own && !history {
        return Ok(Vec::new());
    }
    let mut number = |index, column| -> rusqlite::Result<i64> {
        Ok(match row.get_ref(index)? {
            ValueRef::Integer(number) => number,
            _ if is_own => 0,
            other => {
                problems.add(id, column, Found::of(other));
                0
            }
        })
    };
    let created = number(2, "created")? != 0;
    number(3, "deleted")?;
    let create_revision = number(4, "create_revision")?;
    let prev_revision = number(5, "prev_revision")?;
    let lease = number(6, "lease")?;
    let mut values = Vec::new();
    if history {
        match bytes(row, 10)? {
            Ok(None) => {}
            Ok(Some(old)) => values.push(StoredValue {
                key: key.to_vec(),
                value: old.to_vec(),
                // The row of a key that was created anew does not say when it had been created before.
                create_revision: if created { 0 } else { create_revision },
                mod_revision: prev_revision,
                version: 0,
                lease: 0,
            }),
            Err(found) => problems.add(id, "old_value", found),
        }
    }
    match value {
        _ if is_own => {}
        // Go reads NULL as no bytes, and so kine yields the key with an empty value.
        Ok(None) if history => {}
        Ok(value) => values.push(StoredValue {
            key: key.into_owned(),
            value: value.unwrap_or_default().to_vec(),
            create_revision: if created { id } else { create_revision },
            mod_revision: id,
            version: 0,
            lease,
        }),
        Err(found) => problems.add(id, "value", found),
    }
    Ok(values)
}

/// The bytes in a column behind the one with their number. Text is bytes as well: kine's driver makes no difference.
fn bytes<'r>(row: &'r Row<'_>, length: usize) -> rusqlite::Result<Result<Option<&'r [u8]>, Found>> {
    let bytes = row.get::<_, Option<i64>>(length)?.and_then(|bytes| u64::try_from(bytes).ok());
    Ok(match (bytes, row.get_ref(length + 1)?) {
        (None, _) => Ok(None),
        (Some(bytes), ValueRef::Null) => Err(Found::TooLong { bytes }),
        (_, ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => Ok(Some(bytes)),
        (_, other) => Err(Found::of(other)),
    })
}
