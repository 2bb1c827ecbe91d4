//! Runs that are cut short, by us, by a signal, by etcd, or by what etcd forgets.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use atrest::report::{Dimension, NoProgress, Progress, ValueRow, VerifyRow};
use atrest::scan::{self, ExpectEncrypted};
use atrest::source::{Page, Source};
use atrest::storage::{Ranges, RewrapOptions};
use atrest::transformer::ResourceTransformers;
use atrest::transformer::envelope::NoKms;
use atrest::{rekey, verify};

use crate::fixture::{
    K1, K2, Workshop, block_on, client, client_with, config, everything, everywhere, execution, journal, opened,
    put_all, rekey_with, sealed, secret, secret_key, state, transformers, until,
};
use crate::support::{Etcd, Version};

const PASSWORD: &str = "correct-horse-battery-staple";

fn old() -> Arc<ResourceTransformers> {
    transformers(&config("secrets", &[&format!("aescbc old {K1}")]))
}

fn new_text() -> String {
    config("secrets", &[&format!("aesgcm new {K2}"), &format!("aescbc old {K1}"), "identity"])
}

fn name(i: usize) -> String {
    format!("s-{i:05}")
}

fn key(i: usize) -> String {
    secret_key("a", &name(i))
}

/// Secrets under the old key.
fn fill(etcd: &Etcd, count: usize) {
    let old = old();
    let value = |i| sealed(&old, key(i).as_bytes(), &secret("a", &name(i), PASSWORD));
    put_all(etcd, (0..count).map(|i| (key(i).into_bytes(), value(i))).collect());
}

/// That all are there, under the new key, and have been rewritten once.
fn assert_all_current(etcd: &Etcd, count: usize) {
    let new = transformers(&new_text());
    let all = everything(etcd);
    assert_eq!(all.len(), count);
    for i in 0..count {
        let kv = &all[key(i).as_bytes()];
        assert_eq!(opened(&new, kv.key(), kv.value()), (secret("a", &name(i), PASSWORD), false), "{}", key(i));
        assert_eq!(kv.version(), 2, "{}: written twice", key(i));
    }
}

const ARGS: [&str; 8] =
    ["--yes", "-q", "-o", "json", "--journal", "journal", "--encryption-provider-config", "config.yaml"];

fn slowly(rate: &str) -> Vec<&str> {
    ARGS.into_iter().chain(["--rate", rate]).collect()
}

/// E8. The second run does what the first has left; the journal of both has every write once.
///
/// The journal used to be written only when as many writes as run at once had come together: a kill lost the lines of writes
/// that etcd had long confirmed.
#[test]
fn a_killed_run_is_finished_by_the_next() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        let workshop = Workshop::new();
        workshop.file("config.yaml", &new_text());
        fill(&etcd, 200);
        let path = workshop.path().join("journal");
        let running = workshop.start(&etcd, "rekey", slowly("100"));
        until("some lines of the journal", || (journal(&path).len() >= 20).then_some(()));
        running.kill();
        let lines = journal(&path).len();
        let report = workshop.run(&etcd, "rekey", ARGS).json(0);
        // What etcd had got when the program was killed; some of it may have been done only afterwards.
        let written = usize::try_from(report["already_current"].as_u64().unwrap()).unwrap();
        assert!((20..200).contains(&written), "{written}");
        // Only what was in flight may be missing. At this rate that is one write, on a machine that is not busy.
        assert!((written - 16..=written).contains(&lines), "{lines} lines for {written} writes");
        assert_eq!(report["rewritten"], 200 - written);
        assert_eq!(report["still_stale"], 0);
        assert_all_current(&etcd, 200);
        assert_eq!(journal(&path).len(), lines + 200 - written);
        let third = workshop.run(&etcd, "rekey", ARGS).json(0);
        assert_eq!((third["rewritten"].as_u64(), third["already_current"].as_u64()), (Some(0), Some(200)));
    }
}

