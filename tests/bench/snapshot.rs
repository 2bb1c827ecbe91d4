//! Reading and rewriting snapshots of secrets of 1 KiB: rates, ratios and memory at growing sizes.
//!
//! `cargo xtask bench --bench snapshot`, or with a number of values as the argument. The files are on a RAM disk where there is
//! one. Verifying is compared with opening the same values from memory on all cores, and looking at nothing; memory is the peak
//! of the process beyond what it had before, without the file, which is in the system's cache.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use atrest::backup::{Change, RewriteOptions, rewrite};
use atrest::config::{Options as ConfigOptions, load};
use atrest::report::{Dimension, NoProgress};
use atrest::resource::{KeyLayout, Selection};
use atrest::scan::{self, ExpectEncrypted};
use atrest::snapshot::bbolt::Writer;
use atrest::snapshot::{KeyValue, Options, RebuildOptions, Revision, Snapshot, Values, View};
use atrest::transformer::envelope::NoKms;
use atrest::transformer::{DataContext, ResourceTransformers};
use atrest::verify;
use rayon::prelude::*;
use sha2::{Digest as _, Sha256};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

fn transformers(provider: &str) -> Arc<ResourceTransformers> {
    let key = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=";
    let text = format!(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  \
         providers:\n  - {provider}: {{keys: [{{name: key1, secret: {key}}}]}}\n"
    );
    let loaded = load(text.as_bytes(), &ConfigOptions::default()).expect("a valid configuration");
    Arc::new(ResourceTransformers::from_configurations(&[loaded.config]).expect("usable keys"))
}

/// A Secret of about 1 KiB, as kube-apiserver encodes it.
fn secret(name: &str, namespace: &str) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| {
        let mut out = vec![number << 3 | 2];
        prost::encoding::encode_varint(bytes.len() as u64, &mut out);
        out.extend_from_slice(bytes);
        out
    };
    let metadata = [field(1, name.as_bytes()), field(3, namespace.as_bytes())].concat();
    let data = [field(1, b"payload"), field(2, &[0x6b; 900])].concat();
    let raw = [field(1, &metadata), field(2, &data), field(3, b"Opaque")].concat();
    let type_meta = [field(1, b"v1"), field(2, b"Secret")].concat();
    [b"k8s\0".to_vec(), field(1, &type_meta), field(2, &raw), field(3, b""), field(4, b"")].concat()
}

/// Writes a snapshot of so many secrets.
fn generate(path: &Path, count: usize, transformers: &ResourceTransformers) {
    let list = transformers.transformer_for_resource("", "secrets");
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path).expect("a file");
    let mut writer = Writer::new(BufWriter::with_capacity(1 << 20, file), 4096).expect("a writer");
    writer.bucket(b"key", 0).expect("a bucket");
    for first in (0..count).step_by(10_000) {
        let records: Vec<_> = (first..count.min(first + 10_000))
            .into_par_iter()
            .map(|number| {
                // Keys come in another order than they are in the file.
                let (namespace, name) = (format!("ns-{:03}", number % 211), format!("benchmark-{number:07}"));
                let key = format!("/registry/secrets/{namespace}/{name}").into_bytes();
                let mut value = Vec::new();
                list.seal(&secret(&name, &namespace), DataContext::new(&key), &mut value).expect("it seals");
                let revision = i64::try_from(number).expect("a revision") + 2;
                let mut encoded = Vec::new();
                let kv = KeyValue {
                    key: &key,
                    create_revision: revision,
                    mod_revision: revision,
                    version: 1,
                    value: &value,
                    ..KeyValue::default()
                };
                kv.encode(&mut encoded);
                (Revision { main: revision, sub: 0 }.to_key(), encoded)
            })
            .collect();
        records.iter().for_each(|(key, value)| writer.put(key, value).expect("a record"));
    }
    writer.bucket(b"meta", 0).expect("a bucket");
    writer.put(b"consistent_index", &1_u64.to_be_bytes()).expect("a record");
    let (mut out, meta) = writer.finish(2).expect("a file");
    out.flush().expect("a file");
    let mut hash = Sha256::new();
    std::io::copy(&mut File::open(path).expect("a file"), &mut HashWriter(&mut hash)).expect("a hash");
    assert_eq!(std::fs::metadata(path).expect("a file").len(), meta.high_water * meta.page_size);
    out.write_all(&hash.finalize()).expect("a hash");
    out.flush().expect("a file");
}

struct HashWriter<'h>(&'h mut Sha256);

impl std::io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Of this process, in KiB: the peak since it was reset, and what it has now.
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0)
}

/// The median time of some rounds, and the highest peak of memory beyond what there was before.
fn measure(rounds: usize, mut run: impl FnMut()) -> (Duration, u64) {
    let mut times = Vec::new();
    let mut peak = 0;
    for _ in 0..rounds {
        _ = std::fs::write("/proc/self/clear_refs", "5");
        let before = memory("VmRSS:");
        let begun = Instant::now();
        run();
        times.push(begun.elapsed());
        peak = peak.max(memory("VmHWM:").saturating_sub(before));
    }
    times.sort();
    (times.get(rounds / 2).copied().unwrap_or_default(), peak)
}

fn directory() -> PathBuf {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    parent.join(format!("atrest-bench-{}", std::process::id()))
}

