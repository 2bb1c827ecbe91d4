//! JSON to a tree, as it is.

use std::borrow::Cow;
use std::cell::Cell;
use std::{fmt, str};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::super::json::{Text, offset_of};
use super::super::value::Key;
use super::{Error, Format, MAX_DEPTH, Map, Value};

/// Reads a document that ends at `end`, in so many containers.
///
/// Strings with escapes go through a buffer of serde_json, which does not wipe it.
pub(super) fn decode(format: Format, document: &[u8], end: usize, depth: usize) -> Result<Value, Error> {
    let begin = end.saturating_sub(document.len());
    let text = str::from_utf8(document).map_err(|error| {
        let offset = begin.saturating_add(error.valid_up_to());
        match error.error_len() {
            Some(_) => Error::Malformed { format, offset },
            None => Error::Truncated { format, offset },
        }
    })?;
    let too_deep = Cell::new(false);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Item { depth, too_deep: &too_deep }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        // The message of serde_json may quote the document, so only the place survives.
        .map_err(|error| {
            let at = offset_of(text, error.line(), error.column());
            let offset = begin.saturating_add(at);
            match (too_deep.get(), error.is_eof()) {
                // It is told a little after the bracket.
                (true, _) => {
                    let before = document.get(..=at).unwrap_or(document);
                    let bracket = before.iter().rposition(|byte| matches!(byte, b'[' | b'{'));
                    Error::TooDeep { format, offset: begin.saturating_add(bracket.unwrap_or(at)) }
                }
                (_, true) => Error::Truncated { format, offset },
                _ => Error::Malformed { format, offset },
            }
        })
}

/// A value within so many containers.
#[derive(Clone, Copy)]
struct Item<'a> {
    depth: usize,
    too_deep: &'a Cell<bool>,
}

impl Item<'_> {
    fn within<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth >= MAX_DEPTH {
            self.too_deep.set(true);
            return Err(E::custom("too deep"));
        }
        Ok(Self { depth: self.depth.saturating_add(1), ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Item<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Item<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::number(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let within = self.within()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(within)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let within = self.within()?;
        let mut entries = Vec::new();
        while let Some(Text(key)) = map.next_key()? {
            let key = match key {
                Cow::Borrowed(key) => Key::from(key),
                Cow::Owned(key) => Key::from(key),
            };
            entries.push((key, map.next_value_seed(within)?));
        }
        Ok(Value::Object(Map::from_entries(entries)))
    }
}
