//! What can go wrong, and what the developer can do about it.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::{fmt, io};

/// Why a chore was not done.
#[derive(Debug)]
pub(crate) enum Error {
    /// The command line makes no sense.
    Usage(String),
    /// A program could not be started.
    Spawn { program: String, source: io::Error },
    /// A program ran and failed.
    Failed { line: String, status: ExitStatus, stderr: String },
    /// A file or folder could not be read or written.
    File { path: PathBuf, source: io::Error },
    /// Something else of the operating system failed.
    System { what: &'static str, source: io::Error },
    /// A tool is missing and xtask cannot bring it here.
    Missing { tool: &'static str, hint: String },
    /// etcd ended, or did not get ready in time; `log` is the end of what it wrote.
    EtcdNotReady { log: String },
    /// The developer pressed Ctrl-C, or the process was told to terminate.
    Interrupted,
}

impl Error {
    /// What to do about it, where that does not follow from the message.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Usage(_) => Some("`cargo xtask help` lists the commands".to_owned()),
            Self::Spawn { program, source } if source.kind() == io::ErrorKind::NotFound => {
                Some(format!("install {program}, or put it on PATH"))
            }
            Self::Missing { hint, .. } => Some(hint.clone()),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) => f.write_str(message),
            Self::Spawn { program, source } => write!(f, "cannot start {program}: {source}"),
            Self::Failed { line, status, stderr } => {
                write!(f, "`{line}` failed: {status}")?;
                if !stderr.is_empty() {
                    write!(f, "\n{}", stderr.trim_end())?;
                }
                Ok(())
            }
            Self::File { path, source } => write!(f, "{}: {source}", path.display()),
            Self::System { what, source } => write!(f, "{what}: {source}"),
            Self::Missing { tool, .. } => write!(f, "{tool} is missing"),
            Self::EtcdNotReady { log } => write!(f, "etcd did not get ready; the end of its log:\n{log}"),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Spawn { source, .. } | Self::File { source, .. } | Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}
