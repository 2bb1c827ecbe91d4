//! A census of what is stored: by resource, provider, key name and KMS key ID, from the stored headers alone.
//!
//! No key is needed, nothing is opened, and memory does not grow with the number of values.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use crate::report::{Dimension, EtcdKey, Progress, ScanGroup, ScanReport, ValueRow, compaction_note, place_of};
use crate::resource::Selection;
use crate::source::{Source, StoredValue};
use crate::transformer::{Header, ProviderKind, ResourceTransformers};

/// What to count, and by what.
#[derive(Debug)]
pub struct Options<'a> {
    /// Which values.
    pub selection: &'a Selection,
    /// What the report calls the source.
    pub source: String,
    /// By what the census is broken down.
    pub by: Vec<Dimension>,
    /// A configuration, by which key names with a colon are recognised; it is not needed.
    pub transformers: Option<&'a ResourceTransformers>,
    /// Whether plaintext is unexpected.
    pub expect_encrypted: ExpectEncrypted,
}

/// For which values plaintext is a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectEncrypted {
    /// For none.
    No,
    /// For objects of resources that the configuration encrypts.
    AsConfigured,
    /// For all objects that are selected.
    Selected,
}

/// How many keys of unexpected values a report names.
const MAX_UNEXPECTED_KEYS: usize = 100;

/// With random nonces an AES-GCM key is due for rotation after so many writes (Kubernetes' documentation of aesgcm).
const AES_GCM_WRITES: u64 = 200_000;

struct Seen {
    row: ValueRow,
    place: String,
    bytes: u64,
    writes: u64,
    kind: Kind,
    unexpected: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plaintext,
    Encrypted,
    Unrecognised,
}

/// Counts what a source yields, and hands each value's row to `rows`.
///
/// # Errors
///
/// When the source cannot be read.
pub async fn scan<S: Source>(
    mut source: S,
    options: &Options<'_>,
    progress: &dyn Progress,
    stop: &AtomicBool,
    rows: &mut (dyn FnMut(&ValueRow) + Send),
) -> Result<ScanReport, S::Error> {
    let mut report = ScanReport::new(options.source.clone());
    let mut groups: BTreeMap<[Option<String>; 5], ScanGroup> = BTreeMap::new();
    let mut gcm_writes: BTreeMap<String, u64> = BTreeMap::new();
    progress.begin("scanning", source.expected());
    while !stop.load(Ordering::Relaxed) {
        let Some(page) = source.next_page().await? else { break };
        let seen: Vec<_> = page.values.par_iter().filter_map(|value| look(value, options)).collect();
        for seen in seen {
            rows(&seen.row);
            count(&mut report, &seen);
            if seen.row.provider.as_deref() == Some(ProviderKind::AesGcm.name()) {
                *gcm_writes.entry(seen.row.key_name.clone().unwrap_or_default()).or_default() += seen.writes;
            }
            add(&mut groups, seen, &options.by);
        }
        progress.advance(page.values.len() as u64);
    }
    progress.end();
    report.complete = !stop.load(Ordering::Relaxed);
    report.revision = source.revision().unwrap_or(0);
    report.single_revision = source.is_consistent();
    report.groups = groups.into_values().collect();
    report.notes.extend(options.selection.nothing_found(report.values));
    report.notes.extend(compaction_note(report.single_revision));
    for (name, writes) in gcm_writes.into_iter().filter(|(_, writes)| *writes >= AES_GCM_WRITES) {
        report.notes.push(format!(
            "the values under aesgcm/{name} were written {writes} times: with random nonces the key is due for rotation \
             after {AES_GCM_WRITES}"
        ));
    }
    Ok(report)
}

fn look(value: &StoredValue, options: &Options<'_>) -> Option<Seen> {
    let location = options.selection.layout.locate(&value.key);
    if !options.selection.includes(&location) {
        return None;
    }
    let resource = location.resource();
    let list = resource
        .zip(options.transformers)
        .map(|(resource, transformers)| transformers.transformer_for_resource(resource.group, resource.resource));
    let header = list.map_or_else(|| Header::parse(&value.value), |list| list.header(&value.value));
    let kind = match (&header, header.name()) {
        (Header::Plaintext, _) => Kind::Plaintext,
        (_, Some(_)) => Kind::Encrypted,
        (_, None) => Kind::Unrecognised,
    };
    let expected = match options.expect_encrypted {
        ExpectEncrypted::No => false,
        ExpectEncrypted::AsConfigured => {
            list.is_some_and(|list| list.is_configured() && list.write_key().provider != ProviderKind::Identity)
        }
        ExpectEncrypted::Selected => resource.is_some(),
    };
    Some(Seen {
        row: ValueRow::of(value, &location, &header),
        place: place_of(&location),
        bytes: value.value.len() as u64,
        writes: u64::try_from(value.version).unwrap_or(0),
        kind,
        unexpected: expected && kind != Kind::Encrypted,
    })
}

fn count(report: &mut ScanReport, seen: &Seen) {
    report.values += 1;
    *(match seen.kind {
        Kind::Plaintext => &mut report.plaintext,
        Kind::Encrypted => &mut report.encrypted,
        Kind::Unrecognised => &mut report.unrecognised,
    }) += 1;
    if seen.unexpected {
        report.unexpected += 1;
        if report.unexpected_keys.len() < MAX_UNEXPECTED_KEYS {
            report.unexpected_keys.push(EtcdKey(seen.row.key.0.clone()));
        }
    }
}

fn add(groups: &mut BTreeMap<[Option<String>; 5], ScanGroup>, seen: Seen, by: &[Dimension]) {
    let column = |dimension, text: Option<String>| text.filter(|_| by.contains(&dimension));
    let key = [
        column(Dimension::Resource, Some(seen.place)),
        column(Dimension::Namespace, Some(seen.row.namespace.unwrap_or_default())),
        column(Dimension::Provider, Some(seen.row.provider.unwrap_or_else(|| "(unrecognised)".to_owned()))),
        column(Dimension::Key, Some(seen.row.key_name.unwrap_or_default())),
        column(Dimension::KeyId, Some(seen.row.kms_key_id_hash.unwrap_or_default())),
    ];
    let revision = seen.row.mod_revision;
    let group = groups.entry(key).or_insert_with_key(|[resource, namespace, provider, key_name, key_id]| ScanGroup {
        resource: resource.clone(),
        namespace: namespace.clone(),
        provider: provider.clone(),
        key_name: key_name.clone(),
        kms_key_id_hash: key_id.clone(),
        values: 0,
        bytes: 0,
        writes: 0,
        oldest_revision: revision,
        newest_revision: revision,
    });
    group.values += 1;
    group.bytes += seen.bytes;
    group.writes += seen.writes;
    group.oldest_revision = group.oldest_revision.min(revision);
    group.newest_revision = group.newest_revision.max(revision);
}
