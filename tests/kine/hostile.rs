use std::sync::Arc;

use atrest::kine::{Error, Kine, Values};

use crate::fixture::{Database, Journal, SCHEMA, all, below, history, keys, value, view};

/// Rows of which one column is not what kine writes.
fn rows(rows: &[&str]) -> Database {
    let database = Database::new(Journal::Wal);
    for row in rows {
        database.connection.execute(&format!("INSERT INTO kine VALUES ({row})"), []).unwrap();
    }
    database
}

#[test]
fn columns_of_other_types_are_told() {
    let database = rows(&[
        "2, '/a', 1, 0, 0, 0, 0, 'text', NULL",
        "3, '/b', 1, 0, 0, 0, 0, 12, NULL",
        "4, '/c', 1, 0, 0, 0, 0, 1.5, NULL",
        "5, '/d', 1, 0, 0, 0, 0, NULL, NULL",
        "6, '/e', 'x', 'y', x'00', NULL, 2.5, x'01', 7",
        "7, '/f', NULL, 2, 0, 0, 0, x'01', NULL",
        "8, x'2f67', 1, 0, 0, 0, 0, x'01', NULL",
        "9, NULL, 1, 0, 0, 0, 0, x'01', NULL",
        "10, 12, 1, 0, 0, 0, 0, x'01', NULL",
        "11, 1.5, 1, 0, 0, 0, 0, x'01', NULL",
        "12, CAST(x'2f68ff' AS TEXT), 1, 0, 0, 0, -1, x'01', NULL",
        "-13, '', 0, 0, 5, 0, 0, x'', NULL",
        "9223372036854775807, '/i', 1, 0, 0, 0, 0, x'02', NULL",
    ]);
    let kine = database.kine();
    let (values, problems) = all(&kine, &view(None)).unwrap();
    let h = atrest::source::StoredValue { key: b"/h\xff".to_vec(), ..value("", b"\x01", 12, 12, -1) };
    assert_eq!(
        values,
        [
            value("12", b"\x01", 10, 10, 0),
            value("", b"", 5, -13, 0),
            value("/a", b"text", 2, 2, 0),
            value("/d", b"", 5, 5, 0),
            value("/e", b"\x01", 0, 6, 0),
            h,
            value("/i", b"\x02", i64::MAX, i64::MAX, 0),
            value("/g", b"\x01", 8, 8, 0),
        ]
    );
    let told = [
        "row 9: name is NULL",
        "row 11: name is a floating point number",
        "row 3: value is an integer",
        "row 4: value is a floating point number",
        "row 6: created is text",
        "row 6: deleted is text",
        "row 6: create_revision is a blob",
        "row 6: prev_revision is NULL",
        "row 6: lease is a floating point number",
    ];
    assert_eq!(problems.lines(), told);
    assert_eq!(problems.bad_rows, 9);
    let (values, problems) = all(&kine, &history()).unwrap();
    assert_eq!(keys(&values), ["12", "", "/a", "/e", "/f", "/h\\xff", "/i", "/g"]);
    let more = ["row 6: old_value is an integer", "row 7: created is NULL"];
    assert_eq!(problems.bad_rows, 11);
    assert!(more.iter().all(|line| problems.lines().contains(&(*line).to_owned())), "{:?}", problems.lines());
    let (values, problems) = all(&kine, &below(&[b"/g", b"/a"])).unwrap();
    assert_eq!((keys(&values), problems.lines()), (vec!["/a".to_owned(), "/g".to_owned()], vec![told[0].to_owned()]));
}

#[test]
fn what_is_hidden_in_rows_of_kines_own_is_found() {
    let database = rows(&[
        "2, 'gap-2', 0, 1, 0, 0, 0, NULL, NULL",
        "3, 'gap-3', 0, 0, 0, 0, 0, NULL, NULL",
        "4, 'gap-4', 1, 0, 0, 0, 0, 'a secret', NULL",
        "5, 'gap-5', 0, 1, 0, 0, 0, 'another', NULL",
        "6, 'gap-6', 0, 1, 0, 0, 'x', NULL, 'a third'",
    ]);
    database.connection.execute("UPDATE kine SET value = 'hidden' WHERE id = 1", []).unwrap();
    let kine = database.kine();
    assert_eq!(keys(&all(&kine, &view(None)).unwrap().0), ["compact_rev_key", "gap-4"]);
    let (values, problems) = all(&kine, &history()).unwrap();
    assert_eq!(keys(&values), ["compact_rev_key", "gap-4", "gap-5", "gap-6"]);
    assert_eq!((&values[3].value[..], problems.is_clean()), (b"a third".as_slice(), true));
}

