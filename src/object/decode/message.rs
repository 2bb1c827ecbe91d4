//! Protobuf by the table of kinds.
//!
//! A message is read in one pass into its fields, which are then taken in the order of JSON. If a message occurs more
//! than once where there is one, then it is the sum of all: the fields of all are read as if they stood together.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::super::protobuf::{Envelope, Field, Fields};
use super::super::schema::{self, Message, Rule, Shape, Table, Type};
use super::super::value::Key;
use super::{ENVELOPE, Error, Format, MAX_DEPTH, Map, UNKNOWN_FIELDS, VALUE, Value, dump, json, text};
use crate::protobuf;

/// Decodes a value, its magic included.
pub(super) fn decode(format: Format, plaintext: &[u8], unknown: &mut bool) -> Result<Value, Error> {
    // An API server writes all that is printed of a struct; only what was added to Kubernetes later is missing, and
    // nil.
    let absent_left = plaintext.len().saturating_add(4096);
    let mut decoder = Decoder { format, table: Table::embedded(), absent_left, unknown };
    decoder.envelope(plaintext.len(), plaintext, 0)
}

pub(super) struct Decoder<'b> {
    pub(super) format: Format,
    table: &'static Table,
    /// How many values may still be printed that are not there. Without a limit, two bytes could stand for a thousand.
    absent_left: usize,
    pub(super) unknown: &'b mut bool,
}

