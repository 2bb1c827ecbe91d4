//! Files that were damaged on purpose: a clear answer to each, never a panic, and never more work or memory than the file is worth.

use std::ops::ControlFlow;

use atrest::snapshot::bbolt::Error as DbError;
use atrest::snapshot::{Error, Input, Options, Problems, Snapshot, Values, View};

use rayon::prelude::*;

use crate::fixture::{SALVAGE, STRICT, bytes, lines};

/// Everything that reads a snapshot, and how it ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The first thing that ended it.
    pub(crate) error: Option<String>,
    pub(crate) warnings: Vec<String>,
    pub(crate) live: usize,
    pub(crate) problems: Problems,
}

pub(crate) fn read_all(bytes: Vec<u8>, options: Options) -> Outcome {
    let mut outcome = Outcome { error: None, warnings: Vec::new(), live: 0, problems: Problems::default() };
    let ended = read(bytes, options, &mut outcome);
    outcome.error = ended.err().map(|error| atrest::causes::Chain(&error).to_string());
    outcome
}

fn read(bytes: Vec<u8>, options: Options, outcome: &mut Outcome) -> Result<(), Error> {
    let snapshot = std::sync::Arc::new(Snapshot::from_input(Input::from(bytes), options)?);
    outcome.warnings.extend(snapshot.db().warnings().iter().map(ToString::to_string));
    outcome.warnings.extend(snapshot.db().damage().iter().map(ToString::to_string));
    let trailer = snapshot.trailer()?;
    if trailer != atrest::snapshot::Trailer::Ok {
        outcome.warnings.push(trailer.to_string());
    }
    let map = snapshot.db().map_pages(|_, _| {});
    outcome.warnings.extend(map.freelist.map(|problem| format!("freelist: {problem}")));
    snapshot.carve(&map.used, |_| {})?;
    let status = snapshot.status(|_| {});
    _ = snapshot.hash_kv(None);
    let mut problems = Problems::default();
    let records = snapshot.records(&mut problems, |_| ControlFlow::Continue(()));
    outcome.problems = problems;
    records?;
    let mut values = Values::new(&snapshot, &View::default())?;
    while let Some(page) = values.next_values()? {
        outcome.live += page.len();
    }
    status.map(|_| ())
}

#[test]
fn every_case_ends_as_required() {
    for case in lines("corrupt/cases.jsonl") {
        let name = case["case"].as_str().expect("a name");
        let required = case["required"].as_str().expect("an outcome");
        let file = bytes(&format!("corrupt/{name}.db.gz"));
        let strict = read_all(file.clone(), STRICT);
        let salvaged = read_all(file, SALVAGE);
        let is_warned = !strict.warnings.is_empty();
        let is_right = match required {
            "ok" => strict.error.is_none() && !is_warned,
            "ok+warn" => strict.error.is_none() && is_warned,
            "error" => strict.error.is_some(),
            "ok+warn or error" => strict.error.is_some() && salvaged.error.is_none() && !salvaged.warnings.is_empty(),
            "error in bucket meta" => strict.error.is_some() && salvaged.error.is_none() && salvaged.live > 0,
            "error in record" => strict.error.is_none() && strict.problems.bad_records == 1 && strict.live > 0,
            other => panic!("{other}"),
        };
        assert!(is_right, "{name}: {required}: {strict:#?} {salvaged:#?}");
    }
}

/// The keys of the base, as long as the records of some pages are there.
fn live_without(lost: &[i64]) -> usize {
    let mut live = std::collections::BTreeSet::new();
    for record in lines("expected/v351-corruption-base.history.jsonl") {
        if lost.contains(&record["page"].as_i64().expect("a page")) {
            continue;
        }
        let key = record["key"].to_string();
        _ = if record["tombstone"] == true { live.remove(&key) } else { live.insert(key) };
    }
    live.len()
}

