//! The endpoint of a KMS: what is accepted is kept as it was written.
#![no_main]

use atrest::config::{DialAddress, Endpoint};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(endpoint) = Endpoint::parse(text) else { return };
    assert_eq!(endpoint.as_str(), text);
    _ = endpoint.ignored_host();
    _ = matches!(endpoint.dial_address(), DialAddress::Path(_));
});
