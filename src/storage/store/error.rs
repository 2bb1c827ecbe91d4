use std::fmt;

use super::codec::BoxError;
use super::versioner::InvalidResourceVersion;
use crate::storage;
use crate::transformer;

/// Why a call of the store failed. The variants and their texts are upstream's (`storage.StorageError`, `storage.InternalError` and
/// their like), so that whoever knows those logs knows these.
#[derive(Debug)]
#[non_exhaustive]
pub enum StorageError {
    /// There is no such key.
    KeyNotFound {
        /// The etcd key.
        key: String,
    },
    /// There is such a key already.
    KeyExists {
        /// The etcd key.
        key: String,
    },
    /// The object is at another resource version. Upstream has this in its taxonomy and raises it nowhere: a lost comparison is tried again,
    /// and a precondition is [`StorageError::InvalidObject`]. It is for stores of one's own.
    ResourceVersionConflict {
        /// The etcd key.
        key: String,
        /// The resource version that it was expected at.
        resource_version: i64,
    },
    /// The storage cannot be reached. Upstream raises it nowhere either: what etcd's client says is passed on.
    Unreachable {
        /// The etcd key.
        key: String,
    },
    /// A precondition does not hold. The caller has to read the object again.
    InvalidObject {
        /// The etcd key.
        key: String,
        /// Which one.
        message: String,
    },
    /// The caller has given up before the answer was complete.
    Timeout {
        /// The etcd key.
        key: String,
        /// How far it was.
        message: String,
    },
    /// The stored value cannot be opened or decoded (KEP-3926). Whoever has the key can read it, or it has to be deleted unsafely.
    CorruptObject {
        /// The etcd key.
        key: String,
        /// The revision of the value; 0 when it could not be opened.
        resource_version: i64,
        /// What is wrong.
        source: Box<StorageError>,
    },
    /// Objects of a list cannot be opened or decoded.
    CorruptList {
        /// What is wrong with which key.
        causes: Vec<Cause>,
    },
    /// A stored value cannot be opened, or an object cannot be sealed.
    Internal {
        /// The etcd key, where the message of upstream names it.
        key: Option<String>,
        /// Why.
        source: transformer::Error,
    },
    /// The stored bytes are no object of this kind.
    Decode {
        /// The etcd key.
        key: String,
        /// Why.
        source: BoxError,
    },
    /// The object cannot be turned into bytes.
    Encode {
        /// Why.
        source: BoxError,
    },
    /// The revision that was asked for is not there yet.
    TooLargeResourceVersion {
        /// The revision that was asked for.
        asked: i64,
        /// The revision of the store; 0 when it is not known.
        current: i64,
        /// When to ask again, in seconds.
        retry_after_seconds: u32,
    },
    /// The revision that was asked for is not there any more.
    Expired {
        /// What to do.
        message: String,
        /// A token with which a list goes on, at a newer revision.
        continue_token: Option<String>,
    },
    /// The request makes no sense.
    BadRequest {
        /// What is wrong.
        message: String,
    },
    /// The key cannot be one.
    InvalidKey {
        /// What is wrong.
        message: String,
    },
    /// The object has a resource version, and is to be created.
    ResourceVersionSet,
    /// What the caller's own function answered.
    Rejected {
        /// What it said.
        source: BoxError,
    },
    /// A write was sent and not answered: it may have been made. The caller has to read the key.
    UnknownOutcome {
        /// The etcd key.
        key: String,
        /// The revision that the write expected.
        expected_revision: i64,
        /// What happened.
        source: Box<storage::Error>,
    },
    /// A change without what was there before: etcd has compacted that away.
    NoPreviousValue {
        /// The etcd key.
        key: String,
        /// The revision of the change.
        revision: i64,
    },
    /// A deleted object that cannot be opened.
    CorruptDeletion {
        /// Why.
        source: Box<StorageError>,
    },
    /// A cache that has not been filled yet, or not again.
    NotReady {
        /// What it waits for.
        message: String,
        /// When to ask again, in seconds.
        retry_after_seconds: u32,
    },
    /// Whatever else etcd says.
    Etcd(storage::Error),
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with_code = |f: &mut fmt::Formatter<'_>, message: &str, code: u8, key: &str, rv: i64, more: &str| {
            write!(
                f,
                "StorageError: {message}, Code: {code}, Key: {key}, ResourceVersion: {rv}, AdditionalErrorMsg: {more}"
            )
        };
        match self {
            Self::KeyNotFound { key } => with_code(f, "key not found", 1, key, 0, ""),
            Self::KeyExists { key } => with_code(f, "key exists", 2, key, 0, ""),
            Self::ResourceVersionConflict { key, resource_version } => {
                with_code(f, "resource version conflicts", 3, key, *resource_version, "")
            }
            Self::InvalidObject { key, message } => with_code(f, "invalid object", 4, key, 0, message),
            Self::Unreachable { key } => with_code(f, "server unreachable", 5, key, 0, ""),
            Self::Timeout { key, message } => with_code(f, "request timeout", 6, key, 0, message),
            Self::CorruptObject { key, resource_version, source } => {
                let what = match **source {
                    Self::Decode { .. } => "object not decodable",
                    _ => "data from the storage is not transformable",
                };
                let more = format!("{what} revision={resource_version}: {source}");
                with_code(f, "corrupt object", 7, key, *resource_version, &more)
            }
            Self::CorruptList { causes } => {
                let listed: Vec<_> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
                write!(f, "failed to read one or more objects from the storage: {}", listed.join(", "))
            }
            Self::Internal { key: Some(key), source } => {
                write!(f, "Internal error occurred: unable to transform key {key:?}: {source}")
            }
            Self::Internal { key: None, source } => write!(f, "Internal error occurred: {source}"),
            Self::Decode { source, .. } | Self::Encode { source } | Self::Rejected { source } => source.fmt(f),
            Self::TooLargeResourceVersion { asked, current, .. } => {
                write!(f, "Timeout: Too large resource version: {asked}, current: {current}")
            }
            Self::Expired { message, .. } | Self::BadRequest { message } | Self::InvalidKey { message } => {
                f.write_str(message)
            }
            Self::ResourceVersionSet => f.write_str("resourceVersion should not be set on objects to be created"),
            Self::UnknownOutcome { key, source, .. } => {
                write!(f, "the outcome of the write of {key:?} is not known: {source}")
            }
            Self::NoPreviousValue { key, revision } => {
                write!(f, "etcd event received with PrevKv=nil (key={key:?}, modRevision={revision})")
            }
            Self::CorruptDeletion { source } => {
                write!(f, "saw a DELETED event, but object data is corrupt - {source}")
            }
            Self::NotReady { message, .. } => write!(f, "storage is (re)initializing: {message}"),
            Self::Etcd(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StorageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Internal { source, .. } => std::error::Error::source(source),
            Self::Decode { source, .. } | Self::Encode { source } | Self::Rejected { source } => source.source(),
            Self::UnknownOutcome { source, .. } => Some(&**source),
            Self::Etcd(error) => error.source(),
            _ => None,
        }
    }
}

