//! A folder with keyrings, in which the program is run in an environment without anything.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use atrest_kms_plugin::backend::keyring::KeyringBackend;
use atrest_kms_plugin::keyring::{Keyring, Opener, Source, State};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const PASSPHRASE: &str = "hunter2-Correct-Horse-Battery-Staple";

/// What came of a run.
pub(crate) struct Run {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// Holds the run to its exit code, and shows what it said if that is another.
    #[track_caller]
    pub(crate) fn exits(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "stderr: {}\nstdout: {}", self.stderr, self.stdout);
        self
    }

    /// Standard output as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).expect(&self.stdout)
    }

    /// The ID of the only key that is shown.
    pub(crate) fn key_id(&self) -> String {
        let json = self.json();
        assert_eq!(json["keys"].as_array().map(Vec::len), Some(1), "{json}");
        json["keys"][0]["key_id"].as_str().expect("a key ID").to_owned()
    }
}

pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file of mode 0600.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a file");
        set_mode(&path, 0o600);
        path
    }

    /// Copies a vector, with mode 0600.
    pub(crate) fn vector(&self, name: &str) -> PathBuf {
        self.write(name, std::fs::read(vectors().join(name)).expect(name))
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_atrest-kms-plugin"));
        command.args(args).env_clear().current_dir(self.0.path());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Run {
        finish(&mut self.command(args))
    }

    /// Makes a keyring that is not sealed.
    pub(crate) fn keygen(&self, name: &str) -> PathBuf {
        self.run(&["keygen", "--plain", "--keyring", name]).exits(0);
        self.path(name)
    }

    /// All files of the folder.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("a folder");
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

pub(crate) fn finish(command: &mut Command) -> Run {
    let output = command.output().expect("the program");
    Run {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

pub(crate) fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/keyring")
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
}

pub(crate) fn by_passphrase(path: PathBuf) -> Opener {
    Opener::Passphrase(Source::File(path))
}

/// A keyring that is not sealed.
pub(crate) fn keyring(path: &Path) -> Keyring {
    Keyring::open(path, &Opener::Plain).expect("a keyring")
}

/// The backend of a keyring that is not sealed.
pub(crate) fn backend(path: &Path) -> KeyringBackend {
    KeyringBackend::open(path, Opener::Plain).expect("a keyring")
}

/// The IDs and states of a keyring.
pub(crate) fn states(keyring: &Keyring) -> Vec<(String, State)> {
    keyring.ring().keys().map(|key| (key.id.as_str().to_owned(), key.state)).collect()
}
