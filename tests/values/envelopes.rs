//! The envelope of KMS v2 at its limits: tests 25, 30 and 31 of the specification, through the public type.

use atrest::transformer::envelope::{EncryptedDekSourceType, EncryptedObject, EnvelopeV1, Error};

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    prost::encoding::encode_varint(bytes.len() as u64, &mut out);
    out.extend_from_slice(bytes);
    out
}

fn annotation(key: &[u8], value: &[u8]) -> Vec<u8> {
    field(4, &[field(1, key), field(2, value)].concat())
}

/// An object that is whole, and more fields.
fn object(more: &[u8]) -> Vec<u8> {
    [field(1, b"data"), field(2, b"kek-1"), field(3, b"source"), more.to_vec()].concat()
}

fn parsed(more: &[u8]) -> Result<(String, EncryptedDekSourceType), Error> {
    EncryptedObject::parse(&object(more)).map(|object| (object.key_id.to_owned(), object.encrypted_dek_source_type))
}

fn varint(number: u8, value: u64) -> Vec<u8> {
    let mut out = vec![number << 3];
    prost::encoding::encode_varint(value, &mut out);
    out
}

#[test]
fn the_type_is_cut_to_32_bits_and_must_be_known() {
    let kek_1 = |source_type| Ok(("kek-1".to_owned(), source_type));
    assert_eq!(parsed(&varint(5, 55)), Err(Error::UnknownDekSourceType { value: 55 }));
    assert_eq!(parsed(&varint(5, u64::MAX)), Err(Error::UnknownDekSourceType { value: -1 }));
    assert_eq!(parsed(&varint(5, (1 << 32) + 1)), kek_1(EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed));
    assert_eq!(parsed(&varint(5, 1 << 32)), kek_1(EncryptedDekSourceType::AesGcmKey));
}

#[test]
fn the_limits_are_inclusive() {
    let too_long = |field, actual, max| Err(Error::FieldTooLong { field, actual, max });
    assert_eq!(parsed(&field(2, &[b'k'; 1024])).map(|(key_id, _)| key_id.len()), Ok(1024));
    assert_eq!(parsed(&field(2, &[b'k'; 1025])), too_long("keyID", 1025, 1024));
    assert_eq!(parsed(&field(3, &[0; 1024])).map(|(key_id, _)| key_id.len()), Ok(5));
    assert_eq!(parsed(&field(3, &[0; 1025])), too_long("encryptedDEKSource", 1025, 1024));
    assert_eq!(parsed(&field(3, b"")), Err(Error::EmptyField { field: "encryptedDEKSource" }));
    let annotations = |bytes: usize| [annotation(b"a.io", &vec![0; bytes - 8]), annotation(b"b.io", b"")].concat();
    assert_eq!(parsed(&annotations(32768)).map(|(key_id, _)| key_id.len()), Ok(5));
    assert_eq!(parsed(&annotations(32769)), too_long("annotations", 32769, 32768));
}

#[test]
fn unknown_fields_are_ignored_and_the_last_of_a_field_counts() {
    let more = [field(15, b"?"), field(2, b"kek-2"), varint(2, 7), varint(5, 1), varint(5, 0)].concat();
    assert_eq!(parsed(&more), Ok(("kek-2".to_owned(), EncryptedDekSourceType::AesGcmKey)));
}

#[test]
fn a_map_entry_may_lack_its_value_but_not_its_key() {
    let without_value = object(&field(4, &field(1, b"a.io")));
    assert_eq!(EncryptedObject::parse(&without_value).map(|object| object.annotations), Ok(vec![("a.io", &b""[..])]));
    assert_eq!(parsed(&field(4, &field(2, b"value"))), Err(Error::AnnotationKey));
}

#[test]
fn the_keys_of_annotations_are_domain_names() {
    let label = |n| "a".repeat(n);
    let longest = format!("{0}.{0}.{0}.{1}", label(63), label(61));
    assert_eq!(longest.len(), 253);
    let good = ["10.0.0.1", "dev.k8s.io.", &format!("{}.io", label(63)), &longest, &format!("{longest}.")];
    for key in good {
        assert_eq!(parsed(&annotation(key.as_bytes(), b"")).map(|(key_id, _)| key_id.len()), Ok(5), "{key}");
    }
    let bad = [
        "",
        ".",
        "com",
        "simple",
        "Dev.k8s.io",
        "*.x.com",
        "a_b.io",
        "http://x.y",
        "a.io..",
        &format!("{}.io", label(64)),
        &format!("{longest}a"),
        "é.io",
    ];
    for key in bad {
        assert_eq!(parsed(&annotation(key.as_bytes(), b"")), Err(Error::AnnotationKey), "{key}");
    }
    assert_eq!(parsed(&annotation(b"\xff.io", b"")), Err(Error::Utf8 { field: "annotations" }));
}

#[test]
fn of_a_repeated_annotation_the_last_counts() {
    let more = [annotation(b"a.io", b"1"), annotation(b"b.io", b"2"), annotation(b"a.io", b"3")].concat();
    let bytes = object(&more);
    assert_eq!(
        EncryptedObject::parse(&bytes).map(|object| object.annotations),
        Ok(vec![("b.io", &b"2"[..]), ("a.io", b"3")])
    );
}

/// Each annotation was looked up among all before it: one value of 1.5 MB held up a scan of the whole cluster for minutes.
#[test]
fn many_annotations_take_no_time() {
    let mut more = Vec::new();
    for i in 0..150_000 {
        more.extend(annotation(format!("{i}.io").as_bytes(), b""));
    }
    let started = std::time::Instant::now();
    assert!(matches!(parsed(&more), Err(Error::FieldTooLong { field: "annotations", .. })));
    assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn a_length_beyond_the_end_is_an_error() {
    assert_eq!(EnvelopeV1::parse(b"\0\x05ab"), Err(Error::DekTruncated));
    assert_eq!(EnvelopeV1::parse(b""), Err(Error::DekTruncated));
    assert_eq!(EnvelopeV1::parse(b"\0\0data"), Ok(EnvelopeV1 { encrypted_dek: b"", data: b"data" }));
}
