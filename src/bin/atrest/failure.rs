use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use atrest::causes::Chain;
use atrest::{backup, config, kine, kms, rekey, resource, snapshot, storage, transformer, watch};

/// Done, with findings.
pub(crate) const FINDINGS: u8 = 1;
/// Wrong usage, or a wrong configuration.
pub(crate) const USAGE: u8 = 2;
/// The source cannot be reached or read.
pub(crate) const SOURCE: u8 = 3;
/// Interrupted, or some writes failed.
pub(crate) const PARTIAL: u8 = 4;

/// Why a command did not do its job.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The reader of standard output has gone: there is nothing more to do.
    BrokenPipe,
    /// A flag, or a combination of flags, that makes no sense.
    Usage(String),
    /// A file that cannot be read or written.
    File {
        path: PathBuf,
        source: io::Error,
    },
    /// Standard output or input.
    Output(io::Error),
    Config {
        path: PathBuf,
        invalid: config::Invalid,
    },
    Selection(resource::Error),
    Transformers(transformer::Error),
    Storage(storage::Error),
    Snapshot(snapshot::Error),
    /// What is wrong with a file that is read, and with which: several may be named, and not every error says it.
    InFile {
        path: PathBuf,
        failure: Box<Self>,
    },
    Backup(backup::Error),
    Kine(kine::Error),
    /// Objects cannot be written to files.
    Export(backup::ExportError),
    /// The write-ahead log.
    Log(backup::residue::Error),
    Rekey(rekey::Error),
    Watch(watch::WatchError),
    /// A KMS plugin that nobody can talk to.
    Kms(kms::Error),
    /// There is no such object.
    NotFound {
        resource: String,
        name: String,
        /// Whether a part of the source could not be read.
        partial: bool,
    },
    /// One value that cannot be opened or sealed.
    Value {
        class: &'static str,
        message: String,
    },
}

impl Failure {
    /// What is wrong with a snapshot that is read.
    pub(crate) fn of_snapshot(path: &Path, error: snapshot::Error) -> Self {
        Self::Snapshot(error).in_file(path)
    }

    /// Names the file that is read, unless the failure names it already or is about another one.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        use snapshot::Error;
        let is_named = match &self {
            Self::Snapshot(error) => matches!(
                error,
                Error::Open { .. }
                    | Error::Directory { .. }
                    | Error::NotADataDirectory { .. }
                    | Error::SameFile { .. }
                    | Error::Exists { .. }
                    | Error::Write { .. }
                    | Error::Unverified(_)
            ),
            Self::Kine(error) => matches!(
                error,
                kine::Error::Open { .. } | kine::Error::Directory { .. } | kine::Error::NotSqlite { .. }
            ),
            _ => true,
        };
        if is_named { self } else { Self::InFile { path: path.to_owned(), failure: Box::new(self) } }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::BrokenPipe => 0,
            Self::InFile { failure, .. } => failure.exit_code(),
            Self::NotFound { partial: true, .. } => PARTIAL,
            Self::Value { .. } | Self::NotFound { .. } => FINDINGS,
            Self::Usage(_)
            | Self::File { .. }
            | Self::Config { .. }
            | Self::Selection(_)
            | Self::Transformers(_)
            | Self::Kms(kms::Error::NoSocket { .. } | kms::Error::NotASocket { .. })
            | Self::Snapshot(snapshot::Error::SameFile { .. } | snapshot::Error::Exists { .. })
            | Self::Kine(kine::Error::FutureRevision { .. } | kine::Error::Compacted { .. })
            | Self::Snapshot(snapshot::Error::FutureRevision { .. } | snapshot::Error::Compacted { .. })
            | Self::Watch(watch::WatchError::Future { .. })
            | Self::Storage(storage::Error::Tls(_) | storage::Error::NoEndpoint) => USAGE,
            Self::Rekey(rekey::Error::Kms { failure, .. }) if failure.is_unavailable() => SOURCE,
            Self::Snapshot(snapshot::Error::Write { .. }) => PARTIAL,
            Self::Rekey(rekey::Error::Storage(_))
            | Self::Storage(_)
            | Self::Watch(_)
            | Self::Kms(_)
            | Self::Snapshot(_)
            | Self::Backup(_)
            | Self::Log(_)
            | Self::Kine(_) => SOURCE,
            Self::Rekey(_) => USAGE,
            Self::Export(
                backup::ExportError::Other { .. }
                | backup::ExportError::Exists { .. }
                | backup::ExportError::Foreign { .. },
            ) => USAGE,
            Self::Output(_) | Self::Export(_) => PARTIAL,
        }
    }

    /// The error of etcd, where it is one.
    pub(crate) fn storage(&self) -> Option<&storage::Error> {
        match self {
            Self::Storage(error)
            | Self::Rekey(rekey::Error::Storage(error))
            | Self::Watch(watch::WatchError::Etcd(error)) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::BrokenPipe } else { Self::Output(error) }
    }
}

