//! How records lie in a segment (etcd `wal/encoder.go`, `wal/decoder.go`).
//!
//! ```text
//! 8 bytes, little-endian   bits 0-55: n; if bit 63 is set, bits 56-58: p
//! n bytes                  the record
//! p bytes                  zeros, so that the next frame begins at a multiple of 8
//! ```

use prost::encoding::decode_varint;

/// The length field in front of each record, in bytes.
pub(super) const LENGTH_BYTES: u64 = 8;
/// A disk writes such a piece of a file whole or not at all, in bytes (etcd's `minSectorSize`).
pub(super) const SECTOR_BYTES: u64 = 512;
/// How many bytes of a frame [`Frame::recognize`] looks at.
pub(super) const HEAD_BYTES: u64 = 96;

/// The longest record that is read, in bytes. etcd takes whatever the file has room for, and a sparse file has room for
/// anything; but members take no message of more than 512 MiB from each other (`readBytesLimit` in
/// `rafthttp/msg_codec.go`).
pub const MAX_RECORD_BYTES: u64 = 1 << 30;

/// The lengths of a frame's parts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) record: u64,
    pub(super) padding: u8,
}

impl Frame {
    pub(super) fn decode(field: u64) -> Self {
        let padding = if field >> 63 == 1 { (field >> 56 & 7) as u8 } else { 0 };
        Self { record: field & 0x00ff_ffff_ffff_ffff, padding }
    }

    /// From the beginning of this frame to that of the next.
    pub(super) fn bytes(self) -> u64 {
        LENGTH_BYTES + self.record + u64::from(self.padding)
    }

    /// A frame as etcd writes it, judged by its first [`HEAD_BYTES`] alone, so that looking for frames in a large file
    /// takes time in proportion to the file. `rest` is how many bytes there are in all.
    ///
    /// Every field has its place and its length, down to those of the entry: what passes is read by `Record::parse`.
    pub(super) fn recognize(head: &[u8], rest: u64) -> Option<Self> {
        let (field, body) = head.split_first_chunk::<8>()?;
        let field = u64::from_le_bytes(*field);
        let frame = Self::decode(field);
        let padding = (8 - frame.record % 8) % 8;
        let flags = if padding == 0 { 0 } else { 0x80 | padding };
        let as_written = u64::from(frame.padding) == padding && field >> 56 == flags;
        if !as_written || frame.record == 0 || frame.record > MAX_RECORD_BYTES || frame.bytes() > rest {
            return None;
        }
        let mut head = Head { bytes: body, left: frame.record };
        let record_type = head.varint(0x08)?;
        head.varint(0x10).filter(|crc| u32::try_from(*crc).is_ok())?;
        if record_type == 4 {
            return head.is_done().then_some(frame);
        }
        head.rest(0x1a)?;
        match record_type {
            1 => {
                head.varint(0x08)?;
                head.varint(0x10)?;
            }
            2 => {
                head.varint(0x08).filter(|entry_type| *entry_type <= 2)?;
                head.varint(0x10)?;
                head.varint(0x18).filter(|index| *index > 0)?;
                if !head.is_done() {
                    head.rest(0x22)?;
                    return Some(frame);
                }
            }
            3 => {
                head.varint(0x08)?;
                head.varint(0x10)?;
                head.varint(0x18)?;
            }
            5 => {
                head.varint(0x08)?;
                head.varint(0x10)?;
                if !head.is_done() {
                    head.rest(0x1a)?;
                    return Some(frame);
                }
            }
            _ => return None,
        }
        head.is_done().then_some(frame)
    }
}

/// The beginning of a message whose length is known.
struct Head<'a> {
    bytes: &'a [u8],
    /// How much of the message is left; more than `bytes`, if it is a long one.
    left: u64,
}

impl Head<'_> {
    fn varint(&mut self, tag: u8) -> Option<u64> {
        let before = self.bytes.len();
        self.bytes = self.bytes.strip_prefix(&[tag])?;
        let value = decode_varint(&mut self.bytes).ok()?;
        self.left = self.left.checked_sub((before - self.bytes.len()) as u64)?;
        Some(value)
    }

    /// A field of bytes that takes up the rest of the message.
    fn rest(&mut self, tag: u8) -> Option<()> {
        let len = self.varint(tag)?;
        (len == self.left).then_some(())
    }

    fn is_done(&self) -> bool {
        self.left == 0
    }
}

/// Whether some sector's part of a frame is all zeros (etcd's `isTornEntry`). The frame's length field is not part of
/// `payload`, which begins at `offset` of the file; its padding is.
pub(super) fn is_torn(payload: &[u8], offset: u64) -> bool {
    let first = usize::try_from(SECTOR_BYTES - offset % SECTOR_BYTES).unwrap_or(usize::MAX);
    let (first, others) = payload.split_at(first.min(payload.len()));
    let mut chunks = [first].into_iter().chain(others.chunks(512)).filter(|chunk| !chunk.is_empty());
    chunks.any(|chunk| chunk.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_counts_only_when_it_is_flagged() {
        assert_eq!(Frame::decode(0x8700_0000_0000_00e1), Frame { record: 0xe1, padding: 7 });
        assert_eq!(Frame::decode(0x0700_0000_0000_00e1), Frame { record: 0xe1, padding: 0 });
        assert_eq!(Frame::decode(u64::MAX), Frame { record: (1 << 56) - 1, padding: 7 });
        assert_eq!(Frame::decode(u64::MAX).bytes(), (1 << 56) + 14);
    }

    #[test]
    fn a_torn_frame_has_a_sector_of_zeros() {
        let torn = |zeros: std::ops::Range<usize>, offset| {
            let mut payload = [1; 1200];
            payload[zeros].fill(0);
            is_torn(&payload, offset)
        };
        assert!(torn(0..512, 0));
        assert!(!torn(0..511, 0));
        assert!(!torn(100..700, 0));
        // The first sector has 12 bytes of it, the last one 164.
        assert!(torn(0..12, 500));
        assert!(torn(1036..1200, 500));
        assert!(!torn(1037..1200, 500));
        assert!(!is_torn(b"", 500));
    }

    #[test]
    fn a_frame_is_recognized_by_its_head() {
        // An entry without data, of index 2 and term 2.
        let entry = *b"\x10\0\0\0\0\0\0\0\x08\x02\x10\x96\x96\xa5\xbf\x08\x1a\x06\x08\0\x10\x02\x18\x02";
        assert_eq!(Frame::recognize(&entry, 24), Some(Frame { record: 16, padding: 0 }));
        assert_eq!(Frame::recognize(&entry, 23), None);
        for (at, byte) in [(0, 0x0f), (7, 0x80), (8, 0x10), (9, 6), (16, 0x12), (17, 7), (19, 3), (23, 0)] {
            let mut other = entry;
            other[at] = byte;
            assert_eq!(Frame::recognize(&other, 1000), None, "{at}");
        }
    }
}
