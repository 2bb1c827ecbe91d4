//! kube-apiserver's metrics, by their names, of calls that are known.

use atrest::config::{Options as ConfigOptions, load};
use atrest::kms::{Kms, Metrics, Options};
use atrest::transformer::envelope::{DekResolver as _, Wanted};
use atrest::transformer::{DataContext, ResourceTransformers};
use prometheus_client::registry::Registry;

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

/// The samples whose names begin so, without those that are of time.
fn samples(registry: &Registry) -> Vec<String> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    let is_of_time = |line: &str| ["_bucket{", "_sum", "timestamp_seconds"].iter().any(|part| line.contains(part));
    let mut lines: Vec<_> =
        text.lines().filter(|line| !line.starts_with('#') && !is_of_time(line)).map(str::to_owned).collect();
    lines.sort();
    lines
}

const CONTEXT: DataContext<'static> = DataContext::new(b"/registry/secrets/default/x");

async fn open(kms: &Kms, transformers: &ResourceTransformers, value: &[u8]) {
    let list = transformers.transformer_for_resource("", "secrets");
    let mut wanted = Wanted::default();
    wanted.add(list, value);
    kms.resolve(wanted, &atrest::storage::NEVER).await;
    list.open(value, CONTEXT).map(|_| ()).unwrap();
}

#[tokio::test]
async fn calls_values_and_data_keys_of_kms_v2_are_counted() {
    let plugin = TestKms::start();
    let mut registry = Registry::default();
    let options = Options { metrics: Some(Metrics::register(&mut registry)), ..Options::default() };
    let writer = transformers(&plugin, "v2");
    let kms = Kms::new(&writer, Options::default()).unwrap();
    kms.begin_writing(&writer.kms_providers()[0]).await.unwrap();
    let mut value = Vec::new();
    writer.transformer_for_resource("", "secrets").seal(b"x", CONTEXT, &mut value).unwrap();

    let both = transformers(&plugin, "v2");
    let kms = Kms::new(&both, options).unwrap();
    for _ in 0..3 {
        open(&kms, &both, &value).await;
    }
    kms.begin_writing(&both.kms_providers()[0]).await.unwrap();
    for _ in 0..2 {
        both.transformer_for_resource("", "secrets").seal(b"x", CONTEXT, &mut Vec::new()).unwrap();
    }
    let hash = atrest::report::key_id_hash("kek-2");
    let method = |name: &str, count| {
        format!(
            "apiserver_envelope_encryption_kms_operations_latency_seconds_count{{provider_name=\"cloud\",\
             method_name=\"/v2.KeyManagementService/{name}\",grpc_status_code=\"OK\"}} {count}"
        )
    };
    let key_id = |way: &str, count| {
        format!(
            "apiserver_envelope_encryption_key_id_hash_total{{transformation_type=\"{way}\",provider_name=\"cloud\",\
             key_id_hash=\"{hash}\",apiserver_id_hash=\"\"}} {count}"
        )
    };
    let mut expected = vec![
        "apiserver_envelope_encryption_dek_cache_fill_percent 0.0".to_owned(),
        "apiserver_envelope_encryption_dek_source_cache_size{provider_name=\"cloud\"} 2".to_owned(),
        key_id("from_storage", 3),
        key_id("to_storage", 2),
        method("Decrypt", 2),
        method("Encrypt", 1),
        method("Status", 2),
        "apiserver_storage_data_key_generation_duration_seconds_count 1".to_owned(),
        "apiserver_storage_data_key_generation_failures_total 0".to_owned(),
        "apiserver_storage_envelope_transformation_cache_misses_total 1".to_owned(),
    ];
    expected.sort();
    assert_eq!(samples(&registry), expected);
}

#[tokio::test]
async fn a_status_that_cannot_be_used_and_a_refused_call_are_counted() {
    let plugin = TestKms::start();
    let mut registry = Registry::default();
    let options = Options { metrics: Some(Metrics::register(&mut registry)), ..Options::default() };
    let both = transformers(&plugin, "v2");
    let kms = Kms::new(&both, options).unwrap();
    plugin.set(|kms| kms.status_key_id = Some(String::new()));
    kms.begin_writing(&both.kms_providers()[0]).await.unwrap_err();
    plugin.set(|kms| kms.status_key_id = Some("k".repeat(1025)));
    kms.begin_writing(&both.kms_providers()[0]).await.unwrap_err();
    plugin.set(|kms| kms.status_key_id = None);
    plugin.set(|kms| kms.encrypt_fails = Some((tonic::Code::FailedPrecondition, "disabled".into())));
    kms.begin_writing(&both.kms_providers()[0]).await.unwrap_err();
    let samples = samples(&registry);
    let has = |line: &str| assert!(samples.iter().any(|sample| sample == line), "{line}: {samples:#?}");
    has("apiserver_envelope_encryption_invalid_key_id_from_status_total{provider_name=\"cloud\",error=\"empty\"} 1");
    has("apiserver_envelope_encryption_invalid_key_id_from_status_total{provider_name=\"cloud\",error=\"too_long\"} 1");
    has("apiserver_envelope_encryption_kms_operations_latency_seconds_count{provider_name=\"cloud\",\
         method_name=\"/v2.KeyManagementService/Encrypt\",grpc_status_code=\"FailedPrecondition\"} 1");
}

#[tokio::test]
async fn data_keys_of_kms_v1_are_counted() {
    let plugin = TestKms::start();
    let mut registry = Registry::default();
    let options = Options { metrics: Some(Metrics::register(&mut registry)), ..Options::default() };
    let both = transformers(&plugin, "v1");
    let kms = Kms::new(&both, options).unwrap();
    for _ in 0..4 {
        kms.prepare_write(&both.kms_providers()[0]).await.unwrap();
    }
    let mut value = Vec::new();
    both.transformer_for_resource("", "secrets").seal(b"x", CONTEXT, &mut value).unwrap();
    open(&kms, &both, &value).await;
    let samples = samples(&registry);
    let has = |line: &str| assert!(samples.iter().any(|sample| sample == line), "{line}: {samples:#?}");
    // One more, by which it was made sure that the KMS gives back what it encrypts.
    has("apiserver_storage_data_key_generation_duration_seconds_count 5");
    has(
        "apiserver_envelope_encryption_dek_cache_inter_arrival_time_seconds_count{transformation_type=\"from_storage\"} 1",
    );
    has(&format!("apiserver_envelope_encryption_dek_cache_fill_percent {:?}", 1.0 / 4096.0));
    has("apiserver_storage_envelope_transformation_cache_misses_total 1");
}
