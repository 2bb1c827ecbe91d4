//! A configuration: accepted, or refused with at least one reason.
#![no_main]

use atrest::config::{Options, load};
use atrest::transformer::ResourceTransformers;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for automatic_reload in [false, true] {
        match load(data, &Options { automatic_reload }) {
            Ok(loaded) => {
                ResourceTransformers::from_configurations(&[loaded.config]).expect("keys of the right length");
            }
            Err(invalid) => assert!(!invalid.errors.is_empty()),
        }
    }
});
