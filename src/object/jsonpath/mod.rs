//! Templates that pick values out of an object: `kubectl get -o jsonpath=…`.
//!
//! The dialect is that of `k8s.io/client-go/util/jsonpath`, older than RFC 9535 and unlike it. Text stands for itself;
//! what braces enclose is an expression:
//!
//! | expression | stands for |
//! |---|---|
//! | `{.kind}`, `{$.kind}`, `{@.kind}`, `{['kind']}` | the value of a key; `$` and `@` both are the current value |
//! | `{@}`, `{}` | the current value: the object, or what a range has come to |
//! | `{.data.tls\.crt}`, `{.data['tls\.crt']}` | a key with a dot in it, which otherwise ends a key, within quotes too |
//! | `{.users[0]}`, `{.users[-1]}` | an item of a list, counted from either end |
//! | `{.users[0:2]}`, `{.users[-2:]}`, `{.users[::2]}` | some of the items: from, up to but without, every so many |
//! | `{.users[*]}`, `{.metadata.*}` | all items, or all values of an object in the order of its keys |
//! | `{..name}` | the value of a key, wherever it is |
//! | `{.metadata['name','labels']}`, `{.users[0,2]}` | one after the other |
//! | `{.users[?(@.name=="e2e")]}`, `{.users[?(@.password)]}` | the items for which it is true, or which have it |
//! | `{range .users[*]}…{end}` | what is between, for each of the values |
//! | `{"\n"}`, `{'text'}`, `{1.5}`, `{true}` | text with Go's escapes, and literals |
//!
//! A template of one expression may leave out its braces and the first dot, as some options of `kubectl` allow: `kind`.
//!
//! What has several values is printed with a space between them. Strings are printed as they are, objects and lists as
//! JSON, and what is not there is left out.
//!
//! # What differs from `kubectl`
//!
//! It fails where an index is out of bounds and where lists, objects or values of different types are compared, or an
//! index is taken of what is no list. Here that selects nothing, a slice ends with its list, and values of different
//! types are not equal. Keys are in order, where `kubectl` has them at random after `*` and `..`. JSON shows `<`, `>` and
//! `&` as they are. An operand with several values makes a filter false. `{.}`, and a `{range}` without its `{end}`,
//! are errors. `[*]` and `..*` are understood of objects too, and `.*` of a string is nothing instead of its bytes.

mod evaluate;
mod parse;

use std::io;
use std::num::NonZeroUsize;

use super::Value;

/// A template.
///
/// ```
/// use atrest::object::decode;
/// use atrest::object::jsonpath::JsonPath;
///
/// let object = decode(br#"{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"a"},{"name":"b"}]}}"#)?;
/// let template = JsonPath::parse(r#"{.kind}:{range .spec.containers[*]} {.name}{end}{"\n"}"#)?;
/// let mut out = Vec::new();
/// template.render(&object.value, &mut out)?;
/// assert_eq!(out, b"Pod: a b\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    parts: Vec<Part>,
    /// The template's length in bytes, which is more than it has steps.
    len: usize,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Literal(Value),
    Expression(Path),
    Range { over: Path, body: Vec<Part> },
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Path(Vec<Step>);

/// From some values to others.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Key(String),
    Wildcard,
    /// To the value itself and all below it.
    Descend,
    Index(i64),
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: NonZeroUsize,
    },
    Union(Vec<Path>),
    /// To the items that have `left`, or for which the comparison holds.
    Filter {
        left: Operand,
        test: Option<(Comparison, Operand)>,
    },
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Literal(Value),
    Path(Path),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Why text is no template. Offsets are in bytes, counted from zero; whoever wrote the template can mend it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidJsonPath {
    /// No template at all.
    #[error("empty template")]
    Empty,
    /// A brace, bracket or quote that nothing closes.
    #[error("nothing closes what begins at byte {offset}")]
    Unclosed {
        /// Where it is opened.
        offset: usize,
    },
    /// A character that means nothing where it is.
    #[error("unexpected character at byte {offset}")]
    Unexpected {
        /// Where.
        offset: usize,
    },
    /// A dot that no key follows.
    #[error("expected a key at byte {offset}")]
    ExpectedKey {
        /// Where the key should be.
        offset: usize,
    },
    /// A word that is neither `range`, `end`, `true` nor `false`. Keys begin with a dot.
    #[error("unknown word at byte {offset}; does it lack a dot before it?")]
    UnknownWord {
        /// Where the word begins.
        offset: usize,
    },
    /// Neither a number nor a slice of numbers, or one that is not positive as the step of a slice.
    #[error("invalid index at byte {offset}")]
    InvalidIndex {
        /// Where the number should begin.
        offset: usize,
    },
    /// No number, though it begins like one.
    #[error("invalid number at byte {offset}")]
    InvalidNumber {
        /// Where it begins.
        offset: usize,
    },
    /// A backslash and what means nothing after it.
    #[error("invalid escape at byte {offset}")]
    InvalidEscape {
        /// Where the backslash is.
        offset: usize,
    },
    /// A filter within a filter.
    #[error("filter within a filter at byte {offset}")]
    NestedFilter {
        /// Where the inner one begins.
        offset: usize,
    },
    /// `{end}` without a `{range}` before it.
    #[error("no range to end at byte {offset}")]
    EndWithoutRange {
        /// Where the `{end}` begins.
        offset: usize,
    },
    /// `{range}` without an `{end}`.
    #[error("no end of the range at byte {offset}")]
    RangeWithoutEnd {
        /// Where the `{range}` begins.
        offset: usize,
    },
    /// Ranges within ranges, more than anybody needs.
    #[error("ranges are nested too deeply at byte {offset}")]
    TooDeep {
        /// Where the innermost begins.
        offset: usize,
    },
}

/// Rendering was given up: the template goes through the same values over and over, as `{..*..*..*}` does.
///
/// It is the source of the [`io::Error`] of [`JsonPath::render`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the template selects too much of the object")]
pub struct TooMuch;

impl JsonPath {
    /// Reads a template.
    ///
    /// # Errors
    /// When it is none; see [`InvalidJsonPath`].
    pub fn parse(template: &str) -> Result<Self, InvalidJsonPath> {
        Ok(Self { parts: parse::template(template)?, len: template.len() })
    }

    /// Writes what the template makes of a value. The value's text goes to the writer and nowhere else; it comes in
    /// small pieces.
    ///
    /// # Errors
    /// When the writer fails, or with [`TooMuch`]; then a part has been written already.
    pub fn render(&self, value: &Value, out: &mut dyn io::Write) -> io::Result<()> {
        evaluate::Evaluation::new(self, value).render(&self.parts, value, out)
    }
}

#[cfg(test)]
mod tests;
