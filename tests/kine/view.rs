use atrest::kine::{Error, MAX_VALUE_BYTES, Values, View};
use atrest::source::Source as _;

use crate::fixture::{Database, Journal, all, below, clean, history, keys, value, view};

/// Revisions 2 to 10: a key that is updated, one that is deleted and created anew, a gap, and one with a lease.
fn filled(journal: Journal) -> Database {
    let database = Database::new(journal);
    assert_eq!(database.put("/registry/b", b"b2", 0), 2);
    assert_eq!(database.put("/registry/a", b"a3", 0), 3);
    assert_eq!(database.put("/registry/b", b"b4", 0), 4);
    assert_eq!(database.delete("/registry/a"), Some(5));
    assert_eq!(database.gap(), 6);
    assert_eq!(database.put("/registry/a", b"a7", 0), 7);
    assert_eq!(database.put("/registry/a", b"a8", 0), 8);
    assert_eq!(database.put("/registry/events/e", b"e9", 3660), 9);
    assert_eq!(database.delete("/registry/b"), Some(10));
    database
}

#[test]
fn the_live_view_is_what_kine_would_list_at_each_revision() {
    for journal in Journal::ALL {
        let database = filled(journal);
        let kine = database.kine();
        assert_eq!((kine.head().unwrap(), kine.compacted().unwrap()), (10, 0));
        let at = |revision| clean(&kine, &view(Some(revision)));
        assert_eq!(at(0), []);
        assert_eq!(at(1), []);
        assert_eq!(at(2), [value("/registry/b", b"b2", 2, 2, 0)]);
        let b4 = value("/registry/b", b"b4", 2, 4, 0);
        assert_eq!(at(4), [value("/registry/a", b"a3", 3, 3, 0), b4.clone()]);
        assert_eq!(at(5), std::slice::from_ref(&b4));
        assert_eq!(at(6), std::slice::from_ref(&b4));
        assert_eq!(at(7), [value("/registry/a", b"a7", 7, 7, 0), b4.clone()]);
        let a8 = value("/registry/a", b"a8", 7, 8, 0);
        let e9 = value("/registry/events/e", b"e9", 9, 9, 3660);
        assert_eq!(at(9), [a8.clone(), b4, e9.clone()]);
        assert_eq!(at(10), [a8.clone(), e9.clone()]);
        assert_eq!(clean(&kine, &view(None)), [a8, e9]);
    }
}

#[test]
fn what_was_compacted_or_has_not_happened_yet_is_an_error() {
    let database = filled(Journal::Wal);
    database.compact(7);
    let kine = database.kine();
    assert_eq!((kine.head().unwrap(), kine.compacted().unwrap()), (10, 7));
    assert!(matches!(all(&kine, &view(Some(6))), Err(Error::Compacted { asked: 6, compacted: 7 })));
    assert!(matches!(all(&kine, &view(Some(11))), Err(Error::FutureRevision { asked: 11, head: 10 })));
    assert_eq!(
        clean(&kine, &view(Some(7))),
        [value("/registry/a", b"a7", 7, 7, 0), value("/registry/b", b"b4", 2, 4, 0)]
    );
    assert_eq!(
        Error::Compacted { asked: 6, compacted: 7 }.to_string(),
        "revision 6 was compacted: the database has everything from revision 7 on"
    );
    assert_eq!(
        Error::FutureRevision { asked: 11, head: 10 }.to_string(),
        "revision 11 is not in the database: its last is 10"
    );
}

#[test]
fn of_two_notes_of_the_compacted_revision_the_later_counts() {
    let database = filled(Journal::Wal);
    database.compact(4);
    database.insert("compact_rev_key", (true, false), 0, 7, 0, Some(b""), None);
    assert_eq!(database.kine().compacted().unwrap(), 7);
    assert!(!keys(&clean(&database.kine(), &history())).contains(&"compact_rev_key".to_owned()));
}

#[test]
fn the_history_has_every_value_that_the_table_has() {
    let database = filled(Journal::Wal);
    let kine = database.kine();
    let values = clean(&kine, &history());
    assert_eq!(
        values,
        [
            value("/registry/a", b"a3", 3, 3, 0),
            value("/registry/a", b"a3", 3, 5, 0),
            value("/registry/a", b"a7", 7, 7, 0),
            value("/registry/a", b"a8", 7, 8, 0),
            value("/registry/b", b"b2", 2, 2, 0),
            value("/registry/b", b"b4", 2, 4, 0),
            value("/registry/b", b"b4", 2, 10, 0),
            value("/registry/events/e", b"e9", 9, 9, 3660),
        ]
    );
    let early = View { revision: Some(4), ..history() };
    assert_eq!(clean(&kine, &early), [values[0].clone(), values[4].clone(), values[5].clone()]);
}

#[test]
fn what_a_compaction_left_in_the_next_row_is_history_too() {
    let database = filled(Journal::Wal);
    database.compact(7);
    assert_eq!(
        clean(&database.kine(), &history()),
        [
            // Row 5 noted the deletion of a3; row 7 does not tell when that had been created.
            value("/registry/a", b"a3", 0, 5, 0),
            value("/registry/a", b"a7", 7, 7, 0),
            value("/registry/a", b"a8", 7, 8, 0),
            value("/registry/b", b"b2", 2, 2, 0),
            value("/registry/b", b"b4", 2, 4, 0),
            value("/registry/b", b"b4", 2, 10, 0),
            value("/registry/events/e", b"e9", 9, 9, 3660),
        ]
    );
    // A row that was rewritten by hand no longer holds what the next one says.
    let database = filled(Journal::Wal);
    database.connection.execute("UPDATE kine SET value = 'other' WHERE id = 2", []).unwrap();
    let values = clean(&database.kine(), &View { revision: Some(4), ..history() });
    let b: Vec<_> = values.iter().filter(|value| value.key == b"/registry/b").map(|value| &value.value[..]).collect();
    assert_eq!(b, [b"other".as_slice(), b"b2", b"b4"]);
}

