//! An HTTP/2 client of hand-made frames. RFC 9113.

use std::path::Path;
use std::time::Duration;

use loona_hpack::Decoder;
use prost::Message;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

pub(crate) const DATA: u8 = 0x0;
pub(crate) const HEADERS: u8 = 0x1;
pub(crate) const RST_STREAM: u8 = 0x3;
pub(crate) const SETTINGS: u8 = 0x4;
pub(crate) const PING: u8 = 0x6;
pub(crate) const GOAWAY: u8 = 0x7;
pub(crate) const WINDOW_UPDATE: u8 = 0x8;
pub(crate) const CONTINUATION: u8 = 0x9;

pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
pub(crate) const PADDED: u8 = 0x8;
pub(crate) const PRIORITY: u8 = 0x20;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const STATUS: &str = "/v2.KeyManagementService/Status";
pub(crate) const VERSION: &str = "/v1beta1.KeyManagementService/Version";

/// A frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A string of HPACK, at most 126 bytes.
pub(crate) fn string(text: &str) -> Vec<u8> {
    let len = u8::try_from(text.len()).expect("short");
    assert!(len < 127);
    [&[len], text.as_bytes()].concat()
}

/// A field that is not put into the table.
pub(crate) fn literal(name: &str, value: &str) -> Vec<u8> {
    [vec![0], string(name), string(value)].concat()
}

/// A field that is put into the table.
pub(crate) fn indexed_literal(name: &str, value: &str) -> Vec<u8> {
    [vec![0x40], string(name), string(value)].concat()
}

/// What gRPC sends beside path and authority.
pub(crate) fn other_fields() -> Vec<u8> {
    let content_type = literal("content-type", "application/grpc");
    [content_type, literal("te", "trailers"), literal("grpc-timeout", "3S")].concat()
}

/// `:method: POST` and `:scheme: http` from the static table, and the path.
pub(crate) fn request_fields(path: &str) -> Vec<u8> {
    [vec![0x83, 0x86], literal(":path", path)].concat()
}

/// A gRPC message.
pub(crate) fn grpc_message(message: &[u8]) -> Vec<u8> {
    let len = u32::try_from(message.len()).expect("short");
    [&[0][..], &len.to_be_bytes(), message].concat()
}

/// What the server says to a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Headers, message and trailers.
    Whole { headers: Vec<(String, String)>, message: Vec<u8> },
    /// RST_STREAM, with its code.
    Reset(u32),
    /// GOAWAY, with its code.
    GoAway(u32),
    /// The connection was closed.
    Closed,
}

impl Answer {
    /// A field of the headers or the trailers.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let Self::Whole { headers, .. } = self else { return None };
        headers.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// The message of an answer without an error.
    pub(crate) fn message<M: Message + Default>(&self) -> M {
        assert_eq!(self.field(":status"), Some("200"), "{self:?}");
        assert_eq!(self.field("grpc-status"), Some("0"), "{self:?}");
        let Self::Whole { message, .. } = self else { panic!("{self:?}") };
        assert_eq!(message.len() - 5, usize::try_from(u32::from_be_bytes(message[1..5].try_into().unwrap())).unwrap());
        M::decode(&message[5..]).expect("a message")
    }
}

/// A connection.
pub(crate) struct Raw {
    stream: UnixStream,
    decoder: Decoder<'static>,
}

impl Raw {
    pub(crate) async fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).await.expect("a server");
        let mut raw = Self { stream, decoder: Decoder::new() };
        raw.send(&[PREFACE, &frame(SETTINGS, 0, 0, b"")].concat()).await;
        raw
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("sent");
    }

    /// A request in one HEADERS frame, with an empty message.
    pub(crate) async fn request(&mut self, stream: u32, block: &[u8]) -> Answer {
        let headers = frame(HEADERS, END_HEADERS, stream, block);
        self.request_of(stream, &headers).await
    }

    /// A request in one HEADERS frame, with this message.
    pub(crate) async fn request_with(&mut self, stream: u32, block: &[u8], message: &[u8]) -> Answer {
        let headers = frame(HEADERS, END_HEADERS, stream, block);
        let data = frame(DATA, END_STREAM, stream, &grpc_message(message));
        self.send(&[headers, data].concat()).await;
        self.answer(stream).await
    }

    /// A request with such frames for its headers, and an empty message.
    pub(crate) async fn request_of(&mut self, stream: u32, headers: &[u8]) -> Answer {
        let data = frame(DATA, END_STREAM, stream, &grpc_message(b""));
        self.send(&[headers, &data].concat()).await;
        self.answer(stream).await
    }

    /// What the server says to this stream's request.
    pub(crate) async fn answer(&mut self, stream: u32) -> Answer {
        let answer = tokio::time::timeout(Duration::from_secs(20), self.read_answer(stream));
        answer.await.expect("an answer in time")
    }

    async fn read_answer(&mut self, stream: u32) -> Answer {
        let (mut headers, mut message) = (Vec::new(), Vec::new());
        loop {
            let mut head = [0; 9];
            if self.stream.read_exact(&mut head).await.is_err() {
                return Answer::Closed;
            }
            let len = usize::from(head[1]) << 8 | usize::from(head[2]);
            assert_eq!(head[0], 0, "a frame of more than 64 KiB");
            let mut payload = vec![0; len];
            self.stream.read_exact(&mut payload).await.expect("the payload");
            let code = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().expect("a code"));
            let id = u32::from_be_bytes(head[5..].try_into().expect("a number"));
            match (head[3], head[4]) {
                // The server may have closed its side already, with more to read.
                (SETTINGS, 0) => _ = self.stream.write_all(&frame(SETTINGS, ACK, 0, b"")).await,
                (PING, 0) => _ = self.stream.write_all(&frame(PING, ACK, 0, &payload)).await,
                (GOAWAY, _) => return Answer::GoAway(code(4)),
                (RST_STREAM, _) if id == stream => return Answer::Reset(code(0)),
                (HEADERS, flags) => {
                    assert_ne!(flags & END_HEADERS, 0, "a block in several frames");
                    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
                    let fields = self.decoder.decode(&payload).expect("HPACK");
                    if id == stream {
                        headers.extend(fields.into_iter().map(|(name, value)| (text(name), text(value))));
                    }
                    if id == stream && flags & END_STREAM != 0 {
                        return Answer::Whole { headers, message };
                    }
                }
                (DATA, _) if id == stream => message.extend_from_slice(&payload),
                _ => {}
            }
        }
    }
}
