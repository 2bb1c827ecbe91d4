//! Opens every value, and says which are current, which are stale, which cannot be read, and why.
//!
//! "It decrypted" is never enough: aescbc and secretbox do not bind a value to its key, and a wrong aescbc key opens one value
//! in 256. What comes out must be a whole object, and the one that the etcd key names.

mod alike;
mod judge;
mod kms;
mod moved;
mod refused;
mod removable;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

pub use judge::{Judge, Judged};
pub use removable::RemovableKey;

use crate::report::{
    Class, EtcdKey, KeyUse, MissingKey, Progress, VerifyGroup, VerifyReport, VerifyRow, compaction_note,
};
use crate::resource::Selection;
use crate::source::{Source, StoredValue};
use crate::transformer::envelope::{DekResolver, Wanted};
use crate::transformer::{KeyId, KeyLabel, ProviderKind, ResourceTransformers};
use moved::Unplaced;
use refused::{Good, MAX_GOOD};
use removable::{Needs, removable, unattributed_to};

/// What to verify, and by what.
#[derive(Debug)]
pub struct Options<'a> {
    /// The configuration.
    pub transformers: &'a ResourceTransformers,
    /// Which values.
    pub selection: &'a Selection,
    /// What the report calls the source.
    pub source: String,
    /// Whether stale values are findings.
    pub expect_current: bool,
    /// The key whose removal is asked about.
    pub removable: Option<RemovableKey>,
    /// In words, what the answer to that holds for.
    pub scope: String,
    /// Of which values a row is wanted. Others that are alike are counted together.
    pub rows: Rows,
}

/// Of which values `rows` is handed a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rows {
    /// Of those that cannot be read, or are wrong.
    Unreadable,
    /// Of stale ones too.
    NotCurrent,
    /// Of all.
    Every,
}

impl Rows {
    /// The lowest at which a value has a row.
    const fn of(class: Class) -> Self {
        match class {
            Class::Current => Self::Every,
            Class::Stale => Self::NotCurrent,
            _ => Self::Unreadable,
        }
    }
}

impl Options<'_> {
    /// Which values have to be looked at one by one.
    fn one_by_one(&self) -> Rows {
        match (&self.removable, self.expect_current) {
            (Some(_), _) => Rows::Every,
            (None, true) => self.rows.max(Rows::NotCurrent),
            (None, false) => self.rows,
        }
    }
}