#[test]
fn a_signal_ends_a_run_with_its_report() {
    for signal in ["TERM", "INT"] {
        let etcd = Etcd::start(Version::V3_5);
        let workshop = Workshop::new();
        workshop.file("config.yaml", &new_text());
        fill(&etcd, 200);
        let path = workshop.path().join("journal");
        let running = workshop.start(&etcd, "rekey", slowly("100"));
        until("some lines of the journal", || (journal(&path).len() >= 10).then_some(()));
        running.signal(signal);
        let ran = running.wait();
        let report = ran.json(4);
        assert!(ran.stderr.contains("stopping"), "{}", ran.stderr);
        assert_eq!(report["complete"], false);
        assert_eq!(report["verified"], false);
        assert_eq!(report["keys_unused"], serde_json::json!([]));
        let rewritten = report["rewritten"].as_u64().unwrap();
        assert!((10..200).contains(&rewritten), "{rewritten}");
        let lines = journal(&path);
        assert_eq!(lines.len() as u64, rewritten);
        let all = everything(&etcd);
        assert_eq!(all.values().filter(|kv| kv.version() == 2).count() as u64, rewritten);
        for line in &lines {
            let kv = &all[line["key"].as_str().unwrap().as_bytes()];
            assert_eq!(line["new_revision"], kv.mod_revision());
            assert_eq!(line["old_revision"], kv.create_revision());
            assert_eq!(line["old_header"], "k8s:enc:aescbc:v1:old:");
            assert_eq!(line["new_header"], "k8s:enc:aesgcm:v1:new:");
        }
        let rest = workshop.run(&etcd, "rekey", ARGS).json(0);
        assert_eq!(rest["rewritten"], 200 - rewritten);
        assert_all_current(&etcd, 200);
    }
}

/// N1: neither keys nor plaintext may be where a rotation leaves its traces.
#[test]
fn the_journal_is_private_and_holds_no_secrets() {
    let etcd = Etcd::start(Version::V3_5);
    let workshop = Workshop::new();
    workshop.file("config.yaml", &new_text());
    fill(&etcd, 5);
    etcd.client().put(key(5), secret("a", &name(5), PASSWORD));
    let ran = Ran::of_verbose(&workshop, &etcd);
    let path = workshop.path().join("journal");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(journal(&path).len(), 6);
    assert_eq!(journal(&path).iter().filter(|line| line["old_header"] == "identity").count(), 1);
    let raw = [[1_u8; 16], [2; 16]];
    for (what, haystack) in [("journal", bytes.as_slice()), ("stdout", ran.0.as_bytes()), ("stderr", ran.1.as_bytes())]
    {
        let holds = |needle: &[u8]| haystack.windows(needle.len()).any(|window| window == needle);
        for needle in [K1, K2, "AQEBAQEB", "AgICAgIC", "01010101", "02020202", PASSWORD, "Y29ycmVjdC1ob3JzZS"] {
            assert!(!holds(needle.as_bytes()), "{needle} is in the {what}");
        }
        assert!(raw.iter().all(|needle| !holds(needle)), "a raw key is in the {what}");
    }
}

/// Standard output and standard error of a run that tells all it can.
struct Ran(String, String);

impl Ran {
    fn of_verbose(workshop: &Workshop, etcd: &Etcd) -> Self {
        let args = ["--yes", "-vv", "--journal", "journal", "--encryption-provider-config", "config.yaml"];
        let ran = workshop.run(etcd, "rekey", args);
        assert_eq!(ran.code, Some(0), "{ran:#?}");
        Self(ran.stdout, ran.stderr)
    }
}

#[test]
fn a_symbolic_link_is_no_journal() {
    let etcd = Etcd::start(Version::V3_5);
    let workshop = Workshop::new();
    workshop.file("config.yaml", &new_text());
    workshop.file("precious", "precious");
    symlink(workshop.path().join("precious"), workshop.path().join("journal")).unwrap();
    fill(&etcd, 3);
    let before = etcd.client().revision();
    let ran = workshop.run(&etcd, "rekey", ARGS);
    assert_eq!(ran.code, Some(2), "{ran:#?}");
    assert!(ran.stderr.contains("cannot write journal"), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: name another file with --journal"), "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(workshop.path().join("precious")).unwrap(), "precious");
    assert_eq!(etcd.client().revision(), before);
}

