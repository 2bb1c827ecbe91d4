//! Tests 65 to 67 and 70 of the specification: which entries count, and how damage is told apart.

use atrest::snapshot::wal::{
    Check, Corruption, Damage, DamageKind, Directory, End, Fate, HardState, Index, Leftover, LeftoverPlace,
    MAX_RECORD_BYTES, Metadata, Mode, Request, Segment, Wal,
};

use super::synthetic::Writer;
use super::{FIRST, SECOND, at, file, in_memory, index, read, segment, vectors, wal};

fn effective(index: &Index) -> (usize, u64) {
    (index.effective().count(), index.effective().last().map_or(0, |entry| entry.index))
}

fn damaged(segment: usize, offset: u64, kind: DamageKind) -> End {
    End::Damaged(Damage { at: at(segment, offset), kind })
}

#[test]
fn entries_that_were_overridden_are_listed_as_discarded() {
    let wal = Wal::open(&vectors().join("wal/two-segments")).expect("a log");
    let index = index(&wal, Mode::Strict);
    assert_eq!(effective(&index), (31, 31));
    assert_eq!(index.end, End::Clean);
    assert_eq!(index.unverified_starts, [0_usize; 0]);
    assert_eq!(index.metadata, Some(Metadata { node_id: 42, cluster_id: 99 }));
    assert_eq!(index.state, Some(HardState { term: 2, vote: 42, commit: 30 }));

    let mut discarded = Vec::new();
    let visited = index.visit(&wal, |indexed, entry| {
        if indexed.fate == Fate::Discarded {
            Request::parse(&entry).for_each_value(|value| {
                discarded.push((
                    indexed.index,
                    indexed.term,
                    indexed.position,
                    value.key.to_vec(),
                    value.value.to_vec(),
                ));
            });
        }
    });
    visited.expect("a second pass");
    let key = b"/registry/secrets/demo/overridden".to_vec();
    assert_eq!(discarded, [(22, 1, at(0, 3952), key, b"WAL-OVERRIDDEN-ENTRY".to_vec())]);
    assert_eq!(index.entries().len(), 32);
}

#[test]
fn entries_above_the_consistent_index_are_not_yet_in_the_db() {
    let index = index(&wal(&[FIRST, SECOND]), Mode::Strict);
    let missing = |consistent_index| index.not_yet_in_db(consistent_index).map(|entry| entry.index).collect::<Vec<_>>();
    assert_eq!(missing(27), [28, 29, 30]);
    assert_eq!(missing(30), [0_u64; 0]);
    // Entry 31 is not committed, and the first of the two with index 22 was discarded.
    assert_eq!(missing(20), [21, 22, 23, 24, 25, 26, 27, 28, 29, 30]);
    assert_eq!(index.not_yet_in_db(21).next().map(|entry| (entry.index, entry.term)), Some((22, 2)));
}

#[test]
fn a_later_segment_alone_is_read_from_an_unverified_checksum_on() {
    let index = index(&wal(&[SECOND]), Mode::Strict);
    assert_eq!(index.unverified_starts, [0]);
    assert_eq!(index.end, End::Clean);
    assert_eq!(index.effective().map(|entry| entry.index).collect::<Vec<_>>(), [24, 25, 26, 27, 28, 29, 30, 31]);
    assert_eq!(index.state, Some(HardState { term: 2, vote: 42, commit: 30 }));
}

#[test]
fn a_file_that_ends_inside_a_record_is_truncated() {
    let index = index(&wal(&[FIRST, "torn-truncated.wal"]), Mode::Strict);
    assert_eq!(index.end, damaged(1, 1328, DamageKind::Truncated));
    assert_eq!(effective(&index), (30, 30));
}

#[test]
fn a_sector_of_zeros_is_a_torn_write() {
    let index = index(&wal(&[FIRST, "torn-zeroed-sector.wal"]), Mode::Strict);
    assert_eq!(index.end, damaged(1, 872, DamageKind::Torn));
    assert_eq!(effective(&index), (28, 28));
}

#[test]
fn a_wrong_checksum_without_a_sector_of_zeros_is_corruption() {
    for name in ["torn-inside-sector.wal", "crc-broken.wal"] {
        let index = index(&wal(&[FIRST, name]), Mode::Strict);
        let End::Damaged(Damage { at: place, kind: DamageKind::Corrupt(Corruption::Checksum { stored, .. }) }) =
            index.end
        else {
            panic!("{name}: {:?}", index.end);
        };
        assert_eq!((place, stored), (at(1, 1328), 0xdc4f_182e), "{name}");
        assert_eq!(effective(&index), (30, 30), "{name}");
    }
}

