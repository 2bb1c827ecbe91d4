//! Runs the program, in an environment without anything.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tempfile::NamedTempFile;

/// What came of a run.
pub(crate) struct Run {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Run {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("text")
    }

    /// Standard output as lines of JSON.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    /// Holds the run to its exit code, and shows what it said if that is another.
    #[track_caller]
    pub(crate) fn exits(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "stderr: {}\nstdout: {}", self.stderr, self.stdout.escape_ascii());
        self
    }
}

/// The program, with an environment that changes nothing.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atrest"));
    command.args(args).env_clear().current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// Runs the program to its end.
pub(crate) fn atrest(args: &[&str], stdin: &[u8]) -> Run {
    finish(command(args), stdin)
}

pub(crate) fn finish(mut command: Command, stdin: &[u8]) -> Run {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the program");
    let mut input = child.stdin.take().expect("standard input");
    let output = std::thread::scope(|scope| {
        // A program that ends before it has read everything breaks the pipe; that is its business.
        scope.spawn(move || _ = input.write_all(stdin));
        child.wait_with_output().expect("the program's output")
    });
    Run {
        status: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr).expect("standard error is text"),
    }
}

/// A file that only its owner can read.
pub(crate) struct File(NamedTempFile);

impl File {
    pub(crate) fn new(text: impl AsRef<[u8]>) -> Self {
        let mut file = NamedTempFile::new().expect("a file");
        file.write_all(text.as_ref()).expect("a file");
        Self(file)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.path().to_str().expect("a path")
    }

    pub(crate) fn set_mode(&self, mode: u32) {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(self.path(), std::fs::Permissions::from_mode(mode)).expect("a mode");
    }
}

/// A configuration whose secrets have these providers.
pub(crate) fn config(providers: &[&str]) -> File {
    let mut text = String::from(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  \
         providers:\n",
    );
    for provider in providers {
        text.push_str(&format!("  - {provider}\n"));
    }
    File::new(text)
}

/// A provider with one key.
pub(crate) fn provider(kind: &str, name: &str, secret: &str) -> String {
    format!("{kind}: {{keys: [{{name: '{name}', secret: {secret}}}]}}")
}

/// 32 bytes of 1, and 32 bytes of 2.
pub(crate) const K1: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
pub(crate) const K2: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";

/// The etcd key of the values of `cases.json`.
pub(crate) const DEMO: &str = "/registry/secrets/default/demo";

pub(crate) fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

/// Something of `cases.json`, by its JSON pointer.
pub(crate) fn case(pointer: &str) -> String {
    let text = std::fs::read_to_string(vectors().join("cases.json")).expect("cases.json");
    let cases: Value = serde_json::from_str(&text).expect("JSON");
    cases.pointer(pointer).and_then(Value::as_str).expect(pointer).to_owned()
}

pub(crate) fn decode(base64: &str) -> Vec<u8> {
    STANDARD.decode(base64).expect("base64")
}

pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}
