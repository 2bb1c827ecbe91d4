//! Tests 68 and 69 of the specification: what entries ask for, and the values and passwords in them.

use atrest::snapshot::wal::request::{ConfChange, Operation, Place, PlaintextPassword, V2Request, Value};
use atrest::snapshot::wal::{End, Entry, EntryType, Item, Key, Mode, RaftSnapshot, Redacted, Request};

use super::synthetic::{Writer, bytes, number, tagged};
use super::{file, in_memory, index, vectors, wal};

const V351: &str = "v351-0000000000000000-0000000000000000.wal";

fn normal(data: &[u8]) -> Request<'_> {
    Request::parse(&Entry { entry_type: EntryType::Normal, term: 1, index: 1, data: Redacted(data) })
}

fn values(request: &Request<'_>) -> Vec<(Place, String, String)> {
    let mut values = Vec::new();
    request.for_each_value(|Value { place, key, value, .. }| {
        values.push((place, key.to_string(), value.escape_ascii().to_string()));
    });
    values
}

/// What the entries of a log ask for, in a line each.
fn described(name: &str) -> Vec<(u64, String)> {
    let wal = wal(&[name]);
    let mut lines = Vec::new();
    let visited = index(&wal, Mode::Strict).visit(&wal, |indexed, entry| {
        lines.push((indexed.index, Request::parse(&entry).to_string()));
    });
    visited.expect("a second pass");
    lines
}

#[test]
fn values_of_a_branch_that_was_not_taken_are_found() {
    let wal = wal(&[V351]);
    let index = index(&wal, Mode::Strict);
    assert_eq!(index.commit(), 51);
    assert_eq!(index.effective().count(), 51);
    let mut found = Vec::new();
    let visited = index.visit(&wal, |indexed, entry| {
        for (place, key, value) in values(&Request::parse(&entry)) {
            if place == Place::TxnFailure {
                found.push((indexed.index, key, value));
            }
        }
    });
    visited.expect("a second pass");
    let key = "/registry/secrets/team-b/never".to_owned();
    assert_eq!(found, [(47, key, "PLAINTEXT-in-failure-branch".to_owned())]);
}

#[test]
fn requests_are_described_without_their_values() {
    let lines = described(V351);
    let expected = [
        (1, "conf_change add_node 2161394486e1d574"),
        (2, "no-op"),
        (3, "v2 PUT /0/members/2161394486e1d574/attributes"),
        (4, "v2 PUT /0/version"),
        (5, "put /registry/secrets/team-a/s01"),
    ];
    for ((index, line), (expected_index, expected)) in lines.iter().zip(expected) {
        assert_eq!((*index, &**line), (expected_index, expected));
    }
    let line = |index: u64| lines.iter().find(|(found, _)| *found == index).map_or("", |(_, line)| line);
    assert_eq!(line(20), r"put /bin\x00\xff/key");
    assert_eq!(line(40), "delete_range /registry/secrets/team-a/s12");
    assert_eq!(line(43), "lease_grant 1234567890abcdef");
    assert_eq!(line(47), "txn /registry/secrets/team-b/multi-1 (2 puts, 1 delete_range, else 1 put)");
    assert_eq!(line(51), "compaction 46");
    let newer = described("v368-0000000000000000-0000000000000000.wal");
    assert_eq!(newer[2..4], [(3, "cluster_member_attr_set".to_owned()), (4, "cluster_version_set".to_owned())]);
}

#[test]
fn a_transaction_hides_values_in_both_branches_and_in_conditions() {
    let put = |key: &str, value: &str| bytes(2, &[bytes(1, key.as_bytes()), bytes(2, value.as_bytes())].concat());
    let nested = [bytes(2, &put("c", "3")), bytes(3, &put("d", "4"))].concat();
    let failing = [bytes(2, &put("f", "6"))].concat();
    let txn = [
        bytes(1, &[number(2, 3), bytes(3, b"guard"), bytes(7, b"0")].concat()),
        bytes(1, &[number(2, 2), bytes(3, b"guard"), number(6, 5)].concat()),
        bytes(2, &put("a", "1")),
        bytes(2, &bytes(3, &bytes(1, b"gone"))),
        bytes(2, &bytes(4, &nested)),
        bytes(3, &put("e", "5")),
        bytes(3, &bytes(4, &failing)),
        bytes(3, &bytes(1, &bytes(1, b"read"))),
    ]
    .concat();
    let data = bytes(6, &txn);
    let request = normal(&data);
    let expected = [
        (Place::Compare, "guard", "0"),
        (Place::TxnSuccess, "a", "1"),
        (Place::TxnSuccess, "c", "3"),
        (Place::TxnFailure, "d", "4"),
        (Place::TxnFailure, "e", "5"),
        (Place::TxnFailure, "f", "6"),
    ];
    assert_eq!(values(&request), expected.map(|(place, key, value)| (place, key.to_owned(), value.to_owned())));
    let text = "txn a (1 put, 1 delete_range, 1 txn, else 1 put, 1 range, 1 txn)";
    assert_eq!(request.to_string(), text);
    assert_eq!(format!("{request:?}"), format!("Raft(RaftRequest([{} bytes]))", data.len()));
}

