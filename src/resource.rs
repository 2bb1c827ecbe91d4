//! Resources and where etcd keeps their objects.

use std::fmt;

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
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() { f.write_str(&self.resource) } else { write!(f, "{}.{}", self.resource, self.group) }
    }
}
