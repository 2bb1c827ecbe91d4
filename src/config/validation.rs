//! The rules that a decoded file has to follow, in upstream's order, and the defaults that come before them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::diagnostic::{Diagnostic, Position, shown};
use super::fields::{Field, KeyFields, KeysFields, KmsFields, List, Path, ProviderFields, Root};
use super::problem::Problem;
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
        // Aliases give two providers one position, so that it cannot tell them apart.
        match self.kms_names.get(name) {
            None => drop(self.kms_names.insert(name.to_owned(), position)),
            Some(&first) if is_later || self.options.automatic_reload => {
                self.error(path, position, Problem::DuplicateKmsName { name: shown(name), first });
            }
            Some(_) => {}
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

#[cfg(test)]
mod tests {
    use super::super::load;
    use super::*;

    const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    /// Errors of a file whose entries are the lines from 4 on.
    fn errors_with(automatic_reload: bool, entries: &[&str]) -> Vec<String> {
        let header = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n";
        let text = entries.iter().fold(header.to_owned(), |text, entry| text + entry + "\n");
        match load(text.as_bytes(), &Options { automatic_reload }) {
            Ok(_) => Vec::new(),
            Err(invalid) => invalid.errors.iter().map(ToString::to_string).collect(),
        }
    }

    fn errors(entries: &[&str]) -> Vec<String> {
        errors_with(false, entries)
    }

    /// Errors of resources, without their path up to `resources[0].`.
    fn errors_of_resources(resources: &str) -> Vec<String> {
        let errors = errors(&[&format!("- {{resources: [{resources}], providers: [identity: {{}}]}}")]);
        errors.iter().map(|error| error.replacen("4:", "", 1).replacen("resources[0].", "", 1)).collect()
    }

    /// Errors of providers, without their path up to `providers`.
    fn errors_of_providers(automatic_reload: bool, providers: &str) -> Vec<String> {
        let entry = format!("- {{resources: [secrets], providers: [{providers}]}}");
        let errors = errors_with(automatic_reload, &[&entry]);
        errors.iter().map(|error| error.replace("resources[0].providers", "")).collect()
    }

    fn errors_of_key(provider: &str, key: &str) -> Vec<String> {
        errors_of_providers(false, &format!("{{{provider}: {{keys: [{{{key}}}]}}}}"))
    }

    fn kms(fields: &str) -> String {
        format!("{{kms: {{{fields}}}}}")
    }

    #[test]
    fn something_must_be_configured() {
        assert_eq!(errors(&["  []"]), ["4:3: resources: at least one entry in resources is required"]);
        assert_eq!(errors(&[""]), ["3:10: resources: at least one entry in resources is required"]);
    }

    #[test]
    fn an_entry_needs_resources_and_providers() {
        assert_eq!(
            errors(&["- {}", "- null"]),
            [
                "4:3: resources[0].resources: at least one resource is required",
                "4:3: resources[0].providers: at least one provider is required",
                "5:3: resources[1].resources: at least one resource is required",
                "5:3: resources[1].providers: at least one provider is required",
            ]
        );
    }

    #[test]
    fn a_resource_is_listed_once() {
        for (resources, expected) in [
            ("secrets, 'secrets.'", "25: resources: \"secrets.\" is listed more than once"),
            ("secrets, secrets, secrets", "25: resources: \"secrets\" is listed more than once"),
        ] {
            assert_eq!(errors_of_resources(resources), [expected]);
        }
    }

    #[test]
    fn a_wildcard_is_alone() {
        let overlap = |column, wildcard| {
            format!(
                "{column}: resources: {wildcard:?} covers other resources of the same list; give them an entry of their \
                 own, before it"
            )
        };
        assert_eq!(errors_of_resources("'*.*', secrets"), [overlap(16, "*.*")]);
        assert_eq!(errors_of_resources("secrets, '*.'"), [overlap(25, "*.")]);
        assert_eq!(errors_of_resources("deployments.apps, '*.apps'"), [overlap(34, "*.apps")]);
        assert_eq!(errors_of_resources("'foo.*', '*.*'").len(), 2);
        assert_eq!(errors_of_resources("deployments.apps, '*.'"), [""; 0]);
        assert_eq!(errors_of_resources("'*.apps', '*.batch'"), [""; 0]);
    }

    #[test]
    fn a_repeated_wildcard_is_both() {
        for wildcard in ["*.apps", "*.*"] {
            let errors = errors_of_resources(&format!("'{wildcard}', '{wildcard}'"));
            assert_eq!(errors.len(), 2, "{errors:?}");
        }
    }

    #[test]
    fn resources_are_spelt_as_they_are_stored() {
        for (resource, expected) in [
            ("Secrets", "resource \"Secrets\" must not have capital letters; use the lower-case plural"),
            ("'*'", "use \"*.\" for all resources of the core group, or \"*.*\" for all resources"),
            ("serviceipallocations", "\"serviceipallocations\" has no REST API and cannot be encrypted"),
            ("events.events.k8s.io", "events are stored under the core group; use \"events\""),
            (
                "deployments.extensions",
                "the group \"extensions\" is gone; use the group that stores the resource now, such as \"apps\"",
            ),
            ("'secrets.*'", "\"secrets.*\" names one resource in all groups, which is not supported"),
        ] {
            assert_eq!(errors_of_resources(resource), [format!("16: resources[0]: {expected}")]);
        }
        for resource in ["apiserveripinfo.", "'sec*'", "pods/status", "''", "null", "events", "secrets.v1"] {
            assert_eq!(errors_of_resources(resource), [""; 0], "{resource}");
        }
    }

    #[test]
    fn an_element_is_one_provider() {
        let none = "expected one of kms, aesgcm, aescbc, secretbox and identity";
        for provider in ["null", "{}", "{identity: null}"] {
            assert_eq!(errors_of_providers(false, provider), [format!("4:38: [0]: {none}")], "{provider}");
        }
        assert_eq!(
            errors_of_providers(false, &format!("{{identity: {{}}, aescbc: {{keys: [{{secret: {KEY}}}]}}}}")),
            [
                "4:38: [0]: aescbc and identity in one element; split them into different list elements",
                "4:69: [0].aescbc.keys[0].name: the name of a key is required",
            ]
        );
    }

    #[test]
    fn a_broken_provider_is_reported_once() {
        assert_eq!(errors_of_providers(false, "{aescbc: 5}"), ["4:47: [0].aescbc: expected a mapping, found a number"]);
        assert_eq!(errors_of_providers(false, "5"), ["4:38: [0]: expected a mapping, found a number"]);
    }

    #[test]
    fn keys_have_a_name_and_a_secret() {
        for provider in ["aesgcm", "aescbc", "secretbox"] {
            for keys in ["", "keys: []", "keys: null"] {
                let errors = errors_of_providers(false, &format!("{{{provider}: {{{keys}}}}}"));
                assert_eq!(errors.len(), 1);
                assert!(
                    errors[0].ends_with(&format!(": [0].{provider}.keys: at least one key is required")),
                    "{errors:?}"
                );
            }
        }
        assert_eq!(
            errors_of_key("aescbc", "name: '', secret: null"),
            [
                "4:62: [0].aescbc.keys[0].name: the name of a key is required",
                "4:74: [0].aescbc.keys[0].secret: the secret of a key is required",
            ]
        );
    }

    #[test]
    fn keys_have_the_length_of_the_cipher() {
        let of_length = |length| "AQEB".repeat(length / 3) + ["", "AQ==", "AQE="][length % 3];
        for (provider, right, expected) in [
            ("aesgcm", AES_KEY_LENGTHS, "16, 24 or 32"),
            ("aescbc", AES_KEY_LENGTHS, "16, 24 or 32"),
            ("secretbox", SECRETBOX_KEY_LENGTHS, "32"),
        ] {
            for length in [1, 15, 16, 17, 24, 31, 32, 33, 64] {
                let errors = errors_of_key(provider, &format!("name: a, secret: {}", of_length(length)));
                if right.contains(&length) {
                    assert_eq!(errors, [""; 0]);
                } else {
                    let expected = format!("keys[0].secret: the key is {length} bytes long, expected {expected}");
                    assert!(errors.len() == 1 && errors[0].ends_with(&expected), "{errors:?}");
                }
            }
        }
    }

    #[test]
    fn a_kms_has_a_name_and_an_endpoint() {
        assert_eq!(
            errors_of_providers(false, &kms("apiVersion: v2")),
            [
                "4:44: [0].kms.name: the name of a KMS is required",
                "4:44: [0].kms.endpoint: the endpoint of a KMS is required",
            ]
        );
    }

    #[test]
    fn errors_of_a_kms_are_in_upstreams_order() {
        assert_eq!(
            errors_of_providers(
                false,
                &kms("apiVersion: v3, cachesize: 10, endpoint: 'tcp://a', timeout: 0s, name: 'a:b'")
            ),
            [
                "4:116: [0].kms.name: KMS name \"a:b\" must not contain ':'",
                "4:106: [0].kms.timeout: the timeout must be positive",
                "4:86: [0].kms.endpoint: invalid endpoint: unsupported scheme \"tcp\", only unix is supported",
                "4:72: [0].kms.cachesize: cachesize is not supported in KMS v2",
                "4:57: [0].kms.apiVersion: unsupported apiVersion \"v3\" of a KMS, expected v1 or v2",
            ]
        );
    }

    #[test]
    fn the_cache_of_v1_is_not_zero() {
        let v1 = |size: &str| kms(&format!("name: a, endpoint: 'unix:///a', cachesize: {size}"));
        assert_eq!(
            errors_of_providers(false, &v1("0")),
            ["4:88: [0].kms.cachesize: cachesize must be positive, or negative to disable the cache"]
        );
        for size in ["1", "-1", "null"] {
            assert_eq!(errors_of_providers(false, &v1(size)), [""; 0], "{size}");
        }
    }

    #[test]
    fn names_of_v2_are_unique_and_those_of_v1_under_reload() {
        let named =
            |version: &str, name: &str| kms(&format!("apiVersion: {version}, name: '{name}', endpoint: 'unix:///a'"));
        for (first, second, name, plain, reload) in [
            ("v1", "v1", "a", 0, 1),
            ("v1", "v2", "a", 1, 1),
            ("v2", "v1", "a", 0, 1),
            ("v2", "v2", "a", 1, 1),
            ("v1", "v1", "a:b", 0, 1),
            ("v1", "v2", "a:b", 2, 2),
        ] {
            let providers = format!("{}, {}", named(first, name), named(second, name));
            assert_eq!(errors_of_providers(false, &providers).len(), plain, "{providers}");
            assert_eq!(errors_of_providers(true, &providers).len(), reload, "{providers}");
        }
        let first = format!("- {{resources: [secrets], providers: [{}]}}", named("v2", "a"));
        let second = format!("- {{resources: [configmaps], providers: [{}]}}", named("v2", "a"));
        assert_eq!(
            errors(&[&first, &second]),
            ["5:70: resources[1].providers[0].kms.name: duplicate KMS name \"a\", first used at 4:67"]
        );
    }

    #[test]
    fn an_alias_is_a_kms_of_its_own() {
        let entries = [
            "- {resources: [secrets], providers: &p [{kms: {apiVersion: v2, name: a, endpoint: 'unix:///a'}}]}",
            "- {resources: [configmaps], providers: *p}",
        ];
        assert_eq!(
            errors(&entries),
            ["4:70: resources[1].providers[0].kms.name: duplicate KMS name \"a\", first used at 4:70"]
        );
    }

    #[test]
    fn defaults_come_before_the_rules() {
        let text = "apiVersion: v1\nkind: EncryptionConfig\nresources:\n- resources: [secrets]\n  providers:\n  \
                    - kms: {name: a, endpoint: 'unix:///a', apiVersion: ''}\n  \
                    - kms: {name: b, endpoint: 'unix:///b', apiVersion: v2, timeout: 1m30s}\n";
        let loaded = load(text.as_bytes(), &Options::default()).expect("a valid file");
        let [ProviderConfiguration::Kms(v1), ProviderConfiguration::Kms(v2)] =
            loaded.config.resources[0].providers.as_slice()
        else {
            panic!("{loaded:?}")
        };
        assert_eq!(
            (v1.api_version, v1.timeout, v1.cache_size),
            (KmsApiVersion::V1, Duration::from_secs(3), Some(1000))
        );
        assert_eq!((v2.api_version, v2.timeout, v2.cache_size), (KmsApiVersion::V2, Duration::from_secs(90), None));
        assert_eq!(v2.position, Position { line: 7, column: 5 });
    }

    #[test]
    fn earlier_wildcards_mask_later_entries() {
        let entry = |resource: &str| format!("- {{resources: ['{resource}'], providers: [identity: {{}}]}}");
        for (first, second, masked_by) in [
            ("*.", "secrets", Some("*.")),
            ("*.*", "secrets", Some("*.*")),
            ("*.apps", "deployments.apps", Some("*.apps")),
            ("*.apps", "*.apps", Some("*.apps")),
            ("*.*", "*.apps", Some("*.*")),
            ("*.*", "*.*", Some("*.*")),
            ("secrets", "*.", None),
            ("*.", "*.apps", None),
            ("*.apps", "*.*", None),
            ("secrets", "secrets", None),
        ] {
            let expected = masked_by.map(|by| {
                format!(
                    "5:16: resources[1].resources[0]: resource {second:?} is masked by the earlier rule {by:?}; move its \
                     entry before that one"
                )
            });
            assert_eq!(errors(&[&entry(first), &entry(second)]), Vec::from_iter(expected), "{first} {second}");
        }
    }

    #[test]
    fn all_errors_come_at_once() {
        let errors =
            errors(&["- {resources: [Secrets, '*'], providers: [{aescbc: {keys: [{name: 1}]}}, {a: 1}], b: 2}"]);
        assert_eq!(errors.len(), 8, "{errors:#?}");
    }
}
