use std::collections::HashMap;

use super::{Judge, Judged, Rows};
use crate::resource::ResourceRef;
use crate::source::StoredValue;
use crate::transformer::ResourceTransformer;

/// What values have in common of which a report says the same.
#[derive(PartialEq, Eq, Hash)]
struct Alike<'v> {
    resource: ResourceRef<'v>,
    namespace: Option<&'v [u8]>,
    /// The entries of the resource's list that opened them.
    entries: [usize; 2],
    stale: bool,
    /// Of KMS v2 a key is known by its ID too.
    kms_key_id: Option<&'v str>,
}

/// Judges values, those that are readable and need no row in groups: the verdict on one of them, and how many they are.
pub(super) fn judge(judge: &Judge<'_>, values: &[StoredValue], one_by_one: Rows) -> Vec<(Judged, StoredValue, u64)> {
    let mut groups: HashMap<Alike<'_>, (usize, u64)> = HashMap::new();
    let mut judged = Vec::new();
    for (index, value) in values.iter().enumerate() {
        match judge.readable(&value.key, &value.value) {
            Some(readable) if !readable.opened.stale || one_by_one < Rows::NotCurrent => {
                let alike = Alike {
                    resource: readable.resource,
                    namespace: readable.namespace,
                    entries: readable.opened.entries,
                    stale: readable.opened.stale,
                    kms_key_id: kms_key_id(readable.list, &value.value),
                };
                groups.entry(alike).or_insert((index, 0)).1 += 1;
            }
            _ => judged.push((judge.judge(value), value.clone(), 1)),
        }
    }
    let representatives = groups.into_values().filter_map(|(index, count)| Some((values.get(index)?, count)));
    judged.extend(representatives.map(|(value, count)| (judge.judge(value), value.clone(), count)));
    judged
}

fn kms_key_id<'v>(list: &'v ResourceTransformer, value: &'v [u8]) -> Option<&'v str> {
    list.kms_claimants(value).next()?;
    list.header(value).kms_key_id()
}