/// Verifies what a source yields, and hands each value's row to `rows`; those whose verdict takes the other values come last.
///
/// `keys` opens a second source, of keys alone, and is called only when values might have been moved from another key. `kms` is
/// asked for the data keys of values of a KMS.
///
/// # Errors
///
/// When a source cannot be read. Values that cannot be opened are findings.
pub async fn verify<S, K>(
    mut source: S,
    keys: impl AsyncFnOnce() -> Result<K, S::Error>,
    kms: &impl DekResolver,
    options: &Options<'_>,
    progress: &dyn Progress,
    stop: &AtomicBool,
    rows: &mut (dyn FnMut(&VerifyRow) + Send),
) -> Result<VerifyReport, S::Error>
where
    S: Source,
    S::Error: fmt::Display,
    K: Source<Error = S::Error>,
{
    let judge = Judge::new(options.transformers, &options.selection.layout);
    let mut tally = Tally::new(options, rows);
    // What failed in another run may not fail now.
    options.transformers.kms_providers().iter().for_each(|provider| provider.forget_failures());
    if matches!(options.removable, Some(RemovableKey::KmsKeyId { .. })) {
        // Whether a key ID can go depends on what the plugins write by.
        let mut wanted = Wanted::default();
        options.transformers.kms_providers().iter().for_each(|provider| wanted.add_provider(provider));
        kms.resolve(wanted, stop).await;
    }
    progress.begin("verifying", source.expected());
    'pages: while let Some(page) = if stop.load(Ordering::Relaxed) { None } else { source.next_page().await? } {
        let mut values = page.values.into_iter();
        // A KMS may be slow: how far it is must be seen more often than once a page.
        let at_once = if options.transformers.kms_providers().is_empty() { values.len() } else { KMS_BATCH };
        loop {
            let batch: Vec<_> = values.by_ref().take(at_once.max(1)).collect();
            if batch.is_empty() {
                break;
            }
            if stop.load(Ordering::Relaxed) {
                break 'pages;
            }
            let count = batch.len() as u64;
            let batch: Vec<_> = batch
                .into_par_iter()
                .filter(|value| options.selection.includes(&options.selection.layout.locate(&value.key)))
                .collect();
            resolve(&batch, kms, options, stop).await;
            if options.one_by_one() == Rows::Every {
                let judged: Vec<_> = batch.into_par_iter().map(|value| (judge.judge(&value), value)).collect();
                judged.into_iter().for_each(|(judged, value)| tally.add(judged, value, 1));
            } else {
                let at_once = batch.len().div_ceil(rayon::current_num_threads()).max(64);
                let judged: Vec<_> = batch
                    .par_chunks(at_once)
                    .map(|values| alike::judge(&judge, values, options.one_by_one()))
                    .collect();
                judged.into_iter().flatten().for_each(|(judged, value, count)| tally.add(judged, value, count));
            }
            progress.advance(count);
        }
    }
    progress.end();
    for (judged, value) in refused::ask_again(&mut tally.unplaced, &tally.good, kms, options, stop).await {
        tally.add(judged, value, 1);
    }
    tally.report.complete = !stop.load(Ordering::Relaxed);
    tally.report.revision = source.revision().unwrap_or(0);
    tally.report.single_revision = source.is_consistent();
    if tally.report.complete && tally.unplaced.iter().any(Unplaced::may_have_moved) {
        // What was verified is to be reported, also when other keys may not be read.
        let found = match keys().await {
            Ok(keys) => moved::find_origins(&mut tally.unplaced, keys, kms, options, progress, stop).await,
            Err(error) => Err(error),
        };
        if let Err(error) = found {
            tally.report.notes.push(format!("not all keys could be read to look for moved values: {error}"));
        }
    }
    Ok(tally.finish())
}

/// How many values are opened between two looks at the data keys that they need.
const KMS_BATCH: usize = 256;

/// Has the KMS plugins asked for the data keys of these values.
async fn resolve(values: &[StoredValue], kms: &impl DekResolver, options: &Options<'_>, stop: &AtomicBool) {
    if options.transformers.kms_providers().is_empty() {
        return;
    }
    let list = |value: &StoredValue| options.transformers.transformer_for_key(&options.selection.layout, &value.key);
    let lacking: Vec<_> = values
        .par_iter()
        .filter_map(|value| list(value).filter(|list| list.lacks(&value.value)).map(|list| (list, &value.value)))
        .collect();
    let mut wanted = Wanted::default();
    lacking.into_iter().for_each(|(list, value)| wanted.add(list, value));
    if !wanted.is_empty() {
        kms.resolve(wanted, stop).await;
    }
}

/// How many key IDs are named when the one that is asked about is not among them.
const SHOWN_KEY_IDS: usize = 16;

/// Of which key a value is: a KMS provider has one for each key ID.
type Evidence = (KeyId, Option<String>);

/// The state of a run.
struct Tally<'a> {
    options: &'a Options<'a>,
    rows: &'a mut (dyn FnMut(&VerifyRow) + Send),
    report: VerifyReport,
    groups: BTreeMap<(String, String, String, Class), u64>,
    /// Which keys opened something that is what it should be.
    opened: HashMap<Evidence, u64>,
    /// Of each key of a KMS, something that it has decrypted.
    good: Good,
    uses: BTreeMap<KeyLabel, (u64, u64)>,
    needed_by: Vec<EtcdKey>,
    needed_by_unreadable: u64,
    /// Values that may be of some key of a KMS v2, and do not say of which.
    without_key_id: u64,
    /// The hashes of the KMS key IDs that values name, up to [`SHOWN_KEY_IDS`].
    key_ids: BTreeSet<String>,
    /// The providers of values whose header does not tell the key; nothing where it does not even tell the provider.
    unattributed: BTreeMap<Option<String>, u64>,
    unplaced: Vec<Unplaced>,
    /// Keys that values name and the configuration lacks, with the hash of the KMS key ID.
    missing: BTreeMap<(String, Option<String>), u64>,
    kept_bytes: usize,
    skipped: u64,
}

