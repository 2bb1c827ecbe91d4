//! Snapshots and data directories of the vectors, and the program on them.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::run::{File, Run, atrest, vectors};

/// A snapshot that kube-apiserver wrote through several local providers.
pub(crate) const LOCAL: &str = "tests/vectors/snapshots/local.db.gz";

/// A file of the vectors, from where the program runs.
pub(crate) fn etcd(name: &str) -> String {
    format!("tests/vectors/etcd/{name}")
}

/// Its bytes, unpacked.
pub(crate) fn unpacked(path: &str) -> Vec<u8> {
    let packed = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path);
    if !path.ends_with(".gz") {
        return packed;
    }
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes).expect("gzip");
    bytes
}

/// The configuration of [`LOCAL`], as a file that only its owner can read.
pub(crate) fn local_config() -> File {
    File::new(std::fs::read(vectors().join("snapshots/encryption-config-local.yaml")).expect("a configuration"))
}

/// What [`LOCAL`] is read with.
pub(crate) fn with_keys(config: &File, args: &[&str]) -> Run {
    atrest(&[args, &["--encryption-provider-config", config.path()]].concat(), b"")
}

/// Standard output as one JSON value.
pub(crate) fn json_of(run: &Run) -> Value {
    serde_json::from_str(run.text()).expect("JSON")
}

/// A directory of a test.
pub(crate) struct Dir(TempDir);

impl Dir {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A path as an argument.
    pub(crate) fn arg(&self, name: &str) -> String {
        self.join(name).to_str().expect("a path").to_owned()
    }

    /// Writes a file, and the directories above it.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("directories");
        std::fs::write(&path, bytes).expect("a file");
        self.arg(name)
    }

    /// Every file below, with `/` and in order; a directory ends with a slash.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut left = vec![self.0.path().to_owned()];
        while let Some(directory) = left.pop() {
            for entry in std::fs::read_dir(directory).expect("a directory") {
                let entry = entry.expect("an entry");
                let path = entry.path();
                let name = path.strip_prefix(self.0.path()).expect("below").to_str().expect("a name").to_owned();
                match entry.file_type().expect("a type").is_dir() {
                    true => {
                        found.push(format!("{name}/"));
                        left.push(path);
                    }
                    false => found.push(name),
                }
            }
        }
        found.sort_unstable();
        found
    }
}

/// The permissions of a file.
pub(crate) fn mode(path: impl AsRef<Path>) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::symlink_metadata(path).expect("a file").permissions().mode() & 0o7777
}
