use std::io::{self, Seek, SeekFrom, Write};

use super::meta::{self, Meta};
use super::page::{BRANCH, BUCKET_FLAG, ELEMENT, LEAF};

/// The size of a page's header, in bytes.
const HEADER: usize = 16;
/// bbolt panics at one more.
const MAX_ELEMENTS: usize = 65_534;
/// The first page behind those of the metas.
const FIRST_PAGE: u64 = 2;
/// A file that bbolt has made has at least this transaction.
const MIN_TXID: u64 = 2;

/// Writes a database from its sorted contents: every page is used, every byte that is not is zero.
///
/// What bbolt itself takes for granted and does not check is kept to: a branch has two children at least, and its keys are the
/// first keys of them. Otherwise etcd serves the file, and fails at a later compaction.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    page_size: usize,
    next_page: u64,
    buckets: Vec<(Vec<u8>, Vec<u8>)>,
    open: Option<OpenBucket>,
}

#[derive(Debug)]
struct OpenBucket {
    name: Vec<u8>,
    sequence: u64,
    leaf: Leaf,
    /// The first keys and the pages of the leaves that are written.
    leaves: Vec<(Vec<u8>, u64)>,
}

/// A leaf that is being filled.
#[derive(Debug, Default)]
struct Leaf {
    /// Flags, lengths of key and value, and where the data of each element begin.
    elements: Vec<(u32, u32, u32, usize)>,
    data: Vec<u8>,
}

impl Leaf {
    fn size_with(&self, elements: usize, data: usize) -> usize {
        HEADER + ELEMENT * (self.elements.len() + elements) + self.data.len() + data
    }

    fn add(&mut self, flags: u32, key: &[u8], value: &[u8]) -> io::Result<()> {
        let too_large = |_| io::Error::new(io::ErrorKind::InvalidInput, "an element of more than 4 GiB");
        let (key_len, value_len) = (u32::try_from(key.len()), u32::try_from(value.len()));
        let at = self.data.len();
        self.elements.push((flags, key_len.map_err(too_large)?, value_len.map_err(too_large)?, at));
        self.data.extend_from_slice(key);
        self.data.extend_from_slice(value);
        Ok(())
    }

    fn first_key(&self) -> Vec<u8> {
        let len = self.elements.first().map_or(0, |element| element.1 as usize);
        self.data.get(..len).unwrap_or_default().to_vec()
    }

    /// The bytes behind the header.
    fn body(&self) -> io::Result<Vec<u8>> {
        let count = self.elements.len();
        let mut body = Vec::with_capacity(ELEMENT * count + self.data.len());
        for (index, (flags, key_len, value_len, at)) in self.elements.iter().enumerate() {
            let pos = u32::try_from(ELEMENT * (count - index) + at);
            let pos = pos.map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a page of more than 4 GiB"))?;
            for field in [*flags, pos, *key_len, *value_len] {
                body.extend_from_slice(&field.to_le_bytes());
            }
        }
        body.extend_from_slice(&self.data);
        Ok(body)
    }
}

