use std::fmt;
use std::io;

use super::meta::InvalidMeta;

/// Why a file is no database at all. [`Damage`] is what is wrong with parts of one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read.
    #[error("cannot be read")]
    Read(#[source] io::Error),
    /// There are no bytes.
    #[error("the file is empty")]
    Empty,
    /// Neither meta page begins as one.
    #[error("not a bbolt database: neither of the two meta pages is there")]
    NotBbolt,
    /// The magic number is there, backwards.
    #[error("written by a big-endian machine (s390x), which is not supported")]
    BigEndian,
    /// Both meta pages are damaged, or the one that was asked for is.
    #[error("no usable meta page: {}", .0.describe())]
    NoMeta(NoMeta),
    /// The first thing that is wrong, where nothing may be.
    #[error("{0}")]
    Damaged(Damage),
}

/// What is wrong with each meta page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMeta {
    /// The first page.
    pub first: Option<InvalidMeta>,
    /// The second page.
    pub second: Option<InvalidMeta>,
}

impl NoMeta {
    fn describe(&self) -> String {
        let page = |number, reason: &Option<InvalidMeta>| reason.map(|reason| format!("page {number}: {reason}"));
        [page(0, &self.first), page(1, &self.second)].into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// A part of the tree that cannot be read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The page.
    pub page: u64,
    /// The element of the page, where it is one.
    pub element: Option<u16>,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// What is wrong.
    pub kind: DamageKind,
    /// What keys of the bucket are lost by it: from the first, up to but without the second, where those are known.
    pub lost: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

/// What is wrong with a page or an element.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamageKind {
    /// A page that was never allocated, or a meta page, is referred to.
    OutOfBounds {
        /// The first page that was never allocated.
        high_water: u64,
    },
    /// The file ends before the page does.
    PastEnd {
        /// The length of the file.
        file_len: u64,
    },
    /// The system could not read it.
    Unreadable(io::ErrorKind),
    /// The page says that it is another.
    PageId(u64),
    /// The page is of another kind than belongs there.
    Flags(u16),
    /// The page is referred to more than once, or lies within another.
    SharedPage,
    /// The tree is deeper than any real one.
    TooDeep,
    /// There is no room for so many elements.
    Count(u16),
    /// A branch without children.
    EmptyBranch,
    /// The element lies outside of its page.
    ElementOutside,
    /// The element has no key.
    EmptyKey,
    /// The element shares bytes with another.
    Overlap,
    /// The key is not behind the one before it, or not where its branch has it.
    KeyOrder,
    /// A bucket within one of etcd's buckets, or flags that do not exist.
    ElementFlags(u32),
    /// The header of a bucket cannot be.
    Bucket,
    /// More buckets than etcd can have.
    TooManyBuckets,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}", self.page)?;
        if let Some(element) = self.element {
            write!(f, ", element {element}")?;
        }
        write!(f, " (offset {}): {}", self.offset, self.kind)
    }
}

impl fmt::Display for DamageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBounds { high_water } => write!(f, "there is no such page: the first free one is {high_water}"),
            Self::PastEnd { file_len } => write!(f, "the file ends before it, after {file_len} bytes"),
            Self::Unreadable(kind) => write!(f, "cannot be read: {kind}"),
            Self::PageId(id) => write!(f, "it says that it is page {id}"),
            Self::Flags(flags) => write!(f, "a page of kind {flags:#x} where a branch or a leaf belongs"),
            Self::SharedPage => f.write_str("it is referred to twice"),
            Self::TooDeep => f.write_str("the tree is too deep"),
            Self::Count(count) => write!(f, "{count} elements have no room in it"),
            Self::EmptyBranch => f.write_str("a branch without children"),
            Self::ElementOutside => f.write_str("it lies outside of its page"),
            Self::EmptyKey => f.write_str("it has no key"),
            Self::Overlap => f.write_str("it shares bytes with another element"),
            Self::KeyOrder => f.write_str("its key is out of order"),
            Self::ElementFlags(0) => f.write_str("a value where a bucket belongs"),
            Self::ElementFlags(1) => f.write_str("a bucket where none belongs"),
            Self::ElementFlags(flags) => write!(f, "unknown flags {flags:#x}"),
            Self::Bucket => f.write_str("not the header of a bucket"),
            Self::TooManyBuckets => f.write_str("there are more buckets than etcd can have"),
        }
    }
}

/// Something that bbolt's own check does not find: the file is served, and etcd fails when a later compaction comes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hazard {
    /// The page.
    pub page: u64,
    /// What is wrong.
    pub kind: HazardKind,
}

/// What will go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HazardKind {
    /// A branch with a single child: "parent must have at least 2 children".
    OneChild,
    /// The key of a branch is not the first of its child: "page N already freed".
    Separator,
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            HazardKind::OneChild => "a branch with a single child",
            HazardKind::Separator => "its first key is not the one that its branch has",
        };
        write!(f, "page {}: {what}: etcd reads it, and fails at a later compaction", self.page)
    }
}

/// Something that is not as it should be, and keeps nothing from being read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A meta page cannot be used; the other one is.
    MetaInvalid {
        /// Which of the two.
        number: u8,
        /// What is wrong with it.
        reason: InvalidMeta,
    },
    /// The older of two good meta pages is used, as was asked for.
    OlderMeta {
        /// Which of the two.
        number: u8,
    },
    /// The pages up to the high-water mark are not all there.
    FileShorterThanHighWater {
        /// How many there should be.
        pages: u64,
    },
    /// The freelist cannot be read. It is not needed.
    Freelist(FreelistProblem),
    /// Someone wrote to the file while it was read.
    Changed,
}

/// What is wrong with the stored list of free pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreelistProblem {
    /// There is no such page.
    NoPage(u64),
    /// The page is of another kind.
    Flags(u16),
    /// It counts more pages than it has room for.
    Count(u64),
    /// It lists a page that is used.
    UsedPage(u64),
    /// It lists a page twice, or out of order.
    Order(u64),
    /// It lists a page that was never allocated.
    OutOfBounds(u64),
    /// It leaves out pages that nothing refers to.
    Incomplete {
        /// How many.
        missing: u64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MetaInvalid { number, reason } => write!(f, "meta page {number} cannot be used: {reason}"),
            Self::OlderMeta { number } => {
                write!(f, "meta page {number} is the older one: this is an earlier state of the database")
            }
            Self::FileShorterThanHighWater { pages } => {
                write!(f, "the file is shorter than its {pages} pages: an incomplete copy?")
            }
            Self::Freelist(problem) => write!(f, "the list of free pages, which reading does not need: {problem}"),
            Self::Changed => f.write_str("the file was written to while it was read: what was read may be torn"),
        }
    }
}

impl fmt::Display for FreelistProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPage(page) => write!(f, "there is no page {page}"),
            Self::Flags(flags) => write!(f, "its page is of kind {flags:#x}"),
            Self::Count(count) => write!(f, "{count} pages have no room in it"),
            Self::UsedPage(page) => write!(f, "page {page} is in it, and in use"),
            Self::Order(page) => write!(f, "page {page} is in it twice or out of order"),
            Self::OutOfBounds(page) => write!(f, "page {page} does not exist"),
            Self::Incomplete { missing } => write!(f, "{missing} unused pages are not in it"),
        }
    }
}
