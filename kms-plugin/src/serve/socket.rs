//! A listening unix socket and its file. unix(7).
//!
//! Nobody can connect before the file has its mode and group: both are set between bind and listen. Two servers that start
//! together do not take each other's socket for a left one: while one looks and binds, it holds a lock (flock(2)) on a file beside
//! the socket. Nobody else can open that file, so nobody can keep the lock from us; a folder that others can read is no such file.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use atrest::config::{DialAddress, Endpoint};
use rustix::fs::{AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

const BACKLOG: i32 = 128;
const LOCK_TIME: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Who may connect to a socket in the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The mode of its file; to connect is to write.
    pub mode: u32,
    /// The group of its file, when it is not this process's.
    pub group: Option<u32>,
}

impl Default for Access {
    /// Only this process's user.
    fn default() -> Self {
        Self { mode: 0o600, group: None }
    }
}

/// Why a socket cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL has no path.
    #[error("{endpoint} names no socket")]
    NoAddress {
        /// The URL.
        endpoint: String,
    },
    /// Something that is not a socket is there, and is left alone.
    #[error("{} is {what}, and no socket", path.display())]
    NotASocket {
        /// Where.
        path: PathBuf,
        /// What is there.
        what: &'static str,
    },
    /// Another process listens.
    #[error("another process listens on {address}")]
    InUse {
        /// Where.
        address: String,
    },
    /// Another process of ours holds the lock.
    #[error("another process is starting, and holds the lock on {}", path.display())]
    Locked {
        /// The lock's file.
        path: PathBuf,
    },
    /// Where the lock's file is to be there is something that others could lock.
    #[error("{} is not a file that only this process's user can open", path.display())]
    ForeignLock {
        /// The lock's file.
        path: PathBuf,
    },
    /// The operating system refuses.
    #[error("cannot {operation} {address}")]
    System {
        /// What was to be done.
        operation: &'static str,
        /// With what.
        address: String,
        /// Why not.
        source: io::Error,
    },
}

/// A socket that is listened on.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) listener: UnixListener,
    /// None in Linux' abstract namespace.
    pub(super) file: Option<SocketFile>,
}

impl Socket {
    /// Listens where the endpoint says. What a killed server has left there is removed.
    pub(super) fn bind(endpoint: &Endpoint, access: Access) -> Result<Self, Error> {
        match endpoint.dial_address() {
            DialAddress::Path(path) => Self::bind_path(path, access),
            DialAddress::Abstract(name) => Self::bind_abstract(name),
            DialAddress::None => Err(Error::NoAddress { endpoint: endpoint.to_string() }),
        }
    }

    fn bind_abstract(name: &[u8]) -> Result<Self, Error> {
        let address = DialAddress::Abstract(name);
        let failed = system("listen on", address);
        let socket = new_socket().map_err(&failed)?;
        let name = SocketAddrUnix::new_abstract_name(name).map_err(&failed)?;
        match rustix::net::bind(&socket, &name) {
            Err(Errno::ADDRINUSE) => return Err(Error::InUse { address: address.to_string() }),
            result => result.map_err(&failed)?,
        }
        rustix::net::listen(&socket, BACKLOG).map_err(&failed)?;
        Ok(Self { listener: socket.into(), file: None })
    }

    fn bind_path(path: &Path, access: Access) -> Result<Self, Error> {
        let failed = system("listen on", DialAddress::Path(path));
        let address = SocketAddrUnix::new(path).map_err(&failed)?;
        let _lock = Lock::take(path)?;
        remove_left(path, &address)?;
        let socket = new_socket().map_err(&failed)?;
        {
            let _umask = Umask::set(Mode::XUSR | Mode::RWXG | Mode::RWXO);
            rustix::net::bind(&socket, &address).map_err(&failed)?;
        }
        let file = SocketFile::open(path)?;
        file.set_access(access)?;
        rustix::net::listen(&socket, BACKLOG).map_err(&failed)?;
        Ok(Self { listener: socket.into(), file: Some(file) })
    }
}

/// The file of a socket that this process has bound; it goes when this is dropped.
pub(super) struct SocketFile {
    path: PathBuf,
    /// It keeps the inode, whose number so means no other file, even after the file is deleted.
    handle: OwnedFd,
    identity: (u64, u64),
}

impl SocketFile {
    fn open(path: &Path) -> Result<Self, Error> {
        let failed = system("open", DialAddress::Path(path));
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::open(path, flags, Mode::empty()).map_err(&failed)?;
        let stat = rustix::fs::fstat(&handle).map_err(&failed)?;
        check_is_socket(path, FileType::from_raw_mode(stat.st_mode))?;
        Ok(Self { path: path.to_owned(), handle, identity: (stat.st_dev, stat.st_ino) })
    }

    fn set_access(&self, access: Access) -> Result<(), Error> {
        let address = DialAddress::Path(&self.path);
        if let Some(group) = access.group {
            rustix::fs::chownat(&self.handle, "", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH)
                .map_err(system("change the group of", address))?;
        }
        // By the handle, as whoever may write to the folder could have put something else there.
        let handle = format!("/proc/self/fd/{}", self.handle.as_raw_fd());
        let mode = Mode::from_raw_mode(access.mode);
        rustix::fs::chmod(handle, mode).map_err(system("change the mode of", address))
    }

