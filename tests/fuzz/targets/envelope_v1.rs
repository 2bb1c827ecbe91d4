//! The envelope of KMS v1: what is taken apart is put together again.
#![no_main]

use atrest::transformer::envelope::EnvelopeV1;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(envelope) = EnvelopeV1::parse(data) {
        let len = u16::try_from(envelope.encrypted_dek.len()).expect("a length of two bytes");
        assert_eq!([&len.to_be_bytes()[..], envelope.encrypted_dek, envelope.data].concat(), data);
    }
});
