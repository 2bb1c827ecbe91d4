//! The files of a log (etcd `wal/util.go`, `wal/repair.go`, `wal/wal.go`).
//!
//! ```text
//! member/wal/%016x-%016x.wal          a segment: its sequence number, and the index of the first entry to come
//! member/wal/0.tmp, 1.tmp             the next segment, preallocated
//! member/wal/*.wal.broken             a copy that was made before a torn tail was cut off; never removed
//! member/wal.tmp, member/wal.broken.* a log that was being created, or failed to be read when the member started
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use super::{Error, Mode, Records};
use crate::snapshot::input::Input;

/// The names of a log's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// The directory itself.
    pub path: PathBuf,
    /// The segments, by sequence number.
    pub segments: Vec<PathBuf>,
    /// What else lies there or beside it, by path. All of it may hold values.
    pub remnants: Vec<Remnant>,
}

/// A file or directory that etcd left behind and does not read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remnant {
    /// Where it is.
    pub path: PathBuf,
    /// What it is, by its name.
    pub kind: RemnantKind,
    /// How many bytes it has; 0 for a directory.
    pub bytes: u64,
}

/// What a [`Remnant`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RemnantKind {
    /// `0.tmp`: a segment to come. Zeros, unless it was a segment before.
    Preallocated,
    /// `*.wal.broken`: a whole segment, to be read like one.
    BrokenSegment,
    /// `wal.tmp`: a directory in which a log was being created.
    Unfinished,
    /// `wal.broken.*`: a directory with a log that could not be read.
    BrokenLog,
    /// A name that is not etcd's.
    Other,
}

impl Directory {
    /// Lists a directory of segments, `member/wal`, and what lies beside it. Nothing is opened.
    ///
    /// # Errors
    ///
    /// When the directory cannot be listed.
    pub fn list(path: &Path) -> Result<Self, Error> {
        let mut segments = Vec::new();
        let mut remnants = Vec::new();
        for (path, name, metadata) in entries(path)? {
            match segment_numbers(&name) {
                Some(numbers) if metadata.is_file() => segments.push((numbers, path)),
                _ => {
                    let kind = if name.ends_with(".wal.broken") {
                        RemnantKind::BrokenSegment
                    } else if name.ends_with(".tmp") {
                        RemnantKind::Preallocated
                    } else {
                        RemnantKind::Other
                    };
                    remnants.push(Remnant { path, kind, bytes: bytes(&metadata) });
                }
            }
        }
        // The directory's own name may be `wal.broken.…`; then it is no remnant of itself.
        if let (Some(parent), Some("wal")) = (path.parent(), path.file_name().and_then(|name| name.to_str())) {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            for (path, name, metadata) in entries(parent)? {
                let kind = match &*name {
                    "wal.tmp" => RemnantKind::Unfinished,
                    name if name.starts_with("wal.broken.") => RemnantKind::BrokenLog,
                    _ => continue,
                };
                remnants.push(Remnant { path, kind, bytes: bytes(&metadata) });
            }
        }
        segments.sort();
        remnants.sort();
        let segments = segments.into_iter().map(|(_, path)| path).collect();
        Ok(Self { path: path.to_owned(), segments, remnants })
    }

    /// Opens all segments for reading. etcd's locks on them are neither taken nor waited for.
    ///
    /// # Errors
    ///
    /// When there is none, or one cannot be opened.
    pub fn open(&self) -> Result<Wal, Error> {
        if self.segments.is_empty() {
            return Err(Error::NoSegments { path: self.path.clone() });
        }
        self.segments.iter().map(|path| Segment::open(path)).collect::<Result<_, _>>().map(Wal::new)
    }
}

fn bytes(metadata: &fs::Metadata) -> u64 {
    if metadata.is_file() { metadata.len() } else { 0 }
}

fn entries(path: &Path) -> Result<Vec<(PathBuf, String, fs::Metadata)>, Error> {
    let failed = |source| Error::ReadDir { path: path.to_owned(), source };
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        // What was removed meanwhile is not there.
        let Ok(metadata) = fs::metadata(&path).or_else(|_| fs::symlink_metadata(&path)) else { continue };
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        entries.push((path, name, metadata));
    }
    Ok(entries)
}

