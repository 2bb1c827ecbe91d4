//! What a log is made of, as it is read.

use super::Record;

/// How far reading goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// As etcd reads: up to the first damage.
    Strict,
    /// Past the damage, and behind the end: wherever bytes look like a record of etcd's making, they are listed as one,
    /// unverified.
    Salvage,
}

/// A place in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Which segment, counted from 0 in reading order: an index into [`Wal::segments`](super::Wal::segments).
    pub segment: usize,
    /// Where in the file, in bytes.
    pub offset: u64,
}

/// One thing found in a log.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A record.
    Record(Record<'a>),
    /// The log cannot be believed from here on, or to the end of the segment.
    Damage(Damage),
    /// Bytes that are not zero where etcd keeps zeros, or that belong to no record.
    Leftover(Leftover),
}

/// Whether a record's checksum is the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Check {
    /// It continues the checksum of the records before it.
    Ok,
    /// It does not, or what is before it is damaged, or it lies behind the end of the log.
    Unverified,
}

/// Where and how a log is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The frame in question.
    pub at: Position,
    /// How.
    pub kind: DamageKind,
}

/// The kinds of damage that etcd tells apart when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// The file ends inside a frame. etcd cuts such a tail off.
    Truncated,
    /// Part of the last frames was never written: a sector of it is all zeros, in the last segment. etcd cuts it off as
    /// well.
    Torn,
    /// Anything else. etcd refuses to start.
    Corrupt(Corruption),
}

/// What is wrong with a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Corruption {
    /// The record's checksum does not continue that of the records before it.
    Checksum {
        /// What the record says.
        stored: u32,
        /// What it would have to say.
        computed: u32,
    },
    /// A record of type crc, with which a segment begins, is not the checksum of the segment before.
    Chain {
        /// What the record says.
        stored: u32,
        /// What it would have to say.
        computed: u32,
    },
    /// The frame holds no record, or the record not what its type says.
    Malformed,
    /// There is no such type of record.
    UnknownType {
        /// What the record says.
        record_type: i64,
    },
    /// The frame is longer than [`MAX_RECORD_BYTES`](super::MAX_RECORD_BYTES).
    TooLong {
        /// What the frame says.
        bytes: u64,
    },
    /// The node or cluster is not the one that the log began with.
    MetadataConflict,
    /// The segment is not the one that follows; at its beginning.
    MissingSegment {
        /// The sequence number that should follow.
        expected: u64,
    },
}

/// Bytes of no record, in a row. Zeros may be among them, up to a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The first that is not zero.
    pub at: Position,
    /// Up to the last that is not zero.
    pub bytes: u64,
    /// Where they lie.
    pub place: LeftoverPlace,
}

/// Where [`Leftover`] bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeftoverPlace {
    /// Between a record and the next frame.
    Padding,
    /// Behind the end of the segment's records.
    BehindEnd,
    /// Behind damage: parts of records, most likely.
    Damaged,
}

/// How a log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// At a frame's end, in every segment.
    Clean,
    /// At the first damage.
    Damaged(Damage),
}

impl std::fmt::Display for DamageKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the file ends within a record, which etcd repairs",
            Self::Torn => "a record was not written to its end, which etcd repairs",
            Self::Corrupt(Corruption::Checksum { .. }) => {
                "a record is not what its checksum says, and etcd does not start"
            }
            Self::Corrupt(Corruption::Chain { .. }) => "a segment does not go on where the one before it ends",
            Self::Corrupt(Corruption::MissingSegment { .. }) => "a segment is missing",
            Self::Corrupt(_) => "a record cannot be read, and etcd does not start",
        })
    }
}
