//! What is written is what was meant, and etcd's format to the last byte.

use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::Path;

use atrest::snapshot::bbolt::{HazardKind, Item, Writer};
use atrest::snapshot::{
    Error, Input, Order, Problems, Rebuild, RebuildOptions, Rebuilt, Revision, Snapshot, Trailer, Values, View,
};
use proptest::prelude::*;

use crate::fixture::{STRICT, bytes, snapshot};

const NO_CHECK: RebuildOptions<'_> =
    RebuildOptions { drop_history: false, drop_alarms: false, drop_key: None, skip_hash_check: true, overwrite: false };

fn rebuild(
    snapshot: &Snapshot,
    target: &Path,
    options: RebuildOptions<'_>,
    mut value: impl FnMut(&[u8]) -> Option<Vec<u8>>,
) -> Result<Rebuilt, Error> {
    let mut rebuild = Rebuild::begin(snapshot, None, target, options)?;
    let mut batches = rebuild.batches();
    while let Some(batch) = batches.next_batch()? {
        for record in &batch {
            let kv = record.kv()?;
            let new = if record.revision()?.1 { None } else { value(kv.value) };
            rebuild.put(record, new.as_deref())?;
        }
    }
    rebuild.finish(|_| Ok(None))
}

/// Revision, deletion, key, numbers and value.
type Change = (Revision, bool, Vec<u8>, [i64; 4], Vec<u8>);

/// Every record of a snapshot: revision, deletion, key, numbers and value.
fn history(snapshot: &Snapshot) -> Vec<Change> {
    let mut records = Vec::new();
    snapshot
        .records(&mut Problems::default(), |record| {
            let kv = record.kv;
            let numbers = [kv.create_revision, kv.mod_revision, kv.version, kv.lease];
            records.push((record.revision, record.tombstone, kv.key.to_vec(), numbers, kv.value.to_vec()));
            ControlFlow::Continue(())
        })
        .expect("records");
    records
}

fn hazards(snapshot: &Snapshot) -> Vec<HazardKind> {
    let mut hazards = Vec::new();
    snapshot.db().map_pages(|_, item| {
        if let Item::Hazard(hazard) = item {
            hazards.push(hazard.kind);
        }
    });
    hazards
}

const VALID: [&str; 9] = [
    "valid/v351-history.db",
    "valid/v351-compacted.db",
    "valid/v3423-history.db",
    "valid/v368-compacted.db",
    "valid/v351-small-inline.db",
    "valid/v351-auth-enabled.db",
    "valid/bbolt143-pagesize-1024.db",
    "valid/bbolt143-pagesize-65536.db.gz",
    "datadir/v368-restored-bumped-db.gz",
];

#[test]
fn a_rebuilt_file_has_the_same_contents_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a directory");
    for (number, name) in VALID.into_iter().enumerate() {
        let original = snapshot(name);
        let target = directory.path().join(format!("{number}.db"));
        let rebuilt = rebuild(&original, &target, NO_CHECK, |_| None).expect(name);
        let copy = Snapshot::open(&target, STRICT).expect(name);
        assert_eq!(copy.trailer().expect("a trailer"), Trailer::Ok);
        assert_eq!(copy.status(|_| {}).expect("a status").hash, original.status(|_| {}).expect("a status").hash);
        assert_eq!(history(&copy), history(&original), "{name}");
        assert_eq!(copy.db().meta().page_size, original.db().meta().page_size);
        assert_eq!(copy.db().map_pages(|_, _| {}).used.gaps().count(), 0);
        let sequences = |of: &Snapshot| {
            of.db().buckets().iter().map(|bucket| (bucket.name.clone(), bucket.sequence)).collect::<Vec<_>>()
        };
        assert_eq!(sequences(&copy), sequences(&original));
        // A copy of the copy is the same file.
        let again = directory.path().join(format!("{number}-again.db"));
        rebuild(&copy, &again, NO_CHECK, |_| None).expect(name);
        let file = std::fs::read(&target).expect("a file");
        assert_eq!(std::fs::read(again).expect("a file"), file, "{name}");
        assert_eq!(rebuilt.size, file.len() as u64);
        assert_eq!(file.len() % 512, 32);
    }
}

