use std::str::FromStr;

use super::location::{Location, NonRest};
use super::{GroupResource, KeyLayout, ResourceRef};

/// kube-apiserver's `--etcd-servers-overrides`: resources that are stored elsewhere than the others.
///
/// Only the servers differ: the prefix, the certificates and the encryption are those of all. Custom resources, their definitions and
/// APIServices are never stored elsewhere, whatever is written here.
///
/// ```
/// use atrest::resource::{GroupResource, ServersOverrides};
///
/// let overrides: ServersOverrides = "/events#https://a:2379;https://b:2379,apps/*#https://c:2379".parse()?;
/// let events = overrides.backend_of_resource(&GroupResource::new("", "events"));
/// assert_eq!(events.map(|at| overrides.backends()[at].clone()), Some(vec!["https://a:2379".to_owned(), "https://b:2379".to_owned()]));
/// assert_eq!(overrides.backend_of_resource(&GroupResource::new("", "secrets")), None);
/// # Ok::<(), atrest::resource::InvalidOverrides>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServersOverrides {
    overrides: Vec<ServersOverride>,
    /// The distinct sets of servers, in the order in which they were named.
    backends: Vec<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ServersOverride {
    group: String,
    /// `*` is every resource of the group.
    resource: String,
    backend: usize,
}

/// An override that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not group/resource#servers: `/events#https://a:2379;https://b:2379`, several of them separated by commas"
)]
pub struct InvalidOverrides {
    text: String,
}

/// As upstream calls the keys of API servers in its overrides.
const MASTER_LEASES: &str = "apiServerIPInfo";
const PEER_LEASES: &str = "apiServerPeerIPInfo";

impl FromStr for ServersOverrides {
    type Err = InvalidOverrides;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            all.add(part).ok_or_else(|| InvalidOverrides { text: part.to_owned() })?;
        }
        Ok(all)
    }
}

impl ServersOverrides {
    fn add(&mut self, text: &str) -> Option<()> {
        let (resource, servers) = text.split_once('#').filter(|(_, servers)| !servers.contains('#'))?;
        let (group, resource) = resource.split_once('/').filter(|(_, resource)| !resource.contains('/'))?;
        let mut servers: Vec<_> = servers.split(';').map(|server| server.trim().to_owned()).collect();
        if resource.is_empty() || servers.iter().any(String::is_empty) {
            return None;
        }
        servers.sort();
        servers.dedup();
        let known = self.backends.iter().position(|backend| *backend == servers);
        let backend = known.unwrap_or_else(|| {
            self.backends.push(servers);
            self.backends.len() - 1
        });
        self.overrides.push(ServersOverride { group: group.to_owned(), resource: resource.to_owned(), backend });
        Some(())
    }

    /// Takes in those of another flag.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        for added in &other.overrides {
            let Some(servers) = other.backends.get(added.backend) else { continue };
            _ = self.add(&format!("{}/{}#{}", added.group, added.resource, servers.join(";")));
        }
        self
    }

    /// Whether everything is stored in one place.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.overrides.is_empty()
    }

    /// The distinct sets of servers.
    #[must_use]
    pub fn backends(&self) -> &[Vec<String>] {
        &self.backends
    }

    /// What is stored in one of them, as it was written: `/events`.
    pub fn resources_of(&self, backend: usize) -> impl Iterator<Item = String> {
        let of_it = self.overrides.iter().filter(move |entry| entry.backend == backend);
        of_it.map(|entry| format!("{}/{}", entry.group, entry.resource))
    }

    /// Where a resource is stored: the number of one of the [backends](Self::backends), or none for where all others are.
    #[must_use]
    pub fn backend_of_resource(&self, resource: &GroupResource) -> Option<usize> {
        let resource = ResourceRef::from(resource).storage_location();
        let is_built_in =
            resource.known().is_some() && !matches!(resource.group, "apiextensions.k8s.io" | "apiregistration.k8s.io");
        if is_built_in { self.find(resource.group, resource.resource) } else { None }
    }

    /// Where a key is stored. The allocations of ports and addresses are where services are.
    #[must_use]
    pub fn backend_of_key(&self, layout: &KeyLayout, key: &[u8]) -> Option<usize> {
        match layout.locate(key) {
            Location::NonRest { kind: NonRest::Range, .. } => self.find("", "services"),
            Location::NonRest { kind: NonRest::MasterLease, .. } => self.find("", MASTER_LEASES),
            Location::NonRest { kind: NonRest::PeerServerLease, .. } => self.find("", PEER_LEASES),
            location => self.backend_of_resource(&location.resource()?.to_group_resource()),
        }
    }

    /// One of a whole group counts unless there is one of the resource itself; of several, the last.
    fn find(&self, group: &str, resource: &str) -> Option<usize> {
        let last = |wanted: &str| {
            let of_it = |entry: &&ServersOverride| entry.group == group && entry.resource == wanted;
            self.overrides.iter().rfind(of_it).map(|entry| entry.backend)
        };
        last(resource).or_else(|| last("*"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_are_read_as_kube_apiserver_reads_them() {
        let overrides: ServersOverrides =
            "/events#http://b:1;http://a:1,apps/*#http://c:1,apps/deployments#http://a:1;http://b:1,/services#http://d:1"
                .parse()
                .unwrap();
        assert_eq!(overrides.backends().len(), 3);
        let of = |group: &str, resource: &str| overrides.backend_of_resource(&GroupResource::new(group, resource));
        assert_eq!(of("", "events"), Some(0));
        // Events are stored as those of the core group.
        assert_eq!(of("events.k8s.io", "events"), Some(0));
        assert_eq!((of("apps", "deployments"), of("apps", "replicasets"), of("", "secrets")), (Some(0), Some(1), None));
        let of_key = |key: &str| overrides.backend_of_key(&KeyLayout::default(), key.as_bytes());
        assert_eq!(of_key("/registry/events/ns/x"), Some(0));
        assert_eq!(of_key("/registry/ranges/servicenodeports"), Some(2));
        assert_eq!((of_key("/registry/secrets/ns/x"), of_key("compact_rev_key")), (None, None));
        assert_eq!(overrides.resources_of(0).collect::<Vec<_>>(), ["/events", "apps/deployments"]);
        let never: ServersOverrides =
            "apiextensions.k8s.io/customresourcedefinitions#http://x:1,stable.example.com/widgets#http://x:1"
                .parse()
                .unwrap();
        assert_eq!(never.backend_of_key(&KeyLayout::default(), b"/registry/stable.example.com/widgets/ns/w"), None);
    }

    #[test]
    fn what_is_none_is_refused() {
        for bad in ["events#http://a", "/events", "/events#", "/events#a;", "/events#a#b", "a/b/c#d", "/#a"] {
            assert_eq!(bad.parse::<ServersOverrides>(), Err(InvalidOverrides { text: bad.to_owned() }), "{bad}");
        }
        assert!("".parse::<ServersOverrides>().unwrap().is_empty());
    }
}
