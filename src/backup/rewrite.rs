use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rayon::prelude::*;
use zeroize::Zeroizing;

use crate::object;
use crate::report::{Class, Progress, RewriteReport, VerifyRow, place_of};
use crate::resource::{KeyLayout, Location, ResourceRef};
use crate::snapshot::{self, Rebuild, RebuildOptions, RebuildSource, Remnants, Snapshot};
use crate::transformer::envelope::{DekFailure, DekResolver, Wanted};
use crate::transformer::{self, DataContext, Header, KeyLabel, KmsProvider, ProviderKind, ResourceTransformers};
use crate::verify::Judge;

/// What becomes of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Each is sealed anew by the first provider of its resource, also what is current and what is history.
    Rekey,
    /// Each is stored in the clear.
    Decrypt,
    /// Of Secrets, what they keep is replaced by fixed bytes; everything else stays as it is.
    Blank,
    /// They stay as they are.
    Keep,
}

/// What to write.
pub struct RewriteOptions<'a> {
    /// The configuration.
    pub transformers: &'a ResourceTransformers,
    /// Where API servers store.
    pub layout: &'a KeyLayout,
    /// What the report calls the source.
    pub source: String,
    /// The file that is read, which must not be written.
    pub source_path: Option<&'a Path>,
    /// The file that is written.
    pub target: &'a Path,
    /// What becomes of the values.
    pub change: Change,
    /// Only of keys of which this is true.
    pub only: Option<&'a (dyn Fn(&[u8]) -> bool + Sync)>,
    /// Leaves values as they are that cannot be read; otherwise nothing is written when there are some.
    pub keep_unreadable: bool,
    /// The rest.
    pub rebuild: RebuildOptions<'a>,
}

impl std::fmt::Debug for RewriteOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RewriteOptions")
            .field("source", &self.source)
            .field("target", &self.target)
            .field("change", &self.change)
            .field("keep_unreadable", &self.keep_unreadable)
            .field("rebuild", &self.rebuild)
            .finish_non_exhaustive()
    }
}

/// Why a snapshot was not rewritten. Nothing is left of what was begun.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The snapshot cannot be read, or the new one not be written.
    #[error(transparent)]
    Snapshot(#[from] snapshot::Error),
    /// A KMS that is to write cannot.
    #[error("{key} cannot write")]
    Kms {
        /// The provider.
        key: KeyLabel,
        /// What is wrong with it.
        #[source]
        failure: DekFailure,
    },
}

/// How many values that cannot be read are kept for the report.
const KEPT: usize = 1000;

/// What is written in place of a value.
enum Outcome {
    /// The value as it is; of a value that names a key, which.
    Keep,
    /// Another value.
    Replace { value: Zeroizing<Vec<u8>>, resource: String, from: String, to: String },
    /// A KMS has to give something to write with first.
    NeedsWriteKey(Arc<KmsProvider>),
    /// Nothing: it cannot be read, or cannot be sealed.
    Unreadable(Box<VerifyRow>),
}

