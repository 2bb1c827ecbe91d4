//! Opening and sealing one value, per provider and size, with both engines of AES-GCM.
//!
//! `cargo bench --bench transformer`. The figures are for the bytes of one value; every iteration allocates its result, as
//! the product does, and wipes what was opened.

#![allow(clippy::indexing_slicing, reason = "a benchmark may panic")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use atrest::config::{Options, load};
use atrest::secret::Key;
use atrest::transformer::{
    AesCbc, AesGcm, DataContext, Engine, Error, ExtendedNonceGcm, FromStorage, ResourceTransformer,
    ResourceTransformers, Secretbox, Transformer, WriteState,
};
use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use zeroize::Zeroizing;

fn main() {
    divan::main();
}

const SIZES: [usize; 4] = [256, 1024, 4096, 65536];
const CONTEXT: &[u8] = b"/registry/secrets/default/benchmark";

fn key() -> Key {
    Key::new(Zeroizing::new((0..32).collect()))
}

fn seal(bencher: Bencher<'_, '_>, transformer: &dyn Transformer, size: usize) {
    // As values lie in an answer of etcd: not at the same place of a page as the memory that they are sealed into, which would
    // measure how the processor tells such addresses apart.
    let buffer = vec![0x6b; size + 2048];
    let plaintext = &buffer[1000..1000 + size];
    let context = DataContext::new(CONTEXT);
    bencher.counter(BytesCount::new(size)).bench_local(|| {
        let mut out = Vec::new();
        transformer.transform_to_storage(black_box(plaintext), context, &mut out).expect("it seals");
        // Dropped here, so that the next one finds its memory in the cache, as it does in a rotation.
        black_box(out.len())
    });
}

fn open(bencher: Bencher<'_, '_>, transformer: &dyn Transformer, size: usize) {
    let context = DataContext::new(CONTEXT);
    let mut stored = Vec::new();
    transformer.transform_to_storage(&vec![0x6b; size], context, &mut stored).expect("it seals");
    bencher.counter(BytesCount::new(size)).bench_local(|| {
        let opened = transformer.transform_from_storage(black_box(&stored), context).expect("it opens");
        black_box(opened.data.len())
    });
}

/// A list of providers as one transformer.
#[derive(Debug)]
struct Stored(ResourceTransformers);

impl Stored {
    fn kms_v2() -> Self {
        let text = b"{\"apiVersion\": \"apiserver.config.k8s.io/v1\", \"kind\": \"EncryptionConfiguration\", \"resources\": [{\"resources\": \
            [\"secrets\"], \"providers\": [{\"kms\": {\"apiVersion\": \"v2\", \"name\": \"cloud-kms\", \"endpoint\": \"unix:///run/kms.sock\"}}]}]}";
        let config = load(text, &Options::default()).expect("a valid configuration").config;
        let transformers = ResourceTransformers::from_configurations(&[config]).expect("transformers");
        let annotations = BTreeMap::from([("kek.example.com".to_owned(), vec![7; 32])]);
        let state =
            WriteState::new(&key(), vec![0x5a; 60], "kek-2026-11".to_owned(), annotations).expect("a good answer");
        transformers.kms_providers()[0].set_write_state(state, Instant::now() + Duration::from_secs(3600));
        Self(transformers)
    }

    fn list(&self) -> &ResourceTransformer {
        self.0.transformer_for_resource("", "secrets")
    }
}

impl Transformer for Stored {
    fn transform_from_storage<'a>(&self, data: &'a [u8], context: DataContext<'_>) -> Result<FromStorage<'a>, Error> {
        self.list().open(data, context).map(|(opened, _)| opened)
    }

    fn transform_to_storage(&self, plaintext: &[u8], context: DataContext<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        self.list().seal(plaintext, context, out)
    }
}

macro_rules! provider {
    ($name:ident, $transformer:expr) => {
        mod $name {
            use super::*;

            #[divan::bench(args = SIZES)]
            fn seal(bencher: Bencher<'_, '_>, size: usize) {
                super::seal(bencher, &$transformer, size);
            }

            #[divan::bench(args = SIZES)]
            fn open(bencher: Bencher<'_, '_>, size: usize) {
                super::open(bencher, &$transformer, size);
            }
        }
    };
}

provider!(aescbc, AesCbc::new(&key()).expect("a key of 32 bytes"));
provider!(aesgcm_rustcrypto, AesGcm::with_engine(&key(), Engine::RustCrypto).expect("a key of 32 bytes"));
#[cfg(feature = "fast-aead")]
provider!(aesgcm_awslc, AesGcm::with_engine(&key(), Engine::AwsLc).expect("a key of 32 bytes"));
#[cfg(feature = "fast-aead")]
provider!(aesgcm_ring, AesGcm::with_engine(&key(), Engine::Ring).expect("a key of 32 bytes"));
// The payload of KMS v2: a data key derived from the seed for each value, then AES-256-GCM.
provider!(kms_v2_rustcrypto, ExtendedNonceGcm::with_engine(&key(), Engine::RustCrypto).expect("a seed of 32 bytes"));
#[cfg(feature = "fast-aead")]
provider!(kms_v2_awslc, ExtendedNonceGcm::with_engine(&key(), Engine::AwsLc).expect("a seed of 32 bytes"));
#[cfg(feature = "fast-aead")]
provider!(kms_v2_ring, ExtendedNonceGcm::with_engine(&key(), Engine::Ring).expect("a seed of 32 bytes"));
// The whole stored value of KMS v2, by a list of providers whose DEK source is known.
provider!(kms_v2_value, Stored::kms_v2());
provider!(secretbox, Secretbox::new(&key()).expect("a key of 32 bytes"));
