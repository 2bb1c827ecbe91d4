use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Options;
use crate::object;
use crate::report::{Progress, WrongKey};
use crate::resource::Location;
use crate::source::{Source, StoredValue};
use crate::transformer::envelope::{DekFailure, DekResolver, Wanted};
use crate::transformer::{DataContext, Error, HeaderVerdict, KeyId, KeyLabel, ResourceTransformer};

/// Whether the keys that would write are those of the cluster.
///
/// A key of the right name and the wrong bytes would make unreadable whatever it rewrites, on every API server. The values that
/// already name it tell: none of them opens.
pub(super) struct WriteKeys(BTreeMap<KeyId, Evidence>);

/// How many values a KMS is asked about.
const KMS_TRIES: u64 = 16;

fn is_of_another_key(error: &Error) -> bool {
    let refused = |failure: &DekFailure| matches!(failure, DekFailure::KeyUnknown(_)) || failure.may_be_of_the_value();
    error.kms_failure().is_some_and(refused) || error.is_authentication_failure()
}

struct Evidence {
    label: KeyLabel,
    opens: bool,
    failed: u64,
    /// How often a KMS was asked.
    asked: u64,
}

/// Whether a value names the key of its list: of a KMS v2 by whichever of its key IDs. A plugin with the keys of another cluster
/// has another key ID, under which nothing is stored.
pub(super) fn names_write_key(value: &StoredValue, list: &ResourceTransformer, verdict: HeaderVerdict) -> bool {
    match list.write_kms() {
        Some(kms) => value.value.starts_with(&kms.label().prefix()),
        None => verdict == HeaderVerdict::Current,
    }
}

impl WriteKeys {
    pub(super) fn new(options: &Options<'_>) -> Self {
        let lists = options.write_lists().into_iter();
        let evidence =
            |list: &ResourceTransformer| Evidence { label: list.write_key(), opens: false, failed: 0, asked: 0 };
        let untrusted = lists.filter(|(_, list)| !options.trusted.contains(&list.write_key()));
        Self(untrusted.filter_map(|(_, list)| Some((list.write_key_id()?, evidence(list)))).collect())
    }

    /// Whether nothing is known yet of some key.
    pub(super) fn is_open(&self) -> bool {
        self.0.values().any(|evidence| !evidence.opens)
    }

    /// Whether a value that the key of this list has written is still wanted.
    pub(super) fn wants(&self, list: &ResourceTransformer) -> bool {
        let evidence = list.write_key_id().and_then(|key| self.0.get(&key));
        evidence.is_some_and(|evidence| !evidence.opens)
    }

    /// Opens values that name the keys of their lists, until one of each has been opened.
    pub(super) async fn look_at(
        &mut self,
        values: Vec<(&StoredValue, &ResourceTransformer)>,
        kms: &impl DekResolver,
        stop: &AtomicBool,
    ) {
        for (value, list) in values {
            if !self.wants(list) {
                continue;
            }
            if list.write_kms().is_some() && list.lacks(&value.value) {
                // A KMS is not asked for ever.
                let evidence = list.write_key_id().and_then(|key| self.0.get_mut(&key));
                let Some(evidence) = evidence.filter(|evidence| evidence.asked < KMS_TRIES) else { continue };
                evidence.asked += 1;
                let mut wanted = Wanted::default();
                wanted.add(list, &value.value);
                kms.resolve(wanted, stop).await;
            }
            self.open(value, list);
        }
    }

    /// Opens a value that names the key of its list, unless another has been opened.
    fn open(&mut self, value: &StoredValue, list: &ResourceTransformer) {
        let Some(evidence) = list.write_key_id().and_then(|key| self.0.get_mut(&key)) else { return };
        if evidence.opens {
            return;
        }
        match list.open(&value.value, DataContext::new(&value.key)) {
            // A wrong AES-CBC key opens one value in 256, to nonsense.
            Ok((opened, by)) if by.label == evidence.label && object::identify(&opened.data).is_ok() => {
                evidence.opens = true;
            }
            // A value that is cut off, say, tells nothing of the key.
            Err(error) if !is_of_another_key(&error) => {}
            _ => evidence.failed += 1,
        }
    }

    /// Looks for evidence among all values.
    pub(super) async fn look_through<S: Source>(
        &mut self,
        mut everything: S,
        kms: &impl DekResolver,
        options: &Options<'_>,
        progress: &dyn Progress,
        stop: &AtomicBool,
    ) -> Result<(), S::Error> {
        // All values are more than those that were looked at, and include them.
        self.0.values_mut().for_each(|evidence| evidence.failed = 0);
        progress.begin("looking at the keys that write", None);
        while self.is_open() && !stop.load(Ordering::Relaxed) {
            let Some(page) = everything.next_page().await? else { break };
            let of_write_key = |value: &StoredValue| {
                let location = options.selection.layout.locate(&value.key);
                let Location::Object { resource, .. } = location else { return None };
                let list = options.transformers.transformer_for_resource(resource.group, resource.resource);
                let names = names_write_key(value, list, list.judge(&list.header(&value.value)));
                (names && self.wants(list)).then_some(list)
            };
            let values = page.values.iter().filter_map(|value| Some((value, of_write_key(value)?))).collect();
            self.look_at(values, kms, stop).await;
            progress.advance(page.values.len() as u64);
        }
        progress.end();
        Ok(())
    }

    /// The keys that open nothing of what names them.
    pub(super) fn wrong(self) -> Vec<WrongKey> {
        let wrong = self.0.into_values().filter(|evidence| !evidence.opens && evidence.failed > 0);
        wrong.map(|evidence| WrongKey { key: evidence.label.to_string(), values: evidence.failed }).collect()
    }
}
