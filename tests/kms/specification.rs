//! Tests 32, 36 and 37 of the specification, and what is written by the vectors' own seed.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use atrest::config::{Options as ConfigOptions, load};
use atrest::kms::{Kms, Options};
use atrest::secret::Key;
use atrest::storage::NEVER;
use atrest::transformer::envelope::{DekFailure, DekResolver as _, EncryptedObject, Wanted};
use atrest::transformer::{DataContext, ResourceTransformers, WriteState};
use tonic::Code;
use zeroize::Zeroizing;

use crate::support::TestKms;

const CONTEXT: DataContext<'static> = DataContext::new(b"/registry/secrets/default/x");
const PREFIX: &[u8] = b"k8s:enc:kms:v2:cloud:";

fn transformers(endpoint: &str) -> ResourceTransformers {
    let text = format!(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  \
         providers:\n  - kms: {{apiVersion: v2, name: cloud, endpoint: '{endpoint}'}}\n"
    );
    let config = load(text.as_bytes(), &ConfigOptions::default()).unwrap().config;
    ResourceTransformers::from_configurations(&[config]).unwrap()
}

fn sealed(transformers: &ResourceTransformers) -> Vec<u8> {
    let mut value = Vec::new();
    transformers.transformer_for_resource("", "secrets").seal(b"plaintext", CONTEXT, &mut value).unwrap();
    value
}

async fn resolve(kms: &Kms, transformers: &ResourceTransformers, values: &[Vec<u8>]) {
    let mut wanted = Wanted::default();
    let list = transformers.transformer_for_resource("", "secrets");
    values.iter().for_each(|value| wanted.add(list, value));
    kms.resolve(wanted, &NEVER).await;
}

/// 32: without a status nothing is read, and Decrypt is not called.
#[tokio::test]
async fn a_plugin_that_was_never_healthy_decrypts_nothing() {
    let plugin = TestKms::start();
    let writer = transformers(&plugin.endpoint());
    Kms::new(&writer, Options::default()).unwrap().begin_writing(&writer.kms_providers()[0]).await.unwrap();
    let value = sealed(&writer);
    plugin.set(|kms| kms.fails = Some((Code::FailedPrecondition, "not yet".into())));
    let reader = transformers(&plugin.endpoint());
    let before = plugin.counts();
    resolve(&Kms::new(&reader, Options::default()).unwrap(), &reader, std::slice::from_ref(&value)).await;
    let error = reader.transformer_for_resource("", "secrets").open(&value, CONTEXT).unwrap_err();
    let said = "Status: FailedPrecondition: not yet".to_owned();
    assert_eq!(error.kms_failure(), Some(&DekFailure::Denied(said)));
    assert_eq!(plugin.counts()[2], before[2], "Decrypt");
}

/// 36: a thousand writes are one Encrypt and one encrypted seed, and a thousand data keys.
#[tokio::test]
async fn a_thousand_writes_take_one_seed_and_a_thousand_data_keys() {
    let plugin = TestKms::start();
    let writer = transformers(&plugin.endpoint());
    Kms::new(&writer, Options::default()).unwrap().begin_writing(&writer.kms_providers()[0]).await.unwrap();
    let values: Vec<_> = (0..1000).map(|_| sealed(&writer)).collect();
    let objects: Vec<_> = values.iter().map(|value| EncryptedObject::parse(&value[PREFIX.len()..]).unwrap()).collect();
    let sources: HashSet<_> = objects.iter().map(|object| object.encrypted_dek_source).collect();
    let infos: HashSet<_> = objects.iter().map(|object| &object.encrypted_data[..32]).collect();
    let nonces: HashSet<_> = objects.iter().map(|object| &object.encrypted_data[32..44]).collect();
    assert_eq!((sources.len(), infos.len(), nonces.len()), (1, 1000, 1000));
    assert_eq!(plugin.counts()[1], 1);
}

/// 37: a plugin may keep the real ciphertext in an annotation.
#[tokio::test]
async fn sources_that_differ_in_annotations_alone_are_asked_for_each() {
    let plugin = TestKms::start();
    let writer = transformers(&plugin.endpoint());
    let kms = Kms::new(&writer, Options::default()).unwrap();
    kms.begin_writing(&writer.kms_providers()[0]).await.unwrap();
    let value = sealed(&writer);
    // An annotation more: field 4 with an entry of key `b.io` and value `x`.
    let other = [value.as_slice(), b"\x22\x09\x0a\x04b.io\x12\x01x"].concat();
    let reader = transformers(&plugin.endpoint());
    let before = plugin.counts()[2];
    resolve(&Kms::new(&reader, Options::default()).unwrap(), &reader, &[value, other]).await;
    assert_eq!(plugin.counts()[2] - before, 2);
}

/// What writes is never written with longer than it is valid, and nothing is written of what kube-apiserver would refuse.
#[test]
fn a_state_that_has_expired_seals_nothing() {
    let transformers = transformers("unix:///nobody/listens.sock");
    let provider = &transformers.kms_providers()[0];
    let list = transformers.transformer_for_resource("", "secrets");
    let seal = || list.seal(b"x", CONTEXT, &mut Vec::new()).map_err(|error| error.to_string());
    assert_eq!(seal(), Err("kms-v2/cloud has no data key to write with".to_owned()));
    let seed = Key::new(Zeroizing::new(vec![7; 32]));
    let state = WriteState::new(&seed, b"dek".to_vec(), "kek".to_owned(), BTreeMap::new()).unwrap();
    let Some(past) = Instant::now().checked_sub(Duration::from_millis(1)) else { return };
    provider.set_write_state(state, past);
    assert_eq!(
        seal(),
        Err("kms-v2/cloud has not been healthy for too long to write with its last data key".to_owned())
    );
    // It still opens what it has written, and is revived by a status.
    provider.extend_write_state(Instant::now() + Duration::from_secs(60));
    assert_eq!(seal(), Ok(()));
    assert_eq!(
        list.seal(b"x", DataContext::new(b""), &mut Vec::new()).map_err(|error| error.to_string()),
        Err("there is no etcd key that the value could be bound to".to_owned())
    );
}