#[test]
fn a_compacted_revision_that_is_none_is_told() {
    let database = rows(&[]);
    database.connection.execute("UPDATE kine SET prev_revision = 'x' WHERE id = 1", []).unwrap();
    let kine = database.kine();
    assert_eq!(kine.compacted().unwrap(), 0);
    assert_eq!(all(&kine, &view(None)).unwrap().1.lines(), ["row 1: prev_revision is text"]);
}

#[test]
fn text_that_would_be_a_number_ends_a_walk() {
    // Only with a schema that was changed by hand does the column hold it; SQLite would go round in circles.
    let database = Database::with_schema(Journal::Rollback, &SCHEMA.replace("name INTEGER", "name TEXT"));
    let transaction = database.connection.unchecked_transaction().unwrap();
    for number in 0..5000 {
        database.put(&number.to_string(), b"v", 0);
    }
    transaction.commit().unwrap();
    database
        .connection
        .execute_batch(
            "PRAGMA writable_schema = ON; \
             UPDATE sqlite_schema SET sql = replace(sql, 'name TEXT', 'name INTEGER') WHERE name = 'kine'; \
             PRAGMA writable_schema = RESET",
        )
        .unwrap();
    let error = all(&database.kine(), &view(None)).unwrap_err();
    assert!(matches!(error, Error::Index { .. }), "{error}");
}

#[test]
fn an_index_that_does_not_agree_with_the_table_is_told() {
    let database = Database::new(Journal::Rollback);
    database.put("/registry/secrets/hidden", b"v", 0);
    let (_directory, path) = database.close();
    // The name is in the table before the value, and in an index at the end of a record.
    let mut bytes = std::fs::read(&path).unwrap();
    let name = b"/registry/secrets/hidden";
    let in_table = (0..bytes.len() - 25).find(|at| &bytes[*at..*at + 25] == b"/registry/secrets/hiddenv").unwrap();
    bytes[in_table + name.len() - 1] = b'?';
    std::fs::write(&path, bytes).unwrap();
    let error = all(&Arc::new(Kine::open(&path).unwrap()), &view(None)).unwrap_err();
    assert!(matches!(error, Error::Index { id: 2 }), "{error}");
}

#[test]
fn many_problems_are_counted_and_some_are_kept() {
    let database = Database::new(Journal::Wal);
    let sql = "WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 3001) \
               INSERT INTO kine SELECT i, '/' || i, 1, 0, 0, i, 0, i, NULL FROM n";
    database.connection.execute(sql, []).unwrap();
    let (values, problems) = all(&database.kine(), &view(None)).unwrap();
    assert_eq!((values.len(), problems.bad_rows, problems.rows.len()), (0, 3000, 1000));
}

#[test]
fn damaged_files_end_in_errors() {
    let database = Database::new(Journal::Rollback);
    for number in 0..400_u32 {
        database.put(&format!("/registry/{}", number % 90), &vec![b'v'; 1000 + number as usize % 7], 0);
    }
    let (directory, path) = database.close();
    let good = std::fs::read(&path).unwrap();
    let mut failed = 0;
    for step in 0..300_usize {
        let mut bytes = good.clone();
        match step % 3 {
            0 => bytes.truncate(good.len() * step / 300),
            1 => bytes[100 + step * 977 % (good.len() - 100)] ^= 0xFF,
            _ => {
                let page = (step * 31 % (good.len() / 4096)) * 4096;
                bytes[page + usize::from(page == 0) * 100..][..12].fill(u8::try_from(step % 256).unwrap());
            }
        }
        let damaged = directory.path().join("damaged.db");
        std::fs::write(&damaged, &bytes).unwrap();
        let read = || {
            let kine = Arc::new(Kine::open(&damaged)?);
            all(&kine, &view(None)).and(all(&kine, &history())).map(|(values, _)| values.len())
        };
        failed += usize::from(read().is_err());
    }
    assert!(failed > 100, "{failed} of 300");
}

#[test]
fn a_source_is_send() {
    fn send<T: Send>(_: &T) {}
    let database = Database::new(Journal::Wal);
    let mut values = Values::new(&database.kine(), &view(None)).unwrap();
    send(&values);
    send(&atrest::source::Source::next_page(&mut values));
}
