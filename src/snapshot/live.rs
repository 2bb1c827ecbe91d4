use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::ControlFlow;

use hashbrown::HashTable;

use super::records::{Problems, Record, RecordKind};
use super::{Error, Snapshot};

/// Where a value is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Where the encoded `KeyValue` begins, in bytes.
    pub(super) offset: u64,
    /// How many bytes it has.
    pub(super) len: u32,
}

/// The order in which values are yielded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As they are in the file, which is quickest: mostly the oldest first.
    #[default]
    Stored,
    /// By their keys, as etcd yields them.
    Keys,
}

/// What to read of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The revision; the last when there is none.
    pub revision: Option<i64>,
    /// Every value that is still in the file, also those that were overwritten or deleted.
    pub history: bool,
    /// The order.
    pub order: Order,
    /// Only keys that begin with one of these, when there are some.
    pub prefixes: Vec<Vec<u8>>,
}

impl View {
    fn wants(&self, key: &[u8]) -> bool {
        self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| key.starts_with(prefix))
    }
}

/// The places of the values of a view.
pub(super) struct Found {
    pub(super) places: Vec<Place>,
    /// The revision that was read.
    pub(super) revision: i64,
    /// Whether records that the view needs may have been compacted away.
    pub(super) incomplete: bool,
    pub(super) problems: Problems,
}

impl Snapshot {
    /// Where in the file the encoded records of a view begin, ascending.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or the revision is not in it.
    pub fn live_offsets(&self, view: &View) -> Result<Vec<u64>, Error> {
        let view = View { order: Order::Stored, ..view.clone() };
        Ok(find(self, &view)?.places.iter().map(|place| place.offset).collect())
    }
}

/// Walks the records once, and keeps of each wanted value where it is.
pub(super) fn find(snapshot: &Snapshot, view: &View) -> Result<Found, Error> {
    let meta = snapshot.meta();
    let compacted = meta.maybe_compacted();
    let mut incomplete = false;
    if let (Some(asked), Some(compacted)) = (view.revision, compacted)
        && asked < compacted
    {
        if snapshot.db().mode() == super::bbolt::Mode::Strict {
            return Err(Error::Compacted { asked, compacted });
        }
        incomplete = true;
    }
    let limit = view.revision.unwrap_or(i64::MAX);
    let mut problems = Problems::default();
    let mut last = None;
    let mut history = Vec::new();
    let mut live = Live::default();
    snapshot.records(&mut problems, |record| {
        if record.revision.main > limit {
            // A later record shows that the revision existed.
            last = Some(record.revision.main);
            return ControlFlow::Break(());
        }
        last = Some(record.revision.main);
        if record.kind() == RecordKind::RevisionBump || !view.wants(record.kv.key) {
            return ControlFlow::Continue(());
        }
        match (view.history, record.kind()) {
            (true, RecordKind::Put) => history.push(place(&record)),
            (true, _) => {}
            (false, RecordKind::Put) => live.put(record.kv.key, place(&record)),
            (false, _) => live.delete(record.kv.key),
        }
        ControlFlow::Continue(())
    })?;
    let head = meta.head(last);
    if let Some(asked) = view.revision
        && asked > head
    {
        return Err(Error::FutureRevision { asked, head });
    }
    let places = if view.history { history } else { live.into_places(view.order) };
    Ok(Found { places, revision: view.revision.unwrap_or(head), incomplete, problems })
}

fn place(record: &Record<'_>) -> Place {
    // An element of a page is shorter than 4 GiB.
    Place { offset: record.offset, len: u32::try_from(record.encoded.len()).unwrap_or(u32::MAX) }
}

/// The keys that exist, and where their values are.
///
/// The values stay in the file. Of a key, the directory is kept once for all keys in it.
#[derive(Default)]
struct Live {
    hasher: RandomState,
    directories: Vec<Vec<u8>>,
    directory_numbers: HashMap<Vec<u8>, u32>,
    /// The parts of the keys behind the last slash, one behind the other.
    names: Vec<u8>,
    keys: Vec<Key>,
    table: HashTable<u32>,
}

#[derive(Clone, Copy)]
struct Key {
    place: Place,
    directory: u32,
    name_len: u32,
    name_at: u64,
}

/// A deleted key keeps its name, in case that it is created again.
const GONE: Place = Place { offset: 0, len: 0 };

impl Live {
    fn put(&mut self, key: &[u8], place: Place) {
        let (directory, name) = key.split_at(key.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1));
        let hash = self.hasher.hash_one(key);
        if let Some(index) = self.index(hash, directory, name) {
            if let Some(known) = self.keys.get_mut(index) {
                known.place = place;
            }
            return;
        }
        let directory = match self.directory_numbers.get(directory) {
            Some(number) => *number,
            None => {
                // A directory takes more bytes of the file than there are numbers.
                let number = u32::try_from(self.directories.len()).unwrap_or(u32::MAX);
                self.directories.push(directory.to_vec());
                self.directory_numbers.insert(directory.to_vec(), number);
                number
            }
        };
        let index = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        let name_len = u32::try_from(name.len()).unwrap_or(u32::MAX);
        self.keys.push(Key { place, directory, name_len, name_at: self.names.len() as u64 });
        self.names.extend_from_slice(name);
        let Self { hasher, directories, names, keys, table, .. } = self;
        table.insert_unique(hash, index, |index| hash_of(hasher, directories, names, keys.get(*index as usize)));
    }

    fn delete(&mut self, key: &[u8]) {
        let (directory, name) = key.split_at(key.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1));
        let index = self.index(self.hasher.hash_one(key), directory, name);
        if let Some(known) = index.and_then(|index| self.keys.get_mut(index)) {
            known.place = GONE;
        }
    }

    fn index(&self, hash: u64, directory: &[u8], name: &[u8]) -> Option<usize> {
        let is_it =
            |index: &u32| self.keys.get(*index as usize).is_some_and(|key| self.parts(key) == (directory, name));
        self.table.find(hash, is_it).map(|index| *index as usize)
    }

    fn parts(&self, key: &Key) -> (&[u8], &[u8]) {
        parts(&self.directories, &self.names, key)
    }

    fn into_places(mut self, order: Order) -> Vec<Place> {
        self.table = HashTable::new();
        let mut keys = std::mem::take(&mut self.keys);
        keys.retain(|key| key.place != GONE);
        match order {
            Order::Stored => keys.sort_unstable_by_key(|key| key.place.offset),
            Order::Keys => keys.sort_unstable_by(|a, b| {
                let ((a_directory, a_name), (b_directory, b_name)) = (self.parts(a), self.parts(b));
                if a.directory == b.directory {
                    return a_name.cmp(b_name);
                }
                a_directory.iter().chain(a_name).cmp(b_directory.iter().chain(b_name))
            }),
        }
        keys.into_iter().map(|key| key.place).collect()
    }
}

fn parts<'l>(directories: &'l [Vec<u8>], names: &'l [u8], key: &Key) -> (&'l [u8], &'l [u8]) {
    let start = usize::try_from(key.name_at).unwrap_or(usize::MAX);
    let name = names.get(start..start.saturating_add(key.name_len as usize)).unwrap_or_default();
    (directories.get(key.directory as usize).map(Vec::as_slice).unwrap_or_default(), name)
}

fn hash_of(hasher: &RandomState, directories: &[Vec<u8>], names: &[u8], key: Option<&Key>) -> u64 {
    let Some(key) = key else { return 0 };
    let (directory, name) = parts(directories, names, key);
    hasher.hash_one(&[directory, name].concat()[..])
}
