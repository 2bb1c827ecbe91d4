//! The write-ahead log: tests 65 to 70 of the specification, and what they rest on.

mod damage;
mod expected;
mod properties;
mod requests;
mod synthetic;

use std::fs;
use std::path::PathBuf;

use atrest::snapshot::Input;
use atrest::snapshot::wal::{Check, Damage, Index, Item, Leftover, Mode, Position, Record, RecordKind, Segment, Wal};

const FIRST: &str = "two-segments/0000000000000000-0000000000000000.wal";
const SECOND: &str = "two-segments/0000000000000001-0000000000000018.wal";

fn vectors() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/etcd"))
}

fn file(name: &str) -> Vec<u8> {
    fs::read(vectors().join("wal").join(name)).expect("a vector")
}

fn segment(name: &str, bytes: Vec<u8>) -> Segment {
    Segment::new(name, Input::from(bytes))
}

/// Files of the vectors, read one after the other.
fn wal(names: &[&str]) -> Wal {
    Wal::new(names.iter().map(|name| Segment::open(&vectors().join("wal").join(name)).expect("a vector")).collect())
}

fn in_memory(bytes: &[u8]) -> Wal {
    Wal::new(vec![segment("a", bytes.to_vec())])
}

fn index(wal: &Wal, mode: Mode) -> Index {
    Index::build(wal, mode).expect("a log that can be read")
}

fn at(segment: usize, offset: u64) -> Position {
    Position { segment, offset }
}

/// What a log is made of, its records without their data: offset, the entry's index, and whether the checksum is right.
#[derive(Default)]
struct Read {
    records: Vec<(Position, Option<u64>, Check)>,
    damage: Vec<Damage>,
    leftovers: Vec<Leftover>,
}

fn read(wal: &Wal, mode: Mode) -> Read {
    let mut read = Read::default();
    let mut records = wal.records(mode);
    while let Some(item) = records.next_item().expect("a log that can be read") {
        match item {
            Item::Record(Record { position, check, kind, .. }) => {
                let index = if let RecordKind::Entry(entry) = kind { Some(entry.index) } else { None };
                read.records.push((position, index, check));
            }
            Item::Damage(damage) => read.damage.push(damage),
            Item::Leftover(leftover) => read.leftovers.push(leftover),
        }
    }
    read
}
