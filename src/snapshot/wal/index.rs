//! Which entries of a log count.

use super::{Check, Damage, End, Entry, Error, HardState, Item, Leftover, Metadata, Mode, Position, RecordKind, Wal};

/// How many findings of a kind an [`Index`] keeps. The rest are counted.
pub const MAX_KEPT: usize = 1000;

/// What one pass over a log finds, without its values: 40 bytes for each entry.
#[derive(Clone, Debug)]
pub struct Index {
    /// Whose log it is.
    pub metadata: Option<Metadata>,
    /// The last `HardState` whose checksum is right.
    pub state: Option<HardState>,
    /// How the log ends.
    pub end: End,
    /// The segments whose checksums begin with one that there is nothing to compare with.
    pub unverified_starts: Vec<usize>,
    /// The first [`MAX_KEPT`] of all damage.
    pub damage: Vec<Damage>,
    /// The first [`MAX_KEPT`] leftovers.
    pub leftovers: Vec<Leftover>,
    /// How many more findings there were.
    pub more: u64,
    mode: Mode,
    entries: Vec<IndexedEntry>,
}

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexedEntry {
    /// Its place in raft's log.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// Where its record begins.
    pub position: Position,
    /// Whether it counts.
    pub fate: Fate,
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It is part of raft's log.
    Effective,
    /// A later entry has the same index or a lower one: a new leader overrode it. It was never applied, and is on disk
    /// all the same.
    Discarded,
    /// It was found behind damage or behind the end, and has no say in the fate of others.
    Unverified,
}

impl Index {
    /// Reads the whole log once.
    ///
    /// # Errors
    ///
    /// When a segment cannot be read.
    pub fn build(wal: &Wal, mode: Mode) -> Result<Self, Error> {
        let mut index = Self {
            metadata: None,
            state: None,
            end: End::Clean,
            unverified_starts: Vec::new(),
            damage: Vec::new(),
            leftovers: Vec::new(),
            more: 0,
            mode,
            entries: Vec::new(),
        };
        let mut records = wal.records(mode);
        while let Some(item) = records.next_item()? {
            match item {
                Item::Record(record) => match record.kind {
                    RecordKind::Metadata(metadata) if record.check == Check::Ok => index.metadata = Some(metadata),
                    RecordKind::State(state) if record.check == Check::Ok => index.state = Some(state),
                    RecordKind::Entry(Entry { term, index: place, .. }) => {
                        let fate = if record.check == Check::Ok { Fate::Effective } else { Fate::Unverified };
                        index.entries.push(IndexedEntry { index: place, term, position: record.position, fate });
                    }
                    _ => {}
                },
                Item::Damage(damage) if index.damage.len() < MAX_KEPT => index.damage.push(damage),
                Item::Leftover(leftover) if index.leftovers.len() < MAX_KEPT => index.leftovers.push(leftover),
                Item::Damage(_) | Item::Leftover(_) => index.more += 1,
            }
        }
        index.end = records.end();
        index.unverified_starts = records.unverified_starts().to_vec();
        index.discard_overridden();
        Ok(index)
    }

    /// An entry counts if all later ones have higher indices.
    fn discard_overridden(&mut self) {
        let mut lowest = u64::MAX;
        for entry in self.entries.iter_mut().rev().filter(|entry| entry.fate == Fate::Effective) {
            if entry.index >= lowest {
                entry.fate = Fate::Discarded;
            }
            lowest = lowest.min(entry.index);
        }
    }

    /// All entries in the order of the file, whatever became of them.
    #[must_use]
    pub fn entries(&self) -> &[IndexedEntry] {
        &self.entries
    }

    /// The entries of raft's log, by index.
    pub fn effective(&self) -> impl Iterator<Item = &IndexedEntry> {
        self.entries.iter().filter(|entry| entry.fate == Fate::Effective)
    }

    /// The highest index that is known to be committed; 0 if none is.
    #[must_use]
    pub fn commit(&self) -> u64 {
        self.state.map_or(0, |state| state.commit)
    }

    /// Whether an entry is part of raft's log and committed.
    #[must_use]
    pub fn is_committed(&self, entry: &IndexedEntry) -> bool {
        entry.fate == Fate::Effective && entry.index <= self.commit()
    }

    /// The committed entries that a database does not have yet whose `consistent_index` (in the bucket `meta`) is this.
    /// After a crash that is up to 100 ms of writes: etcd applies them again when it starts.
    pub fn not_yet_in_db(&self, consistent_index: u64) -> impl Iterator<Item = &IndexedEntry> {
        self.entries.iter().filter(move |entry| entry.index > consistent_index && self.is_committed(entry))
    }

    /// Reads the log again and shows each entry with its data. What was appended since is left out.
    ///
    /// # Errors
    ///
    /// When a segment cannot be read.
    pub fn visit(&self, wal: &Wal, mut visit: impl FnMut(&IndexedEntry, Entry<'_>)) -> Result<(), Error> {
        let mut records = wal.records(self.mode);
        while let Some(item) = records.next_item()? {
            let Item::Record(record) = item else { continue };
            let RecordKind::Entry(entry) = record.kind else { continue };
            if let Ok(found) = self.entries.binary_search_by_key(&record.position, |entry| entry.position)
                && let Some(indexed) = self.entries.get(found)
                && (indexed.index, indexed.term) == (entry.index, entry.term)
            {
                visit(indexed, entry);
            }
        }
        Ok(())
    }
}
