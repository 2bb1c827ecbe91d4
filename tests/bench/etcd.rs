//! Rotating and scanning 20,000 secrets of 1 KiB on one etcd, against loops that do no more than they must.
//!
//! `cargo xtask bench --bench etcd`. The same client, the same values and the same concurrency; rounds in turn, and the
//! medians of their ratios. The bare loop for a rotation reads the same pages and puts values of the same size with the same
//! comparison; that for a scan reads the same pages and looks at nothing.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use atrest::config::{EncryptionConfiguration, Options as ConfigOptions, load};
use atrest::rekey::{self, Execution};
use atrest::report::NoProgress;
use atrest::resource::Selection;
use atrest::scan::{self, ExpectEncrypted};
use atrest::source::{Source as _, StoredValue};
use atrest::storage::{Client, ConnectOptions, Ranges, RewrapOptions, TlsOptions, Written};
use atrest::transformer::envelope::NoKms;
use atrest::transformer::{DataContext, ResourceTransformers};
use tokio::task::JoinSet;

const CONCURRENCY: usize = 64;

fn configuration(first: &str, second: &str) -> Vec<EncryptionConfiguration> {
    let key = |name: &str| match name {
        "a" => "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=",
        _ => "QkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkI=",
    };
    let text = format!(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  \
         providers:\n  - aesgcm:\n      keys:\n      - {{name: {first}, secret: {}}}\n      - {{name: {second}, secret: {}}}\n",
        key(first),
        key(second)
    );
    vec![load(text.as_bytes(), &ConfigOptions::default()).expect("a valid configuration").config]
}

fn transformers(first: &str, second: &str) -> Arc<ResourceTransformers> {
    Arc::new(ResourceTransformers::from_configurations(&configuration(first, second)).expect("usable keys"))
}

/// A Secret of about 1 KiB, as kube-apiserver encodes it.
fn secret(name: &str) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| {
        let mut out = vec![number << 3 | 2];
        prost::encoding::encode_varint(bytes.len() as u64, &mut out);
        out.extend_from_slice(bytes);
        out
    };
    let metadata = [field(1, name.as_bytes()), field(3, b"default")].concat();
    let data = [field(1, b"payload"), field(2, &[0x6b; 900])].concat();
    let raw = [field(1, &metadata), field(2, &data), field(3, b"Opaque")].concat();
    let type_meta = [field(1, b"v1"), field(2, b"Secret")].concat();
    [b"k8s\0".to_vec(), field(1, &type_meta), field(2, &raw), field(3, b""), field(4, b"")].concat()
}

async fn seed(client: &Client, transformers: &ResourceTransformers, count: usize) {
    let list = transformers.transformer_for_resource("", "secrets");
    let mut puts = JoinSet::new();
    for i in 0..count {
        let name = format!("benchmark-{i:06}");
        let key = format!("/registry/secrets/default/{name}").into_bytes();
        let mut sealed = Vec::new();
        list.seal(&secret(&name), DataContext::new(&key), &mut sealed).expect("it seals");
        if puts.len() >= CONCURRENCY {
            puts.join_next().await.expect("a put").expect("no panic");
        }
        let client = client.clone();
        puts.spawn(async move {
            assert!(matches!(client.optimistic_put(&key, sealed, 0, 0).await, Ok(Written::Done { .. })));
        });
    }
    while puts.join_next().await.is_some() {}
}

fn selection() -> Selection {
    Selection::default()
}

fn ranges(client: &Client) -> Ranges {
    Ranges::of_prefixes(client, &selection().layout.all())
}

/// Puts every value as it is, in the same shape.
async fn bare_rotation(client: &Client) -> Duration {
    let begun = Instant::now();
    let mut source = ranges(client);
    source.count().await.expect("a count");
    let mut puts = JoinSet::new();
    while let Some(page) = source.next_page().await.expect("a page") {
        for StoredValue { key, value, mod_revision, lease, .. } in page.values {
            if puts.len() >= CONCURRENCY {
                puts.join_next().await.expect("a put").expect("no panic");
            }
            let client = client.clone();
            puts.spawn(async move {
                let written = client.optimistic_put(&key, value, mod_revision, lease).await;
                assert!(matches!(written, Ok(Written::Done { .. })));
            });
        }
    }
    while puts.join_next().await.is_some() {}
    begun.elapsed()
}

async fn rotation(client: &Client, transformers: &Arc<ResourceTransformers>, count: usize) -> Duration {
    let selection = selection();
    let options = rekey::Options { transformers, selection: &selection, source: String::new(), trusted: &[] };
    let execution = Execution {
        concurrency: CONCURRENCY,
        rate: None,
        rewrap: RewrapOptions::default(),
        quota_bytes: None,
        journal: None,
    };
    let stop = AtomicBool::new(false);
    let report = rekey::execute(client, transformers, &Arc::new(NoKms), &options, execution, &NoProgress, &stop)
        .await
        .expect("a report");
    assert_eq!((report.rewritten, report.still_stale), (count as u64, Some(0)));
    Duration::from_secs_f64(report.seconds)
}

async fn bare_scan(client: &Client) -> Duration {
    let begun = Instant::now();
    let mut source = ranges(client);
    source.count().await.expect("a count");
    while source.next_page().await.expect("a page").is_some() {}
    begun.elapsed()
}

async fn scan(client: &Client, count: usize) -> Duration {
    let begun = Instant::now();
    let selection = selection();
    let options = scan::Options {
        selection: &selection,
        source: String::new(),
        by: atrest::report::Dimension::ALL.map(|(_, dimension)| dimension).to_vec(),
        transformers: None,
        expect_encrypted: ExpectEncrypted::No,
        each_row: false,
    };
    let mut source = ranges(client);
    source.count().await.expect("a count");
    let stop = AtomicBool::new(false);
    let report = scan::scan(source, &options, &NoProgress, &stop, &mut |_| {}).await.expect("a report");
    assert_eq!(report.values, count as u64);
    begun.elapsed()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() {
    let smoke = std::env::args().any(|arg| arg == "--test");
    let (count, rounds) = if smoke { (200, 1) } else { (20_000, 5) };
    let etcd = support::Etcd::start(support::Version::V3_5);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let options = ConnectOptions {
            endpoints: vec![etcd.endpoint().parse().expect("an endpoint")],
            tls: TlsOptions::default(),
            user: None,
            dial_timeout: Duration::from_secs(5),
            command_timeout: Duration::from_secs(30),
            interrupted: &atrest::storage::NEVER,
        };
        let client = Client::connect(options).await.expect("a connection");
        let (a, b) = (transformers("a", "b"), transformers("b", "a"));
        seed(&client, &a, count).await;
        let mut ratios = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            let to = if round % 2 == 0 { &b } else { &a };
            let bare = bare_rotation(&client).await.as_secs_f64();
            let ours = rotation(&client, to, count).await.as_secs_f64();
            let rate = |seconds: f64| count as f64 / seconds;
            println!("rekey: {:.0}/s, bare loop {:.0}/s, ratio {:.3}", rate(ours), rate(bare), bare / ours);
            ratios[0].push(bare / ours);
            let bare = bare_scan(&client).await.as_secs_f64();
            let ours = scan(&client, count).await.as_secs_f64();
            println!("scan: {:.0}/s, bare loop {:.0}/s, ratio {:.3}", rate(ours), rate(bare), bare / ours);
            ratios[1].push(bare / ours);
        }
        let [rekey, scan] = ratios.map(median);
        println!(
            "{count} secrets of 1 KiB, medians of {rounds} rounds: rekey {rekey:.3} and scan {scan:.3} of the bare loop"
        );
    });
}
