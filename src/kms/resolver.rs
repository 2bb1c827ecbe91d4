use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::JoinHandle;

use super::plugin::{Plugin, is_named};
use super::{Error, Options, keeper};
use crate::transformer::envelope::{DekFailure, DekResolver, DekSource, Wanted};
use crate::transformer::{KmsProvider, ResourceTransformers};

/// The provider and the cache key of a DEK source.
type SourceKey = (usize, Vec<u8>);

/// The plugins of a configuration.
///
/// Every DEK source is asked for once, whoever wants it, and so many at once as [`Options::concurrency`] allows.
pub struct Kms {
    plugins: Vec<Arc<Plugin>>,
    permits: Semaphore,
    options: Options,
    /// What is being asked for just now.
    under_way: Mutex<HashMap<SourceKey, Arc<OnceCell<()>>>>,
    /// Ask for the status as long as something is written.
    keepers: tokio::sync::Mutex<HashMap<usize, JoinHandle<()>>>,
}

impl fmt::Debug for Kms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.plugins.iter().map(|plugin| &plugin.provider)).finish()
    }
}

impl Kms {
    /// The plugins of these transformers. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownProvider`] when an endpoint is given for a provider that there is not.
    pub fn new(transformers: &ResourceTransformers, options: Options) -> Result<Self, Error> {
        let providers = transformers.kms_providers();
        for (i, (name, _)) in options.endpoints.iter().enumerate() {
            if !providers.iter().any(|provider| is_named(provider, name)) {
                return Err(Error::UnknownProvider { name: name.clone() });
            }
            if options.endpoints.iter().take(i).any(|(other, _)| other == name) {
                return Err(Error::TwoEndpoints { name: name.clone() });
            }
        }
        Ok(Self {
            plugins: providers.iter().map(|provider| Arc::new(Plugin::new(provider, &options))).collect(),
            permits: Semaphore::new(options.concurrency.max(1)),
            options,
            under_way: Mutex::default(),
            keepers: tokio::sync::Mutex::default(),
        })
    }

    fn plugin(&self, provider: &KmsProvider) -> Option<&Arc<Plugin>> {
        self.plugins.get(provider.index())
    }

    async fn resolve_one(&self, provider: &KmsProvider, source: &DekSource, stop: &AtomicBool) {
        let Some(plugin) = self.plugin(provider) else { return };
        let key = (provider.index(), source.cache_key());
        let under_way = UnderWay::new(&self.under_way, key);
        let ask = async || {
            // Somebody may have asked between the look into the cache and now.
            if !provider.knows(&under_way.key.1) && !stop.load(Ordering::Relaxed) {
                // The semaphore is never closed.
                let _permit = self.permits.acquire().await;
                plugin.resolve(source, stop).await;
            }
        };
        under_way.cell.get_or_init(ask).await;
    }
}

/// A source that is being asked for. Dropped, it is so no longer, whoever waited for it.
struct UnderWay<'k> {
    all: &'k Mutex<HashMap<SourceKey, Arc<OnceCell<()>>>>,
    key: SourceKey,
    cell: Arc<OnceCell<()>>,
}

impl<'k> UnderWay<'k> {
    fn new(all: &'k Mutex<HashMap<SourceKey, Arc<OnceCell<()>>>>, key: SourceKey) -> Self {
        let cell = Arc::clone(all.lock().unwrap_or_else(PoisonError::into_inner).entry(key.clone()).or_default());
        Self { all, key, cell }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        // Another may have begun for the same source since this one was answered.
        if all.get(&self.key).is_some_and(|cell| Arc::ptr_eq(cell, &self.cell)) {
            all.remove(&self.key);
        }
    }
}

impl DekResolver for Kms {
    async fn resolve(&self, wanted: Wanted, stop: &AtomicBool) {
        let plugins: Vec<_> = wanted.providers().filter_map(|provider| self.plugin(provider)).cloned().collect();
        futures::future::join_all(plugins.iter().map(|plugin| plugin.learn_status(stop))).await;
        let sources = futures::stream::iter(wanted.into_sources());
        let limit = Some(self.options.concurrency.max(1));
        let ask = async |(provider, source): (Arc<KmsProvider>, DekSource)| {
            self.resolve_one(&provider, &source, stop).await;
        };
        sources.for_each_concurrent(limit, ask).await;
    }

    async fn begin_writing(&self, provider: &Arc<KmsProvider>) -> Result<(), DekFailure> {
        let Some(plugin) = self.plugin(provider) else { return Err(DekFailure::NotAsked) };
        let mut keepers = self.keepers.lock().await;
        if keepers.contains_key(&provider.index()) {
            return Ok(());
        }
        if !provider.is_v2() {
            plugin.check_round_trip().await.map_err(DekFailure::from)?;
            // Nothing has to be kept: each write has a data key of its own.
            keepers.insert(provider.index(), tokio::spawn(std::future::ready(())));
            return Ok(());
        }
        let status = plugin.healthy_status().await.map_err(DekFailure::from)?;
        plugin.renew_write_state(&status, self.options.write_validity).await.map_err(DekFailure::from)?;
        keepers.insert(provider.index(), tokio::spawn(keeper::keep(Arc::clone(plugin), self.options.clone())));
        Ok(())
    }

    async fn prepare_write(&self, provider: &Arc<KmsProvider>) -> Result<(), DekFailure> {
        self.begin_writing(provider).await?;
        match self.plugin(provider) {
            Some(plugin) if !provider.is_v2() => {
                let _permit = self.permits.acquire().await;
                plugin.add_fresh_dek().await.map_err(DekFailure::from)
            }
            _ => Ok(()),
        }
    }

    async fn confirm_writing(&self, provider: &Arc<KmsProvider>) -> Result<(), DekFailure> {
        match self.plugin(provider) {
            Some(plugin) if provider.is_v2() => {
                plugin.confirm(self.options.write_validity).await.map_err(DekFailure::from)
            }
            // Each value of KMS v1 is read back by the KMS itself.
            Some(_) => Ok(()),
            None => Err(DekFailure::NotAsked),
        }
    }
}

impl Drop for Kms {
    fn drop(&mut self) {
        self.keepers.get_mut().values().for_each(JoinHandle::abort);
    }
}
