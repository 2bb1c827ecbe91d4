//! The frames of an HTTP/2 client: what passes, and what is put in its place. RFC 9113, sections 3.4, 4.1 and 6.

use std::borrow::Cow;

use super::header_block::{HeaderBlockError, HeaderBlocks, MAX_BLOCK_BYTES};

/// What every client sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_BYTES: usize = 9;
/// The largest payload of a frame: the default of HTTP/2, which the server does not change.
const MAX_PAYLOAD_BYTES: usize = 16_384;
/// The most CONTINUATION frames of one block; with empty ones a client could keep the server busy for ever.
const MAX_CONTINUATIONS: usize = 32;

const HEADERS: u8 = 0x1;
const SETTINGS: u8 = 0x4;
const PUSH_PROMISE: u8 = 0x5;
const CONTINUATION: u8 = 0x9;

const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: usize = 5;

/// Why the connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A header block that is not accepted.
    #[error(transparent)]
    HeaderBlock(#[from] HeaderBlockError),
    /// A header block in too many frames.
    #[error("the header block is in too many frames")]
    TooManyFrames,
}

/// Rewrites what a client sends, in pieces of any size. It does no I/O, and keeps no more than one header block.
#[derive(Debug)]
pub struct Rewriter {
    state: State,
    /// The beginning of the next frame's head, as far as it has arrived.
    head: Vec<u8>,
    /// The block that HEADERS has begun and END_HEADERS has not ended.
    open: Option<OpenBlock>,
    blocks: HeaderBlocks,
    has_begun: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// So many bytes of the preface have passed.
    Preface { passed: usize },
    /// The next byte is one of a frame's head.
    Head,
    /// So many bytes of a frame still pass.
    Passing { left: usize },
    /// So many bytes of a frame's header block are still to be collected.
    Collecting { left: usize },
    /// This is no HTTP/2, or none that the library accepts: everything passes, and it may say so.
    Opaque,
    /// The connection is to be closed.
    Failed(Error),
}

#[derive(Debug)]
struct OpenBlock {
    stream: [u8; 4],
    /// Of HEADERS, without END_HEADERS and PADDED.
    flags: u8,
    /// The five bytes of HEADERS' priority, or none.
    priority: Vec<u8>,
    /// The fragments of the frames that are complete.
    block: Vec<u8>,
    continuations: usize,
    /// The frame that is arriving.
    frame: Head,
    payload: Vec<u8>,
}

/// The head of a frame. RFC 9113, section 4.1.
#[derive(Clone, Copy, Debug)]
struct Head {
    len: usize,
    kind: u8,
    flags: u8,
    stream: [u8; 4],
}

impl Head {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, kind, flags, s0, s1, s2, s3] = bytes else { return None };
        let len = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        Some(Self { len, kind, flags, stream: [s0, s1, s2, s3] })
    }

    /// The number of the stream; the first bit is reserved and means nothing.
    fn stream_id(&self) -> u32 {
        u32::from_be_bytes(self.stream) & 0x7fff_ffff
    }

    fn put(&self, out: &mut Vec<u8>) {
        let [_, len @ ..] = u32::try_from(self.len).unwrap_or(u32::MAX).to_be_bytes();
        out.extend_from_slice(&len);
        out.extend_from_slice(&[self.kind, self.flags]);
        out.extend_from_slice(&self.stream);
    }
}

impl Default for Rewriter {
    fn default() -> Self {
        Self::new()
    }
}

impl Rewriter {
    /// At the beginning of a connection.
    #[must_use]
    pub fn new() -> Self {
        let state = State::Preface { passed: 0 };
        Self { state, head: Vec::with_capacity(HEAD_BYTES), open: None, blocks: HeaderBlocks::new(), has_begun: false }
    }

