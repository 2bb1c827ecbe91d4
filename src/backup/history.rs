use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use crate::get::{self, Options, Shown};
use crate::object::{Object, Value, changes};
use crate::report::{EtcdKey, HistoryReport, HistoryRow, SCHEMA_VERSION, key_id_hash};
use crate::snapshot::{Error, Problems, RecordKind, Snapshot, stored_value};
use crate::source::StoredValue;
use crate::transformer::Header;
use crate::transformer::envelope::{DekResolver, Wanted};
use crate::verify::Judge;

/// A revision of the key that was asked for.
struct Revision {
    row: HistoryRow,
    /// Nothing for a deletion.
    value: Option<StoredValue>,
}

/// Lists every revision of a key that is still in a snapshot, and what changed from one to the next.
///
/// # Errors
///
/// When the snapshot cannot be read.
pub async fn history(
    snapshot: &Snapshot,
    key: &[u8],
    options: &Options<'_>,
    kms: &impl DekResolver,
    stop: &AtomicBool,
) -> Result<HistoryReport, Error> {
    let mut problems = Problems::default();
    let mut revisions = Vec::new();
    snapshot.records(&mut problems, |record| {
        if record.kv.key == key {
            let is_deletion = record.kind() == RecordKind::Tombstone;
            let header = Header::parse(record.kv.value);
            let row = HistoryRow {
                revision: record.revision.main,
                sub_revision: record.revision.sub,
                event: match (is_deletion, record.kv.version) {
                    (true, _) => "deleted",
                    (false, 1) => "created",
                    _ => "changed",
                },
                version: record.kv.version,
                time: None,
                key: if is_deletion { String::new() } else { header.label_in_words() },
                kms_key_id_hash: header.kms_key_id().map(key_id_hash),
                bytes: record.kv.value.len() as u64,
                class: None,
                manager: None,
                changes: Vec::new(),
            };
            revisions.push(Revision { row, value: (!is_deletion).then(|| stored_value(&record.kv)) });
        }
        ControlFlow::Continue(())
    })?;
    let values = revisions.iter().filter_map(|revision| revision.value.as_ref());
    let layout = &options.selection.layout;
    let wanted = Wanted::by(options.transformers, layout, values.map(|value| (&value.key[..], &value.value[..])));
    if !wanted.is_empty() {
        kms.resolve(wanted, stop).await;
    }
    let mut before: Option<Object> = None;
    let mut rows = Vec::new();
    for Revision { mut row, value } in revisions {
        let Some(value) = value else {
            before = None;
            rows.push(row);
            continue;
        };
        row.class = Some(Judge::new(options.transformers, layout).judge(&value).row.class);
        // The times are in managedFields, which are not shown otherwise.
        let whole = Options {
            transformers: options.transformers,
            selection: options.selection,
            source: String::new(),
            name: None,
            wants: options.wants,
            shown: Shown { managed_fields: true, ..options.shown },
        };
        let object = match get::read(&value, &whole) {
            get::Read::Object(got, _) => Some(got.object),
            _ => None,
        };
        if let Some(mut object) = object {
            (row.time, row.manager) = last_change(&object, row.version);
            if !options.shown.managed_fields {
                object.hide_managed_fields();
            }
            if let Some(before) = &before {
                let differs = |path: &str| path != ".metadata.resourceVersion";
                let found = changes(&before.value, &object.value).into_iter().filter(|change| differs(&change.path));
                row.changes = found.map(Into::into).collect();
            }
            before = Some(object);
        }
        rows.push(row);
    }
    Ok(HistoryReport {
        schema_version: SCHEMA_VERSION,
        source: options.source.clone(),
        key: EtcdKey::new(key),
        revisions: rows,
        complete: problems.is_clean(),
        notes: problems.lines().into_iter().take(20).map(|line| format!("damaged: {line}")).collect(),
    })
}

/// When an object was changed last and by whom, as far as it tells.
fn last_change(object: &Object, version: i64) -> (Option<String>, Option<String>) {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let created = text(object.value.at(&["metadata", "creationTimestamp"]));
    let fields = object.value.at(&["metadata", "managedFields"]).and_then(Value::as_array).unwrap_or_default();
    let last = fields
        .iter()
        .filter_map(|field| Some((text(field.get("time"))?, text(field.get("manager")))))
        .max_by(|(a, _), (b, _)| a.cmp(b));
    match last {
        Some((time, manager)) => (Some(time), manager),
        // Without managedFields only the first version tells its time.
        None => (created.filter(|_| version == 1), None),
    }
}
