//! An etcd key: the object that it is the key of has the same key again.
#![no_main]

use atrest::resource::{KeyLayout, Location};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let layout = KeyLayout::default();
    let Location::Object { prefix, resource, namespace, name } = layout.locate(data) else { return };
    assert!(data.ends_with(name));
    let namespace = namespace.map(std::str::from_utf8).transpose();
    let (Ok(namespace), Ok(name)) = (namespace, std::str::from_utf8(name)) else { return };
    if let Ok(key) = prefix.key(resource, namespace, name) {
        assert_eq!(key, data);
    }
});
