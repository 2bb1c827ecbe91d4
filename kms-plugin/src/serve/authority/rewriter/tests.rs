use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// What the server reads of input that arrives in such pieces, and how it ends.
fn read<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> (Vec<u8>, Result<(), Error>) {
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
        assert_eq!(piece, b"", "input is left");
    }
    (out, Ok(()))
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Head { len: payload.len(), kind, flags, stream: stream.to_be_bytes() }.put(&mut out);
    out.extend_from_slice(payload);
    out
}

fn connection(frames: &[Vec<u8>]) -> Vec<u8> {
    [PREFACE.to_vec(), frames.concat()].concat()
}

/// `:method: POST` and `:authority: /run/x`, the method indexed.
const REQUEST: &[u8] = b"\x83\x01\x06/run/x";
/// The same for the server.
const FOR_LOCALHOST: &[u8] = b"\x00\x07:method\x04POST\x00\x0a:authority\x09localhost";
const END_STREAM: u8 = 0x1;
const DATA: u8 = 0x0;
const PING: u8 = 0x6;
const WINDOW_UPDATE: u8 = 0x8;

fn assert_rewritten(sent: &[Vec<u8>], expected: &[Vec<u8>]) {
    let (out, result) = read([&connection(sent)[..]]);
    assert_eq!(result, Ok(()));
    assert_eq!(out, connection(expected));
}

#[test]
fn frames_without_headers_pass() {
    let frames = [
        frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]),
        frame(SETTINGS, 1, 0, b""),
        frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0]),
        frame(PING, 0, 0, b"12345678"),
        frame(DATA, END_STREAM, 1, &[7; 16_384]),
        frame(0xbe, 0xff, 5, b"unknown"),
    ];
    assert_rewritten(&frames, &frames);
}

#[test]
fn a_request_is_rewritten_and_its_end_of_stream_kept() {
    for flags in [0, END_STREAM] {
        let sent = frame(HEADERS, flags | END_HEADERS, 1, REQUEST);
        assert_rewritten(&[sent], &[frame(HEADERS, flags | END_HEADERS, 1, FOR_LOCALHOST)]);
    }
}

#[test]
fn padding_is_removed_and_priority_kept() {
    let priority = [0x80, 0, 0, 3, 200];
    let sent = [&[4][..], &priority, REQUEST, &[0; 4]].concat();
    let expected = [&priority[..], FOR_LOCALHOST].concat();
    assert_rewritten(
        &[frame(HEADERS, PADDED | PRIORITY | END_HEADERS, 1, &sent)],
        &[frame(HEADERS, PRIORITY | END_HEADERS, 1, &expected)],
    );
}

#[test]
fn a_block_in_several_frames_becomes_one() {
    let (first, second) = REQUEST.split_at(4);
    let sent = [
        frame(HEADERS, END_STREAM, 1, first),
        frame(CONTINUATION, 0, 1, b""),
        frame(CONTINUATION, END_HEADERS, 1, second),
    ];
    assert_rewritten(&sent, &[frame(HEADERS, END_STREAM | END_HEADERS, 1, FOR_LOCALHOST)]);
}

#[test]
fn a_block_that_needs_several_frames_is_split() {
    // `a` with a value of 16 380 bytes: a head of three bytes, a length of three.
    let value = vec![b'v'; 16_380];
    let field = [&b"\x00\x01a\x7f\xfd\x7e"[..], &value].concat();
    let (first, second) = field.split_at(10_000);
    let sent = [frame(HEADERS, 0, 1, &[REQUEST, first].concat()), frame(CONTINUATION, END_HEADERS, 1, second)];
    let expected = [FOR_LOCALHOST, &field].concat();
    let (first, second) = expected.split_at(16_384);
    assert_rewritten(&sent, &[frame(HEADERS, 0, 1, first), frame(CONTINUATION, END_HEADERS, 1, second)]);
}