impl From<storage::Error> for StorageError {
    fn from(error: storage::Error) -> Self {
        Self::Etcd(error)
    }
}

impl From<InvalidResourceVersion> for StorageError {
    fn from(error: InvalidResourceVersion) -> Self {
        Self::BadRequest { message: format!("invalid resource version: {error}") }
    }
}

/// What an API server was asked for: the same error is another answer to another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// GET of one object.
    Get,
    /// LIST.
    List,
    /// CREATE.
    Create,
    /// UPDATE and PATCH.
    Update,
    /// DELETE.
    Delete,
    /// WATCH.
    Watch,
}

/// What an API server answers (`metav1.Status`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The HTTP status.
    pub code: u16,
    /// `reason`; empty where upstream has none.
    pub reason: &'static str,
    /// `message`.
    pub message: String,
    /// `details.causes`.
    pub causes: Vec<Cause>,
    /// `details.retryAfterSeconds`; 0 is none.
    pub retry_after_seconds: u32,
    /// `metadata.continue`.
    pub continue_token: Option<String>,
}

/// One of several reasons (`metav1.StatusCause`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// `reason`.
    pub kind: &'static str,
    /// Of a list, the complete etcd key.
    pub field: String,
    /// `message`.
    pub message: String,
}

impl Cause {
    pub(super) const UNEXPECTED: &'static str = "UnexpectedServerResponse";
    pub(super) const TOO_MANY: &'static str = "FieldValueTooMany";
    const TOO_LARGE_VERSION: &'static str = "ResourceVersionTooLarge";
}

