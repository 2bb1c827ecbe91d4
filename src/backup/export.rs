use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::get::Got;

/// Where objects are written, each when it comes.
///
/// Files are for their owner alone, and no symbolic link is followed. An export that was interrupted goes on where it ended.
#[derive(Debug)]
pub enum Export {
    /// A file for each object: `NAMESPACE/RESOURCE/NAME.yaml`, and `_cluster` in place of a namespace where there is none.
    Tree {
        /// The directory.
        directory: PathBuf,
        /// Whether what is there already is left as it is.
        resume: bool,
        /// The directories that are known to be there.
        made: BTreeSet<PathBuf>,
        /// Hashes of the files that objects have had: another one has another name.
        taken: HashSet<[u8; 16]>,
    },
    /// A line for each object.
    Lines {
        /// The file.
        file: io::BufWriter<File>,
        /// Where it is.
        path: PathBuf,
        /// The etcd keys of the lines that were there already, and the hashes of the lines. Not only the last of them: what could not be read the first time has no
        /// line, and is written when it can be.
        present: BTreeMap<Vec<u8>, [u8; 16]>,
    },
}

/// Why nothing, or nothing more, is exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// There is something already, and going on with it was not asked for.
    #[error("{} is there already, and is not an empty directory", path.display())]
    Exists {
        /// The directory or the file.
        path: PathBuf,
    },
    /// A file with other lines than an export writes. It stays as it is.
    #[error("{} was not written by an export: its line {line} has no etcd key", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The first such line, from 1.
        line: u64,
    },
    /// What is there already is not what this export writes: it was of another snapshot, another revision, or with other flags.
    #[error("{} holds something else than this export writes", path.display())]
    Other {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The directory or the file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exported {
    /// It was written.
    Written,
    /// It was there already.
    Skipped,
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ExportError {
    let path = path.to_owned();
    move |source| ExportError::Write { path, source }
}

impl Export {
    /// Begins a tree in a directory, which is made.
    ///
    /// # Errors
    ///
    /// When the directory is not empty and `resume` is not set, or it cannot be made.
    pub fn tree(directory: &Path, resume: bool) -> Result<Self, ExportError> {
        make_directory(directory).map_err(failed(directory))?;
        let mut entries = fs::read_dir(directory).map_err(failed(directory))?;
        if entries.next().is_some() && !resume {
            return Err(ExportError::Exists { path: directory.to_owned() });
        }
        Ok(Self::Tree { directory: directory.to_owned(), resume, made: BTreeSet::new(), taken: HashSet::new() })
    }

    /// Begins a file of lines, or goes on behind its last whole line.
    ///
    /// # Errors
    ///
    /// When the file exists and `resume` is not set or another program wrote it, or it cannot be written.
    pub fn lines(path: &Path, resume: bool) -> Result<Self, ExportError> {
        let existing = fs::symlink_metadata(path).ok();
        if existing.as_ref().is_some_and(|existing| !resume || !existing.is_file()) {
            return Err(ExportError::Exists { path: path.to_owned() });
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600).custom_flags(NO_FOLLOW);
        let file = if existing.is_some() { options.open(path) } else { options.create_new(true).open(path) };
        let mut file = file.map_err(failed(path))?;
        let present = keys_of_lines(&mut file, path)?;
        Ok(Self::Lines { file: io::BufWriter::with_capacity(256 * 1024, file), path: path.to_owned(), present })
    }

    /// Writes an object. `text` gives what is in its file or its line.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write(
        &mut self,
        got: &Got,
        text: impl FnOnce(&Got) -> io::Result<zeroize::Zeroizing<String>>,
    ) -> Result<Exported, ExportError> {
        match self {
            Self::Tree { directory, resume, made, taken } => {
                let (parent, mut path) = place(directory, got);
                // Below another prefix of etcd there may be an object of the same name. Objects come in the order of their keys, so
                // that it is the same one each time.
                if !taken.insert(short_hash(path.as_os_str().as_encoded_bytes())) {
                    path.set_extension(format!("~{}.yaml", short_hex(&got.row.key.0)));
                }
                if !made.contains(&parent) {
                    let middle = parent.parent().unwrap_or(directory).to_owned();
                    make_directory(&middle).map_err(failed(&middle))?;
                    make_directory(&parent).map_err(failed(&parent))?;
                    made.insert(parent);
                }
                let text = text(got).map_err(failed(&path))?;
                if *resume && path.symlink_metadata().is_ok() {
                    match existing(&path, text.len()).map_err(failed(&path))? {
                        there if *there == *text.as_bytes() => return Ok(Exported::Skipped),
                        // A crash may have left less of it.
                        there if text.as_bytes().starts_with(&there) => {}
                        _ => return Err(ExportError::Other { path }),
                    }
                }
                let unfinished = path.with_extension("yaml.part");
                _ = fs::remove_file(&unfinished);
                let mut file = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .custom_flags(NO_FOLLOW)
                    .open(&unfinished)
                    .map_err(failed(&unfinished))?;
                file.write_all(text.as_bytes()).map_err(failed(&unfinished))?;
                fs::rename(&unfinished, &path).map_err(failed(&path))?;
                Ok(Exported::Written)
            }
            Self::Lines { file, path, present } => {
                let line = text(got).map_err(failed(path))?;
                if let Some(hash) = present.get(&got.row.key.0) {
                    return match *hash == short_hash(line.as_bytes()) {
                        true => Ok(Exported::Skipped),
                        false => Err(ExportError::Other { path: path.clone() }),
                    };
                }
                file.write_all(line.as_bytes()).map_err(failed(path))?;
                Ok(Exported::Written)
            }
        }
    }

    /// Writes what is left.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn finish(self) -> Result<(), ExportError> {
        match self {
            Self::Tree { .. } => Ok(()),
            Self::Lines { mut file, path, .. } => {
                let done = file.flush().and_then(|()| file.get_ref().sync_all());
                done.map_err(failed(&path))
            }
        }
    }
}

