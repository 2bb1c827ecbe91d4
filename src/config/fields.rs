//! The fields of a file before anything is said about their values.

use std::fmt;

use zeroize::Zeroizing;

use super::diagnostic::Position;
use super::document::{Node, Value};

/// A field as it is in the file.
pub(super) enum Field<T> {
    /// Not there or null; the place is that of the null or of the mapping without the field.
    Absent(Position),
    /// There, and reported already.
    Broken,
    Given(T, Position),
}

impl<T> Field<T> {
    pub(super) fn get(&self) -> Option<(&T, Position)> {
        match self {
            Field::Given(value, position) => Some((value, *position)),
            Field::Absent(_) | Field::Broken => None,
        }
    }

    /// Makes something of a value that is given; `None` is for one that is broken, and reported.
    pub(super) fn and_then<U>(self, make: impl FnOnce(T, Position) -> Option<U>) -> Field<U> {
        match self {
            Field::Absent(position) => Field::Absent(position),
            Field::Broken => Field::Broken,
            Field::Given(value, position) => match make(value, position) {
                Some(value) => Field::Given(value, position),
                None => Field::Broken,
            },
        }
    }
}

impl From<Node> for Field<Value> {
    fn from(Node { position, value }: Node) -> Self {
        if let Value::Null = value { Field::Absent(position) } else { Field::Given(value, position) }
    }
}

/// A list as it is in the file; elements that are broken are `None`, so that the others keep their index.
pub(super) type List<T> = Field<Vec<Option<(T, Position)>>>;

pub(super) struct Root {
    pub(super) resources: List<ResourceFields>,
    /// Where the header from before Kubernetes 1.13 is.
    pub(super) legacy_header: Option<Position>,
}

pub(super) struct ResourceFields {
    pub(super) resources: List<String>,
    pub(super) providers: List<ProviderFields>,
}

pub(super) struct ProviderFields {
    pub(super) aesgcm: Option<KeysFields>,
    pub(super) aescbc: Option<KeysFields>,
    pub(super) secretbox: Option<KeysFields>,
    pub(super) identity: bool,
    pub(super) kms: Option<KmsFields>,
    /// Some block is there that could not be decoded.
    pub(super) has_broken: bool,
}

pub(super) struct KeysFields {
    pub(super) keys: List<KeyFields>,
}

pub(super) struct KeyFields {
    pub(super) name: Field<Zeroizing<String>>,
    pub(super) secret: Field<Zeroizing<String>>,
}

pub(super) struct KmsFields {
    pub(super) api_version: Field<String>,
    pub(super) name: Field<String>,
    pub(super) endpoint: Field<String>,
    pub(super) timeout: Field<i64>,
    pub(super) cache_size: Field<i32>,
}

/// The path to a field, on the stack until an error needs it.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    pub(super) fn field(&'a self, name: &'a str) -> Self {
        Path::Field(self, name)
    }

    pub(super) fn index(&'a self, index: usize) -> Self {
        Path::Index(self, index)
    }

    /// The field that the value, or the list that it is in, is the value of.
    pub(super) fn last_field(&self) -> &str {
        match self {
            Path::Root => "",
            Path::Field(_, name) => name,
            Path::Index(parent, _) => parent.last_field(),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(Path::Root, name) => f.write_str(name),
            Path::Field(parent, name) => write!(f, "{parent}.{name}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}
