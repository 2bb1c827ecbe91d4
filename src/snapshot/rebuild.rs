//! Writes a snapshot anew.
//!
//! Editing values in place is never a redaction: free pages keep what was there, and so does the rest of a page. So that the new
//! file holds nothing but what is meant, it is built from its records, read again before it gets its name, and compared with them.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write as _};
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use super::bbolt::{Bucket, Element, Item, Mode, Pager, Warning, Writer};
use super::error::Unverified;
use super::hash::Crc;
use super::input::Input;
use super::key_value::KeyValue;
use super::records::{self, RecordKind};
use super::revision::Revision;
use super::{BadRecord, Error, Snapshot, Status, Trailer, View, schema};

/// Says of etcd keys whether they are meant.
pub type KeyFilter<'a> = &'a (dyn Fn(&[u8]) -> bool + Sync);

/// What is written, besides the values.
#[derive(Clone, Copy, Default)]
pub struct RebuildOptions<'a> {
    /// Only the last value of each key; earlier revisions then answer "compacted".
    pub drop_history: bool,
    /// Leaves alarms out, with which the restored cluster would begin.
    pub drop_alarms: bool,
    /// Leaves keys out, with everything that they ever were.
    pub drop_key: Option<KeyFilter<'a>>,
    /// Takes a snapshot whose hash is missing or wrong.
    pub skip_hash_check: bool,
    /// Replaces a file that exists.
    pub overwrite: bool,
}

impl std::fmt::Debug for RebuildOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RebuildOptions")
            .field("drop_history", &self.drop_history)
            .field("drop_alarms", &self.drop_alarms)
            .field("skip_hash_check", &self.skip_hash_check)
            .field("overwrite", &self.overwrite)
            .finish_non_exhaustive()
    }
}

/// A record that is to be written, as it is or with another value.
pub struct Source {
    /// The key in the bucket: the revision.
    revision_key: Vec<u8>,
    encoded: Vec<u8>,
}

impl Source {
    /// The record.
    ///
    /// # Errors
    ///
    /// When it is none: the file has changed since it was looked through.
    pub fn kv(&self) -> Result<KeyValue<'_>, Error> {
        KeyValue::parse(&self.encoded).map_err(|_| Error::Changed(super::bbolt::Warning::Changed))
    }

    /// Its revision, and whether it deletes the key.
    ///
    /// # Errors
    ///
    /// As [`kv`](Self::kv).
    pub fn revision(&self) -> Result<(Revision, bool), Error> {
        Revision::parse(&self.revision_key).map_err(|_| Error::Changed(super::bbolt::Warning::Changed))
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Source([{} bytes])", self.encoded.len())
    }
}

/// An element of a bucket.
type KeyAndValue = (Vec<u8>, Vec<u8>);

/// Where a record is.
#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    key_len: u8,
    len: u32,
}

/// A snapshot that is being written.
#[derive(Debug)]
pub struct Rebuild<'a> {
    snapshot: &'a Snapshot,
    options: RebuildOptions<'a>,
    target: PathBuf,
    temporary: NamedTempFile,
    writer: Writer<BufWriter<File>>,
    places: Arc<[Place]>,
    /// Over the records that were written.
    sum: Crc,
    /// Over the elements of the other buckets.
    others: Crc,
    /// Whether anything is other than it was.
    changed: bool,
    /// Up to which revision the new file says that it was compacted.
    compacted: Option<i64>,
    rebuilt: Rebuilt,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{}", self.offset, self.len)
    }
}

/// The records that are to be written, read a batch at a time.
#[derive(Debug)]
pub struct Batches<'a> {
    snapshot: &'a Snapshot,
    places: Arc<[Place]>,
    next: usize,
}

