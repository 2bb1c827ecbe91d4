//! Which entries of a configuration govern a resource.

use super::{EncryptionConfiguration, ProviderConfiguration};
use crate::resource::GroupResource;

impl EncryptionConfiguration {
    /// The resources that are configured, in file order and without repeats.
    ///
    /// `*.` is the resource `*` of the core group, and `*.*` the resource `*` of the group `*`.
    #[must_use]
    pub fn covered(&self) -> Vec<GroupResource> {
        let mut covered = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for text in self.resources.iter().flat_map(|entry| &entry.resources) {
            let resource = GroupResource::parse(text);
            if seen.insert(resource.clone()) {
                covered.push(resource);
            }
        }
        covered
    }

    /// The rule that governs a resource: the resource itself, else `*.` with its group, else `*.*`.
    ///
    /// Levels do not mix: a resource with an entry of its own has none of a wildcard's providers.
    #[must_use]
    pub fn rule_for(&self, resource: &GroupResource) -> Option<GroupResource> {
        let levels = [resource.clone(), GroupResource::new(&resource.group, "*"), GroupResource::new("*", "*")];
        levels.into_iter().find(|level| self.resources.iter().any(|entry| entry.covers(level)))
    }

    /// The providers of a resource: the first writes, all can read. Without any, values are stored in the clear and
    /// only values in the clear can be read.
    ///
    /// Entries that repeat a resource add their providers in file order.
    #[must_use]
    pub fn providers_for(&self, resource: &GroupResource) -> Option<Vec<&ProviderConfiguration>> {
        let rule = self.rule_for(resource)?;
        let entries = self.resources.iter().filter(|entry| entry.covers(&rule));
        Some(entries.flat_map(|entry| &entry.providers).collect())
    }
}

impl super::ResourceConfiguration {
    /// Whether the entry has exactly this rule.
    fn covers(&self, rule: &GroupResource) -> bool {
        self.resources.iter().any(|text| GroupResource::parse(text) == *rule)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Options, load};
    use super::*;

    const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    fn config(entries: &[(&str, &str)]) -> EncryptionConfiguration {
        let mut text = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n".to_owned();
        for (resources, key) in entries {
            text.push_str(&format!(
                "- resources: [{resources}]\n  providers: [{{aescbc: {{keys: [{{name: {key}, secret: {KEY}}}]}}}}]\n"
            ));
        }
        load(text.as_bytes(), &Options::default()).expect("a valid file").config
    }

    fn key_names(config: &EncryptionConfiguration, resource: &str) -> Option<Vec<String>> {
        let providers = config.providers_for(&GroupResource::parse(resource))?;
        let names = providers.iter().map(|provider| match provider {
            ProviderConfiguration::AesCbc(aescbc) => aescbc.keys[0].name.clone(),
            other => panic!("{other:?}"),
        });
        Some(names.collect())
    }

    #[test]
    fn the_narrowest_rule_wins() {
        let config = config(&[("secrets", "a"), ("'*.'", "b"), ("'*.apps'", "c"), ("'*.*'", "d")]);
        for (resource, key) in [("secrets", "a"), ("pods", "b"), ("deployments.apps", "c"), ("jobs.batch", "d")] {
            assert_eq!(key_names(&config, resource), Some(vec![key.to_owned()]), "{resource}");
        }
    }

    #[test]
    fn a_resource_without_a_rule_has_no_providers() {
        let config = config(&[("secrets", "a"), ("'*.apps'", "b")]);
        assert_eq!(key_names(&config, "pods"), None);
        assert_eq!(key_names(&config, "secrets.example.com"), None);
    }

    #[test]
    fn entries_of_one_resource_add_up() {
        let config = config(&[("secrets", "a"), ("configmaps", "b"), ("'secrets.'", "c")]);
        assert_eq!(key_names(&config, "secrets"), Some(vec!["a".to_owned(), "c".to_owned()]));
    }

    #[test]
    fn covered_is_in_file_order_without_repeats() {
        let config = config(&[("secrets, pods", "a"), ("'secrets.', '*.apps'", "b"), ("'*.'", "c"), ("'*.*'", "d")]);
        let covered: Vec<_> = config.covered().iter().map(ToString::to_string).collect();
        assert_eq!(covered, ["secrets", "pods", "*.apps", "*", "*.*"]);
    }
}
