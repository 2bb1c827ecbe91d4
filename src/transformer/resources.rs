use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::envelope::DekSource;
use super::kms::KmsTransformer;
use super::{
    AesCbc, AesGcm, DataContext, Error, FromStorage, Header, Identity, KeyLabel, KmsProvider, NoMatch,
    PrefixTransformer, PrefixTransformers, ProviderKind, Secretbox, Transformer,
};
use crate::config::{EncryptionConfiguration, IdentityConfiguration, NamedKey, Position, ProviderConfiguration};
use crate::resource::{GroupResource, KeyLayout};
use crate::secret::Key;

/// The provider and the names of its keys, as they stand in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderKeys {
    /// The provider.
    pub provider: ProviderKind,
    /// The names of its keys in order, or the name of the KMS provider; empty for `identity`.
    pub names: Vec<String>,
    /// The same keys as positions in [`ResourceTransformers::keys`].
    ids: Vec<KeyId>,
}

/// Which of the configured keys: equal for the same name and the same bytes, wherever they are configured. A KMS provider counts
/// as one key, equal for the same name and the same socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(usize);

impl ProviderKeys {
    fn identity() -> Self {
        Self { provider: ProviderKind::Identity, names: Vec::new(), ids: Vec::new() }
    }

    fn label(&self, key: usize) -> KeyLabel {
        KeyLabel::new(self.provider, self.names.get(key).cloned().unwrap_or_default())
    }

    /// The label of each key.
    pub fn labels(&self) -> impl Iterator<Item = KeyLabel> {
        (0..self.names.len().max(1)).map(|key| self.label(key))
    }
}

/// Which key opened a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedBy {
    /// The key.
    pub label: KeyLabel,
    /// The key's bytes, so to speak; none for `identity`.
    pub key: Option<KeyId>,
}

/// What a stored header tells of a value before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderVerdict {
    /// Written by the key that writes now.
    Current,
    /// Readable by the list, and written by another key than the one that writes now.
    Stale,
    /// Several keys of the list have the name: opening the value decides.
    Undecided,
    /// A KMS provider of the list claims the value, and has not said which key it uses.
    KmsUnknown,
    /// No provider of the list claims the value.
    NoProvider,
    /// The provider is there, the key is not.
    KeyNotConfigured,
    /// Stored in the clear, and the list has no `identity`.
    PlaintextNotAllowed,
    /// The header is cut off or names what Kubernetes does not know.
    Unreadable,
}

/// How the values of one resource are read and written.
#[derive(Debug)]
pub struct ResourceTransformer {
    /// Without a list the resource is in no entry of the configuration: the bare identity transformer is used.
    list: Option<PrefixTransformers>,
    providers: Vec<ProviderKeys>,
    /// The KMS providers of the list, each with what its values begin with.
    kms: Vec<(Vec<u8>, Arc<KmsProvider>)>,
}

impl ResourceTransformer {
    fn bare() -> Self {
        Self { list: None, providers: vec![ProviderKeys::identity()], kms: Vec::new() }
    }

    fn from_providers(configured: &[&ProviderConfiguration], known: &[Known<'_>]) -> Result<Self, Error> {
        let mut list = Vec::with_capacity(configured.len());
        let mut providers = Vec::with_capacity(configured.len());
        let mut kms = Vec::new();
        for provider in configured {
            let (prefix, transformer, keys) = match (provider, kms_of(provider, known)) {
                (_, Some((id, provider))) => {
                    let (label, prefix) = (provider.label(), provider.label().prefix());
                    let keys =
                        ProviderKeys { provider: label.provider, names: vec![label.name.clone()], ids: vec![id] };
                    kms.push((prefix.clone(), Arc::clone(&provider)));
                    (prefix, Box::new(KmsTransformer(provider)) as Box<dyn Transformer>, keys)
                }
                (provider, None) => {
                    let (transformer, keys) = provider_transformer(provider, known)?;
                    (keys.provider.prefix().to_vec(), transformer, keys)
                }
            };
            list.push(PrefixTransformer { prefix, transformer });
            providers.push(keys);
        }
        Ok(Self { list: Some(PrefixTransformers::new(list, NoMatch::Provider)), providers, kms })
    }

    /// Whether the configuration says anything about the resource.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.list.is_some()
    }

