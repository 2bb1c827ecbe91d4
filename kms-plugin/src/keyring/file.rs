//! The file of a keyring: read with its owner and mode, replaced whole or not at all.

use std::fs::{File, Metadata, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use zeroize::Zeroizing;

use super::Error;

/// The largest file, in bytes.
pub(super) const MAX_LEN: usize = 1024 * 1024;

/// How a file is opened to be read; without waiting for the other end of a pipe.
const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Of the names of files that are to replace another.
const RANDOM_LEN: usize = 12;

/// How long a change waits for another one to end.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// What changes when a file changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
    /// With the mode and the owner.
    changed: (i64, i64),
}

impl Signature {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Of the file that has this name now.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        std::fs::metadata(path).map(|metadata| Self::of(&metadata))
    }
}

/// A file as it was at one time.
pub(super) struct Snapshot {
    pub(super) text: Zeroizing<Vec<u8>>,
    metadata: Metadata,
}

impl Snapshot {
    pub(super) fn signature(&self) -> Signature {
        Signature::of(&self.metadata)
    }

    /// Whether only we and root can read it and could have written it.
    pub(super) fn check_private(&self) -> Result<(), Error> {
        let mode = self.metadata.permissions().mode() & 0o777;
        check_private(self.metadata.uid(), mode, rustix::process::geteuid().as_raw())
    }
}

fn check_private(uid: u32, mode: u32, own: u32) -> Result<(), Error> {
    if uid != 0 && uid != own {
        return Err(Error::Owner { uid });
    }
    if mode & 0o077 != 0 {
        return Err(Error::Mode { mode });
    }
    Ok(())
}

/// Reads a file, also through a symbolic link, as the volumes of Kubernetes have them.
pub(super) fn read(path: &Path) -> Result<Snapshot, Error> {
    read_opened(&open(path, OFlags::empty())?)
}

fn open(path: &Path, flags: OFlags) -> Result<File, Error> {
    match rustix::fs::open(path, READ.union(flags), Mode::empty()) {
        Ok(file) => Ok(file.into()),
        Err(rustix::io::Errno::LOOP) if flags.contains(OFlags::NOFOLLOW) => Err(Error::SymbolicLink),
        Err(errno) => Err(Error::Io { action: "read", source: errno.into() }),
    }
}

fn read_opened(file: &File) -> Result<Snapshot, Error> {
    let metadata = file.metadata().map_err(Error::io("read"))?;
    if !metadata.is_file() {
        return Err(Error::NotAFile);
    }
    // One buffer of the full size, so that no part of the keys stays behind in a smaller one.
    let mut text = Zeroizing::new(Vec::with_capacity(MAX_LEN + 1));
    file.take(MAX_LEN as u64 + 1).read_to_end(&mut text).map_err(Error::io("read"))?;
    if text.len() > MAX_LEN {
        return Err(Error::TooLarge);
    }
    Ok(Snapshot { text, metadata })
}

/// Creates a file of mode 0600, unless there is one.
pub(super) fn create(path: &Path, text: &[u8]) -> Result<(), Error> {
    // One after the other, so that none of them sees the file that another is about to put there, and takes that for a leftover.
    let folder = File::open(folder(path)).map_err(Error::io("write beside"))?;
    let deadline = Instant::now() + LOCK_TIMEOUT;
    while !try_lock(&folder)? {
        wait_until(deadline)?;
    }
    if std::fs::symlink_metadata(path).is_ok() {
        return Err(Error::Exists);
    }
    let new = write_beside(path, text, None)?;
    new.persist_noclobber(path).map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => Error::Exists,
        _ => Error::Io { action: "create", source: error.error },
    })?;
    sync_dir(path)
}

/// A file that this process alone changes.
pub(super) struct Locked {
    path: PathBuf,
    file: File,
}

/// Locks the file that has this name; a symbolic link is refused, since its replacement would not be one.
///
/// The lock (flock) lies on the file itself, so it ends with the process, and nothing else has to be kept.
pub(super) fn lock(path: &Path) -> Result<Locked, Error> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        let file = open(path, OFlags::NOFOLLOW)?;
        if try_lock(&file)? {
            // Whoever had the lock may have put another file in its place.
            let ours = Signature::of(&file.metadata().map_err(Error::io("read"))?);
            if Signature::at(path).is_ok_and(|named| (named.device, named.inode) == (ours.device, ours.inode)) {
                remove_leftovers(path);
                return Ok(Locked { path: path.to_owned(), file });
            }
        }
        wait_until(deadline)?;
    }
}

fn try_lock(file: &File) -> Result<bool, Error> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(source)) => Err(Error::Io { action: "lock", source }),
    }
}

/// A moment, unless that time has come.
fn wait_until(deadline: Instant) -> Result<(), Error> {
    if Instant::now() > deadline {
        return Err(Error::Busy);
    }
    std::thread::sleep(Duration::from_millis(10));
    Ok(())
}