#[test]
fn trailers_are_given_no_authority() {
    let trailers = b"\x00\x01a\x01b";
    let sent = [frame(HEADERS, END_HEADERS, 1, REQUEST), frame(HEADERS, END_STREAM | END_HEADERS, 1, trailers)];
    let expected = [frame(HEADERS, END_HEADERS, 1, FOR_LOCALHOST), sent[1].clone()];
    assert_rewritten(&sent, &expected);
}

#[test]
fn what_the_library_has_to_refuse_passes_from_there_on() {
    let request = frame(HEADERS, END_HEADERS, 3, REQUEST);
    let headers_of_no_stream = frame(HEADERS, END_HEADERS, 0, REQUEST);
    let too_long = frame(HEADERS, END_HEADERS, 1, &[0; 16_385]);
    let too_much_padding = frame(HEADERS, PADDED | END_HEADERS, 1, &[9, 0x83]);
    let no_priority = frame(HEADERS, PRIORITY | END_HEADERS, 1, &[0; 4]);
    let no_padding_length = frame(HEADERS, PADDED | END_HEADERS, 1, b"");
    let long_data = frame(DATA, 0, 1, &[0; 16_385]);
    let stray = frame(CONTINUATION, END_HEADERS, 1, REQUEST);
    let push = frame(PUSH_PROMISE, END_HEADERS, 1, REQUEST);
    let refused =
        [headers_of_no_stream, too_long, too_much_padding, no_priority, no_padding_length, long_data, stray, push];
    for refused in refused {
        let frames = [refused, request.clone()];
        assert_rewritten(&frames, &frames);
    }
    let (out, result) = read([&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..]]);
    assert_eq!((out.as_slice(), result), (&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], Ok(())));
}

#[test]
fn a_block_that_is_not_continued_is_seen_as_begun() {
    let request = frame(HEADERS, END_HEADERS, 3, REQUEST);
    for other in [frame(PING, 0, 0, b"12345678"), frame(CONTINUATION, END_HEADERS, 3, b"x"), request.clone()] {
        let sent = [frame(HEADERS, END_STREAM, 1, REQUEST), other.clone(), request.clone()];
        assert_rewritten(&sent, &[frame(HEADERS, END_STREAM, 1, b""), other, request.clone()]);
    }
}

#[test]
fn a_block_without_an_end_is_an_error() {
    let empty = frame(CONTINUATION, 0, 1, b"");
    let endless = connection(&[frame(HEADERS, 0, 1, REQUEST), empty.repeat(MAX_CONTINUATIONS + 1)]);
    assert_eq!(read([&endless[..]]).1, Err(Error::TooManyFrames));
    let full = frame(CONTINUATION, 0, 1, &[0; 16_384]);
    let long = connection(&[frame(HEADERS, 0, 1, b"x"), full.repeat(2)]);
    assert_eq!(read([&long[..]]).1, Err(Error::HeaderBlock(HeaderBlockError::TooLarge)));
}

#[test]
fn nothing_passes_after_an_error() {
    let mut rewriter = Rewriter::new();
    let sent = connection(&[frame(HEADERS, END_HEADERS, 1, &[0xbe]), frame(PING, 0, 0, b"12345678")]);
    let mut input = &sent[..];
    assert_eq!(rewriter.next(&mut input).unwrap().as_deref(), Some(PREFACE));
    let error = rewriter.next(&mut input).unwrap_err();
    assert_eq!(rewriter.next(&mut input), Err(error));
    assert_eq!(rewriter.next(&mut &b""[..]), Err(error));
}