impl<W: Write + Seek> Writer<W> {
    /// Begins a file with pages of this size: a power of two from 512 bytes to 16 MiB.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn new(mut out: W, page_size: u32) -> io::Result<Self> {
        let page_size = page_size as usize;
        // The metas come last: they say where the root is.
        out.seek(SeekFrom::Start(FIRST_PAGE * page_size as u64))?;
        Ok(Self { out, page_size, next_page: FIRST_PAGE, buckets: Vec::new(), open: None })
    }

    /// Begins a bucket. Their names must ascend.
    ///
    /// # Errors
    ///
    /// When the bucket before it cannot be written.
    pub fn bucket(&mut self, name: &[u8], sequence: u64) -> io::Result<()> {
        self.end_bucket()?;
        self.open = Some(OpenBucket { name: name.to_vec(), sequence, leaf: Leaf::default(), leaves: Vec::new() });
        Ok(())
    }

    /// Adds an element to the bucket. Keys must ascend, and not be empty.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let Some(mut open) = self.open.take() else { return Err(io::Error::other("no bucket was begun")) };
        let full = open.leaf.size_with(1, key.len() + value.len()) > self.page_size
            || open.leaf.elements.len() >= MAX_ELEMENTS;
        if full && !open.leaf.elements.is_empty() {
            let leaf = std::mem::take(&mut open.leaf);
            open.leaves.push((leaf.first_key(), self.write_leaf(&leaf)?));
        }
        open.leaf.add(0, key, value)?;
        self.open = Some(open);
        Ok(())
    }

    fn end_bucket(&mut self) -> io::Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let mut header = Vec::new();
        if open.leaves.is_empty() && open.leaf.size_with(0, 0) <= self.page_size / 4 {
            header.extend_from_slice(&0u64.to_le_bytes());
            header.extend_from_slice(&open.sequence.to_le_bytes());
            header.extend_from_slice(&page_header(0, LEAF, open.leaf.elements.len(), 0)?);
            header.extend_from_slice(&open.leaf.body()?);
        } else {
            open.leaves.push((open.leaf.first_key(), self.write_leaf(&open.leaf)?));
            let root = self.write_branches(open.leaves)?;
            header.extend_from_slice(&root.to_le_bytes());
            header.extend_from_slice(&open.sequence.to_le_bytes());
        }
        self.buckets.push((open.name, header));
        Ok(())
    }

    /// Writes the root bucket and the metas.
    ///
    /// # Errors
    ///
    /// When they cannot be written.
    pub fn finish(mut self, txid: u64) -> io::Result<(W, Meta)> {
        self.end_bucket()?;
        let mut leaves = Vec::new();
        let mut leaf = Leaf::default();
        for (name, header) in std::mem::take(&mut self.buckets) {
            if leaf.size_with(1, name.len() + header.len()) > self.page_size && !leaf.elements.is_empty() {
                let full = std::mem::take(&mut leaf);
                leaves.push((full.first_key(), self.write_leaf(&full)?));
            }
            leaf.add(BUCKET_FLAG, &name, &header)?;
        }
        leaves.push((leaf.first_key(), self.write_leaf(&leaf)?));
        let root = self.write_branches(leaves)?;
        let txid = txid.max(MIN_TXID);
        let meta = Meta { page_size: self.page_size as u64, root, freelist: None, high_water: self.next_page, txid };
        self.out.seek(SeekFrom::Start(0))?;
        // As in a snapshot: the newer meta is in page 0, and both have one root.
        for (page, txid) in [(0, txid), (1, txid - 1)] {
            let mut bytes = page_header(page, meta::FLAGS, 0, 0)?.to_vec();
            bytes.extend_from_slice(&meta::encode(&Meta { txid, ..meta }));
            bytes.resize(self.page_size, 0);
            self.out.write_all(&bytes)?;
        }
        self.out.seek(SeekFrom::Start(self.next_page * self.page_size as u64))?;
        Ok((self.out, meta))
    }

    fn write_leaf(&mut self, leaf: &Leaf) -> io::Result<u64> {
        self.write_page(LEAF, leaf.elements.len(), &leaf.body()?)
    }

    fn write_page(&mut self, flags: u16, count: usize, body: &[u8]) -> io::Result<u64> {
        let page = self.next_page;
        let size = (HEADER + body.len()).next_multiple_of(self.page_size);
        let pages = size / self.page_size;
        self.out.write_all(&page_header(page, flags, count, pages - 1)?)?;
        self.out.write_all(body)?;
        io::copy(&mut io::Read::take(io::repeat(0), (size - HEADER - body.len()) as u64), &mut self.out)?;
        self.next_page += pages as u64;
        Ok(page)
    }

    /// Writes branches over these pages until one is left, which is the root.
    fn write_branches(&mut self, mut level: Vec<(Vec<u8>, u64)>) -> io::Result<u64> {
        while level.len() > 1 {
            let mut above = Vec::new();
            let mut rest = &level[..];
            while !rest.is_empty() {
                let (children, others) = rest.split_at(self.children_of_one(rest).min(rest.len()));
                let first_key = children.first().map(|(key, _)| key.clone()).unwrap_or_default();
                above.push((first_key, self.write_branch(children)?));
                rest = others;
            }
            level = above;
        }
        level.pop().map(|(_, page)| page).ok_or_else(|| io::Error::other("a tree without pages"))
    }

    /// How many of these children the next branch takes: as many as fit, two at least, and never so many that one is left alone.
    fn children_of_one(&self, children: &[(Vec<u8>, u64)]) -> usize {
        let mut size = HEADER;
        let fitting = children.iter().take(MAX_ELEMENTS).take_while(|(key, _)| {
            size += ELEMENT + key.len();
            size <= self.page_size
        });
        let count = fitting.count().max(2);
        match children.len().saturating_sub(count) {
            // The last would be alone: one more goes with it, or it comes to these.
            1 if count > 2 => count - 1,
            1 => count + 1,
            _ => count,
        }
    }

    fn write_branch(&mut self, children: &[(Vec<u8>, u64)]) -> io::Result<u64> {
        let mut body = Vec::new();
        let mut at = 0;
        for (index, (key, page)) in children.iter().enumerate() {
            let too_large = |_| io::Error::new(io::ErrorKind::InvalidInput, "a page of more than 4 GiB");
            let pos = u32::try_from(ELEMENT * (children.len() - index) + at).map_err(too_large)?;
            body.extend_from_slice(&pos.to_le_bytes());
            body.extend_from_slice(&u32::try_from(key.len()).map_err(too_large)?.to_le_bytes());
            body.extend_from_slice(&page.to_le_bytes());
            at += key.len();
        }
        children.iter().for_each(|(key, _)| body.extend_from_slice(key));
        self.write_page(BRANCH, children.len(), &body)
    }
}

fn page_header(id: u64, flags: u16, count: usize, overflow: usize) -> io::Result<[u8; HEADER]> {
    let too_many = |_| io::Error::new(io::ErrorKind::InvalidInput, "a page of too many elements");
    let mut header = [0; HEADER];
    let fields: [(usize, &[u8]); 4] = [
        (0, &id.to_le_bytes()),
        (8, &flags.to_le_bytes()),
        (10, &u16::try_from(count).map_err(too_many)?.to_le_bytes()),
        (12, &u32::try_from(overflow).map_err(too_many)?.to_le_bytes()),
    ];
    for (at, bytes) in fields {
        if let Some(place) = header.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
    Ok(header)
}
