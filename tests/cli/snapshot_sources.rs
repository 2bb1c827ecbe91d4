//! Files that are read in place of etcd: what cannot be read, and what is said of it.

use std::io::Write as _;

use serde_json::json;

use crate::fixture::{Dir, LOCAL, etcd, json_of, local_config, unpacked};
use crate::run::{Run, atrest};

/// Holds a run to an exit code without any output, and gives what was said.
#[track_caller]
fn refused(args: &[&str], stdin: &[u8], status: i32) -> String {
    let Run { stdout, stderr, .. } = atrest(args, stdin).exits(status);
    assert_eq!(stdout.escape_ascii().to_string(), "");
    stderr
}

/// Every command that reads a snapshot, without what only it needs.
fn readers<'a>(file: &'a str, out: &'a str, config: &'a str) -> Vec<Vec<&'a str>> {
    vec![
        vec!["scan", "--snapshot", file],
        vec!["verify", "--snapshot", file, "--encryption-provider-config", config],
        vec!["get", "--snapshot", file],
        vec!["snapshot", "inspect", file],
        vec!["snapshot", "residue", file],
        vec!["snapshot", "history", "/registry/secrets/a/b", "--snapshot", file],
        vec!["snapshot", "diff", file, LOCAL],
        vec!["snapshot", "diff", LOCAL, file],
        vec!["snapshot", "export", file, "--out", out],
        vec!["snapshot", "rekey", file, "--out", out, "--encryption-provider-config", config],
        vec!["snapshot", "redact", file, "--out", out, "--resource", "secrets"],
    ]
}

const NOT_BBOLT: &str = "not a bbolt database: neither of the two meta pages is there\natrest: hint: a snapshot is \
                         what `etcdctl snapshot save` writes, or a copy of member/snap/db\n";

const CUT_OFF: &str = "the snapshot may be damaged: no SHA-256: the file ends 22512 bytes before its last page: \
                       incomplete download?\natrest: hint: --skip-hash-check takes it all the same: look at it with \
                       `atrest snapshot inspect` first\n";

#[test]
fn every_command_names_the_file_that_it_cannot_read() {
    let (dir, config) = (Dir::new(), local_config());
    let gzip = |bytes: &[u8]| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(bytes).expect("gzip");
        packed.finish().expect("gzip")
    };
    let cases = [
        (dir.arg("missing"), "No such file or directory (os error 2)\n".to_owned()),
        (dir.write("empty", b""), "the file is empty\n".to_owned()),
        (dir.write("garbage", [0x5a; 20_000]), NOT_BBOLT.to_owned()),
        (dir.write("garbage.gz", gzip(&[0x5a; 20_000])), NOT_BBOLT.to_owned()),
        (
            dir.write("cut-off.gz", &std::fs::read(LOCAL).expect("a snapshot")[..5000]),
            "the gzip file cannot be unpacked: incomplete deflate stream\natrest: hint: an incomplete download? \
             Compare its size and its checksum with the original's\n"
                .to_owned(),
        ),
        (
            dir.write("state.db", [b"SQLite format 3\0".as_slice(), &[0; 5000]].concat()),
            "not a snapshot of etcd but an SQLite database\natrest: hint: scan, verify and get read kine's database, \
             with --kine in place of --snapshot\n"
                .to_owned(),
        ),
        (
            dir.write("half", unpacked(&etcd("corrupt/c01-truncated-half.db.gz"))),
            "page 6 (offset 24576): the file ends before it, after 22544 bytes\natrest: hint: what is left of it is \
             read with --salvage\n"
                .to_owned(),
        ),
        (
            dir.write("damaged", unpacked(&etcd("corrupt/c10-branch-child-out-of-range.db.gz"))),
            "page 1000 (offset 4096000): there is no such page: the first free one is 11\natrest: hint: what is left \
             of it is read with --salvage\n"
                .to_owned(),
        ),
    ];
    let out = dir.arg("out");
    for (file, expected) in cases {
        for args in readers(&file, &out, config.path()) {
            let said = refused(&args, b"", 3);
            // What writes a new file looks at the hash before all else.
            let expected = match matches!(args[1], "rekey" | "redact") && file.ends_with("half") {
                true => CUT_OFF,
                false => &expected,
            };
            assert_eq!(said, format!("atrest: error: {file}: {expected}"), "{args:?}");
        }
    }
    // No command has left anything.
    assert_eq!(dir.files(), ["cut-off.gz", "damaged", "empty", "garbage", "garbage.gz", "half", "state.db"]);
}

