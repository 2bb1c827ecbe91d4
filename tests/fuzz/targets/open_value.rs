//! A stored value under every provider: opened, or refused, and never longer than it was stored.
#![no_main]

use std::sync::LazyLock;

use atrest::config::{Options, load};
use atrest::resource::KeyLayout;
use atrest::source::StoredValue;
use atrest::transformer::{DataContext, ResourceTransformers};
use atrest::verify::Judge;
use libfuzzer_sys::fuzz_target;

const KEY: &[u8] = b"/registry/secrets/default/len-16";

static TRANSFORMERS: LazyLock<ResourceTransformers> = LazyLock::new(|| {
    let loaded = load(include_bytes!("../config.yaml"), &Options::default()).expect("a configuration");
    ResourceTransformers::from_configurations(&[loaded.config]).expect("transformers")
});

fuzz_target!(|data: &[u8]| {
    let list = TRANSFORMERS.transformer_for_resource("", "secrets");
    if let Ok((opened, _)) = list.open(data, DataContext::new(KEY)) {
        assert!(opened.data.len() <= data.len());
    }
    let value = StoredValue {
        key: KEY.to_vec(),
        value: data.to_vec(),
        create_revision: 1,
        mod_revision: 1,
        version: 1,
        lease: 0,
    };
    drop(Judge::new(&TRANSFORMERS, &KeyLayout::default()).judge(&value));
});
