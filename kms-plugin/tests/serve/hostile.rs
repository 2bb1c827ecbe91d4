//! Whatever a client sends, the server goes on.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use atrest_kms_plugin::serve::Options;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::http2::{
    Answer, DATA, END_HEADERS, HEADERS, PREFACE, Raw, SETTINGS, frame, literal, other_fields, request_fields,
};
use crate::support::{Memory, Running};

const METHODS: [&str; 6] = [
    "/v2.KeyManagementService/Status",
    "/v2.KeyManagementService/Encrypt",
    "/v2.KeyManagementService/Decrypt",
    "/v1beta1.KeyManagementService/Version",
    "/v1beta1.KeyManagementService/Encrypt",
    "/v1beta1.KeyManagementService/Decrypt",
];

fn block(path: &str) -> Vec<u8> {
    [request_fields(path), literal(":authority", "/run/kms.sock"), other_fields()].concat()
}

/// Sends it, and waits a little for what the server says or does.
async fn send(path: &Path, bytes: &[u8]) {
    let mut stream = UnixStream::connect(path).await.expect("it listens");
    // A server that has closed the connection has refused what was sent, which is fine.
    _ = stream.write_all(bytes).await;
    _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer));
    assert!(read.await.is_ok(), "the connection stays open");
}

async fn assert_well(path: &Path) {
    let answer = Raw::connect(path).await.request(1, &block(METHODS[0])).await;
    assert_eq!(answer.field("grpc-status"), Some("0"), "{answer:?}");
}

/// Runs a property of a running server.
fn with_server<S: Strategy>(cases: u32, strategy: S, check: &impl AsyncFn(&Running, S::Value)) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let server = runtime.block_on(async {
        let server = Running::start(Arc::new(Memory::local())).await;
        server.until_healthy().await;
        server
    });
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&strategy, |value| {
            runtime.block_on(check(&server, value));
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let _in_runtime = runtime.enter();
    drop(server);
}

#[test]
fn arbitrary_bytes_do_not_end_the_server() {
    let bytes = || vec(any::<u8>(), 0..300);
    let frames = vec((0_u8..10, any::<u8>(), 0_u32..4, bytes()), 0..8).prop_map(|frames| {
        let frames = frames.iter().flat_map(|(kind, flags, stream, payload)| frame(*kind, *flags, *stream, payload));
        frames.collect::<Vec<_>>()
    });
    let after_preface = |bytes: Vec<u8>| [PREFACE, &frame(SETTINGS, 0, 0, b""), &bytes].concat();
    let after_request = |bytes: Vec<u8>| {
        let headers = frame(HEADERS, END_HEADERS, 1, &block(METHODS[2]));
        [PREFACE, &frame(SETTINGS, 0, 0, b""), &headers, &bytes].concat()
    };
    let sent = prop_oneof![
        bytes(),
        bytes().prop_map(after_preface),
        frames.clone().prop_map(after_preface),
        frames.prop_map(after_request),
    ];
    with_server(200, sent, &async |server, sent| {
        send(&server.path, &sent).await;
        assert_well(&server.path).await;
    });
}

#[test]
fn arbitrary_messages_are_answered() {
    let field = (1_u8..6, vec(any::<u8>(), 0..60)).prop_map(|(number, bytes)| {
        [&[number << 3 | 2, u8::try_from(bytes.len()).expect("short")], &bytes[..]].concat()
    });
    let version = Just(b"\x0a\x07v1beta1".to_vec());
    let message = prop_oneof![
        vec(any::<u8>(), 0..200),
        vec(field.clone(), 0..6).prop_map(|fields| fields.concat()),
        (version, vec(field, 0..3)).prop_map(|(version, fields)| [version, fields.concat()].concat()),
    ];
    with_server(200, (0..METHODS.len(), message), &async |server, (method, message)| {
        let answer = Raw::connect(&server.path).await.request_with(1, &block(METHODS[method]), &message).await;
        let Answer::Whole { .. } = answer else { panic!("{answer:?}") };
        // 0, INVALID_ARGUMENT, NOT_FOUND, or INTERNAL for what is no protobuf.
        let code = answer.field("grpc-status").expect("a status");
        assert!(["0", "3", "5", "13"].contains(&code), "{answer:?}");
        assert_well(&server.path).await;
    });
}

#[tokio::test]
async fn a_flood_of_continuations_ends_the_connection_only() {
    let server = Running::start(Arc::new(Memory::local())).await;
    server.until_healthy().await;
    let headers = frame(HEADERS, 0, 1, &block(METHODS[0]));
    let flood = frame(super::http2::CONTINUATION, 0, 1, b"").repeat(100_000);
    send(&server.path, &[PREFACE, &frame(SETTINGS, 0, 0, b""), &headers, &flood].concat()).await;
    assert_well(&server.path).await;
}

/// With a limit for the whole call alone, a body that never came was waited for a minute.
#[tokio::test]
async fn a_request_that_does_not_arrive_is_given_up() {
    let change = |options: &mut Options| options.patience.body = Duration::from_millis(300);
    let server = Running::start_with(Arc::new(Memory::local()), change).await;
    server.until_healthy().await;
    let mut raw = Raw::connect(&server.path).await;
    let headers = frame(HEADERS, END_HEADERS, 1, &block(METHODS[1]));
    // A message is begun and not ended.
    raw.send(&[headers, frame(DATA, 0, 1, &[0, 0, 0, 0, 100, 7])].concat()).await;
    let answer = raw.answer(1).await;
    // DEADLINE_EXCEEDED.
    assert_eq!(answer.field("grpc-status"), Some("4"), "{answer:?}");
    assert_well(&server.path).await;
}

/// 256 calls of 256 KiB a connection were kept: gigabytes of 128 connections.
#[tokio::test]
async fn a_connection_has_so_many_calls_and_so_long_messages() {
    let server = Running::start(Arc::new(Memory::local())).await;
    server.until_healthy().await;
    let mut raw = Raw::connect(&server.path).await;
    let message = vec![0; 64 * 1024 + 1];
    let announced = [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes()].concat();
    let headers = frame(HEADERS, END_HEADERS, 1, &block(METHODS[1]));
    raw.send(&[headers, frame(DATA, 0, 1, &announced)].concat()).await;
    let answer = raw.answer(1).await;
    // OUT_OF_RANGE, for the length alone.
    assert_eq!(answer.field("grpc-status"), Some("11"), "{answer:?}");

    let mut raw = Raw::connect(&server.path).await;
    let requests = (0..65_u32).flat_map(|number| frame(HEADERS, END_HEADERS, 2 * number + 1, &block(METHODS[1])));
    raw.send(&requests.collect::<Vec<_>>()).await;
    // REFUSED_STREAM.
    assert_eq!(raw.answer(2 * 64 + 1).await, Answer::Reset(7));
    assert_well(&server.path).await;
}
