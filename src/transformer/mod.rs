//! Moves values between the form in which etcd stores them and plaintext, byte for byte as kube-apiserver does.
//!
//! A stored value is either the serialized object itself or
//!
//! ```text
//! "k8s:enc:" <provider> ":" <version> ":" <name> ":" <payload>
//! ```
//!
//! without a length, a checksum or a terminator. [`PrefixTransformers`] picks the provider, and inside a local provider the
//! key; the payloads are described where they are made: [`AesCbc`], [`AesGcm`], [`Secretbox`], [`envelope`].
//! [`ResourceTransformers`] knows which list of providers governs a resource.
//!
//! Everything here is synchronous and does no I/O.

mod aes_cbc;
mod aes_gcm;
pub mod envelope;
mod error;
mod extended_nonce_gcm;
mod header;
mod identity;
mod kms;
mod label;
mod prefix;
mod resources;
mod secretbox;

use std::cell::RefCell;
use std::fmt;

pub use aes_cbc::AesCbc;
pub use aes_gcm::{AesGcm, Engine};
pub use error::Error;
pub use extended_nonce_gcm::ExtendedNonceGcm;
pub use header::{ENCRYPTED_PREFIX, Header};
pub use identity::Identity;
pub use kms::{InvalidAnswer, KmsObserver, KmsProvider, TransformationType, WriteState};
pub use label::{KeyLabel, ProviderKind};
pub use prefix::{NoMatch, PrefixTransformer, PrefixTransformers};
pub use resources::{
    ConfiguredKey, HeaderVerdict, KeyId, OpenedBy, ProviderKeys, ResourceTransformer, ResourceTransformers,
};
pub use secretbox::Secretbox;

use crate::secret::Plaintext;

/// What a value is bound to: the complete etcd key, as the bytes that etcd returned.
///
/// Upstream: `value.Context`. aesgcm and KMS authenticate it; aescbc and secretbox ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataContext<'a>(&'a [u8]);

impl<'a> DataContext<'a> {
    /// The context of the value under an etcd key.
    #[must_use]
    pub const fn new(etcd_key: &'a [u8]) -> Self {
        Self(etcd_key)
    }

    /// The additional authenticated data.
    #[must_use]
    pub fn authenticated_data(self) -> &'a [u8] {
        self.0
    }
}

/// A value that was read from storage.
#[derive(Debug)]
pub struct FromStorage<'a> {
    /// The serialized object.
    pub data: Plaintext<'a>,
    /// Whether the value should be written again even when the object is unchanged.
    pub stale: bool,
    /// The positions of the entries that opened it, outermost list first.
    pub(crate) entries: [usize; 2],
}

impl<'a> FromStorage<'a> {
    /// What a transformer of one's own has read.
    #[must_use]
    pub fn new(data: Plaintext<'a>, stale: bool) -> Self {
        Self { stale, ..Self::leaf(data) }
    }

    fn leaf(data: Plaintext<'a>) -> Self {
        Self { data, stale: false, entries: [0, 0] }
    }
}

/// One way to store a value. Upstream: `value.Transformer`.
pub trait Transformer: fmt::Debug + Send + Sync {
    /// Recovers what was stored.
    ///
    /// # Errors
    ///
    /// [`Error::AuthenticationFailed`] when `data` was not written by this key for this context, and the other variants
    /// when `data` cannot have been written by this transformer at all.
    fn transform_from_storage<'a>(&self, data: &'a [u8], context: DataContext<'_>) -> Result<FromStorage<'a>, Error>;

    /// Appends to `out` the stored form of `plaintext`.
    ///
    /// # Errors
    ///
    /// When the transformer cannot write, or the system has no randomness. `out` then holds no usable value.
    fn transform_to_storage(&self, plaintext: &[u8], context: DataContext<'_>, out: &mut Vec<u8>) -> Result<(), Error>;
}

/// A nonce, an IV or an `info` of `N` bytes from the system's generator.
///
/// The system is asked for many at once: a call for each would take as long as sealing a small value. No byte is given twice.
fn random<const N: usize>() -> Result<[u8; N], Error> {
    struct Pool {
        bytes: [u8; 512],
        used: usize,
    }
    thread_local! {
        static POOL: RefCell<Pool> = const { RefCell::new(Pool { bytes: [0; 512], used: 512 }) };
    }
    POOL.with_borrow_mut(|pool| {
        if pool.bytes.len() - pool.used < N {
            getrandom::fill(&mut pool.bytes).map_err(Error::Randomness)?;
            pool.used = 0;
        }
        let mut taken = [0; N];
        if let Some(fresh) = pool.bytes.get_mut(pool.used..pool.used + N) {
            taken.copy_from_slice(fresh);
            fresh.fill(0);
        }
        pool.used += N;
        Ok(taken)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn no_random_bytes_are_given_twice() {
        let drawn: HashSet<_> = (0..10_000).map(|_| super::random::<24>().unwrap()).collect();
        assert_eq!(drawn.len(), 10_000);
        assert!(!drawn.contains(&[0; 24]));
    }
}