impl<'a> Tally<'a> {
    fn new(options: &'a Options<'a>, rows: &'a mut (dyn FnMut(&VerifyRow) + Send)) -> Self {
        Self {
            options,
            rows,
            report: VerifyReport::new(options.source.clone()),
            groups: BTreeMap::new(),
            missing: BTreeMap::new(),
            opened: HashMap::new(),
            good: Good::new(),
            uses: BTreeMap::new(),
            needed_by: Vec::new(),
            needed_by_unreadable: 0,
            without_key_id: 0,
            key_ids: BTreeSet::new(),
            unattributed: BTreeMap::new(),
            unplaced: Vec::new(),
            kept_bytes: 0,
            skipped: 0,
        }
    }

    /// So many values of which all is the same that is reported.
    fn add(&mut self, judged: Judged, value: StoredValue, count: u64) {
        if judged.skipped {
            self.skipped += count;
            return;
        }
        if judged.row.class.is_readable()
            && let Some(key) = judged.opened_by.as_ref().and_then(|by| by.key)
        {
            let evidence = (key, judged.row.value.kms_key_id_hash.clone());
            if judged.opened_by.as_ref().is_some_and(|by| by.label.provider.is_kms())
                && self.good.len() < MAX_GOOD
                && !self.good.contains_key(&evidence)
                && let Some(list) =
                    self.options.transformers.transformer_for_key(&self.options.selection.layout, &value.key)
                && let Some((provider, source)) =
                    list.dek_sources(&value.value).find(|(kms, source)| kms.has_dek(source))
            {
                self.good.insert(evidence.clone(), (Arc::clone(provider), source));
            }
            *self.opened.entry(evidence).or_default() += count;
        }
        match judged.unauthenticated.clone() {
            Some(claimants) => {
                let unplaced = Unplaced::new(judged, claimants, value, &mut self.kept_bytes);
                self.unplaced.push(unplaced);
            }
            None => self.settle(judged, count),
        }
    }

    /// Counts a value whose verdict is known.
    fn settle(&mut self, judged: Judged, count: u64) {
        let Judged { row, place, needs, mut may_need, ungoverned, .. } = judged;
        self.report.values += count;
        *self.report.classes.entry(row.class).or_default() += count;
        // What is in the clear without being configured stays readable when `identity` is taken out of the configuration.
        let needed = needs.as_ref().filter(|label| !(ungoverned && label.provider == ProviderKind::Identity));
        if let Some(label) = needed {
            let (opens, unreadable) = self.uses.entry(label.clone()).or_default();
            *(if row.class.is_readable() { opens } else { unreadable }) += count;
        }
        may_need.retain(|label| needed != Some(label));
        may_need.sort();
        may_need.dedup();
        for label in &may_need {
            self.uses.entry(label.clone()).or_default().1 += count;
        }
        if row.value.key_name.is_none() && !row.class.is_readable() {
            *self.unattributed.entry(row.value.provider.clone()).or_default() += count;
        }
        let needs_it = |key: &RemovableKey| {
            key.is_needed_by(&row, needed) || may_need.iter().any(|label| key.is_needed_by(&row, Some(label)))
        };
        if self.options.removable.as_ref().is_some_and(needs_it) {
            self.needed_by.push(row.value.key.clone());
            self.needed_by_unreadable += u64::from(!row.class.is_readable());
        }
        let nested = may_need.iter().any(|label| label.provider == ProviderKind::KmsV2);
        if nested || (row.value.kms_key_id_hash.is_none() && may_be_of_kms_v2(&row)) {
            self.without_key_id += count;
        }
        if let Some(hash) = row.value.kms_key_id_hash.as_ref()
            && self.key_ids.len() < SHOWN_KEY_IDS
            && !self.key_ids.contains(hash)
        {
            self.key_ids.insert(hash.clone());
        }
        if row.class.lacks_a_key() {
            *self.missing.entry((row.value.label(), row.value.kms_key_id_hash.clone())).or_default() += count;
        }
        let key = row.value.label();
        let namespace = row.value.namespace.clone().unwrap_or_default();
        *self.groups.entry((place, namespace, key, row.class)).or_default() += count;
        if self.options.rows >= Rows::of(row.class) {
            (self.rows)(&row);
        }
        if !row.class.is_readable() || (self.options.expect_current && row.class == Class::Stale) {
            self.report.findings.push(row);
        }
    }

