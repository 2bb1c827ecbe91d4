//! What the fields of stored messages are: a table made by reflection over the Go types of Kubernetes.
//!
//! `kinds.jsonl.gz` is `tests/vectors/objects/schema.jsonl`, which `tests/vectors/README.md` describes, by
//! `gzip -9n`. It is unpacked at the first use.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::OnceLock;

use serde::Deserialize;

static PACKED: &[u8] = include_bytes!("kinds.jsonl.gz");

/// All kinds that Kubernetes stores as protobuf.
pub(super) struct Table {
    /// By `apiVersion Kind`.
    kinds: HashMap<Box<str>, usize>,
    messages: Vec<Message>,
    object_meta: usize,
}

/// A message type.
pub(super) struct Message {
    pub(super) rule: Rule,
    /// In the order in which JSON has them; those that go into the parent's object have no name and come first.
    pub(super) fields: Vec<Field>,
    /// Numbers in their order, and the positions of their fields.
    numbers: Vec<(u32, usize)>,
}

/// How a message is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Field by field.
    Fields,
    /// `meta/v1.Time`.
    Time,
    /// `meta/v1.MicroTime`.
    MicroTime,
    /// `resource.Quantity`.
    Quantity,
    /// `util/intstr.IntOrString`.
    IntOrString,
    /// Bytes that are a document of their own: `FieldsV1`, `RawExtension`, `JSON`.
    Raw,
    /// Its second field, or else its first: `JSONSchemaPropsOrArray` and its like.
    Either,
    /// Its only field, a list: `ExtraValue`.
    Items,
}

/// A field of a message.
pub(super) struct Field {
    pub(super) name: Box<str>,
    pub(super) of: Type,
    pub(super) shape: Shape,
    /// Whether it is left out of JSON when it is empty in Go's sense (`omitempty`), which no struct is.
    pub(super) omit_empty: bool,
    /// Whether it is left out when it is the zero time (`omitzero`).
    pub(super) omit_zero: bool,
}

/// What a field holds, or each of its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    String,
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    /// The message at this position of the table.
    Message(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// There in any case: absent is zero.
    One,
    /// There or not.
    Pointer,
    Repeated,
    /// By strings.
    Map,
    /// A message whose fields are those of the parent in JSON.
    Inline,
}

