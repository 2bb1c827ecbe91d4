//! The prefix of a stored value: what is taken apart is put together again.
#![no_main]

use atrest::transformer::Header;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Header::Local { provider, key_name, payload } = Header::parse(data) {
        assert_eq!([provider.prefix(), key_name, b":", payload].concat(), data);
    }
    let known = Header::parse_with_names(data, |_| ["k", "k:b", "", ":"].into_iter());
    assert!(known.name().is_none_or(|name| name.len() < data.len()));
});
