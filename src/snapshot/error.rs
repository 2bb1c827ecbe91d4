use std::io;
use std::path::PathBuf;

use super::bbolt;
use super::records::BadRecord;
use super::trailer::Trailer;

/// Why a snapshot cannot be read. Whoever has another copy of it, or other options, can.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be opened or read.
    #[error("{}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It is a directory.
    #[error("{} is a directory", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// A directory in which there is no database of etcd.
    #[error("{} is not a data directory of etcd: there is no {}", directory.display(), database.display())]
    NotADataDirectory {
        /// The directory.
        directory: PathBuf,
        /// What is missing.
        database: PathBuf,
    },
    /// A file of another program.
    #[error("not a snapshot of etcd but {what}")]
    Foreign {
        /// What it is.
        what: Foreign,
    },
    /// A compressed file that is damaged, or ends too early.
    #[error("the {compression} file cannot be unpacked")]
    Unpack {
        /// How it is compressed.
        compression: Compression,
        /// What is wrong.
        #[source]
        source: io::Error,
    },
    /// A compressed file that holds more than is read into memory.
    #[error("the {compression} file holds more than {limit} bytes")]
    UnpackedTooLarge {
        /// How it is compressed.
        compression: Compression,
        /// The limit.
        limit: u64,
    },
    /// A ZIP file of which it is not clear what is meant.
    #[error("the ZIP file holds {} files, and not one", .members.len())]
    ZipMembers {
        /// Their names.
        members: Vec<String>,
    },
    /// The database.
    #[error(transparent)]
    Database(#[from] bbolt::Error),
    /// A bbolt database of something else.
    #[error("a bbolt file without etcd's bucket `key`; its buckets are: {}", names(.buckets))]
    NoKeyBucket {
        /// The buckets that there are.
        buckets: Vec<Vec<u8>>,
    },
    /// The revision was compacted away.
    #[error("revision {asked} was compacted: the snapshot has everything from revision {compacted} on")]
    Compacted {
        /// The revision that was asked for.
        asked: i64,
        /// The first that can be read.
        compacted: i64,
    },
    /// The revision is not in the snapshot yet.
    #[error("revision {asked} is not in the snapshot: its last is {head}")]
    FutureRevision {
        /// The revision that was asked for.
        asked: i64,
        /// The last that can be read.
        head: i64,
    },
    /// What was salvaged is not written as a whole snapshot.
    #[error("a damaged snapshot cannot be rewritten: what is left of it would pass for the whole")]
    SalvageOnly,
    /// A snapshot whose hash says nothing, or that it is damaged.
    #[error("the snapshot may be damaged: {trailer}")]
    Hash {
        /// What is known of the hash.
        trailer: Trailer,
    },
    /// etcd cannot restore it.
    #[error("the snapshot has no bucket `meta`, without which etcd restores nothing")]
    NoMetaBucket,
    /// A record of which nobody knows what it is.
    #[error("{0}")]
    BadRecord(BadRecord),
    /// A record with more than etcd puts there.
    #[error("the record of {} at revision {revision} has fields that etcd does not know, and would lose them", key.escape_ascii())]
    UnknownFields {
        /// The etcd key.
        key: Vec<u8>,
        /// The revision.
        revision: i64,
    },
    /// The target is the snapshot that is read.
    #[error("{} is the snapshot itself", path.display())]
    SameFile {
        /// The target.
        path: PathBuf,
    },
    /// The target is there already.
    #[error("{} exists", path.display())]
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// The target cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The target.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// What was written is not what it should be. Nothing is left of it.
    #[error("the new snapshot was read again and is wrong: {0}")]
    Unverified(Unverified),
    /// Someone writes to the file.
    #[error("{0}")]
    Changed(bbolt::Warning),
    /// Reading went wrong in the middle.
    #[error("cannot be read")]
    Read(#[from] io::Error),
}

fn names(buckets: &[Vec<u8>]) -> String {
    let names: Vec<_> = buckets.iter().map(|name| name.escape_ascii().to_string()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// What is wrong with a snapshot that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unverified {
    /// Its hash.
    Trailer,
    /// Its tree.
    Damage(String),
    /// The records in it.
    Records,
    /// It has pages that nothing refers to.
    UnusedPages,
    /// Nothing was changed, and the hash of its contents is another.
    StatusHash,
    /// The revision of the store.
    Head,
    /// It contains what was to be removed.
    Remnant(String),
}

impl std::fmt::Display for Unverified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Trailer => f.write_str("its SHA-256"),
            Self::Damage(damage) => f.write_str(damage),
            Self::Records => f.write_str("its records are others than were written"),
            Self::UnusedPages => f.write_str("it has pages that nothing refers to"),
            Self::StatusHash => f.write_str("the hash of its contents has changed"),
            Self::Head => f.write_str("its revision is not that of the original"),
            Self::Remnant(what) => write!(f, "it still contains {what}"),
        }
    }
}

/// How a snapshot may be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
    /// PKWARE's.
    Zip,
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Zip => "ZIP",
        })
    }
}

/// What people take for a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// kine's database.
    Sqlite,
    /// An xz file.
    Xz,
    /// A tar archive.
    Tar,
    /// A segment of etcd's write-ahead log.
    Wal,
}

impl std::fmt::Display for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Sqlite => "an SQLite database",
            Self::Xz => "an xz file",
            Self::Tar => "a tar archive",
            Self::Wal => "a segment of its write-ahead log",
        })
    }
}
