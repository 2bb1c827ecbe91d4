//! Many values: each DEK source is asked for once, and so many at once as is allowed.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use atrest::config::{Options as ConfigOptions, load};
use atrest::kms::{Kms, Options};
use atrest::report::{Class, Progress};
use atrest::resource::Selection;
use atrest::source::{Page, Source, StoredValue};
use atrest::transformer::envelope::DekResolver as _;
use atrest::transformer::{DataContext, ResourceTransformers};
use atrest::verify;

use crate::support::TestKms;

fn transformers(kms: &TestKms, version: &str) -> ResourceTransformers {
    let text = format!(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  \
         providers:\n  - kms: {{apiVersion: {version}, name: cloud, endpoint: '{}'}}\n",
        kms.endpoint()
    );
    let config = load(text.as_bytes(), &ConfigOptions::default()).unwrap().config;
    ResourceTransformers::from_configurations(&[config]).unwrap()
}

fn plaintext(name: &str) -> String {
    format!(r#"{{"kind":"Secret","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"default"}}}}"#)
}

fn value(transformers: &ResourceTransformers, i: usize) -> StoredValue {
    let name = format!("s{i}");
    let key = format!("/registry/secrets/default/{name}").into_bytes();
    let mut value = Vec::new();
    let list = transformers.transformer_for_resource("", "secrets");
    list.seal(plaintext(&name).as_bytes(), DataContext::new(&key), &mut value).unwrap();
    StoredValue { key, value, create_revision: 1, mod_revision: 1, version: 1, lease: 0 }
}

/// Yields the same values again and again, up to so many: a million of them need not be in memory.
struct Made {
    page: Vec<StoredValue>,
    left: usize,
}

impl Made {
    /// The values of several writers in turn.
    fn new(writers: &[ResourceTransformers], count: usize) -> Self {
        let page = (0..count.min(2000)).map(|i| value(&writers[i % writers.len()], i)).collect();
        Self { page, left: count }
    }
}

impl Source for Made {
    type Error = Infallible;

    async fn next_page(&mut self) -> Result<Option<Page>, Infallible> {
        let values = self.page[..self.left.min(self.page.len())].to_vec();
        self.left -= values.len();
        Ok((!values.is_empty()).then_some(Page { values, revision: 1 }))
    }

    fn expected(&self) -> Option<u64> {
        Some(self.left as u64)
    }

    fn revision(&self) -> Option<i64> {
        Some(1)
    }

    fn is_consistent(&self) -> bool {
        true
    }
}

#[derive(Default)]
struct Steps(AtomicU64, AtomicU64);

impl Progress for Steps {
    fn begin(&self, _: &'static str, _: Option<u64>) {}
    fn advance(&self, values: u64) {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.1.fetch_max(values, Ordering::Relaxed);
    }
    fn end(&self) {}
}

async fn verify(source: Made, reader: &ResourceTransformers, kms: &Kms, steps: &Steps) -> [u64; 3] {
    let selection = Selection::default();
    let options = verify::Options {
        transformers: reader,
        selection: &selection,
        source: "made".to_owned(),
        expect_current: false,
        removable: None,
        scope: String::new(),
        rows: verify::Rows::Unreadable,
    };
    let stop = AtomicBool::new(false);
    let no_keys = async || Ok(Made { page: Vec::new(), left: 0 });
    let report = verify::verify(source, no_keys, kms, &options, steps, &stop, &mut |_| {}).await.unwrap();
    [report.count(Class::Current), report.count(Class::Stale), report.unreadable()]
}

/// A cluster of three API servers, each with a seed of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_million_values_under_three_seeds_take_three_calls() {
    const COUNT: usize = 1_000_000;
    let kms = TestKms::start();
    let mut writers = Vec::new();
    for _ in 0..3 {
        let writer = transformers(&kms, "v2");
        let state = Kms::new(&writer, Options::default()).unwrap();
        state.begin_writing(&writer.kms_providers()[0]).await.unwrap();
        writers.push(writer);
    }
    // What a seed is encrypted to is decrypted once, to see that the KMS gives it back.
    assert_eq!(kms.counts(), [3, 3, 3, 0, 0]);
    let reader = transformers(&kms, "v2");
    let client = Kms::new(&reader, Options::default()).unwrap();
    let source = Made::new(&writers, COUNT);
    assert_eq!(verify(source, &reader, &client, &Steps::default()).await, [COUNT as u64, 0, 0]);
    assert_eq!(kms.counts(), [4, 3, 6, 0, 0], "one Status and three Decrypt calls");
}

/// Values of KMS v1 take a call each: several at once, not more than allowed, and it is seen how far it is.
#[tokio::test(flavor = "multi_thread")]
async fn values_of_kms_v1_take_a_call_each_and_several_at_once() {
    const COUNT: usize = 2000;
    let kms = TestKms::start();
    let writer = transformers(&kms, "v1");
    let client = Kms::new(&writer, Options::default()).unwrap();
    for _ in 0..COUNT {
        client.prepare_write(&writer.kms_providers()[0]).await.unwrap();
    }
    let writers = [writer];
    let reader = transformers(&kms, "v1");
    kms.set(|kms| kms.delay = Duration::from_millis(2));
    let client = Kms::new(&reader, Options { concurrency: 5, ..Options::default() }).unwrap();
    let steps = Steps::default();
    let source = Made::new(&writers, COUNT);
    assert_eq!(verify(source, &reader, &client, &steps).await, [COUNT as u64, 0, 0]);
    // And the one by which it was made sure that the KMS gives back what it encrypts.
    assert_eq!(kms.counts()[4], COUNT as u64 + 1);
    assert_eq!(kms.calls().most_at_once.load(Ordering::SeqCst), 5);
    assert!(steps.0.into_inner() >= 7 && steps.1.into_inner() <= 256, "a page of 2000 would be one step");
}

/// Who asks at the same time for the same source waits for one answer.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_source_is_asked_for_once_at_the_same_time() {
    use atrest::transformer::envelope::Wanted;
    let kms = TestKms::start();
    let writer = transformers(&kms, "v2");
    Kms::new(&writer, Options::default()).unwrap().begin_writing(&writer.kms_providers()[0]).await.unwrap();
    let values: Vec<_> = (0..100).map(|i| value(&writer, i)).collect();
    let reader = transformers(&kms, "v2");
    let client = Kms::new(&reader, Options::default()).unwrap();
    kms.set(|kms| kms.delay = Duration::from_millis(50));
    let list = reader.transformer_for_resource("", "secrets");
    let each = values.iter().map(|value| {
        let mut wanted = Wanted::default();
        wanted.add(list, &value.value);
        client.resolve(wanted, &atrest::storage::NEVER)
    });
    futures::future::join_all(each).await;
    assert_eq!(kms.counts(), [2, 1, 2, 0, 0]);
    for value in &values {
        let (opened, _) = list.open(&value.value, DataContext::new(&value.key)).unwrap();
        assert!(!opened.stale);
    }
}

