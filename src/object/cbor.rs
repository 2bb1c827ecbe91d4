//! An object as CBOR (RFC 8949): the self-described tag, then one map.
//!
//! Kubernetes writes its strings, keys included, as byte strings (`apimachinery/pkg/runtime/serializer/cbor`), and
//! reads text strings and indefinite lengths too, so both are read here.

use std::borrow::Cow;
use std::str;

use super::{CBOR_MAGIC, Error, Format, Found, Metadata};

/// How many containers and tags may be open in one field of the object: upstream's `MaxNestedLevels`.
pub(super) const MAX_DEPTH: usize = 64;

/// Reads a value, its tag included.
pub(super) fn read(plaintext: &[u8]) -> Result<Found<'_>, Error> {
    let malformed = |offset| Error::Malformed { format: Format::Cbor, offset };
    let rest = plaintext.strip_prefix(CBOR_MAGIC).ok_or(malformed(0))?;
    let mut reader = Reader { len: plaintext.len(), rest };
    let mut found = Found::default();
    match reader.head()? {
        Head::Map(pairs) => reader.map(pairs, |reader, key| {
            match key {
                b"apiVersion" => found.api_version = reader.text()?,
                b"kind" => found.kind = reader.text()?,
                b"metadata" => found.metadata = reader.metadata()?,
                _ => reader.skip()?,
            }
            Ok(())
        })?,
        _ => return Err(malformed(CBOR_MAGIC.len())),
    }
    if reader.rest.is_empty() { Ok(found) } else { Err(malformed(reader.offset())) }
}

/// The first byte of a data item, its argument, and for simple values and floats everything.
pub(super) enum Head {
    Unsigned(u64),
    /// One less than the negative of it.
    Negative(u64),
    Bool(bool),
    Null,
    /// Of no meaning in JSON.
    Simple,
    Float(f64),
    /// A byte or text string; without a length, its chunks follow.
    String(Charset, Option<u64>),
    /// Its number of items, or as many as there are up to a break.
    Array(Option<u64>),
    /// Its number of pairs, or as many as there are up to a break.
    Map(Option<u64>),
    Tag(u64),
    Break,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Charset {
    Bytes,
    Utf8,
}

/// A container whose end is still to come.
enum Open {
    /// So many items, at least one.
    Counted(u64),
    Array,
    Map {
        /// Whether a key is waiting for its value.
        odd: bool,
    },
}

pub(super) struct Reader<'a> {
    /// Where the bytes end, counted from where offsets are counted from.
    pub(super) len: usize,
    pub(super) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn offset(&self) -> usize {
        self.len.saturating_sub(self.rest.len())
    }

