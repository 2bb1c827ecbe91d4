//! YAML's events as a tree, with aliases and merge keys resolved.

use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Marker, Parser, ScalarStyle, ScanError, Tag, options};
use zeroize::Zeroizing;

use super::diagnostic::{Diagnostic, Position};
use super::document::{Cursor, Document, Entry, MAX_DEPTH, MAX_NODES, Node, Value, failure, syntax};
use super::problem::{Format, Problem};
use super::scalar;

/// Parses the first document, whatever comes after it.
pub(super) fn parse(text: &str) -> Result<Document, Box<Diagnostic>> {
    let options = options! {
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
        emit_comments: false,
        // As libyaml, and so go-yaml, have it.
        bom_inside_document_as_content: true,
        block_scalar_eof_without_line_feed: true,
    };
    let control = text.find(is_forbidden);
    let forbidden = |end: Marker| {
        let offset = control.filter(|&offset| end.byte_offset().is_none_or(|end| offset <= end))?;
        Some(failure(Cursor::new(text).position(offset), Problem::ControlCharacter))
    };
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut tree = Builder::default();
    for next in parser.by_ref() {
        let (event, span) = match next {
            Ok(next) => next,
            Err(error) => return Err(forbidden(*error.marker()).unwrap_or_else(|| invalid(&error, &tree.field))),
        };
        if matches!(event, Event::DocumentEnd | Event::StreamEnd) {
            if let Some(error) = forbidden(span.start) {
                return Err(error);
            }
            break;
        }
        tree.event(event, position(span.start))?;
    }
    let later = match parser.next() {
        None | Some(Ok((Event::StreamEnd, _))) => None,
        Some(Ok((_, span))) => Some(position(span.start)),
        Some(Err(error)) => Some(position(*error.marker())),
    };
    let root = tree.root.unwrap_or(Node { position: Position::START, value: Value::Null });
    Ok(Document { root, later })
}

/// What go-yaml's reader stops at.
fn is_forbidden(c: char) -> bool {
    !matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
}

fn position(marker: Marker) -> Position {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Position { line: number(marker.line()).max(1), column: number(marker.col()).saturating_add(1) }
}

fn invalid(error: &ScanError, field: &str) -> Box<Diagnostic> {
    let position = position(*error.marker());
    match error.kind() {
        ErrorKind::RecursionLimitExceeded => failure(position, Problem::TooDeep { limit: MAX_DEPTH }),
        kind => syntax(Format::Yaml, position, kind.to_string(), field),
    }
}

/// A list or a mapping whose end has not come yet.
struct Open {
    position: Position,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Mapping { entries: Vec<Entry>, key: Option<Key> },
}

struct Key {
    text: Zeroizing<String>,
    position: Position,
    is_merge: bool,
}

struct Anchored {
    node: Node,
    size: usize,
    height: usize,
}