impl Decoder<'_> {
    /// An object in its envelope, which ends at `end`.
    pub(super) fn envelope(&mut self, end: usize, bytes: &[u8], depth: usize) -> Result<Value, Error> {
        let format = self.format;
        let Envelope { api_version, kind, raw, object, mut rest } = Envelope::read(format, end, bytes)?;
        let kind = kind.filter(|kind| !kind.is_empty()).ok_or(Error::MissingKind { format })?;
        let api_version =
            api_version.filter(|version| !version.is_empty()).ok_or(Error::MissingApiVersion { format })?;

        let is_json =
            |field: &Field<'_>| field.number == 4 && field.value == protobuf::Field::Bytes(b"application/json");
        let mut entries = if rest.iter().any(is_json) {
            rest.retain(|field| !is_json(field));
            match json::decode(format, raw.bytes()?, raw.end, depth)? {
                Value::Object(map) => map.into_entries(),
                _ => return Err(Error::Malformed { format, offset: raw.end }),
            }
        } else if let Some(message) = self.table.kind(&api_version, &kind) {
            self.fields(message, &[object], depth)?
        } else {
            self.unknown_kind(object, depth)?
        };
        entries.push((Key::Field("apiVersion"), Value::from(&*api_version)));
        entries.push((Key::Field("kind"), Value::from(&*kind)));
        if !rest.is_empty() {
            entries.push((Key::Field(ENVELOPE), self.dump(rest, depth.saturating_add(1))));
        }
        Ok(Value::Object(Map::from_entries(entries)))
    }

    /// The fields by their numbers, except for the metadata, which all kinds have.
    fn unknown_kind(&mut self, mut object: Fields<'_>, depth: usize) -> Result<Vec<(Key, Value)>, Error> {
        let (mut metadata, mut rest) = (Vec::new(), Vec::new());
        while let Some(field) = object.next()? {
            if field.number == 1 { metadata.push(field) } else { rest.push(field) }
        }
        *self.unknown = true;
        let mut entries = Vec::new();
        match self.metadata(&metadata, depth.saturating_add(1)) {
            Some(decoded) => entries.push((Key::Field("metadata"), decoded)),
            None => rest.append(&mut metadata),
        }
        entries.extend(dump::fields(rest.iter().map(|field| (field.number, field.value)), depth.saturating_add(1)));
        Ok(entries)
    }

    fn metadata(&mut self, found: &[Field<'_>], depth: usize) -> Option<Value> {
        let parts: Vec<_> = found.iter().map(Field::message).collect::<Result<_, _>>().ok()?;
        let object_meta = self.table.object_meta().filter(|_| !parts.is_empty())?;
        self.message(object_meta, &parts, depth).ok()
    }

    /// A message in as many parts as it has occurrences, in so many containers.
    fn message(&mut self, message: &'static Message, parts: &[Fields<'_>], depth: usize) -> Result<Value, Error> {
        match message.rule {
            Rule::Fields => self.fields(message, parts, depth).map(|entries| Value::Object(Map::from_entries(entries))),
            Rule::Items => self.items(message, parts, depth),
            Rule::Either => self.either(message, parts, depth),
            Rule::Time => self.time(parts, depth, false),
            Rule::MicroTime => self.time(parts, depth, true),
            Rule::Quantity => self.quantity(parts, depth),
            Rule::IntOrString => self.int_or_string(parts, depth),
            Rule::Raw => self.raw(parts, depth),
        }
    }

    fn message_at(&mut self, index: usize, parts: &[Fields<'_>], depth: usize) -> Result<Value, Error> {
        match self.table.message(index) {
            Some(message) => self.message(message, parts, depth),
            None => Ok(Value::Null),
        }
    }

    /// What a message's JSON object has in it.
    fn fields(
        &mut self,
        message: &'static Message,
        parts: &[Fields<'_>],
        depth: usize,
    ) -> Result<Vec<(Key, Value)>, Error> {
        let within = self.within(parts, depth)?;
        let (found, mut unknown) = sort(message, parts)?;
        let mut entries = Vec::with_capacity(found.len().min(message.fields.len()));
        let mut inlined_unknown = Vec::new();
        for (slot, field) in message.fields.iter().enumerate() {
            let found = run(&found, slot);
            match (field.shape, field.of) {
                (Shape::Inline, Type::Message(index)) => {
                    let parts: Vec<_> = found.iter().map(|(_, field)| field.message()).collect::<Result<_, _>>()?;
                    let inlined = self.table.message(index).map(|message| self.fields(message, &parts, depth));
                    for (key, value) in inlined.transpose()?.unwrap_or_default() {
                        match key {
                            Key::Field(UNKNOWN_FIELDS) => {
                                inlined_unknown.extend(message.number(slot).map(|number| (number, value)));
                            }
                            _ => entries.push((key, value)),
                        }
                    }
                }
                _ => {
                    if let Some(value) = self.field(field, found, parts, within)? {
                        entries.push((Key::Field(&field.name), value));
                    }
                }
            }
        }
        if !unknown.is_empty() || !inlined_unknown.is_empty() {
            *self.unknown = true;
            let mut dumped = dump::fields(unknown.drain(..).map(|field| (field.number, field.value)), within);
            dumped.extend(inlined_unknown.into_iter().map(|(number, value)| (Key::from(number.to_string()), value)));
            entries.push((Key::Field(UNKNOWN_FIELDS), Value::Object(Map::from_entries(dumped))));
        }
        Ok(entries)
    }

    /// What JSON has for a field that was found so often, if anything.
    fn field(
        &mut self,
        field: &'static schema::Field,
        found: &[(usize, Field<'_>)],
        parent: &[Fields<'_>],
        depth: usize,
    ) -> Result<Option<Value>, Error> {
        let last = found.last().map(|(_, field)| field);
        let printed = match (field.shape, field.of, last) {
            (Shape::Repeated, _, _) => {
                let within = self.within(parent, depth)?;
                let mut items = Vec::with_capacity(found.len());
                for (_, item) in found {
                    self.repeated(field.of, item, within, &mut items)?;
                }
                Some(Value::Array(items)).filter(|_| !found.is_empty())
            }
            (Shape::Map, _, Some(_)) => Some(self.map(field.of, found, depth)?),
            (Shape::Map | Shape::Pointer, _, None) | (Shape::One, Type::Bytes, None) => None,
            (_, Type::Message(index), _) => {
                let value = match found {
                    [(_, only)] => self.message_at(index, &[only.message()?], depth)?,
                    _ => {
                        let parts: Vec<_> = found.iter().map(|(_, field)| field.message()).collect::<Result<_, _>>()?;
                        self.message_at(index, &parts, depth)?
                    }
                };
                if field.omit_zero && value == Value::Null {
                    return Ok(None);
                }
                Some(value)
            }
            (shape, of, Some(last)) => {
                let value = self.scalar(of, last)?;
                if field.omit_empty && shape == Shape::One && is_zero(&value) {
                    return Ok(None);
                }
                Some(value)
            }
            (_, _, None) if field.omit_empty => return Ok(None),
            (_, Type::String, None) => Some(Value::from("")),
            (_, Type::Bool, None) => Some(Value::Bool(false)),
            (_, _, None) => Some(Value::Int(0)),
        };
        if printed.is_none() && field.omit_empty {
            return Ok(None);
        }
        if found.is_empty() {
            let offset = offset(parent);
            self.absent_left = self.absent_left.checked_sub(1).ok_or(Error::TooMuch { format: self.format, offset })?;
        }
        // What is nil in Go is null in JSON.
        Ok(Some(printed.unwrap_or(Value::Null)))
    }

    /// Adds an item of a list, or more if they are packed.
    fn repeated(&mut self, of: Type, item: &Field<'_>, depth: usize, items: &mut Vec<Value>) -> Result<(), Error> {
        if let (Type::Bool | Type::Int32 | Type::Int64, protobuf::Field::Bytes(mut packed)) = (of, item.value) {
            while !packed.is_empty() {
                let offset = item.end.saturating_sub(packed.len());
                let number = prost::encoding::decode_varint(&mut packed)
                    .map_err(|_| Error::Malformed { format: self.format, offset })?;
                items.push(self.scalar(of, &Field { value: protobuf::Field::Varint(number), ..*item })?);
            }
        } else {
            items.push(self.single(of, item, depth)?);
        }
        Ok(())
    }

    fn map(&mut self, of: Type, found: &[(usize, Field<'_>)], depth: usize) -> Result<Value, Error> {
        let mut entries = Vec::with_capacity(found.len());
        for (_, entry) in found {
            let mut fields = entry.message()?;
            let within = self.within(std::slice::from_ref(&fields), depth)?;
            let (mut key, mut value, mut unknown) = (None, None, Vec::new());
            while let Some(field) = fields.next()? {
                match field.number {
                    1 => key = Some(field.text()?),
                    2 => value = Some(field),
                    _ => unknown.push(field),
                }
            }
            let empty = Field { number: 2, value: protobuf::Field::Bytes(b""), ..*entry };
            let value = match (value, of) {
                (Some(value), _) => self.single(of, &value, within)?,
                (None, Type::Bool) => Value::Bool(false),
                (None, Type::Int32 | Type::Int64 | Type::Double) => Value::Int(0),
                (None, _) => self.single(of, &empty, within)?,
            };
            let key = key.map_or_else(|| Key::Field(""), |key| Key::from(&*key));
            entries.push((key, self.beside(value, unknown, within)));
        }
        Ok(Value::Object(Map::from_entries(entries)))
    }

    fn single(&mut self, of: Type, field: &Field<'_>, depth: usize) -> Result<Value, Error> {
        match of {
            Type::Message(index) => self.message_at(index, &[field.message()?], depth),
            _ => self.scalar(of, field),
        }
    }

    fn scalar(&mut self, of: Type, field: &Field<'_>) -> Result<Value, Error> {
        Ok(match (of, field.value) {
            (Type::String, protobuf::Field::Bytes(bytes)) => text(bytes, self.unknown),
            (Type::Bytes, protobuf::Field::Bytes(bytes)) => Value::from(STANDARD.encode(bytes)),
            (Type::Bool, protobuf::Field::Varint(number)) => Value::Bool(number != 0),
            (Type::Int32, protobuf::Field::Varint(number)) => Value::from(int32(number)),
            (Type::Int64, protobuf::Field::Varint(number)) => Value::Int(number.cast_signed()),
            (Type::Double, protobuf::Field::Fixed64(bytes)) => Value::number(f64::from_le_bytes(bytes)),
            _ => return Err(Error::Malformed { format: self.format, offset: field.end }),
        })
    }

    /// A message that is a list in JSON.
    fn items(&mut self, message: &'static Message, parts: &[Fields<'_>], depth: usize) -> Result<Value, Error> {
        let (found, unknown) = sort(message, parts)?;
        let Some(items) = message.fields.first() else { return Ok(Value::Null) };
        let value = self.field(items, &found, parts, depth)?.unwrap_or(Value::Null);
        Ok(self.beside(value, unknown, depth))
    }

    /// `JSONSchemaPropsOrArray` and its like: the second field if it is there, or else the first.
    fn either(&mut self, message: &'static Message, parts: &[Fields<'_>], depth: usize) -> Result<Value, Error> {
        let (found, mut unknown) = sort(message, parts)?;
        let [first, second] = message.fields.as_slice() else { return Ok(Value::Null) };
        let (of_first, of_second) = (run(&found, 0), run(&found, 1));
        let value = if of_second.is_empty() {
            self.field(first, of_first, parts, depth)?.unwrap_or(Value::Null)
        } else {
            // Kubernetes does not print the other. Beside a schema, the truth value is always there.
            if first.of != Type::Bool {
                unknown.extend(of_first.iter().map(|(_, field)| *field));
            }
            self.field(second, of_second, parts, depth)?.unwrap_or(Value::Null)
        };
        Ok(self.beside(value, unknown, depth))
    }

    /// A value that is no object of named fields, and fields of the same message that the table does not have.
    pub(super) fn beside(&mut self, value: Value, unknown: Vec<Field<'_>>, depth: usize) -> Value {
        if unknown.is_empty() {
            return value;
        }
        let dumped = self.dump(unknown, depth.saturating_add(1));
        Value::Object(Map::from_entries(vec![(Key::Field(VALUE), value), (Key::Field(UNKNOWN_FIELDS), dumped)]))
    }

    fn dump(&mut self, fields: Vec<Field<'_>>, depth: usize) -> Value {
        *self.unknown = true;
        let fields = fields.into_iter().map(|field| (field.number, field.value));
        Value::Object(Map::from_entries(dump::fields(fields, depth)))
    }

    /// One container deeper.
    fn within(&self, parts: &[Fields<'_>], depth: usize) -> Result<usize, Error> {
        if depth >= MAX_DEPTH {
            return Err(Error::TooDeep { format: self.format, offset: offset(parts) });
        }
        Ok(depth.saturating_add(1))
    }
}

/// The fields of a message with their positions in the table, in that order, and those that it does not have.
type Sorted<'a> = (Vec<(usize, Field<'a>)>, Vec<Field<'a>>);

fn sort<'a>(message: &Message, parts: &[Fields<'a>]) -> Result<Sorted<'a>, Error> {
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    for part in parts {
        let mut fields = part.clone();
        while let Some(field) = fields.next()? {
            match message.slot(field.number) {
                Some(slot) => found.push((slot, field)),
                None => unknown.push(field),
            }
        }
    }
    found.sort_by_key(|(slot, _)| *slot);
    Ok((found, unknown))
}

/// Those of sorted fields that are at one position of the table.
fn run<'a, 'b>(sorted: &'b [(usize, Field<'a>)], slot: usize) -> &'b [(usize, Field<'a>)] {
    let begin = sorted.partition_point(|(this, _)| *this < slot);
    let from = sorted.get(begin..).unwrap_or_default();
    from.get(..from.partition_point(|(this, _)| *this == slot)).unwrap_or_default()
}

/// Where a message begins.
fn offset(parts: &[Fields<'_>]) -> usize {
    parts.first().map_or(0, |part| part.reader.offset())
}

/// Go takes the low bits of what does not fit.
pub(super) fn int32(number: u64) -> i64 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or_default().cast_signed().into()
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(value) => !value,
        Value::Int(value) => *value == 0,
        // Minus zero; zero itself is an integer.
        Value::Float(value) => *value == 0.0,
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}