    /// The providers and keys in the order in which they are tried.
    #[must_use]
    pub fn providers(&self) -> &[ProviderKeys] {
        &self.providers
    }

    /// The key that writes.
    #[must_use]
    pub fn write_key(&self) -> KeyLabel {
        self.providers.first().map_or_else(KeyLabel::identity, |first| first.label(0))
    }

    /// Whether the key is one of the list.
    #[must_use]
    pub fn has_key(&self, key: KeyId) -> bool {
        self.providers.iter().any(|keys| keys.ids.contains(&key))
    }

    /// The KMS provider that writes, where it is one.
    #[must_use]
    pub fn write_kms(&self) -> Option<&Arc<KmsProvider>> {
        let first = self.providers.first().filter(|keys| keys.provider.is_kms())?;
        self.kms.first().map(|(_, provider)| provider).filter(|provider| provider.label().provider == first.provider)
    }

    /// The key ID that the KMS v2 that writes uses, when it is known.
    #[must_use]
    pub fn write_key_id_of_kms(&self) -> Option<String> {
        self.write_kms().filter(|kms| kms.is_v2())?.key_id().ok()
    }

    /// The KMS providers that try a value, in order.
    pub fn kms_claimants<'v>(&'v self, value: &'v [u8]) -> impl Iterator<Item = &'v Arc<KmsProvider>> {
        self.kms.iter().filter(|(prefix, _)| value.starts_with(prefix)).map(|(_, provider)| provider)
    }

    /// Whether a KMS plugin has to be asked before a value can be opened.
    #[must_use]
    pub fn lacks(&self, value: &[u8]) -> bool {
        self.kms.iter().any(|(prefix, provider)| {
            value.strip_prefix(prefix.as_slice()).is_some_and(|payload| provider.lacks(payload))
        })
    }

