use super::{Error, GroupResource, KeyLayout, Location, ResourceRef};

/// Which stored values an operation is about.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Where API servers store.
    pub layout: KeyLayout,
    /// Only these resources; all when empty.
    pub resources: Vec<GroupResource>,
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Only keys that begin with these bytes.
    pub key_prefix: Option<Vec<u8>>,
}

impl Selection {
    /// Whether something is left out.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        !self.resources.is_empty() || self.namespace.is_some() || self.key_prefix.is_some()
    }

    /// What to say when nothing was found: a selection that is misspelled must not look like a clean bill.
    #[must_use]
    pub fn nothing_found(&self, values: u64) -> Option<String> {
        match (values, self.is_partial()) {
            (0, true) => {
                Some("nothing matches the selection (--resource, -n, --prefix): is it spelled right?".to_owned())
            }
            (0, false) => Some(format!("nothing is stored below {}", self.layout)),
            _ => None,
        }
    }

    /// What the keys to read begin with: as few and as long prefixes as the selection allows, none within another.
    ///
    /// # Errors
    ///
    /// When no prefix of the layout can hold one of the resources, or the namespace is given for a resource without.
    pub fn prefixes(&self) -> Result<Vec<Vec<u8>>, Error> {
        let mut wanted = Vec::new();
        for resource in &self.resources {
            let resource = ResourceRef::from(resource).storage_location();
            let mut directories = Vec::new();
            let mut impossible = None;
            for prefix in self.layout.prefixes() {
                match prefix.directory(resource, self.namespace.as_deref()) {
                    Ok(directory) => directories.push(directory),
                    Err(error) => impossible = Some(error),
                }
            }
            match impossible {
                Some(error) if directories.is_empty() => return Err(error),
                _ => wanted.append(&mut directories),
            }
        }
        if self.resources.is_empty() {
            wanted = self.layout.all();
        }
        if let Some(only) = &self.key_prefix {
            wanted = wanted
                .into_iter()
                .filter_map(|prefix| match (prefix.starts_with(only), only.starts_with(&prefix)) {
                    (true, _) => Some(prefix),
                    (false, true) => Some(only.clone()),
                    (false, false) => None,
                })
                .collect();
        }
        wanted.sort();
        wanted.dedup_by(|later, earlier| later.starts_with(earlier));
        Ok(wanted)
    }

    /// Whether a key that was read is one of those that are wanted.
    #[must_use]
    pub fn includes(&self, location: &Location<'_>) -> bool {
        match location {
            Location::Object { resource, namespace, .. } => {
                self.wants_resource(*resource)
                    && self.namespace.as_ref().is_none_or(|wanted| *namespace == Some(wanted.as_bytes()))
            }
            Location::Unknown { resource: Some(resource), .. } => {
                self.wants_resource(*resource) && self.namespace.is_none()
            }
            _ => self.resources.is_empty() && self.namespace.is_none(),
        }
    }

    fn wants_resource(&self, resource: ResourceRef<'_>) -> bool {
        self.resources.is_empty()
            || self.resources.iter().any(|wanted| ResourceRef::from(wanted).storage_location() == resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(selection: &Selection) -> Vec<String> {
        selection.prefixes().unwrap().into_iter().map(|bytes| String::from_utf8(bytes).unwrap()).collect()
    }

    fn of(resources: &[&str], namespace: Option<&str>) -> Selection {
        Selection {
            resources: resources.iter().map(|resource| GroupResource::resolve(resource)).collect(),
            namespace: namespace.map(str::to_owned),
            ..Selection::default()
        }
    }

    #[test]
    fn everything_is_all_prefixes_of_the_layout() {
        assert_eq!(prefixes(&of(&[], None)), ["/kubernetes.io/", "/openshift.io/", "/registry/"]);
        assert_eq!(prefixes(&of(&[], Some("a"))), ["/kubernetes.io/", "/openshift.io/", "/registry/"]);
    }

    #[test]
    fn a_resource_is_its_directory_under_each_prefix_that_can_hold_it() {
        assert_eq!(prefixes(&of(&["secrets"], None)), ["/kubernetes.io/secrets/", "/registry/secrets/"]);
        assert_eq!(prefixes(&of(&["secrets"], Some("a"))), ["/kubernetes.io/secrets/a/", "/registry/secrets/a/"]);
        assert_eq!(prefixes(&of(&["events.events.k8s.io"], None)), ["/kubernetes.io/events/", "/registry/events/"]);
    }

    #[test]
    fn a_key_prefix_narrows_and_never_widens() {
        let mut selection = of(&["secrets"], None);
        selection.key_prefix = Some(b"/registry/".to_vec());
        assert_eq!(prefixes(&selection), ["/registry/secrets/"]);
        selection.key_prefix = Some(b"/registry/secrets/kube".to_vec());
        assert_eq!(prefixes(&selection), ["/registry/secrets/kube"]);
        selection.key_prefix = Some(b"/other/".to_vec());
        assert_eq!(prefixes(&selection), Vec::<String>::new());
    }

    #[test]
    fn only_what_is_wanted_is_included() {
        let layout = KeyLayout::default();
        let includes = |selection: &Selection, key: &str| selection.includes(&layout.locate(key.as_bytes()));
        let secrets_in_a = of(&["secrets"], Some("a"));
        assert!(includes(&secrets_in_a, "/registry/secrets/a/x"));
        assert!(!includes(&secrets_in_a, "/registry/secrets/b/x"));
        assert!(!includes(&secrets_in_a, "/registry/configmaps/a/x"));
        let in_a = of(&[], Some("a"));
        assert!(includes(&in_a, "/registry/configmaps/a/x"));
        assert!(!includes(&in_a, "/registry/minions/a"));
        assert!(!includes(&in_a, "/registry/masterleases/10.0.0.1"));
        assert!(includes(&of(&[], None), "/registry/masterleases/10.0.0.1"));
    }
}
