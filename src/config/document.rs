//! The text of a file as a tree of values that know their places.

use zeroize::Zeroizing;

use super::diagnostic::{Diagnostic, Position};
use super::problem::{Format, NodeType, Problem, shape};
use super::{json, yaml};

/// The deepest nesting: a configuration needs eight levels.
pub(super) const MAX_DEPTH: usize = 64;

/// The most values in a tree, and so the bound of what aliases of aliases can cost.
pub(super) const MAX_NODES: usize = 100_000;

/// A value and its place. There is no `Debug`, since a string may be a key.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) position: Position,
    pub(crate) value: Value,
}

/// What JSON has for values. Bools have no place in a configuration, so theirs is not kept.
#[derive(Clone)]
pub(crate) enum Value {
    Null,
    Bool,
    /// The value if it is an integer of 64 bits.
    Number(Option<i64>),
    String(Zeroizing<String>),
    List(Vec<Node>),
    /// In file order, keys that repeat included.
    Mapping(Vec<Entry>),
}

/// A key and a value of a mapping.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) key: Zeroizing<String>,
    pub(crate) position: Position,
    pub(crate) value: Node,
}

impl Value {
    pub(super) fn node_type(&self) -> NodeType {
        match self {
            Value::Null => NodeType::Null,
            Value::Bool => NodeType::Bool,
            Value::Number(_) => NodeType::Number,
            Value::String(_) => NodeType::String,
            Value::List(_) => NodeType::List,
            Value::Mapping(_) => NodeType::Mapping,
        }
    }
}

/// The first document of a file.
pub(crate) struct Document {
    pub(crate) root: Node,
    /// Where text begins that is not used.
    pub(super) later: Option<Position>,
}

/// Reads JSON if the first character is `{`, and YAML otherwise.
pub(crate) fn parse(text: &[u8]) -> Result<Document, Box<Diagnostic>> {
    if text.is_empty() {
        return Err(failure(Position::START, Problem::Empty));
    }
    let utf16 = decode_utf16(text);
    let text = match &utf16 {
        Some(text) => text.as_str(),
        None => std::str::from_utf8(text).map_err(|error| {
            let valid = text.get(..error.valid_up_to()).unwrap_or_default();
            failure(Cursor::new(&String::from_utf8_lossy(valid)).end(), Problem::NotText)
        })?,
    };
    if utf16.is_none() && text.trim_start().starts_with('{') {
        return Ok(Document { root: json::parse(text)?, later: None });
    }
    yaml::parse(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// UTF-16 after its byte order mark, which YAML allows and Windows' tools write.
fn decode_utf16(text: &[u8]) -> Option<Zeroizing<String>> {
    let (decode, body): (fn([u8; 2]) -> u16, _) = match text {
        [0xff, 0xfe, body @ ..] => (u16::from_le_bytes, body),
        [0xfe, 0xff, body @ ..] => (u16::from_be_bytes, body),
        _ => return None,
    };
    let units = body.chunks(2).map(|unit| <[u8; 2]>::try_from(unit).map_or(0, decode));
    char::decode_utf16(units).collect::<Result<String, _>>().ok().map(Zeroizing::new)
}

pub(super) fn failure(position: Position, problem: Problem) -> Box<Diagnostic> {
    Box::new(Diagnostic::new("", position, problem))
}

pub(super) fn syntax(format: Format, position: Position, reason: String, field: &str) -> Box<Diagnostic> {
    failure(position, Problem::Syntax { format, reason, shape: shape(field) })
}

/// Turns byte offsets into positions, in one pass as long as they grow.
pub(super) struct Cursor<'a> {
    text: &'a str,
    offset: usize,
    position: Position,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, offset: 0, position: Position::START }
    }

    pub(super) fn position(&mut self, offset: usize) -> Position {
        if offset < self.offset {
            *self = Self::new(self.text);
        }
        for c in self.text.get(self.offset..offset).unwrap_or_default().chars() {
            if c == '\n' {
                self.position.line = self.position.line.saturating_add(1);
                self.position.column = 1;
            } else {
                self.position.column = self.position.column.saturating_add(1);
            }
        }
        self.offset = offset;
        self.position
    }

    fn end(mut self) -> Position {
        self.position(self.text.len())
    }
}