    /// Whether the path still leads to this socket.
    pub(super) fn is_in_place(&self) -> bool {
        rustix::fs::lstat(&self.path).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.identity)
    }
}

/// Removes it, unless something else is there.
impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_in_place() {
            _ = rustix::fs::unlink(&self.path);
        }
    }
}

impl fmt::Debug for SocketFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The process's umask, until this is dropped. Files that other threads create meanwhile get less access, never more.
struct Umask {
    before: Mode,
}

impl Umask {
    fn set(mode: Mode) -> Self {
        Self { before: rustix::process::umask(mode) }
    }
}

impl Drop for Umask {
    fn drop(&mut self) {
        rustix::process::umask(self.before);
    }
}

/// Keeps other servers from looking at the same path at the same time. Its file goes when this is dropped.
struct Lock {
    path: PathBuf,
    file: OwnedFd,
}

impl Lock {
    fn take(socket: &Path) -> Result<Self, Error> {
        let path = lock_path(socket);
        let began = Instant::now();
        loop {
            let file = open_lock(&path, socket)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Whoever had it before may have removed the file; then this lock keeps nobody out.
                Ok(()) if is_at(&path, &file) => return Ok(Self { path, file }),
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) if began.elapsed() < LOCK_TIME => std::thread::sleep(LOCK_PAUSE),
                Err(Errno::WOULDBLOCK) => return Err(Error::Locked { path }),
                Err(errno) => return Err(system("lock", DialAddress::Path(&path))(errno)),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Before the lock goes, so that it is ours and no successor's.
        if is_at(&self.path, &self.file) {
            _ = rustix::fs::unlink(&self.path);
        }
    }
}

/// `.kms.sock.lock` for `kms.sock`.
fn lock_path(socket: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(socket.file_name().unwrap_or_default());
    name.push(".lock");
    socket.with_file_name(name)
}

fn open_lock(path: &Path, socket: &Path) -> Result<OwnedFd, Error> {
    let foreign = || Error::ForeignLock { path: path.to_owned() };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => file,
        Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Err(foreign()),
        Err(Errno::ACCESS | Errno::PERM) if rustix::fs::lstat(path).is_ok() => return Err(foreign()),
        Err(errno) => return Err(system("open", DialAddress::Path(socket.parent().unwrap_or(socket)))(errno)),
    };
    let stat = rustix::fs::fstat(&file).map_err(system("look at", DialAddress::Path(path)))?;
    if is_own(&stat, rustix::process::geteuid()) { Ok(file) } else { Err(foreign()) }
}

/// Whether nobody but this user can open it, or could at any time: a file keeps its locks when its mode changes.
fn is_own(stat: &Stat, user: Uid) -> bool {
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let is_closed = !Mode::from_raw_mode(stat.st_mode).intersects(Mode::RWXG | Mode::RWXO);
    is_file && is_closed && stat.st_uid == user.as_raw()
}

/// Whether the path leads to this file.
fn is_at(path: &Path, file: &OwnedFd) -> bool {
    let identity = |stat: Stat| (stat.st_dev, stat.st_ino);
    let (there, here) = (rustix::fs::lstat(path).map(identity), rustix::fs::fstat(file).map(identity));
    there.is_ok() && there == here
}

fn system(operation: &'static str, address: DialAddress<'_>) -> impl Fn(Errno) -> Error {
    let address = address.to_string();
    move |errno| Error::System { operation, address: address.clone(), source: errno.into() }
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Removes a socket that nobody listens on, and nothing else.
fn remove_left(path: &Path, address: &SocketAddrUnix) -> Result<(), Error> {
    let failed = system("look at", DialAddress::Path(path));
    match rustix::fs::lstat(path) {
        Ok(stat) => check_is_socket(path, FileType::from_raw_mode(stat.st_mode))?,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(failed(errno)),
    }
    let in_use = || Err(Error::InUse { address: path.display().to_string() });
    let probe = new_socket().map_err(&failed)?;
    match rustix::net::connect(&probe, address) {
        Err(Errno::CONNREFUSED) => {}
        Err(Errno::NOENT) => return Ok(()),
        // A full backlog is somebody's, and so is a socket of another type.
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => return in_use(),
        Err(errno) => return Err(failed(errno)),
    }
    match rustix::fs::unlink(path) {
        Ok(()) => {
            tracing::info!("removed the socket {} on which nobody listens", path.display());
            Ok(())
        }
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(system("remove", DialAddress::Path(path))(errno)),
    }
}

fn check_is_socket(path: &Path, kind: FileType) -> Result<(), Error> {
    let what = match kind {
        FileType::Socket => return Ok(()),
        FileType::RegularFile => "a file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a symbolic link",
        _ => "a device or a pipe",
    };
    Err(Error::NotASocket { path: path.to_owned(), what })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_lock_that_others_can_open_is_not_ours() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        std::fs::write(&path, "").unwrap();
        let user = rustix::process::geteuid();
        for (mode, expected) in [(0o600, true), (0o400, true), (0o604, false), (0o640, false), (0o610, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_own(&rustix::fs::lstat(&path).unwrap(), user), expected, "{mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let stat = rustix::fs::lstat(&path).unwrap();
        assert!(!is_own(&stat, Uid::from_raw(user.as_raw() + 1)), "another user's");
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        assert!(!is_own(&rustix::fs::lstat(folder.path()).unwrap(), user), "a folder");
    }
}
