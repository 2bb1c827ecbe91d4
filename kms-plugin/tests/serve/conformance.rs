//! Our plugin by `atrest kms check`, and values that are written, rotated and read through it.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use atrest::config::{self, Endpoint};
use atrest::kms::check::{Options, check};
use atrest::kms::{self, Kms};
use atrest::report::{CheckResult, KmsCheckReport};
use atrest::transformer::envelope::{DekResolver as _, DekSource, Wanted};
use atrest::transformer::{DataContext, ResourceTransformers};

use crate::support::{Plugin, Site};

async fn checked(plugin: &Plugin, stored: Vec<DekSource>) -> KmsCheckReport {
    let endpoint = Endpoint::parse(&format!("unix://{}", plugin.path.display())).unwrap();
    let timeout = Duration::from_secs(3);
    check(&Options { endpoint, timeout, api: None, samples: 50, concurrency: 32, stored }).await.unwrap()
}

fn transformers(plugin: &Plugin, version: &str) -> ResourceTransformers {
    let text = format!(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  \
         providers:\n  - kms: {{apiVersion: {version}, name: ours, endpoint: 'unix://{}'}}\n",
        plugin.path.display()
    );
    let config = config::load(text.as_bytes(), &config::Options::default()).unwrap().config;
    ResourceTransformers::from_configurations(&[config]).unwrap()
}

const CONTEXT: DataContext<'static> = DataContext::new(b"/registry/secrets/default/x");

/// A value as kube-apiserver would store it through the plugin.
async fn stored(plugin: &Plugin, version: &str) -> Vec<u8> {
    let writer = transformers(plugin, version);
    let provider = &writer.kms_providers()[0];
    let kms = Kms::new(&writer, kms::Options::default()).unwrap();
    if version == "v2" {
        kms.begin_writing(provider).await.unwrap();
    } else {
        kms.prepare_write(provider).await.unwrap();
    }
    let mut value = Vec::new();
    writer.transformer_for_resource("", "secrets").seal(b"plaintext", CONTEXT, &mut value).unwrap();
    value
}

/// Whether it is stale.
async fn opened(plugin: &Plugin, version: &str, value: &[u8]) -> bool {
    let reader = transformers(plugin, version);
    let list = reader.transformer_for_resource("", "secrets");
    let mut wanted = Wanted::default();
    wanted.add(list, value);
    let never = AtomicBool::new(false);
    Kms::new(&reader, kms::Options::default()).unwrap().resolve(wanted, &never).await;
    let (opened, _) = list.open(value, CONTEXT).unwrap();
    assert_eq!(&opened.data[..], b"plaintext");
    opened.stale
}

#[tokio::test(flavor = "multi_thread")]
async fn every_check_of_a_plugin_is_passed_in_both_apis() {
    let site = Site::new();
    let plugin = site.start_healthy().await;
    let report = checked(&plugin, Vec::new()).await;
    let not_passed: Vec<_> = report.checks.iter().filter(|check| check.result != CheckResult::Pass).collect();
    assert!(
        not_passed.iter().all(|check| (check.name, check.result) == ("stored", CheckResult::Skip)),
        "{not_passed:#?}"
    );
    for api in ["v2", "v1beta1"] {
        for name in ["authority", "decrypt", "tampered", "concurrency", "latency-decrypt"] {
            assert!(report.checks.iter().any(|check| (check.api, check.name) == (api, name)), "{api}/{name}");
        }
    }
}

/// A key of the keyring that was rotated away still opens, and its values are stale until they are written anew.
#[tokio::test(flavor = "multi_thread")]
async fn values_live_through_rotations_of_the_keyring_and_restarts() {
    let site = Site::new();
    let plugin = site.start_healthy().await;
    let (v2, v1) = (stored(&plugin, "v2").await, stored(&plugin, "v1").await);
    assert!(!opened(&plugin, "v2", &v2).await);
    assert!(!opened(&plugin, "v1", &v1).await);
    assert!(site.keyring("rotate").status.success());
    assert!(opened(&plugin, "v2", &v2).await, "the key ID of Status is another one at once");
    assert!(!opened(&plugin, "v1", &v1).await, "KMS v1 cannot tell");
    let sources = [&v2, &v1].map(|value| DekSource::of_stored(value).unwrap());
    let report = checked(&plugin, sources.to_vec()).await;
    let of_stored: Vec<_> = report.checks.iter().filter(|check| check.name == "stored").collect();
    assert_eq!(of_stored.len(), 2);
    assert!(of_stored.iter().all(|check| check.result == CheckResult::Pass), "{of_stored:#?}");
    drop(plugin);
    let plugin = site.start_healthy().await;
    assert!(opened(&plugin, "v2", &v2).await);
    assert!(!opened(&plugin, "v2", &stored(&plugin, "v2").await).await);
}
