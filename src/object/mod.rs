//! What an opened value holds: which object, in which encoding, and its content.
//!
//! A cipher without authentication opens a damaged or misplaced value without complaint, so the plaintext itself has to
//! show that it is whole and that it is the object of its key. [`identify`] proves the first and names the object for
//! the second; it does not decode the rest. [`decode`] does, into what Kubernetes prints of the object. All of it reads
//! bytes that anybody may have written: lengths are checked before use, nothing is allocated by a length from the data,
//! and errors hold offsets but never content.

mod blank;
mod cbor;
mod changes;
mod decode;
mod json;
pub mod jsonpath;
mod protobuf;
mod schema;
mod selector;
mod served;
mod value;
mod view;

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

pub use blank::{BLANK, blank_secret};
pub use changes::{Change, changes};
pub use decode::{BASE64, ENVELOPE, Object, UNKNOWN_FIELDS, VALUE, decode};
pub use selector::{InvalidSelector, LabelSelector};
pub use value::{Map, Text, Value};

/// How an API server encoded a stored object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// `k8s\0` and a `runtime.Unknown` around the object: the built-in resources.
    Protobuf,
    /// CustomResourceDefinitions, APIServices, custom resources, and whatever `--storage-media-type` made so.
    Json,
    /// Custom resources written with the gate `CBORServingAndStorage`; it begins with the self-described tag, 55799.
    Cbor,
    /// Protobuf in base64, as in the days of etcd 2. API servers still read it.
    LegacyBase64,
}

/// `runtime.protoEncodingPrefix`.
const PROTOBUF_MAGIC: &[u8] = b"k8s\0";
/// The tag "self-described CBOR" of RFC 8949, section 3.4.6.
const CBOR_MAGIC: &[u8] = &[0xd9, 0xd9, 0xf7];
/// [`PROTOBUF_MAGIC`] in base64, without the last digit, which depends on the byte after it.
const BASE64_MAGIC: &[u8] = b"azhzAA";
/// What every encrypted value begins with, of whatever provider.
const CIPHERTEXT_MAGIC: &[u8] = b"k8s:enc:";

impl Format {
    /// Tells the encoding by the first bytes.
    ///
    /// # Errors
    /// When there are none, when they are of a value that is still encrypted, and when no API server writes such.
    pub fn of(plaintext: &[u8]) -> Result<Self, Error> {
        if plaintext.is_empty() {
            Err(Error::Empty)
        } else if plaintext.starts_with(PROTOBUF_MAGIC) {
            Ok(Self::Protobuf)
        } else if plaintext.starts_with(CBOR_MAGIC) {
            Ok(Self::Cbor)
        } else if plaintext.starts_with(BASE64_MAGIC) {
            Ok(Self::LegacyBase64)
        } else if plaintext.starts_with(CIPHERTEXT_MAGIC) {
            Err(Error::Nested)
        } else if plaintext.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) == Some(&b'{') {
            Ok(Self::Json)
        } else {
            Err(Error::UnknownFormat { len: plaintext.len() })
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Protobuf => "protobuf",
            Self::Json => "JSON",
            Self::Cbor => "CBOR",
            Self::LegacyBase64 => "base64 of protobuf",
        })
    }
}

/// Why plaintext is not an object. Offsets count from the value's first byte, for [`Format::LegacyBase64`] from that of
/// the decoded value. Whoever has a backup of the value can mend it; another key for the cipher may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No bytes at all.
    #[error("empty value")]
    Empty,
    /// The plaintext is itself an encrypted value.
    #[error("encrypted more than once")]
    Nested,
    /// The first bytes are of no encoding that an API server writes.
    #[error("{len} bytes of no known encoding")]
    UnknownFormat {
        /// How many bytes there are.
        len: usize,
    },
    /// The bytes end within something.
    #[error("{format} that ends too early, within what begins at byte {offset}")]
    Truncated {
        /// The encoding.
        format: Format,
        /// Where the unfinished part begins.
        offset: usize,
    },
    /// Something is not as the encoding has it.
    #[error("malformed {format} at byte {offset}")]
    Malformed {
        /// The encoding.
        format: Format,
        /// Where.
        offset: usize,
    },
    /// Containers within containers, beyond what API servers read.
    #[error("{format} that is nested too deeply at byte {offset}")]
    TooDeep {
        /// The encoding.
        format: Format,
        /// Where.
        offset: usize,
    },
    /// Messages that leave out far more of what is printed than they have: no API server writes such.
    #[error("{format} that stands for too much at byte {offset}")]
    TooMuch {
        /// The encoding.
        format: Format,
        /// Where.
        offset: usize,
    },
    /// No kind, without which API servers do not read it.
    #[error("{format} without a kind")]
    MissingKind {
        /// The encoding.
        format: Format,
    },
    /// No apiVersion, without which API servers do not read it.
    #[error("{format} without an apiVersion")]
    MissingApiVersion {
        /// The encoding.
        format: Format,
    },
    /// An envelope with nothing in it.
    #[error("{format} envelope without an object")]
    MissingObject {
        /// The encoding.
        format: Format,
    },
}

