use std::path::{Path, PathBuf};

use super::Error;

/// A data directory of etcd: the database, the write-ahead log, and what else may be left there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataDir {
    /// The directory `member`.
    member: PathBuf,
}

impl DataDir {
    /// Takes the directory of `--data-dir`, or its directory `member`.
    ///
    /// # Errors
    ///
    /// When there is no database in it.
    pub fn new(path: &Path) -> Result<Self, Error> {
        let candidates = [path.join("member"), path.to_owned()];
        let database = candidates.iter().map(|member| member.join("snap").join("db"));
        let denied = |path: PathBuf| match std::fs::metadata(&path) {
            Err(source) if source.kind() == std::io::ErrorKind::PermissionDenied => Some(Error::Open { path, source }),
            _ => None,
        };
        if let Some(error) = database.filter_map(denied).next() {
            return Err(error);
        }
        let found = candidates.into_iter().find(|member| member.join("snap").join("db").is_file());
        found.map(|member| Self { member }).ok_or_else(|| Error::NotADataDirectory {
            directory: path.to_owned(),
            database: Path::new("member").join("snap").join("db"),
        })
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.snap().join("db")
    }

    /// Where the database and raft's snapshots are.
    #[must_use]
    pub fn snap(&self) -> PathBuf {
        self.member.join("snap")
    }

    /// Where the write-ahead log is.
    #[must_use]
    pub fn wal(&self) -> PathBuf {
        self.member.join("wal")
    }

    /// The directory `member`.
    #[must_use]
    pub fn member(&self) -> &Path {
        &self.member
    }
}
