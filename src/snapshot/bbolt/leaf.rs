use super::damage::DamageKind;
use super::page::{BUCKET_FLAG, ELEMENT, PageHeader};

/// A key and its value in a leaf.
#[derive(Clone, Copy)]
pub struct Element<'a> {
    /// The page; of an element of an inline bucket, that of the bucket.
    pub page: u64,
    /// The position in the page.
    pub index: u16,
    /// Where in the file the key begins, in bytes. The value follows it.
    pub offset: u64,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Whether the value is a bucket.
    pub is_bucket: bool,
}

/// Where, and not what: values may be plaintext.
impl std::fmt::Debug for Element<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Element")
            .field("page", &self.page)
            .field("index", &self.index)
            .field("key", &self.key.escape_ascii().to_string())
            .field("value", &format_args!("[{} bytes]", self.value.len()))
            .finish_non_exhaustive()
    }
}

/// Reads numbers in little-endian from positions that are checked.
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|chunk| u32::from_le_bytes(*chunk))
}

/// The elements of a leaf, whose bytes begin with the page's header.
#[derive(Clone, Copy)]
pub(crate) struct Leaf<'a> {
    pub(crate) page: u64,
    /// Where in the file the header begins.
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
    pub(crate) count: u16,
}

impl<'a> Leaf<'a> {
    /// # Errors
    ///
    /// When the page has no room for its elements.
    pub(crate) fn new(page: u64, offset: u64, bytes: &'a [u8], header: PageHeader) -> Result<Self, DamageKind> {
        if first_data(header.count) > bytes.len() {
            return Err(DamageKind::Count(header.count));
        }
        Ok(Self { page, offset, bytes, count: header.count })
    }

    /// Where an element lies in the page: the beginnings of its key and of its value, and its end.
    fn place(&self, index: u16) -> Result<(u32, usize, usize, usize), DamageKind> {
        let at = first_data(index);
        let outside = DamageKind::ElementOutside;
        let field = |number: usize| u32_at(self.bytes, at + 4 * number);
        let (Some(flags), Some(pos), Some(key_len), Some(value_len)) = (field(0), field(1), field(2), field(3)) else {
            return Err(outside);
        };
        let usize = |number: u32| usize::try_from(number).ok();
        let key_at = usize(pos).and_then(|pos| at.checked_add(pos));
        let value_at = key_at.and_then(|key_at| key_at.checked_add(usize(key_len)?));
        let end = value_at.and_then(|value_at| value_at.checked_add(usize(value_len)?));
        match (key_at, value_at, end) {
            (Some(key_at), Some(value_at), Some(end))
                if key_at >= first_data(self.count) && end <= self.bytes.len() =>
            {
                if key_len == 0 {
                    return Err(DamageKind::EmptyKey);
                }
                Ok((flags, key_at, value_at, end))
            }
            _ => Err(outside),
        }
    }

    pub(crate) fn element(&self, index: u16) -> Result<Element<'a>, DamageKind> {
        let (flags, key_at, value_at, end) = self.place(index)?;
        if flags > BUCKET_FLAG {
            return Err(DamageKind::ElementFlags(flags));
        }
        let part = |from, to| self.bytes.get(from..to).ok_or(DamageKind::ElementOutside);
        Ok(Element {
            page: self.page,
            index,
            offset: self.offset + key_at as u64,
            key: part(key_at, value_at)?,
            value: part(value_at, end)?,
            is_bucket: flags == BUCKET_FLAG,
        })
    }

    /// The first element that shares bytes with one before it.
    pub(crate) fn overlap(&self) -> Option<u16> {
        let places =
            || (0..self.count).filter_map(|index| self.place(index).ok().map(|place| (index, place.1, place.3)));
        // Writers store data in the order of the elements.
        let mut last_end = 0;
        let in_order = places().all(|(_, start, end)| std::mem::replace(&mut last_end, end) <= start);
        if in_order {
            return None;
        }
        let mut places: Vec<_> = places().collect();
        places.sort_unstable_by_key(|(_, start, _)| *start);
        let pairs = places.iter().zip(places.iter().skip(1));
        pairs.filter(|((_, _, end), (_, start, _))| start < end).map(|((a, ..), (b, ..))| *a.max(b)).min()
    }

    /// Where the data of the last element ends.
    pub(crate) fn data_end(&self) -> usize {
        let ends = (0..self.count).filter_map(|index| self.place(index).ok().map(|place| place.3));
        ends.max().unwrap_or(0).max(first_data(self.count))
    }
}

/// A child of a branch: its first key, and its page.
pub(crate) type Child = (Vec<u8>, u64);

/// The children of a branch.
pub(crate) fn children(bytes: &[u8], header: PageHeader) -> Result<Vec<Child>, (u16, DamageKind)> {
    if first_data(header.count) > bytes.len() {
        return Err((0, DamageKind::Count(header.count)));
    }
    // Keys that overlap could add up to any size.
    let mut left = bytes.len();
    (0..header.count)
        .map(|index| {
            let at = first_data(index);
            let field = |number: usize| u32_at(bytes, at + 4 * number);
            let child = bytes.get(at + 8..).and_then(|rest| rest.first_chunk()).map(|chunk| u64::from_le_bytes(*chunk));
            let key_at = field(0).and_then(|pos| at.checked_add(usize::try_from(pos).ok()?));
            let key = key_at.filter(|start| *start >= first_data(header.count)).and_then(|start| {
                let end = start.checked_add(usize::try_from(field(1)?).ok()?)?;
                bytes.get(start..end)
            });
            match (key, child) {
                (Some(key), Some(child)) => {
                    left = left.checked_sub(key.len()).ok_or((index, DamageKind::Overlap))?;
                    Ok((key.to_vec(), child))
                }
                _ => Err((index, DamageKind::ElementOutside)),
            }
        })
        .collect()
}

/// Where the data begin behind so many element headers; also where the header of the element of that number begins.
const fn first_data(elements: u16) -> usize {
    16 + ELEMENT * elements as usize
}