impl Batches<'_> {
    /// The next records, or nothing behind the last.
    ///
    /// # Errors
    ///
    /// When they cannot be read any more.
    pub fn next_batch(&mut self) -> Result<Option<Vec<Source>>, Error> {
        let rest = self.places.get(self.next..).unwrap_or_default();
        let mut bytes = 0;
        let mut pager = Pager::new(self.snapshot.db().input());
        let mut batch = Vec::new();
        for place in rest.iter().take(BATCH_RECORDS) {
            let record = pager.bytes(place.offset, u64::from(place.len) + u64::from(place.key_len))?;
            let (key, encoded) = record.split_at(usize::from(place.key_len).min(record.len()));
            batch.push(Source { revision_key: key.to_vec(), encoded: encoded.to_vec() });
            bytes += u64::from(place.len);
            if bytes > BATCH_BYTES {
                break;
            }
        }
        self.next += batch.len();
        Ok(Some(batch).filter(|batch| !batch.is_empty()))
    }
}

/// What was written.
#[derive(Clone, Debug, Default)]
pub struct Rebuilt {
    /// How many records were there.
    pub records_before: u64,
    /// How many were written.
    pub records: u64,
    /// How many of them have another value.
    pub replaced: u64,
    /// How many records of keys that were to be left out.
    pub dropped: u64,
    /// The revision of the store, which is that of the original.
    pub head: i64,
    /// Whether history was left out, or had to be because the last record was.
    pub history_dropped: bool,
    /// How long the file is, in bytes.
    pub size: u64,
    /// The hash that `etcdutl snapshot status` prints.
    pub status_hash: u32,
    /// The SHA-256 at the end of the file.
    pub sha256: String,
}

/// As many bytes are read at once.
const BATCH_BYTES: u64 = 8 * 1024 * 1024;
const BATCH_RECORDS: usize = 8192;

impl<'a> Rebuild<'a> {
    /// Looks through the records, and begins a temporary file beside the target, which nobody else can read.
    ///
    /// # Errors
    ///
    /// When the snapshot is damaged or its hash is wrong, when the target exists, is the snapshot itself or cannot be written.
    pub fn begin(
        snapshot: &'a Snapshot,
        source: Option<&Path>,
        target: &Path,
        options: RebuildOptions<'a>,
    ) -> Result<Self, Error> {
        refuse_target(source, target, options.overwrite)?;
        if snapshot.db().mode() != Mode::Strict {
            return Err(Error::SalvageOnly);
        }
        if snapshot.db().bucket(schema::META).is_none() {
            return Err(Error::NoMetaBucket);
        }
        let (trailer, planned) = rayon::join(|| snapshot.trailer(), || plan(snapshot, &options));
        match trailer? {
            Trailer::Ok => {}
            trailer if !options.skip_hash_check => return Err(Error::Hash { trailer }),
            _ => {}
        }
        let planned = planned?;
        // All of it is read: buckets that share pages would be written more often than they are there.
        snapshot.db().all_elements(|_, _| {}, |_| {})?;
        let failed = |source| Error::Write { path: target.to_owned(), source };
        let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::metadata(directory).map_err(failed)?;
        remove_abandoned(directory);
        let temporary = tempfile::Builder::new()
            .prefix(&format!(".atrest-{}-", std::process::id()))
            .suffix(".part")
            .permissions(fs::Permissions::from_mode(0o600))
            .tempfile_in(directory)
            // Its own words name the temporary file.
            .map_err(|error| failed(error.kind().into()))?;
        let file = temporary.as_file().try_clone().map_err(failed)?;
        let page_size = u32::try_from(snapshot.db().meta().page_size).unwrap_or(4096);
        let writer = Writer::new(BufWriter::with_capacity(1024 * 1024, file), page_size).map_err(failed)?;
        let mut rebuild = Self {
            snapshot,
            options: RebuildOptions { drop_history: planned.history_dropped, ..options },
            target: target.to_owned(),
            temporary,
            writer,
            places: planned.places.into(),
            sum: Crc::default(),
            others: Crc::default(),
            changed: planned.rebuilt.dropped > 0 || planned.history_dropped,
            compacted: planned.history_dropped.then_some(planned.rebuilt.head),
            rebuilt: Rebuilt { history_dropped: planned.history_dropped, ..planned.rebuilt },
        };
        rebuild.copy_buckets(|name| name < schema::KEY)?;
        let sequence = snapshot.db().bucket(schema::KEY).map_or(0, |bucket| bucket.sequence);
        rebuild.writer.bucket(schema::KEY, sequence).map_err(failed)?;
        Ok(rebuild)
    }

