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
use crate::snapshot::schema::Cluster;
use crate::snapshot::{
    self, Kept, KeyFilter, Marker, Rebuild, RebuildOptions, RebuildSource, Remnants, Removed, Snapshot,
};
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
    pub only: Option<KeyFilter<'a>>,
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
    /// The value as it is.
    Keep(Option<Kept>),
    /// The same of a Secret in the clear that lies where no object of the layout is.
    Elsewhere(Option<Kept>),
    /// Another value.
    Replace {
        value: Zeroizing<Vec<u8>>,
        kept: Option<Kept>,
        removed: Option<Removed>,
        resource: String,
        from: String,
        to: String,
    },
    /// A KMS has to give something to write with first.
    NeedsWriteKey(Arc<KmsProvider>),
    /// Nothing: it cannot be read, or cannot be sealed.
    Unreadable(Box<VerifyRow>, Option<Kept>),
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
    let report = RewriteReport::new(options.source.clone());
    let rebuild = Rebuild::begin(snapshot, options.source_path, options.target, options.rebuild)?;
    let writers = writers(options);
    for provider in &writers {
        kms.begin_writing(provider).await.map_err(|failure| Error::Kms { key: provider.label().clone(), failure })?;
    }
    let mut written = Written { rebuild, remnants: Remnants::default(), groups: BTreeMap::new(), report, elsewhere: 0 };
    let mut batches = written.rebuild.batches();
    progress.begin("rewriting", Some(written.rebuild.len() as u64));
    // While one batch is written, the next is opened and sealed.
    let mut ready: Option<Batch> = None;
    loop {
        let next = if stop.load(Ordering::Relaxed) { None } else { batches.next_batch()? };
        if let Some(records) = &next {
            resolve(records, options, kms, stop).await?;
        }
        // What a KMS was not asked for any more would pass for unreadable.
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let count = ready.as_ref().map_or(0, |(records, _)| records.len() as u64);
        let remnants = written.remnants.marker();
        let (outcomes, done) = rayon::join(
            || {
                let records = next.as_deref().unwrap_or_default();
                records.par_iter().map(|record| outcome(record, options, &remnants)).collect::<Result<Vec<_>, _>>()
            },
            || ready.take().map_or(Ok(()), |(records, outcomes)| written.write(&records, outcomes)),
        );
        done?;
        progress.advance(count);
        let Some(records) = next else { break };
        let mut outcomes = outcomes?;
        for (record, outcome) in records.iter().zip(&mut outcomes) {
            // Of KMS v1 each write takes a data key of its own.
            if let Outcome::NeedsWriteKey(provider) = outcome {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let key = provider.label().clone();
                kms.prepare_write(provider).await.map_err(|failure| Error::Kms { key, failure })?;
                *outcome = self::outcome(record, options, &remnants)?;
            }
        }
        ready = Some((records, outcomes));
    }
    let Written { rebuild, remnants, groups, mut report, elsewhere } = written;
    progress.end();
    report.complete = !stop.load(Ordering::Relaxed);
    for provider in &writers {
        kms.confirm_writing(provider).await.map_err(|failure| Error::Kms { key: provider.label().clone(), failure })?;
    }
    // A selection that is misspelled must not leave a file that passes for a redacted one.
    let is_selective = options.rebuild.drop_key.is_some() || options.only.is_some();
    let is_in_vain = is_selective && report.unreadable_values == 0 && rebuild.dropped() == 0 && groups.is_empty();
    report.set_groups(groups);
    if elsewhere > 0 {
        report.notes.push(format!(
            "{elsewhere} Secrets lie in the clear where no object is, and are left as they are: is --etcd-prefix right?"
        ));
    }
    if is_in_vain {
        report.notes.push("no key of the snapshot is among those that were named".to_owned());
    }
    if report.complete && !is_in_vain && (report.unreadable_values == 0 || options.keep_unreadable) {
        let done = rebuild.finish(|file| {
            let found = remnants.find(file)?;
            // A value that is left as it is may contain one that was replaced: a line feed more makes it unreadable.
            let is_kept = options.keep_unreadable && report.unreadable_values > 0;
            Ok(found.filter(|_| !is_kept).map(|offset| format!("a value that was replaced, at offset {offset}")))
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
        if options.change == Change::Rekey {
            report
                .notes
                .push("restore it on every member into a new data directory: `etcdutl snapshot restore`".to_owned());
        }
        let cluster = Cluster::read(snapshot.db()).map_err(snapshot::Error::from)?;
        if !cluster.alarms.is_empty() && !options.rebuild.drop_alarms {
            report.notes.push(
                "an alarm is on in it: the restored cluster begins with it, and may refuse writes (--drop-alarms leaves it out)".to_owned(),
            );
        }
        if cluster.auth_enabled {
            report.notes.push("auth is on in it: the restored cluster asks for a user".to_owned());
        }
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

/// Records, and what becomes of each.
type Batch = (Vec<RebuildSource>, Vec<Outcome>);

/// What is written, and what is noted of it.
struct Written<'a> {
    rebuild: Rebuild<'a>,
    remnants: Remnants,
    groups: BTreeMap<(String, String, String), u64>,
    report: RewriteReport,
    /// Secrets in the clear that lie where no object of the layout is.
    elsewhere: u64,
}

impl Written<'_> {
    fn write(&mut self, records: &[RebuildSource], outcomes: Vec<Outcome>) -> Result<(), Error> {
        for (record, outcome) in records.iter().zip(outcomes) {
            self.elsewhere += u64::from(matches!(outcome, Outcome::Elsewhere(_)));
            match outcome {
                Outcome::Keep(kept) | Outcome::Elsewhere(kept) => {
                    kept.into_iter().for_each(|kept| self.remnants.keep(kept));
                    self.rebuild.put(record, None)?;
                }
                Outcome::Replace { value, kept, removed, resource, from, to } => {
                    kept.into_iter().for_each(|kept| self.remnants.keep(kept));
                    removed.into_iter().for_each(|removed| self.remnants.remove(removed));
                    self.rebuild.put(record, Some(&value))?;
                    *self.groups.entry((resource, from, to)).or_default() += 1;
                }
                Outcome::Unreadable(row, kept) => {
                    kept.into_iter().for_each(|kept| self.remnants.keep(kept));
                    self.report.unreadable_values += 1;
                    if self.report.unreadable.len() < KEPT {
                        self.report.unreadable.push(*row);
                    }
                    self.rebuild.put(record, None)?;
                }
                Outcome::NeedsWriteKey(provider) => {
                    return Err(Error::Kms { key: provider.label().clone(), failure: DekFailure::NotAsked });
                }
            }
        }
        Ok(())
    }
}

/// The KMS providers that will write.
fn writers(options: &RewriteOptions<'_>) -> Vec<Arc<KmsProvider>> {
    let mut writers = BTreeMap::new();
    if matches!(options.change, Change::Rekey | Change::Blank) {
        for (_, list) in options.transformers.lists() {
            let is_of_secrets = std::ptr::eq(list, options.transformers.transformer_for_resource("", "secrets"));
            if options.change == Change::Blank && !is_of_secrets {
                continue;
            }
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
    let mut records = batch.iter().map(RebuildSource::kv).collect::<Result<Vec<_>, _>>()?;
    records.retain(|kv| {
        let is_secret = || options.layout.locate(kv.key).resource() == Some(ResourceRef::new("", "secrets"));
        options.only.is_none_or(|only| only(kv.key)) && (options.change != Change::Blank || is_secret())
    });
    let wanted = Wanted::by(options.transformers, options.layout, records.iter().map(|kv| (kv.key, kv.value)));
    if !wanted.is_empty() {
        kms.resolve(wanted, stop).await;
    }
    Ok(())
}

/// What becomes of a record.
fn outcome(
    record: &RebuildSource,
    options: &RewriteOptions<'_>,
    remnants: &Marker,
) -> Result<Outcome, snapshot::Error> {
    let (_, tombstone) = record.revision()?;
    let kv = record.kv()?;
    let keep = || Ok(Outcome::Keep(remnants.kept(kv.value)));
    let replace = |value: Zeroizing<Vec<u8>>, resource, from, to| {
        let (kept, removed) = (remnants.kept(&value), remnants.removed(kv.value));
        Ok(Outcome::Replace { value, kept, removed, resource, from, to })
    };
    if tombstone || kv.key.is_empty() || options.change == Change::Keep {
        return keep();
    }
    if options.only.is_some_and(|only| !only(kv.key)) {
        return keep();
    }
    let location = options.layout.locate(kv.key);
    let Location::Object { resource, .. } = &location else {
        // Ciphertext at no object's key: whoever drops the old key afterwards would lose it.
        let is_cipher = !matches!(Header::parse(kv.value), Header::Plaintext);
        if is_cipher {
            let row = Judge::new(options.transformers, options.layout).judge(&snapshot::stored_value(&kv)).row;
            return Ok(Outcome::Unreadable(Box::new(row), remnants.kept(kv.value)));
        }
        return match object::blank_secret(kv.value) {
            // A Secret is one wherever it lies.
            Ok(blank) if options.change == Change::Blank => {
                let identity = ProviderKind::Identity.to_string();
                replace(blank, place_of(&location), identity.clone(), identity)
            }
            Ok(_) if options.change == Change::Rekey => Ok(Outcome::Elsewhere(remnants.kept(kv.value))),
            _ => keep(),
        };
    };
    let blanks = options.change == Change::Blank;
    if blanks && *resource != ResourceRef::new("", "secrets") {
        return keep();
    }
    let list = options.transformers.transformer_for_resource(resource.group, resource.resource);
    let header = list.header(kv.value);
    let is_plain = matches!(header, Header::Plaintext);
    if is_plain
        && blanks
        && let Ok(blank) = object::blank_secret(kv.value)
    {
        // What is in the clear stays so, whatever else is wrong with it.
        let identity = ProviderKind::Identity.to_string();
        return replace(blank, place_of(&location), identity.clone(), identity);
    }
    if is_plain && !blanks && (options.change == Change::Decrypt || !list.is_configured()) {
        return keep();
    }
    let judge = Judge::new(options.transformers, options.layout);
    let unreadable = |class: Option<Class>, message: Option<String>| {
        let row = judge.judge(&snapshot::stored_value(&kv)).row;
        let (class, message) = (class.unwrap_or(row.class), message.unwrap_or(row.message));
        Ok(Outcome::Unreadable(Box::new(VerifyRow { class, message, value: row.value }), remnants.kept(kv.value)))
    };
    // What cannot be read, or is not what it should be, must not become a fresh and authenticated value.
    let Some(readable) = judge.readable(kv.key, kv.value) else { return unreadable(None, None) };
    let opened = readable.opened;
    let from = header.label_in_words();
    let resource = place_of(&location);
    let blank = match blanks.then(|| object::blank_secret(&opened.data)).transpose() {
        Ok(blank) => blank,
        Err(error) => {
            return unreadable(Some(Class::Malformed), Some(format!("not a Secret that can be blanked: {error}")));
        }
    };
    let data: &[u8] = blank.as_ref().map_or(&opened.data, |blank| blank);
    if options.change == Change::Decrypt || list.write_key().provider == ProviderKind::Identity {
        if is_plain && !blanks {
            return keep();
        }
        let mut plaintext = Zeroizing::new(Vec::with_capacity(data.len()));
        plaintext.extend_from_slice(data);
        let to = ProviderKind::Identity.to_string();
        return replace(plaintext, resource, from, to);
    }
    let context = DataContext::new(kv.key);
    match list.seal_and_reopen(data, context) {
        Ok(Some(value)) => {
            let to = list.write_key().to_string();
            replace(Zeroizing::new(value), resource, from, to)
        }
        Ok(None) => {
            let message = "what the first provider seals does not open to the same as current: look for two keys of the same name";
            unreadable(None, Some(message.to_owned()))
        }
        Err(transformer::Error::NoWriteState { .. }) if list.write_kms().is_some() => match list.write_kms() {
            Some(provider) => Ok(Outcome::NeedsWriteKey(Arc::clone(provider))),
            None => keep(),
        },
        Err(error) => unreadable(None, Some(format!("cannot be sealed: {error}"))),
    }
}
