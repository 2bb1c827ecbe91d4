use std::ops::ControlFlow;

use super::bbolt::{Bucket, Damage, Element, Item, Mode, Pager};
use super::carve::Carved;
use super::key_value::KeyValue;
use super::revision::{InvalidRevision, Revision};
use super::{Error, Snapshot, schema};
use crate::protobuf;

/// A change of one key, or the mark of a restore.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its revision.
    pub revision: Revision,
    /// Whether the key was deleted.
    pub tombstone: bool,
    /// What is stored.
    pub kv: KeyValue<'a>,
    /// The page that it is in.
    pub page: u64,
    /// Its position in the page.
    pub element: u16,
    /// Where in the file the encoded [`KeyValue`] begins, in bytes.
    pub offset: u64,
    /// The encoded [`KeyValue`].
    pub encoded: &'a [u8],
}

/// Of what kind a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A value was stored.
    Put,
    /// A key was deleted.
    Tombstone,
    /// `etcdutl snapshot restore --bump-revision` left it: it has no key and is nobody's.
    RevisionBump,
}

impl Record<'_> {
    /// The kind.
    #[must_use]
    pub fn kind(&self) -> RecordKind {
        match (self.tombstone, self.kv.key.is_empty()) {
            (true, _) => RecordKind::Tombstone,
            (false, true) => RecordKind::RevisionBump,
            (false, false) => RecordKind::Put,
        }
    }

    /// Whether it contradicts itself: etcd believes the key of the bucket, and gives clients what the value says.
    #[must_use]
    pub fn is_inconsistent(&self) -> bool {
        let KeyValue { create_revision, mod_revision, version, .. } = self.kv;
        self.kind() == RecordKind::Put
            && (mod_revision != self.revision.main || create_revision > mod_revision || version < 1)
    }
}

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// The page that it is in.
    pub page: u64,
    /// Its position in the page.
    pub element: u16,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// What is wrong.
    pub error: RecordError,
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Its key.
    #[error("{0}")]
    Revision(#[from] InvalidRevision),
    /// Its value.
    #[error("not a KeyValue: {0}")]
    KeyValue(#[from] protobuf::Error),
}

impl std::fmt::Display for BadRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "page {}, element {} (offset {}): {}", self.page, self.element, self.offset, self.error)
    }
}

/// How many problems are kept; all are counted.
const KEPT: usize = 1000;

/// What could not be read.
#[derive(Clone, Debug, Default)]
pub struct Problems {
    /// Parts of the tree, the first of them.
    pub damage: Vec<Damage>,
    /// How many parts.
    pub damaged: u64,
    /// Records, the first of them.
    pub records: Vec<BadRecord>,
    /// How many records.
    pub bad_records: u64,
    /// How many records contradict themselves.
    pub inconsistent: u64,
    /// How many records that the tree lost were found in pages that nothing refers to.
    pub recovered: u64,
    /// How many of those are from before the last compaction, which may have removed them: keys that were deleted may be among them.
    pub maybe_compacted: u64,
}

impl Problems {
    /// Whether nothing was lost.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.damaged == 0 && self.bad_records == 0
    }

    pub(super) fn add_damage(&mut self, damage: Damage) {
        self.damaged += 1;
        if self.damage.len() < KEPT {
            self.damage.push(damage);
        }
    }

    fn add_record(&mut self, record: BadRecord) {
        self.bad_records += 1;
        if self.records.len() < KEPT {
            self.records.push(record);
        }
    }

    /// A line for each thing that is lost, the first of them.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let shown = |lost: &(Vec<u8>, Option<Vec<u8>>)| {
            let name = |key: &[u8]| Revision::parse(key).map(|(revision, _)| revision.to_string()).ok();
            match (name(&lost.0), lost.1.as_deref().and_then(name)) {
                (Some(from), Some(to)) => format!(": revisions {from} up to {to} are lost"),
                (Some(from), None) => format!(": revisions from {from} on are lost"),
                (None, Some(to)) => format!(": revisions up to {to} are lost"),
                (None, None) => String::new(),
            }
        };
        let damage =
            self.damage.iter().map(|damage| format!("{damage}{}", damage.lost.as_ref().map(shown).unwrap_or_default()));
        damage.chain(self.records.iter().map(ToString::to_string)).collect()
    }
}

/// Reads a record from an element of the bucket `key`.
pub(super) fn parse<'a>(element: &Element<'a>) -> Result<Record<'a>, RecordError> {
    let (revision, tombstone) = Revision::parse(element.key)?;
    Ok(Record {
        revision,
        tombstone,
        kv: KeyValue::parse(element.value)?,
        page: element.page,
        element: element.index,
        offset: element.offset + element.key.len() as u64,
        encoded: element.value,
    })
}

/// Where a record is that the tree has lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Stray {
    revision: Revision,
    tombstone: bool,
    offset: u64,
    len: u64,
    page: u64,
    element: u16,
}

/// Keys from the first, up to but without the second.
type KeyRange = (Vec<u8>, Option<Vec<u8>>);

/// The same keys in ranges that are in order and do not touch.
fn merged(mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    ranges.sort_unstable();
    let mut merged: Vec<KeyRange> = Vec::new();
    for (from, to) in ranges {
        match merged.last_mut() {
            Some((_, end)) if end.as_ref().is_none_or(|end| *end >= from) => {
                // No end is behind every other.
                *end = end.take().zip(to).map(|(end, to)| end.max(to));
            }
            _ => merged.push((from, to)),
        }
    }
    merged
}

