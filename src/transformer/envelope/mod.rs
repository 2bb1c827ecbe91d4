//! The envelopes in which KMS providers store a value and its encrypted data key.
//!
//! A value of a KMS is opened in two steps. Its envelope names a [`DekSource`], which a KMS decrypts: the distinct sources of many
//! values are asked for first, each once ([`Wanted`], [`DekResolver`]). Then the values are opened, without any I/O.

mod dek_cache;
mod dek_source;
mod failure;
mod resolve;
mod v1;
mod v2;

pub(crate) use dek_cache::{Dek, DekCache, Resolved};
pub use dek_source::DekSource;
pub(crate) use dek_source::cache_key_of;
pub use failure::DekFailure;
pub use resolve::{DekResolver, NoKms, Wanted};
pub use v1::{EnvelopeV1, MAX_ENCRYPTED_DEK_BYTES};
pub use v2::{
    EncryptedDekSourceType, EncryptedObject, MAX_ANNOTATIONS_BYTES, MAX_DEK_SOURCE_BYTES, MAX_KEY_ID_BYTES,
    validate_encrypt_response,
};

use crate::protobuf;

/// Why bytes are no envelope. The stored value is damaged, or written by something else.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// KMS v1: the length in front of the encrypted data key points past the end.
    #[error("the encrypted data key is cut off")]
    DekTruncated,
    /// KMS v2: not a protobuf message.
    #[error("the envelope is not a protobuf message")]
    Wire(#[from] protobuf::Error),
    /// KMS v2: a string that is not UTF-8.
    #[error("the field {field} is not UTF-8")]
    Utf8 {
        /// The name of the field.
        field: &'static str,
    },
    /// KMS v2: a required field is empty.
    #[error("the field {field} is empty")]
    EmptyField {
        /// The name of the field.
        field: &'static str,
    },
    /// KMS v2: a field is longer than Kubernetes accepts.
    #[error("the field {field} has {actual} bytes, more than the {max} that are allowed")]
    FieldTooLong {
        /// The name of the field.
        field: &'static str,
        /// Its length in bytes.
        actual: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// KMS v2: the key of an annotation is not a domain name with two labels.
    #[error("the key of an annotation is not a fully qualified domain name")]
    AnnotationKey,
    /// KMS v2: a kind of data key that this program does not know; written by a newer Kubernetes.
    #[error("encryptedDEKSourceType {value} is not known")]
    UnknownDekSourceType {
        /// The stored number.
        value: i32,
    },
}
