//! Etcd prefixes, and keys built below one.

use std::fmt;

use super::known::Tables;
use super::location::is_custom_resource;
use super::{Error, ResourceRef, Scope};

/// An API server's `--etcd-prefix`, in the form in which it begins keys: with one slash at either end.
///
/// Which directories are known below it depends on the prefix. `/registry/` and `/kubernetes.io/` have Kubernetes' own,
/// `/openshift.io/` has OpenShift's, and any other has both, since nothing tells which server writes there. `routes/` is
/// therefore unknown under `/kubernetes.io/`; MicroShift, which has routes there, stores them as custom resources.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EtcdPrefix {
    text: String,
    tables: Tables,
}

impl EtcdPrefix {
    /// Takes the value of the flag and cleans it as the API server does: Go's `path.Join("/", prefix)` and a slash at the
    /// end (`storage/etcd3/store.go`). Nothing at all is `/`.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        let mut segments: Vec<&str> = Vec::new();
        for segment in prefix.split('/') {
            match segment {
                "" | "." => {}
                ".." => {
                    segments.pop();
                }
                _ => segments.push(segment),
            }
        }
        let mut text = String::with_capacity(prefix.len().saturating_add(2));
        text.push('/');
        for segment in segments {
            text.push_str(segment);
            text.push('/');
        }
        let tables = match text.as_str() {
            "/registry/" | "/kubernetes.io/" => Tables::Kubernetes,
            "/openshift.io/" => Tables::OpenShift,
            _ => Tables::Both,
        };
        Self { text, tables }
    }

    /// The prefix of every key below it, with its slashes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn tables(&self) -> Tables {
        self.tables
    }

    /// The beginning of the keys of all objects of a resource, or of those in one namespace; it ends in a slash.
    ///
    /// Below a prefix that has both tables, this is the directory of the table for a resource that is in one.
    ///
    /// # Errors
    /// When the directory is unknown, or when the namespace is impossible or given for a resource that has none.
    pub fn directory<'r>(
        &self,
        resource: impl Into<ResourceRef<'r>>,
        namespace: Option<&str>,
    ) -> Result<Vec<u8>, Error> {
        let resource = resource.into().storage_location();
        let (mut key, scope) = match self.tables.with_resource(resource) {
            Some(row) => (format!("{}{}/", self.text, row.directory), Some(row.scope)),
            None if is_custom_resource(resource) => {
                (format!("{}{}/{}/", self.text, resource.group, resource.resource), None)
            }
            None => return Err(Error::UnknownResource { resource: resource.to_group_resource() }),
        };
        if let Some(namespace) = namespace {
            if scope == Some(Scope::Cluster) {
                return Err(Error::NotNamespaced { resource: resource.to_group_resource() });
            }
            key.push_str(segment(namespace)?);
            key.push('/');
        }
        Ok(key.into_bytes())
    }

    /// The key of an object. The namespace decides whether a custom resource is taken for a namespaced one.
    ///
    /// # Errors
    /// As [`directory`](Self::directory), when the name is impossible, and when a namespaced resource has no namespace.
    pub fn key<'r>(
        &self,
        resource: impl Into<ResourceRef<'r>>,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Vec<u8>, Error> {
        let resource = resource.into().storage_location();
        let needs_namespace = self.tables.with_resource(resource).is_some_and(|row| row.scope == Scope::Namespaced);
        if needs_namespace && namespace.is_none() {
            return Err(Error::NamespaceRequired { resource: resource.to_group_resource() });
        }
        let mut key = self.directory(resource, namespace)?;
        key.extend_from_slice(segment(name)?.as_bytes());
        Ok(key)
    }
}

fn segment(text: &str) -> Result<&str, Error> {
    match text {
        "" | "." | ".." => Err(Error::NotASegment { segment: text.to_owned() }),
        _ if text.contains(['/', '%']) => Err(Error::NotASegment { segment: text.to_owned() }),
        _ => Ok(text),
    }
}

/// The prefixes under which API servers store in one etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLayout {
    /// Longest first, so that a server's own prefix within another's is found.
    prefixes: Vec<EtcdPrefix>,
}

impl KeyLayout {
    /// Those of kube-apiserver, of OpenShift's kube-apiserver and of OpenShift's other API servers.
    pub const DEFAULT_PREFIXES: [&str; 3] = ["/registry", "/kubernetes.io", "/openshift.io"];

    /// The layout of API servers with these `--etcd-prefix` values. Without any, every key is foreign.
    #[must_use]
    pub fn new<P: AsRef<str>>(prefixes: impl IntoIterator<Item = P>) -> Self {
        let mut prefixes: Vec<_> = prefixes.into_iter().map(|prefix| EtcdPrefix::new(prefix.as_ref())).collect();
        prefixes.sort_by(|a, b| b.text.len().cmp(&a.text.len()).then_with(|| a.text.cmp(&b.text)));
        prefixes.dedup();
        Self { prefixes }
    }

    /// What all keys below the prefixes begin with; a prefix within another is left out.
    #[must_use]
    pub fn all(&self) -> Vec<Vec<u8>> {
        let mut all: Vec<_> = self.prefixes.iter().map(|prefix| prefix.text.clone().into_bytes()).collect();
        all.sort();
        all.dedup_by(|later, earlier| later.starts_with(earlier));
        all
    }

