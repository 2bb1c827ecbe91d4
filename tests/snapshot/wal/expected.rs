//! Every record of logs that etcd 3.4, 3.5 and 3.6 wrote, field by field.

use atrest::protobuf::{Field, Reader};
use atrest::snapshot::wal::request::{Compare, KeyRange, Operand, Operation, Put, RequestOp};
use atrest::snapshot::wal::{Check, Entry, EntryType, Item, Mode, Record, RecordKind, Request, Segment};
use base64::Engine as _;
use serde_json::{Map, Value, json};

use super::{FIRST, SECOND, read, vectors, wal};

fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(char::is_control) => text.into(),
        _ => json!({"b64": base64::engine::general_purpose::STANDARD.encode(bytes)}),
    }
}

/// A message as the expectations have it where they know no names: field numbers.
fn numbered(message: &[u8]) -> Value {
    let mut object = Map::new();
    let mut reader = Reader::new(message);
    while let Some((number, field)) = reader.next_field().expect("a message") {
        let value = match field {
            Field::Varint(value) => value.into(),
            Field::Bytes(bytes) => text(bytes),
            other => panic!("{other:?}"),
        };
        object.insert(number.to_string(), value);
    }
    object.into()
}

fn put(put: &Put<'_>) -> Value {
    let mut object = Map::from_iter([("key".to_owned(), text(&put.key))]);
    if !put.value.is_empty() {
        object.insert("value".to_owned(), text(&put.value));
    }
    if put.lease != 0 {
        object.insert("lease".to_owned(), put.lease.into());
    }
    object.into()
}

fn compare(compare: &Compare<'_>) -> Value {
    let mut object = Map::new();
    for (number, value) in [("1", compare.result), ("2", compare.target)] {
        if value != 0 {
            object.insert(number.to_owned(), value.into());
        }
    }
    object.insert("3".to_owned(), text(&compare.key));
    let (number, value) = match compare.operand.expect("an operand") {
        Operand::Version(version) => ("4", version.into()),
        Operand::CreateRevision(revision) => ("5", revision.into()),
        Operand::ModRevision(revision) => ("6", revision.into()),
        Operand::Value(value) => ("7", text(&value)),
        Operand::Lease(lease) => ("8", lease.into()),
    };
    object.insert(number.to_owned(), value);
    object.into()
}

fn branch(branch: &str, operation: &RequestOp<'_>) -> Value {
    match operation {
        RequestOp::Put(found) => json!([branch, "put", put(found)]),
        RequestOp::DeleteRange(KeyRange { key, range_end }) if range_end.is_empty() => {
            json!([branch, "delete", {"key": text(key)}])
        }
        other => panic!("{other:?}"),
    }
}

fn operation(operation: &Operation<'_>) -> Value {
    let value = match operation {
        Operation::Put(found) => put(found),
        Operation::DeleteRange(KeyRange { key, range_end }) if range_end.is_empty() => json!({"1": text(key)}),
        Operation::Txn(txn) => {
            let compares = txn.compare().map(|found| json!(["if", compare(&found)]));
            let success = txn.success().map(|found| branch("then", &found));
            let failure = txn.failure().map(|found| branch("else", &found));
            compares.chain(success).chain(failure).collect()
        }
        Operation::Compaction { revision, physical: true } => json!({"1": revision, "2": 1}),
        Operation::LeaseGrant { id, ttl } => json!({"1": ttl, "2": id}),
        Operation::Other { message, .. } => numbered(message),
        other => panic!("{other:?}"),
    };
    json!({operation.name(): value})
}

fn entry(object: &mut Map<String, Value>, entry: &Entry<'_>) {
    object.insert("term".to_owned(), entry.term.into());
    object.insert("index".to_owned(), entry.index.into());
    let entry_type = match entry.entry_type {
        EntryType::Normal => 0,
        EntryType::ConfChange => 1,
        other => panic!("{other:?}"),
    };
    object.insert("entry_type".to_owned(), entry_type.into());
    match Request::parse(entry) {
        Request::Raft(request) => {
            object.insert("request".to_owned(), operation(&request.operation().expect("an operation")));
        }
        Request::V2(_) => {
            object.insert("legacy_v2_request".to_owned(), true.into());
        }
        Request::Empty => assert_eq!(entry.entry_type, EntryType::Normal),
        Request::ConfChange(_) => assert_eq!(entry.entry_type, EntryType::ConfChange),
        other => panic!("{other:?}"),
    }
}

fn line(file: &str, record: &Record<'_>) -> Value {
    let mut object = Map::new();
    let record_type = match record.kind {
        RecordKind::Metadata(_) => "metadata",
        RecordKind::Entry(found) => {
            entry(&mut object, &found);
            "entry"
        }
        RecordKind::State(state) => {
            let state = json!({"term": state.term, "vote": state.vote, "commit": state.commit});
            object.insert("hardstate".to_owned(), state);
            "state"
        }
        RecordKind::Crc => "crc",
        RecordKind::Snapshot(snapshot) => {
            let mut value = json!({"index": snapshot.index, "term": snapshot.term});
            if let (Some(conf_state), Some(value)) = (snapshot.conf_state, value.as_object_mut()) {
                value.insert("conf_state".to_owned(), hex::encode(conf_state).into());
            }
            object.insert("snapshot".to_owned(), value);
            "snapshot"
        }
    };
    let head = json!({
        "file": file,
        "offset": record.position.offset,
        "frame_len": record.length,
        "pad": record.padding,
        "type": record_type,
        "crc": format!("{:08x}", record.crc),
        "crc_ok": record.check == Check::Ok,
    });
    object.extend(head.as_object().expect("an object").clone());
    object.into()
}

#[track_caller]
fn agrees(expected: &str, segments: &[&str], lines: usize) {
    let expected = std::fs::read_to_string(vectors().join("expected").join(expected)).expect("a vector");
    let expected: Vec<Value> = expected.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(expected.len(), lines);
    let wal = wal(segments);
    for mode in [Mode::Strict, Mode::Salvage] {
        let mut records = wal.records(mode);
        let mut found = Vec::new();
        while let Some(item) = records.next_item().expect("a log that can be read") {
            let Item::Record(record) = item else { panic!("{item:?}") };
            found.push(line(wal.segments().get(record.position.segment).map_or("", Segment::name), &record));
        }
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected);
        }
        assert_eq!(found.len(), lines);
    }
}

#[test]
fn etcd_3_4_23() {
    agrees("v3423.wal.jsonl", &["v3423-0000000000000000-0000000000000000.wal"], 105);
}

#[test]
fn etcd_3_5_1() {
    agrees("v351.wal.jsonl", &["v351-0000000000000000-0000000000000000.wal"], 104);
}

#[test]
fn etcd_3_5_1_after_a_restore() {
    agrees("v351-restored.wal.jsonl", &["v351-restored-0000000000000000-0000000000000000.wal"], 6);
}

#[test]
fn etcd_3_6_8() {
    agrees("v368.wal.jsonl", &["v368-0000000000000000-0000000000000000.wal"], 104);
}

#[test]
fn two_segments_whose_checksums_are_chained() {
    agrees("wal-two-segments.wal.jsonl", &[FIRST, SECOND], 70);
}

#[test]
fn whole_logs_have_neither_damage_nor_leftovers() {
    for names in [&[FIRST, SECOND][..], &["v351-0000000000000000-0000000000000000.wal"]] {
        let read = read(&wal(names), Mode::Salvage);
        assert_eq!((read.damage, read.leftovers), (vec![], vec![]), "{names:?}");
    }
}
