//! The records of a segment (etcd `walpb/record.proto`, `raftpb/raft.proto`).

use super::{Check, Corruption, Position, Redacted};
use crate::protobuf::{Field, Reader};

/// `walpb.Record`, and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where its frame begins.
    pub position: Position,
    /// How long it is, in bytes, without the length in front of it and the padding behind.
    pub length: u64,
    /// How many bytes follow up to the next frame.
    pub padding: u8,
    /// CRC-32C of the data of all records up to this one.
    pub crc: u32,
    /// Whether it is.
    pub check: Check,
    /// What it says.
    pub kind: RecordKind<'a>,
}

/// What a record says, by its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind<'a> {
    /// Whose log it is; at the head of each segment.
    Metadata(Metadata),
    /// An entry of raft's log.
    Entry(Entry<'a>),
    /// What raft has to remember beside its log.
    State(HardState),
    /// The first record of each segment: the checksum up to there.
    Crc,
    /// A snapshot was taken.
    Snapshot(Snapshot<'a>),
}

/// `etcdserverpb.Metadata`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The member's ID.
    pub node_id: u64,
    /// The cluster's ID.
    pub cluster_id: u64,
}

/// `raftpb.Entry`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What `data` is.
    pub entry_type: EntryType,
    /// The term of the leader that it is from.
    pub term: u64,
    /// Its place in raft's log, from 1 on. It may occur again, when another leader overrode it.
    pub index: u64,
    /// A [`Request`](super::Request); nothing, if a new leader wanted an entry of its own.
    pub data: Redacted<'a>,
}

/// `raftpb.EntryType`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryType {
    /// A request to the store.
    Normal,
    /// `raftpb.ConfChange`: a member joins, leaves or changes.
    ConfChange,
    /// `raftpb.ConfChangeV2`
    ConfChangeV2,
    /// There is no such type.
    Unknown(u64),
}

/// `raftpb.HardState`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardState {
    /// The latest term that the member knows of.
    pub term: u64,
    /// The member it voted for in that term; 0 is none.
    pub vote: u64,
    /// The highest index that is known to be committed.
    pub commit: u64,
}

/// `walpb.Snapshot`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot<'a> {
    /// The last entry that the snapshot covers.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// `raftpb.ConfState`: who is a member. etcd 3.5 and newer.
    pub conf_state: Option<&'a [u8]>,
}

/// The fields of `walpb.Record`.
#[derive(Clone, Copy)]
pub(super) struct Raw<'a> {
    pub(super) record_type: i64,
    pub(super) crc: u32,
    pub(super) data: &'a [u8],
}

pub(super) const CRC_TYPE: i64 = 4;

impl<'a> Raw<'a> {
    pub(super) fn parse(record: &'a [u8]) -> Result<Self, Corruption> {
        let mut raw = Self { record_type: 0, crc: 0, data: &[] };
        let mut fields = Fields::new(record);
        while let Some((number, field)) = fields.next()? {
            match number {
                1 => raw.record_type = varint(field)?.cast_signed(),
                // A varint of more bits is cut to 32, as etcd does.
                2 => raw.crc = (varint(field)? & 0xffff_ffff) as u32,
                3 => raw.data = bytes(field)?,
                _ => {}
            }
        }
        Ok(raw)
    }

    pub(super) fn kind(self) -> Result<RecordKind<'a>, Corruption> {
        match self.record_type {
            1 => numbers(self.data)
                .map(|[node_id, cluster_id, _]| RecordKind::Metadata(Metadata { node_id, cluster_id })),
            2 => Entry::parse(self.data).map(RecordKind::Entry),
            3 => numbers(self.data).map(|[term, vote, commit]| RecordKind::State(HardState { term, vote, commit })),
            CRC_TYPE => Ok(RecordKind::Crc),
            5 => Snapshot::parse(self.data).map(RecordKind::Snapshot),
            record_type => Err(Corruption::UnknownType { record_type }),
        }
    }
}