    /// How many records are left out because of their keys.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.rebuilt.dropped
    }

    /// How many records there will be.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there will be none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The records, oldest first. Each of them is then to be [`put`](Self::put), in this order.
    #[must_use]
    pub fn batches(&self) -> Batches<'a> {
        Batches { snapshot: self.snapshot, places: Arc::clone(&self.places), next: 0 }
    }

    /// Writes a record, as it is or with another value.
    ///
    /// # Errors
    ///
    /// When it cannot be written, or has fields that would be lost.
    pub fn put(&mut self, record: &Source, value: Option<&[u8]>) -> Result<(), Error> {
        let mut encoded = zeroize::Zeroizing::new(Vec::new());
        let bytes = match value {
            None => &record.encoded,
            Some(value) => {
                let kv = record.kv()?;
                if kv.has_unknown_fields {
                    return Err(Error::UnknownFields { key: kv.key.to_vec(), revision: kv.mod_revision });
                }
                encoded.reserve_exact(value.len() + kv.key.len() + 64);
                KeyValue { value, ..kv }.encode(&mut encoded);
                self.rebuilt.replaced += 1;
                self.changed = true;
                &*encoded
            }
        };
        add_record(&mut self.sum, &record.revision_key, bytes);
        self.rebuilt.records += 1;
        self.writer.put(&record.revision_key, bytes).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Write { path: self.target.clone(), source }
    }

    /// Writes the rest, reads the file again, and gives it its name.
    ///
    /// `remnant` is handed the finished file and says what it should not contain.
    ///
    /// # Errors
    ///
    /// When it cannot be written, or is not what it should be. No file is left then.
    pub fn finish(
        mut self,
        remnant: impl FnOnce(&Input) -> Result<Option<String>, Error> + Send,
    ) -> Result<Rebuilt, Error> {
        self.copy_buckets(|name| name > schema::KEY)?;
        let Self { snapshot, target, temporary, writer, sum, others, changed, mut rebuilt, options, .. } = self;
        let failed = |source| Error::Write { path: target.clone(), source };
        let (out, meta) = writer.finish(snapshot.db().meta().txid).map_err(failed)?;
        let mut file = out.into_inner().map_err(|error| failed(error.into_error()))?;
        let len = meta.high_water * meta.page_size;
        let written = Input::open(temporary.path()).map_err(failed)?;
        let again = Snapshot::from_input(written, super::Options::default())?;
        // The file is read three times, to hash it, to compare it and to search it: all at once.
        let (sha256, (verified, found)) = rayon::join(
            || sha256_of(again.db().input(), len),
            || rayon::join(|| verify(&again, [sum.value(), others.value()], &rebuilt), || remnant(again.db().input())),
        );
        let (sha256, status) = (sha256.map_err(failed)?, verified?);
        if !changed && !options.drop_alarms && status.hash != snapshot.status(|_| {})?.hash {
            return Err(Error::Unverified(Unverified::StatusHash));
        }
        if again.meta().head(Some(status.revision)) != rebuilt.head {
            return Err(Error::Unverified(Unverified::Head));
        }
        if let Some(what) = found? {
            return Err(Error::Unverified(Unverified::Remnant(what)));
        }
        // What was read in several passes must be of one state.
        if snapshot.db().has_changed()? {
            return Err(Error::Changed(Warning::Changed));
        }
        file.seek(SeekFrom::Start(len)).and_then(|_| file.write_all(&sha256)).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        let again = Snapshot::from_input(Input::open(temporary.path()).map_err(failed)?, super::Options::default())?;
        if again.db().input().len() != len + sha256.len() as u64 {
            return Err(Error::Unverified(Unverified::Trailer));
        }
        rebuilt.size = len + sha256.len() as u64;
        rebuilt.status_hash = status.hash;
        rebuilt.sha256 = hex::encode(sha256);
        let persisted =
            if options.overwrite { temporary.persist(&target) } else { temporary.persist_noclobber(&target) };
        persisted.map_err(|error| failed(error.error))?;
        let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)?;
        Ok(rebuilt)
    }

    /// Copies the buckets that have nothing of users in them.
    fn copy_buckets(&mut self, wanted: impl Fn(&[u8]) -> bool) -> Result<(), Error> {
        let snapshot = self.snapshot;
        for bucket in snapshot.db().buckets().iter().filter(|bucket| wanted(&bucket.name)) {
            self.writer.bucket(&bucket.name, bucket.sequence).map_err(|source| self.failed(source))?;
            for (key, value) in self.elements_of(bucket)? {
                add_record(&mut self.others, &key, &value);
                self.writer.put(&key, &value).map_err(|source| self.failed(source))?;
            }
        }
        Ok(())
    }

    /// What a bucket of etcd's own will hold.
    fn elements_of(&self, bucket: &Bucket) -> Result<Vec<KeyAndValue>, Error> {
        let mut elements = Vec::new();
        if bucket.name == b"alarm" && self.options.drop_alarms {
            return Ok(elements);
        }
        let element = |element: Element<'_>| {
            elements.push((element.key.to_vec(), element.value.to_vec()));
            ControlFlow::Continue(())
        };
        self.snapshot.db().elements(bucket, element, |_| {})?;
        if let Some(compacted) = self.compacted.filter(|_| bucket.name == schema::META) {
            // The mark of what was to be done alone is not believed before etcd 3.5.14.
            for name in [&b"finishedCompactRev"[..], b"scheduledCompactRev"] {
                let mark = Revision { main: compacted, sub: 0 }.to_key().to_vec();
                match elements.iter_mut().find(|(key, _)| key == name) {
                    Some((_, value)) => *value = mark,
                    None => elements.push((name.to_vec(), mark)),
                }
            }
            elements.sort();
        }
        Ok(elements)
    }
}

