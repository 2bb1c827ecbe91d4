//! The data of an entry of raft's log, behind a byte for its type: the values in it are part of it.
#![no_main]

use atrest::snapshot::wal::request::Place;
use atrest::snapshot::wal::{Entry, EntryType, RaftSnapshot, Redacted, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(snapshot) = RaftSnapshot::parse(data) {
        assert!(snapshot.data.len() < data.len());
    }
    let Some((entry_type, data)) = data.split_first() else { return };
    let entry_type = match entry_type {
        0 => EntryType::Normal,
        1 => EntryType::ConfChange,
        2 => EntryType::ConfChangeV2,
        other => EntryType::Unknown((*other).into()),
    };
    let request = Request::parse(&Entry { entry_type, term: 1, index: 1, data: Redacted(data) });
    let mut held = 0;
    request.for_each_value(|value| {
        let range = data.as_ptr_range();
        assert!(value.value.is_empty() || range.contains(&value.value.as_ptr()));
        held += if value.place == Place::Unrecognized { 0 } else { value.key.len() + value.value.len() };
    });
    // The path of a v2 request stands for two values.
    assert!(held <= 2 * data.len());
    assert!(request.plaintext_passwords().count() <= data.len());
    assert!(!request.to_string().is_empty());
});