    /// Whether the preface and the head of a SETTINGS frame have come, as they do at the beginning of every connection.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Takes some of the input, and gives the next piece of what the server reads. Nothing, when all input is taken and
    /// more is needed.
    ///
    /// # Errors
    ///
    /// When the connection has to be closed, from then on always.
    pub fn next<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Cow<'i, [u8]>>, Error> {
        while !input.is_empty() {
            let piece = match self.state {
                State::Preface { passed } => Some(Cow::Borrowed(self.preface(passed, input))),
                State::Head => self.frame_head(input)?,
                State::Passing { left } => Some(Cow::Borrowed(self.pass(left, input))),
                State::Collecting { left } => self.collect(left, input)?.map(Cow::Owned),
                State::Opaque => Some(Cow::Borrowed(take(usize::MAX, input))),
                State::Failed(error) => return Err(error),
            };
            if piece.is_some() {
                return Ok(piece);
            }
        }
        match self.state {
            State::Failed(error) => Err(error),
            _ => Ok(None),
        }
    }

    fn preface<'i>(&mut self, passed: usize, input: &mut &'i [u8]) -> &'i [u8] {
        let expected = PREFACE.get(passed..).unwrap_or_default();
        let bytes = take(expected.len(), input);
        self.state = if !expected.starts_with(bytes) {
            State::Opaque
        } else if bytes.len() == expected.len() {
            State::Head
        } else {
            State::Preface { passed: passed + bytes.len() }
        };
        bytes
    }

    fn pass<'i>(&mut self, left: usize, input: &mut &'i [u8]) -> &'i [u8] {
        let bytes = take(left, input);
        self.state = passing(left - bytes.len());
        bytes
    }

    fn frame_head<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Cow<'i, [u8]>>, Error> {
        let at_head = *input;
        self.head.extend_from_slice(take(HEAD_BYTES - self.head.len(), input));
        let Some(head) = Head::parse(&self.head) else { return Ok(None) };
        let is_whole = at_head.len() - input.len() == HEAD_BYTES;
        if self.open.is_some() {
            return Ok(self.head_in_block(head)?.map(Cow::Owned));
        }
        if head.kind == HEADERS && head.stream_id() != 0 && head.len <= MAX_PAYLOAD_BYTES {
            self.head.clear();
            self.open = Some(OpenBlock::new(head));
            return Ok(self.begin_collecting(head.len)?.map(Cow::Owned));
        }
        self.has_begun |= head.kind == SETTINGS;
        // The library ends the connection for each of these. A block in them would be lost to the table.
        let is_refused = matches!(head.kind, HEADERS | PUSH_PROMISE | CONTINUATION) || head.len > MAX_PAYLOAD_BYTES;
        self.state = if is_refused { State::Opaque } else { passing(head.len) };
        if !is_whole {
            return Ok(Some(Cow::Owned(std::mem::take(&mut self.head))));
        }
        self.head.clear();
        let payload = if is_refused { &[] } else { self.pass(head.len, input) };
        Ok(Some(Cow::Borrowed(at_head.get(..HEAD_BYTES + payload.len()).unwrap_or(at_head))))
    }

    /// The head of a frame while a block is open: nothing but its continuation may come.
    fn head_in_block(&mut self, head: Head) -> Result<Option<Vec<u8>>, Error> {
        let bytes = std::mem::take(&mut self.head);
        let Some(open) = &mut self.open else { return Ok(Some(bytes)) };
        let continues = head.kind == CONTINUATION && head.stream_id() == open.frame.stream_id();
        if !continues || head.len > MAX_PAYLOAD_BYTES {
            self.state = State::Opaque;
            // The library hears that a block was begun, and refuses what does not continue it.
            let mut unfinished = Vec::with_capacity(2 * HEAD_BYTES + PRIORITY_BYTES);
            open.put_headers(0, open.flags, &[], &mut unfinished);
            unfinished.extend_from_slice(&bytes);
            self.open = None;
            return Ok(Some(unfinished));
        }
        open.continuations += 1;
        if open.continuations > MAX_CONTINUATIONS {
            return Err(self.fail(Error::TooManyFrames));
        }
        if open.block.len() + head.len > MAX_BLOCK_BYTES {
            return Err(self.fail(HeaderBlockError::TooLarge.into()));
        }
        open.frame = head;
        self.begin_collecting(head.len)
    }

    fn begin_collecting(&mut self, len: usize) -> Result<Option<Vec<u8>>, Error> {
        self.state = State::Collecting { left: len };
        if len == 0 { self.frame_end() } else { Ok(None) }
    }

    fn collect(&mut self, left: usize, input: &mut &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let bytes = take(left, input);
        if let Some(open) = &mut self.open {
            open.payload.extend_from_slice(bytes);
        }
        let left = left - bytes.len();
        self.state = State::Collecting { left };
        if left == 0 { self.frame_end() } else { Ok(None) }
    }

    /// A frame of a header block is complete.
    fn frame_end(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.state = State::Head;
        let Some(mut open) = self.open.take() else { return Ok(None) };
        let payload = std::mem::take(&mut open.payload);
        if open.frame.kind == HEADERS {
            let Some((priority, fragment)) = parts_of_headers(open.frame.flags, &payload) else {
                self.state = State::Opaque;
                let mut refused = Vec::with_capacity(HEAD_BYTES + payload.len());
                open.frame.put(&mut refused);
                refused.extend_from_slice(&payload);
                return Ok(Some(refused));
            };
            open.priority = priority.to_vec();
            open.block = fragment.to_vec();
        } else {
            open.block.extend_from_slice(&payload);
        }
        if open.frame.flags & END_HEADERS == 0 {
            self.open = Some(open);
            return Ok(None);
        }
        match self.blocks.rewrite(&open.block) {
            Ok(block) => Ok(Some(open.frames(&block))),
            Err(error) => Err(self.fail(error.into())),
        }
    }

    fn fail(&mut self, error: Error) -> Error {
        self.state = State::Failed(error);
        self.open = None;
        error
    }
}

