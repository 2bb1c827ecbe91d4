use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::{DekFailure, DekSource};
use crate::resource::KeyLayout;
use crate::transformer::{KmsProvider, ResourceTransformer, ResourceTransformers};

/// What has to be asked of KMS plugins before some values can be opened.
#[derive(Debug, Default)]
pub struct Wanted {
    providers: BTreeMap<usize, Arc<KmsProvider>>,
    sources: Vec<(Arc<KmsProvider>, DekSource)>,
    seen: HashSet<(usize, Vec<u8>)>,
}

impl Wanted {
    /// What it takes to open values, given as etcd keys and stored bytes: nothing for those that can be opened already.
    #[must_use]
    pub fn by<'v>(
        transformers: &ResourceTransformers,
        layout: &KeyLayout,
        values: impl Iterator<Item = (&'v [u8], &'v [u8])>,
    ) -> Self {
        let mut wanted = Self::default();
        if transformers.kms_providers().is_empty() {
            return wanted;
        }
        for (key, value) in values {
            if let Some(list) = transformers.transformer_for_key(layout, key)
                && list.lacks(value)
            {
                wanted.add(list, value);
            }
        }
        wanted
    }

    /// Adds what it takes to open a value by a list of providers: nothing for a value of a local provider.
    pub fn add(&mut self, list: &ResourceTransformer, value: &[u8]) {
        self.add_providers(list, value);
        for (provider, source) in list.dek_sources(value) {
            self.add_source(provider, source);
        }
    }

    /// Adds a DEK source, unless its answer is known.
    pub fn add_source(&mut self, provider: &Arc<KmsProvider>, source: DekSource) {
        self.add_provider(provider);
        let key = source.cache_key();
        if !provider.knows(&key) && self.seen.insert((provider.index(), key)) {
            self.sources.push((Arc::clone(provider), source));
        }
    }

    /// Adds only the providers that claim a value: their status tells whether it is stale.
    pub fn add_providers(&mut self, list: &ResourceTransformer, value: &[u8]) {
        list.kms_claimants(value).for_each(|provider| self.add_provider(provider));
    }

    /// Adds a provider whose status is wanted.
    pub fn add_provider(&mut self, provider: &Arc<KmsProvider>) {
        self.providers.entry(provider.index()).or_insert_with(|| Arc::clone(provider));
    }

    /// Whether there is nothing to ask.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.providers.is_empty()
    }

    /// The providers that claim some of the values.
    pub fn providers(&self) -> impl Iterator<Item = &Arc<KmsProvider>> {
        self.providers.values()
    }

    /// The DEK sources that are not known yet, each once.
    #[must_use]
    pub fn into_sources(self) -> Vec<(Arc<KmsProvider>, DekSource)> {
        self.sources
    }
}

/// Asks KMS plugins, and tells their answers to the providers, so that values can be opened and sealed without any I/O.
///
/// What cannot be learned is told too, as a failure: opening then says why.
pub trait DekResolver: Send + Sync {
    /// Learns the status of the providers, and resolves the sources that are not known yet. When `stop` is set nobody else is
    /// asked.
    fn resolve(&self, wanted: Wanted, stop: &AtomicBool) -> impl Future<Output = ()> + Send;

    /// Makes sure that the KMS gives back what it encrypts, and prepares a provider of KMS v2 for writing, and keeps it prepared:
    /// a seed is encrypted once, and again when the key of the KMS changes.
    fn begin_writing(&self, provider: &Arc<KmsProvider>) -> impl Future<Output = Result<(), DekFailure>> + Send;

    /// Prepares a provider for one write more, when it has said that it has nothing to write with: of KMS v1 each write takes a
    /// data key of its own.
    fn prepare_write(&self, provider: &Arc<KmsProvider>) -> impl Future<Output = Result<(), DekFailure>> + Send;

    /// Makes sure, after the last write, that a KMS v2 still gives back what was written by, and that its key is still the same:
    /// when it is not, what writes is another afterwards.
    fn confirm_writing(&self, provider: &Arc<KmsProvider>) -> impl Future<Output = Result<(), DekFailure>> + Send;
}

/// Asks nobody.
#[derive(Clone, Copy, Debug)]
pub struct NoKms;

impl DekResolver for NoKms {
    async fn resolve(&self, _: Wanted, _: &AtomicBool) {}

    async fn begin_writing(&self, _: &Arc<KmsProvider>) -> Result<(), DekFailure> {
        Err(DekFailure::NotAsked)
    }

    async fn prepare_write(&self, _: &Arc<KmsProvider>) -> Result<(), DekFailure> {
        Err(DekFailure::NotAsked)
    }

    async fn confirm_writing(&self, _: &Arc<KmsProvider>) -> Result<(), DekFailure> {
        Err(DekFailure::NotAsked)
    }
}
