//! JSON as a tree.

use std::fmt;

use serde::Deserializer as _;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::diagnostic::{Diagnostic, Position};
use super::document::{Cursor, Entry, MAX_DEPTH, MAX_NODES, Node, Value, failure, syntax};
use super::problem::{Format, Problem};

/// Parses a whole text; unlike with YAML nothing may follow the value.
pub(super) fn parse(text: &str) -> Result<Node, Box<Diagnostic>> {
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| invalid(&error, None))?;
    Builder { text, cursor: Cursor::new(text), nodes: 0 }.node(raw, 0)
}

/// The parser's error without its place, which is relative to what it was given.
fn invalid(error: &serde_json::Error, position: Option<Position>) -> Box<Diagnostic> {
    let position = position.unwrap_or_else(|| Position {
        line: u32::try_from(error.line()).unwrap_or(u32::MAX).max(1),
        column: u32::try_from(error.column()).unwrap_or(u32::MAX).max(1),
    });
    let text = error.to_string();
    let reason = text.split(" at line ").next().unwrap_or_default().to_owned();
    syntax(Format::Json, position, reason, "")
}

struct Builder<'a> {
    text: &'a str,
    cursor: Cursor<'a>,
    nodes: usize,
}

impl<'a> Builder<'a> {
    fn position(&mut self, raw: &'a RawValue) -> Position {
        // Both borrow from one allocation, so the difference of their addresses is the offset.
        self.cursor.position((raw.get().as_ptr().addr()).saturating_sub(self.text.as_ptr().addr()))
    }

    fn node(&mut self, raw: &'a RawValue, depth: usize) -> Result<Node, Box<Diagnostic>> {
        let position = self.position(raw);
        self.nodes += 1;
        if depth > MAX_DEPTH {
            return Err(failure(position, Problem::TooDeep { limit: MAX_DEPTH }));
        }
        if self.nodes > MAX_NODES {
            return Err(failure(position, Problem::TooLarge { limit: MAX_NODES }));
        }
        let value = match raw.get().as_bytes().first() {
            Some(b'n') => Value::Null,
            Some(b't' | b'f') => Value::Bool,
            Some(b'"') => Value::String(string(raw, position)?),
            Some(b'[') => {
                let elements = children(raw, position)?;
                let nodes = elements.into_iter().map(|(_, raw)| self.node(raw, depth + 1));
                Value::List(nodes.collect::<Result<_, _>>()?)
            }
            Some(b'{') => {
                let mut entries = Vec::new();
                for (key, raw) in children(raw, position)? {
                    let Some(key) = key else { continue };
                    let position = self.position(key);
                    let key = string(key, position)?;
                    entries.push(Entry { key, position, value: self.node(raw, depth + 1)? });
                }
                Value::Mapping(entries)
            }
            _ => Value::Number(raw.get().parse().ok()),
        };
        Ok(Node { position, value })
    }
}

fn string(raw: &RawValue, position: Position) -> Result<Zeroizing<String>, Box<Diagnostic>> {
    serde_json::from_str(raw.get()).map(Zeroizing::new).map_err(|error| invalid(&error, Some(position)))
}

/// The elements of a list, or the keys and values of an object with every key that repeats.
fn children(raw: &RawValue, position: Position) -> Result<Vec<(Option<&RawValue>, &RawValue)>, Box<Diagnostic>> {
    let mut deserializer = serde_json::Deserializer::from_str(raw.get());
    deserializer.deserialize_any(Children).map_err(|error| invalid(&error, Some(position)))
}

struct Children;

impl<'de> Visitor<'de> for Children {
    type Value = Vec<(Option<&'de RawValue>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or an object")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut children = Vec::new();
        while let Some(element) = seq.next_element()? {
            children.push((None, element));
        }
        Ok(children)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut children = Vec::new();
        while let Some((key, value)) = map.next_entry()? {
            children.push((Some(key), value));
        }
        Ok(children)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position_of(text: &str, key: &str) -> Position {
        let Ok(Node { value: Value::Mapping(entries), .. }) = parse(text) else { panic!("not a mapping") };
        entries.iter().find(|entry| entry.key.as_str() == key).expect("the key").position
    }

    #[test]
    fn keys_know_their_places() {
        let text = "{\"é\": [1, {\"b\": null}],\n  \"c\": {}}";
        assert_eq!(position_of(text, "é"), Position { line: 1, column: 2 });
        assert_eq!(position_of(text, "c"), Position { line: 2, column: 3 });
    }

    #[test]
    fn repeated_keys_are_kept() {
        let Ok(Node { value: Value::Mapping(entries), .. }) = parse(r#"{"a": 1, "\u0061": 2}"#) else { panic!() };
        assert_eq!(entries.len(), 2);
        assert!(entries.iter().all(|entry| entry.key.as_str() == "a"));
    }

    #[test]
    fn errors_have_a_place() {
        for (text, line, column) in [("{} x", 1, 4), ("{\n a: 1}", 2, 2), ("{{{{", 1, 2), ("{\"a\": \"\\q\"}", 1, 9)] {
            let Err(error) = parse(text) else { panic!("{text} parses") };
            assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
        }
    }

    #[test]
    fn nesting_is_limited() {
        let text = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let Err(error) = parse(&text) else { panic!("parses") };
        assert_eq!(error.problem, Problem::TooDeep { limit: MAX_DEPTH });
    }

    #[test]
    fn the_number_of_values_is_limited() {
        let text = format!("{{\"a\":[{}0]}}", "0,".repeat(MAX_NODES));
        let Err(error) = parse(&text) else { panic!("parses") };
        assert_eq!(error.problem, Problem::TooLarge { limit: MAX_NODES });
    }
}