    /// What KMS plugins have to decrypt before a value can be opened: nothing for a value of a local provider.
    pub fn dek_sources<'v>(&'v self, value: &'v [u8]) -> impl Iterator<Item = (&'v Arc<KmsProvider>, DekSource)> {
        self.kms.iter().filter_map(|(prefix, provider)| {
            let payload = value.strip_prefix(prefix.as_slice())?;
            Some((provider, provider.dek_source(payload)?))
        })
    }

    /// The key that writes, unless it is `identity`.
    #[must_use]
    pub fn write_key_id(&self) -> Option<KeyId> {
        self.providers.first()?.ids.first().copied()
    }

    /// Recovers a stored value, and says which key did it.
    ///
    /// # Errors
    ///
    /// As [`Transformer::transform_from_storage`].
    pub fn open<'a>(&self, data: &'a [u8], context: DataContext<'_>) -> Result<(FromStorage<'a>, OpenedBy), Error> {
        let opened = self.recover(data, context)?;
        let [provider, key] = opened.entries;
        let opened_by = match self.providers.get(provider) {
            Some(keys) => OpenedBy { label: keys.label(key), key: keys.ids.get(key).copied() },
            None => OpenedBy { label: KeyLabel::identity(), key: None },
        };
        Ok((opened, opened_by))
    }

    /// Recovers a stored value without naming the key.
    pub(crate) fn recover<'a>(&self, data: &'a [u8], context: DataContext<'_>) -> Result<FromStorage<'a>, Error> {
        match &self.list {
            Some(list) => list.transform_from_storage(data, context),
            None => Identity.transform_from_storage(data, context),
        }
    }

    /// Appends the stored form of a plaintext to `out`.
    ///
    /// # Errors
    ///
    /// As [`Transformer::transform_to_storage`].
    pub fn seal(&self, plaintext: &[u8], context: DataContext<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        match &self.list {
            Some(list) => list.transform_to_storage(plaintext, context, out),
            None => Identity.transform_to_storage(plaintext, context, out),
        }
    }

    /// The stored form of a plaintext, unless all of the list opens it to something else, or as stale.
    ///
    /// Where a KMS writes, its own data key opens it: whether the KMS gives that back is made sure of when writing begins, and
    /// when what was written is read by somebody.
    ///
    /// # Errors
    ///
    /// As [`Transformer::transform_to_storage`].
    pub fn seal_and_reopen(&self, plaintext: &[u8], context: DataContext<'_>) -> Result<Option<Vec<u8>>, Error> {
        let mut sealed = Vec::new();
        let same = if let Some(kms) = self.write_kms() {
            sealed.extend_from_slice(&kms.label().prefix());
            kms.seal_and_reopen(plaintext, context, &mut sealed)?
        } else {
            self.seal(plaintext, context, &mut sealed)?;
            let (reopened, _) = self.open(&sealed, context)?;
            !reopened.stale && reopened.data.same_as(plaintext)
        };
        Ok(same.then_some(sealed))
    }

    /// Reads a header with the names of this list, so that names with a colon are recognised.
    #[must_use]
    pub fn header<'a>(&self, data: &'a [u8]) -> Header<'a> {
        Header::parse_with_names(data, |kind| {
            let of_kind = self.providers.iter().filter(move |keys| keys.provider == kind);
            of_kind.flat_map(|keys| keys.names.iter().map(String::as_str))
        })
    }

    /// The keys that try a value with this header, in order.
    pub fn claimants<'h>(&'h self, header: &Header<'h>) -> impl Iterator<Item = KeyId> + 'h {
        let (provider, stored) = (header.provider(), header.name().unwrap_or_default());
        let of_kind = self.providers.iter().filter(move |keys| Some(keys.provider) == provider);
        of_kind
            .flat_map(|keys| keys.names.iter().zip(&keys.ids))
            .filter(move |(name, _)| claims(name, stored))
            .map(|(_, id)| *id)
    }

    /// Judges a value by its header alone.
    #[must_use]
    pub fn judge(&self, header: &Header<'_>) -> HeaderVerdict {
        let Some(provider) = header.provider() else { return HeaderVerdict::Unreadable };
        if provider == ProviderKind::Identity {
            return match self.providers.iter().position(|keys| keys.provider == ProviderKind::Identity) {
                Some(0) => HeaderVerdict::Current,
                Some(_) => HeaderVerdict::Stale,
                None => HeaderVerdict::PlaintextNotAllowed,
            };
        }
        let Some(stored) = header.name() else { return HeaderVerdict::Unreadable };
        let of_kind = || self.providers.iter().enumerate().filter(|(_, keys)| keys.provider == provider);
        if of_kind().next().is_none() {
            return HeaderVerdict::NoProvider;
        }
        let mut places = of_kind()
            .flat_map(|(i, keys)| keys.names.iter().enumerate().map(move |(j, name)| (i, j, name)))
            .filter(|(_, _, name)| claims(name, stored));
        let place = places.next();
        match (place, places.next()) {
            (None, _) if provider.is_kms() => HeaderVerdict::NoProvider,
            (None, _) => HeaderVerdict::KeyNotConfigured,
            (Some((0, 0, _)), None) if provider.is_kms() => self.judge_first_kms(header),
            (Some((0, 0, _)), None) => HeaderVerdict::Current,
            (Some(_), None) => HeaderVerdict::Stale,
            (Some(_), Some(_)) => HeaderVerdict::Undecided,
        }
    }

    /// Judges a value of the KMS provider that writes.
    fn judge_first_kms(&self, header: &Header<'_>) -> HeaderVerdict {
        match (header, self.write_kms()) {
            (Header::KmsV2 { envelope: Ok(object), .. }, Some(kms)) => {
                match kms.is_current(object.key_id, object.encrypted_dek_source_type) {
                    Ok(true) => HeaderVerdict::Current,
                    Ok(false) => HeaderVerdict::Stale,
                    Err(_) => HeaderVerdict::KmsUnknown,
                }
            }
            // Data of AES-CBC, as it was written before Kubernetes 1.25, is stale, and is a multiple of the block size.
            (Header::KmsV1 { envelope: Ok(envelope), .. }, _) if envelope.data.len() % 16 != 0 => {
                HeaderVerdict::Current
            }
            (Header::KmsV1 { envelope: Ok(_), .. }, _) => HeaderVerdict::Undecided,
            _ => HeaderVerdict::Unreadable,
        }
    }
}

