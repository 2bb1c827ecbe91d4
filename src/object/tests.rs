//! Tests of all encodings; what only one of them has is tested beside it.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn base64(text: &str) -> Vec<u8> {
    STANDARD.decode(text).unwrap()
}

fn case(name: &str) -> Vec<u8> {
    let cases: Value = serde_json::from_str(include_str!("../../tests/vectors/cases.json")).unwrap();
    base64(cases[name].as_str().unwrap())
}

/// Objects that Kubernetes wrote, and what it prints of them.
fn sample() -> impl Iterator<Item = (Value, Vec<u8>)> {
    include_str!("../../tests/vectors/objects/sample.jsonl").lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        let stored = base64(line["stored"].as_str().unwrap());
        (line["object"].clone(), stored)
    })
}

fn demo(format: Format) -> Identity<'static> {
    Identity {
        format,
        api_version: "v1".into(),
        kind: "Secret".into(),
        namespace: Some("default".into()),
        name: Some("demo".into()),
        uid: None,
    }
}

#[test]
fn stored_objects_are_what_kubernetes_says() {
    let mut shapes = BTreeSet::new();
    for (object, stored) in sample() {
        let text = |value: &Value| value.as_str().map(|text| Cow::Owned(text.to_owned()));
        let expected = Identity {
            format: Format::Protobuf,
            api_version: text(&object["apiVersion"]).unwrap(),
            kind: text(&object["kind"]).unwrap(),
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"]),
            uid: text(&object["metadata"]["uid"]),
        };
        assert_eq!(identify(&stored), Ok(expected.clone()));
        shapes.insert((expected.namespace.is_some(), expected.uid.is_some(), expected.group().is_empty()));

        // The same object as JSON is the same object.
        let json = serde_json::to_vec(&object).unwrap();
        assert_eq!(identify(&json), Ok(Identity { format: Format::Json, ..expected }));
    }
    assert_eq!(shapes.len(), 6, "with and without a namespace, a UID and a group: {shapes:?}");
}

#[test]
fn single_values_are_identified() {
    let secret = case("plaintext_b64");
    assert_eq!(identify(&secret), Ok(demo(Format::Protobuf)));
    let widget = Identity {
        format: Format::Json,
        api_version: "example.com/v1".into(),
        kind: "Widget".into(),
        namespace: Some("default".into()),
        name: Some("w".into()),
        uid: None,
    };
    let json = case("json_crd_plain");
    assert_eq!(identify(&json).as_ref(), Ok(&widget));
    assert_eq!(widget.group(), "example.com");
    assert_eq!(identify(STANDARD.encode(secret).as_bytes()), Ok(demo(Format::LegacyBase64)));
}

#[test]
fn an_encoding_is_told_by_the_first_bytes() {
    for (bytes, expected) in [
        (b"".as_slice(), Err(Error::Empty)),
        (b"k8s\0", Ok(Format::Protobuf)),
        (b"k8s", Err(Error::UnknownFormat { len: 3 })),
        (b"k8s:enc:aescbc:v1:key1:", Err(Error::Nested)),
        (b"k8s:enx", Err(Error::UnknownFormat { len: 7 })),
        (b"{", Ok(Format::Json)),
        (b" \t\r\n{", Ok(Format::Json)),
        (b"[{", Err(Error::UnknownFormat { len: 2 })),
        (b"\xd9\xd9\xf7", Ok(Format::Cbor)),
        (b"azhzAA", Ok(Format::LegacyBase64)),
        (b"apiVersion: v1\n", Err(Error::UnknownFormat { len: 15 })),
    ] {
        assert_eq!(Format::of(bytes), expected, "{}", bytes.escape_ascii());
    }
}

#[test]
fn a_value_that_was_encrypted_twice_is_told() {
    assert_eq!(identify(&case("cbc_ok")), Err(Error::Nested));
}

#[test]
fn a_damaged_beginning_is_not_identified() {
    let stored = case("plaintext_b64");
    for at in 0..4 {
        for bits in 1..=u8::MAX {
            let mut damaged = stored.clone();
            damaged[at] ^= bits;
            identify(&damaged).unwrap_err();
        }
    }
}

/// `runtime.Unknown` ends in two empty fields, `1a 00 22 00`, and is whole without them.
#[test]
fn an_object_cut_short_is_not_identified() {
    for (_, stored) in sample() {
        for len in 0..stored.len() {
            let cut = identify(&stored[..len]);
            match stored.len() - len {
                2 | 4 => assert_eq!(cut, identify(&stored)),
                _ => assert!(cut.is_err(), "{len} of {} bytes", stored.len()),
            }
        }
    }
    let json = case("json_crd_plain");
    for len in 1..json.len() {
        assert!(matches!(identify(&json[..len]), Err(Error::Truncated { format: Format::Json, .. })), "{len}");
    }
}

#[test]
fn base64_is_read_to_its_end() {
    let format = Format::LegacyBase64;
    let text = STANDARD.encode(case("plaintext_b64"));
    let damaged = text.replacen("U2Vj", "U2!j", 1);
    assert_eq!(identify(damaged.as_bytes()), Err(Error::Malformed { format, offset: text.find("U2Vj").unwrap() + 2 }));
    assert_eq!(identify(&text.as_bytes()[..9]), Err(Error::Truncated { format, offset: 9 }));
    // Eight digits are six bytes, the last two of which begin a field.
    assert_eq!(identify(&text.as_bytes()[..8]), Err(Error::Truncated { format, offset: 4 }));
}

#[test]
fn errors_do_not_quote_the_plaintext() {
    for plaintext in [r#"{"kind": "hunter2" "#, r#"{"kind": ["hunter2"]}"#, r#"{"hunter2": 1, "kind": 1}"#, "hunter2"] {
        let error = identify(plaintext.as_bytes()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_an_object_or_an_error(magic in 0..5_usize, bytes: Vec<u8>) {
        let magic = [b"".as_slice(), PROTOBUF_MAGIC, CBOR_MAGIC, BASE64_MAGIC, b"{"][magic];
        let plaintext = [magic, &bytes].concat();
        if let Ok(identity) = identify(&plaintext) {
            prop_assert!(!identity.kind.is_empty() && !identity.api_version.is_empty());
        }
    }

    #[test]
    fn a_changed_byte_is_an_object_or_an_error(line in 0..40_usize, at: proptest::sample::Index, byte: u8) {
        let (_, mut stored) = sample().nth(line).unwrap();
        let at = at.index(stored.len());
        stored[at] = byte;
        if let Ok(identity) = identify(&stored) {
            prop_assert_eq!(identity.format, Format::Protobuf);
        }
    }
}
