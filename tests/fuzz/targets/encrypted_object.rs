//! The envelope of KMS v2: what is accepted keeps to the limits, and is part of the input.
#![no_main]

use atrest::transformer::envelope::{EncryptedObject, MAX_ANNOTATIONS_BYTES, MAX_DEK_SOURCE_BYTES, MAX_KEY_ID_BYTES};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(object) = EncryptedObject::parse(data) else { return };
    let annotations: usize = object.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    assert!((1..=MAX_KEY_ID_BYTES).contains(&object.key_id.len()));
    assert!((1..=MAX_DEK_SOURCE_BYTES).contains(&object.encrypted_dek_source.len()));
    assert!(!object.encrypted_data.is_empty() && annotations <= MAX_ANNOTATIONS_BYTES);
    let held = object.encrypted_data.len() + object.key_id.len() + object.encrypted_dek_source.len() + annotations;
    assert!(held < data.len());
});
