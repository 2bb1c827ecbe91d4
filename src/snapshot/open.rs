use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use super::error::{Compression, Error, Foreign};
use super::input::Input;

/// More than any etcd holds is not unpacked into memory: etcd's own advice is at most 8 GiB.
const MAX_UNPACKED: u64 = 8 * 1024 * 1024 * 1024;
/// And not more than so many times what is packed, beyond the first GiB.
const MAX_RATIO: u64 = 50;
const MIN_LIMIT: u64 = 1024 * 1024 * 1024;
/// The kind of a file shows in so many bytes.
const PEEK: usize = 512;

/// Opens a snapshot: a file as etcd wrote it, one that gzip, zstd or ZIP made of it, or standard input for `-`.
///
/// What is compressed is unpacked into memory: a temporary file would be one more place with plaintext in it.
pub(super) fn open(path: &Path) -> Result<Input, Error> {
    let failed = |source| Error::Open { path: path.to_owned(), source };
    let of_stream = |stream: &mut dyn Read| {
        let mut bytes = Vec::new();
        stream.take(MAX_UNPACKED + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > MAX_UNPACKED {
            return Err(failed(io::ErrorKind::FileTooLarge.into()));
        }
        match Kind::of(&bytes)? {
            Kind::Plain => Ok(bytes.into()),
            Kind::Compressed(compression) => unpack(compression, bytes.len() as u64, io::Cursor::new(bytes)),
        }
    };
    if path == Path::new("-") {
        return of_stream(&mut io::stdin().lock());
    }
    if path.is_dir() {
        return Err(Error::Directory { path: path.to_owned() });
    }
    let mut file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.file_type().is_fifo() {
        return of_stream(&mut file);
    }
    let mut start = Vec::new();
    (&mut file).take(PEEK as u64).read_to_end(&mut start).map_err(failed)?;
    match Kind::of(&start)? {
        Kind::Plain => Input::open(path).map_err(failed),
        Kind::Compressed(compression) => {
            file.rewind().map_err(failed)?;
            unpack(compression, metadata.len(), io::BufReader::with_capacity(256 * 1024, file))
        }
    }
}

enum Kind {
    Plain,
    Compressed(Compression),
}

impl Kind {
    fn of(start: &[u8]) -> Result<Self, Error> {
        let foreign = |what| Err(Error::Foreign { what });
        match start {
            [0x1f, 0x8b, ..] => Ok(Self::Compressed(Compression::Gzip)),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Self::Compressed(Compression::Zstd)),
            [b'P', b'K', 3 | 5, 4 | 6, ..] => Ok(Self::Compressed(Compression::Zip)),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => foreign(Foreign::Xz),
            _ if start.starts_with(b"SQLite format 3\0") => foreign(Foreign::Sqlite),
            _ if start.get(257..262) == Some(b"ustar") => foreign(Foreign::Tar),
            // The first record of a segment: type 4, a checksum of 0 to begin with, and four bytes of padding.
            [4, 0, 0, 0, 0, 0, 0, 0x84, 8, 4, 0x10, ..] => foreign(Foreign::Wal),
            _ => Ok(Self::Plain),
        }
    }
}

fn unpack(compression: Compression, packed_len: u64, packed: impl io::Seek + io::BufRead) -> Result<Input, Error> {
    let failed = |source| Error::Unpack { compression, source };
    // No snapshot shrinks to less; what does is made to fill the memory.
    let limit = packed_len.saturating_mul(MAX_RATIO).clamp(MIN_LIMIT, MAX_UNPACKED);
    let read = |unpacked: &mut dyn Read| read(compression, limit, unpacked);
    let bytes = match compression {
        Compression::Gzip => read(&mut flate2::bufread::MultiGzDecoder::new(packed))?,
        Compression::Zstd => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(packed);
            read(&mut decoder.map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error)))?)?
        }
        Compression::Zip => {
            let invalid = |error: zip::result::ZipError| failed(error.into());
            let mut archive = zip::ZipArchive::new(packed).map_err(invalid)?;
            let names = archive.file_names().collect::<Result<Vec<_>, _>>().map_err(invalid)?;
            let members: Vec<_> = names.iter().filter(|name| !name.ends_with('/')).map(ToString::to_string).collect();
            drop(names);
            let [member] = members.as_slice() else { return Err(Error::ZipMembers { members }) };
            read(&mut archive.by_name(member).map_err(invalid)?)?
        }
    };
    // Compressed twice, or something else that was compressed.
    match Kind::of(&bytes)? {
        Kind::Plain => Ok(bytes.into()),
        Kind::Compressed(_) => Err(failed(io::Error::new(io::ErrorKind::InvalidData, "it is compressed twice"))),
    }
}

fn read(compression: Compression, limit: u64, unpacked: &mut dyn Read) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    unpacked.take(limit + 1).read_to_end(&mut bytes).map_err(|source| Error::Unpack { compression, source })?;
    if bytes.len() as u64 > limit {
        return Err(Error::UnpackedTooLarge { compression, limit });
    }
    Ok(bytes)
}