#[derive(Default)]
struct Builder {
    root: Option<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, Anchored>,
    nodes: usize,
    /// The last key, which tells what block a syntax error is in.
    field: String,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, position: Position) -> Result<(), Box<Diagnostic>> {
        let error = |problem| failure(position, problem);
        match event {
            Event::DocumentStart(_, Some(version)) if (version.major, version.minor) != (1, 1) => {
                Err(syntax(Format::Yaml, position, "found incompatible YAML document".to_owned(), ""))
            }
            Event::Scalar(text, style, anchor, tag) => {
                let is_plain = style == ScalarStyle::Plain && tag.is_none();
                let text = Zeroizing::new(text.into_owned());
                self.count(weight(&text), position)?;
                if anchor == 0 && self.key_is_next() {
                    let is_merge = is_plain && text.as_str() == "<<";
                    self.set_key(Key { text, position, is_merge });
                    return Ok(());
                }
                let value = match (tag, style) {
                    (Some(tag), _) => tagged(&tag, text).ok_or_else(|| error(Problem::Tag))?,
                    (None, ScalarStyle::Plain) => scalar::resolve(&text),
                    (None, _) => Value::String(text),
                };
                self.finish(Node { position, value }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.start(position, anchor, Content::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                self.start(position, anchor, Content::Mapping { entries: Vec::new(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { position, anchor, content }) = self.open.pop() else { return Ok(()) };
                let value = match content {
                    Content::List(nodes) => Value::List(nodes),
                    Content::Mapping { entries, .. } => Value::Mapping(entries),
                };
                self.finish(Node { position, value }, anchor)
            }
            Event::Alias(anchor) => {
                let Some(Anchored { size, height, .. }) = self.anchors.get(&anchor) else {
                    return Err(error(Problem::RecursiveAlias));
                };
                if self.open.len() + height > MAX_DEPTH {
                    return Err(error(Problem::TooDeep { limit: MAX_DEPTH }));
                }
                self.count(*size, position)?;
                match self.anchors.get(&anchor).map(|anchored| anchored.node.clone()) {
                    Some(node) => self.add(node, true),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn count(&mut self, nodes: usize, position: Position) -> Result<(), Box<Diagnostic>> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            return Err(failure(position, Problem::TooLarge { limit: MAX_NODES }));
        }
        Ok(())
    }

    fn key_is_next(&self) -> bool {
        matches!(self.open.last(), Some(Open { content: Content::Mapping { key: None, .. }, .. }))
    }

    fn set_key(&mut self, new: Key) {
        new.text.as_str().clone_into(&mut self.field);
        if let Some(Open { content: Content::Mapping { key, .. }, .. }) = self.open.last_mut() {
            *key = Some(new);
        }
    }

    fn start(&mut self, position: Position, anchor: usize, content: Content) -> Result<(), Box<Diagnostic>> {
        self.count(1, position)?;
        if self.open.len() >= MAX_DEPTH {
            return Err(failure(position, Problem::TooDeep { limit: MAX_DEPTH }));
        }
        self.open.push(Open { position, anchor, content });
        Ok(())
    }

    /// Files a value away under its anchor, and puts it in its place.
    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), Box<Diagnostic>> {
        if anchor != 0 {
            let (size, height) = measure(&node);
            self.count(size, node.position)?;
            self.anchors.insert(anchor, Anchored { node: node.clone(), size, height });
        }
        self.add(node, false)
    }

    fn add(&mut self, node: Node, is_alias: bool) -> Result<(), Box<Diagnostic>> {
        let position = node.position;
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::List(nodes)) => nodes.push(node),
            Some(Content::Mapping { entries, key }) => match key.take() {
                Some(Key { is_merge: true, .. }) => merge(entries, node, is_alias)?,
                Some(key) => entries.push(Entry { key: key.text, position: key.position, value: node }),
                None => {
                    let Value::String(text) = node.value else {
                        return Err(failure(position, Problem::KeyNotString));
                    };
                    self.set_key(Key { text, position, is_merge: false });
                }
            },
        }
        Ok(())
    }
}

/// Adds the keys of `<<`, those that are set already too: they make the file invalid.
fn merge(entries: &mut Vec<Entry>, node: Node, is_alias: bool) -> Result<(), Box<Diagnostic>> {
    let sources = match node.value {
        Value::Mapping(merged) => {
            entries.extend(merged);
            return Ok(());
        }
        Value::List(nodes) if !is_alias => nodes,
        _ => return Err(failure(node.position, Problem::MergeNotMapping)),
    };
    for source in sources {
        match source.value {
            Value::Mapping(merged) => entries.extend(merged),
            _ => return Err(failure(source.position, Problem::MergeNotMapping)),
        }
    }
    Ok(())
}

/// A scalar with a tag. `!!binary` and tags of other type systems than YAML's have no place in a configuration.
fn tagged(tag: &Tag, text: Zeroizing<String>) -> Option<Value> {
    let suffix = tag.core_suffix();
    let resolved = scalar::resolve(&text);
    let fits = match (suffix, &resolved) {
        (Some("str"), _) => return Some(Value::String(text)),
        (Some("int" | "float"), Value::Number(_)) | (Some("bool"), Value::Bool) | (Some("null"), Value::Null) => true,
        (Some(_), _) => false,
        (None, _) => return (!tag.handle().starts_with("tag:yaml.org,2002:")).then_some(Value::String(text)),
    };
    fits.then_some(resolved)
}

/// What a text counts as: long ones as several values, so that a bomb of few and long ones is one too.
fn weight(text: &str) -> usize {
    1 + text.len() / 256
}

/// The number of values in a tree and its height; trees are never higher than [`MAX_DEPTH`].
fn measure(node: &Node) -> (usize, usize) {
    let children: &mut dyn Iterator<Item = &Node> = match &node.value {
        Value::List(nodes) => &mut nodes.iter(),
        Value::Mapping(entries) => &mut entries.iter().map(|entry| &entry.value),
        Value::String(text) => return (weight(text), 0),
        _ => return (1, 0),
    };
    children.map(measure).fold((1, 1), |(size, height), child| (size + child.0, height.max(child.1 + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(text: &str) -> Value {
        parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).root.value
    }

    fn error(text: &str) -> Diagnostic {
        match parse(text) {
            Ok(_) => panic!("{text} parses"),
            Err(error) => *error,
        }
    }

    /// The tree in a notation of its own, to compare with.
    fn sketch(value: &Value) -> String {
        match value {
            Value::Null => "null".to_owned(),
            Value::Bool => "bool".to_owned(),
            Value::Number(number) => number.map_or("number".to_owned(), |number| number.to_string()),
            Value::String(text) => format!("{:?}", text.as_str()),
            Value::List(nodes) => format!("{:?}", nodes.iter().map(|node| sketch(&node.value)).collect::<Vec<_>>()),
            Value::Mapping(entries) => {
                let entries = entries.iter().map(|entry| format!("{}: {}", *entry.key, sketch(&entry.value.value)));
                format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
            }
        }
    }

    #[test]
    fn quotes_make_strings() {
        assert_eq!(
            sketch(&root("{a: 'yes', b: \"1\", c: yes, d: 1, e: }")),
            r#"{a: "yes", b: "1", c: bool, d: 1, e: null}"#
        );
    }

    #[test]
    fn tags_decide_the_type() {
        assert_eq!(sketch(&root("{a: !!str 1, b: !!int '1', c: ! 1, d: !x 1}")), r#"{a: "1", b: 1, c: "1", d: "1"}"#);
        assert_eq!(error("a: !!int x").problem, Problem::Tag);
        assert_eq!(error("a: !!binary QQ==").problem, Problem::Tag);
    }

    #[test]
    fn block_scalars_keep_their_line_breaks() {
        assert_eq!(sketch(&root("a: |\n  b\n  c\n")), r#"{a: "b\nc\n"}"#);
        assert_eq!(sketch(&root("a: |\n  b")), r#"{a: "b"}"#);
        assert_eq!(sketch(&root("a: >-\n  b\n  c\n")), r#"{a: "b c"}"#);
    }

    #[test]
    fn places_are_counted_from_one() {
        let Value::Mapping(entries) = root("é: {b: 1}\nc:\n- d\n") else { panic!("no mapping") };
        assert_eq!(entries[0].value.position, Position { line: 1, column: 4 });
        assert_eq!(entries[1].position, Position { line: 2, column: 1 });
        let Value::List(nodes) = &entries[1].value.value else { panic!("no list") };
        assert_eq!(nodes[0].position, Position { line: 3, column: 3 });
    }

    #[test]
    fn aliases_are_copies() {
        assert_eq!(sketch(&root("a: &x {k: 1}\nb: *x\nc: &k d\n*k : 2")), r#"{a: {k: 1}, b: {k: 1}, c: "d", d: 2}"#);
    }

    #[test]
    fn merge_keys_add_keys() {
        let anchors = "a: &a {k: 1}\nb: &b {l: 2}\n";
        for (merge, expected) in [
            ("{<<: *a, m: 3}", "{k: 1, m: 3}"),
            ("{<<: [*a, *b]}", "{k: 1, l: 2}"),
            ("{<<: *a, k: 3}", "{k: 1, k: 3}"),
            ("{'<<': 1}", "{<<: 1}"),
        ] {
            let Value::Mapping(entries) = root(&format!("{anchors}c: {merge}")) else { panic!("no mapping") };
            assert_eq!(sketch(&entries[2].value.value), expected);
        }
        for merge in ["{<<: 1}", "{<<: }", "{<<: [*a, 1]}", "{<<: *c}"] {
            let error = error(&format!("{anchors}c: &c [*a]\nd: {merge}"));
            assert_eq!(error.problem, Problem::MergeNotMapping, "{merge}");
        }
    }

    #[test]
    fn a_value_does_not_contain_itself() {
        assert_eq!(error("a: &a [*a]").problem, Problem::RecursiveAlias);
        assert!(matches!(error("a: *b").problem, Problem::Syntax { .. }));
    }

    #[test]
    fn keys_are_scalars() {
        assert_eq!(error("? [a]\n: b").problem, Problem::KeyNotString);
    }

    #[test]
    fn aliases_of_aliases_are_limited() {
        let mut text = "a0: &a0 x\n".to_owned();
        for level in 1..20 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        assert_eq!(error(&text).problem, Problem::TooLarge { limit: MAX_NODES });
    }

    #[test]
    fn nesting_is_limited() {
        let too_deep = Problem::TooDeep { limit: MAX_DEPTH };
        assert_eq!(error(&"[".repeat(100_000)).problem, too_deep);
        assert_eq!(error(&"- ".repeat(100_000)).problem, too_deep);
        let mut text = "a0: &a0 [x]\n".to_owned();
        for level in 1..100 {
            text.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
        }
        assert_eq!(error(&text).problem, too_deep);
    }

    #[test]
    fn only_the_first_document_counts() {
        for (text, later) in [
            ("a: 1", None),
            ("---\na: 1\n", None),
            ("a: 1\n...\n", None),
            ("a: 1\n---\nb: 2\n", Some(2)),
            ("a: 1\n---\n{{{{\n", Some(2)),
            ("a: 1\n---\n\u{1}\n", Some(2)),
            ("a: 1\n--- 'x\n", Some(2)),
            ("{a: 1}\n...\n}\n", Some(3)),
        ] {
            let document = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(sketch(&document.root.value), "{a: 1}", "{text}");
            assert_eq!(document.later.map(|position| position.line), later, "{text}");
        }
    }

    #[test]
    fn what_go_yaml_does_not_read_is_refused() {
        for (text, line, column) in [
            ("a:\n\t- b: 1\n", 2, 2),
            ("a: [\n", 1, 4),
            ("a: b: c\n", 1, 5),
            ("a: @b\n", 1, 4),
            ("%YAML 1.2\n---\na: 1\n", 2, 1),
        ] {
            let error = error(text);
            assert!(matches!(error.problem, Problem::Syntax { .. }), "{text}: {error}");
            assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
        }
        assert_eq!(error("a: 'b\u{1}'").to_string(), "1:6: control characters are not allowed");
    }

    #[test]
    fn a_syntax_error_shows_the_block_it_is_in() {
        let error = error("keys:\n- name: key1\nsecret: x\n- identity: {}\n");
        assert_eq!(error.line, 4);
        assert_eq!(error.hint.as_deref(), Some("expected:\nkeys:\n- name: key1\n  secret: <base64 of 32 bytes>"));
    }
}
