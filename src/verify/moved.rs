use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::judge::Judged;
use super::{Evidence, Options};
use crate::report::{Class, EtcdKey, Progress};
use crate::resource::KeyLayout;
use crate::source::{Source, StoredValue};
use crate::transformer::envelope::{DekResolver, Wanted};
use crate::transformer::{DataContext, KeyId, ResourceTransformers};

/// How many values are tried against other keys in one run, and how many bytes of them are kept for that.
const MAX_KEPT: usize = 256;
const MAX_KEPT_BYTES: usize = 32 * 1024 * 1024;
/// How many bytes are authenticated in vain before the search is given up: some seconds of work.
const MAX_WORK_BYTES: usize = 8 * 1024 * 1024 * 1024;

/// A value that failed to authenticate, until all others have been seen.
pub(super) struct Unplaced {
    judged: Judged,
    /// The keys that should have opened it.
    pub(super) claimants: Vec<KeyId>,
    /// Kept for a value that another etcd key may open, or that the KMS is to be asked about again.
    value: Option<StoredValue>,
    origin: Origin,
    refused: Refused,
}

/// What is known of a refusal of the KMS.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refused {
    Once,
    Again,
    /// And the same key has decrypted something else after that.
    WhileTheKeyWorks,
}

enum Origin {
    NotTried,
    NoneOf { keys: usize, all: bool },
    Found(EtcdKey),
}

impl Unplaced {
    pub(super) fn new(judged: Judged, claimants: Vec<KeyId>, value: StoredValue, kept_bytes: &mut usize) -> Self {
        let binds = judged.needs.as_ref().is_some_and(|label| label.provider.binds_to_key());
        let fits = *kept_bytes + value.value.len() + value.key.len() <= MAX_KEPT_BYTES;
        let value = (binds && fits).then(|| {
            *kept_bytes += value.value.len() + value.key.len();
            value
        });
        Self { judged, claimants, value, origin: Origin::NotTried, refused: Refused::Once }
    }

    /// Whether it failed under its own data key, and not for want of one.
    pub(super) fn may_have_moved(&self) -> bool {
        self.value.is_some() && self.judged.row.class == Class::WrongKey
    }

    /// A value whose data key the KMS has refused to decrypt.
    pub(super) fn refused_value(&self) -> Option<&StoredValue> {
        self.value.as_ref().filter(|_| self.judged.row.class == Class::KmsRefused)
    }

    pub(super) fn into_value(self) -> Option<StoredValue> {
        self.value
    }

    pub(super) fn refused_again(&mut self) {
        self.refused = Refused::Again;
    }

    pub(super) fn key_still_works(&mut self) {
        if self.refused == Refused::Again {
            self.refused = Refused::WhileTheKeyWorks;
        }
    }

    /// Of which keys it may be.
    pub(super) fn evidence(&self) -> Vec<Evidence> {
        self.claimants.iter().map(|key| (*key, self.kms_key_id_hash())).collect()
    }

    /// The hash of the key ID, of a value of KMS v2.
    pub(super) fn kms_key_id_hash(&self) -> Option<String> {
        self.judged.row.value.kms_key_id_hash.clone()
    }

    /// The final verdict, when `others` values were opened by the same key.
    pub(super) fn decide(self, others: u64, complete: bool) -> Judged {
        let mut judged = self.judged;
        let label = judged.needs.as_ref().map(ToString::to_string).unwrap_or_default();
        if judged.row.class == Class::KmsRefused {
            let says = std::mem::take(&mut judged.row.message);
            (judged.row.class, judged.row.message) = match (others, self.refused) {
                (0, _) => (Class::KmsRefused, says),
                (_, Refused::WhileTheKeyWorks) => (
                    Class::Damaged,
                    format!(
                        "{says}. It was refused twice, and {others} other values of that key open: its encrypted data key is \
                         damaged. Restore it from a backup"
                    ),
                ),
                _ => (
                    Class::KmsRefused,
                    format!(
                        "{says}. {others} other values of that key have opened, and it is not known whether the key works any \
                         longer: run this again"
                    ),
                ),
            };
            return judged;
        }
        let tried = match &self.origin {
            Origin::NoneOf { keys, all: true } => format!("; no other of {keys} live keys opens it either"),
            Origin::NoneOf { keys, all: false } => format!("; {keys} other keys were tried, the search was given up"),
            _ => String::new(),
        };
        (judged.row.class, judged.row.message) = match self.origin {
            Origin::Found(key) => (
                Class::Moved,
                format!(
                    "{label}: written for {key}, and copied here. It cannot be read under this key: write the object anew"
                ),
            ),
            _ if others > 0 && judged.needs.as_ref().is_some_and(|label| label.provider.is_kms()) => (
                Class::Damaged,
                format!(
                    "{label}: the KMS decrypts its data key, the data does not authenticate, and {others} other values of that \
                     key open{tried}. It is damaged: restore it from a backup"
                ),
            ),
            _ if others > 0 => (
                Class::Damaged,
                format!(
                    "{label}: authentication or padding failed, and {others} other values under that key open{tried}. It is \
                     damaged, or an API server with another key of that name wrote it: find that key, or restore it from \
                     a backup"
                ),
            ),
            _ if judged.needs.as_ref().is_some_and(|label| label.provider.is_kms()) => (
                Class::WrongKey,
                format!(
                    "{label}: the KMS decrypts its data key, and that opens nothing{tried}. It is damaged, or this is another \
                     KMS than the one that wrote it"
                ),
            ),
            _ => {
                let seen = if complete { "nothing" } else { "nothing that was read" };
                (
                    Class::WrongKey,
                    format!(
                        "{label}: authentication or padding failed, and {seen} under that key opens{tried}. The key in the \
                         configuration is not the one that wrote it: find the one that did"
                    ),
                )
            }
        };
        judged
    }
}

