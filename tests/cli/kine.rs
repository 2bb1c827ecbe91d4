//! The SQLite database of kine in place of etcd.

use rusqlite::{Connection, params};
use serde_json::json;

use crate::fixture::{Dir, json_of, with_keys};
use crate::run::{DEMO, File, K1, atrest, config, encode, provider};

const SCHEMA: &str = "CREATE TABLE kine (id INTEGER PRIMARY KEY AUTOINCREMENT, name INTEGER, created INTEGER, \
                      deleted INTEGER, create_revision INTEGER, prev_revision INTEGER, lease INTEGER, value BLOB, \
                      old_value BLOB); CREATE INDEX kine_name_index ON kine (name);";

fn secret(password: &str) -> Vec<u8> {
    let data = encode(password);
    let text = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "demo", "namespace": "default"}, "data": {"p": data},
    });
    text.to_string().into_bytes()
}

/// What kine has of a secret that was stored in the clear at 2 and encrypted at 3, and of a namespace that was deleted
/// at 5.
fn database(dir: &Dir, keys: &File, journal: &str) -> String {
    let path = dir.arg("state.db");
    let connection = Connection::open(&path).expect("a database");
    connection.pragma_update(None, "journal_mode", journal).expect("a journal");
    connection.execute_batch(SCHEMA).expect("a table");
    let args = ["encrypt", "--resource", "secrets", "--key", DEMO, "--encryption-provider-config", keys.path()];
    let sealed = atrest(&args, &secret("second")).exits(0).stdout;
    let namespace = br#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"gone"}}"#.to_vec();
    type Row<'r> = (&'r str, bool, bool, i64, i64, &'r [u8]);
    let rows: [Row<'_>; 5] = [
        ("compact_rev_key", true, false, 0, 0, b""),
        (DEMO, true, false, 0, 0, &secret("first")),
        (DEMO, false, false, 2, 2, &sealed),
        ("/registry/namespaces/gone", true, false, 0, 0, &namespace),
        ("/registry/namespaces/gone", false, true, 4, 4, &namespace),
    ];
    for (name, created, deleted, create_revision, prev_revision, value) in rows {
        connection
            .execute(
                "INSERT INTO kine (name, created, deleted, create_revision, prev_revision, lease, value) \
                 VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6)",
                params![name, created, deleted, create_revision, prev_revision, value],
            )
            .expect("a row");
    }
    connection.close().expect("a file");
    path
}

#[test]
fn the_last_values_and_every_value_are_counted() {
    let (dir, keys) = (Dir::new(), config(&[&provider("aescbc", "key1", K1), "identity: {}"]));
    let file = database(&dir, &keys, "delete");
    let run = atrest(&["scan", "--kine", &file], b"").exits(0);
    assert_eq!(
        run.text(),
        "RESOURCE  PROVIDER  KEY   VALUES\nsecrets   aescbc    key1       1\n\n1 value at revision 5: 1 encrypted, 0 \
         in the clear\n"
    );
    assert_eq!(run.stderr, "");
    let run = atrest(&["scan", "--kine", &file, "--history", "-o", "csv"], b"").exits(0);
    assert_eq!(run.text(), HISTORY);
    let run = atrest(&["scan", "--kine", &file, "--revision", "2", "-o", "json"], b"").exits(0);
    let report = json_of(&run);
    assert_eq!([&report["values"], &report["plaintext"], &report["revision"]], [&json!(1), &json!(1), &json!(2)]);
    assert_eq!(dir.files(), ["state.db"]);
}

/// A deletion of kine's keeps the value: it is in the file as much as the others are.
const HISTORY: &str = "\
resource,provider,key,kms_key_id,values,bytes,writes,oldest,newest
namespaces,identity,-,-,2,130,0,4,5
secrets,aescbc,key1,-,1,151,0,3,3
secrets,identity,-,-,1,108,0,2,2
";

/// What k3s wrote last is in the log, and whoever copies the database alone has none of it.
#[test]
fn a_copy_without_its_log_is_told() {
    let (dir, keys) = (Dir::new(), config(&[&provider("aescbc", "key1", K1)]));
    let file = database(&dir, &keys, "wal");
    let report = json_of(&atrest(&["scan", "--kine", &file, "-o", "json"], b"").exits(0));
    let note = "there is no log (-wal) beside the database: when k3s was running, a copy lacks its last writes";
    assert_eq!((&report["notes"], &report["values"]), (&json!([note]), &json!(1)));
    assert_eq!(dir.files(), ["state.db"]);
}

#[test]
fn objects_are_decrypted_at_any_revision() {
    let (dir, keys) = (Dir::new(), config(&[&provider("aescbc", "key1", K1), "identity: {}"]));
    let file = database(&dir, &keys, "delete");
    let get = |more: &[&str]| with_keys(&keys, &[&["-q", "get", "--kine", &file, "secrets", "demo"], more].concat());
    assert_eq!(
        get(&["--reveal"]).exits(0).text(),
        "apiVersion: v1\ndata:\n  p: c2Vjb25k\nkind: Secret\nmetadata:\n  name: demo\n  namespace: default\n  \
         resourceVersion: \"3\"\n"
    );
    assert_eq!(get(&["-o", "jsonpath={.data.p}"]).exits(0).text(), "[REDACTED, 6 bytes]");
    assert_eq!(get(&["--reveal", "--revision", "2", "-o", "jsonpath={.data.p}"]).exits(0).text(), "Zmlyc3Q=");
    let missing = with_keys(&keys, &["-q", "get", "--kine", &file, "namespaces", "gone"]).exits(1);
    assert_eq!(missing.stderr, "atrest: error: namespaces \"gone\" not found\n");
    let deleted = atrest(&["-q", "get", "--kine", &file, "namespaces", "gone", "--revision", "4", "-o", "name"], b"");
    assert_eq!(deleted.exits(0).text(), "namespace/gone\n");
    let future = atrest(&["get", "--kine", &file, "--revision", "6"], b"").exits(2);
    assert_eq!(future.stderr, format!("atrest: error: {file}: revision 6 is not in the database: its last is 5\n"));
    let run = with_keys(&keys, &["verify", "--kine", &file]).exits(0);
    assert_eq!(run.stderr, "");
}

#[test]
fn what_is_no_database_of_kine_is_refused() {
    let dir = Dir::new();
    let other = dir.arg("other.db");
    let connection = Connection::open(&other).expect("a database");
    connection.execute_batch("CREATE TABLE users (id INTEGER PRIMARY KEY);").expect("a table");
    connection.close().expect("a file");
    let hint =
        "atrest: hint: --kine takes the database of kine, as k3s has it in /var/lib/rancher/k3s/server/db/state.db\n";
    for (file, said) in [
        (dir.write("text", "no database"), " is not a SQLite database"),
        (dir.write("empty", ""), ": a SQLite database without the table `kine`; it has no tables"),
        (other, ": a SQLite database without the table `kine`; its tables are: users"),
    ] {
        let run = atrest(&["scan", "--kine", &file], b"").exits(3);
        assert_eq!((run.text(), run.stderr.as_str()), ("", format!("atrest: error: {file}{said}\n{hint}").as_str()));
    }
}