#[test]
fn what_the_damage_leaves_is_salvaged() {
    let whole = live_without(&[]);
    assert_eq!(read_all(bytes("valid/v351-corruption-base.db"), STRICT).live, whole);
    // The branch has lost its child, which is still there.
    let lost_child = read_all(bytes("corrupt/c10-branch-child-out-of-range.db.gz"), SALVAGE);
    assert_eq!((lost_child.live, lost_child.problems.damaged), (whole, 1));
    assert!(lost_child.problems.recovered > 0);
    // The page does not say that it is page 5.
    let lost_page = read_all(bytes("corrupt/c20-page-id-mismatch.db.gz"), SALVAGE);
    assert_eq!((lost_page.live, lost_page.problems.damaged), (live_without(&[5]), 1));
    assert!(lost_page.live < whole);
    assert_eq!(
        lost_page.problems.lines(),
        ["page 5 (offset 20480): it says that it is page 77: revisions 22.0 up to 32.0 are lost"]
    );
}

#[test]
fn every_flip_of_a_bit_is_survived() {
    let file = bytes("valid/v351-corruption-base.db");
    let whole = read_all(file.clone(), STRICT);
    (0..file.len()).into_par_iter().for_each(|at| {
        let mut flipped = file.clone();
        flipped[at] ^= 1 << (at % 8);
        let outcome = read_all(flipped.clone(), STRICT);
        if outcome.error.is_some() {
            _ = read_all(flipped, SALVAGE);
        }
        // Where nothing else shows it, the hash does.
        if outcome.error.is_none() && outcome.problems.is_clean() {
            let told =
                outcome.warnings.iter().any(|warning| warning.contains("SHA-256") || warning.contains("meta page"));
            assert!(told, "offset {at}: {outcome:?}");
        }
    });
    assert_eq!(whole.error, None);
}

#[test]
fn every_truncation_is_survived() {
    let file = bytes("valid/v351-corruption-base.db");
    let len = file.len();
    (0..=len).into_par_iter().for_each(|cut| {
        let outcome = read_all(file[..cut].to_vec(), STRICT);
        let complete = outcome.error.is_none() && outcome.warnings.is_empty();
        assert_eq!(complete, cut == len, "{cut} of {len}: {outcome:?}");
        if cut % 64 == 0 {
            _ = read_all(file[..cut].to_vec(), SALVAGE);
        }
    });
}

#[test]
fn what_is_no_snapshot_is_named() {
    let open = |bytes: &[u8]| Snapshot::from_input(Input::from(bytes.to_vec()), STRICT).expect_err("no snapshot");
    assert!(matches!(open(b""), Error::Database(DbError::Empty)));
    assert!(matches!(open(&[7; 4096]), Error::Database(DbError::NotBbolt)));
    let mut big_endian = bytes("valid/v351-corruption-base.db");
    for page in [0, 4096] {
        big_endian[page + 16..page + 20].reverse();
    }
    assert!(matches!(open(&big_endian), Error::Database(DbError::BigEndian)));
    let directory = tempfile::tempdir().expect("a directory");
    let named = |bytes: &[u8]| {
        let path = directory.path().join("file");
        std::fs::write(&path, bytes).expect("a file");
        Snapshot::open(&path, STRICT).expect_err("no snapshot").to_string()
    };
    assert_eq!(named(b"SQLite format 3\0\x10\0"), "not a snapshot of etcd but an SQLite database");
    assert_eq!(named(&[0xfd, b'7', b'z', b'X', b'Z', 0, 1]), "not a snapshot of etcd but an xz file");
    assert_eq!(named(b"\x1f\x8b\x08rubbish"), "the gzip file cannot be unpacked");
    assert_eq!(
        Snapshot::open(directory.path(), STRICT).expect_err("a directory").to_string(),
        format!("{} is a directory", directory.path().display())
    );
}

#[test]
fn a_file_that_is_written_to_is_noticed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let before = bytes("datadir/v351-member-snap-db.gz");
    std::fs::write(&path, &before).expect("a file");
    let snapshot = Snapshot::open(&path, STRICT).expect("a snapshot");
    assert!(!snapshot.db().has_changed().expect("a look"));
    // The same length, and a commit more: the older meta page is written anew.
    let mut after = before;
    let meta = *snapshot.db().meta();
    let page = 4096 * usize::try_from((meta.txid + 1) % 2).expect("0 or 1");
    after[page + 16 + 48..page + 16 + 56].copy_from_slice(&(meta.txid + 1).to_le_bytes());
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let sum = after[page + 16..page + 72].iter().fold(0xcbf2_9ce4_8422_2325, fnv);
    after[page + 72..page + 80].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&path, after).expect("a file");
    assert!(snapshot.db().has_changed().expect("a look"));
}