#[test]
fn transactions_are_read_sixteen_deep() {
    let nested = |depth: usize| {
        let innermost = bytes(2, &bytes(2, &[bytes(1, b"k"), bytes(2, b"deep")].concat()));
        let txn = (1..depth).fold(innermost, |txn, _| bytes(2, &bytes(4, &txn)));
        bytes(6, &txn)
    };
    let sixteen = nested(16);
    assert_eq!(values(&normal(&sixteen)), [(Place::TxnSuccess, "k".to_owned(), "deep".to_owned())]);
    let seventeen = nested(17);
    let request = normal(&seventeen);
    assert_eq!(request, Request::Unrecognized(Redacted(&seventeen)));
    assert_eq!(values(&request).len(), 1);
    let bottomless = nested(10_000);
    assert_eq!(normal(&bottomless), Request::Unrecognized(Redacted(&bottomless)));
}

#[test]
fn a_put_has_its_lease() {
    let data = bytes(4, &[bytes(1, b"k"), bytes(2, b"v"), number(3, 7)].concat());
    let mut found = Vec::new();
    normal(&data).for_each_value(|value| found.push(value));
    assert_eq!(found, [Value { place: Place::Put, key: Key(b"k"), value: Redacted(b"v"), lease: 7 }]);
    let only_lease = bytes(4, &[bytes(1, b"k"), number(3, 7), number(5, 1)].concat());
    assert_eq!(values(&normal(&only_lease)), []);
}

#[test]
fn a_request_is_of_the_v2_api_when_it_is_none_of_the_v3_api() {
    let v2 =
        [number(1, 9), bytes(2, b"PUT"), bytes(3, b"/1/x"), bytes(4, b"new"), number(5, 0), bytes(6, b"old")].concat();
    let (method, path) = (Key(&b"PUT"[..]), Key(&b"/1/x"[..]));
    let parsed = V2Request { id: 9, method, path, value: Redacted(b"new"), prev_value: Redacted(b"old") };
    let expected = [(Place::V2Val, "/1/x", "new"), (Place::V2PrevValue, "/1/x", "old")];
    let expected = expected.map(|(place, key, value)| (place, key.to_owned(), value.to_owned()));
    assert_eq!(normal(&v2), Request::V2(parsed));
    assert_eq!(values(&normal(&v2)), expected);
    // The same inside of a request of the v3 API.
    let wrapped = bytes(2, &v2);
    let Request::Raft(request) = normal(&wrapped) else { panic!("{:?}", normal(&wrapped)) };
    assert_eq!(request.operation(), Some(Operation::V2(parsed)));
    assert_eq!(values(&normal(&wrapped)), expected);
}

#[test]
fn a_request_has_its_number_and_user_in_a_header() {
    let header = tagged(b"\xa2\x06", &[number(1, 1000), bytes(2, b"alice")].concat());
    let data = [bytes(9, &number(1, 0x7f)), header].concat();
    let Request::Raft(request) = normal(&data) else { panic!("{:?}", normal(&data)) };
    assert_eq!((request.id(), request.username()), (1000, Key(b"alice")));
    assert_eq!(request.operation(), Some(Operation::LeaseRevoke { id: 0x7f }));
    let older = [number(1, 7), data].concat();
    let Request::Raft(request) = normal(&older) else { panic!("{:?}", normal(&older)) };
    assert_eq!((request.id(), &*normal(&older).to_string()), (7, "lease_revoke 7f"));
}

#[test]
fn what_is_no_request_may_be_a_value() {
    // A put whose key is a number.
    let data = [bytes(4, &number(1, 5)), bytes(9, b"x")].concat();
    assert_eq!(normal(&data), Request::Unrecognized(Redacted(&data)));
    assert_eq!(values(&normal(&data)).len(), 1);
    assert_eq!(normal(&data).to_string(), format!("unrecognized, {} bytes", data.len()));
}