/// Whether a key of this name tries values with this stored name: its own, and those that its name and a colon begin.
fn claims(name: &str, stored: &[u8]) -> bool {
    stored.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b":"))
}

fn provider_transformer(
    provider: &ProviderConfiguration,
    known: &[Known<'_>],
) -> Result<(Box<dyn Transformer>, ProviderKeys), Error> {
    fn keyed<T: Transformer + 'static>(
        provider: ProviderKind,
        keys: &[NamedKey],
        known: &[Known<'_>],
        new: impl Fn(&Key) -> Result<T, Error>,
    ) -> Result<(Box<dyn Transformer>, ProviderKeys), Error> {
        let list = keys.iter().map(|key| {
            let transformer = Box::new(new(&key.secret)?);
            Ok(PrefixTransformer { prefix: [key.name.as_bytes(), b":"].concat(), transformer })
        });
        let list = list.collect::<Result<_, Error>>()?;
        let names = keys.iter().map(|key| key.name.clone()).collect();
        let same = |key: &NamedKey, known: &Known<'_>| {
            known.label.provider == provider
                && known.label.name == key.name
                && matches!(known.material, Material::Key(known) if *known == key.secret)
        };
        let ids = keys.iter().filter_map(|key| known.iter().position(|known| same(key, known)).map(KeyId)).collect();
        Ok((Box::new(PrefixTransformers::new(list, NoMatch::Key(provider))), ProviderKeys { provider, names, ids }))
    }
    match provider {
        ProviderConfiguration::AesCbc(aes) => keyed(ProviderKind::AesCbc, &aes.keys, known, AesCbc::new),
        ProviderConfiguration::AesGcm(aes) => keyed(ProviderKind::AesGcm, &aes.keys, known, AesGcm::new),
        ProviderConfiguration::Secretbox(secretbox) => {
            keyed(ProviderKind::Secretbox, &secretbox.keys, known, Secretbox::new)
        }
        // A KMS is among the known keys, and does not come here.
        ProviderConfiguration::Identity(_) | ProviderConfiguration::Kms(_) => {
            Ok((Box::new(Identity), ProviderKeys::identity()))
        }
    }
}

fn kms_of(provider: &ProviderConfiguration, known: &[Known<'_>]) -> Option<(KeyId, Arc<KmsProvider>)> {
    let ProviderConfiguration::Kms(kms) = provider else { return None };
    known.iter().enumerate().find_map(|(i, known)| match &known.material {
        Material::Kms(provider) if provider.is_same(kms) => Some((KeyId(i), Arc::clone(provider))),
        _ => None,
    })
}

/// A key of the configuration and what opens values under it, wherever it is configured.
pub struct ConfiguredKey {
    /// The key.
    pub label: KeyLabel,
    transformer: Box<dyn Transformer>,
}

impl fmt::Debug for ConfiguredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConfiguredKey({})", self.label)
    }
}

impl ConfiguredKey {
    fn new(known: Known<'_>) -> Result<Self, Error> {
        let transformer: Box<dyn Transformer> = match (known.material, known.label.provider) {
            (Material::Kms(provider), _) => Box::new(KmsTransformer(provider)),
            (Material::Key(key), ProviderKind::AesCbc) => Box::new(AesCbc::new(key)?),
            (Material::Key(key), ProviderKind::AesGcm) => Box::new(AesGcm::new(key)?),
            (Material::Key(key), _) => Box::new(Secretbox::new(key)?),
        };
        Ok(Self { label: known.label, transformer })
    }

    /// Opens a payload: the stored value without its prefix.
    ///
    /// # Errors
    ///
    /// As [`Transformer::transform_from_storage`].
    pub fn open<'a>(&self, payload: &'a [u8], context: DataContext<'_>) -> Result<FromStorage<'a>, Error> {
        self.transformer.transform_from_storage(payload, context)
    }
}