impl Table {
    /// The table of this crate.
    pub(super) fn embedded() -> &'static Self {
        static TABLE: OnceLock<Table> = OnceLock::new();
        TABLE.get_or_init(|| {
            let mut lines = String::new();
            let unpacked = flate2::read::GzDecoder::new(PACKED).read_to_string(&mut lines);
            unpacked.ok().and_then(|_| Self::parse(&lines)).expect("the embedded table is whole, as a test shows")
        })
    }

    /// The message type of a kind.
    pub(super) fn kind(&self, api_version: &str, kind: &str) -> Option<&Message> {
        self.message(*self.kinds.get(format!("{api_version} {kind}").as_str())?)
    }

    /// `meta/v1.ObjectMeta`.
    pub(super) fn object_meta(&self) -> Option<&Message> {
        self.message(self.object_meta)
    }

    pub(super) fn message(&self, index: usize) -> Option<&Message> {
        self.messages.get(index)
    }

    fn parse(lines: &str) -> Option<Self> {
        let lines: Vec<Line<'_>> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>().ok()?;
        let types = lines.iter().filter(|line| line.kind.is_none());
        let index: HashMap<&str, (usize, &Line<'_>)> =
            types.enumerate().map(|(index, line)| (line.r#type, (index, line))).collect();
        let mut table = Self { kinds: HashMap::new(), messages: Vec::new(), object_meta: 0 };
        table.object_meta = index.get("meta/v1.ObjectMeta")?.0;
        for line in &lines {
            match line.kind {
                Some(kind) => {
                    table.kinds.insert(kind.into(), index.get(line.r#type)?.0);
                }
                None => table.messages.push(Message::new(line, &index)?),
            }
        }
        Some(table)
    }
}

impl Message {
    fn new(line: &Line<'_>, index: &HashMap<&str, (usize, &Line<'_>)>) -> Option<Self> {
        let fields = line.fields.as_deref().unwrap_or_default();
        let rule = match line.r#type {
            "meta/v1.Time" => Rule::Time,
            "meta/v1.MicroTime" => Rule::MicroTime,
            "resource.Quantity" => Rule::Quantity,
            "util/intstr.IntOrString" => Rule::IntOrString,
            "meta/v1.FieldsV1" | "runtime.RawExtension" => Rule::Raw,
            _ => match fields {
                [Column { j: Some("-"), t: "bytes", .. }] => Rule::Raw,
                [Column { j: None, r#in: false, .. }, Column { j: None, r#in: false, .. }] => Rule::Either,
                [Column { j: Some("items"), r: true, o: false, .. }] => Rule::Items,
                _ => Rule::Fields,
            },
        };
        let mut numbered: Vec<(u32, Field)> = Vec::with_capacity(fields.len());
        // A field without a number is not in protobuf.
        for (number, column) in fields.iter().filter_map(|column| Some((column.n?, column))) {
            numbered.push((number, Field::new(column, index)?));
        }
        // The two of `Either` have no names and keep their order.
        numbered.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        let mut numbers: Vec<_> = numbered.iter().enumerate().map(|(slot, (number, _))| (*number, slot)).collect();
        numbers.sort_unstable();
        Some(Self { rule, fields: numbered.into_iter().map(|(_, field)| field).collect(), numbers })
    }

    /// The position in `fields` of the field with a number.
    pub(super) fn slot(&self, number: u32) -> Option<usize> {
        let at = self.numbers.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.numbers.get(at).map(|(_, slot)| *slot)
    }

    /// The number of the field at a position.
    pub(super) fn number(&self, slot: usize) -> Option<u32> {
        self.numbers.iter().find(|(_, at)| *at == slot).map(|(number, _)| *number)
    }
}

impl Field {
    fn new(column: &Column<'_>, index: &HashMap<&str, (usize, &Line<'_>)>) -> Option<Self> {
        let (mut r#type, mut map) = (column.t, column.m);
        // A named map is in protobuf what a map without a name is: no message, but entries.
        if let Some((_, Line { fields: Some(fields), .. })) = index.get(r#type)
            && let [Column { j: Some("items"), m: true, o: false, t, .. }] = fields.as_slice()
        {
            (r#type, map) = (t, true);
        }
        Some(Self {
            name: column.j.unwrap_or_default().into(),
            of: match r#type {
                "string" => Type::String,
                "bytes" => Type::Bytes,
                "bool" => Type::Bool,
                "int32" => Type::Int32,
                "int64" => Type::Int64,
                "double" => Type::Double,
                message => Type::Message(index.get(message)?.0),
            },
            shape: match column {
                _ if map => Shape::Map,
                Column { r#in: true, .. } => Shape::Inline,
                Column { r: true, .. } => Shape::Repeated,
                Column { p: true, .. } => Shape::Pointer,
                _ => Shape::One,
            },
            omit_empty: column.o,
            omit_zero: column.z,
        })
    }
}

/// A line of the file: a kind and its type, or a type and its fields.
#[derive(Deserialize)]
struct Line<'a> {
    kind: Option<&'a str>,
    r#type: &'a str,
    #[serde(borrow)]
    fields: Option<Vec<Column<'a>>>,
}

/// A field of a line.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Column<'a> {
    /// Its number in protobuf.
    n: Option<u32>,
    /// Its name in JSON.
    j: Option<&'a str>,
    /// Its type.
    t: &'a str,
    /// Whether it is repeated.
    r: bool,
    /// Whether it is a map.
    m: bool,
    /// Whether it is a pointer in Go.
    p: bool,
    /// `omitempty`
    o: bool,
    /// `omitzero`
    z: bool,
    /// Whether it is inlined.
    r#in: bool,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const LINES: &str = include_str!("../../../tests/vectors/objects/schema.jsonl");

    #[test]
    fn the_embedded_table_is_that_of_the_vectors() {
        let mut unpacked = String::new();
        flate2::read::GzDecoder::new(PACKED).read_to_string(&mut unpacked).unwrap();
        assert!(unpacked == LINES, "gzip -9nc tests/vectors/objects/schema.jsonl > src/object/schema/kinds.jsonl.gz");
        let table = Table::embedded();
        assert_eq!((table.kinds.len(), table.messages.len()), (164, 991));
    }

    #[test]
    fn fields_are_found_by_their_numbers() {
        let table = Table::embedded();
        let secret = table.kind("v1", "Secret").unwrap();
        let names: Vec<&str> = secret.fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["data", "immutable", "metadata", "stringData", "type"]);
        let slots: Vec<_> = (0..7).map(|number| secret.slot(number)).collect();
        assert_eq!(slots, [None, Some(2), Some(0), Some(4), Some(3), Some(1), None]);
        assert_eq!(secret.number(4), Some(3));
        let data = &secret.fields[0];
        assert_eq!((data.of, data.shape, data.omit_empty), (Type::Bytes, Shape::Map, true));
        assert!(table.kind("v1", "secret").is_none() && table.kind("v2", "Secret").is_none());
    }

    #[test]
    fn types_that_print_by_a_rule_of_their_own_are_known() {
        let lines: Vec<Line<'_>> = LINES.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let types = lines.iter().filter(|line| line.kind.is_none());
        let mut found: Vec<String> = Vec::new();
        for (line, message) in types.zip(&Table::embedded().messages) {
            if message.rule != Rule::Fields {
                found.push(format!("{} {:?}", line.r#type, message.rule));
            }
        }
        found.sort();
        assert_eq!(
            found,
            [
                "apiextensions/v1.JSON Raw",
                "apiextensions/v1.JSONSchemaPropsOrArray Either",
                "apiextensions/v1.JSONSchemaPropsOrBool Either",
                "apiextensions/v1.JSONSchemaPropsOrStringArray Either",
                "apiextensions/v1beta1.JSON Raw",
                "apiextensions/v1beta1.JSONSchemaPropsOrArray Either",
                "apiextensions/v1beta1.JSONSchemaPropsOrBool Either",
                "apiextensions/v1beta1.JSONSchemaPropsOrStringArray Either",
                "authentication/v1.ExtraValue Items",
                "authentication/v1beta1.ExtraValue Items",
                "authorization/v1.ExtraValue Items",
                "authorization/v1beta1.ExtraValue Items",
                "certificates/v1.ExtraValue Items",
                "certificates/v1beta1.ExtraValue Items",
                "meta/v1.FieldsV1 Raw",
                "meta/v1.MicroTime MicroTime",
                "meta/v1.Time Time",
                "resource.Quantity Quantity",
                "runtime.RawExtension Raw",
                "util/intstr.IntOrString IntOrString",
            ]
        );
    }

    /// What is inlined shares one JSON object with its parent, and so does what is inlined there.
    #[test]
    fn no_name_occurs_twice_in_an_object() {
        fn names<'a>(table: &'a Table, message: &'a Message, into: &mut Vec<&'a str>) {
            for field in &message.fields {
                match (field.shape, field.of) {
                    (Shape::Inline, Type::Message(inlined)) => names(table, table.message(inlined).unwrap(), into),
                    _ => into.push(&field.name),
                }
            }
        }
        let table = Table::embedded();
        for message in table.messages.iter().filter(|message| message.rule == Rule::Fields) {
            let mut found = Vec::new();
            names(table, message, &mut found);
            let count = found.len();
            assert_eq!(found.iter().collect::<HashSet<_>>().len(), count, "{found:?}");
            assert!(!found.contains(&""), "{found:?}");
        }
    }
}
