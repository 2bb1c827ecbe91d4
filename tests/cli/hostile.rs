//! Snapshots with keys and values that no API server writes.

use std::io::Cursor;

use atrest::snapshot::bbolt::Writer;
use atrest::snapshot::{KeyValue, Revision};
use sha2::{Digest as _, Sha256};

/// A snapshot of these keys and values, each at a revision of its own, from 2 on.
pub(crate) fn snapshot(values: &[(&[u8], Vec<u8>)]) -> Vec<u8> {
    let mut writer = Writer::new(Cursor::new(Vec::new()), 4096).expect("a writer");
    writer.bucket(b"key", 0).expect("a bucket");
    for (revision, (key, value)) in (2..).zip(values) {
        let kv = KeyValue {
            key,
            create_revision: revision,
            mod_revision: revision,
            version: 1,
            value,
            ..KeyValue::default()
        };
        let mut encoded = Vec::new();
        kv.encode(&mut encoded);
        writer.put(&Revision { main: revision, sub: 0 }.to_key(), &encoded).expect("a record");
    }
    writer.bucket(b"meta", 0).expect("a bucket");
    writer.put(b"consistent_index", &1_u64.to_be_bytes()).expect("a record");
    let (out, _) = writer.finish(2).expect("a file");
    let mut bytes = out.into_inner();
    let hash = Sha256::digest(&bytes);
    bytes.extend_from_slice(&hash);
    bytes
}