#[test]
fn a_directory_is_no_snapshot_and_a_snapshot_no_data_directory() {
    let dir = Dir::new();
    let path = dir.arg("");
    assert_eq!(
        refused(&["scan", "--snapshot", &path], b"", 3),
        format!("atrest: error: {path} is a directory\natrest: hint: a data directory is named with --data-dir\n")
    );
    let file = etcd("valid/v351-history.db");
    for wrong in [&path, &file, &dir.arg("missing")] {
        assert_eq!(
            refused(&["scan", "--data-dir", wrong], b"", 3),
            format!(
                "atrest: error: {wrong} is not a data directory of etcd: there is no member/snap/db\natrest: hint: \
                 --data-dir takes what etcd's --data-dir names (of kubeadm: /var/lib/etcd); a file is named with \
                 --snapshot\n"
            )
        );
    }
}

#[test]
fn a_command_about_files_needs_one_and_takes_no_more() {
    let dir = Dir::new();
    let (file, out) = (etcd("valid/v351-history.db"), dir.arg("out"));
    let without = [
        vec!["snapshot", "inspect"],
        vec!["snapshot", "residue"],
        vec!["snapshot", "history", "/registry/secrets/a/b"],
        vec!["snapshot", "export", "--out", &out],
        vec!["snapshot", "redact", "--out", &out, "--resource", "secrets"],
    ];
    for args in &without {
        assert_eq!(refused(args, b"", 2), "atrest: error: name a file with --snapshot or --data-dir\n", "{args:?}");
        // It was as if nothing had been named.
        let kine = [&args[..], &["--kine", &file]].concat();
        assert_eq!(
            refused(&kine, b"", 2),
            "atrest: error: --kine is no source of this command: scan, verify and get read the database of kine\n",
            "{kine:?}"
        );
    }
    for (two, said) in [
        (
            vec!["scan", "--snapshot", &file, "--data-dir", "/"],
            "'--snapshot <FILE>' cannot be used with '--data-dir <DIR>'",
        ),
        (vec!["get", "--kine", &file, "--data-dir", "/"], "'--kine <FILE>' cannot be used with '--data-dir <DIR>'"),
        (vec!["snapshot", "inspect", &file, "--data-dir", "/"], "'[FILE]' cannot be used with '--data-dir <DIR>'"),
        (vec!["snapshot", "inspect", &file, "--snapshot", &file], "'[FILE]' cannot be used with '--snapshot <FILE>'"),
    ] {
        let stderr = refused(&two, b"", 2);
        assert!(stderr.starts_with(&format!("atrest: error: the argument {said}\n")), "{stderr}");
    }
    assert_eq!(
        refused(&["scan", "--history"], b"", 2),
        "atrest: error: --history reads every revision of a file: name one with --snapshot, --data-dir or --kine\n"
    );
    assert_eq!(
        refused(&["snapshot", "diff", &file], b"", 2),
        "atrest: error: name two snapshots, or two revisions of one with --from-revision and --to-revision\n"
    );
    assert_eq!(dir.files(), [""; 0]);
}

#[test]
fn a_revision_that_is_not_there_is_refused_with_what_is() {
    let (whole, compacted) = (etcd("valid/v351-history.db"), etcd("valid/v351-compacted.db"));
    let dir = Dir::new();
    let out = dir.arg("out");
    let future = format!("atrest: error: {whole}: revision 47 is not in the snapshot: its last is 46\n");
    let past = format!(
        "atrest: error: {compacted}: revision 45 was compacted: the snapshot has everything from revision 46 \
         on\natrest: hint: --salvage shows what is left of earlier revisions, which is not all of them\n"
    );
    for (file, revision, said) in [(&whole, "47", &future), (&compacted, "45", &past)] {
        for args in [
            vec!["scan", "--snapshot", file, "--revision", revision],
            vec!["get", "--snapshot", file, "--revision", revision],
            vec!["snapshot", "export", file, "--revision", revision, "--out", &out],
            vec!["snapshot", "diff", &whole, file, "--to-revision", revision],
            vec!["snapshot", "diff", file, LOCAL, "--from-revision", revision],
        ] {
            assert_eq!(refused(&args, b"", 2), *said, "{args:?}");
        }
    }
    assert_eq!(dir.files(), [""; 0]);
    // It was ignored, and what was written was another state than was asked for.
    for args in readers(&whole, &out, local_config().path()).iter().filter(|args| args[0] == "snapshot") {
        if !matches!(args[1], "export" | "diff") {
            assert_eq!(
                refused(&[&args[..], &["--revision", "40"]].concat(), b"", 2),
                "atrest: error: --revision means nothing to this command, which is about every revision of the file\n",
                "{args:?}"
            );
        }
    }
    assert_eq!(dir.files(), [""; 0]);
    for zero in ["0", "-1", "x"] {
        let stderr = refused(&["scan", "--snapshot", &whole, &format!("--revision={zero}")], b"", 2);
        assert!(
            stderr.starts_with(&format!("atrest: error: invalid value '{zero}' for '--revision <N>': ")),
            "{stderr}"
        );
    }
}

