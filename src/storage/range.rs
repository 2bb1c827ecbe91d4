use std::collections::VecDeque;

use etcd_client::GetOptions;

use super::client::{Client, stored_value};
use super::error::Error;
use crate::source::{Page, Source};

/// A range of keys: from the first, up to but without the second.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyRange {
    start: Vec<u8>,
    end: Vec<u8>,
}

impl KeyRange {
    /// All keys that begin with a prefix, which must not be empty.
    ///
    /// kine takes a range only when it is one of a prefix.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        let mut end = prefix.to_vec();
        while let Some(last) = end.pop() {
            if last < 0xff {
                end.push(last + 1);
                break;
            }
        }
        if end.is_empty() {
            // etcd's way to say: up to the end.
            end.push(0);
        }
        Self { start: prefix.to_vec(), end }
    }

    /// The first key.
    pub(super) fn start(&self) -> &[u8] {
        &self.start
    }

    /// The first key behind it, as etcd writes it.
    pub(super) fn end(&self) -> Vec<u8> {
        self.end.clone()
    }

    /// One key.
    #[must_use]
    pub fn key(key: &[u8]) -> Self {
        Self { start: key.to_vec(), end: Vec::new() }
    }

    /// Whether a key lies in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        match self.end.as_slice() {
            [] => key == self.start.as_slice(),
            [0] => key >= self.start.as_slice(),
            end => key >= self.start.as_slice() && key < end,
        }
    }
}

/// Reads ranges of keys in pages, all at the revision of the first.
///
/// A page is bounded by count and by bytes: the count follows the size of the values that were met. When the revision is
/// compacted away in the middle, reading goes on at the latest revision behind the last key.
#[derive(Debug)]
pub struct Ranges {
    client: Client,
    ranges: VecDeque<KeyRange>,
    keys_only: bool,
    revision: Option<i64>,
    limit: i64,
    expected: Option<u64>,
    moved_on: bool,
}

const FIRST_PAGE: i64 = 32;
const MAX_PAGE: i64 = 2000;
/// Large enough that the round trip does not count, small enough that a few pages are nothing.
const PAGE_BYTES: usize = 2 * 1024 * 1024;

impl Ranges {
    /// Reads the ranges in their order.
    #[must_use]
    pub fn new(client: &Client, ranges: impl IntoIterator<Item = KeyRange>) -> Self {
        Self {
            client: client.clone(),
            ranges: ranges.into_iter().collect(),
            keys_only: false,
            revision: None,
            limit: FIRST_PAGE,
            expected: None,
            moved_on: false,
        }
    }

    /// Reads all keys that begin with one of the prefixes.
    #[must_use]
    pub fn of_prefixes(client: &Client, prefixes: &[Vec<u8>]) -> Self {
        Self::new(client, prefixes.iter().map(|prefix| KeyRange::prefix(prefix)))
    }

    /// Reads at a revision in place of the latest.
    #[must_use]
    pub fn at_revision(mut self, revision: Option<i64>) -> Self {
        self.revision = revision;
        self
    }

    /// Leaves the values out, where that can be asked for.
    #[must_use]
    pub fn keys_only(mut self) -> Self {
        self.keys_only = true;
        self
    }

    /// Counts the keys, so that progress can be told.
    ///
    /// # Errors
    ///
    /// When etcd cannot be read.
    pub async fn count(&mut self) -> Result<u64, Error> {
        let mut expected = 0;
        for range in &self.ranges {
            let mut options = GetOptions::new().with_range(range.end.clone()).with_count_only();
            if let Some(revision) = self.revision {
                options = options.with_revision(revision);
            }
            let response = match self.client.range(&range.start, options).await {
                // Compacted between two counts: what is counted is only told as progress.
                Err(Error::Compacted) => {
                    let options = GetOptions::new().with_range(range.end.clone()).with_count_only();
                    self.client.range(&range.start, options).await?
                }
                result => result?,
            };
            if self.revision.is_none() {
                self.revision = response.header().map(etcd_client::ResponseHeader::revision);
            }
            expected += u64::try_from(response.count()).unwrap_or(0);
        }
        self.expected = Some(expected);
        Ok(expected)
    }

    fn adapt(&mut self, count: usize, bytes: usize) {
        let average = bytes.checked_div(count).unwrap_or(0).max(1);
        let fitting = i64::try_from(PAGE_BYTES / average).unwrap_or(MAX_PAGE);
        // Never more than doubled: the next values may be larger than those that were met.
        self.limit = fitting.clamp(1, MAX_PAGE).min(self.limit.saturating_mul(2));
    }
}

impl Source for Ranges {
    type Error = Error;

    async fn next_page(&mut self) -> Result<Option<Page>, Error> {
        loop {
            let Some(range) = self.ranges.front() else { return Ok(None) };
            let mut options = GetOptions::new().with_range(range.end.clone()).with_limit(self.limit);
            if let Some(revision) = self.revision {
                options = options.with_revision(revision);
            }
            if self.keys_only {
                options = options.with_keys_only();
            }
            let mut response = match self.client.range(&range.start, options).await {
                Ok(response) => response,
                Err(Error::AnswerTooLarge) if self.limit > 1 => {
                    self.limit /= 2;
                    continue;
                }
                Err(error) if self.keys_only && error.is_for_keys_only() => {
                    self.keys_only = false;
                    continue;
                }
                Err(Error::Compacted) if self.revision.is_some() => {
                    tracing::warn!("the revision was compacted while it was read; going on at the latest");
                    self.revision = None;
                    self.moved_on = true;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let revision = response.header().map_or(0, etcd_client::ResponseHeader::revision);
            let pinned = *self.revision.get_or_insert(revision);
            let more = response.more();
            let values: Vec<_> = response.take_kvs().into_iter().map(stored_value).collect();
            match (values.last(), more) {
                (Some(last), true) => {
                    let mut next = last.key.clone();
                    next.push(0);
                    if let Some(range) = self.ranges.front_mut() {
                        range.start = next;
                    }
                }
                _ => {
                    self.ranges.pop_front();
                }
            }
            if values.is_empty() {
                continue;
            }
            tracing::debug!(values = values.len(), revision = pinned, more, "read a page");
            let bytes = values.iter().map(|value| value.key.len() + value.value.len()).sum();
            self.adapt(values.len(), bytes);
            return Ok(Some(Page { values, revision: pinned }));
        }
    }

    fn expected(&self) -> Option<u64> {
        self.expected
    }

    fn revision(&self) -> Option<i64> {
        self.revision
    }

    fn is_consistent(&self) -> bool {
        !self.moved_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_its_last_byte_is_one_more() {
        for (prefix, end) in
            [(&b"/registry/"[..], &b"/registry0"[..]), (b"a\xff", b"b"), (b"a\xff\xff", b"b"), (b"\xff", b"\0")]
        {
            assert_eq!(KeyRange::prefix(prefix), KeyRange { start: prefix.to_vec(), end: end.to_vec() });
        }
        let range = KeyRange::prefix(b"/registry/pods/a/");
        assert!(range.contains(b"/registry/pods/a/x"));
        assert!(!range.contains(b"/registry/pods/ab/x"));
        assert!(KeyRange::prefix(b"\xff").contains(b"\xff\xff\xff"));
    }
}