/// A journal on a full disk used to end the program with exit code 2 and no word of the writes that had been made.
#[test]
fn a_journal_that_fails_ends_the_run_with_its_report() {
    let etcd = Etcd::start(Version::V3_5);
    let workshop = Workshop::new();
    workshop.file("config.yaml", &new_text());
    fill(&etcd, 200);
    let args = ["--yes", "-q", "-o", "json", "--concurrency", "4", "--journal", "/dev/full"];
    let args: Vec<_> = args.into_iter().chain(["--encryption-provider-config", "config.yaml"]).collect();
    let report = workshop.run(&etcd, "rekey", args).json(4);
    let rewritten = report["rewritten"].as_u64().unwrap();
    assert!((1..=8).contains(&rewritten), "{rewritten}");
    assert_eq!(everything(&etcd).values().filter(|kv| kv.version() == 2).count() as u64, rewritten);
    assert_eq!(report["complete"], false);
    let notes = report["notes"].to_string();
    assert!(notes.contains("the journal failed"), "{notes}");
    assert!(notes.contains(&format!("{rewritten} writes are missing from the journal")), "{notes}");
}

/// What was confirmed is kept, what was in flight is settled by reading, and the run goes on where it was.
#[test]
fn a_run_outlives_a_restart_of_etcd() {
    for version in Version::ALL {
        let mut etcd = Etcd::start(version);
        let workshop = Workshop::new();
        workshop.file("config.yaml", &new_text());
        fill(&etcd, 400);
        let path = workshop.path().join("journal");
        let running = workshop.start(&etcd, "rekey", slowly("400"));
        until("some lines of the journal", || (journal(&path).len() >= 50).then_some(()));
        etcd.restart();
        let report = running.wait().json(0);
        assert_eq!(report["rewritten"], 400);
        assert_eq!(report["failed"], serde_json::json!([]));
        assert_eq!(report["still_stale"], 0);
        assert_all_current(&etcd, 400);
        let keys: BTreeSet<String> =
            journal(&path).iter().map(|line| line["key"].as_str().unwrap().to_owned()).collect();
        assert_eq!((keys.len(), journal(&path).len()), (400, 400));
        let all = everything(&etcd);
        for line in journal(&path) {
            assert_eq!(line["new_revision"], all[line["key"].as_str().unwrap().as_bytes()].mod_revision());
        }
    }
}

/// The put has arrived and its answer has not: it must not be made twice, nor count twice or as a conflict.
#[test]
fn a_write_whose_answer_is_lost_counts_once() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        fill(&etcd, 40);
        let report = block_on(async {
            // Requests time out long before etcd goes on.
            let client = client_with(&etcd, Duration::from_millis(300)).await;
            let new = transformers(&new_text());
            let paused = Paused { etcd: &etcd, after: 8, seen: AtomicU64::new(0) };
            let selection = everywhere();
            let options =
                rekey::Options { transformers: &new, selection: &selection, source: String::new(), trusted: &[] };
            let stop = AtomicBool::new(false);
            let no_kms = Arc::new(NoKms);
            let run = rekey::execute(&client, &new, &no_kms, &options, execution(8), &paused, &stop);
            let resume = async {
                while paused.seen.load(Ordering::SeqCst) <= paused.after {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                // Requests are sent into the silence, and given up.
                tokio::time::sleep(Duration::from_millis(700)).await;
                etcd.resume();
            };
            let (report, ()) = tokio::join!(run, resume);
            report.unwrap()
        });
        assert_eq!((report.rewritten, report.already_current, report.gone), (40, 0, 0));
        assert_eq!((report.failed.len(), report.still_stale, report.complete), (0, Some(0), true));
        assert_all_current(&etcd, 40);
    }
}

/// Stops etcd in its tracks when so many values are done.
struct Paused<'a> {
    etcd: &'a Etcd,
    after: u64,
    seen: AtomicU64,
}

impl Progress for Paused<'_> {
    fn begin(&self, _: &'static str, _: Option<u64>) {}
    fn advance(&self, values: u64) {
        let before = self.seen.fetch_add(values, Ordering::SeqCst);
        if before <= self.after && before + values > self.after {
            self.etcd.pause();
        }
    }
    fn end(&self) {}
}

/// A source that compacts etcd, and lets others write, after its first page.
struct CompactedAfterFirst<'a> {
    ranges: Ranges,
    etcd: &'a Etcd,
    pages: usize,
}

impl<'a> CompactedAfterFirst<'a> {
    fn new(ranges: Ranges, etcd: &'a Etcd) -> Self {
        Self { ranges, etcd, pages: 0 }
    }
}