impl Locked {
    pub(super) fn read(&self) -> Result<Snapshot, Error> {
        read_opened(&self.file)
    }

    /// Puts another text in its place, with the same owner, group and mode; keys in the clear are for the owner alone. A reader
    /// finds the one or the other.
    pub(super) fn replace(self, text: &[u8], is_sealed: bool) -> Result<(), Error> {
        let metadata = self.file.metadata().map_err(Error::io("read"))?;
        let mode = metadata.permissions().mode() & if is_sealed { 0o777 } else { 0o700 };
        let like = Like { owner: metadata.uid(), group: metadata.gid(), mode };
        let new = write_beside(&self.path, text, Some(&like))?;
        new.persist(&self.path).map_err(|error| Error::Io { action: "replace", source: error.error })?;
        sync_dir(&self.path)
    }
}

/// What a new file has of the one before.
struct Like {
    owner: u32,
    group: u32,
    mode: u32,
}

/// Writes a file in the same folder, and does not return before it is on the disk.
fn write_beside(path: &Path, text: &[u8], like: Option<&Like>) -> Result<tempfile::NamedTempFile, Error> {
    let (prefix, suffix) = beside(path)?;
    // It is made with O_EXCL and mode 0600.
    let new = tempfile::Builder::new().prefix(&prefix).suffix(suffix).rand_bytes(RANDOM_LEN).tempfile_in(folder(path));
    let mut new = new.map_err(Error::io("write beside"))?;
    fill(new.as_file_mut(), text, like).map_err(Error::io("write beside"))?;
    Ok(new)
}

fn fill(file: &mut File, text: &[u8], like: Option<&Like>) -> io::Result<()> {
    file.write_all(text)?;
    if let Some(like) = like {
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (like.owner, like.group) {
            std::os::unix::fs::fchown(&*file, Some(like.owner), Some(like.group))?;
        }
        file.set_permissions(std::fs::Permissions::from_mode(like.mode))?;
    }
    file.sync_all()
}

/// Removes what a process that was killed left. Only a process with the lock writes such files: of a file that is there, the one on it;
/// of one that is not there yet, the one on its folder.
fn remove_leftovers(path: &Path) {
    let Ok((prefix, suffix)) = beside(path) else { return };
    for entry in std::fs::read_dir(folder(path)).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if is_beside(&name, &prefix, suffix) {
            match std::fs::remove_file(entry.path()) {
                Ok(()) => tracing::warn!("removed {}, which an interrupted change left", entry.path().display()),
                Err(error) => tracing::warn!("cannot remove {}: {error}", entry.path().display()),
            }
        }
    }
}

/// Whether it is the name of a file that is to replace this one. One that is to replace `keyring.b` begins and ends as one for `keyring`.
fn is_beside(name: &str, prefix: &str, suffix: &str) -> bool {
    let random = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix));
    random.is_some_and(|random| random.len() == RANDOM_LEN && random.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// How the names of files begin and end that are to replace this one.
fn beside(path: &Path) -> Result<(String, &'static str), Error> {
    let name = path.file_name().ok_or(Error::NotAFile)?;
    Ok((format!(".{}.", name.to_string_lossy()), ".atrest-new"))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync_dir(path: &Path) -> Result<(), Error> {
    File::open(folder(path)).and_then(|dir| dir.sync_all()).map_err(Error::io("save the folder of"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rotation of `keyring` removed what one of `keyring.b` was about to put in its place, which then failed.
    #[test]
    fn what_replaces_one_file_is_no_leftover_of_another() {
        let is_of = |name: &str, path: &str| {
            let (prefix, suffix) = beside(Path::new(path)).unwrap();
            is_beside(name, &prefix, suffix)
        };
        assert!(is_of(".keyring.abcDEF012345.atrest-new", "keyring"));
        assert!(is_of(".keyring.b.abcDEF012345.atrest-new", "keyring.b"));
        for other in [
            ".keyring.b.abcDEF012345.atrest-new",
            ".keyring.b.abcDEF0123.atrest-new",
            ".keyring.abcDEF01234.atrest-new",
            ".keyring..atrest-new",
            ".keyring.atrest-new",
            "keyring",
        ] {
            assert!(!is_of(other, "keyring"), "{other}");
        }
    }

    #[test]
    fn keys_in_the_clear_are_for_us_and_root_alone() {
        for (uid, mode, own) in [(0, 0o600, 0), (0, 0o400, 1000), (1000, 0o600, 1000), (1000, 0o700, 1000)] {
            check_private(uid, mode, own).unwrap();
        }
        for (uid, own) in [(1000, 0), (1001, 1000)] {
            assert!(matches!(check_private(uid, 0o600, own), Err(Error::Owner { uid: owner }) if owner == uid));
        }
        for mode in [0o601, 0o602, 0o604, 0o610, 0o620, 0o640, 0o777] {
            assert!(matches!(check_private(0, mode, 0), Err(Error::Mode { mode: found }) if found == mode));
        }
    }
}
