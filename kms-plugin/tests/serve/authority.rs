//! Clients of all releases of kube-apiserver are answered, whatever they send as `:authority`.
//!
//! KMS v1 could not be served to any kube-apiserver, and KMS v2 not before 1.32: their requests, which have the socket's path in
//! that place, were reset with PROTOCOL_ERROR before any service saw them.

use std::sync::Arc;

use atrest::kms::api::v1beta1::VersionResponse;
use atrest::kms::api::v2::StatusResponse;
use loona_hpack::huffman::HuffmanDecoder;

use super::http2::{
    Answer, CONTINUATION, END_HEADERS, HEADERS, PADDED, PING, PRIORITY, Raw, STATUS, VERSION, WINDOW_UPDATE, frame,
    indexed_literal, literal, other_fields, request_fields, string,
};
use crate::support::{Memory, Running};

const PROTOCOL_ERROR: u32 = 1;

/// Each with its Huffman code (RFC 7541, appendix B).
const AUTHORITIES: [(&str, &str); 5] = [
    ("/run/kms.sock", "62cb6a63ad285d07275f"),
    ("%2Frun%2Fkms.sock", "54586cb6a54587ad285d07275f"),
    ("", ""),
    ("localhost", "a0e41d139d09"),
    ("@kms", "ffd75a51"),
];

async fn server() -> Running {
    let server = Running::start(Arc::new(Memory::local())).await;
    server.until_healthy().await;
    server
}

fn assert_status(answer: &Answer) {
    let expected = StatusResponse { version: "v2".into(), healthz: "ok".into(), key_id: "kek-1".into() };
    assert_eq!(answer.message::<StatusResponse>(), expected);
}

fn block_with(authority: &[u8]) -> Vec<u8> {
    [request_fields(STATUS), authority.to_vec(), other_fields()].concat()
}

#[tokio::test]
async fn every_authority_is_answered() {
    let server = server().await;
    for (authority, _) in AUTHORITIES {
        let mut raw = Raw::connect(&server.path).await;
        assert_status(&raw.request(1, &block_with(&literal(":authority", authority))).await);
        let version = [request_fields(VERSION), literal(":authority", authority), other_fields()].concat();
        let answer = raw.request_with(3, &version, b"\x0a\x07v1beta1").await;
        assert_eq!(answer.message::<VersionResponse>().version, "v1beta1", "{authority}");
    }
}

#[tokio::test]
async fn a_request_without_an_authority_is_answered() {
    let server = server().await;
    let mut raw = Raw::connect(&server.path).await;
    assert_status(&raw.request(1, &block_with(b"")).await);
}

#[tokio::test]
async fn huffman_coded_authorities_are_answered() {
    let server = server().await;
    for (authority, huffman) in AUTHORITIES {
        let coded = hex::decode(huffman).unwrap();
        assert_eq!(HuffmanDecoder::new().decode(&coded).unwrap(), authority.as_bytes());
        // The name from the static table, the value with its first bit set: Huffman.
        let field = [&[0x01, 0x80 | u8::try_from(coded.len()).unwrap()][..], &coded].concat();
        let mut raw = Raw::connect(&server.path).await;
        assert_status(&raw.request(1, &block_with(&field)).await);
    }
}

#[tokio::test]
async fn authorities_in_the_dynamic_table_are_answered() {
    let server = server().await;
    let mut raw = Raw::connect(&server.path).await;
    let path = [vec![0x44], string(STATUS)].concat();
    let authority = [vec![0x41], string("/run/kms.sock")].concat();
    let content_type = indexed_literal("content-type", "application/grpc");
    let first = [&[0x83, 0x86][..], &path, &authority, &content_type, &indexed_literal("te", "trailers")].concat();
    assert_status(&raw.request(1, &first).await);
    // The last that came is 62.
    let second = [0x83, 0x86, 0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62];
    assert_status(&raw.request(3, &second).await);
    assert_status(&raw.request(5, &second).await);
    // The table is emptied, and filled again.
    let third = [&[0x20, 0x3f, 0xe1, 0x1f][..], &first].concat();
    assert_status(&raw.request(7, &third).await);
    assert_status(&raw.request(9, &second).await);
}

#[tokio::test]
async fn a_block_in_several_frames_is_answered() {
    let server = server().await;
    let block = block_with(&literal(":authority", "/run/kms.sock"));
    let mut raw = Raw::connect(&server.path).await;
    let mut stream = 1;
    for at in 0..=block.len() {
        let (first, second) = block.split_at(at);
        let frames = [
            frame(HEADERS, 0, stream, first),
            frame(CONTINUATION, 0, stream, b""),
            frame(CONTINUATION, END_HEADERS, stream, second),
        ];
        assert_status(&raw.request_of(stream, &frames.concat()).await);
        stream += 2;
    }
}

