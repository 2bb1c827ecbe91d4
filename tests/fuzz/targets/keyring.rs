//! The text of a keyring, and the keys of one that is not sealed: no panic, no recursion on input, nothing derived from a passphrase.
#![no_main]

use atrest_kms_plugin::keyring::{Document, State};

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    match Document::parse(text).and_then(Document::open_unsealed) {
        Ok(ring) => {
            let current = ring.keys().filter(|key| key.state == State::Current).count();
            assert_eq!(current, 1);
            for key in ring.keys() {
                _ = ring.check_settled(key.id.as_str(), key.created);
            }
        }
        Err(error) => _ = error.to_string(),
    }
});
