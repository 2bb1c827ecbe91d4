//! The envelopes in which KMS providers store a value and its encrypted data key.
//!
//! Only their outside is read here: which key ID and which data key a value needs.

mod v1;
mod v2;

pub use v1::EnvelopeV1;
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