impl Source for CompactedAfterFirst<'_> {
    type Error = atrest::storage::Error;

    async fn next_page(&mut self) -> Result<Option<Page>, Self::Error> {
        if self.pages == 1 {
            let client = self.etcd.client();
            // Written meanwhile: behind what was read, before it, and a new key.
            client.put(key(299), sealed(&old(), key(299).as_bytes(), &secret("a", &name(299), PASSWORD)));
            client.put(key(0), sealed(&old(), key(0).as_bytes(), &secret("a", &name(0), PASSWORD)));
            client.put(key(300), sealed(&old(), key(300).as_bytes(), &secret("a", &name(300), PASSWORD)));
            client.compact(client.revision());
        }
        self.pages += 1;
        self.ranges.next_page().await
    }

    fn expected(&self) -> Option<u64> {
        self.ranges.expected()
    }

    fn revision(&self) -> Option<i64> {
        self.ranges.revision()
    }

    fn is_consistent(&self) -> bool {
        self.ranges.is_consistent()
    }
}

/// E1, J8. A page that came back as "gone" ended a listing early, and the old key was removed with objects still under it.
#[test]
fn a_compaction_in_the_middle_drops_no_key() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        fill(&etcd, 300);
        let (new, selection, stop) = (transformers(&new_text()), everywhere(), AtomicBool::new(false));
        block_on(async {
            let client = client(&etcd).await;
            let ranges = || Ranges::of_prefixes(&client, &selection.prefixes().unwrap());
            let mut seen: BTreeMap<String, usize> = BTreeMap::new();
            let mut rows = |row: &ValueRow| *seen.entry(row.key.to_string()).or_default() += 1;
            let options = scan::Options {
                selection: &selection,
                source: String::new(),
                by: vec![Dimension::Resource],
                transformers: None,
                expect_encrypted: ExpectEncrypted::No,
                each_row: true,
            };
            let source = CompactedAfterFirst::new(ranges(), &etcd);
            let report = scan::scan(source, &options, &NoProgress, &stop, &mut rows).await.unwrap();
            assert_eq!((report.values, report.complete, report.single_revision), (301, true, false));
            assert_eq!(
                report.notes,
                ["the revision was compacted while it was read: the values are not of a single point in time"]
            );
            assert!(seen.keys().cloned().eq((0..=300).map(key)));
            assert!(seen.values().all(|times| *times == 1));
            assert_eq!(report.revision, etcd.client().revision());

            let mut seen = BTreeSet::new();
            let mut rows = |row: &VerifyRow| assert!(seen.insert(row.value.key.to_string()));
            let options = verify::Options {
                transformers: &new,
                selection: &selection,
                source: String::new(),
                expect_current: false,
                removable: None,
                scope: String::new(),
                rows: verify::Rows::Every,
            };
            let source = CompactedAfterFirst::new(ranges(), &etcd);
            let keys = async || Ok(ranges().keys_only());
            let report = verify::verify(source, keys, &NoKms, &options, &NoProgress, &stop, &mut rows).await.unwrap();
            assert_eq!((report.values, report.complete, report.single_revision), (301, true, false));
            assert!(
                report.notes.contains(
                    &"the revision was compacted while it was read: the values are not of a single point in time"
                        .to_owned()
                )
            );
            assert!(seen.into_iter().eq((0..=300).map(key)));

            // Without a compaction all is of one revision, although others write.
            let source = ranges();
            let report = scan_all(source, &selection).await;
            assert_eq!((report.values, report.single_revision, report.notes.len()), (301, true, 0));
        });
    }
}

async fn scan_all(source: Ranges, selection: &atrest::resource::Selection) -> atrest::report::ScanReport {
    let options = scan::Options {
        selection,
        source: String::new(),
        by: Vec::new(),
        transformers: None,
        expect_encrypted: ExpectEncrypted::No,
        each_row: true,
    };
    let stop = AtomicBool::new(false);
    scan::scan(source, &options, &NoProgress, &stop, &mut |_: &ValueRow| ()).await.unwrap()
}

