//! A stored value of a KMS whose data key is known: opened, or refused, and the same under a second look.
#![no_main]

use std::sync::LazyLock;

use atrest::config::{Options, load};
use atrest::secret::Key;
use atrest::transformer::envelope::DekSource;
use atrest::transformer::{DataContext, ResourceTransformers};
use libfuzzer_sys::fuzz_target;

const KEY: &[u8] = b"/registry/secrets/default/len-16";
const CONFIG: &[u8] = br#"{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [{"resources":
    ["secrets"], "providers": [{"kms": {"apiVersion": "v2", "name": "v", "endpoint": "unix:///k"}},
    {"kms": {"apiVersion": "v1", "name": "v", "endpoint": "unix:///k"}}]}]}"#;

static TRANSFORMERS: LazyLock<ResourceTransformers> = LazyLock::new(|| {
    let loaded = load(CONFIG, &Options::default()).unwrap_or_else(|invalid| panic!("{invalid}"));
    let transformers = ResourceTransformers::from_configurations(&[loaded.config]).expect("transformers");
    transformers.kms_providers().iter().for_each(|provider| provider.set_status(Ok("kek")));
    transformers
});

fuzz_target!(|data: &[u8]| {
    let list = TRANSFORMERS.transformer_for_resource("", "secrets");
    let key = Key::new(vec![7; 32].into());
    let mut sources = 0;
    for (provider, source) in list.dek_sources(data) {
        assert_eq!(DekSource::of_stored(data).map(|source| source.cache_key()), Some(source.cache_key()));
        provider.put_dek(&source, Ok(&key));
        assert!(provider.knows(&source.cache_key()));
        sources += 1;
    }
    let opened = list.open(data, DataContext::new(KEY));
    if let Ok((opened, _)) = &opened {
        assert!(sources > 0 && opened.data.len() <= data.len());
    }
    assert_eq!(opened.is_ok(), list.open(data, DataContext::new(KEY)).is_ok());
});
