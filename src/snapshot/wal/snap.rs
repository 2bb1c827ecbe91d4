//! Raft snapshots (etcd `api/snap/snapshotter.go`, `snappb/snap.proto`).
//!
//! ```text
//! member/snap/%016x-%016x.snap    term and index
//! Snapshot         1 crc: CRC-32C of data, 2 data: raftpb.Snapshot
//! raftpb.Snapshot  1 data: the v2 store, as JSON, 2 metadata { 1 ConfState, 2 index, 3 term }
//! ```
//!
//! Values of the v3 API are not in it; those of the v2 API are.

use super::Redacted;
use crate::protobuf::{self, Field, Reader};

/// A `.snap` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaftSnapshot<'a> {
    /// The checksum that the file has.
    pub crc: u32,
    /// Whether it is the right one.
    pub crc_ok: bool,
    /// The last entry that the snapshot covers.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// `raftpb.ConfState`: who is a member.
    pub conf_state: &'a [u8],
    /// The v2 store: JSON.
    pub data: Redacted<'a>,
}

/// Why a file is no raft snapshot.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapError {
    /// It is no protobuf.
    #[error("the file is no raft snapshot")]
    Protobuf(#[from] protobuf::Error),
    /// A field is not of the type that it has to be of.
    #[error("the file is no raft snapshot: field {field} has the wrong type")]
    WrongType {
        /// The field's number.
        field: u32,
    },
    /// There is nothing in it (etcd's `ErrEmptySnapshot`).
    #[error("the raft snapshot is empty")]
    Empty,
}

impl<'a> RaftSnapshot<'a> {
    /// Reads a file's bytes. A wrong checksum is reported and not an error.
    ///
    /// # Errors
    ///
    /// When the file is something else, or cut short.
    pub fn parse(file: &'a [u8]) -> Result<Self, SnapError> {
        let (mut crc, mut snapshot) = (0, &[][..]);
        let mut reader = Reader::new(file);
        while let Some(field) = reader.next_field()? {
            match field {
                (1, Field::Varint(value)) => crc = (value & 0xffff_ffff) as u32,
                (2, Field::Bytes(bytes)) => snapshot = bytes,
                (field @ 1..=2, _) => return Err(SnapError::WrongType { field }),
                _ => {}
            }
        }
        if snapshot.is_empty() || crc == 0 {
            return Err(SnapError::Empty);
        }
        let crc_ok = crc32c::crc32c(snapshot) == crc;
        let mut parsed = Self { crc, crc_ok, index: 0, term: 0, conf_state: &[], data: Redacted(&[]) };
        let mut reader = Reader::new(snapshot);
        while let Some(field) = reader.next_field()? {
            match field {
                (1, Field::Bytes(data)) => parsed.data = Redacted(data),
                (2, Field::Bytes(metadata)) => parsed.read_metadata(metadata)?,
                (field @ 1..=2, _) => return Err(SnapError::WrongType { field }),
                _ => {}
            }
        }
        Ok(parsed)
    }

    fn read_metadata(&mut self, metadata: &'a [u8]) -> Result<(), SnapError> {
        let mut reader = Reader::new(metadata);
        while let Some(field) = reader.next_field()? {
            match field {
                (1, Field::Bytes(conf_state)) => self.conf_state = conf_state,
                (2, Field::Varint(index)) => self.index = index,
                (3, Field::Varint(term)) => self.term = term,
                (field @ 1..=3, _) => return Err(SnapError::WrongType { field }),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_snapshot_is_refused() {
        assert_eq!(RaftSnapshot::parse(b""), Err(SnapError::Empty));
        assert_eq!(RaftSnapshot::parse(b"\x08\0\x12\x01a"), Err(SnapError::Empty));
        assert_eq!(RaftSnapshot::parse(b"\x0a\0"), Err(SnapError::WrongType { field: 1 }));
        let truncated = protobuf::Error::Truncated { offset: 2 };
        assert_eq!(RaftSnapshot::parse(b"\x08\x01\x12\x05a"), Err(SnapError::Protobuf(truncated)));
    }
}