    fn finish(mut self) -> VerifyReport {
        for unplaced in std::mem::take(&mut self.unplaced) {
            let key_id = unplaced.kms_key_id_hash();
            let opened = |key: &KeyId| self.opened.get(&(*key, key_id.clone()));
            let others = unplaced.claimants.iter().filter_map(opened).sum();
            let judged = unplaced.decide(others, self.report.complete);
            self.settle(judged, 1);
        }
        let mut report = self.report;
        report.groups = self
            .groups
            .into_iter()
            .map(|((resource, namespace, key, class), values)| VerifyGroup { resource, namespace, key, class, values })
            .collect();
        report.missing = self
            .missing
            .into_iter()
            .map(|((key, kms_key_id_hash), values)| MissingKey { key, kms_key_id_hash, values })
            .collect();
        report.keys = key_uses(self.options.transformers, &self.uses, &self.unattributed);
        report.notes.extend(self.options.selection.nothing_found(report.values));
        if let Some(asked) = &self.options.removable {
            let needs = Needs {
                keys: self.needed_by,
                unreadable: self.needed_by_unreadable,
                unattributed: &self.unattributed,
                without_key_id: self.without_key_id,
                of_kms_v1: self
                    .uses
                    .iter()
                    .filter(|(label, _)| label.provider == ProviderKind::KmsV1)
                    .map(|(_, (a, b))| a + b)
                    .sum(),
            };
            report.removable = Some(removable(asked, &report, needs, self.options.transformers));
            report.notes.push(self.options.scope.clone());
            if matches!(asked, RemovableKey::KmsKeyId { .. })
                && report.removable.as_ref().is_some_and(|answer| answer.needed_by == 0)
            {
                let named: Vec<_> = self.key_ids.iter().map(String::as_str).collect();
                let named = if named.is_empty() { "none".to_owned() } else { named.join(", ") };
                report.notes.push(format!("no value names that key ID; values name {named}"));
            }
        }
        report.notes.extend(compaction_note(report.single_revision));
        if self.skipped > 0 {
            report.notes.push(format!(
                "not judged, since they are no keys of known resources and hold no ciphertext: {}",
                self.skipped
            ));
        }
        report
    }
}

/// Whether a value may be one of KMS v2: its header says so, or does not even tell the provider.
fn may_be_of_kms_v2(row: &VerifyRow) -> bool {
    match row.value.provider.as_deref() {
        // A newer version stands as `kms:v3`.
        Some(provider) => provider == ProviderKind::KmsV2.name() || provider.starts_with("kms:"),
        None => !row.class.is_readable(),
    }
}

fn key_uses(
    transformers: &ResourceTransformers,
    uses: &BTreeMap<KeyLabel, (u64, u64)>,
    unattributed: &BTreeMap<Option<String>, u64>,
) -> Vec<KeyUse> {
    let mut labels: BTreeMap<KeyLabel, BTreeSet<String>> =
        uses.keys().map(|label| (label.clone(), BTreeSet::new())).collect();
    for (resource, list) in transformers.lists() {
        for label in list.providers().iter().flat_map(|keys| keys.labels()) {
            labels.entry(label).or_default();
        }
        labels.entry(list.write_key()).or_default().insert(resource.to_string());
    }
    labels
        .into_iter()
        .map(|(label, writes)| {
            let (opens, unreadable) = uses.get(&label).copied().unwrap_or_default();
            let unattributed = match label.provider {
                ProviderKind::Identity => 0,
                provider => unattributed_to(provider, unattributed),
            };
            KeyUse { key: label.to_string(), writes: writes.into_iter().collect(), opens, unreadable, unattributed }
        })
        .collect()
}
