//! Objects as Kubernetes stored them, and what it prints of them.

use atrest::object::{self, Format};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

#[derive(serde::Deserialize)]
struct Line {
    stored: String,
    object: Value,
}

/// Objects as stored, and as printed.
fn vectors(lines: &'static str) -> impl Iterator<Item = (Vec<u8>, Value)> {
    lines.lines().map(|line| {
        let line: Line = serde_json::from_str(line).expect("the vectors have lines of JSON");
        (STANDARD.decode(line.stored).expect("stored values are in base64"), line.object)
    })
}

fn objects() -> impl Iterator<Item = (Vec<u8>, Value)> {
    vectors(include_str!("../vectors/objects/objects.jsonl"))
}

fn as_json(object: &object::Object) -> Value {
    serde_json::to_value(&object.value).expect("it has no keys but strings")
}

/// The paths at which two values differ.
fn differences(ours: &Value, theirs: &Value, path: &str, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => differences(a, b, &format!("{path}.{key}"), found),
                    (ours, theirs) => found.push(format!("{path}.{key}: {ours:?}, not {theirs:?}")),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(a, b, &format!("{path}[{index}]"), found);
            }
        }
        _ if ours == theirs => {}
        _ => found.push(format!("{path}: {ours}, not {theirs}")),
    }
}

#[test]
fn objects_are_what_kubernetes_prints() {
    let mut found = Vec::new();
    let mut count = 0;
    for (stored, printed) in objects() {
        let object = object::decode(&stored).unwrap();
        let path = format!("{} {}", object.api_version(), object.kind());
        differences(&as_json(&object), &printed, &path, &mut found);
        assert!(!object.unknown, "{path}");
        assert_eq!(object.format, Format::Protobuf);
        count += 1;
    }
    assert_eq!(found, [""; 0]);
    assert_eq!(count, 272);
}

/// As `kubectl get` showed them: with the revision, which is not in the value, and without managed fields.
#[test]
fn objects_of_a_cluster_are_what_kubectl_shows() {
    for (stored, printed) in vectors(include_str!("../vectors/objects/sample.jsonl")) {
        let mut object = object::decode(&stored).unwrap();
        // Others were made by hand, with a text there, and printed as they are.
        if let Ok(revision) = printed["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse() {
            object.set_resource_version(revision);
            object.hide_managed_fields();
        }
        let mut found = Vec::new();
        differences(&as_json(&object), &printed, "", &mut found);
        assert_eq!(found, [""; 0]);
    }
}

/// What Kubernetes prints, stored as JSON, is printed again as it was, its keys in order.
#[test]
fn json_is_printed_as_it_is() {
    for (stored, printed) in objects() {
        let text = serde_json::to_vec(&printed).unwrap();
        let from_json = object::decode(&text).unwrap();
        assert_eq!((as_json(&from_json), from_json.format, from_json.unknown), (printed, Format::Json, false));
        assert!(from_json.value == object::decode(&stored).unwrap().value);
    }
}

#[test]
fn objects_in_base64_are_those_without() {
    for (stored, _) in objects() {
        let object = object::decode(STANDARD.encode(&stored).as_bytes()).unwrap();
        assert_eq!(object.format, Format::LegacyBase64);
        assert!(object.value == object::decode(&stored).unwrap().value);
    }
}

/// Of a kind that nobody knows, everything is there by its number.
#[test]
fn no_field_of_an_unknown_kind_is_lost() {
    for (stored, printed) in objects() {
        let kind = printed["kind"].as_str().unwrap();
        // The kind's last letter, where the envelope has it: before the object.
        let at = stored.windows(kind.len()).position(|window| window == kind.as_bytes()).unwrap() + kind.len() - 1;
        let mut renamed = stored.clone();
        renamed[at] = b'!';
        let object = object::decode(&renamed).unwrap();
        assert!(object.unknown);
        let text = serde_json::to_string(&object.value).unwrap();
        let mut missing = Vec::new();
        strings(&printed, &mut |leaf| {
            // Strings of the vectors end in a number of their own.
            if leaf.contains('-') && !leaf.starts_with("20") && !text.contains(leaf) {
                missing.push(leaf.to_owned());
            }
        });
        assert_eq!(missing, [""; 0], "{kind}: {text}");
    }
}

fn strings(value: &Value, visit: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter().for_each(|item| strings(item, visit)),
        Value::Object(map) => map.values().for_each(|item| strings(item, visit)),
        _ => {}
    }
}

#[test]
fn a_damaged_byte_is_an_object_or_an_error() {
    let (stored, _) = vectors(include_str!("../vectors/objects/sample.jsonl")).next().unwrap();
    for at in 0..stored.len() {
        for byte in [0x00, 0x7f, 0x80, 0xff, stored[at] ^ 1, stored[at] ^ 0x08] {
            let mut damaged = stored.clone();
            damaged[at] = byte;
            if let Ok(object) = object::decode(&damaged) {
                serde_json::to_string(&object.value).unwrap();
            }
        }
    }
}
