//! Opening and sealing one value, per provider and size, with both engines of AES-GCM.
//!
//! `cargo bench --bench transformer`. The figures are for the bytes of one value; every iteration allocates its result, as
//! the product does, and wipes what was opened.

#![allow(clippy::indexing_slicing, reason = "a benchmark may panic")]

use atrest::secret::Key;
use atrest::transformer::{AesCbc, AesGcm, DataContext, Engine, Secretbox, Transformer};
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
provider!(secretbox, Secretbox::new(&key()).expect("a key of 32 bytes"));