    /// Passes over a break, if one is next.
    pub(super) fn at_break(&mut self) -> bool {
        match self.rest.split_first() {
            Some((0xff, rest)) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], Error> {
        let truncated = Error::Truncated { format: Format::Cbor, offset: self.offset() };
        let len = usize::try_from(len).map_err(|_| truncated)?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn uint(&mut self, len: u64) -> Result<u64, Error> {
        Ok(self.take(len)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    pub(super) fn head(&mut self) -> Result<Head, Error> {
        let malformed = Error::Malformed { format: Format::Cbor, offset: self.offset() };
        let first = self.uint(1)?;
        let info = first & 0x1f;
        let argument = match info {
            0..=23 => Some(info),
            24 => Some(self.uint(1)?),
            25 => Some(self.uint(2)?),
            26 => Some(self.uint(4)?),
            27 => Some(self.uint(8)?),
            31 => None,
            _ => return Err(malformed),
        };
        Ok(match (first >> 5, argument) {
            (0, Some(number)) => Head::Unsigned(number),
            (1, Some(number)) => Head::Negative(number),
            (2, len) => Head::String(Charset::Bytes, len),
            (3, len) => Head::String(Charset::Utf8, len),
            (4, items) => Head::Array(items),
            (5, pairs) => Head::Map(pairs),
            (6, Some(tag)) => Head::Tag(tag),
            (7, None) => Head::Break,
            (7, Some(bits)) if info == 25 => Head::Float(half(bits)),
            (7, Some(bits)) if info == 26 => Head::Float(single(bits)),
            (7, Some(bits)) if info == 27 => Head::Float(f64::from_bits(bits)),
            // Two bytes for what fits into one: not well-formed, by section 3.3.
            (7, Some(0..=31)) if info == 24 => return Err(malformed),
            (7, Some(simple @ (20 | 21))) => Head::Bool(simple == 21),
            (7, Some(22)) => Head::Null,
            (7, Some(_)) => Head::Simple,
            _ => return Err(malformed),
        })
    }

    /// Hands on the content of a string whose head has been read, in its chunks.
    fn string(&mut self, charset: Charset, len: Option<u64>, mut chunk: impl FnMut(&'a [u8])) -> Result<(), Error> {
        let mut content = |reader: &mut Self, len| {
            let offset = reader.offset();
            let bytes = reader.take(len)?;
            if charset == Charset::Utf8 {
                utf8(bytes, offset)?;
            }
            chunk(bytes);
            Ok(())
        };
        if let Some(len) = len {
            return content(self, len);
        }
        loop {
            let offset = self.offset();
            match self.head()? {
                Head::String(of, Some(len)) if of == charset => content(self, len)?,
                Head::Break => return Ok(()),
                _ => return Err(Error::Malformed { format: Format::Cbor, offset }),
            }
        }
    }

    /// The whole content of a string whose head has been read; copied if it comes in chunks.
    pub(super) fn whole_string(&mut self, charset: Charset, len: Option<u64>) -> Result<Cow<'a, [u8]>, Error> {
        let mut whole = Cow::Borrowed(b"".as_slice());
        self.string(charset, len, |chunk| {
            if whole.is_empty() {
                whole = Cow::Borrowed(chunk);
            } else {
                whole.to_mut().extend_from_slice(chunk);
            }
        })?;
        Ok(whole)
    }

    /// A string, or null, which is none.
    fn text(&mut self) -> Result<Option<Cow<'a, str>>, Error> {
        let offset = self.offset();
        let bytes = match self.head()? {
            Head::Null => return Ok(None),
            Head::String(charset, len) => self.whole_string(charset, len)?,
            _ => return Err(Error::Malformed { format: Format::Cbor, offset }),
        };
        Ok(Some(match bytes {
            Cow::Borrowed(bytes) => Cow::Borrowed(utf8(bytes, offset)?),
            Cow::Owned(bytes) => Cow::Owned(utf8(&bytes, offset)?.to_owned()),
        }))
    }

    fn metadata(&mut self) -> Result<Metadata<'a>, Error> {
        let offset = self.offset();
        let mut metadata = Metadata::default();
        match self.head()? {
            Head::Null => {}
            Head::Map(pairs) => self.map(pairs, |reader, key| {
                match key {
                    b"namespace" => metadata.namespace = reader.text()?,
                    b"name" => metadata.name = reader.text()?,
                    b"uid" => metadata.uid = reader.text()?,
                    _ => reader.skip()?,
                }
                Ok(())
            })?,
            _ => return Err(Error::Malformed { format: Format::Cbor, offset }),
        }
        Ok(metadata)
    }

    /// Reads the pairs of a map whose head has been read; `value` gets each key and reads the value.
    pub(super) fn map(
        &mut self,
        pairs: Option<u64>,
        mut value: impl FnMut(&mut Self, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut left = pairs;
        while left != Some(0) {
            let offset = self.offset();
            match self.head()? {
                Head::String(charset, len) => {
                    let key = self.whole_string(charset, len)?;
                    value(self, &key)?;
                }
                Head::Break if pairs.is_none() => return Ok(()),
                _ => return Err(Error::Malformed { format: Format::Cbor, offset }),
            }
            left = left.map(|left| left.saturating_sub(1));
        }
        Ok(())
    }

    /// Reads a data item with all that is in it and keeps nothing.
    fn skip(&mut self) -> Result<(), Error> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            let offset = self.offset();
            match self.head()? {
                Head::Unsigned(_) | Head::Negative(_) | Head::Bool(_) | Head::Null | Head::Simple | Head::Float(_) => {}
                Head::Array(Some(0)) | Head::Map(Some(0)) => {}
                Head::String(charset, len) => self.string(charset, len, |_| {})?,
                Head::Break => match open.pop() {
                    Some(Open::Array | Open::Map { odd: false }) => {}
                    _ => return Err(Error::Malformed { format: Format::Cbor, offset }),
                },
                container => {
                    if open.len() >= MAX_DEPTH {
                        return Err(Error::TooDeep { format: Format::Cbor, offset });
                    }
                    open.push(match container {
                        Head::Array(Some(items)) => Open::Counted(items),
                        // However many are announced, the data end sooner.
                        Head::Map(Some(pairs)) => Open::Counted(pairs.saturating_mul(2)),
                        Head::Map(None) => Open::Map { odd: false },
                        Head::Tag(_) => Open::Counted(1),
                        _ => Open::Array,
                    });
                    continue;
                }
            }
            // An item is complete, and with it perhaps the containers that it is the last one of.
            loop {
                match open.last_mut() {
                    None => return Ok(()),
                    Some(Open::Counted(left)) => {
                        *left = left.saturating_sub(1);
                        if *left > 0 {
                            break;
                        }
                        open.pop();
                    }
                    Some(Open::Array) => break,
                    Some(Open::Map { odd }) => {
                        *odd = !*odd;
                        break;
                    }
                }
            }
        }
    }
}

/// A number of two bytes: appendix D of RFC 8949.
fn half(bits: u64) -> f64 {
    let (exponent, mantissa) = (bits >> 10 & 0x1f, bits & 0x3ff);
    let magnitude = match exponent {
        0 => f64::from(u32::try_from(mantissa).unwrap_or_default()) * 2_f64.powi(-24),
        31 if mantissa == 0 => f64::INFINITY,
        31 => f64::NAN,
        _ => f64::from_bits((exponent + 1008) << 52 | mantissa << 42),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

/// A number of four bytes.
fn single(bits: u64) -> f64 {
    f64::from(f32::from_bits(u32::try_from(bits).unwrap_or_default()))
}

pub(super) fn utf8(bytes: &[u8], offset: usize) -> Result<&str, Error> {
    str::from_utf8(bytes).map_err(|_| Error::Malformed { format: Format::Cbor, offset })
}

#[cfg(test)]
mod tests {
    use super::super::identify;
    use super::*;

    /// A byte string of less than 24 bytes, as Kubernetes writes strings.
    fn bytes(text: &str) -> Vec<u8> {
        [&[0x40 | u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
    }

    /// `{apiVersion: v1, kind: K, <key>: <value>}`.
    fn object_with(key: &str, value: &[u8]) -> Vec<u8> {
        let pairs = [bytes("apiVersion"), bytes("v1"), bytes("kind"), bytes("K"), bytes(key)].concat();
        [CBOR_MAGIC, b"\xa3", &pairs, value].concat()
    }

    /// Where the value of [`object_with`] begins, for a key of four bytes.
    const VALUE: usize = 3 + 1 + 11 + 3 + 5 + 2 + 5;

    fn show(plaintext: &[u8]) -> Result<String, Error> {
        let identity = identify(plaintext)?;
        let part = |text: Option<Cow<'_, str>>| text.map_or("-".to_owned(), Cow::into_owned);
        let (namespace, name, uid) = (part(identity.namespace), part(identity.name), part(identity.uid));
        Ok(format!("{} {} {namespace} {name} {uid}", identity.api_version, identity.kind))
    }

    fn metadata(value: &[u8]) -> Result<String, Error> {
        show(&object_with("metadata", value))
    }

    #[test]
    fn strings_are_byte_strings_or_text_in_one_piece_or_more() {
        let ours =
            [b"\xa3".to_vec(), bytes("name"), bytes("n"), bytes("namespace"), bytes("a"), bytes("uid"), bytes("u")];
        for value in [
            ours.concat().as_slice(),
            b"\xa3\x64name\x61n\x69namespace\x61a\x63uid\x61u",
            b"\xbf\x44name\x41n\x58\x09namespace\x78\x01a\x63uid\x59\x00\x01u\xff",
            b"\xbf\x5f\x42na\x40\x42me\xff\x41n\x7f\x69namespace\xff\x7f\x60\x61a\xff\x63uid\x41u\xff",
        ] {
            assert_eq!(metadata(value).as_deref(), Ok("v1 K a n u"), "{}", value.escape_ascii());
        }
        for value in [b"\xf6".as_slice(), b"\xa0", b"\xbf\xff", b"\xa1\x44name\xf6", b"\xa1\x44name\x5f\xff"] {
            assert_eq!(metadata(value).as_deref(), Ok("v1 K - - -"), "{}", value.escape_ascii());
        }
    }

    #[test]
    fn other_values_are_passed_over() {
        for value in [
            b"\x00".as_slice(),
            b"\x3b\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\xf4",
            b"\xf8\x20",
            b"\xf9\x3c\x00",
            b"\xfa\x00\x00\x00\x00",
            b"\xfb\x00\x00\x00\x00\x00\x00\x00\x00",
            b"\x80",
            b"\xa0",
            b"\x9f\xff",
            b"\xbf\xff",
            b"\x82\x81\x01\xa1\x01\x9f\x01\x02\xff",
            b"\xbf\x01\x02\x03\xbf\x04\x05\xff\xff",
            b"\xc1\x1a\x00\x00\x00\x00",
            b"\x5f\x41a\x41b\xff",
            b"\x58\x03abc",
        ] {
            assert_eq!(show(&object_with("spec", value)).as_deref(), Ok("v1 K - - -"), "{}", value.escape_ascii());
        }
    }

    #[test]
    fn what_is_not_well_formed_is_refused_where_it_is() {
        let malformed = |at| Error::Malformed { format: Format::Cbor, offset: VALUE + at };
        let truncated = |at| Error::Truncated { format: Format::Cbor, offset: VALUE + at };
        for (value, error) in [
            (b"".as_slice(), truncated(0)),
            (b"\x18", truncated(1)),
            (b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff", truncated(9)),
            (b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff\x01", truncated(10)),
            (b"\xbb\xff\xff\xff\xff\xff\xff\xff\xff\x01", truncated(10)),
            (b"\xf6\x00", malformed(1)),
            (b"\x1c", malformed(0)),
            (b"\x1f", malformed(0)),
            (b"\xdf", malformed(0)),
            (b"\xf8\x1f", malformed(0)),
            (b"\xff", malformed(0)),
            (b"\x81\xff", malformed(1)),
            (b"\xc1\xff", malformed(1)),
            (b"\xbf\x01\xff", malformed(2)),
            (b"\x61\xff", malformed(1)),
            (b"\x5f\x61a\xff", malformed(1)),
            (b"\x5f\x5f\xff\xff", malformed(1)),
        ] {
            assert_eq!(show(&object_with("spec", value)), Err(error), "{}", value.escape_ascii());
        }
    }

    #[test]
    fn names_have_to_be_strings() {
        for value in
            [b"\x01".as_slice(), b"\x80", b"\xa1\x01\x02", b"\xa1\x44name\x01", b"\xa1\x44name\x41\xff", b"\xa1\xff"]
        {
            assert!(matches!(metadata(value), Err(Error::Malformed { .. })), "{}", value.escape_ascii());
        }
    }

    #[test]
    fn the_root_is_a_map_with_a_kind_and_an_api_version() {
        let root = |value: &[u8]| show(&[CBOR_MAGIC, value].concat());
        let format = Format::Cbor;
        assert_eq!(root(b"\x80"), Err(Error::Malformed { format, offset: 3 }));
        assert_eq!(root(b""), Err(Error::Truncated { format, offset: 3 }));
        assert_eq!(root(b"\xa0"), Err(Error::MissingKind { format }));
        assert_eq!(root(b"\xa1\x44kind\x41K"), Err(Error::MissingApiVersion { format }));
    }

    #[test]
    fn depth_is_limited() {
        let nested = |depth| [b"\x81".repeat(depth), b"\x01".to_vec()].concat();
        assert_eq!(show(&object_with("spec", &nested(MAX_DEPTH))).as_deref(), Ok("v1 K - - -"));
        let too_deep = Error::TooDeep { format: Format::Cbor, offset: VALUE + MAX_DEPTH };
        assert_eq!(show(&object_with("spec", &nested(MAX_DEPTH + 1))), Err(too_deep));
        assert_eq!(show(&object_with("spec", &b"\xc1".repeat(1 << 20))), Err(too_deep));
    }

    #[test]
    fn no_beginning_of_an_object_is_one() {
        let whole = object_with("metadata", b"\xbf\x44name\x41n\x41x\x82\x01\xf9\x00\x00\xff");
        assert_eq!(show(&whole).as_deref(), Ok("v1 K - n -"));
        for len in CBOR_MAGIC.len()..whole.len() {
            assert!(matches!(show(&whole[..len]), Err(Error::Truncated { .. })), "{len}");
        }
    }
}
