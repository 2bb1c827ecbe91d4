use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::resource::GroupResource;
use crate::source::StoredValue;
use crate::transformer::envelope::{DekResolver, NoKms, Wanted};
use crate::transformer::{
    DataContext, Error, FromStorage, ProviderKeys, ProviderKind, ResourceTransformer, ResourceTransformers, Transformer,
};

/// How the values of one resource are opened and sealed: a [`Transformer`], and what has to be asked of a KMS before.
pub trait StorageTransformer: Send + Sync + 'static {
    /// Asks a KMS for what it takes to open these values, all at once. What cannot be learned is told when they are opened.
    fn prepare_read(&self, values: &[&StoredValue]) -> impl Future<Output = ()> + Send {
        let _ = values;
        std::future::ready(())
    }

    /// Asks a KMS for what it takes to seal one value.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    fn prepare_write(&self) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }

    /// Opens a value.
    ///
    /// # Errors
    ///
    /// As [`Transformer::transform_from_storage`].
    fn open<'a>(&self, data: &'a [u8], context: DataContext<'_>) -> Result<FromStorage<'a>, Error>;

    /// Seals a value.
    ///
    /// # Errors
    ///
    /// As [`Transformer::transform_to_storage`].
    fn seal(&self, plaintext: &[u8], context: DataContext<'_>, out: &mut Vec<u8>) -> Result<(), Error>;

    /// Which providers tried a value, as upstream's metrics name them, and whether they opened it: those that share a prefix
    /// may fail before one opens it.
    fn attempts(&self, data: &[u8], result: Result<&FromStorage<'_>, &Error>) -> Vec<(String, bool)> {
        let _ = data;
        vec![("unknown".to_owned(), result.is_ok())]
    }

    /// What the values begin with that are written, as upstream's metrics have it; of a provider with keys, the key's name before it.
    fn write_prefixes(&self) -> Vec<String> {
        vec![String::new()]
    }
}

impl<T: Transformer + 'static> StorageTransformer for T {
    fn open<'a>(&self, data: &'a [u8], context: DataContext<'_>) -> Result<FromStorage<'a>, Error> {
        self.transform_from_storage(data, context)
    }

    fn seal(&self, plaintext: &[u8], context: DataContext<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        self.transform_to_storage(plaintext, context, out)
    }
}

/// An EncryptionConfiguration applied to one resource, with whoever asks the KMS.
pub struct Encryption<R = NoKms> {
    transformers: Arc<ResourceTransformers>,
    resource: GroupResource,
    kms: Arc<R>,
}

impl Encryption {
    /// Without a KMS: its values then cannot be opened.
    #[must_use]
    pub fn new(transformers: Arc<ResourceTransformers>, resource: GroupResource) -> Self {
        Self::with_kms(transformers, resource, Arc::new(NoKms))
    }
}

impl<R: DekResolver + 'static> Encryption<R> {
    /// With the plugins of the configuration.
    #[must_use]
    pub fn with_kms(transformers: Arc<ResourceTransformers>, resource: GroupResource, kms: Arc<R>) -> Self {
        Self { transformers, resource, kms }
    }

    fn list(&self) -> &ResourceTransformer {
        self.transformers.transformer_for_resource(&self.resource.group, &self.resource.resource)
    }
}

impl<R> fmt::Debug for Encryption<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encryption").field("resource", &self.resource).finish_non_exhaustive()
    }
}

impl<R: DekResolver + 'static> StorageTransformer for Encryption<R> {
    async fn prepare_read(&self, values: &[&StoredValue]) {
        if self.transformers.kms_providers().is_empty() {
            return;
        }
        let list = self.list();
        let mut wanted = Wanted::default();
        values.iter().filter(|value| list.lacks(&value.value)).for_each(|value| wanted.add(list, &value.value));
        if !wanted.is_empty() {
            static NEVER: AtomicBool = AtomicBool::new(false);
            self.kms.resolve(wanted, &NEVER).await;
        }
    }

    async fn prepare_write(&self) -> Result<(), Error> {
        let Some(provider) = self.list().write_kms() else { return Ok(()) };
        let failed = |failure| Error::Kms { provider: provider.label().clone(), failure: Arc::new(failure) };
        self.kms.prepare_write(provider).await.map_err(failed)
    }

    fn open<'a>(&self, data: &'a [u8], context: DataContext<'_>) -> Result<FromStorage<'a>, Error> {
        self.list().recover(data, context)
    }

    fn seal(&self, plaintext: &[u8], context: DataContext<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        self.list().seal(plaintext, context, out)
    }

    fn attempts(&self, data: &[u8], result: Result<&FromStorage<'_>, &Error>) -> Vec<(String, bool)> {
        let list = self.list();
        let provider = list.header(data).provider();
        let opened = result.ok().map(|opened| opened.entries);
        let mut attempts = Vec::new();
        for (at, keys) in list.providers().iter().enumerate() {
            if opened.is_some_and(|[provider, _]| at > provider) {
                break;
            }
            let prefix = prefix_of(keys);
            // Whatever begins with nothing is tried by identity too, and not counted when that fails.
            let claims = Some(keys.provider) == provider && data.starts_with(prefix.as_bytes());
            if !claims {
                continue;
            }
            let is_it = opened.is_some_and(|[provider, _]| at == provider);
            let rest = data.get(prefix.len()..).unwrap_or_default();
            attempts.extend(key_attempts(keys, rest, opened.filter(|_| is_it).map(|[_, key]| key)));
            let named = if keys.provider == ProviderKind::Identity { "identity".to_owned() } else { prefix };
            attempts.push((named, is_it));
        }
        if attempts.is_empty() {
            attempts.push(("unknown".to_owned(), result.is_ok()));
        }
        attempts
    }

    fn write_prefixes(&self) -> Vec<String> {
        let Some(keys) = self.list().providers().first() else { return vec![String::new()] };
        let key = keys.labels().next().filter(|_| !keys.provider.is_kms() && keys.provider != ProviderKind::Identity);
        key.map(|key| format!("{}:", key.name)).into_iter().chain([prefix_of(keys)]).collect()
    }
}

/// What the values of a provider begin with: of a KMS its name belongs to it.
fn prefix_of(keys: &ProviderKeys) -> String {
    let label = keys.labels().next().filter(|_| keys.provider.is_kms());
    let prefix = label.map_or_else(|| keys.provider.prefix().to_vec(), |label| label.prefix());
    String::from_utf8_lossy(&prefix).into_owned()
}

/// Upstream has the keys of a provider in a list of the same kind as the providers, and counts them alike: `key1:`.
fn key_attempts(keys: &ProviderKeys, rest: &[u8], opened: Option<usize>) -> Vec<(String, bool)> {
    if keys.provider.is_kms() || keys.provider == ProviderKind::Identity {
        return Vec::new();
    }
    let prefixes = keys.labels().map(|label| format!("{}:", label.name)).enumerate();
    let tried = prefixes.filter(|(_, prefix)| rest.starts_with(prefix.as_bytes()));
    let attempts: Vec<_> = tried
        .take_while(|(at, _)| opened.is_none_or(|opened| *at <= opened))
        .map(|(at, prefix)| (prefix, opened == Some(at)))
        .collect();
    if attempts.is_empty() { vec![("unknown".to_owned(), false)] } else { attempts }
}