/// The records that will be written.
struct Planned {
    places: Vec<Place>,
    history_dropped: bool,
    rebuilt: Rebuilt,
}

fn plan(snapshot: &Snapshot, options: &RebuildOptions<'_>) -> Result<Planned, Error> {
    let drops = |key: &[u8]| options.drop_key.is_some_and(|drop_key| drop_key(key));
    let bucket = snapshot.db().bucket(schema::KEY).ok_or(Error::NoKeyBucket { buckets: Vec::new() })?;
    let mut places = Vec::new();
    let mut rebuilt = Rebuilt::default();
    let mut bad = None;
    // The last revision of all records, and of those that stay.
    let (mut last, mut last_kept) = (None, None);
    let element = |element: Element<'_>| {
        let record = match records::parse(&element) {
            Ok(record) => record,
            Err(error) => {
                let Element { page, index, offset, .. } = element;
                bad = Some(BadRecord { page, element: index, offset, error });
                return ControlFlow::Break(());
            }
        };
        rebuilt.records_before += 1;
        last = Some(record.revision.main);
        if record.kind() != RecordKind::RevisionBump && drops(record.kv.key) {
            rebuilt.dropped += 1;
            return ControlFlow::Continue(());
        }
        last_kept = last;
        let (Ok(key_len), Ok(len)) = (u8::try_from(element.key.len()), u32::try_from(element.value.len())) else {
            return ControlFlow::Continue(());
        };
        places.push(Place { offset: element.offset, key_len, len });
        ControlFlow::Continue(())
    };
    snapshot.db().elements(bucket, element, |_| {})?;
    if let Some(bad) = bad {
        return Err(Error::BadRecord(bad));
    }
    rebuilt.head = snapshot.meta().head(last);
    // Were it not said that the store was compacted there, its revision would go backwards.
    let history_dropped = options.drop_history || snapshot.meta().head(last_kept) < rebuilt.head;
    if history_dropped {
        let live = snapshot.live_offsets(&View::default())?;
        places.retain(|place| live.binary_search(&(place.offset + u64::from(place.key_len))).is_ok());
    }
    Ok(Planned { places, history_dropped, rebuilt })
}