/// G8: a KMS that limits the rate made values look as if they could not be decrypted.
#[tokio::test(flavor = "multi_thread")]
async fn a_kms_that_limits_the_rate_is_asked_again() {
    let kms = TestKms::start();
    let writer = transformers(&kms, "v1");
    let client = Kms::new(&writer, Options::default()).unwrap();
    for _ in 0..30 {
        client.prepare_write(&writer.kms_providers()[0]).await.unwrap();
    }
    let (writers, reader) = ([writer], transformers(&kms, "v1"));
    kms.set(|kms| kms.throttled = 20);
    let client = Kms::new(&reader, Options::default()).unwrap();
    let source = Made::new(&writers, 30);
    assert_eq!(verify(source, &reader, &client, &Steps::default()).await, [30, 0, 0]);
    assert_eq!(kms.counts()[4], 51);
}

/// The token expired in the middle, and the rest was called damaged: restore it from a backup.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_in_the_middle_is_no_damage() {
    const COUNT: usize = 1500;
    for code in [tonic::Code::PermissionDenied, tonic::Code::Unknown, tonic::Code::InvalidArgument] {
        let kms = TestKms::start();
        let writers = [v1_writer(&kms, COUNT).await];
        let reader = transformers(&kms, "v1");
        kms.set(|kms| kms.decrypt_fails_after = Some((1001, code, "the token has expired".into())));
        let client = Kms::new(&reader, Options::default()).unwrap();
        let (current, damaged) = classes(Made::new(&writers, COUNT), &reader, &client).await;
        // Calls that are under way at the same time see each other's count.
        assert!((950..=1001).contains(&current) && damaged == 0, "{code:?}: {current} current, {damaged} damaged");
    }
}