/// A rotation reads at one revision and writes at others, so etcd may compact what it reads at any time.
#[test]
fn a_compaction_in_the_middle_of_a_rotation_drops_no_key() {
    let etcd = Etcd::start(Version::V3_4);
    let workshop = Workshop::new();
    workshop.file("config.yaml", &new_text());
    fill(&etcd, 300);
    let path = workshop.path().join("journal");
    let running = workshop.start(&etcd, "rekey", slowly("300"));
    until("some lines of the journal", || (journal(&path).len() >= 10).then_some(()));
    etcd.client().compact(etcd.client().revision());
    let report = running.wait().json(0);
    assert_eq!((report["rewritten"].as_u64(), report["still_stale"].as_u64()), (Some(300), Some(0)));
    assert_all_current(&etcd, 300);
}

/// With a full database nothing is written in the whole cluster, so trying on would only be noise.
///
/// The write that fills the database is made, and etcd answers that it is not: it was reported as failed, and was missing from
/// the count and from the journal.
#[test]
fn a_full_database_stops_the_run_and_the_next_finishes_it() {
    for version in Version::ALL {
        let quota = 8 * 1024 * 1024;
        let etcd = Etcd::builder(version).arg(format!("--quota-backend-bytes={quota}")).start();
        let workshop = Workshop::new();
        workshop.file("config.yaml", &new_text());
        let old = old();
        let text = "x".repeat(64 * 1024);
        let value = |i: usize| sealed(&old, key(i).as_bytes(), &secret("a", &name(i), &text));
        put_all(&etcd, (0..70).map(|i| (key(i).into_bytes(), value(i))).collect());
        let before = everything(&etcd);
        let args: Vec<_> = ARGS.into_iter().chain(["--concurrency", "4"]).collect();
        let report = workshop.run(&etcd, "rekey", &args).json(4);
        let rewritten = report["rewritten"].as_u64().unwrap();
        assert!((1..70).contains(&rewritten), "{rewritten}");
        let failed = report["failed"].as_array().unwrap();
        assert!((1..=4).contains(&failed.len()), "{failed:?}");
        assert!(failed.iter().all(|row| row["message"].as_str().unwrap().contains("NOSPACE")), "{failed:?}");
        assert!(
            failed.iter().all(|row| row["message"].as_str().unwrap().contains("etcdctl alarm disarm")),
            "{failed:?}"
        );
        assert_eq!(report["complete"], false);
        let after = everything(&etcd);
        let changed = after.values().filter(|kv| state(kv) != state(&before[kv.key()])).count();
        assert_eq!(changed as u64, rewritten);
        assert_eq!(journal(&workshop.path().join("journal")).len() as u64, rewritten);
        // What the report tells to do.
        etcd.client().compact(etcd.client().revision());
        assert!(etcd.etcdctl(&["defrag"]).status.success());
        assert!(etcd.etcdctl(&["alarm", "disarm"]).status.success());
        // Half of the values at a time fit the quota, as on a cluster that compacts every five minutes.
        let mut left = 70 - rewritten;
        let mut runs = 0;
        while left > 0 {
            runs += 1;
            assert!(runs < 10, "{left} are left");
            let ran = workshop.run(&etcd, "rekey", &args);
            let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
            left -= report["rewritten"].as_u64().unwrap();
            assert_eq!(ran.code, Some(if left == 0 { 0 } else { 4 }), "{ran:#?}");
            etcd.client().compact(etcd.client().revision());
            assert!(etcd.etcdctl(&["defrag"]).status.success());
            assert!(etcd.etcdctl(&["alarm", "disarm"]).status.success());
        }
        assert!(everything(&etcd).values().all(|kv| kv.version() == 2));
        assert_eq!(everything(&etcd).len(), 70);
    }
}

/// The limits of a write are those that are given, not those that etcd happens to have.
#[test]
fn options_are_what_they_say() {
    assert_eq!(RewrapOptions::default().max_request_bytes, 1_572_864);
    let etcd = Etcd::start(Version::V3_5);
    fill(&etcd, 1);
    let new = transformers(&new_text());
    let mut execution = execution(1);
    execution.rewrap.max_request_bytes = 512;
    let report = block_on(async { rekey_with(&client(&etcd).await, &new, &everywhere(), execution).await });
    assert_eq!((report.rewritten, report.too_large.len(), report.still_stale), (0, 1, Some(1)));
    assert_eq!(etcd.client().get(key(0)).unwrap().version(), 1);
}
