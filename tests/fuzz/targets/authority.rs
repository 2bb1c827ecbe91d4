//! What a client of the KMS plugin sends: the pieces in which it arrives make no difference, what is rewritten stays so, and every request
//! is for `localhost`.
#![no_main]

use atrest_kms_plugin::serve::authority::{Error, Rewriter};
use libfuzzer_sys::fuzz_target;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 0x1;
const PUSH_PROMISE: u8 = 0x5;
const CONTINUATION: u8 = 0x9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

fn read<'p>(pieces: impl Iterator<Item = &'p [u8]>) -> (Vec<u8>, Result<(), Error>) {
    let mut rewriter = Rewriter::new();
    let mut out = Vec::new();
    for mut piece in pieces {
        loop {
            match rewriter.next(&mut piece) {
                Ok(Some(bytes)) => out.extend_from_slice(&bytes),
                Ok(None) => break,
                Err(error) => return (out, Err(error)),
            }
        }
    }
    (out, Ok(()))
}

/// A frame's kind, flags and stream, its payload, and what follows. Nothing, when the rest is no whole frame that HTTP/2 allows.
fn frame(bytes: &[u8]) -> Option<((u8, u8, u32), &[u8], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<9>()?;
    let [a, b, c, kind, flags, stream @ ..] = *head;
    let len = usize::try_from(u32::from_be_bytes([0, a, b, c])).ok().filter(|len| *len <= 16_384)?;
    let (payload, rest) = rest.split_at_checked(len)?;
    Some(((kind, flags, u32::from_be_bytes(stream) & 0x7fff_ffff), payload, rest))
}

/// The header blocks up to the first frame that the library has to refuse, from which on all bytes pass as they came.
fn blocks(mut frames: &[u8]) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    while let Some(((kind, flags, stream), payload, rest)) = frame(frames) {
        frames = rest;
        match kind {
            HEADERS if stream != 0 && flags & PADDED == 0 => {}
            HEADERS | PUSH_PROMISE | CONTINUATION => return blocks,
            _ => continue,
        }
        let priority = if flags & PRIORITY == 0 { 0 } else { 5 };
        let Some(fragment) = payload.get(priority..) else { return blocks };
        let (mut block, mut is_whole) = (fragment.to_vec(), flags & END_HEADERS != 0);
        while !is_whole {
            let Some(((CONTINUATION, flags, of), payload, rest)) = frame(frames) else { return blocks };
            if of != stream {
                return blocks;
            }
            block.extend_from_slice(payload);
            (frames, is_whole) = (rest, flags & END_HEADERS != 0);
        }
        blocks.push(block);
    }
    blocks
}

/// An integer of seven bits and more, RFC 7541, section 5.1, and so many bytes after it.
fn string<'b>(block: &mut &'b [u8]) -> &'b [u8] {
    let (first, mut rest) = block.split_first().expect("a length");
    assert_eq!(first & 0x80, 0, "nothing is Huffman-coded");
    let mut len = usize::from(*first);
    if len == 0x7f {
        for shift in [0, 7, 14] {
            let (byte, after) = rest.split_first().expect("all of the length");
            rest = after;
            len += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    let (string, rest) = rest.split_at(len);
    *block = rest;
    string
}

/// Literals without indexing, with literal names, and nothing else.
fn assert_for_localhost(mut block: &[u8]) {
    let (mut is_request, mut has_authority) = (false, false);
    while let Some((first, rest)) = block.split_first() {
        assert_eq!(*first, 0);
        block = rest;
        let (name, value) = (string(&mut block), string(&mut block));
        is_request |= name == b":method";
        if name == b":authority" {
            has_authority = true;
            assert_eq!(value, b"localhost");
        }
    }
    assert!(has_authority || !is_request);
}

fuzz_target!(|data: &[u8]| {
    // With the preface, or else the fuzzer would have to find it.
    let sent = [PREFACE, data].concat();
    let whole = read(std::iter::once(&sent[..]));
    let size = usize::from(data.first().copied().unwrap_or_default() % 16) + 1;
    assert!(read(sent.chunks(size)) == whole);
    let (out, _) = whole;
    for block in blocks(&out[PREFACE.len()..]) {
        assert_for_localhost(&block);
    }
    let again = read(std::iter::once(&out[..]));
    assert!(again == (out, Ok(())));
});
