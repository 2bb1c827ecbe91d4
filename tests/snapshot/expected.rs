//! The expected files, made by a program of another kind and compared with the servers themselves.

use std::ops::ControlFlow;

use atrest::snapshot::bbolt::{Bucket, Item};
use atrest::snapshot::{Carved, Order, Problems, Trailer, Values, View};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::fixture::{bytes, cut, lines, shown, snapshot};

/// The databases of the manifest, with what is to be reported of each.
fn databases() -> Vec<Value> {
    lines("manifest.jsonl").into_iter().filter(|line| line["page_size"].is_number()).collect()
}

fn name(line: &Value) -> &str {
    line["file"].as_str().expect("a name")
}

fn expected_lines(line: &Value, what: &str) -> Vec<Value> {
    lines(&format!("expected/{}.{what}.jsonl", line["expected"].as_str().expect("a name")))
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[test]
fn what_the_manifest_says_is_reported() {
    for line in databases() {
        let snapshot = snapshot(name(&line));
        let meta = snapshot.db().meta();
        let map = snapshot.db().map_pages(|_, item| assert!(matches!(item, Item::Element(_)), "{item:?}"));
        let unreachable: Vec<u64> = map.used.gaps().flat_map(|(first, count)| first..first + count).collect();
        let status = snapshot.status(|damage| panic!("{damage}")).expect("a status");
        let mut live = Values::new(&snapshot, &View::default()).expect("values");
        let live_keys =
            std::iter::from_fn(|| live.next_values().expect("values")).map(|page| page.len()).sum::<usize>();
        let trailing = snapshot.db().input().len() - meta.high_water * meta.page_size;
        let trailer = match snapshot.trailer().expect("a trailer") {
            Trailer::Ok => "ok",
            Trailer::Missing { .. } => "absent",
            other => panic!("{other}"),
        };
        let found = json!({
            "page_size": meta.page_size, "hwm": meta.high_water, "txid": meta.txid, "root": meta.root,
            "freelist": meta.freelist, "unreachable_pages": unreachable, "trailing_bytes": trailing,
            "sha256_trailer": trailer, "status_hash": status.hash, "status_revision": status.revision,
            "status_total_key_v35": status.elements, "live_keys": live_keys,
        });
        for (field, value) in found.as_object().expect("an object") {
            // In the list of unreachable pages, those of the freelist are not.
            assert_eq!(*value, line[field], "{}: {field}", name(&line));
        }
        assert_eq!(map.freelist, None, "{}", name(&line));
    }
}

#[test]
fn every_bucket_and_every_record_of_etcds_own_is_read() {
    for line in databases() {
        let snapshot = snapshot(name(&line));
        let mut summary = Vec::new();
        let mut records = Vec::new();
        for bucket in snapshot.db().buckets() {
            let mut entries = 0;
            let walked = snapshot.db().walk(bucket, |item| {
                let Item::Element(element) = item else { panic!("{item:?}") };
                entries += 1;
                if bucket.name != b"key" {
                    records.push(json!({
                        "bucket": shown(&bucket.name), "key": shown(element.key), "value": shown(element.value),
                        "value_hex": hex::encode(element.value),
                    }));
                }
                ControlFlow::Continue(())
            });
            assert!(walked);
            let Bucket { name, root, sequence, .. } = bucket;
            let inline = bucket.is_inline();
            summary.push(json!({
                "bucket": shown(name), "root": root, "sequence": sequence, "inline": inline, "entries": entries,
            }));
        }
        summary.append(&mut records);
        assert_eq!(summary, expected_lines(&line, "buckets"), "{}", name(&line));
    }
}

#[test]
fn every_revision_is_read() {
    for line in databases() {
        let snapshot = snapshot(name(&line));
        let mut problems = Problems::default();
        let mut found = Vec::new();
        // The expected files number the page of an inline bucket so.
        let is_inline = snapshot.db().bucket(b"key").is_some_and(Bucket::is_inline);
        let page = |page: u64| if is_inline { json!(-1) } else { json!(page) };
        snapshot
            .records(&mut problems, |record| {
                let kv = &record.kv;
                found.push(json!({
                    "main": record.revision.main, "sub": record.revision.sub, "tombstone": record.tombstone,
                    "key": shown(kv.key), "create_revision": kv.create_revision, "mod_revision": kv.mod_revision,
                    "version": kv.version, "lease": kv.lease, "value_len": kv.value.len(),
                    "value_sha256": sha256(kv.value), "value": cut(kv.value), "page": page(record.page), "elem": record.element,
                }));
                ControlFlow::Continue(())
            })
            .expect("records");
        assert_eq!(found, expected_lines(&line, "history"), "{}", name(&line));
        assert!(problems.is_clean() && problems.inconsistent == 0, "{problems:?}");
    }
}

fn live(name: &str, view: &View) -> Vec<Value> {
    let mut values = Values::new(&snapshot(name), view).expect("values");
    let mut rows = Vec::new();
    while let Some(page) = values.next_values().expect("values") {
        rows.extend(page.into_iter().map(|value| {
            json!({
                "key": shown(&value.key), "create_revision": value.create_revision, "mod_revision": value.mod_revision,
                "version": value.version, "lease": value.lease, "value_len": value.value.len(),
                "value_sha256": sha256(&value.value),
            })
        }));
    }
    rows
}

#[test]
fn the_live_view_is_that_of_the_server() {
    for line in databases() {
        let in_order = live(name(&line), &View { order: Order::Keys, ..View::default() });
        assert_eq!(in_order, expected_lines(&line, "live"), "{}", name(&line));
        let mut as_stored = live(name(&line), &View::default());
        let by_revision = |row: &Value| (row["mod_revision"].as_i64(), row["key"].to_string());
        let mut in_order = in_order;
        as_stored.sort_by_key(by_revision);
        in_order.sort_by_key(by_revision);
        assert_eq!(as_stored, in_order);
    }
}

#[test]
fn free_pages_give_back_what_was_in_them() {
    for line in databases() {
        let snapshot = snapshot(name(&line));
        let map = snapshot.db().map_pages(|_, _| {});
        let mut found = Vec::new();
        snapshot
            .carve(&map.used, |carved| match carved {
                Carved::Record(record) => {
                    let kv = &record.kv;
                    found.push(json!({
                        "page": record.page, "elem": record.element, "offset": record.offset - if record.tombstone { 18 } else { 17 },
                        "main": record.revision.main, "sub": record.revision.sub, "tombstone": record.tombstone,
                        "key": shown(kv.key), "mod_revision": kv.mod_revision, "version": kv.version,
                        "value_len": kv.value.len(), "value": cut(kv.value),
                    }));
                }
                Carved::Page(page) => found.push(json!({
                    "page": page.page, "self_id": page.self_id, "flags": page.flags, "count": page.count,
                    "overflow": page.overflow, "carved": page.carved,
                })),
                Carved::Raw { .. } => {}
            })
            .expect("free pages");
        assert_eq!(found, expected_lines(&line, "free"), "{}", name(&line));
    }
}

/// As the live view of a store at a revision is defined: the last record of each key up to there, unless it deletes it.
fn live_at(name: &str, revision: i64) -> Vec<(String, i64)> {
    let mut live = std::collections::BTreeMap::new();
    let stem = name.split('/').next_back().and_then(|file| file.split('.').next()).expect("a name");
    for record in lines(&format!("expected/{stem}.history.jsonl")) {
        let main = record["main"].as_i64().expect("a revision");
        if main > revision {
            break;
        }
        match record["tombstone"].as_bool() {
            Some(true) => live.remove(&record["key"].to_string()),
            _ => live.insert(record["key"].to_string(), main),
        };
    }
    live.into_iter().collect()
}

#[test]
fn earlier_revisions_are_read_too() {
    for revision in 1..=46 {
        let view = View { revision: Some(revision), order: Order::Keys, ..View::default() };
        let rows = live("valid/v351-history.db", &view);
        let mut rows: Vec<_> =
            rows.iter().map(|row| (row["key"].to_string(), row["mod_revision"].as_i64().expect("a number"))).collect();
        rows.sort();
        assert_eq!(rows, live_at("valid/v351-history.db", revision), "revision {revision}");
    }
    let at = |name, revision| {
        let view = View { revision: Some(revision), ..View::default() };
        Values::new(&snapshot(name), &view).expect_err("no such revision").to_string()
    };
    assert_eq!(at("valid/v351-history.db", 47), "revision 47 is not in the snapshot: its last is 46");
    assert_eq!(
        at("valid/v351-compacted.db", 20),
        "revision 20 was compacted: the snapshot has everything from revision 46 on"
    );
}

#[test]
fn the_older_meta_page_still_has_the_state_before() {
    let options = atrest::snapshot::Options { meta: atrest::snapshot::MetaChoice::Second, ..crate::fixture::STRICT };
    let of = |options| {
        let input = atrest::snapshot::Input::from(bytes("datadir/v351-member-snap-db.gz"));
        atrest::snapshot::Snapshot::from_input(input, options).expect("a snapshot")
    };
    let revision = |snapshot: &atrest::snapshot::Snapshot| snapshot.status(|_| {}).expect("a status").revision;
    let (newer, older) = (of(crate::fixture::STRICT), of(options));
    let mut revisions = [revision(&newer), revision(&older)];
    revisions.sort_unstable();
    assert_eq!(revisions, [0, 46]);
}

#[test]
fn a_bumped_revision_counts_and_is_no_key() {
    let snapshot = snapshot("datadir/v368-restored-bumped-db.gz");
    assert_eq!(snapshot.meta().interrupted_compaction(), Some(1046));
    let values = Values::new(&snapshot, &View::default()).expect("values");
    assert_eq!((values.len(), atrest::source::Source::revision(&values)), (19, Some(1046)));
}

#[test]
fn a_layout_does_not_change_the_hash() {
    let hash = |name| snapshot(name).status(|damage| panic!("{damage}")).expect("a status").hash;
    assert_eq!(hash("valid/v351-compacted.db"), hash("valid/v351-defragged.db"));
    assert_eq!(hash("valid/rebuilt-by-prototype.db"), hash("valid/v351-history.db"));
}

#[test]
fn what_is_compressed_is_unpacked() {
    let directory = tempfile::tempdir().expect("a directory");
    let plain = bytes("valid/v351-history.db");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, &plain).expect("gzip");
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    zip.start_file("backup/snapshot.db", zip::write::SimpleFileOptions::default()).expect("ZIP");
    std::io::Write::write_all(&mut zip, &plain).expect("ZIP");
    let zstd = ruzstd::encoding::compress_to_vec(&plain[..], ruzstd::encoding::CompressionLevel::Fastest);
    let packed = [
        ("gz", gzip.finish().expect("gzip")),
        ("zip", zip.finish().expect("ZIP").into_inner()),
        ("zst", zstd),
        ("db", plain),
    ];
    for (extension, bytes) in packed {
        let path = directory.path().join(format!("snapshot.{extension}"));
        std::fs::write(&path, bytes).expect("a file");
        let snapshot = atrest::snapshot::Snapshot::open(&path, crate::fixture::STRICT).expect(extension);
        assert_eq!(snapshot.status(|_| {}).expect("a status").hash, 1_923_315_538, "{extension}");
    }
}