#[test]
fn a_torn_write_before_the_last_segment_is_corruption() {
    let index = index(&wal(&["torn-zeroed-sector.wal", SECOND]), Mode::Strict);
    let End::Damaged(Damage { at: place, kind: DamageKind::Corrupt(Corruption::Checksum { .. }) }) = index.end else {
        panic!("{:?}", index.end);
    };
    assert_eq!(place, at(0, 872));
}

#[test]
fn a_length_beyond_the_file_is_truncation_and_allocates_nothing() {
    let index = index(&wal(&[FIRST, "huge-length.wal"]), Mode::Strict);
    assert_eq!(index.end, damaged(1, 1328, DamageKind::Truncated));
    assert_eq!(effective(&index), (30, 30));
}

#[test]
fn salvage_finds_what_follows_damage() {
    // The length of the last entry is wrong; the state behind it is a record again.
    let found = read(&wal(&[FIRST, "huge-length.wal"]), Mode::Salvage);
    assert_eq!(found.records.len(), 69);
    assert_eq!(found.records.last(), Some(&(at(1, 1488), None, Check::Unverified)));
    let leftover = Leftover { at: at(1, 1333), bytes: 1484 - 1333, place: LeftoverPlace::Damaged };
    assert_eq!(found.leftovers, [leftover]);

    // The record itself is whole but for one bit.
    let found = read(&wal(&[FIRST, "crc-broken.wal"]), Mode::Salvage);
    let last_two = [(at(1, 1328), Some(31), Check::Unverified), (at(1, 1488), None, Check::Unverified)];
    assert_eq!(found.records[68..], last_two);
    assert_eq!((found.records.len(), found.damage.len(), found.leftovers.len()), (70, 1, 0));

    let index = index(&wal(&[FIRST, "crc-broken.wal"]), Mode::Salvage);
    assert_eq!(effective(&index), (30, 30));
    assert_eq!(index.commit(), 29, "an unverified state says nothing");
    assert_eq!(index.entries().last().map(|entry| (entry.index, entry.fate)), Some((31, Fate::Unverified)));
}

#[test]
fn salvage_goes_on_with_the_next_segment() {
    let mut first = file(FIRST);
    // Inside the value of the second entry.
    first[0xf0] ^= 1;
    let wal = Wal::new(vec![
        segment("0000000000000000-0000000000000000.wal", first),
        segment("0000000000000001-0000000000000018.wal", file(SECOND)),
    ]);
    let strict = index(&wal, Mode::Strict);
    assert_eq!((effective(&strict), strict.commit()), ((1, 1), 0));
    let salvaged = index(&wal, Mode::Salvage);
    assert_eq!(salvaged.unverified_starts, [1]);
    assert_eq!(salvaged.entries().len(), 32);
    // The first entry, and all of the second segment.
    assert_eq!(effective(&salvaged), (9, 31));
    assert_eq!(salvaged.commit(), 30);
    assert_eq!((salvaged.end, salvaged.damage.len()), (strict.end, 1));
}

#[test]
fn a_segment_that_is_missing_is_noticed() {
    let wal = Wal::new(vec![
        segment("0000000000000000-0000000000000000.wal", file(FIRST)),
        segment("0000000000000002-0000000000000018.wal", file(SECOND)),
    ]);
    let missing = DamageKind::Corrupt(Corruption::MissingSegment { expected: 1 });
    let strict = index(&wal, Mode::Strict);
    assert_eq!((strict.end.clone(), strict.entries().len()), (damaged(1, 0, missing), 24));
    let salvaged = index(&wal, Mode::Salvage);
    assert_eq!((salvaged.end, salvaged.unverified_starts), (strict.end, vec![1]));
    assert_eq!(effective(&index(&wal, Mode::Salvage)), (31, 31));
}

#[test]
fn a_segment_of_another_log_is_noticed() {
    let found = index(&wal(&["v351-0000000000000000-0000000000000000.wal", SECOND]), Mode::Strict);
    // The checksum of the last record of either log.
    let chain = Corruption::Chain { stored: 0x624c_b367, computed: 0x460e_4904 };
    assert_eq!(found.end, damaged(1, 0, DamageKind::Corrupt(chain)));
}

