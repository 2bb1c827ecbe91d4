//! Writes a snapshot anew.
//!
//! Editing values in place is never a redaction: free pages keep what was there, and so does the rest of a page. So that the new
//! file holds nothing but what is meant, it is built from its records, read again before it gets its name, and compared with them.

mod check;
mod plan;
mod records;
mod target;

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write as _};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::NamedTempFile;

use super::bbolt::{Bucket, Element, Mode, Warning, Writer};
use super::error::Unverified;
use super::hash::Crc;
use super::input::Input;
use super::key_value::KeyValue;
use super::revision::Revision;
use super::{Error, Snapshot, Trailer, schema};
use check::{add_record, verify};
use plan::{Place, plan};
pub use records::{Batches, Source};
pub use target::directory_of;
use target::{refuse_target, remove_abandoned};

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

/// An element of a bucket.
type KeyAndValue = (Vec<u8>, Vec<u8>);

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
        // All of it is read: buckets that share pages would be written more often than they are there.
        let whole = || snapshot.db().all_elements(|_, _| {}, |_| {});
        let (trailer, (planned, whole)) =
            rayon::join(|| snapshot.trailer(), || rayon::join(|| plan(snapshot, &options), whole));
        match trailer? {
            Trailer::Ok => {}
            trailer if !options.skip_hash_check => return Err(Error::Hash { trailer }),
            _ => {}
        }
        let planned = planned?;
        whole?;
        let failed = |source| Error::Write { path: target.to_owned(), source };
        let directory = directory_of(target);
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
            || again.db().input().sha256(len),
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
        File::open(directory_of(&target)).and_then(|directory| directory.sync_all()).map_err(failed)?;
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
