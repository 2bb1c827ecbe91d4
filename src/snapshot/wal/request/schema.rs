//! Which fields the messages of raft's log have, and of which type.
//!
//! etcd tells a request of the v3 API from one of the v2 API by trying: what does not unmarshal as
//! `InternalRaftRequest` is a v2 `Request`. So all fields are checked here that etcd's generated code would check, down
//! to the last message. Fields that are not listed are skipped, as there.

use crate::protobuf::{Field, Reader};

/// How deep transactions may be nested. etcd has no limit of its own; clients nest them once, if at all.
pub(super) const MAX_TXN_DEPTH: usize = 16;

/// A message's fields: number and type.
pub(super) struct Schema(&'static [(u32, Type)]);

enum Type {
    /// Any integer, an enum, or a boolean.
    Varint,
    /// Bytes or a string. etcd does not check that a string is UTF-8.
    Bytes,
    Message(&'static Schema),
    /// A `TxnRequest`, one level further down.
    Txn,
}

use Type::{Bytes as B, Message as M, Txn, Varint as V};

/// Whether bytes are a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    Yes,
    No,
    /// etcd would take it, but its transactions are nested deeper than [`MAX_TXN_DEPTH`].
    TooDeep,
}

impl Schema {
    /// Whether etcd would unmarshal these bytes as this message.
    pub(super) fn matches(&self, message: &[u8]) -> Match {
        self.matches_at(message, 0)
    }

    /// The recursion ends: no message but a transaction contains itself.
    fn matches_at(&self, message: &[u8], txn_depth: usize) -> Match {
        let mut reader = Reader::new(message);
        loop {
            let (number, field) = match reader.next_field() {
                Ok(Some(field)) => field,
                Ok(None) => return Match::Yes,
                Err(_) => return Match::No,
            };
            let known = self.0.iter().find(|(known, _)| *known == number);
            let found = match (known, field) {
                (None, _) | (Some((_, V)), Field::Varint(_)) | (Some((_, B)), Field::Bytes(_)) => Match::Yes,
                (Some((_, M(schema))), Field::Bytes(message)) => schema.matches_at(message, txn_depth),
                (Some((_, Txn)), Field::Bytes(_)) if txn_depth == MAX_TXN_DEPTH => Match::TooDeep,
                (Some((_, Txn)), Field::Bytes(message)) => TXN.matches_at(message, txn_depth + 1),
                _ => Match::No,
            };
            if found != Match::Yes {
                return found;
            }
        }
    }
}

/// `etcdserverpb.InternalRaftRequest`
pub(super) static INTERNAL_RAFT_REQUEST: Schema = Schema(&[
    (100, M(&Schema(&[(1, V), (2, B), (3, V), (4, V)]))),
    (1, V),
    (2, M(&V2_REQUEST)),
    (3, M(&RANGE)),
    (4, M(&PUT)),
    (5, M(&DELETE_RANGE)),
    (6, Txn),
    (7, M(&Schema(&[(1, V), (2, V)]))),
    (8, M(&Schema(&[(1, V), (2, V)]))),
    (9, M(&Schema(&[(1, V)]))),
    (10, M(&Schema(&[(1, V), (2, V), (3, V)]))),
    (11, M(&Schema(&[(1, M(&Schema(&[(1, V), (2, V)])))]))),
    (1000, M(&EMPTY)),
    (1011, M(&EMPTY)),
    (1012, M(&Schema(&[(1, B), (2, B), (3, B)]))),
    (1013, M(&EMPTY)),
    (1100, M(&Schema(&[(1, B), (2, B), (3, M(&Schema(&[(1, V)]))), (4, B)]))),
    (1101, M(&Schema(&[(1, B)]))),
    (1102, M(&Schema(&[(1, B)]))),
    (1103, M(&Schema(&[(1, B), (2, B), (3, B)]))),
    (1104, M(&Schema(&[(1, B), (2, B)]))),
    (1105, M(&Schema(&[(1, B), (2, B)]))),
    (1106, M(&EMPTY)),
    (1107, M(&EMPTY)),
    (1200, M(&Schema(&[(1, B)]))),
    (1201, M(&Schema(&[(1, B)]))),
    (1202, M(&Schema(&[(1, B)]))),
    (1203, M(&Schema(&[(1, B), (2, M(&Schema(&[(1, V), (2, B), (3, B)])))]))),
    (1204, M(&Schema(&[(1, B), (2, B), (3, B)]))),
    (1300, M(&Schema(&[(1, B)]))),
    (1301, M(&Schema(&[(1, V), (2, M(&Schema(&[(1, B), (2, B)])))]))),
    (1302, M(&Schema(&[(1, V), (2, B)]))),
    (9900, M(&Schema(&[(1, B)]))),
]);

/// The fields of [`INTERNAL_RAFT_REQUEST`] that are an operation, by etcd's names.
pub(super) const fn operation_name(field: u32) -> Option<&'static str> {
    Some(match field {
        2 => "v2",
        3 => "range",
        4 => "put",
        5 => "delete_range",
        6 => "txn",
        7 => "compaction",
        8 => "lease_grant",
        9 => "lease_revoke",
        10 => "alarm",
        11 => "lease_checkpoint",
        1000 => "auth_enable",
        1011 => "auth_disable",
        1012 => "authenticate",
        1013 => "auth_status",
        1100 => "auth_user_add",
        1101 => "auth_user_delete",
        1102 => "auth_user_get",
        1103 => "auth_user_change_password",
        1104 => "auth_user_grant_role",
        1105 => "auth_user_revoke_role",
        1106 => "auth_user_list",
        1107 => "auth_role_list",
        1200 => "auth_role_add",
        1201 => "auth_role_delete",
        1202 => "auth_role_get",
        1203 => "auth_role_grant_permission",
        1204 => "auth_role_revoke_permission",
        1300 => "cluster_version_set",
        1301 => "cluster_member_attr_set",
        1302 => "downgrade_info_set",
        9900 => "downgrade_version_test",
        _ => return None,
    })
}

static EMPTY: Schema = Schema(&[]);

static RANGE: Schema = Schema(&[
    (1, B),
    (2, B),
    (3, V),
    (4, V),
    (5, V),
    (6, V),
    (7, V),
    (8, V),
    (9, V),
    (10, V),
    (11, V),
    (12, V),
    (13, V),
]);

static PUT: Schema = Schema(&[(1, B), (2, B), (3, V), (4, V), (5, V), (6, V)]);

static DELETE_RANGE: Schema = Schema(&[(1, B), (2, B), (3, V)]);

static TXN: Schema = Schema(&[(1, M(&COMPARE)), (2, M(&REQUEST_OP)), (3, M(&REQUEST_OP))]);

static COMPARE: Schema = Schema(&[(1, V), (2, V), (3, B), (4, V), (5, V), (6, V), (7, B), (8, V), (64, B)]);

static REQUEST_OP: Schema = Schema(&[(1, M(&RANGE)), (2, M(&PUT)), (3, M(&DELETE_RANGE)), (4, Txn)]);

/// The `etcdserverpb.Request` of the v2 API.
pub(super) static V2_REQUEST: Schema = Schema(&[
    (1, V),
    (2, B),
    (3, B),
    (4, B),
    (5, V),
    (6, B),
    (7, V),
    (8, V),
    (9, V),
    (10, V),
    (11, V),
    (12, V),
    (13, V),
    (14, V),
    (15, V),
    (16, V),
    (17, V),
]);

/// `raftpb.ConfChange`
pub(super) static CONF_CHANGE: Schema = Schema(&[(1, V), (2, V), (3, V), (4, B)]);
