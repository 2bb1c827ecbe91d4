//! A header block, decoded and encoded again with another `:authority`. RFC 7541.

use std::fmt;

use loona_hpack::Decoder;
use loona_hpack::decoder::DecoderError;

/// What every request is said to be for.
const AUTHORITY: &[u8] = b"localhost";
/// The longest header block, encoded: twice what the HTTP/2 library accepts decoded.
pub(super) const MAX_BLOCK_BYTES: usize = 32 * 1024;
/// The most fields of a block. kube-apiserver sends about ten.
const MAX_FIELDS: usize = 256;
/// The size of the dynamic table that a client may use: the default of HTTP/2, which the server does not change.
const TABLE_BYTES: usize = 4096;

/// Why a header block is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderBlockError {
    /// It is no HPACK, or the dynamic table is not what it takes it for.
    #[error("the header block is not HPACK")]
    Hpack(#[source] DecoderErrorKind),
    /// It has too many fields, or is too long.
    #[error("the header block is too large")]
    TooLarge,
}

/// What HPACK decoding says.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error(transparent)]
pub struct DecoderErrorKind(DecoderError);

impl Eq for DecoderErrorKind {}

/// Decodes the blocks of one connection, in their order.
pub(super) struct HeaderBlocks {
    decoder: Decoder<'static>,
}

impl HeaderBlocks {
    pub(super) fn new() -> Self {
        let mut decoder = Decoder::new();
        decoder.set_max_allowed_table_size(TABLE_BYTES);
        Self { decoder }
    }

    /// The block with the one authority, if it is a request's: a block of trailers has none.
    pub(super) fn rewrite(&mut self, block: &[u8]) -> Result<Vec<u8>, HeaderBlockError> {
        // Before it is decoded: each field may cost the decoder some work, however short it is.
        if has_more_fields_than(MAX_FIELDS, block) {
            return Err(HeaderBlockError::TooLarge);
        }
        let mut fields = Vec::with_capacity(block.len() + 64);
        let (mut is_request, mut has_authority, mut is_too_large) = (false, false, false);
        let decoded = self.decoder.decode_with_cb(block, |name, value| {
            is_request |= *name == *b":method";
            let is_authority = *name == *b":authority";
            has_authority |= is_authority;
            // One that stands twice stays twice: that is for the library to refuse.
            let value: &[u8] = if is_authority { AUTHORITY } else { &value };
            is_too_large |= fields.len() + name.len() + value.len() > MAX_BLOCK_BYTES;
            if !is_too_large {
                put_literal(&name, value, &mut fields);
            }
        });
        decoded.map_err(|error| HeaderBlockError::Hpack(DecoderErrorKind(error)))?;
        if is_request && !has_authority {
            let mut first = Vec::with_capacity(fields.len() + 24);
            put_literal(b":authority", AUTHORITY, &mut first);
            first.append(&mut fields);
            fields = first;
        }
        if is_too_large || fields.len() > MAX_BLOCK_BYTES { Err(HeaderBlockError::TooLarge) } else { Ok(fields) }
    }
}

impl fmt::Debug for HeaderBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeaderBlocks")
    }
}

/// Whether a block has more fields than that. Of one that is not well-formed, only what comes before counts.
fn has_more_fields_than(max: usize, mut block: &[u8]) -> bool {
    for _ in 0..=max {
        if block.is_empty() {
            return false;
        }
        let Some(rest) = after_field(block) else { return false };
        block = rest;
    }
    true
}

/// What follows the first field, or the first change of the table's size. RFC 7541, section 6.
fn after_field(block: &[u8]) -> Option<&[u8]> {
    let first = *block.first()?;
    let (prefix_bits, is_literal) = match first {
        0x80.. => (7, false),
        0x40.. => (6, true),
        0x20.. => (5, false),
        _ => (4, true),
    };
    let (index, mut rest) = integer(prefix_bits, block)?;
    if is_literal {
        let strings = if index == 0 { 2 } else { 1 };
        for _ in 0..strings {
            let (len, string) = integer(7, rest)?;
            rest = string.get(len..)?;
        }
    }
    Some(rest)
}

