use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::{Checks, Options};
use crate::kms::connection::socket_path;

/// What an HTTP/2 client sends first (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
/// The header block of an answer begins with `:status: 200`, the eighth entry of HPACK's static table (RFC 7541, appendix A).
const STATUS_200: u8 = 0x88;

/// Whether requests of every kube-apiserver are answered.
///
/// Clients of KMS v1, and of KMS v2 before Kubernetes 1.32, send the path of the socket as `:authority`, as it is or
/// percent-encoded; strict HTTP/2 servers reset such streams. No client library sends that, so the frames are made by hand.
pub(super) async fn check(options: &Options, method: &str, checks: &mut Checks) {
    let path = options.endpoint.dial_address().to_string();
    let encoded = path.replace('/', "%2F");
    let mut refused = Vec::new();
    for (name, authority) in [("the path of the socket", path.as_str()), ("its percent-encoded form", &encoded)] {
        let answered = tokio::time::timeout(Duration::from_secs(5), ask(options, method, authority)).await;
        match answered {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(how))) => refused.push(format!("{name} {how}")),
            Ok(Err(error)) => refused.push(format!("{name} ends the connection ({error})")),
            Err(_) => refused.push(format!("{name} is not answered")),
        }
    }
    if refused.is_empty() {
        return checks.pass("authority", "requests with the path of the socket as :authority are answered");
    }
    let refused = refused.join(", ");
    match checks.api {
        "v1beta1" => checks.fail(
            "authority",
            format!("as :authority of a request, {refused}: no kube-apiserver can use KMS v1 of this plugin over this socket"),
        ),
        _ => checks.warn(
            "authority",
            format!("as :authority of a request, {refused}: kube-apiserver before 1.32 cannot use this plugin over this socket"),
        ),
    }
}

/// Sends an empty request; says how it is refused, or nothing when it is answered.
async fn ask(options: &Options, method: &str, authority: &str) -> io::Result<Option<String>> {
    let Some(path) = socket_path(options.endpoint.dial_address()) else { return Ok(None) };
    let mut stream = UnixStream::connect(path).await?;
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", authority),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        // A literal header field without indexing, with a new name (RFC 7541, section 6.2.2).
        block.push(0);
        string(name, &mut block);
        string(value, &mut block);
    }
    let mut request = PREFACE.to_vec();
    frame(SETTINGS, 0, 0, &[], &mut request);
    frame(HEADERS, 0x4, 1, &block, &mut request);
    // A gRPC message of no bytes, and the end of the stream.
    frame(DATA, 0x1, 1, &[0; 5], &mut request);
    stream.write_all(&request).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, _, _, _, stream_id] = head;
        let length = u64::from(u32::from_be_bytes([0, a, b, c]));
        let mut payload = Vec::new();
        (&mut stream).take(length).read_to_end(&mut payload).await?;
        match kind {
            SETTINGS if flags & 1 == 0 => {
                let mut acknowledgement = Vec::new();
                frame(SETTINGS, 1, 0, &[], &mut acknowledgement);
                stream.write_all(&acknowledgement).await?;
            }
            HEADERS if stream_id == 1 && begins_with_200(flags, &payload) => return Ok(None),
            HEADERS if stream_id == 1 => return Ok(Some("is answered with another status than 200".to_owned())),
            RST_STREAM => {
                let code = payload.first_chunk::<4>().map(|code| u32::from_be_bytes(*code));
                return Ok(Some(match code {
                    Some(1) => "is reset with PROTOCOL_ERROR".to_owned(),
                    code => format!("is reset with code {}", code.unwrap_or_default()),
                }));
            }
            GOAWAY => return Ok(Some("ends the connection".to_owned())),
            _ => {}
        }
    }
}

/// Whether a header block says 200 first, after padding's length, priority and updates of the table's size.
fn begins_with_200(flags: u8, payload: &[u8]) -> bool {
    let skipped = usize::from(flags & 0x8 != 0) + if flags & 0x20 != 0 { 5 } else { 0 };
    let block = payload.get(skipped..).unwrap_or_default();
    // An update is a number with a prefix of five bits (RFC 7541, section 6.3), which may go on behind it.
    let is_part_of_update = |(i, byte): &(usize, &u8)| match i {
        0 => **byte & 0xe0 == 0x20,
        _ => **byte & 0xe0 == 0x20 || block.get(i - 1).is_some_and(|before| *before == 0x3f || *before & 0x80 != 0),
    };
    block.iter().enumerate().find(|part| !is_part_of_update(part)).is_some_and(|(_, byte)| *byte == STATUS_200)
}

/// RFC 9113, section 4.1.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// A string without Huffman coding (RFC 7541, sections 5.1 and 5.2).
fn string(text: &str, out: &mut Vec<u8>) {
    match u8::try_from(text.len()) {
        Ok(short) if short < 127 => out.push(short),
        // What is beyond the seven bits of the prefix follows as a varint.
        _ => {
            out.push(127);
            prost::encoding::encode_varint(text.len() as u64 - 127, out);
        }
    }
    out.extend_from_slice(text.as_bytes());
}
