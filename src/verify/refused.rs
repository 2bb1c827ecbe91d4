use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::judge::{Judge, Judged};
use super::moved::Unplaced;
use super::{Evidence, Options};
use crate::report::Class;
use crate::source::StoredValue;
use crate::transformer::KmsProvider;
use crate::transformer::envelope::{DekResolver, DekSource, Wanted};

/// Of each key of a KMS, a DEK source that it has decrypted.
pub(super) type Good = HashMap<Evidence, (Arc<KmsProvider>, DekSource)>;

/// How many keys of KMS plugins are kept so.
pub(super) const MAX_GOOD: usize = 64;

/// Asks the KMS once more about what it has refused to decrypt, and then about something of the same key that it had decrypted.
///
/// Many plugins answer every error alike, and permissions and keys come and go while everything is read. Only what is refused twice,
/// while its key still works, is damaged. What is decrypted now is given back to be judged again.
pub(super) async fn ask_again(
    unplaced: &mut Vec<Unplaced>,
    good: &Good,
    kms: &impl DekResolver,
    options: &Options<'_>,
    stop: &AtomicBool,
) -> Vec<(Judged, StoredValue)> {
    let providers = options.transformers.kms_providers();
    let list = |value: &StoredValue| options.transformers.transformer_for_key(&options.selection.layout, &value.key);
    providers.iter().for_each(|provider| provider.forget_failures());
    let mut wanted = Wanted::default();
    for value in unplaced.iter().filter_map(Unplaced::refused_value) {
        if let Some(list) = list(value) {
            wanted.add(list, &value.value);
        }
    }
    if wanted.is_empty() {
        return Vec::new();
    }
    kms.resolve(wanted, stop).await;
    let judge = Judge::new(options.transformers, &options.selection.layout);
    let mut settled = Vec::new();
    let mut keys = BTreeSet::new();
    for mut one in std::mem::take(unplaced) {
        let Some(value) = one.refused_value() else {
            unplaced.push(one);
            continue;
        };
        let judged = judge.judge(value);
        if judged.unauthenticated.is_some() && judged.row.class == Class::KmsRefused {
            keys.extend(one.evidence());
            one.refused_again();
            unplaced.push(one);
        } else if let Some(value) = one.into_value() {
            settled.push((judged, value));
        }
    }
    let mut wanted = Wanted::default();
    let controls: Vec<_> = keys.into_iter().filter_map(|key| Some((good.get(&key)?, key))).collect();
    for ((provider, source), _) in &controls {
        provider.forget(&source.cache_key());
        wanted.add_source(provider, source.clone());
    }
    kms.resolve(wanted, stop).await;
    let working: BTreeSet<_> =
        controls.into_iter().filter(|((provider, source), _)| provider.has_dek(source)).map(|(_, key)| key).collect();
    for one in unplaced.iter_mut() {
        if one.evidence().iter().any(|key| working.contains(key)) {
            one.key_still_works();
        }
    }
    settled
}
