use super::bbolt::{LEAF, Leaf, PageHeader, PageSet, Pager};
use super::records::{self, Record};
use super::{Error, Snapshot};

/// A page that nothing refers to. What was written to it is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreePage {
    /// Its number.
    pub page: u64,
    /// The number that its header has; another one where the page was the continuation of one before it.
    pub self_id: u64,
    /// The flags that its header has.
    pub flags: u16,
    /// How many elements its header counts.
    pub count: u16,
    /// How many further pages its header claims.
    pub overflow: u32,
    /// How many records were found in it and in those.
    pub carved: u64,
}

/// What is found in free pages.
#[derive(Debug)]
pub enum Carved<'a> {
    /// A record of an earlier state. It may be a copy of one that is still there.
    Record(Record<'a>),
    /// The end of a page.
    Page(FreePage),
    /// Bytes that are no record, or not certainly.
    Raw {
        /// Where in the file they begin.
        offset: u64,
        /// How many there are.
        len: u64,
    },
}

impl Snapshot {
    /// Looks for records in the pages that are not `used`, in the order of the file.
    ///
    /// Each record is to be believed by itself: later pages of an old run may have been written to again, and freed again.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn carve(&self, used: &PageSet, mut visit: impl FnMut(Carved<'_>)) -> Result<(), Error> {
        let page_size = self.db().meta().page_size;
        let input = self.db().input();
        let mut pager = Pager::new(input);
        for (first, count) in used.gaps() {
            // The pages up to this one belong to a run whose records were found.
            let mut known_to = first;
            // Pages may claim any number of others: no more is read of them all than twice what there is.
            let mut left = 2 * count;
            for page in first..first + count {
                let offset = page * page_size;
                let len = page_size.min(input.len().saturating_sub(offset));
                let Some(header) = PageHeader::parse(pager.bytes(offset, len)?) else { continue };
                let pages = u64::from(header.overflow) + 1;
                let is_leaf = header.id == page && header.flags == LEAF && pages <= first + count - page;
                let mut carved = 0;
                if is_leaf && page >= known_to && pages <= left && (page + pages) * page_size <= input.len() {
                    left -= pages;
                    let bytes = pager.bytes(offset, pages * page_size)?;
                    carved = carve_leaf(page, offset, bytes, header, &mut visit);
                }
                if carved > 0 {
                    known_to = known_to.max(page + pages);
                }
                // Of a page whose elements are not all records, the rest is to be looked at too.
                if page >= known_to || (is_leaf && carved < u64::from(header.count)) {
                    visit(Carved::Raw { offset, len });
                }
                let PageHeader { id: self_id, flags, count, overflow } = header;
                visit(Carved::Page(FreePage { page, self_id, flags, count, overflow, carved }));
            }
        }
        Ok(())
    }
}

fn carve_leaf(page: u64, offset: u64, bytes: &[u8], header: PageHeader, visit: &mut impl FnMut(Carved<'_>)) -> u64 {
    let Ok(leaf) = Leaf::new(page, offset, bytes, header) else { return 0 };
    let mut carved = 0;
    // Elements that share bytes are not what bbolt wrote.
    let mut left = bytes.len();
    for element in (0..leaf.count).filter_map(|index| leaf.element(index).ok()) {
        let Some(rest) = left.checked_sub(element.key.len() + element.value.len()) else { break };
        left = rest;
        if element.is_bucket {
            continue;
        }
        if let Ok(record) = records::parse(&element)
            && !record.kv.key.is_empty()
        {
            carved += 1;
            visit(Carved::Record(record));
        }
    }
    carved
}
