//! A record of etcd: what can be read is encoded to the same.
#![no_main]

use atrest::snapshot::{KeyValue, Revision};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok((revision, tombstone)) = Revision::parse(data) {
        assert_eq!(revision.to_key()[..], data[..17]);
        assert!(!tombstone || data.last() == Some(&b't'));
    }
    let Ok(kv) = KeyValue::parse(data) else { return };
    let mut encoded = Vec::new();
    kv.encode(&mut encoded);
    let again = KeyValue::parse(&encoded).expect("what was encoded");
    assert_eq!(KeyValue { has_unknown_fields: kv.has_unknown_fields, ..again }, kv);
});
