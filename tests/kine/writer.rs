use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use atrest::kine::{Error, Values};
use atrest::source::Source as _;

use crate::fixture::{Database, Journal, view};

fn filled(journal: Journal, keys: usize) -> Database {
    let database = Database::new(journal);
    let transaction = database.connection.unchecked_transaction().unwrap();
    for number in 0..keys {
        database.put(&format!("/registry/{number:05}"), b"first", 0);
    }
    transaction.commit().unwrap();
    database
}

#[test]
fn a_writer_at_the_same_time_changes_nothing_in_a_view() {
    for journal in Journal::ALL {
        let database = filled(journal, 9000);
        let kine = database.kine();
        let mut views: Vec<_> = (0..5).map(|_| Values::new(&kine, &view(None)).unwrap()).collect();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let (done, reader) = (&done, &mut views);
            let reading = scope.spawn(move || {
                for values in reader {
                    let mut found = 0;
                    while let Some(page) = values.next_values().unwrap() {
                        assert!(page.iter().all(|value| value.value == b"first" && value.mod_revision <= 9001));
                        found += page.len();
                    }
                    assert_eq!((found, values.is_consistent(), values.revision()), (9000, true, Some(9001)));
                }
                done.store(true, Ordering::Relaxed);
            });
            database.connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
            let mut written = 0;
            while !done.load(Ordering::Relaxed) && !reading.is_finished() {
                database.put(&format!("/registry/{:05}", written * 37 % 12000), b"second", 0);
                written += 1;
            }
            assert!(written > 10, "{written}");
            reading.join().unwrap();
        });
        assert!(kine.head().unwrap() > 9001);
    }
}

#[test]
fn a_compaction_in_the_middle_drops_no_key() {
    let database = filled(Journal::Wal, 9000);
    let kine = database.kine();
    let mut values = Values::new(&kine, &view(None)).unwrap();
    let mut asked = Values::new(&kine, &view(Some(9001))).unwrap();
    let mut seen = BTreeMap::new();
    let mut take = |page: Option<Vec<atrest::source::StoredValue>>| {
        page.map(|page| page.into_iter().for_each(|value| assert_eq!(seen.insert(value.key, value.value), None)))
    };
    take(values.next_values().unwrap()).unwrap();
    assert_eq!(asked.next_values().unwrap().unwrap().len(), 4096);
    for number in (0..9000).step_by(10) {
        database.put(&format!("/registry/{number:05}"), b"second", 0);
    }
    database.compact(9001);
    assert!(values.is_consistent());
    take(values.next_values().unwrap()).unwrap();
    assert!(values.is_consistent(), "the revision can still be read");
    database.compact(9500);
    while take(values.next_values().unwrap()).is_some() {}
    assert_eq!((values.is_consistent(), values.revision()), (false, Some(9901)));
    assert_eq!(seen.len(), 9000);
    // The last page is of the later revision.
    assert_eq!(seen.values().filter(|value| *value == b"second").count(), 80);
    assert!(matches!(asked.next_values(), Err(Error::Compacted { asked: 9001, compacted: 9500 })));
    assert!(matches!(asked.again(), Err(Error::Compacted { asked: 9001, compacted: 9500 })));
}