impl OpenBlock {
    fn new(frame: Head) -> Self {
        let flags = frame.flags & !(END_HEADERS | PADDED);
        let stream = frame.stream;
        Self { stream, flags, priority: Vec::new(), block: Vec::new(), continuations: 0, frame, payload: Vec::new() }
    }

    /// The frames of a block, as few as it needs.
    fn frames(&self, block: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(block.len() + PRIORITY_BYTES + 3 * HEAD_BYTES);
        let (first, mut rest) = split(block, MAX_PAYLOAD_BYTES - self.priority.len());
        let ends = |rest: &[u8]| if rest.is_empty() { END_HEADERS } else { 0 };
        self.put_headers(first.len(), self.flags | ends(rest), first, &mut out);
        while !rest.is_empty() {
            let (fragment, after) = split(rest, MAX_PAYLOAD_BYTES);
            let len = fragment.len();
            Head { len, kind: CONTINUATION, flags: ends(after), stream: self.stream }.put(&mut out);
            out.extend_from_slice(fragment);
            rest = after;
        }
        out
    }

    fn put_headers(&self, len: usize, flags: u8, fragment: &[u8], out: &mut Vec<u8>) {
        Head { len: len + self.priority.len(), kind: HEADERS, flags, stream: self.stream }.put(out);
        out.extend_from_slice(&self.priority);
        out.extend_from_slice(fragment);
    }
}

/// The priority and the fragment of HEADERS' payload, without the padding. RFC 9113, section 6.2.
fn parts_of_headers(flags: u8, payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let (padding, rest) = if flags & PADDED == 0 {
        (0, payload)
    } else {
        let (padding, rest) = payload.split_first()?;
        (usize::from(*padding), rest)
    };
    let priority_bytes = if flags & PRIORITY == 0 { 0 } else { PRIORITY_BYTES };
    let (priority, rest) = rest.split_at_checked(priority_bytes)?;
    let fragment = rest.get(..rest.len().checked_sub(padding)?)?;
    Some((priority, fragment))
}

fn passing(left: usize) -> State {
    if left == 0 { State::Head } else { State::Passing { left } }
}

/// Takes at most so many bytes from the beginning.
fn take<'i>(max: usize, input: &mut &'i [u8]) -> &'i [u8] {
    let (taken, rest) = split(input, max);
    *input = rest;
    taken
}

fn split(bytes: &[u8], at: usize) -> (&[u8], &[u8]) {
    bytes.split_at_checked(at).unwrap_or((bytes, &[]))
}

#[cfg(test)]
mod tests;
