//! Requests in a line: keys, numbers and names, never a value.

use std::fmt;

use super::{KeyRange, Operation, Request, RequestOp, Txn, V2Request};

impl fmt::Display for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no-op"),
            Self::Raft(request) => match request.operation() {
                Some(operation) => operation.fmt(f),
                None => f.write_str("request without an operation"),
            },
            Self::V2(request) => request.fmt(f),
            Self::ConfChange(change) => {
                let name = match change.change_type {
                    0 => "add_node",
                    1 => "remove_node",
                    2 => "update_node",
                    3 => "add_learner_node",
                    _ => "unknown",
                };
                write!(f, "conf_change {name} {:x}", change.node_id)
            }
            Self::ConfChangeV2(_) => f.write_str("conf_change_v2"),
            Self::Unrecognized(data) => write!(f, "unrecognized, {} bytes", data.len()),
        }
    }
}

impl fmt::Display for Operation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V2(request) => request.fmt(f),
            Self::Put(put) => write!(f, "put {}", put.key),
            Self::DeleteRange(range) => write!(f, "delete_range {range}"),
            Self::Txn(txn) => txn.fmt(f),
            Self::Compaction { revision, .. } => write!(f, "compaction {revision}"),
            // etcdctl shows leases in hexadecimal.
            Self::LeaseGrant { id, .. } => write!(f, "lease_grant {id:x}"),
            Self::LeaseRevoke { id } => write!(f, "lease_revoke {id:x}"),
            Self::Other { name, .. } => f.write_str(name),
        }
    }
}

impl fmt::Display for KeyRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.range_end.is_empty() { self.key.fmt(f) } else { write!(f, "{} up to {}", self.key, self.range_end) }
    }
}

impl fmt::Display for V2Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v2 {} {}", self.method, self.path)
    }
}

/// The first key that is written or deleted, and how many operations there are of each kind: `txn /a (2 puts, else 1
/// range)`.
impl fmt::Display for Txn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("txn")?;
        let key = self.success().chain(self.failure()).find_map(|operation| match operation {
            RequestOp::Put(put) => Some(put.key),
            RequestOp::DeleteRange(range) => Some(range.key),
            RequestOp::Range(_) | RequestOp::Txn(_) => None,
        });
        if let Some(key) = key {
            write!(f, " {key}")?;
        }
        let mut separator = " (";
        for (branch, counts) in [("", Counts::of(self.success())), ("else ", Counts::of(self.failure()))] {
            let mut branch = branch;
            for (count, one, several) in counts.0 {
                if count > 0 {
                    write!(f, "{separator}{branch}{count} {}", if count == 1 { one } else { several })?;
                    (separator, branch) = (", ", "");
                }
            }
        }
        f.write_str(if separator == ", " { ")" } else { "" })
    }
}

struct Counts([(usize, &'static str, &'static str); 4]);

impl Counts {
    fn of<'a>(operations: impl Iterator<Item = RequestOp<'a>>) -> Self {
        let (mut puts, mut deletes, mut ranges, mut txns) = (0, 0, 0, 0);
        for operation in operations {
            match operation {
                RequestOp::Put(_) => puts += 1,
                RequestOp::DeleteRange(_) => deletes += 1,
                RequestOp::Range(_) => ranges += 1,
                RequestOp::Txn(_) => txns += 1,
            }
        }
        Self([
            (puts, "put", "puts"),
            (deletes, "delete_range", "delete_ranges"),
            (ranges, "range", "ranges"),
            (txns, "txn", "txns"),
        ])
    }
}
