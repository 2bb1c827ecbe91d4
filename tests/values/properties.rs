//! No stored bytes make a parser panic, and no parser keeps more than it was given.

use atrest::config::Endpoint;
use atrest::object;
use atrest::resource::{GroupResource, KeyLayout};
use atrest::source::StoredValue;
use atrest::transformer::envelope::{EncryptedObject, EnvelopeV1};
use atrest::transformer::{Header, ResourceTransformers};
use atrest::verify::Judge;
use proptest::prelude::*;

use crate::setup::{KEY, file, for_secrets, identity, open, provider, seal, transformers};

fn everything() -> ResourceTransformers {
    let key = [0xa5; 32];
    let kms = |version: &str| {
        format!("kms: {{apiVersion: {version}, name: kms-{version}, endpoint: 'unix:///kms.sock', timeout: 3s}}")
    };
    transformers(&[&file(&[(
        "'*.*'",
        &[
            provider("aescbc", &[("k", &key), ("k:b", &[1; 16]), ("k", &[2; 24])]),
            provider("aesgcm", &[("k", &key), ("k:b", &[1; 16])]),
            provider("secretbox", &[("k", &key)]),
            kms("v1"),
            kms("v2"),
            identity(),
        ],
    )])])
}

/// Bytes that begin as stored values do.
fn stored() -> impl Strategy<Value = Vec<u8>> {
    let prefix = prop::sample::select(vec![
        &b""[..],
        b"k8s:enc:",
        b"k8s:enc:aescbc:v1:k:",
        b"k8s:enc:aescbc:v1:k:b:",
        b"k8s:enc:aesgcm:v1:k:",
        b"k8s:enc:secretbox:v1:k:",
        b"k8s:enc:kms:v1:kms-v1:",
        b"k8s:enc:kms:v1:a:b:\0\x03",
        b"k8s:enc:kms:v2:kms-v2:",
        b"k8s:enc:kms:v2:kms-v2:\x0a\x01x\x12\x05kek-1\x1a\x01x\x22",
        b"k8s\0",
        b"\xd9\xd9\xf7",
        b"{",
        b"azhzAA",
    ]);
    (prefix, prop::collection::vec(any::<u8>(), 0..300)).prop_map(|(prefix, rest)| [prefix, &rest].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_header_is_part_of_the_value(data in stored()) {
        match Header::parse(&data) {
            Header::Local { key_name, payload, provider } => {
                let whole = [provider.prefix(), key_name, b":", payload].concat();
                prop_assert_eq!(whole, data);
            }
            Header::Plaintext => prop_assert!(!data.starts_with(b"k8s:enc:")),
            _ => prop_assert!(data.starts_with(b"k8s:enc:")),
        }
    }

    #[test]
    fn an_envelope_of_v1_is_put_together_again(data in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(envelope) = EnvelopeV1::parse(&data) {
            let len = u16::try_from(envelope.encrypted_dek.len()).expect("a length of two bytes");
            prop_assert_eq!([&len.to_be_bytes()[..], envelope.encrypted_dek, envelope.data].concat(), data);
        }
    }

    #[test]
    fn an_envelope_of_v2_holds_parts_of_its_bytes(
        parts in prop::collection::vec(
            (1_u8..7, prop::sample::select(vec![0_u8, 1, 2, 3, 4, 5]), prop::collection::vec(any::<u8>(), 0..40)),
            0..12,
        ),
    ) {
        let mut data = Vec::new();
        for (number, wire_type, bytes) in parts {
            data.push(number << 3 | wire_type);
            if wire_type == 2 {
                data.push(u8::try_from(bytes.len()).expect("short"));
            }
            data.extend_from_slice(&bytes);
        }
        if let Ok(object) = EncryptedObject::parse(&data) {
            let annotations: usize = object.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
            let held = object.encrypted_data.len() + object.key_id.len() + object.encrypted_dek_source.len() + annotations;
            prop_assert!(held <= data.len());
        }
    }

    #[test]
    fn any_value_is_opened_or_refused(data in stored(), key in prop::collection::vec(any::<u8>(), 0..60)) {
        let transformers = everything();
        if let Ok((text, _)) = open(for_secrets(&transformers), &data, &key) {
            prop_assert!(text.len() <= data.len());
        }
    }

    #[test]
    fn any_value_is_judged_in_few_words(data in stored(), name in "[a-z]{1,8}") {
        let transformers = everything();
        let layout = KeyLayout::default();
        let value = StoredValue {
            key: format!("/registry/secrets/default/{name}").into_bytes(),
            value: data,
            create_revision: 1,
            mod_revision: 1,
            version: 1,
            lease: 0,
        };
        let judged = Judge::new(&transformers, &layout).judge(&value);
        prop_assert!(judged.row.message.len() <= 1000, "{}", judged.row.message);
        let (judged, _) = Judge::new(&transformers, &layout).open_as(&value, &GroupResource::new("", "secrets"));
        prop_assert!(judged.row.message.len() <= 1000, "{}", judged.row.message);
    }

    #[test]
    fn any_plaintext_is_identified_or_refused(data in stored()) {
        if let Ok(identity) = object::identify(&data) {
            prop_assert!(identity.kind.len() + identity.api_version.len() <= data.len());
        }
    }

    #[test]
    fn any_key_has_a_place(key in prop::collection::vec(any::<u8>(), 0..80), rest in "[a-z/.]{0,40}") {
        let layout = KeyLayout::default();
        _ = layout.locate(&key);
        _ = layout.locate(format!("/registry/{rest}").as_bytes());
    }

    #[test]
    fn any_endpoint_is_read_or_refused(text in "\\PC{0,40}", path in "[a-z/%@:?#0-9]{0,30}") {
        for text in [text, format!("unix:{path}"), format!("unix://{path}")] {
            if let Ok(endpoint) = Endpoint::parse(&text) {
                prop_assert_eq!(endpoint.as_str(), &text);
            }
        }
    }

    #[test]
    fn what_is_sealed_opens_again(plaintext in prop::collection::vec(any::<u8>(), 0..600), kind in 0..3_usize) {
        let kind = ["aescbc", "aesgcm", "secretbox"][kind];
        let list = transformers(&[&file(&[("secrets", &[provider(kind, &[("a:b", &[9; 32])])])])]);
        let value = seal(for_secrets(&list), &plaintext, KEY);
        prop_assert_eq!(open(for_secrets(&list), &value, KEY).expect("our own value"), (plaintext, false));
    }
}