#[tokio::test]
async fn padding_and_priority_are_no_hindrance() {
    let server = server().await;
    let block = block_with(&literal(":authority", "/run/kms.sock"));
    let payload = [&[7][..], &[0, 0, 0, 0, 15], &block, &[0; 7]].concat();
    let headers = frame(HEADERS, PADDED | PRIORITY | END_HEADERS, 1, &payload);
    let mut raw = Raw::connect(&server.path).await;
    assert_status(&raw.request_of(1, &headers).await);
}

#[tokio::test]
async fn frames_between_requests_are_no_hindrance() {
    let server = server().await;
    let mut raw = Raw::connect(&server.path).await;
    let block = block_with(&literal(":authority", "/run/kms.sock"));
    for stream in [1, 3, 5] {
        raw.send(&frame(PING, 0, 0, b"12345678")).await;
        raw.send(&frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0])).await;
        assert_status(&raw.request(stream, &block).await);
    }
}

#[tokio::test]
async fn input_a_byte_at_a_time_is_answered() {
    let server = server().await;
    let mut raw = Raw::connect(&server.path).await;
    let block = block_with(&literal(":authority", "/run/kms.sock"));
    for byte in frame(HEADERS, END_HEADERS, 1, &block) {
        raw.send(&[byte]).await;
        tokio::task::yield_now().await;
    }
    assert_status(&raw.request_of(1, b"").await);
}

#[tokio::test]
async fn requests_that_are_wrong_in_another_way_are_still_refused() {
    let server = server().await;
    let authority = literal(":authority", "/run/kms.sock");
    let no_scheme = [&[0x83][..], &literal(":path", STATUS), &authority, &other_fields()].concat();
    let late = [request_fields(STATUS), other_fields(), authority.clone()].concat();
    let unknown = [request_fields(STATUS), authority.clone(), literal(":unknown", "x"), other_fields()].concat();
    let twice = block_with(&[authority.clone(), authority.clone()].concat());
    let refused = [
        (no_scheme, Answer::Reset(PROTOCOL_ERROR)),
        (late, Answer::Reset(PROTOCOL_ERROR)),
        (twice, Answer::Reset(PROTOCOL_ERROR)),
        (unknown, Answer::GoAway(PROTOCOL_ERROR)),
    ];
    for (block, answer) in refused {
        let mut raw = Raw::connect(&server.path).await;
        assert_eq!(raw.request(1, &block).await, answer, "{}", String::from_utf8_lossy(&block));
    }
    // Nothing but its continuation may follow a block that is open.
    let mut raw = Raw::connect(&server.path).await;
    let open = frame(HEADERS, 0, 1, &block_with(&authority));
    assert_eq!(raw.request_of(1, &open).await, Answer::GoAway(PROTOCOL_ERROR));
    // No HPACK: the decoder of the connection is lost.
    let mut raw = Raw::connect(&server.path).await;
    raw.send(&frame(HEADERS, END_HEADERS, 1, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff])).await;
    let answer = raw.answer(1).await;
    assert!(matches!(answer, Answer::Closed | Answer::GoAway(_)), "{answer:?}");
    // And the server is well.
    assert_eq!(server.v2().status(atrest::kms::api::v2::StatusRequest {}).await.unwrap().into_inner().healthz, "ok");
}

/// What is at stake: when this fails, the library accepts paths, and nothing needs to be rewritten any more.
#[tokio::test]
async fn the_library_alone_refuses_a_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plain.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
    let routes = tonic::service::Routes::default();
    tokio::spawn(tonic::transport::Server::builder().add_routes(routes).serve_with_incoming(incoming));
    for (authority, is_refused) in AUTHORITIES.map(|(text, _)| (text, !matches!(text, "localhost" | "@kms"))) {
        let mut raw = Raw::connect(&path).await;
        let answer = raw.request(1, &block_with(&literal(":authority", authority))).await;
        assert_eq!(answer == Answer::Reset(PROTOCOL_ERROR), is_refused, "{authority:?}: {answer:?}");
        // 12 is UNIMPLEMENTED: no service is there.
        assert_eq!(answer.field("grpc-status") == Some("12"), !is_refused, "{authority:?}: {answer:?}");
    }
}
