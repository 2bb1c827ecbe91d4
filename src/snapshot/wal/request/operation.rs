//! What a request of the v3 API asks for (etcd `etcdserverpb/rpc.proto`).

use super::V2Request;
use super::message::{Message, bytes_of};
use super::schema::operation_name;
use crate::protobuf::Field;
use crate::snapshot::wal::{Key, Redacted};

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation<'a> {
    /// A request of the v2 API.
    V2(V2Request<'a>),
    /// A value is written.
    Put(Put<'a>),
    /// Keys are deleted.
    DeleteRange(KeyRange<'a>),
    /// Conditions, and what follows from them. All that kube-apiserver writes is written in one.
    Txn(Txn<'a>),
    /// Revisions are forgotten.
    Compaction {
        /// The highest of them.
        revision: i64,
        /// Whether the answer waits until it is done.
        physical: bool,
    },
    /// A lease begins.
    LeaseGrant {
        /// Its ID.
        id: i64,
        /// How long it lives without being renewed, in seconds.
        ttl: i64,
    },
    /// A lease ends, and its keys with it.
    LeaseRevoke {
        /// Its ID.
        id: i64,
    },
    /// Anything else.
    Other {
        /// etcd's name for it, like `auth_user_add`.
        name: &'static str,
        /// The message, as it is stored. That of a user may hold a password.
        message: Redacted<'a>,
    },
}

impl<'a> Operation<'a> {
    pub(super) fn of(field: u32, message: Message<'a>) -> Option<Self> {
        Some(match field {
            2 => Self::V2(V2Request::of(message)),
            4 => Self::Put(Put::of(message)),
            5 => Self::DeleteRange(KeyRange::of(message)),
            6 => Self::Txn(Txn(message)),
            7 => Self::Compaction { revision: signed(message, 1), physical: message.varint(2).unwrap_or(0) != 0 },
            8 => Self::LeaseGrant { ttl: signed(message, 1), id: signed(message, 2) },
            9 => Self::LeaseRevoke { id: signed(message, 1) },
            _ => Self::Other { name: operation_name(field)?, message: Redacted(message.0) },
        })
    }

    /// etcd's name for it: that of the field of `InternalRaftRequest`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::V2(_) => "v2",
            Self::Put(_) => "put",
            Self::DeleteRange(_) => "delete_range",
            Self::Txn(_) => "txn",
            Self::Compaction { .. } => "compaction",
            Self::LeaseGrant { .. } => "lease_grant",
            Self::LeaseRevoke { .. } => "lease_revoke",
            Self::Other { name, .. } => name,
        }
    }
}

fn signed(message: Message<'_>, number: u32) -> i64 {
    message.varint(number).unwrap_or(0).cast_signed()
}

/// `PutRequest`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put<'a> {
    /// The key.
    pub key: Key<'a>,
    /// The value.
    pub value: Redacted<'a>,
    /// The lease that the key is attached to; 0 is none.
    pub lease: i64,
    /// Only the lease is written; there is no value here.
    pub ignore_value: bool,
    /// Only the value is written; the key keeps its lease.
    pub ignore_lease: bool,
}

impl<'a> Put<'a> {
    pub(super) fn of(message: Message<'a>) -> Self {
        Self {
            key: Key(message.bytes(1).unwrap_or_default()),
            value: Redacted(message.bytes(2).unwrap_or_default()),
            lease: signed(message, 3),
            ignore_value: message.varint(5).unwrap_or(0) != 0,
            ignore_lease: message.varint(6).unwrap_or(0) != 0,
        }
    }
}

/// The keys of a `RangeRequest` or `DeleteRangeRequest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange<'a> {
    /// The first key.
    pub key: Key<'a>,
    /// The first key that is no part of it. If it is empty, `key` is the only one; `\0` stands for the end of all keys.
    pub range_end: Key<'a>,
}

impl<'a> KeyRange<'a> {
    fn of(message: Message<'a>) -> Self {
        Self { key: Key(message.bytes(1).unwrap_or_default()), range_end: Key(message.bytes(2).unwrap_or_default()) }
    }
}

/// `TxnRequest`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Txn<'a>(pub(super) Message<'a>);

impl<'a> Txn<'a> {
    /// The conditions.
    pub fn compare(&self) -> impl Iterator<Item = Compare<'a>> {
        self.0.messages(1).map(Compare::of)
    }

    /// What is done if all of them hold.
    pub fn success(&self) -> impl Iterator<Item = RequestOp<'a>> {
        self.0.messages(2).filter_map(RequestOp::of)
    }

    /// What is done otherwise. The log does not say which of the two was.
    pub fn failure(&self) -> impl Iterator<Item = RequestOp<'a>> {
        self.0.messages(3).filter_map(RequestOp::of)
    }
}

/// `RequestOp`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOp<'a> {
    /// Keys are read.
    Range(KeyRange<'a>),
    /// A value is written.
    Put(Put<'a>),
    /// Keys are deleted.
    DeleteRange(KeyRange<'a>),
    /// Another transaction, at most 16 deep.
    Txn(Txn<'a>),
}

impl<'a> RequestOp<'a> {
    fn of(message: Message<'a>) -> Option<Self> {
        let operations = message.fields().filter_map(|(number, field)| {
            let message = Message(bytes_of(field)?);
            Some(match number {
                1 => Self::Range(KeyRange::of(message)),
                2 => Self::Put(Put::of(message)),
                3 => Self::DeleteRange(KeyRange::of(message)),
                4 => Self::Txn(Txn(message)),
                _ => return None,
            })
        });
        // It is a oneof: the last one counts.
        operations.last()
    }
}

/// `Compare`: a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compare<'a> {
    /// `CompareResult`: 0 equal, 1 greater, 2 less, 3 not equal.
    pub result: u64,
    /// `CompareTarget`: 0 version, 1 create revision, 2 mod revision, 3 value, 4 lease.
    pub target: u64,
    /// The key whose state is compared.
    pub key: Key<'a>,
    /// The end of a range of keys; empty for a single key.
    pub range_end: Key<'a>,
    /// What it is compared with.
    pub operand: Option<Operand<'a>>,
}

/// What a [`Compare`] compares with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand<'a> {
    /// How many times the key was written.
    Version(i64),
    /// The revision at which it was created.
    CreateRevision(i64),
    /// The revision at which it was last written.
    ModRevision(i64),
    /// Its value.
    Value(Redacted<'a>),
    /// Its lease.
    Lease(i64),
}

impl<'a> Compare<'a> {
    fn of(message: Message<'a>) -> Self {
        let operand = message.fields().filter_map(|(number, field)| match (number, field) {
            (4, Field::Varint(value)) => Some(Operand::Version(value.cast_signed())),
            (5, Field::Varint(value)) => Some(Operand::CreateRevision(value.cast_signed())),
            (6, Field::Varint(value)) => Some(Operand::ModRevision(value.cast_signed())),
            (7, Field::Bytes(value)) => Some(Operand::Value(Redacted(value))),
            (8, Field::Varint(value)) => Some(Operand::Lease(value.cast_signed())),
            _ => None,
        });
        Self {
            result: message.varint(1).unwrap_or(0),
            target: message.varint(2).unwrap_or(0),
            key: Key(message.bytes(3).unwrap_or_default()),
            range_end: Key(message.bytes(64).unwrap_or_default()),
            operand: operand.last(),
        }
    }
}