/// The last part of a path is not followed when it is a symbolic link.
const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

fn make_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        // A link could lead anywhere.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && fs::symlink_metadata(path)?.is_dir() => Ok(()),
        done => done,
    }
}

/// What a file holds, up to a byte more than is expected.
fn existing(path: &Path, expected: usize) -> io::Result<zeroize::Zeroizing<Vec<u8>>> {
    let file = OpenOptions::new().read(true).custom_flags(NO_FOLLOW).open(path)?;
    let mut bytes = zeroize::Zeroizing::new(Vec::with_capacity(expected + 1));
    file.take(expected as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn short_hash(bytes: &[u8]) -> [u8; 16] {
    use sha2::Digest as _;
    let mut hash = [0; 16];
    hash.iter_mut().zip(sha2::Sha256::digest(bytes)).for_each(|(byte, of_hash)| *byte = of_hash);
    hash
}

/// So few digits that the longest name of a file still is one.
fn short_hex(bytes: &[u8]) -> String {
    let mut digits = hex::encode(short_hash(bytes));
    digits.truncate(16);
    digits
}

/// The directory and the file of an object.
fn place(directory: &Path, got: &Got) -> (PathBuf, PathBuf) {
    let row = &got.row;
    let namespace = row.namespace.as_deref().map_or_else(|| "_cluster".to_owned(), file_name);
    let resource = row.resource.as_deref().map_or_else(|| "_other".to_owned(), file_name);
    // What is no object of a resource has no name but its key.
    let name = row.name.clone().unwrap_or_else(|| row.key.to_string());
    let parent = directory.join(namespace).join(resource);
    let path = parent.join(format!("{}.yaml", file_name(&name)));
    (parent, path)
}

/// Longer names are cut, and told apart by their hash.
const MAX_NAME: usize = 200;

/// A name that is one of a file, whatever bytes it was made of.
fn file_name(name: &str) -> String {
    use std::fmt::Write as _;
    let mut safe = String::new();
    for (index, byte) in name.bytes().enumerate() {
        let is_safe = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b':') || (byte == b'.' && index > 0);
        if is_safe {
            safe.push(char::from(byte));
        } else {
            _ = write!(safe, "%{byte:02X}");
        }
    }
    if safe.len() > MAX_NAME {
        safe.truncate(MAX_NAME);
        _ = write!(safe, "~{}", short_hex(name.as_bytes()));
    }
    if safe.is_empty() { "%".to_owned() } else { safe }
}

/// The keys of all whole lines. What follows the last line feed is of an interrupted write, and is cut off.
fn keys_of_lines(file: &mut File, path: &Path) -> Result<BTreeMap<Vec<u8>, [u8; 16]>, ExportError> {
    let mut reader = BufReader::new(&mut *file);
    let (mut whole, mut number) = (0, 0);
    let mut keys = BTreeMap::new();
    let mut line = zeroize::Zeroizing::new(Vec::new());
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line).map_err(failed(path))?;
        if !line.ends_with(b"\n") {
            break;
        }
        number += 1;
        let key = key_of_line(&line).ok_or_else(|| ExportError::Foreign { path: path.to_owned(), line: number })?;
        keys.insert(key, short_hash(&line));
        whole += read as u64;
    }
    // The beginning of a line is ours when there are lines before it, or it looks like one.
    if whole == 0 && !line.is_empty() && !line.starts_with(b"{\"key") {
        return Err(ExportError::Foreign { path: path.to_owned(), line: 1 });
    }
    file.set_len(whole).and_then(|()| file.seek(SeekFrom::Start(whole))).map_err(failed(path))?;
    Ok(keys)
}

/// The etcd key of a line, as [`crate::report::EtcdKey`] writes it.
fn key_of_line(line: &[u8]) -> Option<Vec<u8>> {
    use base64::Engine as _;
    #[derive(serde::Deserialize)]
    struct Line {
        key: Option<String>,
        key_b64: Option<String>,
    }
    match serde_json::from_slice(line).ok()? {
        Line { key: Some(key), .. } => Some(key.into_bytes()),
        Line { key: None, key_b64 } => base64::engine::general_purpose::STANDARD.decode(key_b64?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_directory() {
        for (name, file) in [
            ("web", "web"),
            ("system:node:a", "system:node:a"),
            ("..", "%2E."),
            (".", "%2E"),
            ("", "%"),
            ("a/b", "a%2Fb"),
            ("/registry/ranges/x", "%2Fregistry%2Franges%2Fx"),
            ("a\0ü", "a%00%C3%BC"),
        ] {
            assert_eq!(file_name(name), file);
        }
        let long = file_name(&"x".repeat(300));
        assert_eq!(long.len(), MAX_NAME + 17);
        assert_ne!(long, file_name(&"x".repeat(301)));
    }
}
