//! The bytes of a file, read where they are wanted and never written, locked or mapped.

use std::fs::File;
use std::io;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// How much is read at once where all of it is.
const CHUNK: u64 = 1024 * 1024;

/// A file that is read at positions, or bytes in memory.
///
/// A mapping would be quicker to use, but a file that somebody else cuts short while it is mapped ends the process.
pub struct Input {
    bytes: Bytes,
    len: u64,
}

enum Bytes {
    File { file: File, at_open: Fingerprint },
    Memory(Vec<u8>),
}

/// What changes when somebody writes to a file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Fingerprint {
    len: u64,
    modified: (i64, i64),
}

impl Fingerprint {
    fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self { len: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()) })
    }
}

impl Input {
    /// Opens a file for reading. etcd's lock on it is neither taken nor waited for.
    ///
    /// # Errors
    ///
    /// When it cannot be opened, or is a directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        let at_open = Fingerprint::of(&file)?;
        Ok(Self { len: at_open.len, bytes: Bytes::File { file, at_open } })
    }

    /// How many bytes there are; of a file, when it was opened.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// When there are not so many, or they cannot be read.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match &self.bytes {
            Bytes::File { file, .. } => file.read_exact_at(buffer, offset),
            Bytes::Memory(bytes) => {
                let start = usize::try_from(offset).ok();
                let part = start.and_then(|start| bytes.get(start..start.checked_add(buffer.len())?));
                buffer.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }

    /// Reads `len` bytes from `offset` on into `buffer`, which then holds them and nothing else. Nothing is allocated for bytes
    /// that are not there.
    ///
    /// # Errors
    ///
    /// When there are not so many, or they cannot be read.
    pub fn read_into(&self, offset: u64, len: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len).ok_or(io::ErrorKind::UnexpectedEof)?;
        let len = usize::try_from(end - offset).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // Zeroing what is overwritten at once would cost as much as reading it.
        buffer.truncate(len);
        buffer.resize(len, 0);
        self.read_at(offset, buffer)
    }

    /// Reads the bytes of `range` in order, a mebibyte at once, until `visit` has seen enough.
    ///
    /// # Errors
    ///
    /// When there are not so many, or they cannot be read.
    pub(super) fn chunks(
        &self,
        range: Range<u64>,
        mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> io::Result<ControlFlow<()>> {
        let mut buffer = Vec::new();
        let mut offset = range.start;
        while offset < range.end {
            let len = CHUNK.min(range.end - offset);
            self.read_into(offset, len, &mut buffer)?;
            if visit(&buffer).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            offset += len;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The SHA-256 of the first `len` bytes.
    ///
    /// # Errors
    ///
    /// When there are not so many, or they cannot be read.
    pub(super) fn sha256(&self, len: u64) -> io::Result<[u8; 32]> {
        let mut hash = Sha256::new();
        _ = self.chunks(0..len, |chunk| {
            hash.update(chunk);
            ControlFlow::Continue(())
        })?;
        Ok(hash.finalize().into())
    }

    /// Whether the file was written to since it was opened.
    ///
    /// # Errors
    ///
    /// When that cannot be asked.
    pub fn has_changed(&self) -> io::Result<bool> {
        match &self.bytes {
            Bytes::File { file, at_open } => Ok(Fingerprint::of(file)? != *at_open),
            Bytes::Memory(_) => Ok(false),
        }
    }
}

impl From<Vec<u8>> for Input {
    fn from(bytes: Vec<u8>) -> Self {
        Self { len: bytes.len() as u64, bytes: Bytes::Memory(bytes) }
    }
}

/// How much there is, and not what: free pages hold plaintext.
impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Input([{} bytes])", self.len)
    }
}