/// Which object a plaintext is, by its own account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    /// The encoding.
    pub format: Format,
    /// `group/version`, or `version` alone in the core group. Never empty.
    pub api_version: Cow<'a, str>,
    /// The kind. Never empty.
    pub kind: Cow<'a, str>,
    /// The namespace, unless the object has none.
    pub namespace: Option<Cow<'a, str>>,
    /// The name. Every REST object has one; API servers' leases and ranges do not.
    pub name: Option<Cow<'a, str>>,
    /// The UID, which tells an object from an earlier one of the same name.
    pub uid: Option<Cow<'a, str>>,
}

impl Identity<'_> {
    /// The API group; empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// A copy that borrows nothing.
    #[must_use]
    pub fn into_owned(self) -> Identity<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Identity {
            format: self.format,
            api_version: owned(self.api_version),
            kind: owned(self.kind),
            namespace: self.namespace.map(owned),
            name: self.name.map(owned),
            uid: self.uid.map(owned),
        }
    }
}

/// Reads which object a plaintext is, and proves that the bytes are well-formed from the first to the last.
///
/// For protobuf, whose nested messages cannot be told from strings without the object's schema, that is: the envelope,
/// the object's own fields, and those of its metadata. JSON and CBOR are read all through.
///
/// # Errors
/// When the plaintext is not one whole object; see [`Error`].
pub fn identify(plaintext: &[u8]) -> Result<Identity<'_>, Error> {
    let format = Format::of(plaintext)?;
    match format {
        Format::Protobuf => protobuf::read(format, plaintext)?.check(format),
        Format::Json => json::read(plaintext)?.check(format),
        Format::Cbor => cbor::read(plaintext)?.check(format),
        Format::LegacyBase64 => Ok(protobuf::read(format, &from_base64(plaintext)?)?.check(format)?.into_owned()),
    }
}

fn from_base64(plaintext: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
    // As large as it can get, since growing would leave copies behind.
    let mut decoded = Zeroizing::new(Vec::with_capacity(base64::decoded_len_estimate(plaintext.len())));
    STANDARD.decode_vec(plaintext, &mut decoded).map_err(|error| base64_error(&error, plaintext.len()))?;
    Ok(decoded)
}

fn base64_error(error: &base64::DecodeError, len: usize) -> Error {
    let format = Format::LegacyBase64;
    match error {
        base64::DecodeError::InvalidByte(offset, _) | base64::DecodeError::InvalidLastSymbol(offset, _) => {
            Error::Malformed { format, offset: *offset }
        }
        _ => Error::Truncated { format, offset: len },
    }
}

/// What the decoders find, present or not.
#[derive(Debug, Default)]
struct Found<'a> {
    api_version: Option<Cow<'a, str>>,
    kind: Option<Cow<'a, str>>,
    metadata: Metadata<'a>,
}

/// The part of `ObjectMeta` that tells objects apart.
#[derive(Debug, Default)]
struct Metadata<'a> {
    namespace: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    uid: Option<Cow<'a, str>>,
}

impl<'a> Found<'a> {
    /// An empty string is as good as none: Go writes one where there is nothing.
    fn check(self, format: Format) -> Result<Identity<'a>, Error> {
        let present = |text: &Cow<'a, str>| !text.is_empty();
        Ok(Identity {
            format,
            kind: self.kind.filter(present).ok_or(Error::MissingKind { format })?,
            api_version: self.api_version.filter(present).ok_or(Error::MissingApiVersion { format })?,
            namespace: self.metadata.namespace.filter(present),
            name: self.metadata.name.filter(present),
            uid: self.metadata.uid.filter(present),
        })
    }
}

#[cfg(test)]
mod tests;
