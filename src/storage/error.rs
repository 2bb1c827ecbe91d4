use tonic::Code;

use super::failure::ConnectError;
use super::tls::TlsError;

/// Why etcd could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No endpoint is given.
    #[error("no endpoint is given")]
    NoEndpoint,
    /// A TLS file or flag cannot be used. The operator can fix it.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No endpoint answers. The operator can fix it.
    #[error("cannot connect to etcd")]
    Unreachable {
        /// What happened at each endpoint.
        endpoints: Vec<ConnectError>,
    },
    /// etcd wants a user and got none.
    #[error("etcd requires a user")]
    UserRequired,
    /// The user is not known, or the password is wrong.
    #[error("etcd does not accept the user {user:?} with this password")]
    WrongPassword {
        /// The name of the user.
        user: String,
    },
    /// A user is given, and etcd has authentication turned off.
    #[error("authentication is not enabled in etcd, and a user is given")]
    AuthNotEnabled,
    /// The user, or the client certificate, may not do it.
    #[error("permission denied")]
    PermissionDenied,
    /// The revision is no longer in etcd's history.
    #[error("the revision has been compacted")]
    Compacted,
    /// The revision is not there yet: it is of another cluster, or of before a restore.
    #[error("the revision is in the future")]
    FutureRevision,
    /// etcd has forgotten what it has said: it was restored from before, or begun anew.
    #[error("etcd has gone back from revision {seen} to {current}: it was restored from a snapshot, or begun anew")]
    WentBack {
        /// The revision that it had.
        seen: i64,
        /// The one that it has.
        current: i64,
    },
    /// The answer is larger than the client takes at once.
    #[error("the answer of etcd is too large")]
    AnswerTooLarge,
    /// The request is larger than etcd takes (`--max-request-bytes`).
    #[error("the request is too large for etcd")]
    RequestTooLarge,
    /// etcd's database has reached its quota: nothing can be written in the whole cluster.
    #[error("the database of etcd has reached its quota (NOSPACE)")]
    NoSpace,
    /// etcd, or the way to it, is not available. Trying again may help.
    #[error("etcd is not available: {message}")]
    Unavailable {
        /// What etcd, or the connection, says.
        message: String,
    },
    /// The endpoints belong to more than one cluster.
    #[error("the endpoint that answers now belongs to another cluster than the one before")]
    OtherCluster,
    /// Another answer of etcd.
    #[error("etcd answered {code:?}: {message}")]
    Etcd {
        /// The gRPC code.
        code: Code,
        /// What etcd says.
        message: String,
    },
    /// The client library cannot do it: please report it.
    #[error("the client for etcd failed")]
    Client(#[source] etcd_client::Error),
}

impl Error {
    /// Whether the same request may succeed later, or at another endpoint.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::Unavailable { .. } | Error::Unreachable { .. })
    }

    /// Whether it is what older releases of kine answer to a request for keys without their values.
    pub(super) fn is_for_keys_only(&self) -> bool {
        matches!(self, Error::Etcd { message, .. } if message.contains("keysOnly"))
    }

    pub(super) fn from_client(error: etcd_client::Error) -> Self {
        match error {
            etcd_client::Error::GRpcStatus(status) => Self::from_status(&status),
            etcd_client::Error::TransportError(error) => Error::Unavailable { message: error.to_string() },
            error => Error::Client(error),
        }
    }

    /// etcd uses one code for several things, so the message decides where the code does not.
    fn from_status(status: &tonic::Status) -> Self {
        let message = status.message();
        let says = |text: &str| message.contains(text);
        match status.code() {
            // An answer of HTTP and not of gRPC: only that of a proxy in front of etcd may be another the next time.
            code if says("HTTP status code") && code != Code::Unavailable => {
                Error::Etcd { code: Code::Unknown, message: message.to_owned() }
            }
            Code::OutOfRange if says("compacted") => Error::Compacted,
            Code::OutOfRange if says("future revision") => Error::FutureRevision,
            Code::OutOfRange | Code::ResourceExhausted
                if says("message length too large") || says("larger than max") =>
            {
                Error::AnswerTooLarge
            }
            Code::ResourceExhausted if says("database space exceeded") => Error::NoSpace,
            Code::ResourceExhausted if says("too many requests") => Error::Unavailable { message: message.to_owned() },
            Code::ResourceExhausted => Error::AnswerTooLarge,
            Code::InvalidArgument if says("request is too large") => Error::RequestTooLarge,
            Code::InvalidArgument if says("user name is empty") => Error::UserRequired,
            Code::InvalidArgument if says("authentication failed") => Error::WrongPassword { user: String::new() },
            // Users or roles were changed since the token was given: whoever connects anew gets another.
            Code::InvalidArgument if says("revision of auth store is old") => {
                Error::Unavailable { message: message.to_owned() }
            }
            Code::Unknown if says("revision in header is old") => Error::Unavailable { message: message.to_owned() },
            Code::FailedPrecondition if says("authentication is not enabled") => Error::AuthNotEnabled,
            Code::PermissionDenied => Error::PermissionDenied,
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Aborted => {
                Error::Unavailable { message: message.to_owned() }
            }
            // hyper reports a connection that breaks in the middle of a call as an unknown or internal error.
            Code::Unknown | Code::Internal if says("transport") || says("h2") || says("connection") => {
                Error::Unavailable { message: message.to_owned() }
            }
            Code::Unauthenticated => Error::Unavailable { message: message.to_owned() },
            code => Error::Etcd { code, message: message.to_owned() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcd_s_answers_are_told_apart_by_code_and_message() {
        let class = |code, message: &str| {
            let error = Error::from_status(&tonic::Status::new(code, message));
            format!("{error:?}").split([' ', '{']).next().unwrap_or_default().to_owned()
        };
        for (code, message, expected) in [
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", "Compacted"),
            (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision", "FutureRevision"),
            (
                Code::OutOfRange,
                "Error, decoded message length too large: found 5 bytes, the limit is: 4 bytes",
                "AnswerTooLarge",
            ),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", "NoSpace"),
            (Code::ResourceExhausted, "etcdserver: too many requests", "Unavailable"),
            (Code::ResourceExhausted, "grpc: trying to send message larger than max", "AnswerTooLarge"),
            (Code::InvalidArgument, "etcdserver: request is too large", "RequestTooLarge"),
            (Code::InvalidArgument, "etcdserver: user name is empty", "UserRequired"),
            (Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password", "WrongPassword"),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", "Unavailable"),
            (Code::Unknown, "auth: revision in header is old", "Unavailable"),
            (Code::FailedPrecondition, "etcdserver: authentication is not enabled", "AuthNotEnabled"),
            (Code::PermissionDenied, "etcdserver: permission denied", "PermissionDenied"),
            (Code::Unavailable, "etcdserver: leader changed", "Unavailable"),
            (Code::Unavailable, "grpc-status header missing, mapped from HTTP status code 503", "Unavailable"),
            (Code::PermissionDenied, "grpc-status header missing, mapped from HTTP status code 403", "Etcd"),
            (Code::Unknown, "transport error", "Unavailable"),
            (Code::Unknown, "unsupported operations in txn request", "Etcd"),
        ] {
            assert_eq!(class(code, message), expected, "{code:?} {message}");
        }
    }
}
