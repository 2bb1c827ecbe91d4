use std::sync::Arc;

use super::compactor::Compactor;
use super::lease::LeaseOptions;
use super::list::Corrupt;
use crate::resource::GroupResource;
use crate::storage::Metrics;

/// What a store is of.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// `--etcd-prefix`.
    pub path_prefix: String,
    /// What the keys of the resource begin with, as `/secrets` or `/services/specs`.
    pub resource_prefix: String,
    /// The resource, for metrics.
    pub resource: GroupResource,
    /// How leases are shared.
    pub leases: LeaseOptions,
    /// Where requests are counted.
    pub metrics: Option<Arc<Metrics>>,
    /// The release whose details are wanted, where they differ.
    pub compatibility: Compatibility,
    /// The feature gate `AllowUnsafeMalformedObjectDeletion` (KEP-3926): off up to 1.36, on from 1.37 on.
    pub allow_unsafe_malformed_object_deletion: bool,
    /// The feature gate `SizeBasedListCostEstimate`: whether [`Store::stats`](super::Store::stats) estimates sizes.
    pub estimates_sizes: bool,
    /// Whether updates of this store that have lost their key to another one try again one after the other. Upstream lets all of them
    /// try at once, which costs as many transactions for each update as there are writers.
    pub queues_conflicts: bool,
    /// Who knows what is compacted.
    pub compactor: Option<Compactor>,
}

impl StoreOptions {
    /// The options that an API server has for a resource.
    #[must_use]
    pub fn new(resource: GroupResource, resource_prefix: impl Into<String>) -> Self {
        Self {
            path_prefix: "/registry".to_owned(),
            resource_prefix: resource_prefix.into(),
            resource,
            leases: LeaseOptions::default(),
            metrics: None,
            compatibility: Compatibility::V1_36,
            allow_unsafe_malformed_object_deletion: false,
            estimates_sizes: true,
            queues_conflicts: true,
            compactor: None,
        }
    }
}

/// A release of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Compatibility {
    /// 1.36.
    V1_36,
    /// 1.37, as it is being made.
    V1_37,
}

/// What must hold of an object that is changed (`storage.Preconditions`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// Its UID.
    pub uid: Option<String>,
    /// Its resource version.
    pub resource_version: Option<String>,
}

/// How the resource version of a list is meant (`metav1.ResourceVersionMatch`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceVersionMatch {
    /// That one, or a later one.
    NotOlderThan,
    /// That one.
    Exact,
}

/// Which objects are wanted (`storage.SelectionPredicate`).
#[derive(Clone)]
pub struct Predicate<O> {
    matches: Option<Arc<Matches<O>>>,
}

type Matches<O> = dyn Fn(&O) -> bool + Send + Sync;

impl<O> Predicate<O> {
    /// All.
    #[must_use]
    pub const fn everything() -> Self {
        Self { matches: None }
    }

    /// Those of which this is true.
    #[must_use]
    pub fn new(matches: impl Fn(&O) -> bool + Send + Sync + 'static) -> Self {
        Self { matches: Some(Arc::new(matches)) }
    }

    /// Whether all are wanted.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.matches.is_none()
    }

    /// Whether this one is wanted.
    #[must_use]
    pub fn matches(&self, object: &O) -> bool {
        self.matches.as_ref().is_none_or(|matches| matches(object))
    }
}

impl<O> Default for Predicate<O> {
    fn default() -> Self {
        Self::everything()
    }
}

impl<O> std::fmt::Debug for Predicate<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_empty() { "Predicate::everything()" } else { "Predicate::new(…)" })
    }
}

/// What to list.
#[derive(Clone, Debug)]
pub struct ListOptions<O> {
    /// `resourceVersion`.
    pub resource_version: String,
    /// `resourceVersionMatch`.
    pub resource_version_match: Option<ResourceVersionMatch>,
    /// Whether the key is what others begin with, or one object.
    pub recursive: bool,
    /// Which objects.
    pub predicate: Predicate<O>,
    /// How many at most, 0 for all.
    pub limit: i64,
    /// `continue`.
    pub continue_token: String,
    /// What becomes of objects that cannot be read.
    pub corrupt: Corrupt,
}

impl<O> Default for ListOptions<O> {
    fn default() -> Self {
        Self {
            resource_version: String::new(),
            resource_version_match: None,
            recursive: true,
            predicate: Predicate::everything(),
            limit: 0,
            continue_token: String::new(),
            corrupt: Corrupt::Fail,
        }
    }
}
