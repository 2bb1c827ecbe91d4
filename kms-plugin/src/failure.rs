use std::fmt;
use std::io;

use atrest_kms_plugin::serve::{self, SocketError};

/// Wrong usage, or a wrong configuration.
pub(crate) const USAGE: u8 = 2;
/// Something cannot be reached or read.
pub(crate) const UNREACHABLE: u8 = 3;

/// Why a command did not do its job.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The reader of standard output has gone: there is nothing more to do.
    BrokenPipe,
    /// A flag, or a combination of flags, that makes no sense.
    Usage(String),
    /// Standard output.
    Output(io::Error),
    /// The server does not start, or has ended.
    Serve(serve::Error),
    /// The operating system does not let a server be one.
    System { what: &'static str, source: io::Error },
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        use serve::Error;
        match self {
            Self::BrokenPipe => 0,
            Self::Usage(_) => USAGE,
            Self::Serve(Error::Socket(SocketError::System { .. })) => UNREACHABLE,
            Self::Serve(Error::Socket(_) | Error::Health { .. }) => USAGE,
            Self::Output(_) | Self::Serve(_) | Self::System { .. } => UNREACHABLE,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::BrokenPipe } else { Self::Output(error) }
    }
}

impl From<serve::Error> for Failure {
    fn from(error: serve::Error) -> Self {
        Self::Serve(error)
    }
}

/// The error and its causes, each once.
fn chain(f: &mut fmt::Formatter<'_>, error: &dyn std::error::Error) -> fmt::Result {
    write!(f, "{error}")?;
    let mut source = error.source();
    while let Some(cause) = source {
        write!(f, ": {cause}")?;
        source = cause.source();
    }
    Ok(())
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BrokenPipe => f.write_str("standard output was closed"),
            Self::Usage(message) => f.write_str(message),
            Self::Output(error) => write!(f, "standard output: {error}"),
            Self::Serve(error) => chain(f, error),
            Self::System { what, source } => write!(f, "{what}: {source}"),
        }
    }
}
