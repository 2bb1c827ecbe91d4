//! The rules that a decoded file has to follow, in upstream's order, and the defaults that come before them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::decode::{Field, KeyFields, KeysFields, KmsFields, List, Path, ProviderFields, Root};
use super::diagnostic::{Diagnostic, Position, Problem, shown};
use super::{
    AesConfiguration, DialAddress, EncryptionConfiguration, Endpoint, IdentityConfiguration, KmsApiVersion,
    KmsConfiguration, NamedKey, Options, ProviderConfiguration, ResourceConfiguration, SecretboxConfiguration, base64,
};
use crate::resource::GroupResource;
use crate::secret::Key;

const AES_KEY_LENGTHS: &[usize] = &[16, 24, 32];
const SECRETBOX_KEY_LENGTHS: &[usize] = &[32];

/// The nanoseconds of `timeout` when it is not set.
const DEFAULT_TIMEOUT: i64 = 3_000_000_000;

/// `cachesize` of KMS v1 when it is not set.
const DEFAULT_CACHE_SIZE: i32 = 1000;

/// Stored without passing through encryption, since they have no REST API.
const WITHOUT_REST_API: [&str; 3] = ["apiserveripinfo", "serviceipallocations", "servicenodeportallocations"];

/// Checks every rule. What is returned is valid if no errors were added.
pub(super) fn validate(
    root: Root,
    options: &Options,
    errors: &mut Vec<Diagnostic>,
    warnings: &mut Vec<Diagnostic>,
) -> EncryptionConfiguration {
    let mut validator = Validator { options, errors, warnings, kms_names: HashMap::new() };
    if let Some(position) = root.legacy_header {
        validator.warning(&Path::Root.field("kind"), position, Problem::LegacyHeader);
    }
    let path = Path::Root.field("resources");
    let mut resources = Vec::new();
    let mut names_of_entries = Vec::new();
    for (index, entry, position) in validator.elements(&path, root.resources, Problem::NoEntries) {
        let path = path.index(index);
        let names = validator.elements(&path.field("resources"), entry.resources, Problem::NoResources);
        validator.names(&path.field("resources"), &names);
        let providers = validator.elements(&path.field("providers"), entry.providers, Problem::NoProviders);
        let providers = providers.into_iter().filter_map(|(index, provider, position)| {
            validator.provider(&path.field("providers").index(index), provider, position)
        });
        resources.push(ResourceConfiguration {
            providers: providers.collect(),
            resources: names.iter().map(|(_, name, _)| name.clone()).collect(),
            position,
        });
        names_of_entries.push((index, names));
    }
    validator.masking(&path, &names_of_entries);
    EncryptionConfiguration { resources }
}

/// Elements of a list with their index and place.
type Elements<T> = Vec<(usize, T, Position)>;

struct Validator<'a> {
    options: &'a Options,
    errors: &'a mut Vec<Diagnostic>,
    warnings: &'a mut Vec<Diagnostic>,
    kms_names: HashMap<String, Position>,
}

