use std::path::PathBuf;
use std::time::Duration;

use tonic::Code;

use crate::causes::Chain;
use crate::transformer::InvalidAnswer;
use crate::transformer::envelope::DekFailure;

/// Why a plugin did not do as it was asked. What the plugin itself says is cut, and names no raw key ID.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The endpoint names no socket; kube-apiserver accepts it and can never connect.
    #[error("{endpoint} names no socket")]
    NoSocket {
        /// The endpoint as it is configured.
        endpoint: String,
    },
    /// There is something else than a socket.
    #[error("{} is no socket", path.display())]
    NotASocket {
        /// What the endpoint names.
        path: PathBuf,
    },
    /// Nobody has listened on the socket for as long as a call may take.
    #[error("no connection to {endpoint}: {cause} (tried for {timeout:?}, {limit})")]
    Unreachable {
        /// The endpoint as it is configured.
        endpoint: String,
        /// How long it was tried.
        timeout: Duration,
        /// Whose timeout that is, in words.
        limit: &'static str,
        /// What the last attempt came to.
        cause: String,
    },
    /// The plugin has taken longer than it may.
    #[error("{method} has not been answered within {timeout:?} ({limit})")]
    Timeout {
        /// The method, like `Decrypt`.
        method: &'static str,
        /// How long was waited.
        timeout: Duration,
        /// Whose timeout that is, in words.
        limit: &'static str,
    },
    /// The plugin answered with an error, or the connection broke.
    #[error("{method}: {code:?}: {message}")]
    Rpc {
        /// The method, like `Decrypt`.
        method: &'static str,
        /// The status of gRPC.
        code: Code,
        /// What the plugin says.
        message: String,
    },
    /// The plugin has not answered others for long, so it was not asked.
    #[error("not asked, because it did not answer others: {0}")]
    GivenUp(String),
    /// It was not asked, because everything is to stop.
    #[error("not asked: interrupted")]
    Stopped,
    /// What the KMS encrypts it does not decrypt, or not to the same.
    #[error("what the KMS encrypts it does not give back: {0}")]
    NotGivenBack(String),
    /// KMS v1: the plugin speaks another version.
    #[error("the plugin speaks version {version:?}, only v1beta1 is supported")]
    Version {
        /// What it says.
        version: String,
    },
    /// KMS v2: the status cannot be used to write by.
    #[error("the plugin is not healthy: {0}")]
    Unhealthy(String),
    /// KMS v2: Encrypt answers by another key than Status says.
    #[error("Encrypt answers by key ID {encrypt}, and Status says {status}")]
    KeyIdMismatch {
        /// The hash of the key ID in Encrypt's answer.
        encrypt: String,
        /// The hash of the key ID in Status' answer.
        status: String,
    },
    /// What Encrypt answers would not be taken by kube-apiserver.
    #[error("Encrypt answers what cannot be used")]
    Answer(#[from] InvalidAnswer),
    /// No random bytes for a data key.
    #[error("no random bytes from the operating system")]
    Randomness(#[source] getrandom::Error),
    /// Two endpoints are given for one provider.
    #[error("two endpoints are given for {name:?}")]
    TwoEndpoints {
        /// The name that was given.
        name: String,
    },
    /// An endpoint is given for a provider that the configuration does not have.
    #[error("the configuration has no KMS provider {name:?}")]
    UnknownProvider {
        /// The name that was given.
        name: String,
    },
}

impl Error {
    /// The status of gRPC, where there is one.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Rpc { code, .. } => Some(*code),
            Self::Unreachable { .. } | Self::Timeout { .. } => Some(Code::DeadlineExceeded),
            _ => None,
        }
    }

    /// Whether the same call may be answered soon.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        let code = self.code();
        matches!(self, Self::NoSocket { .. } | Self::GivenUp(_) | Self::Stopped)
            || matches!(
                code,
                Some(Code::DeadlineExceeded | Code::Unavailable | Code::Cancelled | Code::ResourceExhausted)
            )
    }

    /// Whether the plugin failed and does not say why.
    pub(super) fn is_unexplained(&self) -> bool {
        matches!(self.code(), Some(Code::Unknown | Code::Internal | Code::Aborted))
    }

    /// The error and its causes in one line.
    pub(crate) fn chain(&self) -> String {
        Chain(self).to_string()
    }
}

/// Why a data key could not be had.
impl From<Error> for DekFailure {
    fn from(error: Error) -> Self {
        let text = error.chain();
        if matches!(error, Error::Stopped) {
            return Self::NotAsked;
        }
        match error.code() {
            _ if error.is_unavailable() => Self::Unavailable(text),
            Some(Code::NotFound) => Self::KeyUnknown(text),
            Some(Code::InvalidArgument | Code::DataLoss | Code::OutOfRange) => Self::Refused(text),
            Some(Code::PermissionDenied | Code::Unauthenticated | Code::FailedPrecondition | Code::Unimplemented) => {
                Self::Denied(text)
            }
            Some(_) => Self::Failed(text),
            None => Self::Unusable(text),
        }
    }
}
