use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::report::JournalEntry;

/// A file with a line of JSON for each write, without key material and without plaintext.
///
/// A line is written when etcd has confirmed the write. After a crash, the writes that were in flight are missing.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: BufWriter<File>,
}

/// The journal cannot be written. The operator can fix it.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", path.display())]
pub struct JournalError {
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

impl Journal {
    /// Opens a journal, at its end when it exists. It is readable by its owner alone, and never a symbolic link.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened, or is a symbolic link.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        // O_NOFOLLOW, which the standard library has no name for.
        #[cfg(any(target_arch = "aarch64", target_arch = "arm"))]
        const NO_FOLLOW: i32 = 0o100_000;
        #[cfg(not(any(target_arch = "aarch64", target_arch = "arm")))]
        const NO_FOLLOW: i32 = 0o400_000;
        let file = OpenOptions::new().create(true).append(true).mode(0o600).custom_flags(NO_FOLLOW).open(path);
        let error = |source| JournalError { path: path.to_owned(), source };
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file.map_err(error)?) })
    }

    /// Adds a line and hands it to the operating system.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write(&mut self, entry: &JournalEntry) -> Result<(), JournalError> {
        let written = serde_json::to_writer(&mut self.file, entry)
            .map_err(std::io::Error::from)
            .and_then(|()| self.file.write_all(b"\n"))
            .and_then(|()| self.file.flush());
        written.map_err(|source| JournalError { path: self.path.clone(), source })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}
