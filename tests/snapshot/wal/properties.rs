//! Whatever the bytes, reading ends, and says how.

use atrest::protobuf::Reader;
use atrest::snapshot::wal::{
    Check, Damage, DamageKind, End, Entry, EntryType, Index, Item, Mode, RaftSnapshot, RecordKind, Redacted, Request,
    Wal,
};
use proptest::prelude::*;

use super::synthetic::Writer;
use super::{FIRST, SECOND, file, in_memory, index, read, segment};

/// Reads everything twice and checks what has to hold of any log.
fn sound(wal: &Wal, mode: Mode) -> Index {
    let mut records = wal.records(mode);
    let (mut last, mut held, mut values) = (None, 0, 0);
    while let Some(item) = records.next_item().expect("bytes in memory") {
        let Item::Record(record) = item else { continue };
        assert!(last.is_none_or(|last| last < record.position));
        last = Some(record.position);
        held += 8 + record.length + u64::from(record.padding);
        if let RecordKind::Entry(entry) = record.kind {
            let request = Request::parse(&entry);
            request.for_each_value(|value| values += value.value.len() as u64);
            _ = (request.to_string(), request.plaintext_passwords().count());
        }
    }
    let total: u64 = wal.segments().iter().map(|segment| segment.len()).sum();
    assert!(held <= total && values <= held);
    let index = index(wal, mode);
    assert_eq!(index.end, records.end());
    let mut visited = 0;
    index.visit(wal, |_, _| visited += 1).expect("bytes in memory");
    assert_eq!(visited, index.entries().len());
    assert!(index.effective().is_sorted_by(|a, b| a.index < b.index));
    index
}

/// Strict reading finds the beginning of what salvage finds.
fn both_modes(wal: &Wal) -> (Index, Index) {
    let (strict, salvaged) = (index(wal, Mode::Strict), sound(wal, Mode::Salvage));
    assert_eq!(strict.end, salvaged.end);
    let places = |index: &Index| index.entries().iter().map(|entry| (entry.position, entry.index)).collect::<Vec<_>>();
    assert!(places(&salvaged).starts_with(&places(&strict)) || strict.end == End::Clean);
    (strict, salvaged)
}

/// Where in a frame bits lie that no checksum covers: those of the length that mean nothing, the record's type, and
/// those of its checksum from the 33rd on.
fn is_free(at: usize, bit: u8, frames: &[usize]) -> bool {
    let frame = frames.iter().rfind(|frame| **frame <= at).expect("a frame");
    matches!((at - frame, bit), (7 | 9, _) | (15, 4..=6))
}

#[test]
fn a_flipped_bit_anywhere_is_noticed() {
    let bytes = file(SECOND);
    let frames = read(&in_memory(&bytes), Mode::Strict).records;
    let frames: Vec<usize> = frames.iter().map(|(at, ..)| at.offset.try_into().expect("an offset")).collect();
    let mut unnoticed = Vec::new();
    for at in 0..bytes.len() {
        // From 1512 on there are only zeros.
        for bit in if at < 1520 { 0..8 } else { 3..4 } {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            let strict = index(&in_memory(&flipped), Mode::Strict);
            if strict.end == End::Clean && strict.leftovers.is_empty() && !is_free(at, bit, &frames) {
                unnoticed.push((at, bit));
            }
        }
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        both_modes(&in_memory(&flipped));
    }
    assert_eq!(unnoticed, []);
}

#[test]
fn a_file_of_any_length_has_a_verdict() {
    for name in [FIRST, SECOND] {
        let bytes = file(name);
        let whole = read(&in_memory(&bytes), Mode::Strict);
        let frames: Vec<u64> = whole.records.iter().map(|(at, ..)| at.offset).collect();
        let end = 1 + bytes.iter().rposition(|byte| *byte != 0).expect("a log") as u64;
        let end = end.next_multiple_of(8);
        for len in 0..=bytes.len() {
            let (strict, _) = both_modes(&in_memory(&bytes[..len]));
            let len = len as u64;
            // Behind the records, the first eight zeros are a length.
            if len == end || len >= end + 8 || frames.contains(&len) {
                assert_eq!(strict.end, End::Clean, "{name} {len}");
            } else {
                let End::Damaged(Damage { at, kind: DamageKind::Truncated }) = strict.end else {
                    panic!("{name} {len}: {:?}", strict.end);
                };
                assert!(at.offset < len && len - at.offset < 300, "{name} {len}");
            }
        }
    }
}