/// Which list of providers governs a resource.
///
/// The exact resource, then `*.<group>`, then `*.*`, then the bare identity transformer; nothing is merged between these
/// levels. Several configurations make one: the first writes, the keys of the others read as well.
/// Upstream: `encryptionconfig.transformerFromOverrides`.
#[derive(Debug)]
pub struct ResourceTransformers {
    exact: BTreeMap<String, BTreeMap<String, Arc<ResourceTransformer>>>,
    groups: BTreeMap<String, Arc<ResourceTransformer>>,
    all: Arc<ResourceTransformer>,
    keys: Vec<ConfiguredKey>,
    kms: Vec<Arc<KmsProvider>>,
}

const WILDCARD: &str = "*";

impl ResourceTransformers {
    /// Builds the transformers of one configuration, or of several of which the first writes.
    ///
    /// # Errors
    ///
    /// [`Error::KeyLength`], which validation of the configuration excludes.
    pub fn from_configurations(configurations: &[EncryptionConfiguration]) -> Result<Self, Error> {
        let known = known_keys(configurations);
        let build = |resource: &GroupResource| build(configurations, resource, &known).map(Arc::new);
        let all = build(&GroupResource::new(WILDCARD, WILDCARD))?;
        let mut exact: BTreeMap<String, BTreeMap<String, _>> = BTreeMap::new();
        let mut groups = BTreeMap::new();
        for resource in configurations.iter().flat_map(EncryptionConfiguration::covered) {
            match (resource.group.as_str(), resource.resource.as_str()) {
                (WILDCARD, WILDCARD) => {}
                (_, WILDCARD) => {
                    groups.insert(resource.group.clone(), build(&resource)?);
                }
                _ => {
                    let transformer = build(&resource)?;
                    exact.entry(resource.group).or_default().insert(resource.resource, transformer);
                }
            }
        }
        let kms = known.iter().filter_map(|known| match &known.material {
            Material::Kms(provider) => Some(Arc::clone(provider)),
            Material::Key(_) => None,
        });
        let kms = kms.collect();
        let keys = known.into_iter().map(ConfiguredKey::new).collect::<Result<_, _>>()?;
        Ok(Self { exact, groups, all, keys, kms })
    }

    /// The transformer that kube-apiserver uses for a resource.
    #[must_use]
    pub fn transformer_for_resource(&self, group: &str, resource: &str) -> &ResourceTransformer {
        let exact = self.exact.get(group).and_then(|resources| resources.get(resource));
        exact.or_else(|| self.groups.get(group)).unwrap_or(&self.all)
    }

    /// The transformer for the value under an etcd key; none where no object of a resource can be.
    #[must_use]
    pub fn transformer_for_key(&self, layout: &KeyLayout, key: &[u8]) -> Option<&ResourceTransformer> {
        let location = layout.locate(key);
        let resource = location.resource()?;
        Some(self.transformer_for_resource(resource.group, resource.resource))
    }

    /// Every KMS provider of the configurations, each once, in file order.
    #[must_use]
    pub fn kms_providers(&self) -> &[Arc<KmsProvider>] {
        &self.kms
    }

    /// Every key and every KMS provider of the configurations, each once, in file order.
    pub fn keys(&self) -> impl Iterator<Item = (KeyId, &ConfiguredKey)> {
        self.keys.iter().enumerate().map(|(i, key)| (KeyId(i), key))
    }

    /// One of the keys.
    #[must_use]
    pub fn key(&self, id: KeyId) -> Option<&ConfiguredKey> {
        self.keys.get(id.0)
    }

    /// Every list of providers, each with a text that names the resources it is for.
    pub fn lists(&self) -> impl Iterator<Item = (GroupResource, &ResourceTransformer)> {
        let exact = self.exact.iter().flat_map(|(group, resources)| {
            resources.iter().map(move |(resource, list)| (GroupResource::new(group, resource), &**list))
        });
        let groups = self.groups.iter().map(|(group, list)| (GroupResource::new(group, WILDCARD), &**list));
        let all = self.all.is_configured().then(|| (GroupResource::new(WILDCARD, WILDCARD), &*self.all));
        exact.chain(groups).chain(all)
    }
}