#[test]
fn a_resource_that_nobody_knows_is_refused() {
    for args in
        [vec!["scan", "--resource", "secretz"], vec!["get", "secretz"], vec!["snapshot", "export", "--out", "/x"]]
    {
        let mut args = [&args[..], &["--snapshot", LOCAL]].concat();
        if args[0] == "snapshot" {
            args.extend(["--resource", "secretz"]);
        }
        assert_eq!(
            refused(&args, b"", 2),
            "atrest: error: unknown resource secretz\natrest: hint: resources are lower-case plurals, and custom ones \
             need their group: widgets.stable.example.com\n"
        );
    }
}

#[test]
fn salvage_reads_the_rest_and_says_what_is_lost() {
    let dir = Dir::new();
    let half = dir.write("half", unpacked(&etcd("corrupt/c01-truncated-half.db.gz")));
    let run = atrest(&["scan", "--snapshot", &half, "--salvage"], b"").exits(4);
    assert_eq!(
        run.text(),
        "\
RESOURCE  PROVIDER  KEY  VALUES
secrets   identity  -         1

1 value at revision 45: 0 encrypted, 1 in the clear
incomplete: not everything was read
note: damaged: page 6 (offset 24576): the file ends before it, after 22544 bytes: revisions 2.0 up to 12.0 are lost
note: damaged: page 9 (offset 36864): the file ends before it, after 22544 bytes: revisions 12.0 up to 22.0 are lost
note: damaged: page 5 (offset 20480): the file ends before it, after 22544 bytes: revisions 22.0 up to 32.0 are lost
note: what is lost may be newer: overwritten values and deleted objects may be among what was read
note: the file is shorter than its 11 pages: an incomplete copy?
note: no SHA-256: the file ends 22512 bytes before its last page: incomplete download?
"
    );
    assert_eq!(
        run.stderr,
        format!(
            "atrest: warning: snapshot {half}: no SHA-256: the file ends 22512 bytes before its last page: incomplete \
             download?\n"
        )
    );
    // A record that cannot be read ends nothing even when the file is read strictly.
    let record = dir.write("record", unpacked(&etcd("corrupt/c37-kv-bad-protobuf.db.gz")));
    for more in [&[][..], &["--salvage"]] {
        let args = [&["scan", "-o", "json", "--snapshot", &record], more].concat();
        let report = json_of(&atrest(&args, b"").exits(4));
        assert_eq!(report["complete"], false);
        assert_eq!(
            report["notes"],
            json!([
                "damaged: page 6, element 3 (offset 25763): not a KeyValue: invalid protobuf wire format at byte 0"
            ])
        );
    }
}

