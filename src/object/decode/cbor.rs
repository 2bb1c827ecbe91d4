//! CBOR to the tree that it stands for in JSON, as `apimachinery/pkg/runtime/serializer/cbor` reads it into
//! unstructured objects.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use super::super::CBOR_MAGIC;
use super::super::cbor::{Head, MAX_DEPTH, Reader, utf8};
use super::super::value::Key;
use super::{Error, Format, Map, Value, text};

/// Reads a value that ends at `end`, its tag included.
pub(super) fn decode(bytes: &[u8], end: usize, unknown: &mut bool) -> Result<Value, Error> {
    let malformed = |offset| Error::Malformed { format: Format::Cbor, offset };
    let rest = bytes.strip_prefix(CBOR_MAGIC).ok_or(malformed(end.saturating_sub(bytes.len())))?;
    let mut decoder = Decoder { reader: Reader { len: end, rest }, unknown };
    let value = decoder.item(0, Encoding::Text)?;
    if decoder.reader.rest.is_empty() { Ok(value) } else { Err(malformed(decoder.reader.offset())) }
}

struct Decoder<'a, 'b> {
    reader: Reader<'a>,
    unknown: &'b mut bool,
}

/// What byte strings become in JSON: section 3.4.5.2 of RFC 8949.
#[derive(Clone, Copy)]
enum Encoding {
    Text,
    Base64Url,
    Base64,
    Base16,
}

impl Decoder<'_, '_> {
    /// The next item, in so many containers and tags.
    fn item(&mut self, depth: usize, encoding: Encoding) -> Result<Value, Error> {
        let offset = self.reader.offset();
        let malformed = Error::Malformed { format: Format::Cbor, offset };
        let within = || match depth < MAX_DEPTH {
            true => Ok(depth.saturating_add(1)),
            false => Err(Error::TooDeep { format: Format::Cbor, offset }),
        };
        Ok(match self.reader.head()? {
            Head::Null => Value::Null,
            Head::Bool(value) => Value::Bool(value),
            Head::Unsigned(number) => Value::from(number),
            // Below the least `int64`, which upstream refuses too.
            Head::Negative(number) => Value::Int(i64::try_from(number).map_err(|_| malformed)?.wrapping_neg() - 1),
            Head::Float(number) if number.is_finite() => Value::number(number),
            Head::String(charset, len) => {
                let bytes = self.reader.whole_string(charset, len)?;
                self.string(&bytes, encoding)
            }
            Head::Array(items) => Value::Array(self.array(items, within()?, encoding)?),
            Head::Map(pairs) => Value::Object(self.map(pairs, within()?, encoding)?),
            Head::Tag(tag) => self.item(
                within()?,
                match tag {
                    21 => Encoding::Base64Url,
                    22 => Encoding::Base64,
                    23 => Encoding::Base16,
                    _ => encoding,
                },
            )?,
            Head::Float(_) | Head::Simple | Head::Break => return Err(malformed),
        })
    }

    fn string(&mut self, bytes: &[u8], encoding: Encoding) -> Value {
        match encoding {
            Encoding::Text => text(bytes, self.unknown),
            Encoding::Base64Url => Value::from(URL_SAFE_NO_PAD.encode(bytes)),
            Encoding::Base64 => Value::from(STANDARD.encode(bytes)),
            Encoding::Base16 => Value::from(hex::encode(bytes)),
        }
    }

    fn array(&mut self, items: Option<u64>, depth: usize, encoding: Encoding) -> Result<Vec<Value>, Error> {
        let mut array = Vec::new();
        let mut left = items;
        while left != Some(0) && !(items.is_none() && self.reader.at_break()) {
            array.push(self.item(depth, encoding)?);
            left = left.map(|left| left.saturating_sub(1));
        }
        Ok(array)
    }

    fn map(&mut self, pairs: Option<u64>, depth: usize, encoding: Encoding) -> Result<Map, Error> {
        let mut entries = Vec::new();
        let mut left = pairs;
        while left != Some(0) && !(pairs.is_none() && self.reader.at_break()) {
            let offset = self.reader.offset();
            let Head::String(charset, len) = self.reader.head()? else {
                return Err(Error::Malformed { format: Format::Cbor, offset });
            };
            let key = Key::from(utf8(&self.reader.whole_string(charset, len)?, offset)?);
            entries.push((key, self.item(depth, encoding)?));
            left = left.map(|left| left.saturating_sub(1));
        }
        Ok(Map::from_entries(entries))
    }
}
