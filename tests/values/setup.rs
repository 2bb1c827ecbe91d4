//! Vectors, configurations and transformers for the tests of this binary.

use std::path::{Path, PathBuf};

use atrest::config::{EncryptionConfiguration, Options, load};
use atrest::transformer::{DataContext, Error, ResourceTransformer, ResourceTransformers};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;

/// The etcd key of most vectors.
pub(crate) const KEY: &[u8] = b"/registry/secrets/default/vector";
/// 32 bytes of ASCII; shorter keys are its beginning.
pub(crate) const SECRET: &[u8; 32] = b"0123456789abcdef0123456789abcdef";

pub(crate) fn values(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/values").join(name)
}

/// The lines of a file of vectors.
pub(crate) fn lines<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let text = std::fs::read_to_string(values(name)).expect(name);
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// The transformers of a configuration among the vectors.
pub(crate) fn vector_config(name: &str) -> ResourceTransformers {
    let text = std::fs::read_to_string(values("configs").join(name)).expect(name);
    transformers(&[&text])
}

/// The transformers of the text of one or several configurations.
pub(crate) fn transformers(texts: &[&str]) -> ResourceTransformers {
    let configurations: Vec<_> = texts.iter().map(|text| configuration(text)).collect();
    ResourceTransformers::from_configurations(&configurations).expect("transformers")
}

pub(crate) fn configuration(text: &str) -> EncryptionConfiguration {
    load(text.as_bytes(), &Options::default()).unwrap_or_else(|invalid| panic!("{invalid}\n{text}")).config
}

/// A configuration of entries, each of resources and providers.
pub(crate) fn file(entries: &[(&str, &[String])]) -> String {
    let mut text = String::from("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n");
    for (resources, providers) in entries {
        text.push_str(&format!("- resources: [{resources}]\n  providers:\n"));
        for provider in *providers {
            text.push_str(&format!("  - {provider}\n"));
        }
    }
    text
}

/// A provider of a configuration, with its keys.
pub(crate) fn provider(kind: &str, keys: &[(&str, &[u8])]) -> String {
    let keys: Vec<_> =
        keys.iter().map(|(name, secret)| format!("{{name: {name:?}, secret: {}}}", STANDARD.encode(secret))).collect();
    format!("{kind}: {{keys: [{}]}}", keys.join(", "))
}

pub(crate) fn identity() -> String {
    "identity: {}".to_owned()
}

/// The transformers of secrets under these providers.
pub(crate) fn secrets(providers: &[String]) -> ResourceTransformers {
    transformers(&[&file(&[("secrets", providers)])])
}

/// What comes out of a value, and whether it is stale.
pub(crate) fn open(list: &ResourceTransformer, data: &[u8], key: &[u8]) -> Result<(Vec<u8>, bool), Error> {
    list.open(data, DataContext::new(key)).map(|(opened, _)| (opened.data.to_vec(), opened.stale))
}

/// What a plaintext is stored as.
pub(crate) fn seal(list: &ResourceTransformer, plaintext: &[u8], key: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    list.seal(plaintext, DataContext::new(key), &mut out).expect("a value");
    out
}

/// The list of providers for secrets.
pub(crate) fn for_secrets(transformers: &ResourceTransformers) -> &ResourceTransformer {
    transformers.transformer_for_resource("", "secrets")
}