#[test]
fn prefixes_are_bytes_and_no_patterns() {
    let database = Database::new(Journal::Wal);
    let names = ["/r/a", "/r/a/1", "/r/a_1", "/r/ab", "/r/A", "/r/b\u{10ffff}", "/r0", "/s", "12", "x/1", "/"];
    for name in names {
        database.put(name, b"v", 0);
    }
    let kine = database.kine();
    let found = |prefixes: &[&[u8]]| keys(&clean(&kine, &below(prefixes)));
    assert_eq!(found(&[b"/r/a"]), ["/r/a", "/r/a/1", "/r/a_1", "/r/ab"]);
    assert_eq!(found(&[b"/r/a/"]), ["/r/a/1"]);
    assert_eq!(found(&[b"/r/a_"]), ["/r/a_1"]);
    assert_eq!(found(&[b"/r/%"]), Vec::<String>::new());
    assert_eq!(found(&[b"/s", b"/r/a/", b"/r/ab", b"/r/a"]), ["/r/a", "/r/a/1", "/r/a_1", "/r/ab", "/s"]);
    assert_eq!(found(&[b"/r/b\xf4\x8f\xbf\xbf"]), ["/r/b\\xf4\\x8f\\xbf\\xbf"]);
    assert_eq!(found(&[b"/\xff"]), Vec::<String>::new());
    assert_eq!(found(&[b"1"]), ["12"]);
    assert_eq!(found(&[b"x", b"/s"]), ["/s", "x/1"]);
    assert_eq!(found(&[b""]).len(), names.len());
    assert_eq!(found(&[]).len(), names.len());
    assert_eq!(keys(&clean(&kine, &View { history: true, ..below(&[b"/r/a"]) })).len(), 4);
}

#[test]
fn pages_are_bounded_and_lose_nothing() {
    let database = Database::new(Journal::Wal);
    let transaction = database.connection.unchecked_transaction().unwrap();
    for number in 0..9000 {
        database.put(&format!("/registry/{number:05}"), format!("v{number}").as_bytes(), 0);
    }
    for number in 0..9000 {
        database.put("/registry/04000", format!("w{number}").as_bytes(), 0);
    }
    for number in 0..30 {
        database.put(&format!("/registry/x/{number:02}"), &vec![number; 1024 * 1024], 0);
    }
    transaction.commit().unwrap();
    let kine = database.kine();
    let mut values = Values::new(&kine, &view(None)).unwrap();
    assert_eq!((values.expected(), values.revision()), (Some(9030), Some(18031)));
    let mut sizes = Vec::new();
    let mut found = Vec::new();
    while let Some(page) = values.next_values().unwrap() {
        sizes.push(page.len());
        found.extend(page);
    }
    assert_eq!(sizes, [4096, 4096, 808 + 8, 8, 8, 6]);
    assert!(found.is_sorted_by(|a, b| a.key < b.key));
    assert_eq!(found.len(), 9030);
    assert_eq!(found[4000], value("/registry/04000", b"w8999", 4002, 18001, 0));
    let mut again = values.again().unwrap();
    assert_eq!(again.next_values().unwrap().unwrap()[..], found[..4096]);
    // A name with more rows than a page.
    let found = clean(&kine, &history());
    assert_eq!(found.len(), 18030);
    assert!(found.is_sorted_by(|a, b| (&a.key, a.mod_revision) < (&b.key, b.mod_revision)));
    assert_eq!(found[13000], value("/registry/04000", b"w8999", 4002, 18001, 0));
}

#[test]
fn deleted_keys_and_gaps_are_not_counted() {
    let database = filled(Journal::Wal);
    let kine = database.kine();
    let expected = |view: &View| Values::new(&kine, view).unwrap().expected();
    assert_eq!(expected(&view(None)), Some(2));
    assert_eq!(expected(&view(Some(9))), Some(3));
    assert_eq!(expected(&view(Some(5))), Some(1));
    assert_eq!(expected(&below(&[b"/registry/a", b"/registry/e"])), Some(2));
    assert_eq!(expected(&below(&[b"/registry/b"])), Some(0));
    assert_eq!(expected(&history()), None);
}

#[test]
fn a_value_that_is_too_long_is_told_and_not_read() {
    let database = Database::new(Journal::Wal);
    database.put("/registry/a", b"v", 0);
    let long = i64::try_from(MAX_VALUE_BYTES).unwrap() + 1;
    database.connection.execute("UPDATE kine SET value = zeroblob(?1) WHERE id = 2", [long]).unwrap();
    database.put("/registry/b", b"v", 0);
    let (values, problems) = all(&database.kine(), &view(None)).unwrap();
    assert_eq!(values, [value("/registry/b", b"v", 3, 3, 0)]);
    assert_eq!(problems.lines(), ["row 2: value is 67108865 bytes long, which is more than is read"]);
    assert_eq!((problems.bad_rows, problems.is_clean()), (1, false));
}

#[test]
fn nothing_shows_values() {
    let database = Database::new(Journal::Wal);
    database.put("/registry/a", b"hunter2", 0);
    let kine = database.kine();
    let mut values = Values::new(&kine, &view(None)).unwrap();
    let page = values.next_values().unwrap();
    assert!(!format!("{kine:?} {values:?} {page:?}").contains("hunter2"));
}