#[test]
fn members_come_by_a_configuration_change() {
    let data = [number(1, 3), number(2, 1), number(3, 0xabc), bytes(4, b"{}")].concat();
    let entry = Entry { entry_type: EntryType::ConfChange, term: 1, index: 1, data: Redacted(&data) };
    let change = ConfChange { id: 3, change_type: 1, node_id: 0xabc, context: Key(b"{}") };
    assert_eq!(Request::parse(&entry), Request::ConfChange(change));
    assert_eq!(Request::parse(&entry).to_string(), "conf_change remove_node abc");
}

/// etcd up to 3.4 writes the passwords of its users as they are.
#[test]
fn a_password_in_the_clear_is_flagged_and_not_shown() {
    let user = [bytes(1, b"alice"), bytes(2, b"hunter2")].concat();
    let fields: [(&[u8], &str); 3] =
        [(b"\xe2\x44", "auth_user_add"), (b"\xfa\x44", "auth_user_change_password"), (b"\xa2\x3f", "authenticate")];
    for (tag, name) in fields {
        let data = tagged(tag, &user);
        let request = normal(&data);
        let found: Vec<_> = request.plaintext_passwords().collect();
        assert_eq!(found, [PlaintextPassword { user: Key(b"alice"), request: name }]);
        assert_eq!(request.to_string(), name);
        let Request::Raft(raft) = request else { panic!("{request:?}") };
        for shown in [format!("{found:?}"), format!("{request:?}"), format!("{:?}", raft.operation())] {
            assert!(!shown.contains("hunter2") && !shown.contains("104, 117"), "{shown}");
        }
    }
    // etcd 3.5 writes a hash instead.
    let hashed = tagged(b"\xe2\x44", &[bytes(1, b"alice"), bytes(4, b"JDJhJDEw")].concat());
    assert_eq!(normal(&hashed).plaintext_passwords().count(), 0);
    assert_eq!(normal(&hashed).to_string(), "auth_user_add");
}

/// Test 69: the log of etcd 3.4.23, and a user who is added to it.
#[test]
fn a_user_of_etcd_3_4_is_found_in_its_log() {
    let name = "v3423-0000000000000000-0000000000000000.wal";
    let log = wal(&[name]);
    let mut records = log.records(Mode::Strict);
    let mut end = None;
    while let Some(item) = records.next_item().expect("a log that can be read") {
        let Item::Record(record) = item else { panic!("{item:?}") };
        end = Some((record.position.offset + 8 + record.length + u64::from(record.padding), record.crc));
    }
    let (end, crc) = end.expect("a record");
    let mut bytes_of_log = file(name);
    bytes_of_log.truncate(usize::try_from(end).expect("an offset"));
    let mut writer = Writer { bytes: bytes_of_log, crc };
    let user = [bytes(1, b"root"), bytes(2, b"correct horse")].concat();
    writer.entry(0, 2, 52, &[tagged(b"\xe2\x44", &user), tagged(b"\xa2\x06", &number(1, 5))].concat());

    let log = in_memory(&writer.bytes);
    let index = index(&log, Mode::Strict);
    assert_eq!((&index.end, index.effective().count()), (&End::Clean, 52));
    let mut found = Vec::new();
    let visited = index.visit(&log, |indexed, entry| {
        for password in Request::parse(&entry).plaintext_passwords() {
            found.push((indexed.index, password.user.to_string(), password.request));
        }
    });
    visited.expect("a second pass");
    assert_eq!(found, [(52, "root".to_owned(), "auth_user_add")]);
}

#[test]
fn a_raft_snapshot_holds_the_v2_store() {
    let name = "datadir/v351-restored-0000000000000001-0000000000000001.snap";
    let bytes = std::fs::read(vectors().join(name)).expect("a vector");
    let snapshot = RaftSnapshot::parse(&bytes).expect("a snapshot");
    assert_eq!((snapshot.crc, snapshot.crc_ok), (0x1c58_8e9e, true));
    assert_eq!((snapshot.term, snapshot.index), (1, 1));
    assert_eq!(hex::encode(snapshot.conf_state), "08f4aa87b7c8a8ceb0212800");
    let store: serde_json::Value = serde_json::from_slice(&snapshot.data).expect("JSON");
    assert_eq!(store["CurrentVersion"], 2);
    let mut damaged = bytes.clone();
    damaged[100] ^= 1;
    assert!(!RaftSnapshot::parse(&damaged).expect("a snapshot").crc_ok);
    let text = format!("{snapshot:?}");
    assert!(text.ends_with("data: [6459 bytes] }"), "{text}");
}
