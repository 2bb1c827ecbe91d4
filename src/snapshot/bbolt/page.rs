use std::io;

use super::damage::DamageKind;
use super::meta::{HEADER, Meta};
use crate::snapshot::input::Input;

pub(crate) const BRANCH: u16 = 0x01;
pub(crate) const LEAF: u16 = 0x02;
pub(crate) const FREELIST: u16 = 0x10;
/// An element of a leaf, and of a branch, has a header of so many bytes.
pub(crate) const ELEMENT: usize = 16;
/// The value of the element is a bucket.
pub(crate) const BUCKET_FLAG: u32 = 1;

/// The header of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageHeader {
    pub(crate) id: u64,
    pub(crate) flags: u16,
    pub(crate) count: u16,
    /// How many further pages belong to it.
    pub(crate) overflow: u32,
}

impl PageHeader {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (id, rest) = bytes.split_first_chunk()?;
        let (flags, rest) = rest.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let (overflow, _) = rest.split_first_chunk()?;
        Some(Self {
            id: u64::from_le_bytes(*id),
            flags: u16::from_le_bytes(*flags),
            count: u16::from_le_bytes(*count),
            overflow: u32::from_le_bytes(*overflow),
        })
    }
}

/// Reads pages, and further than was asked for where they are read in a row.
pub(crate) struct Pager<'a> {
    input: &'a Input,
    window: Vec<u8>,
    window_start: u64,
    /// Where the last page ended.
    expected: u64,
}

const READ_AHEAD: u64 = 256 * 1024;
/// As much can be left out without a read of its own.
const NEAR: u64 = 32 * 1024;

impl<'a> Pager<'a> {
    pub(crate) fn new(input: &'a Input) -> Self {
        Self { input, window: Vec::new(), window_start: 0, expected: u64::MAX }
    }

    /// So many bytes from an offset on. Both are checked against the file.
    pub(crate) fn bytes(&mut self, offset: u64, len: u64) -> io::Result<&[u8]> {
        let end = offset.checked_add(len).ok_or(io::ErrorKind::UnexpectedEof)?;
        let window_end = self.window_start + self.window.len() as u64;
        if offset < self.window_start || end > window_end {
            let in_a_row = offset.checked_sub(self.expected).is_some_and(|skipped| skipped <= NEAR);
            let rest = self.input.len().saturating_sub(offset);
            let wanted = if in_a_row { len.max(READ_AHEAD.min(rest)) } else { len };
            self.input.read_into(offset, wanted, &mut self.window)?;
            self.window_start = offset;
        }
        self.expected = end;
        let start = usize::try_from(offset - self.window_start).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let part = usize::try_from(len).ok().and_then(|len| self.window.get(start..start.checked_add(len)?));
        part.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// The header of a page that may be referred to.
    pub(crate) fn header(&mut self, meta: &Meta, id: u64) -> Result<PageHeader, DamageKind> {
        let high_water = meta.high_water;
        if !(2..high_water).contains(&id) {
            return Err(DamageKind::OutOfBounds { high_water });
        }
        let file_len = self.input.len();
        // The high-water mark times the page size was checked when the file was opened.
        let offset = id * meta.page_size;
        if offset.checked_add(HEADER).is_none_or(|end| end > file_len) {
            return Err(DamageKind::PastEnd { file_len });
        }
        let len = meta.page_size.min(file_len - offset);
        let bytes = self.bytes(offset, len).map_err(|error| DamageKind::Unreadable(error.kind()))?;
        PageHeader::parse(bytes).ok_or(DamageKind::PastEnd { file_len })
    }

    /// All bytes of a page and of those that belong to it.
    pub(crate) fn run(&mut self, meta: &Meta, id: u64, overflow: u32) -> Result<&[u8], DamageKind> {
        let high_water = meta.high_water;
        let pages = u64::from(overflow) + 1;
        if id.checked_add(pages).is_none_or(|end| end > high_water) {
            return Err(DamageKind::OutOfBounds { high_water });
        }
        let file_len = self.input.len();
        let (offset, len) = (id * meta.page_size, pages * meta.page_size);
        if offset + len > file_len {
            return Err(DamageKind::PastEnd { file_len });
        }
        self.bytes(offset, len).map_err(|error| DamageKind::Unreadable(error.kind()))
    }
}

/// Which pages of a file are used.
#[derive(Clone, Debug, Default)]
pub struct PageSet {
    words: Vec<u64>,
    pages: u64,
}

impl PageSet {
    /// None of so many pages.
    #[must_use]
    pub fn new(pages: u64) -> Self {
        let words = usize::try_from(pages.div_ceil(64)).unwrap_or(0);
        Self { words: vec![0; words], pages }
    }

    /// How many pages there are.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// Whether a page is in the set.
    #[must_use]
    pub fn contains(&self, page: u64) -> bool {
        let word = usize::try_from(page / 64).ok().and_then(|index| self.words.get(index));
        word.is_some_and(|word| word & (1 << (page % 64)) != 0)
    }

    /// Adds pages, unless one of them is in the set or does not exist.
    pub(crate) fn insert_run(&mut self, first: u64, pages: u64) -> bool {
        let Some(end) = first.checked_add(pages).filter(|end| *end <= self.pages) else { return false };
        if (first..end).any(|page| self.contains(page)) {
            return false;
        }
        for page in first..end {
            if let Some(word) = usize::try_from(page / 64).ok().and_then(|index| self.words.get_mut(index)) {
                *word |= 1 << (page % 64);
            }
        }
        true
    }

    /// How many pages are in the set.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Whether no page is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pages that are not in the set, in runs of a first page and how many.
    pub fn gaps(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut page = 0;
        std::iter::from_fn(move || {
            while page < self.pages && self.contains(page) {
                page += 1;
            }
            let first = page;
            while page < self.pages && !self.contains(page) {
                page += 1;
            }
            (page > first).then_some((first, page - first))
        })
    }
}