impl StorageError {
    /// Whether there is no such key.
    #[must_use]
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::KeyNotFound { .. })
    }

    /// Whether the caller lost to somebody else, and has to begin with what is there now.
    #[must_use]
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::InvalidObject { .. } | Self::ResourceVersionConflict { .. })
    }

    /// Whether what was asked for is compacted.
    #[must_use]
    pub const fn is_expired(&self) -> bool {
        matches!(self, Self::Expired { .. })
    }

    /// Whether the value may be readable later: a KMS was not asked, or has not answered.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Internal { source, .. } => source
                .causes()
                .any(|cause| matches!(cause, transformer::Error::Kms { failure, .. } if !failure.is_final())),
            Self::CorruptObject { source, .. } => source.may_pass(),
            _ => false,
        }
    }

    /// Whether the stored value cannot be read, however it is told.
    #[must_use]
    pub const fn is_corrupt(&self) -> bool {
        matches!(self, Self::CorruptObject { .. } | Self::CorruptList { .. } | Self::CorruptDeletion { .. })
    }

    /// What an API server answers to such a request (upstream `errors/storage.go`).
    #[must_use]
    pub fn status(&self, verb: Verb) -> Status {
        let writes = matches!(verb, Verb::Update | Verb::Delete);
        let (code, reason) = match self {
            Self::KeyNotFound { .. } => (404, "NotFound"),
            Self::KeyExists { .. } if writes => (409, "Conflict"),
            Self::KeyExists { .. } => (409, "AlreadyExists"),
            Self::InvalidObject { .. } | Self::ResourceVersionConflict { .. } => (409, "Conflict"),
            Self::Timeout { .. } | Self::Unreachable { .. } => (500, "ServerTimeout"),
            Self::CorruptObject { .. } | Self::Internal { .. } => (500, "InternalError"),
            Self::NoPreviousValue { .. } => (500, "InternalError"),
            Self::CorruptList { .. } | Self::CorruptDeletion { .. } => (500, "StorageReadError"),
            // A watch has no raw errors: whatever it does not know is internal.
            Self::Etcd(storage::Error::Compacted) => (410, "Expired"),
            Self::Etcd(_) | Self::Decode { .. } if verb == Verb::Watch => (500, "InternalError"),
            Self::Etcd(_) | Self::Decode { .. } | Self::UnknownOutcome { .. } => (500, ""),
            Self::TooLargeResourceVersion { .. } => (504, "Timeout"),
            Self::Expired { .. } => (410, "Expired"),
            Self::BadRequest { .. } => (400, "BadRequest"),
            Self::NotReady { .. } => (429, "TooManyRequests"),
            Self::Encode { .. } | Self::Rejected { .. } | Self::InvalidKey { .. } | Self::ResourceVersionSet => {
                (500, "")
            }
        };
        let mut status = Status { code, reason, message: self.to_string(), ..Status::default() };
        match self {
            Self::TooLargeResourceVersion { retry_after_seconds, .. } => {
                status.retry_after_seconds = *retry_after_seconds;
                status.causes = vec![Cause {
                    kind: Cause::TOO_LARGE_VERSION,
                    field: String::new(),
                    message: "Too large resource version".to_owned(),
                }];
            }
            Self::Timeout { .. } | Self::Unreachable { .. } => status.retry_after_seconds = 2,
            Self::NotReady { retry_after_seconds, .. } => status.retry_after_seconds = *retry_after_seconds,
            Self::CorruptList { causes } => status.causes.clone_from(causes),
            Self::Expired { continue_token, .. } => status.continue_token.clone_from(continue_token),
            Self::Etcd(_) | Self::Decode { .. } if verb == Verb::Watch => {
                status.message = format!("Internal error occurred: {self}");
            }
            _ => {}
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of upstream's `errors/storage.go`: what each error becomes, by the request.
    #[test]
    fn errors_become_upstream_s_answers() {
        let key = || "/registry/pods/a".to_owned();
        let internal = || StorageError::Internal { key: None, source: transformer::Error::NoMatchingPrefix };
        let decode = || StorageError::Decode { key: key(), source: "no object".into() };
        let etcd = || StorageError::Etcd(storage::Error::NoSpace);
        let expired = || StorageError::Expired { message: "old".to_owned(), continue_token: Some("token".to_owned()) };
        let too_large = || StorageError::TooLargeResourceVersion { asked: 9, current: 5, retry_after_seconds: 1 };
        for (error, verb, code, reason, retry) in [
            (StorageError::KeyNotFound { key: key() }, Verb::Get, 404, "NotFound", 0),
            (StorageError::KeyExists { key: key() }, Verb::Create, 409, "AlreadyExists", 0),
            (StorageError::KeyExists { key: key() }, Verb::Update, 409, "Conflict", 0),
            (
                StorageError::ResourceVersionConflict { key: key(), resource_version: 5 },
                Verb::Update,
                409,
                "Conflict",
                0,
            ),
            (StorageError::InvalidObject { key: key(), message: String::new() }, Verb::Delete, 409, "Conflict", 0),
            (StorageError::Unreachable { key: key() }, Verb::Get, 500, "ServerTimeout", 2),
            (StorageError::Timeout { key: key(), message: String::new() }, Verb::List, 500, "ServerTimeout", 2),
            (internal(), Verb::Get, 500, "InternalError", 0),
            (decode(), Verb::Get, 500, "", 0),
            (decode(), Verb::Watch, 500, "InternalError", 0),
            (etcd(), Verb::Update, 500, "", 0),
            (etcd(), Verb::Watch, 500, "InternalError", 0),
            (expired(), Verb::List, 410, "Expired", 0),
            (too_large(), Verb::List, 504, "Timeout", 1),
            (StorageError::BadRequest { message: String::new() }, Verb::List, 400, "BadRequest", 0),
            (
                StorageError::NotReady { message: String::new(), retry_after_seconds: 7 },
                Verb::List,
                429,
                "TooManyRequests",
                7,
            ),
        ] {
            let status = error.status(verb);
            assert_eq!((status.code, status.reason, status.retry_after_seconds), (code, reason, retry), "{error:?}");
        }
        let conflict = StorageError::ResourceVersionConflict { key: key(), resource_version: 5 };
        let text = "StorageError: resource version conflicts, Code: 3, Key: /registry/pods/a, ResourceVersion: 5, AdditionalErrorMsg: ";
        assert_eq!(conflict.to_string(), text);
        assert_eq!(expired().status(Verb::List).continue_token.as_deref(), Some("token"));
    }
}