impl Validator<'_> {
    fn error(&mut self, path: &Path<'_>, position: Position, problem: Problem) {
        self.errors.push(Diagnostic::new(path, position, problem));
    }

    fn warning(&mut self, path: &Path<'_>, position: Position, problem: Problem) {
        self.warnings.push(Diagnostic::new(path, position, problem));
    }

    /// The elements that were decoded, of a list that must have one.
    fn elements<T>(&mut self, path: &Path<'_>, list: List<T>, if_empty: Problem) -> Elements<T> {
        match list {
            Field::Broken => Vec::new(),
            Field::Absent(position) => {
                self.error(path, position, if_empty);
                Vec::new()
            }
            Field::Given(elements, position) => {
                if elements.is_empty() {
                    self.error(path, position, if_empty);
                }
                let numbered = elements.into_iter().enumerate();
                numbered.filter_map(|(index, element)| element.map(|(value, at)| (index, value, at))).collect()
            }
        }
    }

    fn names(&mut self, path: &Path<'_>, names: &Elements<String>) {
        let parsed: Vec<_> = names.iter().map(|(_, name, at)| (GroupResource::parse(name), name, *at)).collect();
        let mut seen = HashSet::new();
        if let Some((_, name, at)) = parsed.iter().find(|(resource, ..)| !seen.insert(resource)) {
            self.error(path, *at, Problem::DuplicateResource { resource: shown(name) });
        }
        let mut sizes: HashMap<&str, usize> = HashMap::new();
        for (resource, ..) in &parsed {
            *sizes.entry(&resource.group).or_default() += 1;
        }
        // A wildcard that is repeated overlaps with itself, and is a duplicate besides.
        let overlaps = |resource: &GroupResource| {
            let is_everything = resource.group == "*" && parsed.len() > 1;
            let is_group = sizes.get(resource.group.as_str()).is_some_and(|&size| size > 1);
            resource.resource == "*" && (is_everything || is_group)
        };
        if let Some((_, name, at)) = parsed.iter().find(|(resource, ..)| overlaps(resource)) {
            self.error(path, *at, Problem::OverlappingResources { wildcard: shown(name) });
        }
        for (index, name, at) in names {
            if let Some(problem) = misspelt(name) {
                self.error(&path.index(*index), *at, problem);
            }
        }
    }

    fn provider(
        &mut self,
        path: &Path<'_>,
        fields: ProviderFields,
        position: Position,
    ) -> Option<ProviderConfiguration> {
        let blocks = [
            ("aesgcm", fields.aesgcm.is_some()),
            ("aescbc", fields.aescbc.is_some()),
            ("secretbox", fields.secretbox.is_some()),
            ("identity", fields.identity),
            ("kms", fields.kms.is_some()),
        ];
        let providers: Vec<_> = blocks.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
        if providers.is_empty() && !fields.has_broken {
            self.error(path, position, Problem::NoProvider);
        }
        if providers.len() > 1 {
            self.error(path, position, Problem::SeveralProviders { providers });
        }
        let kms = fields.kms.and_then(|kms| self.kms(&path.field("kms"), kms, position));
        let mut keys = |name, keys: Option<KeysFields>, lengths| {
            keys.map(|keys| self.keys(&path.field(name).field("keys"), keys.keys, lengths))
        };
        let aesgcm = keys("aesgcm", fields.aesgcm, AES_KEY_LENGTHS);
        let aescbc = keys("aescbc", fields.aescbc, AES_KEY_LENGTHS);
        let secretbox = keys("secretbox", fields.secretbox, SECRETBOX_KEY_LENGTHS);
        let identity = fields.identity.then_some(IdentityConfiguration { position });
        kms.map(ProviderConfiguration::Kms)
            .or(aesgcm.map(|keys| ProviderConfiguration::AesGcm(AesConfiguration { keys, position })))
            .or(aescbc.map(|keys| ProviderConfiguration::AesCbc(AesConfiguration { keys, position })))
            .or(secretbox.map(|keys| ProviderConfiguration::Secretbox(SecretboxConfiguration { keys, position })))
            .or(identity.map(ProviderConfiguration::Identity))
    }

    fn keys(&mut self, path: &Path<'_>, keys: List<KeyFields>, lengths: &'static [usize]) -> Vec<NamedKey> {
        let keys = self.elements(path, keys, Problem::NoKeys);
        let keys = keys.into_iter().filter_map(|(index, key, _)| {
            let path = path.index(index);
            let name = self.required(&path.field("name"), key.name, Problem::NoKeyName);
            let secret = self.required(&path.field("secret"), key.secret, Problem::NoSecret);
            let (text, position) = secret?;
            let secret = self.secret(&path.field("secret"), &text, position, lengths)?;
            let name = name?.0.to_string();
            Some(NamedKey { name, secret, position })
        });
        keys.collect()
    }

    fn secret(&mut self, path: &Path<'_>, text: &str, position: Position, lengths: &'static [usize]) -> Option<Key> {
        let bytes = match base64::decode(text) {
            Ok(bytes) => bytes,
            Err(problem) => {
                self.error(path, position, problem);
                return None;
            }
        };
        if !lengths.contains(&bytes.len()) {
            let problem = match base64::placeholder(text) {
                Some(placeholder) => Problem::Placeholder { placeholder },
                None => Problem::KeyLength { got: bytes.len(), expected: lengths },
            };
            self.error(path, position, problem);
            return None;
        }
        if base64::has_line_breaks(text) {
            self.warning(path, position, Problem::SecretLineBreaks);
        }
        Some(Key::new(bytes))
    }

    /// A string that must not be empty.
    fn required<T: AsRef<str>>(
        &mut self,
        path: &Path<'_>,
        field: Field<T>,
        if_empty: Problem,
    ) -> Option<(T, Position)> {
        match field {
            Field::Broken => None,
            Field::Given(text, position) if !text.as_ref().is_empty() => Some((text, position)),
            Field::Given(_, position) | Field::Absent(position) => {
                self.error(path, position, if_empty);
                None
            }
        }
    }

    fn kms(&mut self, path: &Path<'_>, fields: KmsFields, position: Position) -> Option<KmsConfiguration> {
        let version = match &fields.api_version {
            Field::Absent(_) => Some("v1"),
            Field::Given(version, _) if version.is_empty() => Some("v1"),
            Field::Given(version, _) => Some(version.as_str()),
            Field::Broken => None,
        };
        let is_v1 = version == Some("v1");
        let is_later = version.is_some_and(|version| version != "v1");
        let name = self.required(&path.field("name"), fields.name, Problem::NoKmsName);
        if let Some((name, at)) = &name {
            self.kms_name(&path.field("name"), name, *at, is_later);
        }
        let timeout = match fields.timeout {
            Field::Given(timeout, at) if timeout <= 0 => {
                self.error(&path.field("timeout"), at, Problem::TimeoutNotPositive);
                None
            }
            Field::Given(timeout, _) => Some(timeout),
            Field::Absent(_) => Some(DEFAULT_TIMEOUT),
            Field::Broken => None,
        };
        let endpoint = self.endpoint(&path.field("endpoint"), fields.endpoint);
        let cache_size = fields.cache_size.get();
        match cache_size {
            Some((_, at)) if is_later => self.error(&path.field("cachesize"), at, Problem::CacheSizeInV2),
            Some((0, at)) if is_v1 => self.error(&path.field("cachesize"), at, Problem::CacheSizeZero),
            _ => {}
        }
        let api_version = match version? {
            "v1" => KmsApiVersion::V1,
            "v2" => KmsApiVersion::V2,
            other => {
                let at = fields.api_version.get().map_or(position, |(_, at)| at);
                let problem = Problem::UnsupportedKmsVersion { api_version: shown(other) };
                self.error(&path.field("apiVersion"), at, problem);
                return None;
            }
        };
        Some(KmsConfiguration {
            api_version,
            name: name?.0,
            endpoint: endpoint?,
            timeout: Duration::from_nanos(u64::try_from(timeout?).ok()?),
            cache_size: is_v1.then(|| cache_size.map_or(DEFAULT_CACHE_SIZE, |(size, _)| *size)),
            position,
        })
    }

    /// A later v1 may repeat the name of a v2, but not the reverse.
    fn kms_name(&mut self, path: &Path<'_>, name: &str, position: Position, is_later: bool) {
        if is_later && name.contains(':') {
            self.error(path, position, Problem::ColonInKmsName { name: shown(name) });
        }
        let first = *self.kms_names.entry(name.to_owned()).or_insert(position);
        if first != position && (is_later || self.options.automatic_reload) {
            self.error(path, position, Problem::DuplicateKmsName { name: shown(name), first });
        }
    }

    fn endpoint(&mut self, path: &Path<'_>, field: Field<String>) -> Option<Endpoint> {
        let (text, position) = self.required(path, field, Problem::NoEndpoint)?;
        let endpoint = match Endpoint::parse(&text) {
            Ok(endpoint) => endpoint,
            Err(reason) => {
                self.error(path, position, Problem::InvalidEndpoint { reason });
                return None;
            }
        };
        if endpoint.dial_address() == DialAddress::None {
            self.warning(path, position, Problem::EndpointWithoutSocket);
        } else if let Some(host) = endpoint.ignored_host() {
            let address = shown(&endpoint.dial_address().to_string());
            self.warning(path, position, Problem::EndpointHostIgnored { host: shown(host), address });
        }
        Some(endpoint)
    }

    /// Rules across entries: a wildcard hides whatever it covers in entries after its own.
    fn masking(&mut self, path: &Path<'_>, entries: &[(usize, Elements<String>)]) {
        let mut earlier = HashSet::new();
        for (entry, names) in entries {
            let parsed: Vec<_> = names.iter().map(|(_, name, _)| GroupResource::parse(name)).collect();
            for (resource, (index, name, position)) in parsed.iter().zip(names) {
                let wildcards = [GroupResource::new(&resource.group, "*"), GroupResource::new("*", "*")];
                if let Some(by) = wildcards.iter().find(|wildcard| earlier.contains(*wildcard)) {
                    let by = if by.group.is_empty() { "*.".to_owned() } else { shown(&by.to_string()) };
                    let path = path.index(*entry);
                    let path = path.field("resources");
                    self.error(&path.index(*index), *position, Problem::Masked { resource: shown(name), by });
                }
            }
            earlier.extend(parsed);
        }
    }
}

/// What is wrong with the spelling of a resource: at most one thing, as upstream has it.
fn misspelt(name: &str) -> Option<Problem> {
    let GroupResource { group, resource } = GroupResource::parse(name);
    if name.to_lowercase() != name {
        return Some(Problem::CapitalLetters { resource: shown(name) });
    }
    if name == "*" {
        return Some(Problem::BareWildcard);
    }
    if WITHOUT_REST_API.contains(&name) {
        return Some(Problem::NoRestApi { resource: shown(name) });
    }
    match group.as_str() {
        "events.k8s.io" => Some(Problem::EventsGroup),
        "extensions" => Some(Problem::ExtensionsGroup),
        "*" if resource != "*" => Some(Problem::AcrossGroups { resource: shown(name) }),
        _ => None,
    }
}
