use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atrest::snapshot::{Input, Mode, Options, Snapshot};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// A file of `tests/vectors/etcd`.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/etcd").join(name)
}

/// Its bytes, unpacked.
pub(crate) fn bytes(name: &str) -> Vec<u8> {
    let packed = std::fs::read(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    if !name.ends_with("gz") {
        return packed;
    }
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes).expect("gzip");
    bytes
}

/// Its lines.
pub(crate) fn lines(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

pub(crate) const STRICT: Options = Options { mode: Mode::Strict, meta: atrest::snapshot::MetaChoice::Auto };
pub(crate) const SALVAGE: Options = Options { mode: Mode::Salvage, meta: atrest::snapshot::MetaChoice::Auto };

/// A snapshot of the vectors, read strictly.
pub(crate) fn snapshot(name: &str) -> Arc<Snapshot> {
    of_bytes(bytes(name))
}

pub(crate) fn of_bytes(bytes: Vec<u8>) -> Arc<Snapshot> {
    Arc::new(Snapshot::from_input(Input::from(bytes), STRICT).expect("a snapshot"))
}

/// Bytes as the expected files have them: text where all of it can be printed, and base64 elsewhere.
pub(crate) fn shown(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control()) => json!(text),
        _ => json!({ "b64": STANDARD.encode(bytes) }),
    }
}

/// At most so many bytes of a value are in the expected files.
pub(crate) fn cut(bytes: &[u8]) -> Value {
    shown(&bytes[..bytes.len().min(64)])
}