#[test]
fn zeros_from_anywhere_on_have_a_verdict() {
    let bytes = file(SECOND);
    for len in 0..bytes.len() {
        let mut zeroed = bytes.clone();
        zeroed[len..].fill(0);
        both_modes(&in_memory(&zeroed));
    }
}

/// A frame of arbitrary length and content, its checksum right or not.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let data = prop::collection::vec(any::<u8>(), 0..60);
    let record = (0_u64..7, data, 1_u64..6).prop_map(|(record_type, data, index)| {
        let mut writer = Writer::default();
        if record_type == 2 {
            writer.entry(0, 1, index, &data);
        } else {
            writer.record(record_type, &data);
        }
        writer.bytes
    });
    prop_oneof![record, prop::collection::vec(any::<u8>(), 0..40), (0_usize..700).prop_map(|len| vec![0; len])]
}

proptest! {
    #[test]
    fn any_bytes_are_a_log_of_some_kind(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        both_modes(&in_memory(&bytes));
    }

    #[test]
    fn any_frames_are_a_log_of_some_kind(
        first in prop::collection::vec(frame(), 0..8),
        second in prop::collection::vec(frame(), 0..8),
    ) {
        both_modes(&Wal::new(vec![segment("a", first.concat()), segment("b", second.concat())]));
    }

    #[test]
    fn what_is_written_is_read(
        entries in prop::collection::vec((1_u64..20, prop::collection::vec(any::<u8>(), 0..700)), 0..20),
    ) {
        let mut writer = Writer::default();
        for (index, data) in &entries {
            writer.entry(0, 1, *index, data);
        }
        let wal = in_memory(&writer.bytes);
        let index = index(&wal, Mode::Strict);
        prop_assert_eq!(&index.end, &End::Clean);
        let mut found = Vec::new();
        index.visit(&wal, |_, entry| found.push((entry.index, entry.data.to_vec()))).expect("bytes in memory");
        prop_assert_eq!(found, entries.clone());
        // What raft makes of them: each cuts off those that are not below it.
        let mut log: Vec<u64> = Vec::new();
        for (index, _) in entries {
            log.retain(|kept| *kept < index);
            log.push(index);
        }
        prop_assert_eq!(index.effective().map(|entry| entry.index).collect::<Vec<_>>(), log);
        prop_assert!(read(&wal, Mode::Salvage).records.iter().all(|(.., check)| *check == Check::Ok));
    }

    #[test]
    fn any_bytes_are_a_request_of_some_kind(data in prop::collection::vec(any::<u8>(), 0..200), entry_type in 0_u8..4) {
        let entry_type = match entry_type {
            0 => EntryType::Normal,
            1 => EntryType::ConfChange,
            2 => EntryType::ConfChangeV2,
            _ => EntryType::Unknown(3),
        };
        let request = Request::parse(&Entry { entry_type, term: 1, index: 1, data: Redacted(&data) });
        let mut held = 0;
        request.for_each_value(|value| held += value.value.len());
        prop_assert!(held <= data.len());
        if let Request::Raft(_) = request {
            let mut reader = Reader::new(&data);
            while reader.next_field().expect("a message").is_some() {}
        }
    }

    #[test]
    fn any_bytes_are_a_raft_snapshot_or_not(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(snapshot) = RaftSnapshot::parse(&bytes) {
            prop_assert!(snapshot.data.len() + snapshot.conf_state.len() < bytes.len());
        }
    }
}
