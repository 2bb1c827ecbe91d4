//! What an opened value says that it is.
#![no_main]

use atrest::object;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(identity) = object::identify(data) {
        assert!(!identity.kind.is_empty() && !identity.api_version.is_empty());
        // Escapes only shrink, and so does base64.
        assert!(identity.kind.len() + identity.api_version.len() <= data.len());
    }
});
