//! A census of what is stored: by resource, provider, key name and KMS key ID, from the stored headers alone.
//!
//! No key is needed, nothing is opened, and memory does not grow with the number of values.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use crate::report::{Dimension, EtcdKey, Progress, ScanGroup, ScanReport, ValueRow, compaction_note, place_of};
use crate::resource::{Location, Selection};
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
    /// Whether each value's row is wanted. Without, values are only counted.
    pub each_row: bool,
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
    let mut census = Census::default();
    progress.begin("scanning", source.expected());
    while !stop.load(Ordering::Relaxed) {
        let Some(page) = source.next_page().await? else { break };
        let at_once = page.values.len().div_ceil(rayon::current_num_threads()).max(64);
        let parts: Vec<_> = page.values.par_chunks(at_once).map(|values| look(values, options)).collect();
        for part in parts {
            part.rows.iter().for_each(&mut *rows);
            census.add(part, options, &mut report);
        }
        progress.advance(page.values.len() as u64);
    }
    progress.end();
    report.complete = !stop.load(Ordering::Relaxed);
    report.revision = source.revision().unwrap_or(0);
    report.single_revision = source.is_consistent();
    report.groups = census.groups.into_values().collect();
    report.notes.extend(options.selection.nothing_found(report.values));
    report.notes.extend(compaction_note(report.single_revision));
    for (name, writes) in census.gcm_writes.into_iter().filter(|(_, writes)| *writes >= AES_GCM_WRITES) {
        report.notes.push(format!(
            "the values under aesgcm/{name} were written {writes} times: with random nonces the key is due for rotation \
             after {AES_GCM_WRITES}"
        ));
    }
    Ok(report)
}

/// Values of which a census says the same.
#[derive(PartialEq, Eq, Hash)]
struct Cell<'v> {
    /// Without its name.
    location: Location<'v>,
    provider: Option<ProviderKind>,
    /// Of a header that no Kubernetes of today writes, what it says in place of a provider.
    unknown: &'v [u8],
    key_name: Option<&'v [u8]>,
    kms_key_id: Option<&'v str>,
    kind: Kind,
    unexpected: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Plaintext,
    Encrypted,
    Unrecognised,
}

/// What is known of the values of a cell.
struct Counted {
    /// The row of one of them, without what is its alone.
    row: ValueRow,
    place: String,
    kind: Kind,
    unexpected: bool,
    values: u64,
    bytes: u64,
    writes: u64,
    oldest_revision: i64,
    newest_revision: i64,
}

/// What was found in some values.
struct Part {
    counted: Vec<Counted>,
    /// The rows of all, where they are wanted.
    rows: Vec<ValueRow>,
    unexpected_keys: Vec<EtcdKey>,
}

fn look(values: &[StoredValue], options: &Options<'_>) -> Part {
    let mut cells: HashMap<Cell<'_>, Counted> = HashMap::new();
    let mut part = Part { counted: Vec::new(), rows: Vec::new(), unexpected_keys: Vec::new() };
    for value in values {
        let location = options.selection.layout.locate(&value.key);
        if !options.selection.includes(&location) {
            continue;
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
        let unexpected = expected && kind != Kind::Encrypted;
        if unexpected && part.unexpected_keys.len() < MAX_UNEXPECTED_KEYS {
            part.unexpected_keys.push(EtcdKey::new(&value.key));
        }
        if options.each_row {
            part.rows.push(ValueRow::of(value, &location, &header));
        }
        let cell = Cell {
            location: location.without_name(),
            provider: header.provider(),
            unknown: match header {
                Header::UnknownProvider { provider } => provider,
                Header::NewerVersion { version, .. } => version,
                _ => b"",
            },
            key_name: header.name(),
            kms_key_id: header.kms_key_id(),
            kind,
            unexpected,
        };
        let counted = cells.entry(cell).or_insert_with(|| Counted {
            row: ValueRow::of(value, &location, &header),
            place: place_of(&location),
            kind,
            unexpected,
            values: 0,
            bytes: 0,
            writes: 0,
            oldest_revision: value.mod_revision,
            newest_revision: value.mod_revision,
        });
        counted.values += 1;
        counted.bytes += value.value.len() as u64;
        let writes = u64::try_from(value.version).unwrap_or(0);
        counted.writes = counted.writes.saturating_add(writes);
        counted.oldest_revision = counted.oldest_revision.min(value.mod_revision);
        counted.newest_revision = counted.newest_revision.max(value.mod_revision);
    }
    part.counted = cells.into_values().collect();
    part
}

/// The census of all values.
#[derive(Default)]
struct Census {
    groups: BTreeMap<[Option<String>; 5], ScanGroup>,
    gcm_writes: BTreeMap<String, u64>,
}

impl Census {
    fn add(&mut self, part: Part, options: &Options<'_>, report: &mut ScanReport) {
        let room = MAX_UNEXPECTED_KEYS.saturating_sub(report.unexpected_keys.len());
        report.unexpected_keys.extend(part.unexpected_keys.into_iter().take(room));
        for counted in part.counted {
            report.values += counted.values;
            *(match counted.kind {
                Kind::Plaintext => &mut report.plaintext,
                Kind::Encrypted => &mut report.encrypted,
                Kind::Unrecognised => &mut report.unrecognised,
            }) += counted.values;
            report.unexpected += if counted.unexpected { counted.values } else { 0 };
            if counted.row.provider.as_deref() == Some(ProviderKind::AesGcm.name()) {
                let name = counted.row.key_name.clone().unwrap_or_default();
                let writes = self.gcm_writes.entry(name).or_default();
                *writes = writes.saturating_add(counted.writes);
            }
            self.add_group(counted, &options.by);
        }
    }

    fn add_group(&mut self, counted: Counted, by: &[Dimension]) {
        let column = |dimension, text: Option<String>| text.filter(|_| by.contains(&dimension));
        let Counted { row, place, values, bytes, writes, oldest_revision, newest_revision, .. } = counted;
        let key = [
            column(Dimension::Resource, Some(place)),
            column(Dimension::Namespace, Some(row.namespace.unwrap_or_default())),
            column(Dimension::Provider, Some(row.provider.unwrap_or_else(|| "(unrecognised)".to_owned()))),
            column(Dimension::Key, Some(row.key_name.unwrap_or_default())),
            column(Dimension::KeyId, Some(row.kms_key_id_hash.unwrap_or_default())),
        ];
        let group =
            self.groups.entry(key).or_insert_with_key(|[resource, namespace, provider, key_name, key_id]| ScanGroup {
                resource: resource.clone(),
                namespace: namespace.clone(),
                provider: provider.clone(),
                key_name: key_name.clone(),
                kms_key_id_hash: key_id.clone(),
                values: 0,
                bytes: 0,
                writes: 0,
                oldest_revision,
                newest_revision,
            });
        group.values += values;
        group.bytes += bytes;
        group.writes = group.writes.saturating_add(writes);
        group.oldest_revision = group.oldest_revision.min(oldest_revision);
        group.newest_revision = group.newest_revision.max(newest_revision);
    }
}