fn build(
    configurations: &[EncryptionConfiguration],
    resource: &GroupResource,
    known: &[Known<'_>],
) -> Result<ResourceTransformer, Error> {
    let implicit = ProviderConfiguration::Identity(IdentityConfiguration { position: Position { line: 0, column: 0 } });
    let mut providers = Vec::new();
    let mut mentioned = false;
    for (i, configuration) in configurations.iter().enumerate() {
        match configuration.providers_for(resource) {
            Some(listed) => {
                mentioned = true;
                providers.extend(listed);
            }
            // The first configuration writes, also when it does not mention the resource.
            None if i == 0 => providers.push(&implicit),
            None => {}
        }
    }
    if mentioned { ResourceTransformer::from_providers(&providers, known) } else { Ok(ResourceTransformer::bare()) }
}

/// A key of a configuration file.
struct Known<'c> {
    label: KeyLabel,
    material: Material<'c>,
}

enum Material<'c> {
    Key(&'c Key),
    Kms(Arc<KmsProvider>),
}

fn known_keys(configurations: &[EncryptionConfiguration]) -> Vec<Known<'_>> {
    let mut known: Vec<Known<'_>> = Vec::new();
    let mut kms_providers = 0;
    let entries = configurations.iter().flat_map(|configuration| &configuration.resources);
    for provider in entries.flat_map(|entry| &entry.providers) {
        let (kind, keys) = match provider {
            ProviderConfiguration::AesCbc(aes) => (ProviderKind::AesCbc, &aes.keys),
            ProviderConfiguration::AesGcm(aes) => (ProviderKind::AesGcm, &aes.keys),
            ProviderConfiguration::Secretbox(secretbox) => (ProviderKind::Secretbox, &secretbox.keys),
            ProviderConfiguration::Identity(_) => continue,
            ProviderConfiguration::Kms(kms) => {
                if kms_of(provider, &known).is_none() {
                    let provider = Arc::new(KmsProvider::new(kms_providers, kms));
                    kms_providers += 1;
                    known.push(Known { label: provider.label().clone(), material: Material::Kms(provider) });
                }
                continue;
            }
        };
        for key in keys {
            let label = KeyLabel::new(kind, &key.name);
            let is_it = |known: &Known<'_>| {
                known.label == label && matches!(known.material, Material::Key(known) if *known == key.secret)
            };
            if !known.iter().any(is_it) {
                known.push(Known { label, material: Material::Key(&key.secret) });
            }
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Plaintext;

    /// Opens what it has sealed to this, and says that.
    #[derive(Debug)]
    struct Liar {
        opens_to: &'static [u8],
        stale: bool,
    }

    impl Transformer for Liar {
        fn transform_from_storage<'a>(&self, _: &'a [u8], _: DataContext<'_>) -> Result<FromStorage<'a>, Error> {
            Ok(FromStorage::new(Plaintext::Stored(self.opens_to), self.stale))
        }

        fn transform_to_storage(&self, plaintext: &[u8], _: DataContext<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
            out.extend_from_slice(plaintext);
            Ok(())
        }
    }

    #[test]
    fn what_opens_to_something_else_or_as_stale_is_not_given() {
        let sealed = |opens_to, stale| {
            let liar = PrefixTransformer { prefix: b"liar:".to_vec(), transformer: Box::new(Liar { opens_to, stale }) };
            let list = Some(PrefixTransformers::new(vec![liar], NoMatch::Provider));
            let list = ResourceTransformer { list, providers: Vec::new(), kms: Vec::new() };
            list.seal_and_reopen(b"truth", DataContext::new(b"/registry/secrets/a/x")).unwrap()
        };
        assert_eq!(sealed(b"truth", false).as_deref(), Some(&b"liar:truth"[..]));
        assert_eq!(sealed(b"truth", true), None);
        assert_eq!(sealed(b"truth ", false), None);
        assert_eq!(sealed(b"", false), None);
    }
}
