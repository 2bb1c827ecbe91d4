use std::collections::BTreeMap;

use atrest::kine::View;
use atrest::source::StoredValue;
use proptest::prelude::*;

use crate::fixture::{Database, Journal, clean, history, value, view};

#[derive(Clone, Debug)]
enum Step {
    Put(u8, Vec<u8>, i64),
    Delete(u8),
    Gap,
    Compact(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_u8..6, prop::collection::vec(any::<u8>(), 0..6), 0_i64..3)
            .prop_map(|(key, value, lease)| Step::Put(key, value, lease)),
        3 => (0_u8..6).prop_map(Step::Delete),
        1 => Just(Step::Gap),
        1 => (0_u8..4).prop_map(Step::Compact),
    ];
    prop::collection::vec(step, 0..60)
}

fn key(number: u8) -> String {
    ["/registry/a", "/registry/a/b", "/registry/a_b", "/registry/B", "/x", "17"][usize::from(number)].to_owned()
}

type Live = BTreeMap<String, StoredValue>;

/// Applies the steps, and keeps what exists at each revision, and every value that was ever written.
/// Every value, by its name and its revision.
type History = BTreeMap<(String, i64), Vec<u8>>;

fn apply(database: &Database, steps: &[Step]) -> (BTreeMap<i64, Live>, History, i64) {
    let mut live = Live::new();
    let mut at = BTreeMap::from([(1, Live::new())]);
    let mut written = BTreeMap::new();
    let mut compacted = 0;
    for step in steps {
        let revision = match step {
            Step::Put(number, bytes, lease) => {
                let key = key(*number);
                let revision = database.put(&key, bytes, *lease);
                let created = live.get(&key).map_or(revision, |old| old.create_revision);
                written.insert((key.clone(), revision), bytes.clone());
                live.insert(key.clone(), value(&key, bytes, created, revision, *lease));
                Some(revision)
            }
            Step::Delete(number) => {
                let revision = database.delete(&key(*number));
                if let (Some(revision), Some(old)) = (revision, live.remove(&key(*number))) {
                    written.insert((key(*number), revision), old.value);
                }
                revision
            }
            Step::Gap => Some(database.gap()),
            Step::Compact(back) => {
                // Kine never compacts its last revisions.
                compacted = compacted.max(database.head() - 1 - i64::from(*back));
                database.compact(compacted);
                None
            }
        };
        if let Some(revision) = revision {
            at.insert(revision, live.clone());
        }
    }
    (at, written, compacted)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_view_is_what_was_written(steps in steps(), wal: bool) {
        let database = Database::new(if wal { Journal::Wal } else { Journal::Rollback });
        let (at, written, compacted) = apply(&database, &steps);
        let kine = database.kine();
        prop_assert_eq!(kine.compacted().unwrap(), compacted);
        // SQLite has numbers before text.
        let sorted = |mut values: Vec<StoredValue>| {
            values.sort_by(|a, b| (&a.key, a.mod_revision).cmp(&(&b.key, b.mod_revision)));
            values
        };
        for (revision, live) in at.range(compacted..) {
            let found = sorted(clean(&kine, &view(Some(*revision))));
            let expected: Vec<_> = live.values().cloned().collect();
            prop_assert_eq!(found, sorted(expected));
            let below = View { prefixes: vec![b"/registry/a".to_vec()], ..view(Some(*revision)) };
            let expected = live.values().filter(|value| value.key.starts_with(b"/registry/a"));
            prop_assert_eq!(sorted(clean(&kine, &below)), sorted(expected.cloned().collect()));
        }
        // The history has nothing that was not written, nothing twice, and everything since the compacted revision.
        let found = clean(&kine, &history());
        let mut places = BTreeMap::new();
        for value in &found {
            let place = (String::from_utf8(value.key.clone()).unwrap(), value.mod_revision);
            prop_assert_eq!(written.get(&place), Some(&value.value));
            prop_assert_eq!(places.insert(place, ()), None);
        }
        for place in written.keys().filter(|(_, revision)| *revision > compacted) {
            prop_assert!(places.contains_key(place), "{place:?}");
        }
    }
}