#[test]
fn history_that_is_dropped_is_compacted() {
    let directory = tempfile::tempdir().expect("a directory");
    let target = directory.path().join("new.db");
    let original = snapshot("valid/v351-history.db");
    let rebuilt =
        rebuild(&original, &target, RebuildOptions { drop_history: true, ..NO_CHECK }, |_| None).expect("a file");
    assert_eq!((rebuilt.records_before, rebuilt.records, rebuilt.head), (47, 19, 46));
    let copy = Snapshot::open(&target, STRICT).expect("a snapshot");
    assert_eq!(copy.meta().finished_compact_revision, Some(46));
    assert_eq!(copy.meta().scheduled_compact_revision, Some(46));
    assert_eq!(copy.head().expect("a revision"), 46);
    let live = |snapshot: &std::sync::Arc<Snapshot>| {
        let view = View { order: Order::Keys, ..View::default() };
        let mut values = Values::new(snapshot, &view).expect("values");
        values
            .next_values()
            .expect("values")
            .expect("values")
            .iter()
            .map(|value| (value.key.clone(), value.mod_revision))
            .collect::<Vec<_>>()
    };
    assert_eq!(live(&std::sync::Arc::new(copy)), live(&original));
}

#[test]
fn a_key_that_is_dropped_takes_no_revision_with_it() {
    // The last record of the store is the deletion of s10: without it the revision would go backwards.
    let directory = tempfile::tempdir().expect("a directory");
    let original = snapshot("valid/v351-history.db");
    let is = |wanted: &'static str| move |key: &[u8]| key == wanted.as_bytes();
    let last = is("/registry/secrets/team-a/s10");
    let target = directory.path().join("last.db");
    let rebuilt =
        rebuild(&original, &target, RebuildOptions { drop_key: Some(&last), ..NO_CHECK }, |_| None).expect("a file");
    assert!(rebuilt.history_dropped);
    assert_eq!(Snapshot::open(&target, STRICT).expect("a snapshot").head().expect("a revision"), 46);
    // Any other goes, with all its generations, and history stays.
    let other = is("/registry/secrets/team-a/s11");
    let target = directory.path().join("other.db");
    let rebuilt =
        rebuild(&original, &target, RebuildOptions { drop_key: Some(&other), ..NO_CHECK }, |_| None).expect("a file");
    assert!(!rebuilt.history_dropped);
    let copy = Snapshot::open(&target, STRICT).expect("a snapshot");
    let left: Vec<_> =
        history(&original).into_iter().filter(|record| record.2 != b"/registry/secrets/team-a/s11").collect();
    assert_eq!(history(&copy), left);
    assert_eq!(rebuilt.dropped, 47 - left.len() as u64);
    let file = std::fs::read(target).expect("a file");
    assert!(!file.windows(27).any(|part| part == b"/registry/secrets/team-a/s11"));
}

#[test]
fn values_of_any_length_are_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let original = snapshot("valid/v351-history.db");
    let lengths = [0, 1, 4048, 4064, 4096, 4144, 1_500_000, 20_000_000, 64, 2000];
    let mut next = lengths.iter().cycle();
    let mut written = Vec::new();
    let target = directory.path().join("new.db");
    rebuild(&original, &target, NO_CHECK, |_| {
        let value = vec![7; *next.next().expect("a length")];
        written.push(value.clone());
        Some(value)
    })
    .expect("a file");
    let copy = Snapshot::open(&target, STRICT).expect("a snapshot");
    let values: Vec<_> = history(&copy).into_iter().filter(|record| !record.1).map(|record| record.4).collect();
    assert!(values == written, "the values are others");
}

