//! All of what an opened value says.
#![no_main]

use atrest::object;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(mut object) = object::decode(data) {
        let (kind, api_version) = (object.kind().to_owned(), object.api_version().to_owned());
        assert!(!kind.is_empty() && !api_version.is_empty());
        // It has none if its metadata are no object.
        if let Ok(identity) = object::identify(data) {
            assert_eq!((&*kind, &*api_version), (&*identity.kind, &*identity.api_version));
        }
        object.set_resource_version(1);
        object.redact_secret_data();
        assert_eq!((object.kind(), object.api_version()), (&*kind, &*api_version));
    }
});