async fn v1_writer(kms: &TestKms, count: usize) -> ResourceTransformers {
    let writer = transformers(kms, "v1");
    let client = Kms::new(&writer, Options::default()).unwrap();
    for _ in 0..count {
        client.prepare_write(&writer.kms_providers()[0]).await.unwrap();
    }
    writer
}

/// How many are current, and how many damaged.
async fn classes(source: Made, reader: &ResourceTransformers, kms: &Kms) -> (u64, u64) {
    let selection = Selection::default();
    let options = verify::Options {
        transformers: reader,
        selection: &selection,
        source: "made".to_owned(),
        expect_current: false,
        removable: None,
        scope: String::new(),
        rows: verify::Rows::Unreadable,
    };
    let no_keys = async || Ok(Made { page: Vec::new(), left: 0 });
    let stop = AtomicBool::new(false);
    let report = verify::verify(source, no_keys, kms, &options, &Steps::default(), &stop, &mut |_| {}).await.unwrap();
    (report.count(Class::Current), report.count(Class::Damaged))
}

/// One that is refused while its key goes on working is damaged.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_while_its_key_works_is_damaged() {
    let kms = TestKms::start();
    let mut source = Made::new(&[v1_writer(&kms, 20).await], 20);
    // Within the encrypted data key.
    source.page[7].value[60] ^= 1;
    let reader = transformers(&kms, "v1");
    let client = Kms::new(&reader, Options::default()).unwrap();
    assert_eq!(classes(source, &reader, &client).await, (19, 1));
}

/// One slow moment made all values after it unreadable, although the plugin was healthy again.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_moment_is_waited_for() {
    const COUNT: usize = 1500;
    let mut kms = TestKms::start();
    let writers = [v1_writer(&kms, COUNT).await];
    let text = format!(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  \
         providers:\n  - kms: {{apiVersion: v1, name: cloud, timeout: 300ms, endpoint: '{}'}}\n",
        kms.endpoint()
    );
    let config = load(text.as_bytes(), &ConfigOptions::default()).unwrap().config;
    let reader = ResourceTransformers::from_configurations(&[config]).unwrap();
    let client = Kms::new(&reader, Options::default()).unwrap();
    let source = Made::new(&writers, COUNT);
    let restart = tokio::task::spawn_blocking(move || {
        std::thread::sleep(Duration::from_millis(200));
        kms.pause();
        std::thread::sleep(Duration::from_millis(1000));
        kms.resume();
        kms
    });
    assert_eq!(classes(source, &reader, &client).await, (COUNT as u64, 0));
    restart.await.unwrap();
}

/// 64 values at once waited for a hanging plugin one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_hangs_is_waited_for_once() {
    let kms = TestKms::start();
    let writers = [v1_writer(&kms, 64).await];
    let source = Made::new(&writers, 64);
    let reader = transformers(&kms, "v1");
    kms.set(|kms| kms.delay = Duration::from_secs(60));
    let begun = std::time::Instant::now();
    let client = Kms::new(&reader, Options { concurrency: 64, ..Options::default() }).unwrap();
    assert_eq!(verify(source, &reader, &client, &Steps::default()).await, [0, 0, 64]);
    // The timeout is three seconds.
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
}