    /// In words: below which prefixes a statement about all values holds.
    #[must_use]
    pub fn scope(&self) -> String {
        format!("this is said of values below {self}: other API servers may store elsewhere")
    }

    /// The prefixes, longest first.
    #[must_use]
    pub fn prefixes(&self) -> &[EtcdPrefix] {
        &self.prefixes
    }
}

/// [`DEFAULT_PREFIXES`](KeyLayout::DEFAULT_PREFIXES).
impl fmt::Display for KeyLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefixes: Vec<_> = self.prefixes.iter().map(EtcdPrefix::as_str).collect();
        f.write_str(&prefixes.join(", "))
    }
}

impl Default for KeyLayout {
    fn default() -> Self {
        Self::new(Self::DEFAULT_PREFIXES)
    }
}

#[cfg(test)]
mod tests {
    use super::super::GroupResource;
    use super::*;

    /// `TestPrefix` of `storage/etcd3/store_test.go`, and `path.Clean`'s rules.
    #[test]
    fn a_prefix_is_cleaned_as_the_api_server_does() {
        for (flag, prefix) in [
            ("custom/prefix", "/custom/prefix/"),
            ("/custom//prefix//", "/custom/prefix/"),
            ("/registry", "/registry/"),
            ("registry", "/registry/"),
            ("", "/"),
            ("/", "/"),
            ("a/./b/", "/a/b/"),
            ("a/../b", "/b/"),
            ("../../a", "/a/"),
            ("a/..", "/"),
            ("a/...", "/a/.../"),
        ] {
            assert_eq!(EtcdPrefix::new(flag).as_str(), prefix, "{flag}");
        }
    }

    #[test]
    fn layouts_have_the_longest_prefix_first_and_each_once() {
        let layout = KeyLayout::new(["", "/registry", "registry/", "/registry/wardle.example.com"]);
        let prefixes: Vec<_> = layout.prefixes().iter().map(EtcdPrefix::as_str).collect();
        assert_eq!(prefixes, ["/registry/wardle.example.com/", "/registry/", "/"]);
    }

    fn directory(prefix: &str, resource: &str, namespace: Option<&str>) -> Result<String, Error> {
        let bytes = EtcdPrefix::new(prefix).directory(&GroupResource::parse(resource), namespace)?;
        Ok(String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn directories_end_in_a_slash() {
        for (prefix, resource, namespace, expected) in [
            ("/registry", "pods", None, "/registry/pods/"),
            ("/registry", "pods", Some("a"), "/registry/pods/a/"),
            ("/registry", "nodes", None, "/registry/minions/"),
            ("/registry", "events.events.k8s.io", Some("a"), "/registry/events/a/"),
            ("kubernetes.io", "services", Some("a"), "/kubernetes.io/services/specs/a/"),
            ("/registry", "widgets.stable.example.com", None, "/registry/stable.example.com/widgets/"),
            ("/registry", "widgets.stable.example.com", Some("a"), "/registry/stable.example.com/widgets/a/"),
            ("openshift.io", "oauthaccesstokens.oauth.openshift.io", None, "/openshift.io/oauth/accesstokens/"),
            ("openshift.io", "routes.route.openshift.io", Some("a"), "/openshift.io/routes/a/"),
            ("kubernetes.io", "routes.route.openshift.io", Some("a"), "/kubernetes.io/route.openshift.io/routes/a/"),
            ("own", "routes.route.openshift.io", None, "/own/routes/"),
            ("own", "secrets", None, "/own/secrets/"),
        ] {
            assert_eq!(directory(prefix, resource, namespace), Ok(expected.to_owned()), "{prefix} {resource}");
        }
    }

    #[test]
    fn a_directory_is_never_guessed() {
        for resource in ["widgets", "*", "*.example.com", "Secrets", "widgets.apps", "a/b.example.com", "secrets.a..b"]
        {
            let unknown = Error::UnknownResource { resource: GroupResource::parse(resource) };
            assert_eq!(directory("/registry", resource, None), Err(unknown));
        }
        assert_eq!(
            directory("/openshift.io", "secrets", None),
            Err(Error::UnknownResource { resource: GroupResource::new("", "secrets") })
        );
    }

    #[test]
    fn impossible_names_have_no_key() {
        let prefix = EtcdPrefix::new("/registry");
        let secrets = ResourceRef::new("", "secrets");
        for name in ["", ".", "..", "a/b", "a%2fb"] {
            let not_a_segment = Err(Error::NotASegment { segment: name.to_owned() });
            assert_eq!(prefix.key(secrets, Some("default"), name), not_a_segment);
            assert_eq!(prefix.key(secrets, Some(name), "a"), not_a_segment);
        }
    }

    #[test]
    fn the_namespace_has_to_fit_the_scope() {
        let prefix = EtcdPrefix::new("/registry");
        let nodes = ResourceRef::new("", "nodes");
        let not_namespaced = Error::NotNamespaced { resource: nodes.to_group_resource() };
        assert_eq!(prefix.key(nodes, Some("a"), "n"), Err(not_namespaced));
        let secrets = ResourceRef::new("", "secrets");
        let namespace_required = Error::NamespaceRequired { resource: secrets.to_group_resource() };
        assert_eq!(prefix.key(secrets, None, "n"), Err(namespace_required));
    }
}
