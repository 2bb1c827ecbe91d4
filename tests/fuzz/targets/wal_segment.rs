//! Two segments of a write-ahead log, the first as long as the first byte says in pieces of eight: read to an end, and
//! the same in both modes up to the first damage.
#![no_main]

use atrest::snapshot::Input;
use atrest::snapshot::wal::{Index, Item, Mode, RecordKind, Segment, Wal};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((first, data)) = data.split_first() else { return };
    let (first, second) = data.split_at(data.len().min(usize::from(*first) * 8));
    let segment = |bytes: &[u8]| Segment::new("", Input::from(bytes.to_vec()));
    let wal = Wal::new(vec![segment(first), segment(second)]);
    let [strict, salvaged] = [Mode::Strict, Mode::Salvage].map(|mode| {
        let mut records = wal.records(mode);
        let (mut last, mut held, mut entries) = (None, 0, 0);
        while let Some(item) = records.next_item().expect("bytes in memory") {
            match item {
                Item::Record(record) => {
                    assert!(last < Some(record.position));
                    last = Some(record.position);
                    held += 8 + record.length + u64::from(record.padding);
                    entries += usize::from(matches!(record.kind, RecordKind::Entry(_)));
                }
                Item::Leftover(leftover) => assert!(leftover.bytes > 0),
                Item::Damage(_) => {}
            }
        }
        assert!(held <= data.len() as u64);
        let index = Index::build(&wal, mode).expect("bytes in memory");
        assert_eq!((&index.end, index.entries().len()), (&records.end(), entries));
        assert!(index.effective().is_sorted_by(|a, b| a.index < b.index));
        index
    });
    assert_eq!(strict.end, salvaged.end);
    assert!(strict.entries().len() <= salvaged.entries().len());
});
