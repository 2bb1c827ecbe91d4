use std::pin::pin;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};

use atrest::kine::{Values, View};
use atrest::report::{Dimension, NoProgress, ValueRow};
use atrest::resource::Selection;
use atrest::scan::{self, ExpectEncrypted};

use crate::fixture::{Database, Journal};

#[test]
fn a_scan_counts_what_k3s_has_stored() {
    let database = Database::new(Journal::Wal);
    database.put("/registry/health", b"{\"health\":\"true\"}", 0);
    database.put("/registry/secrets/default/a", b"k8s:enc:aescbc:v1:aescbckey:0123456789abcdef", 0);
    database.put("/registry/secrets/default/b", b"k8s\0plain", 0);
    database.put("/registry/secrets/kube-system/c", b"k8s\0plain", 0);
    database.put("/registry/secrets/kube-system/c", b"k8s:enc:secretbox:v1:k:0123456789abcdef", 0);
    database.put("/registry/masterleases/10.0.0.1", b"k8s\0plain", 15);
    database.delete("/registry/secrets/default/b");
    let selection = Selection::default();
    let options = scan::Options {
        selection: &selection,
        source: "kine".to_owned(),
        by: vec![Dimension::Resource, Dimension::Provider, Dimension::Key],
        transformers: None,
        expect_encrypted: ExpectEncrypted::No,
        each_row: true,
    };
    let scanned = |history| {
        let view = View { history, prefixes: selection.prefixes().unwrap(), ..View::default() };
        let values = Values::new(&database.kine(), &view).unwrap();
        let stop = AtomicBool::new(false);
        let mut keys = Vec::new();
        let mut rows = |row: &ValueRow| keys.push(row.key.to_string());
        let report = {
            let mut scan = pin!(scan::scan(values, &options, &NoProgress, &stop, &mut rows));
            match scan.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(report) => report.unwrap(),
                Poll::Pending => panic!("a file is read at once"),
            }
        };
        let groups: Vec<_> = report
            .groups
            .iter()
            .map(|group| {
                let text = |column: &Option<String>| column.clone().unwrap_or_default();
                (text(&group.resource), text(&group.provider), text(&group.key_name), group.values, group.writes)
            })
            .collect();
        assert_eq!((report.revision, report.single_revision, report.complete), (8, true, true));
        (keys, (report.values, report.encrypted, report.plaintext), groups)
    };
    let (keys, counts, groups) = scanned(false);
    assert_eq!(
        keys,
        [
            "/registry/health",
            "/registry/masterleases/10.0.0.1",
            "/registry/secrets/default/a",
            "/registry/secrets/kube-system/c"
        ]
    );
    assert_eq!(counts, (4, 2, 2));
    let secrets: Vec<_> = groups.into_iter().filter(|group| group.0 == "secrets").collect();
    let group = |provider: &str, key: &str| ("secrets".to_owned(), provider.to_owned(), key.to_owned(), 1, 0);
    assert_eq!(secrets, [group("aescbc", "aescbckey"), group("secretbox", "k")]);
    // The plaintext that was overwritten, the one that was deleted, and its copy in the row of the deletion.
    let (_, counts, _) = scanned(true);
    assert_eq!(counts, (7, 2, 5));
}