/// An integer whose first byte has so many bits of it, and what follows. RFC 7541, section 5.1.
fn integer(prefix_bits: u32, bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (first, mut rest) = bytes.split_first()?;
    let max_in_prefix = (1_usize << prefix_bits) - 1;
    let mut value = usize::from(*first) & max_in_prefix;
    if value < max_in_prefix {
        return Some((value, rest));
    }
    for shift in [0, 7, 14, 21] {
        let (byte, after) = rest.split_first()?;
        rest = after;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
}

/// A literal field without indexing, with a literal name. RFC 7541, section 6.2.2.
fn put_literal(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.push(0);
    for string in [name, value] {
        put_length(string.len(), out);
        out.extend_from_slice(string);
    }
}

/// The length of a string that is not Huffman-coded.
fn put_length(len: usize, out: &mut Vec<u8>) {
    const MAX_IN_PREFIX: usize = 0x7f;
    let low_bits = |value: usize| u8::try_from(value & 0x7f).unwrap_or_default();
    if len < MAX_IN_PREFIX {
        out.push(low_bits(len));
        return;
    }
    out.push(low_bits(MAX_IN_PREFIX));
    let mut rest = len - MAX_IN_PREFIX;
    while rest >= 0x80 {
        out.push(low_bits(rest) | 0x80);
        rest >>= 7;
    }
    out.push(low_bits(rest));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(block: &[u8]) -> Vec<(String, String)> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let decoded = Decoder::new().decode(block).unwrap();
        decoded.into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    fn literal(name: &str, value: &str) -> Vec<u8> {
        let mut out = Vec::new();
        put_literal(name.as_bytes(), value.as_bytes(), &mut out);
        out
    }

    fn rewritten(block: &[u8]) -> Vec<(String, String)> {
        fields(&HeaderBlocks::new().rewrite(block).unwrap())
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn a_request_is_for_localhost() {
        for authority in ["/run/kms.sock", "%2Frun%2Fkms.sock", "", "localhost", "@kms"] {
            let block =
                [literal(":method", "POST"), literal(":authority", authority), literal("te", "trailers")].concat();
            let expected = [pair(":method", "POST"), pair(":authority", "localhost"), pair("te", "trailers")];
            assert_eq!(rewritten(&block), expected, "{authority}");
        }
    }

    #[test]
    fn a_request_without_an_authority_is_given_one() {
        let block = [literal(":method", "POST"), literal("te", "trailers")].concat();
        let expected = [pair(":authority", "localhost"), pair(":method", "POST"), pair("te", "trailers")];
        assert_eq!(rewritten(&block), expected);
    }

    #[test]
    fn an_authority_that_stands_twice_stays_twice() {
        let block = [literal(":method", "POST"), literal(":authority", "/a"), literal(":authority", "/b")].concat();
        let expected = [pair(":method", "POST"), pair(":authority", "localhost"), pair(":authority", "localhost")];
        assert_eq!(rewritten(&block), expected);
    }

    #[test]
    fn trailers_are_given_none() {
        assert_eq!(rewritten(&literal("grpc-status", "0")), [pair("grpc-status", "0")]);
    }

    #[test]
    fn the_dynamic_table_is_followed_and_not_used() {
        // RFC 7541, C.4.1 and C.4.2: Huffman-coded, the second refers to what the first put into the table.
        let first = hex::decode("828684418cf1e3c2e5f23a6ba0ab90f4ff").unwrap();
        let second = hex::decode("828684be5886a8eb10649cbf").unwrap();
        let mut blocks = HeaderBlocks::new();
        let request =
            [pair(":method", "GET"), pair(":scheme", "http"), pair(":path", "/"), pair(":authority", "localhost")];
        assert_eq!(fields(&blocks.rewrite(&first).unwrap()), request);
        let second = fields(&blocks.rewrite(&second).unwrap());
        assert_eq!(second, [&request[..], &[pair("cache-control", "no-cache")]].concat());
    }

    #[test]
    fn lengths_of_any_size_are_encoded() {
        for len in [0, 1, 126, 127, 128, 254, 255, 16_000] {
            let block =
                [literal(":method", "POST"), literal(":authority", "x"), literal("a", &"v".repeat(len))].concat();
            assert_eq!(rewritten(&block).last(), Some(&pair("a", &"v".repeat(len))), "{len}");
        }
    }

    #[test]
    fn what_is_too_large_is_refused() {
        let many = literal("a", "b").repeat(MAX_FIELDS);
        assert_eq!(rewritten(&many).len(), MAX_FIELDS);
        let too_many = literal("a", "b").repeat(MAX_FIELDS + 1);
        assert_eq!(HeaderBlocks::new().rewrite(&too_many), Err(HeaderBlockError::TooLarge));
        // A field of 3000 bytes in the table, and a byte for each time it is meant.
        let put = [&[0x40][..], &literal("a", &"v".repeat(3000))[1..]].concat();
        let bomb = [put, vec![0xbe; 100]].concat();
        assert_eq!(HeaderBlocks::new().rewrite(&bomb), Err(HeaderBlockError::TooLarge));
    }

    #[test]
    fn the_table_is_no_larger_than_http_2_has_it() {
        let hpack = |error| Err(HeaderBlockError::Hpack(DecoderErrorKind(error)));
        let of_4096 = [&[0x3f, 0xe1, 0x1f][..], &[0x82]].concat();
        assert_eq!(rewritten(&of_4096), [pair(":authority", "localhost"), pair(":method", "GET")]);
        let of_4097 = [&[0x3f, 0xe2, 0x1f][..], &[0x82]].concat();
        assert_eq!(HeaderBlocks::new().rewrite(&of_4097), hpack(DecoderError::InvalidMaxDynamicSize));
        assert_eq!(HeaderBlocks::new().rewrite(&[0xbe]), hpack(DecoderError::HeaderIndexOutOfBounds));
    }
}