/// Finds the live keys for which values were written that fail under their own.
///
/// The same object under another prefix is tried first, then every live key.
pub(super) async fn find_origins<K: Source>(
    unplaced: &mut [Unplaced],
    mut keys: K,
    kms: &impl DekResolver,
    options: &Options<'_>,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<(), K::Error> {
    let (transformers, layout) = (options.transformers, &options.selection.layout);
    let mut searched: Vec<_> = unplaced.iter_mut().filter(|value| value.may_have_moved()).take(MAX_KEPT).collect();
    // Of KMS v1 there are so many data keys that these may have been dropped again.
    let kept = searched.iter().filter_map(|unplaced| unplaced.value.as_ref());
    let mut wanted = Wanted::default();
    for value in kept {
        if let Some(list) = transformers.transformer_for_key(layout, &value.key).filter(|list| list.lacks(&value.value))
        {
            wanted.add(list, &value.value);
        }
    }
    if !wanted.is_empty() {
        kms.resolve(wanted, stop).await;
    }
    searched.par_iter_mut().for_each(|value| {
        let under_other_prefixes = other_prefixes(value.value.as_ref(), layout);
        try_keys(value, &under_other_prefixes, transformers);
    });
    progress.begin("looking for the keys of moved values", keys.expected());
    let mut tried = 0;
    let mut work = 0;
    let mut all = true;
    loop {
        if stop.load(Ordering::Relaxed) {
            all = false;
            break;
        }
        let Some(page) = keys.next_page().await? else { break };
        let candidates: Vec<_> = page.values.into_iter().map(|value| value.key).collect();
        let bytes: usize = searched
            .iter()
            .filter(|value| !matches!(value.origin, Origin::Found(_)))
            .filter_map(|value| value.value.as_ref())
            .map(|value| value.value.len() + value.key.len())
            .sum();
        if bytes == 0 {
            break;
        }
        work += bytes.saturating_mul(candidates.len());
        if work > MAX_WORK_BYTES {
            all = false;
            break;
        }
        searched.par_iter_mut().for_each(|value| try_keys(value, &candidates, transformers));
        tried += candidates.len();
        progress.advance(candidates.len() as u64);
    }
    progress.end();
    for value in searched {
        if !matches!(value.origin, Origin::Found(_)) {
            value.origin = Origin::NoneOf { keys: tried, all };
        }
    }
    Ok(())
}

fn other_prefixes(value: Option<&StoredValue>, layout: &KeyLayout) -> Vec<Vec<u8>> {
    let Some(value) = value else { return Vec::new() };
    let prefixes = || layout.prefixes().iter().map(|prefix| prefix.as_str().as_bytes());
    let Some(path) = prefixes().find_map(|prefix| value.key.strip_prefix(prefix)) else { return Vec::new() };
    prefixes().map(|prefix| [prefix, path].concat()).collect()
}

fn try_keys(unplaced: &mut Unplaced, candidates: &[Vec<u8>], transformers: &ResourceTransformers) {
    let Some(value) = &unplaced.value else { return };
    if matches!(unplaced.origin, Origin::Found(_)) {
        return;
    }
    let name = |id: &KeyId| transformers.key(*id);
    let opened_as = unplaced.claimants.iter().filter_map(name).find_map(|key| {
        let payload = value.value.strip_prefix(key.label.prefix().as_slice())?;
        candidates
            .iter()
            .filter(|candidate| **candidate != value.key)
            .find(|candidate| key.open(payload, DataContext::new(candidate)).is_ok())
    });
    if let Some(key) = opened_as {
        unplaced.origin = Origin::Found(EtcdKey::new(key));
    }
}