/// Removes what a process that was killed has left: it may hold everything in the clear.
fn remove_abandoned(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(".atrest-").and_then(|rest| rest.strip_suffix(".part")?.split_once('-'));
        let is_abandoned = process
            .is_some_and(|(process, _)| process.parse::<u32>().is_ok() && !Path::new("/proc").join(process).exists());
        if is_abandoned && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            _ = fs::remove_file(entry.path());
        }
    }
}

/// An existing file is replaced only when that is asked for, and what was read never.
fn refuse_target(source: Option<&Path>, target: &Path, overwrite: bool) -> Result<(), Error> {
    let Ok(existing) = fs::symlink_metadata(target) else { return Ok(()) };
    let of_source = source.and_then(|source| fs::metadata(source).ok());
    if of_source.is_some_and(|source| (source.dev(), source.ino()) == (existing.dev(), existing.ino())) {
        return Err(Error::SameFile { path: target.to_owned() });
    }
    if !overwrite || !existing.is_file() {
        return Err(Error::Exists { path: target.to_owned() });
    }
    Ok(())
}

fn add_record(sum: &mut Crc, revision_key: &[u8], encoded: &[u8]) {
    sum.add(&(revision_key.len() as u64).to_le_bytes());
    sum.add(revision_key);
    sum.add(&(encoded.len() as u64).to_le_bytes());
    sum.add(encoded);
}

fn sha256_of(input: &Input, len: u64) -> io::Result<[u8; 32]> {
    let mut hash = Sha256::new();
    let mut buffer = Vec::new();
    let mut offset = 0;
    while offset < len {
        let chunk = (1024 * 1024).min(len - offset);
        input.read_into(offset, chunk, &mut buffer)?;
        hash.update(&buffer);
        offset += chunk;
    }
    Ok(hash.finalize().into())
}

/// Reads a finished file as strictly as any, and compares its records with those that were meant.
fn verify(again: &Snapshot, sums: [u32; 2], rebuilt: &Rebuilt) -> Result<Status, Error> {
    let refused = |what| Err(Error::Unverified(what));
    let (mut sum, mut others) = (Crc::default(), Crc::default());
    let (mut count, mut wrong) = (0, None);
    let map = again.db().map_pages(|bucket, item| match item {
        Item::Element(element) if bucket.name == schema::KEY => {
            add_record(&mut sum, element.key, element.value);
            count += 1;
        }
        Item::Element(element) => add_record(&mut others, element.key, element.value),
        Item::Damage(damage) => wrong = Some(damage.to_string()),
        Item::Hazard(hazard) => wrong = Some(hazard.to_string()),
        Item::Slack { page, .. } => wrong = Some(format!("page {page} has bytes behind its elements")),
    });
    if let Some(wrong) = wrong {
        return refused(Unverified::Damage(wrong));
    }
    if count != rebuilt.records || [sum.value(), others.value()] != sums {
        return refused(Unverified::Records);
    }
    let meta = again.db().meta();
    let pages = meta.high_water.saturating_mul(meta.page_size);
    if map.used.len() != meta.high_water || !again.db().warnings().is_empty() || again.db().input().len() != pages {
        return refused(Unverified::UnusedPages);
    }
    again.status(|_| {})
}