fn main() {
    let smoke = std::env::args().any(|arg| arg == "--test");
    let asked = std::env::args().find_map(|arg| arg.parse::<usize>().ok());
    let sizes = match (smoke, asked) {
        (true, _) => vec![500],
        (false, Some(count)) => vec![count],
        (false, None) => vec![50_000, 200_000, 1_000_000],
    };
    let directory = directory();
    std::fs::create_dir_all(&directory).expect("a directory");
    for count in sizes {
        bench(&directory, count, if smoke { 1 } else { 3 });
    }
    if asked.is_none() {
        // The slower a provider is, the less reading, finding and judging counts.
        for provider in ["aescbc", "secretbox"] {
            let count = if smoke { 500 } else { 200_000 };
            let transformers = transformers(provider);
            let path = directory.join("snapshot.db");
            generate(&path, count, &transformers);
            println!("{count} secrets of 1 KiB under {provider}");
            verify_against_opening(&path, count, &transformers, if smoke { 1 } else { 3 });
        }
    }
    std::fs::remove_dir_all(&directory).expect("the directory goes");
}

fn bench(directory: &Path, count: usize, rounds: usize) {
    let transformers = transformers("aesgcm");
    let path = directory.join("snapshot.db");
    generate(&path, count, &transformers);
    let megabytes = std::fs::metadata(&path).expect("a file").len() as f64 / 1e6;
    let selection = Selection::default();
    let stop = AtomicBool::new(false);
    println!("{count} secrets of 1 KiB, {megabytes:.0} MB");
    let rate = |what: &str, measured: (Duration, u64)| rate(what, measured, megabytes, count, "");
    let open = || Arc::new(Snapshot::open(&path, Options::default()).expect("a snapshot"));

    rate("find the live values", measure(rounds, || drop(Values::new(&open(), &View::default()).expect("values"))));
    rate(
        "scan",
        measure(rounds, || {
            let options = scan::Options {
                selection: &selection,
                source: String::new(),
                by: Dimension::ALL.map(|(_, dimension)| dimension).to_vec(),
                transformers: None,
                expect_encrypted: ExpectEncrypted::No,
                each_row: false,
            };
            let values = Values::new(&open(), &View::default()).expect("values");
            let report = block_on(scan::scan(values, &options, &NoProgress, &stop, &mut |_| {})).expect("a report");
            assert_eq!(report.encrypted, count as u64);
        }),
    );
    rate("SHA-256 of the file", measure(rounds, || _ = open().trailer().expect("a trailer")));
    verify_against_opening(&path, count, &transformers, rounds);
    let target = directory.join("new.db");
    rate(
        "rekey",
        measure(rounds, || {
            _ = std::fs::remove_file(&target);
            let options = RewriteOptions {
                transformers: &transformers,
                layout: &KeyLayout::default(),
                source: String::new(),
                source_path: Some(&path),
                target: &target,
                change: Change::Rekey,
                only: None,
                keep_unreadable: false,
                rebuild: RebuildOptions::default(),
            };
            let report = block_on(rewrite(&open(), &options, &NoKms, &NoProgress, &stop)).expect("a report");
            assert_eq!(report.replaced, count as u64);
        }),
    );
}

/// Prints a row.
fn rate(what: &str, (time, peak): (Duration, u64), megabytes: f64, count: usize, note: &str) {
    let seconds = time.as_secs_f64();
    println!(
        "  {what:<28} {seconds:>7.3} s {:>7.0} MB/s {:>9.0} values/s {:>6} MiB {note}",
        megabytes / seconds,
        count as f64 / seconds,
        peak / 1024
    );
}

/// Verifies a snapshot, and opens the same values from memory.
fn verify_against_opening(path: &Path, count: usize, transformers: &Arc<ResourceTransformers>, rounds: usize) {
    let megabytes = std::fs::metadata(path).expect("a file").len() as f64 / 1e6;
    let selection = Selection::default();
    let stop = AtomicBool::new(false);
    let open = || Arc::new(Snapshot::open(path, Options::default()).expect("a snapshot"));
    let (verified, peak) = measure(rounds, || {
        let options = verify::Options {
            transformers,
            selection: &selection,
            source: String::new(),
            expect_current: true,
            removable: None,
            scope: String::new(),
            rows: verify::Rows::Unreadable,
        };
        let values = Values::new(&open(), &View::default()).expect("values");
        let keys = values.again();
        let report =
            block_on(verify::verify(values, async || Ok(keys), &NoKms, &options, &NoProgress, &stop, &mut |_| {}));
        assert_eq!(report.expect("a report").findings.len(), 0);
    });
    // All of them in memory, opened on all cores.
    let list = transformers.transformer_for_resource("", "secrets");
    let mut values = Values::new(&open(), &View::default()).expect("values");
    let mut all = Vec::new();
    while let Some(page) = values.next_values().expect("values") {
        all.extend(page);
    }
    let (raw, _) = measure(rounds, || {
        let opened =
            all.par_iter().filter(|value| list.open(&value.value, DataContext::new(&value.key)).is_ok()).count();
        assert_eq!(opened, count);
    });
    drop(all);
    let share = raw.as_secs_f64() / verified.as_secs_f64();
    let note = format!("{share:.2} of the rate of only opening");
    rate("verify", (verified, peak), megabytes, count, &note);
    rate("only opening, from memory", (raw, 0), megabytes, count, "");
}
