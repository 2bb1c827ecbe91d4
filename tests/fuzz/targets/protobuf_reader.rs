//! The fields of any message: no more of them than bytes, and all of them within it.
#![no_main]

use atrest::protobuf::{Field, Reader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut reader = Reader::new(data);
    let (mut fields, mut held) = (0, 0);
    while let Ok(Some((_, field))) = reader.next_field() {
        fields += 1;
        held += if let Field::Bytes(bytes) = field { bytes.len() } else { 0 };
    }
    assert!(fields + held <= data.len());
});
