//! Resources and where etcd keeps their objects.
//!
//! An etcd key is the API server's `--etcd-prefix`, the resource's directory, the namespace if there is one, and the name:
//! `/registry/services/specs/default/web`. [`KeyLayout::locate`] takes keys apart, [`EtcdPrefix::key`] and
//! [`EtcdPrefix::directory`] put them together. A rebuilt key is for reading ranges only: the authenticated data of a
//! stored value are the key's bytes as etcd returns them.

mod known;
mod location;
mod overrides;
mod prefix;
mod selection;

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

pub use known::{KnownResource, Scope, known_resources};
pub use location::{Location, NonObject, NonRest};
pub use overrides::{InvalidOverrides, ServersOverrides};
pub use prefix::{EtcdPrefix, KeyLayout};
pub use selection::Selection;

/// Why there is no etcd key for what was asked. The one who asked can fix it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither a known resource nor one that a CustomResourceDefinition can define, so its directory is unknown.
    #[error("unknown resource {resource}")]
    UnknownResource {
        /// The resource.
        resource: GroupResource,
    },
    /// An object of a namespaced resource was named without its namespace.
    #[error("{resource} need a namespace")]
    NamespaceRequired {
        /// The resource.
        resource: GroupResource,
    },
    /// A namespace was given for a resource whose objects have none.
    #[error("{resource} do not belong to a namespace")]
    NotNamespaced {
        /// The resource.
        resource: GroupResource,
    },
    /// A name or a namespace that cannot be a segment of a path: empty, `.`, `..`, or with `/` or `%` in it
    /// (`path.IsValidPathSegmentName`).
    #[error("{segment:?} cannot be a name")]
    NotASegment {
        /// The name or the namespace.
        segment: String,
    },
}

/// A resource and its API group, Kubernetes' `schema.GroupResource`.
///
/// Shown as `resource.group`, or as `resource` alone in the core group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The lower-case plural of the resource.
    pub resource: String,
}

impl GroupResource {
    /// A resource of a group; the core group is the empty string.
    #[must_use]
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }

    /// Splits at the first dot, as Kubernetes' `schema.ParseGroupResource` does.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.split_once('.') {
            Some((resource, group)) => Self::new(group, resource),
            None => Self::new("", text),
        }
    }

    /// The resource that somebody means who writes `secrets`, `deployments.apps` or just `deployments`, by the name
    /// under which its objects are stored.
    ///
    /// A name without a dot is the core group's resource of that name or else the only [known](known_resources) resource
    /// of that name, whatever custom resources have the same one. Anything that is not known is taken as written.
    #[must_use]
    pub fn resolve(text: &str) -> Self {
        let written = Self::parse(text);
        if text.contains('.') || ResourceRef::from(&written).known().is_some() {
            return ResourceRef::from(&written).storage_location().to_group_resource();
        }
        let mut candidates = known_resources().filter(|row| row.resource.resource == text);
        match (candidates.next(), candidates.next()) {
            (Some(only), None) => only.resource.to_group_resource(),
            _ => written,
        }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ResourceRef::from(self).fmt(f)
    }
}

/// A borrowed [`GroupResource`]: what a key is located as, without copying anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceRef<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The lower-case plural of the resource.
    pub resource: &'a str,
}

impl<'a> ResourceRef<'a> {
    /// A resource of a group; the core group is the empty string.
    #[must_use]
    pub const fn new(group: &'a str, resource: &'a str) -> Self {
        Self { group, resource }
    }

    /// A copy that owns its text.
    #[must_use]
    pub fn to_group_resource(self) -> GroupResource {
        GroupResource::new(self.group, self.resource)
    }

    /// The resource as which the objects are stored: `events` for `events.events.k8s.io`, and itself for nearly all others.
    #[must_use]
    pub fn storage_location(self) -> Self {
        known::cohabitation(self).unwrap_or(self)
    }

    /// The row of the table, unless it is a custom resource.
    #[must_use]
    pub fn known(self) -> Option<&'static KnownResource> {
        static ROWS: LazyLock<HashMap<ResourceRef<'static>, &'static KnownResource>> =
            LazyLock::new(|| known_resources().map(|row| (row.resource, row)).collect());
        ROWS.get(&self).copied()
    }
}

impl<'a> From<&'a GroupResource> for ResourceRef<'a> {
    fn from(resource: &'a GroupResource) -> Self {
        Self::new(&resource.group, &resource.resource)
    }
}

impl PartialEq<GroupResource> for ResourceRef<'_> {
    fn eq(&self, other: &GroupResource) -> bool {
        *self == ResourceRef::from(other)
    }
}

impl fmt::Display for ResourceRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() { f.write_str(self.resource) } else { write!(f, "{}.{}", self.resource, self.group) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_is_resolved_to_the_stored_resource() {
        for (text, group, resource) in [
            ("secrets", "", "secrets"),
            ("secrets.", "", "secrets"),
            ("deployments.apps", "apps", "deployments"),
            ("deployments", "apps", "deployments"),
            ("deployments.extensions", "apps", "deployments"),
            ("ingresses", "networking.k8s.io", "ingresses"),
            ("events", "", "events"),
            ("events.events.k8s.io", "", "events"),
            ("routes", "route.openshift.io", "routes"),
            ("identities", "user.openshift.io", "identities"),
            ("widgets.stable.example.com", "stable.example.com", "widgets"),
            ("widgets", "", "widgets"),
            ("Secrets", "", "Secrets"),
            ("", "", ""),
        ] {
            assert_eq!(GroupResource::resolve(text), GroupResource::new(group, resource), "{text}");
        }
    }

    #[test]
    fn only_cohabiting_resources_are_stored_as_another() {
        let stored = |group, resource| ResourceRef::new(group, resource).storage_location().to_string();
        assert_eq!(stored("events.k8s.io", "events"), "events");
        assert_eq!(stored("extensions", "ingresses"), "ingresses.networking.k8s.io");
        assert_eq!(stored("apps", "deployments"), "deployments.apps");
        assert_eq!(stored("example.com", "events"), "events.example.com");
    }

    #[test]
    fn known_resources_have_their_kind() {
        let kind = |group, resource| ResourceRef::new(group, resource).known().and_then(|row| row.kind);
        assert_eq!(kind("", "endpoints"), Some("Endpoints"));
        assert_eq!(kind("policy", "poddisruptionbudgets"), Some("PodDisruptionBudget"));
        assert_eq!(kind("route.openshift.io", "routes"), None);
        assert_eq!(kind("example.com", "secrets"), None);
    }
}
