use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::write_keys::{WriteKeys, names_write_key};
use super::{Error, Options};
use crate::report::{Class, PlanGroup, Progress, RekeyPlan, key_in_words};
use crate::resource::{Location, ResourceRef};
use crate::source::{Source, StoredValue};
use crate::transformer::envelope::{DekFailure, DekResolver};
use crate::transformer::{Header, HeaderVerdict, ResourceTransformer};

/// What a rewritten value takes in etcd beside its key and value (`server/storage/quota.go`).
const QUOTA_OVERHEAD: u64 = 256;

/// Judges every value by its header, and writes nothing.
///
/// It is an estimate: whether a value really opens is known when it is opened. Only of the keys that would write it is made sure
/// that they are the cluster's: of the values that name such a key, some must open. `everything` yields all values; it is read
/// when the selection leaves some out and those that are selected do not tell.
///
/// # Errors
///
/// When etcd cannot be read, and when a KMS that would write cannot be used.
pub async fn plan<S>(
    mut source: S,
    everything: S,
    kms: &impl DekResolver,
    options: &Options<'_>,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<RekeyPlan, Error>
where
    S: Source,
    Error: From<S::Error>,
{
    kms.resolve(options.wanted_statuses(), stop).await;
    for (resource, provider) in options.write_kms().into_values() {
        if let Err(failure) = provider.key_id()
            && provider.is_v2()
        {
            let failure = DekFailure::clone(&failure);
            return Err(Error::Kms { resource: resource.to_string(), key: provider.label().clone(), failure });
        }
    }
    let mut plan = RekeyPlan::new(options.source.clone());
    let mut rewrite = BTreeMap::new();
    let mut unreadable = BTreeMap::new();
    let mut write_keys = WriteKeys::new(options);
    progress.begin("planning", source.expected());
    while !stop.load(Ordering::Relaxed) {
        let Some(page) = source.next_page().await? else { break };
        let judged: Vec<_> = page.values.par_iter().filter_map(|value| judge(value, options)).collect();
        let mut of_write_keys = Vec::new();
        for judged in judged {
            plan.values += 1;
            let Judged { value, list, group, bytes, growth, verdict } = judged;
            if names_write_key(value, list, verdict) && write_keys.wants(list) {
                of_write_keys.push((value, list));
            }
            match verdict {
                HeaderVerdict::Current => plan.current += 1,
                // Nearly all of them are current: it is AES-GCM of an unlucky length.
                HeaderVerdict::Undecided if list.write_kms().is_some() => plan.to_open += 1,
                HeaderVerdict::Stale | HeaderVerdict::Undecided => {
                    plan.to_rewrite += 1;
                    plan.growth_bytes += growth;
                    add(&mut rewrite, group, bytes);
                }
                verdict => {
                    plan.unreadable += 1;
                    add(&mut unreadable, (class(verdict), group), bytes);
                }
            }
        }
        write_keys.look_at(of_write_keys, kms, stop).await;
        progress.advance(page.values.len() as u64);
    }
    progress.end();
    plan.revision = source.revision().unwrap_or(0);
    plan.complete = !stop.load(Ordering::Relaxed);
    if plan.complete && options.selection.is_partial() && write_keys.is_open() {
        write_keys.look_through(everything, kms, options, progress, stop).await?;
    }
    plan.wrong_keys = write_keys.wrong();
    plan.rewrite = rewrite.into_iter().map(|(group, (values, bytes))| plan_group(group, values, bytes)).collect();
    plan.unreadable_groups = unreadable
        .into_iter()
        .map(|((class, group), (values, bytes))| (class, plan_group(group, values, bytes)))
        .collect();
    warn(&mut plan);
    plan.warnings.extend(options.selection.nothing_found(plan.values));
    Ok(plan)
}

/// Resource, namespace, the key that the header names, the key that writes.
pub(super) type Group = (String, String, String, String);

struct Judged<'v> {
    value: &'v StoredValue,
    list: &'v ResourceTransformer,
    group: Group,
    bytes: u64,
    growth: u64,
    verdict: HeaderVerdict,
}

fn judge<'v>(value: &'v StoredValue, options: &Options<'v>) -> Option<Judged<'v>> {
    let location = options.selection.layout.locate(&value.key);
    let Location::Object { resource, namespace, .. } = &location else { return None };
    if !options.selection.includes(&location) {
        return None;
    }
    let list = options.transformers.transformer_for_resource(resource.group, resource.resource);
    let header = list.header(&value.value);
    if !list.is_configured() && matches!(header, Header::Plaintext) {
        return None;
    }
    let (bytes, key_bytes) = (value.value.len() as u64, value.key.len() as u64);
    Some(Judged {
        value,
        list,
        group: group(*resource, *namespace, &header, write_key(list)),
        bytes,
        growth: bytes + key_bytes + QUOTA_OVERHEAD,
        verdict: list.judge(&header),
    })
}

/// What values are counted under that are rewritten from `header` to the key `to`.
pub(super) fn group(resource: ResourceRef<'_>, namespace: Option<&[u8]>, header: &Header<'_>, to: String) -> Group {
    let namespace = namespace.map(|namespace| String::from_utf8_lossy(namespace).into_owned()).unwrap_or_default();
    (resource.to_string(), namespace, named_key(header), to)
}

/// The key that a header names; of KMS v2 with the beginning of the hash of its key ID.
pub(super) fn named_key(header: &Header<'_>) -> String {
    header.label().map_or_else(|| "(unrecognised)".to_owned(), |label| key_in_words(&label, header.kms_key_id()))
}

/// The same for the key that writes.
fn write_key(list: &ResourceTransformer) -> String {
    key_in_words(&list.write_key(), list.write_key_id_of_kms().as_deref())
}

fn class(verdict: HeaderVerdict) -> Class {
    match verdict {
        HeaderVerdict::KmsUnknown => Class::KmsUnavailable,
        HeaderVerdict::NoProvider => Class::NoProvider,
        HeaderVerdict::KeyNotConfigured => Class::KeyNotConfigured,
        HeaderVerdict::PlaintextNotAllowed => Class::PlaintextNotAllowed,
        _ => Class::UnknownFormat,
    }
}

pub(super) fn add<K: Ord>(groups: &mut BTreeMap<K, (u64, u64)>, key: K, bytes: u64) {
    let (values, total) = groups.entry(key).or_default();
    *values += 1;
    *total += bytes;
}

pub(super) fn plan_group((resource, namespace, from, to): Group, values: u64, bytes: u64) -> PlanGroup {
    PlanGroup { resource, namespace, from, to, values, bytes }
}

fn warn(plan: &mut RekeyPlan) {
    plan.warnings.extend(plan.decryption_warning());
    if plan.to_rewrite > 0 {
        plan.warnings.push(
            "every API server must already read with the key that writes, or it will fail on what is rewritten"
                .to_owned(),
        );
    }
}
