//! Fields without a schema: see [`UNKNOWN_FIELDS`](super::UNKNOWN_FIELDS).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::super::value::Key;
use super::{BASE64, MAX_DEPTH, Map, Value};
use crate::protobuf::{Field, Reader};

/// Beyond it, a number is taken for a sign that the bytes are no message. Kubernetes' own stay below 100.
const MAX_NUMBER: u32 = 1000;

/// Fields by their numbers, in so many containers.
pub(super) fn fields<'a>(fields: impl IntoIterator<Item = (u32, Field<'a>)>, depth: usize) -> Vec<(Key, Value)> {
    let mut sorted: Vec<(u32, Field<'a>)> = fields.into_iter().collect();
    sorted.sort_by_key(|(number, _)| *number);
    let dumped = |run: &[(u32, Field<'a>)], depth: usize| -> Vec<Value> {
        run.iter().map(|(_, value)| field(*value, depth)).collect()
    };
    sorted
        .chunk_by(|(a, _), (b, _)| a == b)
        .filter_map(|run| {
            let value = match run {
                [(_, only)] => field(*only, depth),
                _ => Value::Array(dumped(run, depth.saturating_add(1))),
            };
            Some((Key::from(run.first()?.0.to_string()), value))
        })
        .collect()
}

/// What a field holds.
pub(super) fn field(value: Field<'_>, depth: usize) -> Value {
    match value {
        Field::Varint(number) => Value::Int(number.cast_signed()),
        // The wire has the least byte first.
        Field::Fixed64(bytes) => tagged("(fixed64)", format!("{:016x}", u64::from_le_bytes(bytes))),
        Field::Fixed32(bytes) => tagged("(fixed32)", format!("{:08x}", u32::from_le_bytes(bytes))),
        Field::Bytes(content) => bytes(content, depth),
        // The decoder refuses these before.
        Field::Group => Value::Null,
    }
}

/// Bytes that are text, a message, or neither.
pub(super) fn bytes(bytes: &[u8], depth: usize) -> Value {
    let text = str::from_utf8(bytes).ok().filter(|text| text.chars().all(is_printable));
    match text {
        // Few texts begin with a line break, and all messages whose first field is a message or a string.
        Some(text) if !text.starts_with('\n') => Value::from(text),
        _ => match (message(bytes, depth), text) {
            (Some(message), _) => message,
            (None, Some(text)) => Value::from(text),
            (None, None) => base64(bytes),
        },
    }
}

/// Bytes that are no text.
pub(super) fn base64(bytes: &[u8]) -> Value {
    tagged(BASE64, STANDARD.encode(bytes))
}

fn tagged(key: &'static str, text: String) -> Value {
    Value::Object(Map::from_entries(vec![(Key::Field(key), Value::from(text))]))
}

fn is_printable(char: char) -> bool {
    !char.is_control() || matches!(char, '\n' | '\r' | '\t')
}

/// Bytes that are fields from the first to the last.
fn message(bytes: &[u8], depth: usize) -> Option<Value> {
    if depth >= MAX_DEPTH {
        return None;
    }
    let mut found = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.next_field().ok()? {
        if number > MAX_NUMBER || value == Field::Group {
            return None;
        }
        found.push((number, value));
    }
    Some(Value::Object(Map::from_entries(fields(found, depth.saturating_add(1)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(content: &[u8]) -> String {
        serde_json::to_string(&bytes(content, 0)).unwrap()
    }

    #[test]
    fn bytes_are_text_or_a_message_or_neither() {
        for (content, expected) in [
            (b"".as_slice(), r#""""#),
            (b"text\twith \xc3\xa9\n", r#""text\twith é\n""#),
            // Also fields 6 and 7.
            (b"0x80", r#""0x80""#),
            (b"\n\x03abc", r#"{"1":"abc"}"#),
            (b"\n\x20 all of it would be printable, t", r#"{"1":" all of it would be printable, t"}"#),
            (b"\nno message", r#""\nno message""#),
            (b"\x08\x96\x01\x12\x02\x08\x01\x08\x02", r#"{"1":[150,2],"2":{"1":1}}"#),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", r#"{"1":-1}"#),
            (b"\x0d\x01\x00\x00\x00", r#"{"1":{"(fixed32)":"00000001"}}"#),
            (b"\x09\x00\x00\x00\x00\x00\x00\xf0\x3f", r#"{"1":{"(fixed64)":"3ff0000000000000"}}"#),
            (b"\xff\xfe", r#"{"(base64)":"//4="}"#),
            (b"\x0b\x0c", r#"{"(base64)":"Cww="}"#),
            // Field 1001.
            (b"\xc8\x3e\x01", r#"{"(base64)":"yD4B"}"#),
        ] {
            assert_eq!(dump(content), expected, "{}", content.escape_ascii());
        }
    }

    #[test]
    fn what_is_nested_too_deeply_is_not_taken_apart() {
        let mut content = b"\x08\x01".to_vec();
        for _ in 0..2 * MAX_DEPTH {
            let mut outer = vec![0x0a];
            prost::encoding::encode_varint(content.len() as u64, &mut outer);
            outer.extend_from_slice(&content);
            content = outer;
        }
        let text = dump(&content);
        assert_eq!(text.matches(r#"{"1":"#).count(), MAX_DEPTH);
        assert!(text.contains(r#"{"(base64)":""#));
    }
}