impl<'a> Entry<'a> {
    fn parse(message: &'a [u8]) -> Result<Self, Corruption> {
        let mut entry = Self { entry_type: EntryType::Normal, term: 0, index: 0, data: Redacted(&[]) };
        let mut fields = Fields::new(message);
        while let Some((number, field)) = fields.next()? {
            match number {
                1 => {
                    entry.entry_type = match varint(field)? {
                        0 => EntryType::Normal,
                        1 => EntryType::ConfChange,
                        2 => EntryType::ConfChangeV2,
                        other => EntryType::Unknown(other),
                    }
                }
                2 => entry.term = varint(field)?,
                3 => entry.index = varint(field)?,
                4 => entry.data = Redacted(bytes(field)?),
                _ => {}
            }
        }
        Ok(entry)
    }
}

impl<'a> Snapshot<'a> {
    fn parse(message: &'a [u8]) -> Result<Self, Corruption> {
        let mut snapshot = Self { index: 0, term: 0, conf_state: None };
        let mut fields = Fields::new(message);
        while let Some((number, field)) = fields.next()? {
            match number {
                1 => snapshot.index = varint(field)?,
                2 => snapshot.term = varint(field)?,
                3 => snapshot.conf_state = Some(bytes(field)?),
                _ => {}
            }
        }
        Ok(snapshot)
    }
}

/// The first three fields of a message, all of them numbers; 0 where one is missing.
fn numbers(message: &[u8]) -> Result<[u64; 3], Corruption> {
    let mut numbers = [0; 3];
    let mut fields = Fields::new(message);
    while let Some((number, field)) = fields.next()? {
        let index = usize::try_from(number).unwrap_or(usize::MAX).wrapping_sub(1);
        if let Some(place) = numbers.get_mut(index) {
            *place = varint(field)?;
        }
    }
    Ok(numbers)
}

struct Fields<'a>(Reader<'a>);

impl<'a> Fields<'a> {
    fn new(message: &'a [u8]) -> Self {
        Self(Reader::new(message))
    }

    fn next(&mut self) -> Result<Option<(u32, Field<'a>)>, Corruption> {
        self.0.next_field().map_err(|_| Corruption::Malformed)
    }
}

fn varint(field: Field<'_>) -> Result<u64, Corruption> {
    if let Field::Varint(value) = field { Ok(value) } else { Err(Corruption::Malformed) }
}

fn bytes(field: Field<'_>) -> Result<&[u8], Corruption> {
    if let Field::Bytes(bytes) = field { Ok(bytes) } else { Err(Corruption::Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(record: &[u8]) -> Result<RecordKind<'_>, Corruption> {
        Raw::parse(record).and_then(Raw::kind)
    }

    #[test]
    fn what_is_not_what_its_type_says_is_malformed() {
        assert_eq!(kind(b"\x08\x02\x1a\x02\x0a\0"), Err(Corruption::Malformed));
        assert_eq!(kind(b"\x08\x03\x1a\x02\x1a\0"), Err(Corruption::Malformed));
        assert_eq!(kind(b"\x0a\0"), Err(Corruption::Malformed));
        assert_eq!(kind(b"\x08\x04\x10"), Err(Corruption::Malformed));
        assert_eq!(kind(b""), Err(Corruption::UnknownType { record_type: 0 }));
        assert_eq!(kind(b"\x08\x06"), Err(Corruption::UnknownType { record_type: 6 }));
    }

    #[test]
    fn fields_that_are_not_known_are_skipped() {
        let state = RecordKind::State(HardState { term: 1, vote: 0, commit: 7 });
        assert_eq!(kind(b"\x08\x03\x1a\x08\x08\x01\x18\x07\x22\x02ab"), Ok(state));
    }

    #[test]
    fn debug_output_has_no_data() {
        let entry = Entry::parse(b"\x08\0\x10\x01\x18\x05\x22\x04hush").expect("an entry");
        let text = "Entry { entry_type: Normal, term: 1, index: 5, data: [4 bytes] }";
        assert_eq!(format!("{entry:?}"), text);
    }
}
