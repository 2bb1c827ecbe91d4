//! What the vectors of Kubernetes do not have: `tests/values/objects.rs` has those.

use proptest::prelude::*;
use prost::encoding::encode_varint;

use super::super::{CBOR_MAGIC, PROTOBUF_MAGIC, identify};
use super::*;

fn varint(number: u64, value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_varint(number << 3, &mut bytes);
    encode_varint(value, &mut bytes);
    bytes
}

fn field(number: u64, content: impl AsRef<[u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_varint(number << 3 | 2, &mut bytes);
    encode_varint(content.as_ref().len() as u64, &mut bytes);
    bytes.extend_from_slice(content.as_ref());
    bytes
}

fn entry(key: &str, value: impl AsRef<[u8]>) -> Vec<u8> {
    [field(1, key), field(2, value)].concat()
}

fn stored(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let type_meta = [field(1, api_version), field(2, kind)].concat();
    [PROTOBUF_MAGIC, &field(1, type_meta), &field(2, object), b"\x1a\x00\x22\x00"].concat()
}

fn json(plaintext: &[u8]) -> Result<String, Error> {
    decode(plaintext).map(|object| serde_json::to_string(&object.value).unwrap())
}

/// What is printed of an object of `v1` beside its version and kind.
fn v1(kind: &str, object: &[u8]) -> String {
    let mut object = decode(&stored("v1", kind, object)).unwrap();
    assert_eq!(object.value.remove("apiVersion"), Some(Value::from("v1")));
    assert_eq!(object.value.remove("kind"), Some(Value::from(kind)));
    serde_json::to_string(&object.value).unwrap()
}

fn unknown(plaintext: &[u8]) -> bool {
    decode(plaintext).unwrap().unknown
}

#[test]
fn what_is_absent_is_printed_as_go_prints_zero() {
    let pod = stored("v1", "Pod", b"");
    let printed = r#"{"apiVersion":"v1","kind":"Pod","metadata":{},"spec":{"containers":null},"status":{}}"#;
    assert_eq!(json(&pod).as_deref(), Ok(printed));
    assert!(!unknown(&pod));
    assert_eq!(v1("RangeAllocation", b""), r#"{"data":null,"metadata":{},"range":""}"#);
    // Present is not absent, even if it is as empty.
    assert_eq!(v1("RangeAllocation", &field(3, "")), r#"{"data":"","metadata":{},"range":""}"#);
    assert_eq!(v1("Secret", &varint(5, 0)), r#"{"immutable":false,"metadata":{}}"#);
}

#[test]
fn every_kind_of_the_table_is_decoded() {
    #[derive(serde::Deserialize)]
    struct Line {
        kind: Option<String>,
    }

    let lines = include_str!("../../../tests/vectors/objects/schema.jsonl").lines();
    let kinds: Vec<_> = lines.filter_map(|line| serde_json::from_str::<Line>(line).unwrap().kind).collect();
    for kind in &kinds {
        let (api_version, kind) = kind.split_once(' ').unwrap();
        let object = decode(&stored(api_version, kind, &field(1, field(1, "n")))).unwrap();
        assert_eq!((object.api_version(), object.kind(), object.name()), (api_version, kind, Some("n")));
        assert!(!object.unknown, "{kind}");
    }
    assert_eq!(kinds.len(), 164);
}

#[test]
fn of_scalars_the_last_counts_and_messages_add_up() {
    let metadata = |number, text| field(1, field(number, text));
    let object = [metadata(1, "a"), field(3, "Opaque"), metadata(3, "ns"), field(3, "last"), metadata(1, "b")].concat();
    assert_eq!(v1("Secret", &object), r#"{"metadata":{"name":"b","namespace":"ns"},"type":"last"}"#);
}

#[test]
fn numbers_of_a_list_may_be_packed() {
    let groups = [varint(4, 1), field(4, b"\x02\x96\x01"), varint(4, u64::MAX), field(4, "")].concat();
    let pod = field(2, field(14, groups));
    assert!(v1("Pod", &pod).contains(r#""securityContext":{"supplementalGroups":[1,2,150,-1]}"#));
    let pod = stored("v1", "Pod", &field(2, field(14, field(4, b"\x02\x80"))));
    assert!(matches!(json(&pod), Err(Error::Malformed { .. })));
}

#[test]
fn entries_of_maps_may_lack_a_key_or_a_value() {
    let data = [field(2, ""), field(2, field(2, "x")), field(2, field(1, "k")), field(2, entry("b", "1"))].concat();
    let again = field(2, entry("b", "2"));
    let printed = v1("Secret", &[data, again].concat());
    assert!(printed.contains(r#""data":{"":"eA==","b":"Mg==","k":""}"#), "{printed}");
    // Without a value, a quantity is zero.
    let quota = field(2, field(1, field(1, "cpu")));
    assert!(v1("ResourceQuota", &quota).contains(r#""spec":{"hard":{"cpu":"0"}}"#));
}

#[test]
fn integers_are_as_wide_as_in_go() {
    let event = |count| v1("Event", &varint(8, count));
    assert!(event(0xffff_ffff_0000_0007).contains(r#""count":7,"#));
    assert!(event(u64::MAX).contains(r#""count":-1,"#));
    assert!(!event(0xffff_ffff_0000_0000).contains("count"));
}

#[test]
fn unknown_fields_are_kept_where_they_are() {
    let more = [varint(99, 7), field(98, "text"), field(98, "\x08\x01")].concat();
    for (kind, object, printed) in [
        ("Secret", more.clone(), r#"{"(unknown fields)":{"98":["text",{"1":1}],"99":7},"#),
        ("Secret", field(1, &more), r#""metadata":{"(unknown fields)":{"98":["text",{"1":1}],"99":7}}"#),
        // A time is no object.
        (
            "Secret",
            field(1, field(8, [varint(1, 0), varint(9, 1)].concat())),
            r#""creationTimestamp":{"(unknown fields)":{"9":1},"(value)":"1970-01-01T00:00:00Z"}"#,
        ),
        // The entry of a map.
        (
            "Secret",
            field(2, [entry("k", "x"), varint(3, 5)].concat()),
            r#""data":{"k":{"(unknown fields)":{"3":5},"(value)":"eA=="}}"#,
        ),
        // A message that JSON does not have, inlined into a volume.
        (
            "Pod",
            field(2, field(1, [field(1, "v"), field(2, varint(99, 7)), varint(98, 1)].concat())),
            r#""volumes":[{"(unknown fields)":{"2":{"99":7},"98":1},"name":"v"}]"#,
        ),
    ] {
        let text = json(&stored("v1", kind, &object)).unwrap();
        assert!(text.contains(printed), "{text}");
        assert!(unknown(&stored("v1", kind, &object)));
    }
}

#[test]
fn unknown_kinds_have_metadata_and_numbers() {
    let object =
        [field(1, field(1, "n")), field(2, [field(1, "a"), varint(7, 3)].concat()), varint(3, 1), varint(3, 2)];
    let widget = stored("example.com/v1", "Widget", &object.concat());
    let printed =
        r#"{"2":{"1":"a","7":3},"3":[1,2],"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"n"}}"#;
    assert_eq!(json(&widget).as_deref(), Ok(printed));
    assert!(unknown(&widget));
    // Field 1 is no metadata, so it is shown like the others.
    for (first, printed) in [(varint(1, 5), "5"), (field(1, "text"), r#""text""#)] {
        let printed = format!(r#"{{"1":{printed},"apiVersion":"v9","kind":"Pod"}}"#);
        assert_eq!(json(&stored("v9", "Pod", &first)), Ok(printed));
    }
}

#[test]
fn an_envelope_may_say_more() {
    let type_meta = field(1, [field(1, "v1"), field(2, "K")].concat());
    let envelope = |fields: &[Vec<u8>]| [PROTOBUF_MAGIC, &type_meta, &fields.concat()].concat();
    let raw = br#"{"a":1,"kind":"L"}"#;
    assert_eq!(
        json(&envelope(&[field(4, "application/json"), field(2, raw)])).as_deref(),
        Ok(r#"{"a":1,"apiVersion":"v1","kind":"K"}"#)
    );
    assert_eq!(
        json(&envelope(&[field(2, varint(2, 1)), field(3, "gzip"), varint(9, 1)])).as_deref(),
        Ok(r#"{"(envelope)":{"3":"gzip","9":1},"2":1,"apiVersion":"v1","kind":"K"}"#)
    );
    let list = envelope(&[field(4, "application/json"), field(2, "[]")]);
    assert!(matches!(json(&list), Err(Error::Malformed { .. })));
}

#[test]
fn text_that_is_not_utf8_is_kept() {
    let secret = stored("v1", "Secret", &field(3, b"a\xff"));
    assert!(json(&secret).unwrap().contains(r#""type":{"(base64)":"Yf8="}"#));
    assert!(unknown(&secret));
}

#[test]
fn times_are_rfc_3339() {
    let printed = |name: &str, number, time: &[u8]| {
        let event = decode(&stored("v1", "Event", &field(number, time))).unwrap();
        serde_json::to_string(event.value.get(name).unwrap()).unwrap()
    };
    let time =
        |seconds: i64, nanos: i64| [varint(1, seconds.cast_unsigned()), varint(2, nanos.cast_unsigned())].concat();
    let seconds = |seconds, nanos| printed("firstTimestamp", 6, &time(seconds, nanos));
    let micros = |seconds, nanos| printed("eventTime", 10, &time(seconds, nanos));

    assert_eq!(seconds(1_700_000_011, 999_999_999), r#""2023-11-14T22:13:31Z""#);
    assert_eq!(seconds(-1, 0), r#""1969-12-31T23:59:59Z""#);
    assert_eq!(micros(1_700_000_011, 1_234_999), r#""2023-11-14T22:13:31.001234Z""#);
    assert_eq!(micros(0, -1000), r#""1969-12-31T23:59:59.999999Z""#);
    assert_eq!(micros(0, 1_000_000_000), r#""1970-01-01T00:00:01.000000Z""#);
    // Nothing, and the first second of the year 1, is the zero time.
    assert_eq!(printed("eventTime", 10, b""), "null");
    assert_eq!(seconds(-62_135_596_800, 0), "null");
    assert_eq!(micros(-62_135_596_800, 1000), r#""0001-01-01T00:00:00.000001Z""#);
    assert_eq!(seconds(253_402_300_799, 0), r#""9999-12-31T23:59:59Z""#);
    assert_eq!(seconds(253_402_300_800, 0), r#"{"(unknown fields)":{"1":253402300800,"2":0},"(value)":null}"#);
    assert_eq!(seconds(i64::MIN, 5), r#"{"(unknown fields)":{"1":-9223372036854775808,"2":5},"(value)":null}"#);
}

#[test]
fn an_int_or_string_is_either() {
    let port = |value: &[u8]| {
        let service = decode(&stored("v1", "Service", &field(2, field(1, field(4, value))))).unwrap();
        serde_json::to_string(service.value.at(&["spec", "ports", "0", "targetPort"]).unwrap()).unwrap()
    };
    assert_eq!(port(b""), "0");
    assert_eq!(port(&[varint(1, 0), varint(2, 80), field(3, "")].concat()), "80");
    assert_eq!(port(&[varint(1, 1), varint(2, 0), field(3, "http")].concat()), r#""http""#);
    assert_eq!(port(&varint(1, 2)), r#"{"(unknown fields)":{"1":2},"(value)":null}"#);
}

#[test]
fn documents_within_are_decoded() {
    let data = |document: &[u8]| {
        let revision = stored("apps/v1", "ControllerRevision", &field(2, field(1, document)));
        decode(&revision).map(|object| serde_json::to_string(object.value.get("data").unwrap()).unwrap())
    };
    assert_eq!(data(b" {\"b\":1,\"a\":[]} ").as_deref(), Ok(r#"{"a":[],"b":1}"#));
    assert_eq!(data(b"null").as_deref(), Ok("null"));
    assert_eq!(data(b"").as_deref(), Ok("null"));
    let secret = stored("v1", "Secret", &field(3, "Opaque"));
    assert_eq!(data(&secret).as_deref(), Ok(r#"{"apiVersion":"v1","kind":"Secret","metadata":{},"type":"Opaque"}"#));
    assert_eq!(data(b"\xd9\xd9\xf7\xa1\x41a\x01").as_deref(), Ok(r#"{"a":1}"#));
    assert_eq!(data(b"{\"a\"").as_deref(), Ok(r#"{"(unknown fields)":{"1":"{\"a\""},"(value)":null}"#));

    let mut nested = secret;
    for _ in 0..MAX_DEPTH {
        nested = stored("apps/v1", "ControllerRevision", &field(2, field(1, &nested)));
    }
    assert!(matches!(json(&nested), Err(Error::TooDeep { format: Format::Protobuf, .. })));
    assert!(matches!(data("[".repeat(MAX_DEPTH).as_bytes()), Err(Error::TooDeep { .. })));
}

#[test]
fn a_field_of_another_wire_type_is_damage() {
    for (kind, object) in [
        ("Secret", varint(3, 1)),
        ("Secret", varint(1, 1)),
        ("Secret", field(1, field(8, field(1, "")))),
        ("Secret", field(5, "")),
        ("Event", field(8, "")),
        ("Event", field(6, b"\x0b\x0c")),
    ] {
        let Err(Error::Malformed { format: Format::Protobuf, offset }) = decode(&stored("v1", kind, &object)) else {
            panic!("{kind} {}", object.escape_ascii())
        };
        assert!(offset > PROTOBUF_MAGIC.len());
    }
}

#[test]
fn depth_is_limited_in_every_encoding() {
    // Each level is a schema within a schema.
    let mut schema = Vec::new();
    for _ in 0..MAX_DEPTH {
        schema = field(28, &schema);
    }
    let definition = field(2, field(7, field(4, field(1, schema))));
    let definition = stored("apiextensions.k8s.io/v1", "CustomResourceDefinition", &definition);
    assert!(matches!(json(&definition), Err(Error::TooDeep { format: Format::Protobuf, .. })));

    let within = |depth: usize| format!(r#"{{"apiVersion":"v1","kind":"K","a":{}"#, "[".repeat(depth));
    let whole = |depth: usize| within(depth) + &"]".repeat(depth) + "}";
    decode(whole(MAX_DEPTH - 1).as_bytes()).unwrap();
    let too_deep = Error::TooDeep { format: Format::Json, offset: within(MAX_DEPTH).len() - 1 };
    assert_eq!(json(whole(MAX_DEPTH).as_bytes()), Err(too_deep));
    assert_eq!(json(within(1 << 20).as_bytes()), Err(too_deep));

    let cbor = [CBOR_MAGIC, b"\xa1\x41a", &b"\x81".repeat(1 << 20)].concat();
    assert_eq!(json(&cbor), Err(Error::TooDeep { format: Format::Cbor, offset: 3 + 3 + 63 }));
}

/// Two bytes are a version of a custom resource, which is printed with a name and two truth values.
#[test]
fn what_is_not_there_does_not_fill_the_memory() {
    let definition = |count| {
        let versions = field(7, "").repeat(count);
        stored("apiextensions.k8s.io/v1", "CustomResourceDefinition", &field(2, versions))
    };
    decode(&definition(1000)).unwrap();
    assert!(matches!(json(&definition(700_000)), Err(Error::TooMuch { format: Format::Protobuf, .. })));
}

/// Each of these takes minutes if any step is done again for every byte or field.
#[test]
fn large_values_are_read_in_one_pass() {
    const LEN: usize = 1_500_000;
    let metadata = field(1, field(1, "n"));
    let entries: Vec<u8> = (0..LEN / 20).flat_map(|n| field(2, entry(&format!("{:08}", LEN - n), "x"))).collect();
    let containers = field(2, field(2, [varint(99, 1), field(1, "c")].concat()).repeat(LEN / 8));
    let items = r#"{"a":1,"b":[]},"#.repeat(LEN / 16);
    for plaintext in [
        stored("v1", "Secret", &field(2, entry("key", vec![0; LEN]))),
        stored("v1", "Secret", &entries),
        stored("v1", "Secret", &metadata.repeat(LEN / metadata.len())),
        stored("v1", "Secret", &varint(99, 1).repeat(LEN / 3)),
        stored("v1", "Pod", &containers),
        stored("example.com/v1", "K", &field(7, field(2, "text").repeat(LEN / 6))),
        format!(r#"{{"apiVersion":"v1","kind":"K","items":[{items}0]}}"#).into_bytes(),
    ] {
        decode(&plaintext).unwrap();
    }
}

#[test]
fn json_keeps_its_numbers_and_its_last_keys() {
    let text = r#"{"kind":"K","apiVersion":"v1","n":[9223372036854775807,-9223372036854775808,18446744073709551615,
        123456789012345678901234567890,1.0,0.1,5e-324,-0],"a":{"x":1},"a":{"y":[null,true,"\u00e9\n"]}}"#;
    assert_eq!(
        json(text.as_bytes()).as_deref(),
        Ok(concat!(
            r#"{"a":{"y":[null,true,"é\n"]},"apiVersion":"v1","kind":"K","n":[9223372036854775807,"#,
            r#"-9223372036854775808,18446744073709551615,1.2345678901234568e+29,1,0.1,5e-324,-0.0]}"#
        ))
    );
    let format = Format::Json;
    for (text, error) in [
        (r#"{"apiVersion":"v1","kind":"K"}}"#, Error::Malformed { format, offset: 30 }),
        (r#"{"apiVersion":"v1","kind":"K""#, Error::Truncated { format, offset: 28 }),
        (r#"{"apiVersion":"v1"}"#, Error::MissingKind { format }),
        (r#"{"kind":"K","apiVersion":""}"#, Error::MissingApiVersion { format }),
        (r#"{"kind":1,"apiVersion":"v1"}"#, Error::MissingKind { format }),
    ] {
        assert_eq!(json(text.as_bytes()), Err(error), "{text}");
    }
}

#[test]
fn cbor_is_the_json_that_it_stands_for() {
    let value = |item: &[u8]| {
        let plaintext = [CBOR_MAGIC, b"\xbf\x4aapiVersion\x42v1\x64kind\x41K\x41v", item, b"\xff"].concat();
        decode(&plaintext).map(|object| serde_json::to_string(object.value.get("v").unwrap()).unwrap())
    };
    for (item, printed) in [
        (b"\x18\x64".as_slice(), "100"),
        (b"\x38\x63", "-100"),
        (b"\x3b\x7f\xff\xff\xff\xff\xff\xff\xff", "-9223372036854775808"),
        (b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615"),
        (b"\xf9\x3c\x00", "1"),
        (b"\xf9\xc1\x00", "-2.5"),
        (b"\xf9\x00\x01", "5.960464477539063e-8"),
        (b"\xf9\x7b\xff", "65504"),
        (b"\xfa\x3f\x00\x00\x00", "0.5"),
        (b"\xfb\x3f\xb9\x99\x99\x99\x99\x99\x9a", "0.1"),
        (b"\x83\xf4\xf5\xf6", "[false,true,null]"),
        (b"\x9f\x40\x60\x5f\x41a\x41b\xff\xff", r#"["","","ab"]"#),
        (b"\xa2\x41b\x01\x61a\xbf\xff", r#"{"a":{},"b":1}"#),
        (b"\xa2\x41a\x01\x41a\x02", r#"{"a":2}"#),
        // Expected to become base64url, base64, hex, also further in.
        (b"\xd5\x42\xff\xfe", r#""__4""#),
        (b"\xd6\x42\xff\xfe", r#""//4=""#),
        (b"\xd7\x82\x42\xff\xfe\xd6\x41\xff", r#"["fffe","/w=="]"#),
        (b"\xc0\x542023-11-14T22:13:31Z", r#""2023-11-14T22:13:31Z""#),
        (b"\x41\xff", r#"{"(base64)":"/w=="}"#),
    ] {
        assert_eq!(value(item).as_deref(), Ok(printed), "{}", item.escape_ascii());
    }
    for item in [
        b"\x3b\x80\x00\x00\x00\x00\x00\x00\x00".as_slice(),
        b"\xf9\x7c\x00",
        b"\xf9\x7e\x00",
        b"\xf7",
        b"\xa1\x01\x02",
        b"\xa1\x41\xff\x02",
        b"\xbf\x41a\xff",
        b"\x61\xff",
    ] {
        assert!(matches!(value(item), Err(Error::Malformed { .. })), "{}", item.escape_ascii());
    }
    assert!(matches!(value(b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff\x01"), Err(Error::Malformed { .. })));
}

#[test]
fn debug_shows_no_content() {
    let secret = decode(&stored("v1", "Secret", &field(3, "hunter2"))).unwrap();
    assert_eq!(format!("{secret:?}"), "Object([REDACTED], protobuf)");
}

proptest! {
    /// Either may fail where the other does not: this one reads all of protobuf, `identify` wants metadata to be
    /// metadata.
    #[test]
    fn any_bytes_are_an_object_or_an_error(magic in 0..5_usize, bytes: Vec<u8>) {
        let type_meta = field(1, [field(1, "v1"), field(2, "Pod")].concat());
        let magic = [
            b"".as_slice(),
            &[PROTOBUF_MAGIC, &type_meta, b"\x12"].concat(),
            CBOR_MAGIC,
            b"azhzAA",
            br#"{"apiVersion":"v1","kind":"K","#,
        ][magic].to_vec();
        let plaintext = [magic, bytes].concat();
        if let Ok(object) = decode(&plaintext) {
            if let Ok(identity) = identify(&plaintext) {
                prop_assert_eq!((object.api_version(), object.kind()), (&*identity.api_version, &*identity.kind));
            }
            serde_json::to_string(&object.value).unwrap();
        }
    }

    #[test]
    fn any_fields_are_an_object_or_an_error(content: Vec<u8>, number in 1..20_u64, kind in 0..4_usize) {
        let kind = ["Pod", "Secret", "Event", "Unheard"][kind];
        let plaintext = stored("v1", kind, &field(number, field(number, content)));
        if let Ok(object) = decode(&plaintext) {
            prop_assert_eq!(object.kind(), kind);
        }
    }
}