/// Frames with some sense, of few streams: HEADERS and CONTINUATION more often than others.
fn some_frame() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![4 => Just(HEADERS), 2 => Just(CONTINUATION), 4 => 0_u8..12];
    let field = prop_oneof![
        Just(&b"\x83"[..]),
        Just(&b"\x01\x06/run/x"[..]),
        Just(&b"\x41\x06/run/y"[..]),
        Just(&b"\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..]),
        Just(&b"\xbe"[..]),
        Just(&b"\x20"[..]),
    ];
    let payload = prop_oneof![
        4 => vec(field, 0..6).prop_map(|fields| fields.concat()),
        1 => vec(any::<u8>(), 0..40),
        1 => (0_usize..20_000).prop_map(|len| vec![0x83; len]),
    ];
    let flags = prop_oneof![4 => Just(END_HEADERS), 2 => Just(0), 1 => any::<u8>()];
    (kind, flags, 0_u32..3, payload).prop_map(|(kind, flags, stream, payload)| frame(kind, flags, stream, &payload))
}

fn some_input() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => vec(some_frame(), 0..12).prop_map(|frames| connection(&frames)),
        1 => vec(any::<u8>(), 0..400).prop_map(|bytes| connection(&[bytes])),
        1 => vec(any::<u8>(), 0..400),
    ]
}

/// The fragments of HEADERS and its CONTINUATION, which are not padded.
fn block_of(mut frames: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    while let Some(head) = frames.get(..HEAD_BYTES).and_then(Head::parse) {
        assert_eq!(head.flags & PADDED, 0);
        let priority = if head.kind == HEADERS && head.flags & PRIORITY != 0 { PRIORITY_BYTES } else { 0 };
        block.extend_from_slice(&frames[HEAD_BYTES + priority..HEAD_BYTES + head.len]);
        frames = &frames[HEAD_BYTES + head.len..];
    }
    block
}

proptest! {
    #[test]
    fn the_pieces_in_which_input_arrives_make_no_difference(input in some_input(), sizes in vec(1_usize..300, 1..20)) {
        let whole = read([&input[..]]);
        let mut pieces = Vec::new();
        let mut rest = &input[..];
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            pieces.push(take(*size, &mut rest));
        }
        prop_assert_eq!(&read(pieces), &whole);
        prop_assert_eq!(&read(input.chunks(1)), &whole);
    }

    #[test]
    fn what_is_rewritten_stays_as_it_is(input in some_input()) {
        let (out, _) = read([&input[..]]);
        prop_assert_eq!(read([&out[..]]), (out, Ok(())));
    }

    #[test]
    fn every_request_that_is_rewritten_is_for_localhost(input in some_input()) {
        let mut rewriter = Rewriter::new();
        let mut decoder = loona_hpack::Decoder::new();
        let mut input = &input[..];
        while let Ok(Some(piece)) = rewriter.next(&mut input) {
            let (Cow::Owned(bytes), State::Head) = (piece, rewriter.state) else { continue };
            if bytes.get(3) != Some(&HEADERS) {
                continue;
            }
            let fields = decoder.decode(&block_of(&bytes)).expect("HPACK");
            let values_of = |name: &[u8]| fields.iter().filter(|field| field.0 == name).map(|field| &field.1[..]).collect::<Vec<_>>();
            let authorities = values_of(b":authority");
            prop_assert!(authorities.iter().all(|value| *value == b"localhost"), "{:?}", fields);
            prop_assert!(values_of(b":method").is_empty() || !authorities.is_empty(), "{:?}", fields);
        }
    }

    #[test]
    fn at_most_a_block_is_kept(input in some_input()) {
        let mut rewriter = Rewriter::new();
        let mut input = &input[..];
        while let Ok(Some(piece)) = rewriter.next(&mut input) {
            if let Cow::Owned(bytes) = piece {
                prop_assert!(bytes.len() <= MAX_BLOCK_BYTES + 1024, "{}", bytes.len());
            }
            let kept = rewriter.open.as_ref().map_or(0, |open| open.block.len() + open.payload.len());
            prop_assert!(kept <= MAX_BLOCK_BYTES && rewriter.head.len() <= HEAD_BYTES);
        }
    }
}