impl From<storage::Error> for Failure {
    fn from(error: storage::Error) -> Self {
        Self::Storage(error)
    }
}

impl From<snapshot::Error> for Failure {
    fn from(error: snapshot::Error) -> Self {
        Self::Snapshot(error)
    }
}

impl From<backup::Error> for Failure {
    fn from(error: backup::Error) -> Self {
        match error {
            backup::Error::Snapshot(error) => Self::Snapshot(error),
            error => Self::Backup(error),
        }
    }
}

impl From<backup::residue::Error> for Failure {
    fn from(error: backup::residue::Error) -> Self {
        match error {
            backup::residue::Error::Snapshot(error) => Self::Snapshot(error),
            error => Self::Log(error),
        }
    }
}

impl From<kine::Error> for Failure {
    fn from(error: kine::Error) -> Self {
        Self::Kine(error)
    }
}

impl From<backup::ExportError> for Failure {
    fn from(error: backup::ExportError) -> Self {
        Self::Export(error)
    }
}

impl From<rekey::Error> for Failure {
    fn from(error: rekey::Error) -> Self {
        match error {
            rekey::Error::Storage(error) => Self::Storage(error),
            error => Self::Rekey(error),
        }
    }
}

impl From<kms::Error> for Failure {
    fn from(error: kms::Error) -> Self {
        Self::Kms(error)
    }
}

impl From<resource::Error> for Failure {
    fn from(error: resource::Error) -> Self {
        Self::Selection(error)
    }
}

impl From<transformer::Error> for Failure {
    fn from(error: transformer::Error) -> Self {
        Self::Transformers(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BrokenPipe => f.write_str("standard output was closed"),
            Self::Usage(message) => f.write_str(message),
            Self::File { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Output(error) => write!(f, "standard input or output: {error}"),
            Self::Config { path, invalid } => {
                let count = invalid.errors.len();
                write!(f, "{}: {count} error{}", path.display(), if count == 1 { "" } else { "s" })?;
                for error in &invalid.errors {
                    write!(f, "\n  {}:{error}", path.display())?;
                    if let Some(hint) = &error.hint {
                        write!(f, "\n    {hint}")?;
                    }
                }
                Ok(())
            }
            Self::Selection(error) => Chain(error).fmt(f),
            Self::Transformers(error) => Chain(error).fmt(f),
            Self::Storage(storage::Error::Unreachable { endpoints }) => {
                f.write_str("cannot connect to etcd")?;
                match endpoints.as_slice() {
                    [only] => write!(f, " at {only}"),
                    several => several.iter().try_for_each(|endpoint| write!(f, "\n  {endpoint}")),
                }
            }
            Self::Storage(error) => Chain(error).fmt(f),
            Self::Snapshot(error) => Chain(error).fmt(f),
            Self::InFile { path, failure } if path == Path::new("-") => write!(f, "standard input: {failure}"),
            Self::InFile { path, failure } => write!(f, "{}: {failure}", path.display()),
            Self::Backup(error) => Chain(error).fmt(f),
            Self::Log(error) => Chain(error).fmt(f),
            Self::Kine(error) => Chain(error).fmt(f),
            Self::Export(error) => Chain(error).fmt(f),
            Self::Rekey(error) => Chain(error).fmt(f),
            Self::Watch(error) => Chain(error).fmt(f),
            Self::Kms(error) => Chain(error).fmt(f),
            Self::NotFound { resource, name, partial } => {
                match resource.as_str() {
                    "" => write!(f, "there is no {name:?}")?,
                    resource => write!(f, "{resource} {name:?} not found")?,
                }
                if *partial { f.write_str(" in what is left of the file") } else { Ok(()) }
            }
            Self::Value { class, message } => write!(f, "{class}: {message}"),
        }
    }
}
