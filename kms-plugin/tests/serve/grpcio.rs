//! A client that is neither tonic nor hand-made: gRPC's C core, which kube-apiserver's grpc-go is interoperable with.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::support::{Memory, Running};

/// The Python of `cargo xtask setup`.
fn python() -> PathBuf {
    let named = std::env::var_os("ATREST_GRPCIO_PYTHON").map(PathBuf::from);
    // Cargo makes this folder for integration tests, directly inside its target folder.
    let target = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it has a parent");
    let python = named.unwrap_or_else(|| target.join("tools/grpcio/bin/python"));
    assert!(python.is_file(), "Python with grpcio is not on this machine: run `cargo xtask setup`");
    python
}

/// Calls all six methods, on one channel for each authority, and prints a line for each.
const CLIENT: &str = r#"
import sys, grpc

def field(number, data):
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data

def call(channel, path, message):
    method = channel.unary_unary(path, request_serializer=None, response_deserializer=None)
    return method(message, timeout=20, wait_for_ready=True)

def fields(message):
    out, at = {}, 0
    while at < len(message):
        number, length = message[at] >> 3, message[at + 1]
        assert message[at] & 7 == 2 and length < 128
        out[number] = message[at + 2:at + 2 + length]
        at += 2 + length
    return out

path = sys.argv[1]
for authority in [None, path, path.replace("/", "%2F"), "localhost", "@kms"]:
    options = [] if authority is None else [("grpc.default_authority", authority)]
    with grpc.insecure_channel("unix:" + path, options=options) as channel:
        v2 = "/v2.KeyManagementService/"
        status = fields(call(channel, v2 + "Status", b""))
        wrapped = fields(call(channel, v2 + "Encrypt", field(1, b"the seed") + field(2, b"u-1")))
        request = field(1, wrapped[1]) + field(2, b"u-2") + field(3, wrapped[2]) + field(4, wrapped[3])
        opened = fields(call(channel, v2 + "Decrypt", request))
        print("v2", status[1].decode(), status[2].decode(), status[3].decode(), opened[1].decode())
        v1, version = "/v1beta1.KeyManagementService/", field(1, b"v1beta1")
        name = fields(call(channel, v1 + "Version", version))[2].decode()
        answer = call(channel, v1 + "Encrypt", version + field(2, b"ping"))
        # The cipher is longer than 127 bytes: its length takes two.
        assert answer[0] == 10
        opened = fields(call(channel, v1 + "Decrypt", version + b"\x12" + answer[1:]))
        print("v1beta1", name, opened[1].decode())
        try:
            call(channel, v2 + "Decrypt", field(1, b"x") + field(3, b"unknown"))
        except grpc.RpcError as error:
            print(error.code().name, error.details())
"#;

#[tokio::test(flavor = "multi_thread")]
async fn all_methods_are_answered_whatever_the_authority() {
    let server = Running::start(Arc::new(Memory::local())).await;
    server.until_healthy().await;
    let mut client = Command::new(python());
    client.arg("-c").arg(CLIENT).arg(&server.path).stdin(Stdio::null());
    // It gives up by itself.
    let output = tokio::task::spawn_blocking(move || client.output()).await.unwrap().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let one =
        "v2 v2 ok kek-1 the seed\nv1beta1 atrest-kms-plugin ping\nNOT_FOUND no key has the ID sha256:of-the-test\n";
    assert_eq!(stdout, one.repeat(5), "{stderr}");
    assert!(output.status.success(), "{stderr}");
}