#[test]
fn what_must_be_refused_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let target = directory.path().join("new.db");
    let refused =
        |name: &str, options| rebuild(&snapshot(name), &target, options, |_| None).expect_err("refused").to_string();
    let strict = RebuildOptions { skip_hash_check: false, ..NO_CHECK };
    assert_eq!(
        refused("corrupt/c02-truncated-no-trailer.db.gz", strict),
        "the snapshot may be damaged: no SHA-256: not written by `snapshot save`, or cut off"
    );
    assert_eq!(
        refused("corrupt/c04-sha-mismatch.db.gz", strict),
        "the snapshot may be damaged: SHA-256 does not match: the file is not as it was written"
    );
    assert!(refused("corrupt/c36-rev-key-bad-separator.db.gz", NO_CHECK).contains("a revision without its separator"));
    assert!(refused("corrupt/c37-kv-bad-protobuf.db.gz", NO_CHECK).contains("not a KeyValue"));
    std::fs::write(&target, b"precious").expect("a file");
    assert_eq!(refused("valid/v351-history.db", strict), format!("{} exists", target.display()));
    assert_eq!(std::fs::read(&target).expect("a file"), b"precious");
    // Nothing is left of what was begun.
    assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 1);
    let source = directory.path().join("source.db");
    std::fs::write(&source, bytes("valid/v351-history.db")).expect("a file");
    let itself = Snapshot::open(&source, STRICT).expect("a snapshot");
    let overwrite = RebuildOptions { overwrite: true, ..strict };
    let error = Rebuild::begin(&itself, Some(&source), &source, overwrite).expect_err("refused").to_string();
    assert_eq!(error, format!("{} is the snapshot itself", source.display()));
}

#[test]
fn a_file_that_is_begun_and_not_finished_leaves_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let target = directory.path().join("new.db");
    let original = snapshot("valid/v351-history.db");
    let rebuild = Rebuild::begin(&original, None, &target, NO_CHECK).expect("a file");
    drop(rebuild);
    let mut rebuild = Rebuild::begin(&original, None, &target, NO_CHECK).expect("a file");
    let mut batches = rebuild.batches();
    while let Some(batch) = batches.next_batch().expect("records") {
        batch.iter().for_each(|record| rebuild.put(record, None).expect("a record"));
    }
    let error = rebuild.finish(|_| Ok(Some("a secret".to_owned()))).expect_err("refused").to_string();
    assert_eq!(error, "the new snapshot was read again and is wrong: it still contains a secret");
    assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 0);
}

#[test]
fn hazards_are_seen() {
    assert_eq!(hazards(&snapshot("hazard/branch-with-one-child.db.gz")), [HazardKind::OneChild]);
    assert!(hazards(&snapshot("hazard/shortened-separators.db.gz")).contains(&HazardKind::Separator));
    for name in VALID {
        assert_eq!(hazards(&snapshot(name)), [], "{name}");
    }
    let alarmed = snapshot("hazard/nospace-alarm.db.gz");
    let cluster = atrest::snapshot::schema::Cluster::read(alarmed.db()).expect("a cluster");
    assert_eq!(cluster.alarms, [atrest::snapshot::schema::Alarm::NoSpace]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_tree_is_read_again_and_has_no_hazard(
        shift in 9_u32..=16,
        keys in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 1..60), 0..900),
        long in prop::collection::vec(0_usize..4000, 1..50),
    ) {
        let value = |index: usize| vec![b'v'; long[index % long.len()] % if index.is_multiple_of(7) { 4000 } else { 40 }];
        let mut writer = Writer::new(Cursor::new(Vec::new()), 1 << shift).expect("a writer");
        writer.bucket(b"key", 7).expect("a bucket");
        for (index, key) in keys.iter().enumerate() {
            writer.put(key, &value(index)).expect("an element");
        }
        writer.bucket(b"meta", 0).expect("a bucket");
        let (out, meta) = writer.finish(9).expect("a file");
        let bytes = out.into_inner();
        prop_assert_eq!(bytes.len() as u64, meta.high_water << shift);
        let snapshot = Snapshot::from_input(Input::from(bytes), STRICT).expect("a snapshot");
        let mut found = Vec::new();
        let map = snapshot.db().map_pages(|_, item| match item {
            Item::Element(element) => found.push((element.key.to_vec(), element.value.to_vec())),
            other => panic!("{other:?}"),
        });
        let expected: Vec<_> = keys.iter().enumerate().map(|(index, key)| (key.clone(), value(index))).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(map.used.gaps().count(), 0);
    }
}
