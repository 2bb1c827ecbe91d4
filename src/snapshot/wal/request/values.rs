//! Every value that a request holds, and the passwords in the clear.

use super::message::{Message, bytes_of};
use super::{Put, RaftRequest, Request, V2Request};
use crate::snapshot::wal::{Key, Redacted};

/// A value in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'a> {
    /// Where in the request it is.
    pub place: Place,
    /// The key that it is or was to be stored under; the path of a v2 request. Empty where none is known.
    pub key: Key<'a>,
    /// The value.
    pub value: Redacted<'a>,
    /// The lease of a put; 0 is none.
    pub lease: i64,
}

/// Where in a request a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A put outside of a transaction.
    Put,
    /// A put that a transaction makes if its conditions hold.
    TxnSuccess,
    /// A put that a transaction makes otherwise; or one of a transaction in such a branch.
    TxnFailure,
    /// A value that a condition compares with.
    Compare,
    /// `Val` of a v2 request.
    V2Val,
    /// `PrevValue` of a v2 request.
    V2PrevValue,
    /// All of the data of an entry that etcd would make no sense of.
    Unrecognized,
}

/// A password of an etcd user in the clear, as etcd up to 3.4 writes it to its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaintextPassword<'a> {
    /// Whose it is.
    pub user: Key<'a>,
    /// The request that has it, like `auth_user_add`.
    pub request: &'static str,
}

impl<'a> Request<'a> {
    /// Shows every value in the request, those of branches that were not taken as well. A put without a value is one
    /// with an empty value.
    pub fn for_each_value(&self, mut visit: impl FnMut(Value<'a>)) {
        match self {
            Self::Raft(request) => visit_raft(request, &mut visit),
            Self::V2(request) => visit_v2(request, &mut visit),
            Self::Unrecognized(data) => {
                visit(Value { place: Place::Unrecognized, key: Key(&[]), value: *data, lease: 0 });
            }
            Self::Empty | Self::ConfChange(_) | Self::ConfChangeV2(_) => {}
        }
    }

    /// The passwords in the clear that the request holds.
    pub fn plaintext_passwords(&self) -> impl Iterator<Item = PlaintextPassword<'a>> {
        let message = if let Self::Raft(RaftRequest(message)) = self { *message } else { Message(&[]) };
        message.fields().filter_map(|(number, field)| {
            let request = match number {
                1012 => "authenticate",
                1100 => "auth_user_add",
                1103 => "auth_user_change_password",
                _ => return None,
            };
            let message = Message(bytes_of(field)?);
            message.bytes(2).filter(|password| !password.is_empty())?;
            Some(PlaintextPassword { user: Key(message.bytes(1).unwrap_or_default()), request })
        })
    }
}

fn visit_raft<'a>(request: &RaftRequest<'a>, visit: &mut dyn FnMut(Value<'a>)) {
    for (number, field) in request.0.fields() {
        match (number, bytes_of(field).map(Message)) {
            (2, Some(message)) => visit_v2(&V2Request::of(message), visit),
            (4, Some(message)) => visit_put(Place::Put, message, visit),
            (6, Some(message)) => visit_txn(message, Place::TxnSuccess, visit),
            _ => {}
        }
    }
}

/// Goes no deeper than `schema::MAX_TXN_DEPTH`: what is deeper is not taken for a request.
fn visit_txn<'a>(txn: Message<'a>, branch: Place, visit: &mut dyn FnMut(Value<'a>)) {
    for (number, field) in txn.fields() {
        let Some(message) = bytes_of(field).map(Message) else { continue };
        let branch = match number {
            1 => {
                if let Some(value) = message.bytes(7) {
                    let key = Key(message.bytes(3).unwrap_or_default());
                    visit(Value { place: Place::Compare, key, value: Redacted(value), lease: 0 });
                }
                continue;
            }
            2 => branch,
            3 => Place::TxnFailure,
            _ => continue,
        };
        for (number, field) in message.fields() {
            match (number, bytes_of(field).map(Message)) {
                (2, Some(put)) => visit_put(branch, put, visit),
                (4, Some(txn)) => visit_txn(txn, branch, visit),
                _ => {}
            }
        }
    }
}

fn visit_put<'a>(place: Place, message: Message<'a>, visit: &mut dyn FnMut(Value<'a>)) {
    let Put { key, value, lease, ignore_value, .. } = Put::of(message);
    if !ignore_value || !value.is_empty() {
        visit(Value { place, key, value, lease });
    }
}

fn visit_v2<'a>(request: &V2Request<'a>, visit: &mut dyn FnMut(Value<'a>)) {
    let V2Request { path: key, value, prev_value, .. } = *request;
    for (place, value) in [(Place::V2Val, value), (Place::V2PrevValue, prev_value)] {
        if !value.is_empty() {
            visit(Value { place, key, value, lease: 0 });
        }
    }
}
