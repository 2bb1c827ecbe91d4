use std::fmt;
use std::io;

use atrest::causes::Chain;
use atrest_kms_plugin::backend;
use atrest_kms_plugin::keyring::{self, FileError};
use atrest_kms_plugin::serve::{self, SocketError};

/// The command says no.
pub(crate) const REFUSED: u8 = 1;
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
    System {
        what: &'static str,
        source: io::Error,
    },
    Keyring(FileError),
    /// The options of a backend.
    Backend(backend::Error),
    /// Something that cannot be undone wants `--yes`.
    NotConfirmed {
        key_id: String,
    },
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::BrokenPipe => 0,
            Self::NotConfirmed { .. } => REFUSED,
            Self::Usage(_) | Self::Backend(backend::Error::Configuration(_)) => USAGE,
            Self::Backend(_) => UNREACHABLE,
            Self::Output(_) | Self::System { .. } => UNREACHABLE,
            Self::Serve(error) => of_server(error),
            Self::Keyring(FileError { source, .. }) => of_keyring(source),
        }
    }
}

/// Whether the flags contradict each other, this program or its environment: whatever becomes of the file, they are wrong.
pub(crate) fn is_of_flags(error: &keyring::Error) -> bool {
    use keyring::Error;
    matches!(error, Error::TpmFlagsAlone | Error::NoTpmSupport | Error::CredentialName | Error::NoCredentials)
}

fn of_server(error: &serve::Error) -> u8 {
    match error {
        serve::Error::Socket(SocketError::System { .. }) => UNREACHABLE,
        serve::Error::Socket(_) | serve::Error::Health { .. } => USAGE,
        _ => UNREACHABLE,
    }
}

fn of_keyring(error: &keyring::Error) -> u8 {
    use keyring::Error;
    match error {
        Error::Exists
        | Error::Busy
        | Error::UnknownKey { .. }
        | Error::Retired { .. }
        | Error::CurrentKey { .. }
        | Error::Settling { .. }
        | Error::NothingStaged
        | Error::SeveralStaged { .. }
        | Error::Full => REFUSED,
        Error::Io { .. }
        | Error::Malformed { .. }
        | Error::Invalid(_)
        | Error::Locked
        | Error::PassphraseFile { .. }
        | Error::Random
        | Error::Clock => UNREACHABLE,
        #[cfg(feature = "tpm")]
        Error::Tpm(_) => UNREACHABLE,
        _ => USAGE,
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::BrokenPipe } else { Self::Output(error) }
    }
}

impl From<backend::Error> for Failure {
    fn from(error: backend::Error) -> Self {
        Self::Backend(error)
    }
}

impl From<serve::Error> for Failure {
    fn from(error: serve::Error) -> Self {
        Self::Serve(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BrokenPipe => f.write_str("standard output was closed"),
            Self::Usage(message) => f.write_str(message),
            Self::Output(error) => write!(f, "standard output: {error}"),
            Self::Serve(error) => Chain(error).fmt(f),
            Self::System { what, source } => write!(f, "{what}: {source}"),
            Self::Keyring(error) => Chain(error).fmt(f),
            // The options speak for themselves.
            Self::Backend(backend::Error::Configuration(message)) => f.write_str(message),
            Self::Backend(error) => Chain(error).fmt(f),
            Self::NotConfirmed { key_id } => write!(f, "{key_id} was not retired: what it encrypted would be lost"),
        }
    }
}