/// Writes a snapshot anew. Values that cannot be read are listed in the report, and then, unless they are to be kept, no file is
/// written.
///
/// # Errors
///
/// When the snapshot cannot be read, the new one cannot be written or is not what it should be, or a KMS cannot write.
pub async fn rewrite(
    snapshot: &Snapshot,
    options: &RewriteOptions<'_>,
    kms: &impl DekResolver,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<RewriteReport, Error> {
    let begun = Instant::now();
    let mut report = RewriteReport::new(options.source.clone());
    let mut rebuild = Rebuild::begin(snapshot, options.source_path, options.target, options.rebuild)?;
    let writers = writers(options);
    for provider in &writers {
        kms.begin_writing(provider).await.map_err(|failure| Error::Kms { key: provider.label().clone(), failure })?;
    }
    let mut groups = BTreeMap::new();
    let mut remnants = Remnants::default();
    progress.begin("rewriting", Some(rebuild.len() as u64));
    while let Some(batch) = if stop.load(Ordering::Relaxed) { None } else { rebuild.next_batch()? } {
        resolve(&batch, options, kms, stop).await?;
        let outcomes: Vec<_> = batch.par_iter().map(|record| outcome(record, options)).collect();
        for (record, outcome) in batch.iter().zip(outcomes) {
            let mut outcome = outcome?;
            // Of KMS v1 each write takes a data key of its own.
            if let Outcome::NeedsWriteKey(provider) = &outcome {
                let key = provider.label().clone();
                kms.prepare_write(provider).await.map_err(|failure| Error::Kms { key, failure })?;
                outcome = self::outcome(record, options)?;
            }
            match outcome {
                Outcome::Keep => {
                    remnants.keep(record.kv()?.value);
                    rebuild.put(record, None)?;
                }
                Outcome::Replace { value, resource, from, to } => {
                    remnants.keep(&value);
                    remnants.remove(record.kv()?.value, record.value_offset()?);
                    rebuild.put(record, Some(&value))?;
                    *groups.entry((resource, from, to)).or_default() += 1;
                }
                Outcome::Unreadable(row) => {
                    report.unreadable_values += 1;
                    if report.unreadable.len() < KEPT {
                        report.unreadable.push(*row);
                    }
                    remnants.keep(record.kv()?.value);
                    rebuild.put(record, None)?;
                }
                Outcome::NeedsWriteKey(provider) => {
                    let failure = DekFailure::NotAsked;
                    return Err(Error::Kms { key: provider.label().clone(), failure });
                }
            }
        }
        progress.advance(batch.len() as u64);
    }
    progress.end();
    report.complete = !stop.load(Ordering::Relaxed);
    for provider in &writers {
        kms.confirm_writing(provider).await.map_err(|failure| Error::Kms { key: provider.label().clone(), failure })?;
    }
    report.set_groups(groups);
    if report.complete && (report.unreadable_values == 0 || options.keep_unreadable) {
        let original = snapshot.db().input();
        let done = rebuild.finish(|file| {
            let found = remnants.find(original, file)?;
            Ok(found.map(|offset| format!("a value that was replaced, at offset {offset}")))
        })?;
        report.target = options.target.display().to_string();
        report.revision = done.head;
        report.records_before = done.records_before;
        report.records = done.records;
        report.replaced = done.replaced;
        report.dropped = done.dropped;
        report.history_dropped = done.history_dropped;
        report.size = done.size;
        report.status_hash = done.status_hash;
        report.sha256 = done.sha256;
        if done.history_dropped && !options.rebuild.drop_history {
            report.notes.push(
                "the last revision of the store was that of a key that is left out, so that history was dropped too"
                    .to_owned(),
            );
        }
    }
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

/// The KMS providers that will write.
fn writers(options: &RewriteOptions<'_>) -> Vec<Arc<KmsProvider>> {
    let mut writers = BTreeMap::new();
    if matches!(options.change, Change::Rekey | Change::Blank) {
        for (_, list) in options.transformers.lists() {
            writers.extend(list.write_kms().map(|provider| (provider.index(), Arc::clone(provider))));
        }
    }
    writers.into_values().collect()
}

/// Has the KMS asked for the data keys that a batch needs.
async fn resolve(
    batch: &[RebuildSource],
    options: &RewriteOptions<'_>,
    kms: &impl DekResolver,
    stop: &AtomicBool,
) -> Result<(), Error> {
    if options.change == Change::Keep {
        return Ok(());
    }
    let records = batch.iter().map(RebuildSource::kv).collect::<Result<Vec<_>, _>>()?;
    let wanted = Wanted::by(options.transformers, options.layout, records.iter().map(|kv| (kv.key, kv.value)));
    if !wanted.is_empty() {
        kms.resolve(wanted, stop).await;
    }
    Ok(())
}

/// What becomes of a record.
fn outcome(record: &RebuildSource, options: &RewriteOptions<'_>) -> Result<Outcome, snapshot::Error> {
    let (_, tombstone) = record.revision()?;
    let kv = record.kv()?;
    if tombstone || kv.key.is_empty() || options.change == Change::Keep {
        return Ok(Outcome::Keep);
    }
    if options.only.is_some_and(|only| !only(kv.key)) {
        return Ok(Outcome::Keep);
    }
    let location = options.layout.locate(kv.key);
    let Location::Object { resource, .. } = &location else { return Ok(Outcome::Keep) };
    let blanks = options.change == Change::Blank;
    if blanks && *resource != ResourceRef::new("", "secrets") {
        return Ok(Outcome::Keep);
    }
    let list = options.transformers.transformer_for_resource(resource.group, resource.resource);
    let header = list.header(kv.value);
    let is_plain = matches!(header, Header::Plaintext);
    if is_plain && !blanks && (options.change == Change::Decrypt || !list.is_configured()) {
        return Ok(Outcome::Keep);
    }
    let value = snapshot::stored_value(&kv);
    let (judged, opened) = Judge::new(options.transformers, options.layout).open(&value);
    let from = judged.row.value.label();
    let opened = match (judged.row.class, opened) {
        (Class::Current | Class::Stale, Some(opened)) => opened,
        // What cannot be read, or is not what it should be, must not become a fresh and authenticated value.
        _ => return Ok(Outcome::Unreadable(Box::new(judged.row))),
    };
    let resource = place_of(&location);
    let blank = match blanks.then(|| object::blank_secret(&opened.data)).transpose() {
        Ok(blank) => blank,
        Err(error) => {
            let message = format!("not a Secret that can be blanked: {error}");
            return Ok(Outcome::Unreadable(Box::new(VerifyRow { class: Class::Malformed, message, ..judged.row })));
        }
    };
    let data: &[u8] = blank.as_ref().map_or(&opened.data, |blank| blank);
    if options.change == Change::Decrypt || list.write_key().provider == ProviderKind::Identity {
        if is_plain && !blanks {
            return Ok(Outcome::Keep);
        }
        let mut plaintext = Zeroizing::new(Vec::with_capacity(data.len()));
        plaintext.extend_from_slice(data);
        let to = ProviderKind::Identity.to_string();
        return Ok(Outcome::Replace { value: plaintext, resource, from, to });
    }
    let context = DataContext::new(&value.key);
    match list.seal_and_reopen(data, context) {
        Ok(Some(value)) => {
            let to = list.write_key().to_string();
            Ok(Outcome::Replace { value: Zeroizing::new(value), resource, from, to })
        }
        Ok(None) => {
            let message = "what the first provider seals does not open to the same as current: look for two keys of the same name";
            Ok(Outcome::Unreadable(Box::new(VerifyRow { message: message.to_owned(), ..judged.row })))
        }
        Err(transformer::Error::NoWriteState { .. }) if list.write_kms().is_some() => match list.write_kms() {
            Some(provider) => Ok(Outcome::NeedsWriteKey(Arc::clone(provider))),
            None => Ok(Outcome::Keep),
        },
        Err(error) => {
            let message = format!("cannot be sealed: {error}");
            Ok(Outcome::Unreadable(Box::new(VerifyRow { message, ..judged.row })))
        }
    }
}