#[test]
fn a_wrong_hash_is_a_finding_unless_it_is_not_to_be_checked() {
    let dir = Dir::new();
    let file = dir.write("wrong", unpacked(&etcd("corrupt/c04-sha-mismatch.db.gz")));
    let (base, out) = (etcd("valid/v351-corruption-base.db"), dir.arg("out"));
    let said = "SHA-256 does not match: the file is not as it was written";
    // Nothing else of these is a finding. It was overlooked by all but the first three.
    let commands = [
        vec!["scan", "--snapshot", &file],
        vec!["get", "--snapshot", &file, "pods", "-o", "name"],
        vec!["snapshot", "inspect", &file],
        vec!["snapshot", "diff", &file, &base],
        vec!["snapshot", "diff", &base, &file],
        vec!["snapshot", "export", &file, "--out", &out, "--resource", "pods"],
        vec![
            "snapshot",
            "residue",
            &file,
            "--encryption-provider-config",
            "tests/vectors/config/files/ok-identity-only.yaml",
        ],
        vec!["snapshot", "history", "/registry/secrets/a/x", "--snapshot", &file],
    ];
    for args in &commands {
        let wrong = atrest(args, b"").exits(1);
        let skipped = atrest(&[&args[..], &["--skip-hash-check"]].concat(), b"");
        let expected = if args[1] == "history" { 1 } else { 0 };
        let skipped = skipped.exits(expected);
        for (run, more) in [(wrong, ""), (skipped, " (--skip-hash-check)")] {
            let told = format!("{}{}", run.text(), run.stderr);
            let line = match args[1] {
                "inspect" => format!("warning: {said}"),
                "diff" => format!("atrest: warning: {file}: {said}{more}"),
                _ => format!("atrest: warning: snapshot {file}: {said}{more}"),
            };
            assert_eq!(told.lines().filter(|told| *told == line).count(), 1, "{args:?}: {told}");
            assert!(!told.contains(&format!("atrest: warning: {said}")), "{args:?}: {told}");
        }
    }
    // A copy without a hash is no finding: nothing says that it is wrong.
    let copy = dir.write("copy", unpacked(&etcd("corrupt/c02-truncated-no-trailer.db.gz")));
    let run = atrest(&["scan", "--snapshot", &copy], b"").exits(0);
    assert!(run.text().ends_with("note: no SHA-256: not written by `snapshot save`, or cut off\n"), "{}", run.text());
    // Where something is damaged, that nothing was found says little.
    let damaged = dir.write("damaged", unpacked(&etcd("corrupt/c10-branch-child-out-of-range.db.gz")));
    atrest(&["snapshot", "history", "/registry/nope", "--snapshot", &damaged, "--salvage"], b"").exits(4);
    atrest(&["snapshot", "diff", &damaged, &base, "--salvage"], b"").exits(4);
}

#[test]
fn either_meta_page_can_be_chosen() {
    let dir = Dir::new();
    let file = dir.write("db", unpacked(&etcd("datadir/v351-member-snap-db.gz")));
    let revision = |meta: &str| {
        let args = ["snapshot", "inspect", &file, "--meta", meta, "--skip-hash-check", "-o", "json"];
        let report = json_of(&atrest(&args, b"").exits(0));
        (report["revision"].as_i64().expect("a number"), report["consistent_index"].as_i64().expect("a number"))
    };
    // The other page is of the server's start, before anything was stored.
    assert_eq!(["auto", "0", "1"].map(revision), [(46, 50), (46, 50), (1, 4)]);
    let broken = dir.write("broken", unpacked(&etcd("corrupt/c06-meta0-bad-checksum.db.gz")));
    atrest(&["snapshot", "inspect", &broken, "--meta", "1"], b"").exits(0);
    let said = refused(&["snapshot", "inspect", &broken, "--meta", "0"], b"", 3);
    assert!(said.starts_with(&format!("atrest: error: {broken}: ")), "{said}");
}

#[test]
fn a_dash_is_standard_input_for_every_command() {
    let (dir, config) = (Dir::new(), local_config());
    let packed = std::fs::read(LOCAL).expect("a snapshot");
    for bytes in [&packed, &unpacked(LOCAL)] {
        let report = json_of(&atrest(&["scan", "--snapshot", "-", "-o", "json"], bytes).exits(0));
        assert_eq!((&report["source"], &report["revision"]), (&json!("snapshot on standard input"), &json!(241)));
        let inspected = json_of(&atrest(&["snapshot", "inspect", "-", "-o", "json"], bytes).exits(0));
        assert_eq!((&inspected["source"], &inspected["revision"]), (&report["source"], &report["revision"]));
        let run = atrest(&["get", "--snapshot", "-", "namespaces", "team-a", "-o", "name"], bytes).exits(0);
        assert_eq!(run.text(), "namespace/team-a\n");
    }
    let out = dir.arg("new.db");
    let args = ["snapshot", "rekey", "-", "--out", &out, "--encryption-provider-config", config.path()];
    atrest(&args, &packed).exits(0);
    atrest(&["snapshot", "inspect", &out], b"").exits(0);
    assert_eq!(refused(&["scan", "--snapshot", "-"], b"", 3), "atrest: error: standard input: the file is empty\n");
    assert_eq!(
        refused(&["snapshot", "inspect", "-"], &[0x5a; 20_000], 3),
        format!("atrest: error: standard input: {NOT_BBOLT}")
    );
}