/// The sequence number and the index in a segment's name.
fn segment_numbers(name: &str) -> Option<(u64, u64)> {
    let (sequence, index) = name.strip_suffix(".wal")?.split_once('-')?;
    let number = |digits: &str| {
        let is_hex = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        u64::from_str_radix(digits, 16).ok().filter(|_| is_hex)
    };
    Some((number(sequence)?, number(index)?))
}

/// One file of a log.
#[derive(Debug)]
pub struct Segment {
    name: String,
    sequence: Option<u64>,
    input: Input,
}

impl Segment {
    /// A segment that is open already, or in memory. A name that etcd would not give it says nothing of its place.
    #[must_use]
    pub fn new(name: impl Into<String>, input: Input) -> Self {
        let name = name.into();
        let sequence = segment_numbers(&name).map(|(sequence, _)| sequence);
        Self { name, sequence, input }
    }

    /// Opens one file: a segment, or a [`Remnant`] that was one.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let input = Input::open(path).map_err(|source| Error::Open { path: path.to_owned(), source })?;
        Ok(Self::new(path.file_name().unwrap_or_default().to_string_lossy(), input))
    }

    /// The file's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The sequence number, by its name.
    #[must_use]
    pub fn sequence(&self) -> Option<u64> {
        self.sequence
    }

    /// How long it was when it was opened, in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.input.len()
    }

    /// Whether it was empty when it was opened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.input.is_empty()
    }

    pub(super) fn input(&self) -> &Input {
        &self.input
    }
}

/// Segments in reading order.
#[derive(Debug)]
pub struct Wal {
    segments: Vec<Segment>,
}

impl Wal {
    /// Takes segments in the order in which they are to be read.
    #[must_use]
    pub fn new(segments: Vec<Segment>) -> Self {
        Self { segments }
    }

    /// Lists a directory and opens its segments.
    ///
    /// # Errors
    ///
    /// When the directory cannot be listed, has no segment, or one cannot be opened.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Directory::list(path)?.open()
    }

    /// The segments.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Starts reading at the first segment.
    #[must_use]
    pub fn records(&self, mode: Mode) -> Records<'_> {
        Records::new(&self.segments, mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_known_by_its_name() {
        assert_eq!(segment_numbers("000000000000000a-0000000000000018.wal"), Some((10, 24)));
        for other in [
            "0000000000000000-0000000000000000.wal.broken",
            "v351-0000000000000000-0000000000000000.wal",
            "0000000000000000-+000000000000000.wal",
            "0.tmp",
            "1-2.wal",
        ] {
            assert_eq!(segment_numbers(other), None, "{other}");
        }
    }

    #[test]
    fn a_directory_is_listed_in_order_with_what_else_is_there() {
        let member = tempfile::tempdir().expect("a directory");
        let wal = member.path().join("wal");
        for directory in ["wal", "wal.tmp", "wal.broken.20260101.000000.000000", "snap"] {
            fs::create_dir(member.path().join(directory)).expect("a directory");
        }
        let second = "0000000000000001-0000000000000018.wal";
        let broken = "0000000000000000-0000000000000000.wal.broken";
        for file in [second, broken, "0.tmp", "0000000000000000-0000000000000000.wal", "notes.wal"] {
            fs::write(wal.join(file), file).expect("a file");
        }
        let listed = Directory::list(&wal).expect("a listing");
        assert_eq!(listed.segments, [wal.join("0000000000000000-0000000000000000.wal"), wal.join(second)]);
        let remnants: Vec<_> = listed
            .remnants
            .iter()
            .map(|remnant| (remnant.path.strip_prefix(member.path()).expect("inside"), remnant.kind, remnant.bytes))
            .collect();
        assert_eq!(
            remnants,
            [
                (Path::new("wal/0.tmp"), RemnantKind::Preallocated, 5),
                (&Path::new("wal").join(broken), RemnantKind::BrokenSegment, 44),
                (Path::new("wal/notes.wal"), RemnantKind::Other, 9),
                (Path::new("wal.broken.20260101.000000.000000"), RemnantKind::BrokenLog, 0),
                (Path::new("wal.tmp"), RemnantKind::Unfinished, 0),
            ]
        );
        assert!(matches!(Wal::open(&member.path().join("snap")), Err(Error::NoSegments { .. })));
        assert!(matches!(Wal::open(&member.path().join("none")), Err(Error::ReadDir { .. })));
    }
}
