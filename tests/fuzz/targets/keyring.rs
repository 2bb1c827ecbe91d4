//! The text of a keyring: no panic, no recursion on input, nothing derived from a passphrase.
#![no_main]

use atrest_kms_plugin::keyring::Document;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    if let Err(error) = Document::parse(text) {
        _ = error.to_string();
    }
});