#[test]
fn bytes_in_padding_and_behind_the_end_are_reported() {
    let mut bytes = file(SECOND);
    // The padding of the record at 0xc0 is 4 bytes, in front of the frame at 0x150.
    bytes[0x13d] = 7;
    bytes[2000..2005].copy_from_slice(b"tail!");
    bytes[2600] = 1;
    bytes[4095] = 1;
    let leftover = |offset, bytes, place| Leftover { at: at(0, offset), bytes, place };
    let expected = [
        leftover(0x13d, 1, LeftoverPlace::Padding),
        leftover(2000, 5, LeftoverPlace::BehindEnd),
        leftover(2600, 1, LeftoverPlace::BehindEnd),
        leftover(4095, 1, LeftoverPlace::BehindEnd),
    ];
    for mode in [Mode::Strict, Mode::Salvage] {
        let found = read(&in_memory(&bytes), mode);
        assert_eq!((found.leftovers, found.damage), (expected.to_vec(), vec![]));
    }
}

#[test]
fn records_behind_the_end_are_salvaged() {
    let mut bytes = file(SECOND);
    // As if the tail from entry 30 on had been cut off without being zeroed.
    bytes[1184..1192].fill(0);
    // The padding behind entry 31.
    bytes[1486] = 1;
    let strict = read(&in_memory(&bytes), Mode::Strict);
    let behind = Leftover { at: at(0, 1192), bytes: 1512 - 1192, place: LeftoverPlace::BehindEnd };
    assert_eq!((strict.leftovers, strict.damage), (vec![behind], vec![]));
    let salvaged = index(&in_memory(&bytes), Mode::Salvage);
    let unverified: Vec<_> = salvaged.entries().iter().filter(|entry| entry.fate == Fate::Unverified).collect();
    assert_eq!(unverified.iter().map(|entry| entry.index).collect::<Vec<_>>(), [31]);
    assert_eq!((effective(&salvaged), salvaged.commit(), salvaged.end), ((6, 29), 28, End::Clean));
    let places: Vec<_> = salvaged.leftovers.iter().map(|found| (found.at.offset, found.bytes, found.place)).collect();
    assert_eq!(places, [(1192, 1301 - 1192, LeftoverPlace::BehindEnd), (1486, 1, LeftoverPlace::Padding)]);
}

#[test]
fn a_directory_is_opened_by_its_names() {
    let listed = Directory::list(&vectors().join("wal/two-segments")).expect("a listing");
    assert_eq!((listed.segments.len(), listed.remnants.len()), (2, 0));
    let wal = listed.open().expect("a log");
    assert_eq!(wal.segments().iter().map(|segment| segment.sequence()).collect::<Vec<_>>(), [Some(0), Some(1)]);
}

/// A preallocated segment whose last record says that it goes on to the end of it.
#[test]
fn a_record_is_not_read_into_memory_because_a_sparse_file_has_room_for_it() {
    let path = tempfile::tempdir().expect("a directory");
    let path = path.path().join("0000000000000000-0000000000000000.wal");
    let mut bytes = file(FIRST);
    bytes.extend((MAX_RECORD_BYTES + 1).to_le_bytes());
    std::fs::write(&path, bytes).expect("a file");
    let sparse = std::fs::File::options().write(true).open(&path).expect("a file");
    sparse.set_len(4464 + MAX_RECORD_BYTES + 100).expect("a sparse file");
    let index = index(&Wal::new(vec![Segment::open(&path).expect("a segment")]), Mode::Strict);
    let kind = DamageKind::Corrupt(Corruption::TooLong { bytes: MAX_RECORD_BYTES + 1 });
    assert_eq!(index.end, damaged(0, 4464, kind));
    assert_eq!(effective(&index), (23, 23));
}

#[test]
fn records_longer_than_one_read_are_read() {
    let mut writer = Writer::default();
    let sizes = [1, 300_000, 262_144, 0, 2_000_000, 7];
    for (index, size) in (1..).zip(sizes) {
        writer.entry(0, 1, index, &vec![7; size]);
    }
    writer.bytes.resize(writer.bytes.len() + 1_000_000, 0);
    for mode in [Mode::Strict, Mode::Salvage] {
        let wal = in_memory(&writer.bytes);
        let index = index(&wal, mode);
        assert_eq!((&index.end, index.leftovers.len()), (&End::Clean, 0));
        let mut found = Vec::new();
        index.visit(&wal, |_, entry| found.push(entry.data.len())).expect("a second pass");
        assert_eq!(found, sizes);
    }
    // The first of them is damaged; the others are found again.
    let mut damaged = writer.bytes.clone();
    damaged[0] = 0;
    let salvaged = index(&in_memory(&damaged), Mode::Salvage);
    assert_eq!(salvaged.entries().iter().map(|entry| entry.index).collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
}
