//! Rotation while the cluster runs: everything stale is stored again, sealed by the first provider of its resource.
//!
//! Upstream's word for it is *storage migration*. The difference is where it happens: here, at the level of stored bytes. The
//! plaintext is sealed again as it is, neither decoded nor normalised; no admission is asked and no audit event is made.

mod execute;
mod journal;
mod plan;
mod rewrite;
mod space;
mod write_keys;

pub use execute::{Execution, execute};
pub use journal::{Journal, JournalError};
pub use plan::plan;
pub use space::Space;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::resource::{GroupResource, Selection};
use crate::transformer::envelope::{DekFailure, Wanted};
use crate::transformer::{KeyLabel, KmsProvider, ResourceTransformer, ResourceTransformers};

/// What to rewrite, and by what.
#[derive(Debug)]
pub struct Options<'a> {
    /// The configuration.
    pub transformers: &'a ResourceTransformers,
    /// Which values.
    pub selection: &'a Selection,
    /// What the reports call the source.
    pub source: String,
    /// Keys that may write although they open none of the values that name them: somebody knows better.
    pub trusted: &'a [KeyLabel],
}

/// Why a rotation cannot begin. The operator can fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// etcd cannot be read.
    #[error("cannot read etcd")]
    Storage(#[from] crate::storage::Error),
    /// No key can match what is selected.
    #[error("the selection cannot be")]
    Selection(#[from] crate::resource::Error),
    /// The provider that writes takes a KMS, and that cannot be used.
    #[error("{resource} are written by {key}")]
    Kms {
        /// A resource of which this is so.
        resource: String,
        /// The key that writes.
        key: KeyLabel,
        /// What is wrong with the KMS.
        #[source]
        failure: DekFailure,
    },
    /// The key that writes is not the one that the API servers have under that name: what it wrote, none could read.
    #[error("{key} in the configuration opens none of the {values} values that are stored under that name")]
    WrongWriteKey {
        /// The key, as PROVIDER/NAME.
        key: String,
        /// How many values name it.
        values: u64,
    },
    /// The journal cannot be opened.
    #[error("journal")]
    Journal(#[from] JournalError),
}

impl Options<'_> {
    /// The lists by which selected values are written, each with a resource that it is for, which may be a wildcard.
    fn write_lists(&self) -> Vec<(GroupResource, &ResourceTransformer)> {
        let of = |resource: &GroupResource| {
            (resource.clone(), self.transformers.transformer_for_resource(&resource.group, &resource.resource))
        };
        match self.selection.resources.as_slice() {
            [] => self.transformers.lists().collect(),
            selected => selected.iter().map(of).collect(),
        }
    }
}

impl Options<'_> {
    /// The KMS providers that write, each with a resource that it writes.
    fn write_kms(&self) -> BTreeMap<usize, (GroupResource, Arc<KmsProvider>)> {
        let lists = self.write_lists().into_iter();
        lists
            .filter_map(|(resource, list)| list.write_kms().map(|kms| (kms.index(), (resource, Arc::clone(kms)))))
            .collect()
    }

    /// What has to be known of the KMS plugins that write before a header can be judged.
    fn wanted_statuses(&self) -> Wanted {
        let mut wanted = Wanted::default();
        self.write_kms().values().for_each(|(_, provider)| wanted.add_provider(provider));
        wanted
    }
}
