//! What an entry of raft's log asks for, and the values in it. Nothing is copied.
//!
//! A value hides in a put, in the puts of both branches of a transaction, in a comparison with a value, and in a
//! request of the v2 API. Sources: etcd `api/etcdserverpb/raft_internal.proto`, `rpc.proto`, `etcdserver.proto`;
//! `EtcdServer.applyEntryNormal`.

mod describe;
mod message;
mod operation;
mod schema;
mod values;

pub use operation::{Compare, KeyRange, Operand, Operation, Put, RequestOp, Txn};
pub use values::{Place, PlaintextPassword, Value};

use self::message::{Message, bytes_of};
use self::schema::{CONF_CHANGE, INTERNAL_RAFT_REQUEST, Match, V2_REQUEST};
use super::{Entry, EntryType, Key, Redacted};

/// The data of an entry.
///
/// `Display` describes it in a line, with keys and without values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Nothing: a new leader's first entry.
    Empty,
    /// `InternalRaftRequest`: a request of the v3 API, or of the cluster to itself.
    Raft(RaftRequest<'a>),
    /// A request of the v2 API. Up to etcd 3.5 members publish their addresses and the cluster's version by one.
    V2(V2Request<'a>),
    /// A member joins, leaves or changes.
    ConfChange(ConfChange<'a>),
    /// `raftpb.ConfChangeV2`; etcd itself makes none.
    ConfChangeV2(&'a [u8]),
    /// Nothing that etcd would make sense of, or transactions nested deeper than 16. Part of it may be a value.
    Unrecognized(Redacted<'a>),
}

impl<'a> Request<'a> {
    /// Reads an entry's data, as etcd does when it applies it.
    #[must_use]
    pub fn parse(entry: &Entry<'a>) -> Self {
        let data = entry.data.0;
        let unrecognized = Self::Unrecognized(entry.data);
        match entry.entry_type {
            EntryType::Normal if data.is_empty() => Self::Empty,
            EntryType::Normal => match INTERNAL_RAFT_REQUEST.matches(data) {
                Match::Yes => Self::Raft(RaftRequest(Message(data))),
                Match::No if V2_REQUEST.matches(data) == Match::Yes => Self::V2(V2Request::of(Message(data))),
                Match::No | Match::TooDeep => unrecognized,
            },
            EntryType::ConfChange if CONF_CHANGE.matches(data) == Match::Yes => {
                Self::ConfChange(ConfChange::of(Message(data)))
            }
            EntryType::ConfChangeV2 => Self::ConfChangeV2(data),
            EntryType::ConfChange | EntryType::Unknown(_) => unrecognized,
        }
    }
}

/// `InternalRaftRequest`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaftRequest<'a>(Message<'a>);

impl<'a> RaftRequest<'a> {
    /// The number by which the member that sent the request knows it again.
    #[must_use]
    pub fn id(&self) -> u64 {
        let own = self.0.varint(1).filter(|id| *id != 0);
        own.or_else(|| Message(self.0.bytes(100)?).varint(1)).unwrap_or(0)
    }

    /// The user who sent it, when etcd asks for one; empty otherwise.
    #[must_use]
    pub fn username(&self) -> Key<'a> {
        Key(self.0.bytes(100).and_then(|header| Message(header).bytes(2)).unwrap_or_default())
    }

    /// What it asks for. etcd sends one operation at a time.
    #[must_use]
    pub fn operation(&self) -> Option<Operation<'a>> {
        self.operations().next()
    }

    /// All operations that are in it.
    pub fn operations(&self) -> impl Iterator<Item = Operation<'a>> {
        self.0.fields().filter_map(|(number, field)| Operation::of(number, Message(bytes_of(field)?)))
    }
}

/// The `Request` of the v2 API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V2Request<'a> {
    /// Its number.
    pub id: u64,
    /// `PUT`, `DELETE` and so on.
    pub method: Key<'a>,
    /// The key.
    pub path: Key<'a>,
    /// The value.
    pub value: Redacted<'a>,
    /// The value that the key has to have.
    pub prev_value: Redacted<'a>,
}

impl<'a> V2Request<'a> {
    fn of(message: Message<'a>) -> Self {
        let bytes = |number| message.bytes(number).unwrap_or_default();
        Self {
            id: message.varint(1).unwrap_or(0),
            method: Key(bytes(2)),
            path: Key(bytes(3)),
            value: Redacted(bytes(4)),
            prev_value: Redacted(bytes(6)),
        }
    }
}

/// `raftpb.ConfChange`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfChange<'a> {
    /// Its number.
    pub id: u64,
    /// `ConfChangeType`: 0 add node, 1 remove node, 2 update node, 3 add learner node.
    pub change_type: u64,
    /// The member's ID.
    pub node_id: u64,
    /// The member, as JSON.
    pub context: Key<'a>,
}

impl<'a> ConfChange<'a> {
    fn of(message: Message<'a>) -> Self {
        let number = |number| message.varint(number).unwrap_or(0);
        let context = Key(message.bytes(4).unwrap_or_default());
        Self { id: number(1), change_type: number(2), node_id: number(3), context }
    }
}