impl Snapshot {
    /// Visits every change that is still in the file, oldest first. Records that cannot be read end nothing.
    ///
    /// Where the tree is damaged and that is allowed, the revisions that it lost are looked for in the pages that nothing refers
    /// to any more, and visited in their place.
    ///
    /// # Errors
    ///
    /// When the file has no bucket `key`, and, where it is read strictly, when the tree is damaged.
    pub fn records(
        &self,
        problems: &mut Problems,
        mut visit: impl FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let strays = match self.db().mode() {
            Mode::Strict => Vec::new(),
            Mode::Salvage => self.strays()?,
        };
        let mut strays = strays.into_iter().peekable();
        let mut pager = Pager::new(self.db().input());
        let mut damaged = Problems::default();
        let compacted = self.meta().maybe_compacted();
        let (mut recovered, mut maybe_compacted) = (0, 0);
        let mut stray = |stray: Stray, visit: &mut dyn FnMut(Record<'_>) -> ControlFlow<()>| {
            let Ok(encoded) = pager.bytes(stray.offset, stray.len) else { return ControlFlow::Continue(()) };
            let Ok(kv) = KeyValue::parse(encoded) else { return ControlFlow::Continue(()) };
            recovered += 1;
            maybe_compacted += u64::from(compacted.is_some_and(|compacted| stray.revision.main <= compacted));
            let Stray { revision, tombstone, offset, page, element, .. } = stray;
            visit(Record { revision, tombstone, kv, page, element, offset, encoded })
        };
        let mut walked = Ok(());
        let mut ended = false;
        // Without the bucket there may still be its pages.
        if let Some(bucket) = self.key_bucket(strays.len() > 0)? {
            walked = self.db().elements(
                bucket,
                |element| match parse(&element) {
                    Ok(record) => {
                        while let Some(found) = strays.next_if(|stray| stray.revision < record.revision) {
                            stray(found, &mut visit)?;
                        }
                        // A copy of what the tree still has.
                        while strays.next_if(|stray| stray.revision == record.revision).is_some() {}
                        problems.inconsistent += u64::from(record.is_inconsistent());
                        let flow = visit(record);
                        ended |= flow.is_break();
                        flow
                    }
                    Err(error) => {
                        let Element { page, index, offset, .. } = element;
                        problems.add_record(BadRecord { page, element: index, offset, error });
                        ControlFlow::Continue(())
                    }
                },
                |found| damaged.add_damage(found),
            );
        }
        while let Some(found) = strays.next().filter(|_| !ended) {
            ended |= stray(found, &mut visit).is_break();
        }
        self.db().damage().iter().cloned().for_each(|damage| problems.add_damage(damage));
        let more = damaged.damaged - damaged.damage.len() as u64;
        damaged.damage.into_iter().for_each(|damage| problems.add_damage(damage));
        problems.damaged += more;
        problems.recovered += recovered;
        problems.maybe_compacted += maybe_compacted;
        Ok(walked?)
    }

    /// The records of the revisions that the tree has lost, from pages that nothing refers to, oldest first.
    fn strays(&self) -> Result<Vec<Stray>, Error> {
        let mut lost: Vec<KeyRange> = Vec::new();
        match self.db().bucket(schema::KEY) {
            Some(bucket) => {
                self.db().walk(bucket, |item| {
                    if let Item::Damage(Damage { lost: Some(range), .. }) = item {
                        lost.push(range);
                    }
                    ControlFlow::Continue(())
                });
            }
            None if !self.db().damage().is_empty() => lost.push((Vec::new(), None)),
            None => {}
        }
        if lost.is_empty() {
            return Ok(Vec::new());
        }
        let lost = merged(lost);
        let mut strays = Vec::new();
        let map = self.db().map_pages(|_, _| {});
        self.carve(&map.used, |carved| {
            if let Carved::Record(record) = carved {
                let key = record.revision.to_key();
                let before = lost.partition_point(|(from, _)| from[..] <= key[..]);
                let range = before.checked_sub(1).and_then(|index| lost.get(index));
                if range.is_some_and(|(_, to)| to.as_ref().is_none_or(|to| key[..] < to[..])) {
                    let Record { revision, tombstone, offset, page, element, encoded, .. } = record;
                    strays.push(Stray { revision, tombstone, offset, len: encoded.len() as u64, page, element });
                }
            }
        })?;
        strays.sort_unstable();
        // A page that was rewritten has left copies; a revision never changes.
        strays.dedup_by_key(|stray| stray.revision);
        Ok(strays)
    }

    fn key_bucket(&self, may_be_missing: bool) -> Result<Option<&Bucket>, Error> {
        match self.db().bucket(schema::KEY) {
            None if !may_be_missing => Err(Error::NoKeyBucket {
                buckets: self.db().buckets().iter().map(|bucket| bucket.name.clone()).collect(),
            }),
            bucket => Ok(bucket),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_become_one() {
        let range = |from: &str, to: Option<&str>| (from.as_bytes().to_vec(), to.map(|to| to.as_bytes().to_vec()));
        let ranges = vec![
            range("k", None),
            range("a", Some("c")),
            range("b", Some("bb")),
            range("c", Some("d")),
            range("f", Some("g")),
        ];
        assert_eq!(merged(ranges), [range("a", Some("d")), range("f", Some("g")), range("k", None)]);
        assert_eq!(merged(vec![range("", None), range("b", Some("c"))]), [range("", None)]);
    }
}
