use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::JoinHandle;

use super::plugin::Plugin;
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
        let is_known = |name: &str| providers.iter().any(|provider| provider.label().name == name);
        if let Some((name, _)) = options.endpoints.iter().find(|(name, _)| !is_known(name)) {
            return Err(Error::UnknownProvider { name: name.clone() });
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

    async fn resolve_one(&self, provider: &KmsProvider, source: &DekSource) {
        let Some(plugin) = self.plugin(provider) else { return };
        let key = (provider.index(), source.cache_key());
        let cell = {
            let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(under_way.entry(key.clone()).or_default())
        };
        let ask = async || {
            // Somebody may have asked between the look into the cache and now.
            if !provider.knows(&key.1) {
                // The semaphore is never closed.
                let _permit = self.permits.acquire().await;
                plugin.resolve(source).await;
            }
        };
        cell.get_or_init(ask).await;
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }
}

impl DekResolver for Kms {
    async fn resolve(&self, wanted: Wanted) {
        let statuses = wanted.providers().filter_map(|provider| self.plugin(provider)).cloned().collect::<Vec<_>>();
        futures::future::join_all(statuses.iter().map(|plugin| plugin.learn_status())).await;
        let sources = futures::stream::iter(wanted.into_sources());
        let limit = Some(self.options.concurrency.max(1));
        sources.for_each_concurrent(limit, async |(provider, source)| self.resolve_one(&provider, &source).await).await;
    }

    async fn begin_writing(&self, provider: &Arc<KmsProvider>) -> Result<(), DekFailure> {
        let Some(plugin) = self.plugin(provider) else { return Err(DekFailure::NotAsked) };
        if !provider.is_v2() {
            return plugin.add_fresh_dek().await.map_err(DekFailure::from);
        }
        let mut keepers = self.keepers.lock().await;
        if keepers.contains_key(&provider.index()) {
            return Ok(());
        }
        let status = plugin.healthy_status().await.map_err(DekFailure::from)?;
        plugin.renew_write_state(&status, self.options.write_validity).await.map_err(DekFailure::from)?;
        keepers.insert(provider.index(), tokio::spawn(keeper::keep(Arc::clone(plugin), self.options.clone())));
        Ok(())
    }

    async fn prepare_write(&self, provider: &Arc<KmsProvider>) -> Result<(), DekFailure> {
        match self.plugin(provider) {
            Some(_) if provider.is_v2() => Ok(()),
            Some(plugin) => {
                let _permit = self.permits.acquire().await;
                plugin.add_fresh_dek().await.map_err(DekFailure::from)
            }
            None => Err(DekFailure::NotAsked),
        }
    }
}

impl Drop for Kms {
    fn drop(&mut self) {
        self.keepers.get_mut().values().for_each(JoinHandle::abort);
    }
}
